"""Compare two systems on the same pairs: error rates, a paired bootstrap, matched segments."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fstgrad.core.bootstrap import LEVEL, Interval, difference, ratio, ratios, resampled_sums
from fstgrad.core.checks import BoolArray, IntArray, Seed
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.learning.edits import Edits, Symbols
from fstgrad.learning.measures import parallel_strings
from fstgrad.losses.automata.kernels.arguments import DELETE, MATCH

_FEW = 20  # pairs that differ, below which a note says so
_FEW_SEGMENTS = 30  # of the matched-pairs test, whose statistic is normal for many


class MatchedPairs(NamedTuple):
    """The matched-pairs test of the errors of two systems, segment by segment (MAPSSWE).

    A segment is a stretch of a reference with errors of one system or both.  Segments are separated
    by the ends of references, and by two or more neighbouring symbols that both systems have right,
    with nothing inserted between them, as in NIST's sc_stats.  With the differences d_i of n
    segments, second minus first, z = mean(d) / (sd(d) / sqrt(n)), where sd has the divisor n - 1.

    segments : n.
    difference : mean(d), in errors per segment.
    z : the statistic; None if n < 2, or if all differences are equal and not 0.
    p_value : two-sided, from the normal distribution; not reliable with fewer than 30 segments.
        None without z.
    """

    segments: int
    difference: float
    z: float | None
    p_value: float | None

    def __str__(self) -> str:
        said = "z is not defined: too few segments, or all differ alike"
        if self.z is not None and self.p_value is not None:
            said = f"z = {self.z:.4g}, p = {self.p_value:.4g}"
            if self.segments < _FEW_SEGMENTS:
                said += f"; not reliable with fewer than {_FEW_SEGMENTS} segments"
        return f"{self.segments:,} segments, {self.difference:+.4g} errors per segment, {said}"


class Comparison(NamedTuple):
    """Error rates of two sets of predictions of the same targets.

    word_error : the share of predictions that differ from their target, for both.
    symbol_error : the sum of edit distances divided by the symbols of the targets, for both.
    word_difference, symbol_difference : second minus first; negative if the second is better.
    p_word, p_symbol : two-sided p-values for the hypothesis of no difference, by a paired
        bootstrap.  p is at most 0.05 if, and only if, the interval of the difference excludes 0.
    matched_pairs : the matched-pairs test of the symbol errors.
    changed : number of pairs with different numbers of errors; with fewer than 20, the intervals of
        a bootstrap are too narrow.
    """

    pairs: int
    word_error: tuple[Interval, Interval]
    symbol_error: tuple[Interval, Interval]
    word_difference: Interval
    symbol_difference: Interval
    p_word: float
    p_symbol: float
    matched_pairs: MatchedPairs
    changed: int

    def __repr__(self) -> str:
        return short_repr(self)

    def __str__(self) -> str:
        return self.table({})

    def table(self, groups: Mapping[str, "Comparison"]) -> str:
        """Return the comparison as text, with the error rates of groups of its pairs."""
        rows = [
            ("error rate", self.symbol_error, self.symbol_difference, self.p_symbol),
            ("wrong pairs", self.word_error, self.word_difference, self.p_word),
            *(
                (name, a.symbol_error, a.symbol_difference, a.p_symbol)
                for name, a in groups.items()
            ),
        ]
        width = max(12, *(len(name) + 1 for name, *_ in rows))
        lines = [
            f"{'':<{width}}{'first':>9}{'second':>9}{'difference':>12}  95 % interval       p-value"
        ]
        for name, (first, second), change, p in rows:
            ends = f"{100 * change.lower:+.2f} .. {100 * change.upper:+.2f} %"
            lines.append(
                f"{name:<{width}}{first.value:>9.2%}{second.value:>9.2%}"
                f"{100 * change.value:>+10.2f} %  {ends:<20}  {p:.4g}"
            )
        if groups:
            lines.insert(3, "error rates by group")
        few = [name for name, own in groups.items() if 0 < own.changed < _FEW]
        if few:
            lines.append(f"few pairs differ in {', '.join(few)}: their intervals are too narrow")
        return "\n".join([*lines, *self.notes()])

    def notes(self) -> list[str]:
        """Return what the numbers are, and whether there are too few pairs for them."""
        notes = [
            f"intervals and p-values: paired bootstrap of {self.pairs:,} pairs; p is at most "
            f"{1 - LEVEL:.2g} where the interval excludes 0"
        ]
        if 0 < self.changed < _FEW:
            notes.append(
                f"only {self.changed} of the pairs differ in their number of errors: too few for a "
                f"bootstrap, whose intervals are then too narrow; p is at least "
                f"{2.0 ** (1 - self.changed):.2g}"
            )
        return [*notes, f"matched pairs (MAPSSWE): {self.matched_pairs}"]


def compare(
    first: Sequence[Symbols],
    second: Sequence[Symbols],
    targets: Sequence[Symbols],
    *,
    resamples: int = 2000,
    rng: Seed = 0,
) -> Comparison:
    """Return the error rates of two sets of predictions, and of their differences.

    Pairs are drawn with replacement, the same pairs for both predictions; O(resamples x pairs).

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
    edits = [Edits.of(given, targets) for given in (first, second)]
    return compare_edits(edits[0], edits[1], resamples=resamples, rng=rng)


