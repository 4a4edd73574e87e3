"""Fitted models in .npz files: plain arrays and one JSON text, nothing that is executed."""

import json
import os
import pathlib
from typing import Any

import numpy as np

from fstgrad.errors import InvalidInputError
from fstgrad.grm import fitting
from fstgrad.grm.parameters import unflatten

FORMAT = "fstgrad.grm 1"


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted `GeneralizedRootModel`."""
    settings = {**model.get_params(), "checkpoint": None}
    sizes, roots, members, values = model.parameters_.flat
    with pathlib.Path(path).open("wb") as stream:
        np.savez_compressed(
            stream,
            format=np.array(FORMAT),
            settings=np.array(json.dumps(settings, default=plain)),
            names=np.asarray(model.names_, dtype=str),
            intercepts=model.parameters_.intercepts,
            sizes=sizes,
            roots=roots,
            members=members,
            coefficients=values,
            candidates=np.array(model.n_candidates_),
            **fitting.pack(dict(enumerate(model.node_fits_))),
        )


def load(kind: Any, path: str | os.PathLike[str]) -> Any:
    """Return a model of class `kind` that `save` wrote."""
    try:
        with np.load(path, allow_pickle=False) as data:
            arrays = dict(data)
        settings = json.loads(str(arrays["settings"]))
    except FileNotFoundError:
        raise
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise InvalidInputError(
            f"{os.fspath(path)} is not a model that GeneralizedRootModel.save wrote"
        ) from error
    model = kind(**settings)
    model.names_ = arrays["names"].tolist()
    model.parameters_ = unflatten(
        model.base, arrays["intercepts"], arrays["sizes"], arrays["roots"], arrays["members"],
        arrays["coefficients"],
    )  # fmt: skip
    fits = fitting.unpack(arrays)
    model.node_fits_ = [fits[node] for node in range(len(fits))]
    model._summaries(int(arrays["candidates"]))
    return model


def plain(value: object) -> object:
    """Turn numpy scalars and arrays into what JSON knows."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, tuple | set | frozenset):
        return sorted(value) if isinstance(value, set | frozenset) else list(value)
    raise TypeError(f"{type(value).__name__} cannot be saved")
