"""What a training leaves in files: the model, and its learning curves.

- `save`, `load` : a trained model as an npz file, plain arrays and one JSON text without code.
- `write_curves` : the history as JSON, and as a picture in PNG or SVG (the extra `fstgrad[plot]`).
"""

import hashlib
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from fstgrad import plot
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import extra, path_name, positive_number
from fstgrad.core.errors import InvalidInputError
from fstgrad.io import Field, Path, json_object, read_arrays, shown, write_arrays, write_text
from fstgrad.learning.outputs import SLOTS, LatentOutputs, LengthModel
from fstgrad.learning.template_features import Pairs
from fstgrad.learning.templates import Template, Window
from fstgrad.learning.trainer import Epoch
from fstgrad.learning.vocabulary import Names, Vocabulary, WindowNames

FORMAT = "fstgrad.models 3"
WHAT = "a model that SequenceModel.save wrote"
NO_PART_OF_THE_RESULT = ("n_jobs", "warm_start", "cache_bytes", "callbacks", "checkpoint")
_LEFT_OUT = ("callbacks", "checkpoint")
_LONGEST = 2**17  # symbols of an output, or a thousand per symbol of the input
_ARRAYS = {
    "text": Field("text"),
    "coef": Field("float", (None,)),
    "inputs": Field("integer", ("sizes",), lower=0),
    "outputs": Field("integer", ("sizes",), lower=1, upper=_LONGEST),
    "keys": Field("integer", (None,), lower=0),
    "first": Field("integer", ("starts",), lower=0),
    "symbol": Field("integer", ("pairs",), lower=0),
}
_TEXT: dict[str, type | tuple[type, ...]] = {
    "format": str, "settings": dict, "own": list, "about": dict, "symbols": list, "names": list,
    "digits": list, "sides": list, "joined": (bool, str), "slots": list,
    "latent": (list, type(None)), "ratio": (int, float), "history": list,
}  # fmt: skip
_SETTINGS: dict[str, type | tuple[type, ...]] = {
    "loss": (str, type(None)), "features": (str, type(None)), "order": int, "objective": str,
    "alignment": (str, type(None)),
    "l2": (int, float, type(None)), "held_out": (int, float),
    "window": int, "span": int, "min_count": int, "alphabet": type(None),
    "optimizer": str, "epochs": (int, type(None)), "batch_size": int,
    "learning_rate": (int, float, type(None)), "seed": int,
    "patience": (int, type(None)), "cap": (int, float, str, type(None)),
    "tolerance": (int, float), "method": (str, type(None)), "samples": int, "max_states": int,
    "proposal": str, "seconds": (int, float), "temperature": (int, float),
    "epsilon": (int, float),
    "n_jobs": int, "warm_start": bool, "cache_bytes": int,
}  # fmt: skip


def check_trained(model: Any) -> None:
    """Raise unless `model` is a `SequenceModel` that has been fitted."""
    if not hasattr(model, "coef_") or not hasattr(model, "features_"):
        raise InvalidInputError("the model is not trained; call fit first")


def save(model: Any, path: Path) -> None:
    """Write a fitted `SequenceModel`; settings that JSON cannot hold are saved as null."""
    check_trained(model)
    settings = {k: v for k, v in model.get_params().items() if k not in _LEFT_OUT}
    not_in_json = [name for name, value in settings.items() if not _is_plain(value)]
    vocabulary, pairs = model.features_.vocabulary, model.features_.pairs
    text = {
        "format": FORMAT,
        "settings": {**settings, **dict.fromkeys(not_in_json)},
        "own": not_in_json,
        "about": model.about_,
        "symbols": model.alphabet_.symbols,
        **_vocabulary_text(vocabulary),
        "joined": model.joined_,
        "latent": None if model.latent_ is None else model.latent_.strings,
        "slots": [0, 0] if model.latent_ is None else model.latent_.slots,
        "ratio": model.lengths_.ratio,
        "history": [asdict(epoch) for epoch in model.history_],
    }
    write_arrays(
        path,
        text=json.dumps(text, ensure_ascii=False),
        coef=model.coef_,
        inputs=model.lengths_.inputs,
        outputs=model.lengths_.outputs,
        keys=vocabulary.keys if isinstance(vocabulary, WindowNames) else np.zeros(0, np.int64),
        first=pairs.first,
        symbol=pairs.symbol,
    )