def compare_edits(first: Edits, second: Edits, *, resamples: int, rng: Seed) -> Comparison:
    """Return the comparison of the edits of two systems on the same N > 0 references."""
    errors = [first.errors, second.errors]
    wrong = [(own > 0) for own in errors]
    sizes, ones = [first.sizes, second.sizes], np.ones(len(first.sizes))
    columns = np.stack([*wrong, *errors, *sizes, ones], axis=1).astype(np.float64)
    sums = resampled_sums(columns, resamples, rng)
    word, symbol = ratios(sums[:, :2], sums[:, 6:]), ratios(sums[:, 2:4], sums[:, 4:6])
    word_difference, p_word = difference(word[:, 1] - word[:, 0], int(np.sum(wrong[0] != wrong[1])))
    changed = int(np.sum(errors[0] != errors[1]))
    symbol_difference, p_symbol = difference(symbol[:, 1] - symbol[:, 0], changed)
    one, two = (ratio(own, ones, resamples, rng) for own in wrong)
    first_rate, second_rate = (
        ratio(own, size, resamples, rng) for own, size in zip(errors, sizes, strict=True)
    )
    return Comparison(
        len(first.sizes),
        (one, two),
        (first_rate, second_rate),
        word_difference,
        symbol_difference,
        p_word,
        p_symbol,
        matched_pairs(*segment_errors(first, second)),
        changed,
    )


def matched_pairs(first: IntArray, second: IntArray) -> MatchedPairs:
    """Return the test for the errors (n,) of both systems in n segments.

    References
    ----------
    Gillick, Cox (1989), Some statistical issues in the comparison of speech recognition algorithms.

    Examples
    --------
    >>> test = matched_pairs(np.array([2, 1, 1, 3]), np.array([1, 1, 0, 1]))  # d = -1, 0, -1, -2
    >>> round(test.z, 12) == round(-1 / ((2 / 3) ** 0.5 / 2), 12)
    True
    """
    difference = np.asarray(second, dtype=np.float64) - first
    n = len(difference)
    if not difference.any():
        return MatchedPairs(n, 0.0, 0.0, 1.0)
    mean = float(difference.mean())
    spread = float(difference.std(ddof=1)) if n > 1 else 0.0
    if not spread:
        return MatchedPairs(n, mean, None, None)
    z = mean / (spread / math.sqrt(n))
    return MatchedPairs(n, mean, z, math.erfc(abs(z) / math.sqrt(2)))


def segment_errors(first: Edits, second: Edits) -> tuple[IntArray, IntArray]:
    """Return the errors of both systems in each segment of `MatchedPairs`, two arrays (n,).

    A reference of m items (`Edits.items`) has 2 m + 1 events: a gap, an item, a gap, ..., a gap.
    Symbols that a system adds are in gaps.
    """
    size = 2 * first.items[0] + 1
    begin = np.cumsum(size) - size
    events = [_errors_of_events(own, begin, int(size.sum())) for own in (first, second)]
    bad = (events[0] + events[1]) > 0
    starts = np.zeros(len(bad), dtype=bool)  # of references
    starts[begin] = True
    separators = _separators(bad, starts)
    number = np.cumsum(separators | starts)
    named, segment = np.unique(number[bad], return_inverse=True)
    one, two = (np.bincount(segment, own[bad], len(named)).astype(np.int64) for own in events)
    return one, two


def _errors_of_events(edits: Edits, begin: IntArray, events: int) -> IntArray:
    """Return the number of errors at each event; `begin` (N,) is the first of each reference."""
    wrong = np.flatnonzero(edits.step != MATCH)
    after, pair = edits.places[1][wrong], edits._pair[wrong]  # the symbol that comes next
    items, item = edits.items
    last = after == edits.z.first[pair + 1]
    place = np.where(last, items[pair], np.append(item, 0)[after])
    event = begin[pair] + 2 * place + (edits.step[wrong] != DELETE)
    return np.bincount(event, minlength=events)


def _separators(bad: BoolArray, starts: BoolArray) -> BoolArray:
    """Return which events are a symbol that both have right, next to another one before it."""
    place = np.arange(len(bad)) - np.maximum.accumulate(np.where(starts, np.arange(len(bad)), 0))
    right = (place % 2 == 1) & ~bad
    found = np.zeros(len(bad), dtype=bool)
    found[2:] = right[2:] & right[:-2] & ~bad[1:-1] & ~starts[1:-1]
    return found
