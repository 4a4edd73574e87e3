"""The bootstrap: intervals and p-values of ratios of sums over items drawn with replacement."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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


def ratio(numbers: npt.ArrayLike, sizes: npt.ArrayLike, resamples: int, rng: Seed) -> Interval:
    """Return sum(numbers) / max(1, sum(sizes)), two arrays (N,), with the interval of `ratios`."""
    table = np.array([numbers, sizes], dtype=np.float64).T
    sums = resampled_sums(table, resamples, rng)
    return interval(ratios(sums[:, :1], sums[:, 1:])[:, 0])


def ratios(numbers: FloatArray, sizes: FloatArray) -> FloatArray:
    """Return numbers / max(1, sizes) of `resampled_sums`, (k + 1, C), without draws of size 0.

    numbers : (k + 1, C).  sizes : (k + 1, C) or (k + 1, 1).  A draw with a size of 0, where that of
    all rows is not 0, has no ratio; without other draws, the ratios of all rows stand for one.
    """
    has_ratio = ((sizes > 0) | (sizes[:1] == 0)).all(axis=1)
    found: FloatArray = (numbers / np.maximum(sizes, 1.0))[has_ratio]
    return found if len(found) > 1 else np.repeat(found, 2, axis=0)


def difference(differences: FloatArray, changed: int) -> tuple[Interval, float]:
    """Return the first of k + 1 differences with its interval, and the p-value of no difference.

    p is twice the share of draws of other sign, but at least 1 / k and 2^(1 - n), where
    n = `changed` is the number of items that differ: the probability that n differences have one
    sign, if both are equally likely.  The interval has 0 if, and only if, p > 1 - LEVEL: its bounds
    are drawn differences, or 0 where draws from a few items all agree.
    """
    drawn = np.sort(differences[1:])
    if not differences.any():
        return Interval(0.0, 0.0, 0.0), 1.0
    size = len(drawn)
    outside = int(size * (1 - LEVEL) / 2 + 1e-9)  # of the draws, on each side
    tail = min(int(np.sum(drawn <= 0)), int(np.sum(drawn >= 0)))
    p = min(1.0, max(2 * tail / size, 1 / size, 2.0 ** (1 - changed)))
    lower, upper = float(drawn[outside]), float(drawn[-1 - outside])
    if p > 1 - LEVEL:
        lower, upper = min(lower, 0.0), max(upper, 0.0)
    return Interval(float(differences[0]), lower, upper), p
