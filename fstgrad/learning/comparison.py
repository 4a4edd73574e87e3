"""Compare two models on the same pairs: error rates with intervals of a paired bootstrap."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, Seed, generator, positive_integer
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.learning.measures import Symbols, edit_distances, parallel_strings

LEVEL = 0.95


class Interval(NamedTuple):
    """A value and the ends of its 95 percent bootstrap interval."""

    value: float
    lower: float
    upper: float


class Comparison(NamedTuple):
    """Error rates of two sets of predictions of the same targets.

    word_error : the share of predictions that differ from their target, for both.
    symbol_error : the sum of edit distances divided by the symbols of the targets, for both.
    word_difference, symbol_difference : second minus first; negative if the second is better.
    p_word, p_symbol : two-sided p-values for the hypothesis of no difference.
    """

    pairs: int
    word_error: tuple[Interval, Interval]
    symbol_error: tuple[Interval, Interval]
    word_difference: Interval
    symbol_difference: Interval
    p_word: float
    p_symbol: float

    def __repr__(self) -> str:
        return short_repr(self)


def compare(
    first: Sequence[Symbols],
    second: Sequence[Symbols],
    targets: Sequence[Symbols],
    *,
    resamples: int = 2000,
    rng: Seed = 0,
) -> Comparison:
    """Return the error rates of two sets of predictions, and of their differences.

    Pairs are drawn with replacement, the same pairs for both predictions (Efron and Tibshirani
    1993, chapters 13 and 16); O(resamples x pairs).

    Raises
    ------
    InvalidInputError
        If there are no targets, or the number of predictions differs.

    Examples
    --------
    >>> result = compare(["cat", "dig"] * 50, ["cat", "dog"] * 50, ["cat", "dog"] * 50)
    >>> result.word_difference.value, result.word_difference.upper < 0
    (-0.5, True)
    """
    first, second, targets = parallel_strings(first=first, second=second, targets=targets)
    if not targets or not len(first) == len(second) == len(targets):
        raise InvalidInputError(
            f"first, second and targets have {len(first)}, {len(second)} and {len(targets)} items; "
            "give one of each for every pair"
        )
    edits = np.stack([edit_distances(given, targets) for given in (first, second)])
    wrong = (edits > 0).astype(np.float64)
    sizes = np.array([len(target) for target in targets], dtype=np.float64)
    ones = np.ones(len(targets))
    draws = _draws(len(targets), positive_integer("resamples", resamples), rng)
    word, symbol = _rates(wrong, ones, draws), _rates(edits, sizes, draws)
    return Comparison(
        len(targets),
        (_interval(word[0]), _interval(word[1])),
        (_interval(symbol[0]), _interval(symbol[1])),
        _interval(word[1] - word[0]),
        _interval(symbol[1] - symbol[0]),
        _p_value(word[1] - word[0]),
        _p_value(symbol[1] - symbol[0]),
    )


def _draws(pairs: int, resamples: int, rng: Seed) -> FloatArray:
    """Return the number of draws of each pair, (resamples + 1, pairs); row 0 has each pair once."""
    numbers = generator(rng).multinomial(pairs, np.full(pairs, 1 / pairs), size=resamples)
    return np.vstack([np.ones(pairs), numbers])


def _rates(errors: FloatArray, sizes: FloatArray, draws: FloatArray) -> FloatArray:
    """Return the error rates (2, resamples + 1): errors divided by sizes, for each resample."""
    total: FloatArray = errors @ draws.T / np.maximum(draws @ sizes, 1.0)
    return total


def _interval(values: FloatArray) -> Interval:
    """Return the first value, with percentiles of the other values as bounds."""
    lower, upper = np.quantile(values[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(values[0]), float(lower), float(upper))


def _p_value(differences: FloatArray) -> float:
    """Return the two-sided p-value of no difference: twice the share of draws of other sign."""
    drawn = differences[1:]
    if not differences.any():
        return 1.0
    tail = min(float(np.mean(drawn <= 0)), float(np.mean(drawn >= 0)))
    return float(min(1.0, max(2 * tail, 1 / len(drawn))))
