"""Trained models in npz files: plain arrays and one JSON text, nothing that is executed."""

import json
import os
import zipfile
from dataclasses import asdict
from typing import Any

import numpy as np

from fstgrad.alphabet import Alphabet
from fstgrad.errors import InvalidInputError
from fstgrad.io import write_arrays
from fstgrad.training.lengths import LengthModel
from fstgrad.training.trainer import Epoch

FORMAT = "fstgrad.models 1"
_LEFT_OUT = ("callbacks", "checkpoint")
Path = str | os.PathLike[str]


def save(model: Any, path: Path) -> None:
    """Write a fitted `SequenceModel`; what JSON cannot hold is saved as null."""
    settings = {k: v for k, v in model.get_params().items() if k not in _LEFT_OUT}
    own = [name for name, value in settings.items() if not _is_plain(value)]
    text = {
        "format": FORMAT,
        "settings": {**settings, **dict.fromkeys(own)},
        "own": own,
        "about": model.about_,
        "symbols": model.alphabet_.symbols,
        "names": model.features_.names,
        "joined": model.joined_,
        "ratio": model.lengths_.ratio,
        "history": [asdict(epoch) for epoch in model.history_],
    }
    write_arrays(
        path,
        text=json.dumps(text, ensure_ascii=False),
        coef=model.coef_,
        inputs=model.lengths_.inputs,
        outputs=model.lengths_.outputs,
    )


def load(kind: Any, path: Path, given: dict[str, Any]) -> Any:
    """Return a model of class `kind`; `given` are the settings that JSON could not hold."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            text = json.loads(str(archive["text"]))
            coef, inputs, outputs = (archive[name] for name in ("coef", "inputs", "outputs"))
        if text["format"] != FORMAT:
            raise KeyError("format")
    except FileNotFoundError:
        raise
    except (KeyError, ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InvalidInputError(
            f"{os.fspath(path)} is not a model that SequenceModel.save wrote"
        ) from error
    needed = [name for name in ("features",) if name in text["own"] and name not in given]
    if needed:
        raise InvalidInputError(
            f"{os.fspath(path)} was trained with features of your own, which are code and not in "
            "the file; give them: SequenceModel.load(path, features=...)"
        )
    settings = {**text["settings"], **given}
    settings["alphabet"] = Alphabet(text["symbols"])
    model = kind(**settings)
    model.about_, model.joined_ = text["about"], text["joined"]
    model.lengths_ = LengthModel(inputs, outputs, text["ratio"])
    model.history_ = [Epoch(**epoch) for epoch in text["history"]]
    model.prepare(settings["alphabet"], text["names"])
    model.coef_ = coef
    return model


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