def fingerprint(model: Any, *data: object) -> str:
    """Return a digest of settings, loss, alphabet and data, which determine the weights."""
    settings = {k: v for k, v in model.get_params().items() if k not in NO_PART_OF_THE_RESULT}
    settings["loss"] = model.loss_ and model.loss_.fingerprint
    if not isinstance(model.features, str):
        settings["features"] = getattr(model.features, "__qualname__", "own")
    digest = hashlib.sha256(repr((settings, model.alphabet_.symbols)).encode())
    for part in data:
        digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return digest.hexdigest()


def load(kind: Any, path: Path, given: dict[str, Any]) -> Any:
    """Return a model of class `kind`; `given` are the settings that JSON could not hold."""
    arrays = read_arrays(path, _ARRAYS, what=WHAT)
    with _blamed_on(path):
        text = json_object(str(arrays["text"]), _TEXT)
        _check(text)
        alphabet = Alphabet(_strings(text, "symbols"))
        history = [Epoch.from_json(epoch) for epoch in text["history"]]
        ratio = positive_number("ratio", text["ratio"], allow_zero=True)
        if text["joined"] not in (True, False, "ids"):
            raise InvalidInputError(f"'joined' in its text is {shown(text['joined'])}")
        if ratio > 1_000:
            raise InvalidInputError(f"its ratio of lengths is {ratio:g}")
    if "features" in text["own"] and "features" not in given:
        raise InvalidInputError(
            f"{os.fspath(path)} was trained with custom features, and the file does not contain "
            "their code; give them: SequenceModel.load(path, features=...)"
        )
    with _blamed_on(path):
        model = kind(**{**text["settings"], **given, "alphabet": alphabet})
        latent = _latent(text["latent"], text["slots"], alphabet)
        outputs = alphabet if latent is None else latent.symbols
        vocabulary = _vocabulary(text, arrays, model.template())
        pairs = _pairs(arrays, len(vocabulary), len(outputs))
        weights = _weights(len(pairs.symbol), len(outputs), model.order)
        if weights != len(arrays["coef"]):
            raise InvalidInputError(f"coef has {len(arrays['coef'])} numbers, not {weights}")
        model.about_, model.joined_ = text["about"], text["joined"]
        model.lengths_ = LengthModel(arrays["inputs"], arrays["outputs"], ratio)
        model.history_ = history
        model.prepare(alphabet, (vocabulary, pairs), latent=latent)
    model.coef_ = arrays["coef"]
    return model


