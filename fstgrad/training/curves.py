"""Learning curves: JSON, and a picture in PNG or SVG (the extra `fstgrad[plot]`)."""

import json
import os
import pathlib
from collections.abc import Sequence
from dataclasses import asdict

from fstgrad import checks
from fstgrad.training.trainer import Epoch


def write_curves(history: Sequence[Epoch], path: str | os.PathLike[str]) -> None:
    """Draw the objective, the gradient norm and the validation error over the epochs.

    Next to the picture, `path` with the ending .json holds the numbers.
    """
    target = pathlib.Path(path)
    numbers = json.dumps([asdict(epoch) for epoch in history], indent=1)
    target.with_suffix(".json").write_text(numbers + "\n", encoding="utf-8")
    if target.suffix == ".json":
        return
    checks.extra("matplotlib", "plot", "a picture of learning curves")
    from matplotlib.figure import Figure

    curves = {
        "objective (nats)": [epoch.objective for epoch in history],
        "gradient norm": [epoch.gradient_norm for epoch in history],
    }
    if history and history[0].validation is not None:
        curves["validation error rate"] = [epoch.validation or 0.0 for epoch in history]
    figure = Figure(figsize=(3.4 * len(curves), 2.8), layout="constrained")
    for axes, (name, values) in zip(figure.subplots(1, len(curves)), curves.items(), strict=True):
        axes.plot([epoch.epoch for epoch in history], values, marker=".")
        axes.set(xlabel="epoch", ylabel=name)
    figure.savefig(target)
