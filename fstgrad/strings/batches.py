"""log Z, Q and risks of many strings by one compiled call, for batches in training.

The passes are those of `solve` and `tangents`.  The result of an item depends on this item alone,
so a batch can be cut anywhere, for example for threads.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from fstgrad.core.checks import LARGEST_SCORE, BoolArray, FloatArray, IntArray, unusable_score
from fstgrad.core.distribution import may_have_offsets
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.layout import Layout
from fstgrad.strings import kernels
from fstgrad.strings.distribution import flat_index
from fstgrad.strings.kernels.arguments import (
    PREFIX_SWAP,
    RECENT_RANGES,
    SHIFT,
    TOTAL_RANGE,
    BatchLayoutArrays,
    Dual,
)
from fstgrad.strings.solve import (
    no_string_message,
    recentered_scores,
    solve,
    used_contexts,
    within_range,
)
from fstgrad.strings.tangents import tangent

Run = Callable[[int, int], None]
Slices = Callable[[int, Run], None]  # calls run(low, high) for slices of 0 .. items - 1
BLOCK = 2**24  # most arcs per call, because the arrays of its automata are concatenated


def in_one_slice(items: int, run: Run) -> None:
    """Run all items in one slice."""
    run(0, items)


class Strings(NamedTuple):
    """Scores of B distributions over strings, with their automata.

    Attributes
    ----------
    scores : (N, n), (N, n+1, n), ... float64
        Log-weights in nats: the positions of the first item, then those of the second, ...
    starts : (B + 1,) int64
        Item i has the rows starts[i] .. starts[i + 1] - 1.
    automata : sequence of B LossAutomaton
    first : int
        The number of the first item in error messages.
    """

    scores: FloatArray
    starts: IntArray
    automata: Sequence[LossAutomaton]
    first: int = 0

    def item(self, i: int) -> FloatArray:
        """Return the scores of item i, a view (l_i, ...)."""
        return self.scores[self.starts[i] : self.starts[i + 1]]

    def part(self, low: int, high: int) -> "Strings":
        """Return the items low .. high - 1."""
        starts = self.starts[low : high + 1]
        rows = self.scores[starts[0] : starts[-1]]
        return Strings(rows, starts - starts[0], self.automata[low:high], self.first + low)

    def check(self) -> None:
        """Raise InvalidInputError unless scores are log-weights that match the automata."""
        self.check_shapes()
        if self.scores.size and not self.scores.max() <= LARGEST_SCORE:  # NaN too
            place = tuple(int(j) for j in np.argwhere(~(self.scores <= LARGEST_SCORE))[0])
            i, position = self._place(place[0])
            where = f"scores{list(place[1:])} at position {position} of item {self.first + i}"
            raise unusable_score(where, self.scores[place])

    def check_shapes(self) -> None:
        """Raise InvalidInputError unless the automata are for scores of these shapes."""
        n, axes = self.scores.shape[-1], self.scores.shape[1:-1]
        if any(axis != n + 1 for axis in axes):
            raise InvalidInputError(
                f"scores of a position have the shape {self.scores.shape[1:]}; with {n} symbols "
                f"the context axes have {n + 1}"
            )
        for i, (b, (low, high)) in enumerate(
            zip(self.automata, pairwise(self.starts.tolist()), strict=True)
        ):
            length = high - low
            if b.length != length or len(b.alphabet) != n:
                raise InvalidInputError(
                    f"scores of item {self.first + i} are for {length} positions and {n} symbols; "
                    f"its automaton was compiled for {b.length} positions and {len(b.alphabet)} "
                    "symbols"
                )

    def log_partitions(self, slices: Slices = in_one_slice) -> tuple[FloatArray, FloatArray]:
        """Return log Z (B,) in nats and the marginals, shaped like the scores.

        `slices` splits the items into calls, for example for threads.

        Raises
        ------
        InfeasibleError
            No string of an item has a finite score and a finite loss.
        """
        return _joined([own._log_partitions(slices) for own in self._blocks()])

    def risks(self, slices: Slices = in_one_slice) -> tuple[FloatArray, FloatArray]:
        """Return E[L] (B,) in nats and its gradient, shaped like the scores.

        Raises
        ------
        InfeasibleError
            No string of an item has a finite score and a finite loss.
        """
        return _joined([own._risks(slices) for own in self._blocks()])

    def recentered(self) -> "Strings":
        """Return the same distributions by `recentered_scores`: offsets are subtracted if large."""
        if not may_have_offsets(self.scores):
            return self
        items = [recentered_scores(self.item(i)) for i in range(len(self.automata))]
        return self._replace(scores=np.concatenate(items))

    def gold_index(self, symbols: IntArray) -> IntArray:
        """Return the indices (N,) in the flat scores that the concatenated `symbols` (N,) use."""
        n, order = self.scores.shape[-1], self.scores.ndim - 1
        if len(self.automata) == 1:
            return flat_index(symbols, order, n)
        index = np.arange(len(symbols))
        age = index - np.repeat(self.starts[:-1], np.diff(self.starts))
        for k in range(order - 1, 0, -1):
            index = index * (n + 1) + np.where(age >= k, np.roll(symbols, k), n)
        found: IntArray = index * n + symbols
        return found

    def score_of(self, index: IntArray) -> FloatArray:
        """Return the scores (B,) in nats of the strings with the indices `index` (N,).

        Raises
        ------
        InfeasibleError
            The score of a string is -inf.
        """
        scores = self.scores.take(index)
        if scores.size and scores.min() == -np.inf:
            raise self._infeasible(
                np.isneginf(scores),
                "gold has a score of -inf at position {}, so its probability is 0",
            )
        total: FloatArray = np.add.reduceat(scores, self.starts[:-1])
        return total

    def _place(self, row: int) -> tuple[int, int]:
        """Return the item and the position of a row of the scores."""
        i = int(np.searchsorted(self.starts, row, side="right")) - 1
        return i, row - int(self.starts[i])

    def _infeasible(self, rows: BoolArray, reason: str) -> InfeasibleError:
        """Return the error of the items that have some of the `rows` (N,); {} is the position."""
        reasons: dict[int, str] = {}
        for row in np.flatnonzero(rows).tolist():
            i, position = self._place(row)
            reasons.setdefault(self.first + i, reason.format(position))
        return InfeasibleError.of_items(reasons)

    def _blocks(self) -> Iterator["Strings"]:
        """Yield parts whose automata together have at most `BLOCK` arcs, or one item each."""
        if len(self.automata) == 1:
            yield self
            return
        low, arcs = 0, 0
        for i, layout in enumerate(self._layouts()):
            own = layout.next_entry.size
            if i > low and arcs + own > BLOCK:
                yield self.part(low, i)
                low, arcs = i, 0
            arcs += own
        if low < len(self.automata):
            yield self.part(low, len(self.automata))

    def _log_partitions(self, slices: Slices) -> tuple[FloatArray, FloatArray]:
        if len(self.automata) == 1:
            try:  # the same result, without concatenated arrays
                value, terms = solve(self.scores, self.automata[0])
                return np.array([value]), terms
            except InfeasibleError:
                pass  # raised again below, with the number of the item
        order, total = self.scores.ndim - 1, empty(len(self.automata))
        table, shift, fits = self._weighed(np.array([b.spread for b in self.automata]), slices)
        layouts = self._layouts()
        weight = _concatenated([own.weight.reshape(-1) for own in layouts])
        final = _concatenated([own.final for own in layouts])
        walks, marginals = _walks(layouts), table.reshape(self.scores.shape)
        shift += [own.shift for own in layouts]
        initial = np.array([b.initial for b in self.automata])

        def run(low: int, high: int) -> None:
            kernels.batches.real_passes(
                table, self.starts, walks, weight, final, order, fits, total, low, high
            )
            total[low:high] += shift[low:high]
            total[low:high] += initial[low:high]
            for i in (low + np.flatnonzero(~fits[low:high])).tolist():
                rows = slice(self.starts[i], self.starts[i + 1])
                total[i], marginals[rows] = solve(self.item(i), self.automata[i])

        slices(len(total), run)
        self._check_feasible(total)
        return total, marginals

    def _risks(self, slices: Slices) -> tuple[FloatArray, FloatArray]:
        if len(self.automata) == 1:
            try:  # the same result, without concatenated arrays
                found = tangent(self.scores, self.automata[0], scale=0, slope=1)
                return np.array([found.slope]), found.change
            except InfeasibleError:
                pass  # raised again below, with the number of the item
        order, total = self.scores.ndim - 1, empty(len(self.automata))
        table, _, fits = self._weighed(np.zeros(len(total)), slices)
        layouts, slopes = self._layouts(), empty(len(total))
        weight = _concatenated([own.unweighted.reshape(-1) for own in layouts])
        cost = _concatenated([own.cost.reshape(-1) for own in layouts])
        final_cost = _concatenated([own.final_cost for own in layouts])
        walks, moved = _walks(layouts), np.zeros(table.shape)
        change, free = moved.reshape(self.scores.shape), np.ones(len(final_cost))
        initial = np.array([b.initial for b in self.automata])

        def run(low: int, high: int) -> None:
            kernels.batches.tangent_passes(
                Dual(table, moved), self.starts, walks, Dual(weight, cost),
                Dual(free, final_cost), False, order, fits, Dual(total, slopes), (low, high),
            )  # fmt: skip
            slopes[low:high] += initial[low:high]
            for i in (low + np.flatnonzero(~fits[low:high])).tolist():
                rows = slice(self.starts[i], self.starts[i + 1])
                found = tangent(self.item(i), self.automata[i], scale=0, slope=1)
                total[i], slopes[i], change[rows] = found.log_partition, found.slope, found.change

        slices(len(total), run)
        self._check_feasible(total)
        return slopes, change

    def _weighed(
        self, spread: FloatArray, slices: Slices
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Return the scaled exp(scores), the logs of the factors (B,), and which items fit.

        The table (N, K, n) is exp of that of `ScoreTable`.  An item fits if its weights stay in the
        range of floats; `spread` (B,) is the spread of its losses.
        """
        n, order = self.scores.shape[-1], self.scores.ndim - 1
        rows = self.scores.reshape(len(self.scores), -1, n)
        rows.flags.writeable = False  # of the view only: every call has the same kernel signature
        table, highest = empty(rows.shape), empty(len(rows))
        tally = np.zeros((len(self.automata), RECENT_RANGES + order))
        used, forbidden = used_contexts(order, n), np.zeros(len(rows), dtype=np.bool_)
        complete = np.array([b.is_complete for b in self.automata])
        fits = empty(len(spread), dtype=np.bool_)

        def run(low: int, high: int) -> None:
            row = kernels.batches.shift_items(
                rows, self.starts, used, table, highest, tally, low, high
            )
            if row >= 0:
                while row >= 0:  # go on with the next item
                    forbidden[row] = True
                    after = self._place(row)[0] + 1
                    row = kernels.batches.shift_items(
                        rows, self.starts, used, table, highest, tally, after, high
                    )
                return
            fits[low:high] = within_range(
                tally[low:high, PREFIX_SWAP],
                tally[low:high, TOTAL_RANGE],
                spread[low:high],
                complete[low:high],
            )
            part = table[self.starts[low] : self.starts[high]]
            # items that do not fit are solved again later
            kernels.passes.exponentials(part.reshape(-1))

        slices(len(spread), run)
        if forbidden.any():
            raise self._infeasible(
                forbidden,
                "scores forbids every symbol at position {}: no string is left (Z = 0)",
            )
        return table, tally[:, SHIFT], fits

    def _layouts(self) -> list[Layout]:
        if self.scores.ndim == 3:
            return [b.bigram_layout for b in self.automata]
        return [b.plain_layout for b in self.automata]

    def _check_feasible(self, total: FloatArray) -> None:
        bad = np.flatnonzero(np.isneginf(total)).tolist()
        if bad:
            raise InfeasibleError.of_items(
                {self.first + i: no_string_message(self.automata[i].is_complete) for i in bad}
            )


def _joined(parts: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    if len(parts) == 1:
        return parts[0]
    values, tables = zip(*parts, strict=True)
    return np.concatenate(values), np.concatenate(tables)


def _concatenated(arrays: list[Any]) -> Any:
    """Return the concatenated arrays; a single array is not copied."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _walks(layouts: Sequence[Layout]) -> BatchLayoutArrays:
    """Return the concatenated layouts of a batch."""
    walks = [own.walk for own in layouts]

    def starts(sizes: list[int]) -> IntArray:
        return np.array([0, *accumulate(sizes)])

    return BatchLayoutArrays(
        np.array([walk.class_of for walk in walks]),
        _concatenated([walk.offsets for walk in walks]),
        _concatenated([walk.first_entry for walk in walks]),
        _concatenated([walk.dense for walk in walks]),
        _concatenated([walk.symbol for walk in walks]),
        _concatenated([walk.next_entry.reshape(-1) for walk in walks]),
        starts([len(walk.symbol) for walk in walks]),
        starts([walk.next_entry.size for walk in walks]),
        starts([len(own.final) for own in layouts]),
    )
