"""The bootstrap: intervals and p-values of ratios of sums over items drawn with replacement."""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, Seed, generator, positive_integer
from fstgrad.core.uninitialized import empty

LEVEL = 0.95
_BLOCK = 2**22  # most numbers of a block of resamples


class Interval(NamedTuple):
    """A value and the ends of its 95 percent bootstrap interval."""

    value: float
    lower: float
    upper: float


def resampled_sums(table: FloatArray, resamples: int, rng: Seed) -> FloatArray:
    """Return the column sums (resamples + 1, C) of the N rows of a table (N, C), N > 0.

    Row 0 has the sums of all rows, the other rows those of N rows drawn with replacement (Efron and
    Tibshirani 1993, chapters 13 and 16).  Equal rows are drawn together, as a multinomial number:
    O(resamples x different rows).
    """
    resamples = positive_integer("resamples", resamples)
    rows, number = np.unique(table, axis=0, return_counts=True)
    rng, share = generator(rng), number / number.sum()
    sums = empty((resamples + 1, table.shape[1]))
    sums[0] = number @ rows
    step = max(1, _BLOCK // len(rows))
    for first in range(1, resamples + 1, step):
        part = sums[first : first + step]
        part[:] = rng.multinomial(len(table), share, size=len(part)) @ rows
    return sums


def interval(values: FloatArray) -> Interval:
    """Return the first of k + 1 values, with percentiles of the other k as bounds."""
    lower, upper = np.quantile(values[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(values[0]), float(lower), float(upper))


def p_value(differences: FloatArray, changed: int) -> float:
    """Return the two-sided p-value of no difference: twice the share of draws of other sign.

    It is at least 2^(1 - k), where k = `changed` is the number of items that differ: that of k
    differences of one sign, if both signs are equally likely.  Draws from a few items all agree.
    """
    drawn = differences[1:]
    if not differences.any():
        return 1.0
    tail = min(float(np.mean(drawn <= 0)), float(np.mean(drawn >= 0)))
    return float(min(1.0, max(2 * tail, 1 / len(drawn), 2.0 ** (1 - changed))))
