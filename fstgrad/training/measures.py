"""How good predictions are: accuracy, mean loss, error rate."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fstgrad.losses import Loss

Symbols = Sequence[str]


class Evaluation(NamedTuple):
    """Measures of predictions against targets.

    pairs : number of pairs.
    accuracy : share of predictions that equal their target.
    loss : mean of L(prediction, target) in nats; nan without a loss.
    error_rate : edit distances added up, divided by the symbols of the targets.
    unknown : number of pairs whose target has a symbol outside the alphabet of the loss: they count
        as wrong, and are left out of `loss`.
    """

    pairs: int
    accuracy: float
    loss: float
    error_rate: float
    unknown: int = 0


def evaluate(
    predictions: Sequence[Symbols], targets: Sequence[Symbols], loss: Loss | None = None
) -> Evaluation:
    """Return the measures of predictions.

    Examples
    --------
    >>> evaluate(["cat", "dog"], ["cat", "dug"])
    Evaluation(pairs=2, accuracy=0.5, loss=nan, error_rate=0.16666666666666666, unknown=0)
    """
    pairs = list(zip(predictions, targets, strict=True))
    equal = sum(list(a) == list(b) for a, b in pairs)
    errors = sum(edit_distance(a, b) for a, b in pairs)
    symbols = sum(len(target) for target in targets)
    mean, unknown = float("nan"), 0
    if loss is not None:
        known = [(a, b) for a, b in pairs if all(symbol in loss.alphabet for symbol in b)]
        unknown = len(pairs) - len(known)
        mean = float(np.mean([loss(a, b) for a, b in known])) if known else mean
    return Evaluation(len(pairs), equal / len(pairs), mean, errors / symbols, unknown)


def edit_distance(a: Symbols, b: Symbols) -> int:
    """Return the least number of insertions, deletions and substitutions; O(|a| |b|)."""
    row = list(range(len(b) + 1))
    for i, symbol in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, other in enumerate(b, start=1):
            best = min(before + (symbol != other), row[j] + 1, row[j - 1] + 1)
            before, row[j] = row[j], best
    return row[-1]