@contextmanager
def _blamed_on(path: Path) -> Iterator[None]:
    """Add the name of the file to the errors raised inside."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError(f"{os.fspath(path)} is not {WHAT}: {error}") from error


def _check(text: dict[str, Any]) -> None:
    """Raise if the text has another format, or a setting that `save` does not write."""
    if text["format"] != FORMAT:
        raise InvalidInputError(f"its format is {shown(text['format'])}, not {FORMAT!r}")
    for name, value in text["settings"].items():
        if name not in _SETTINGS:
            raise InvalidInputError(f"its setting {shown(name)} is not a setting of a model")
        json_object(json.dumps({name: value}), {name: _SETTINGS[name]})


def _latent(
    strings: list[Any] | None, slots: list[Any], alphabet: Alphabet
) -> LatentOutputs | None:
    """Return the latent outputs of a file, whose strings have symbols of the alphabet."""
    if strings is None:
        return None
    for string in strings:
        if not isinstance(string, list) or not all(symbol in alphabet for symbol in string):
            raise InvalidInputError(f"latent has {shown(string)}, not a list of symbols of y")
    if len(slots) != 2 or any(type(slot) is not int or not 0 <= slot <= SLOTS for slot in slots):
        raise InvalidInputError(f"slots is {shown(slots)}, not two numbers up to {SLOTS}")
    return LatentOutputs(alphabet, tuple(tuple(string) for string in strings), (slots[0], slots[1]))


def _strings(text: dict[str, Any], name: str) -> list[str]:
    if not all(isinstance(item, str) for item in text[name]):
        raise InvalidInputError(f"{name} has an item that is not text")
    return list(text[name])


def _vocabulary_text(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the part of a vocabulary that is in JSON; the keys of a window are an array."""
    if isinstance(vocabulary, WindowNames):
        return {"names": [], "digits": vocabulary.symbols, "sides": vocabulary.tags}
    return {"names": vocabulary.names, "digits": [], "sides": []}


def _vocabulary(text: dict[str, Any], arrays: dict[str, Any], template: Template) -> Vocabulary:
    names = _strings(text, "names")
    if not isinstance(template, Window) or names:
        return Names(template, names)
    keys = arrays["keys"]
    names_of_window = WindowNames(
        template, tuple(_strings(text, "digits")), tuple(_strings(text, "sides")), keys
    )
    if (np.diff(keys) <= 0).any() or (len(keys) and keys[-1] >= names_of_window.largest):
        raise InvalidInputError("keys are not ascending numbers of its features")
    return names_of_window


def _pairs(arrays: dict[str, Any], names: int, symbols: int) -> Pairs:
    """Return the pairs of names and symbols; the kernels do not check their numbers again."""
    first, symbol = arrays["first"], arrays["symbol"]
    is_complete = len(first) == names + 1 and first[0] == 0 and first[-1] == len(symbol)
    if not is_complete or (np.diff(first) < 0).any() or (symbol > symbols).any():
        raise InvalidInputError("first and symbol are not the pairs of its features")
    return Pairs(first, symbol)


def _weights(pairs: int, symbols: int, order: int) -> int:
    """Return the number of weights of pairs and of q-grams up to an order; it may be huge."""
    total, grams = pairs, symbols
    for _ in range(min(order, 64) - 1):
        grams *= symbols + 1
        total += grams
    return total


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def checkpoint(model: Any) -> pathlib.Path | None:
    """Return the checkpoint file of the training of a model, or None."""
    path = model.checkpoint
    return None if path is None else pathlib.Path(path_name(path, "checkpoint"))


def check_curves_name(path: str | os.PathLike[str]) -> None:
    """Raise unless a file of this name can be drawn.

    Raises
    ------
    InvalidInputError
        If it does not end in .png, .svg or .json.
    MissingDependencyError
        If a picture needs matplotlib and this is not installed.
    """
    if pathlib.Path(path).suffix not in (".png", ".svg", ".json"):
        raise InvalidInputError(
            f"{os.fspath(path)!r} does not end in .png, .svg or .json; choose one of them"
        )
    if pathlib.Path(path).suffix != ".json":
        extra("matplotlib", "plot", "a picture of learning curves")


def write_curves(history: Sequence[Epoch], path: str | os.PathLike[str]) -> None:
    """Draw the objective, the gradient norm and the validation error over the epochs.

    The numbers are written to `path` with the extension .json.

    Raises
    ------
    InvalidInputError
        If the name does not end in .png, .svg or .json.
    """
    target = pathlib.Path(path)
    check_curves_name(target)
    numbers = json.dumps([asdict(epoch) for epoch in history], indent=1)
    write_text(target.with_suffix(".json"), numbers + "\n")
    if target.suffix == ".json":
        return
    plot.save(plot.learning(history), target)
