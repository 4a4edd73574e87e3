"""Learning curves: JSON, and a picture in PNG or SVG (the extra `fstgrad[plot]`)."""

import json
import os
import pathlib
from collections.abc import Sequence
from dataclasses import asdict

from fstgrad import plot
from fstgrad.core import checks
from fstgrad.core.errors import InvalidInputError
from fstgrad.io import write_text
from fstgrad.learning.trainer import Epoch


def check_name(path: str | os.PathLike[str]) -> None:
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
        checks.extra("matplotlib", "plot", "a picture of learning curves")


def write_curves(history: Sequence[Epoch], path: str | os.PathLike[str]) -> None:
    """Draw the objective, the gradient norm and the validation error over the epochs.

    The numbers are written to `path` with the extension .json.

    Raises
    ------
    InvalidInputError
        If the name does not end in .png, .svg or .json.
    """
    target = pathlib.Path(path)
    check_name(target)
    numbers = json.dumps([asdict(epoch) for epoch in history], indent=1)
    write_text(target.with_suffix(".json"), numbers + "\n")
    if target.suffix == ".json":
        return
    plot.save(plot.learning(history), target)
