"""Layout: the arcs of a layered automaton in the order in which the compiled passes visit them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.uninitialized import empty_like

DEAD = -1


class LayoutArrays(NamedTuple):
    """The fields of a `Layout` that a pass reads."""

    class_of: IntArray
    offsets: IntArray
    first_entry: IntArray
    dense: IntArray
    symbol: npt.NDArray[np.int32]
    next_entry: npt.NDArray[np.int32]


class LevelArrays(NamedTuple):
    """The same fields for one level of S states: `symbol` (S,), `next_entry` (S, C)."""

    class_of: IntArray
    dense: int
    symbol: npt.NDArray[np.int32]
    next_entry: npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Layout:
    """All levels of B concatenated: N states with arcs, C classes of symbols, l levels.

    A level of A o B is a vector with one entry for each state of B and each context (previous
    symbol) in which it can occur.  With bigram scores, most states of B are entered by one symbol
    only: such a state has one entry, and any other state has n + 1.  The latter come first in a
    level.

    Attributes
    ----------
    class_of : (n,) int64, the class of each symbol
    offsets : (l + 2,) int64, level t has the states offsets[t] .. offsets[t + 1]
    first_entry : (l + 2,) int64, level t has the entries first_entry[t] .. first_entry[t + 1]
    dense : (l + 1,) int64, the number of states of a level with an entry per context
    symbol : (N + S_l,) int32, the symbol that enters a state with one entry; 0 for other states
    next_entry : (N, C) int32
        The arc that reads symbol b leads to the entry next_entry + b of the next level; 0 if dead.
    weight : (N, C) float64
        e^cost, divided by the largest of the level; 0 if dead.
    alive : (N, C) bool, whether there is an arc
    final : (S_l,) float64, e^(final loss), divided by the largest
    shift : float, the log of the product of all divisors
    cost, final_cost : (N, C) and (S_l,) float64, the costs of `weight` and `final` in nats
    """

    class_of: IntArray
    offsets: IntArray
    first_entry: IntArray
    dense: IntArray
    symbol: npt.NDArray[np.int32]
    next_entry: npt.NDArray[np.int32]
    weight: FloatArray
    alive: npt.NDArray[np.bool_]
    final: FloatArray
    shift: float
    cost: FloatArray
    final_cost: FloatArray

    @classmethod
    def of_levels(
        cls,
        class_of: IntArray,
        nextstates: Sequence[IntArray],
        costs: Sequence[FloatArray],
        final: FloatArray,
        *,
        bigram: bool,
    ) -> "Layout":
        """Return the layout of levels of arcs, nextstate and cost (S_t, C); O(arcs).

        bigram : bool
            Whether scores are bigram scores.  If not, each state has one entry, and `first_entry`
            and `next_entry` count states.
        """
        sizes = np.array([*(len(nextstate) for nextstate in nextstates), len(final)])
        level = np.repeat(np.arange(len(sizes)), sizes)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        nextstate, cost = np.concatenate(nextstates), np.concatenate(costs)
        alive = nextstate != DEAD
        states = len(nextstate)
        ends = nextstate + offsets[1 + level[:states], None]
        symbol, single = _only_symbols(class_of, ends, alive, sizes[level])
        if not bigram:
            single[:] = False
        contexts = len(class_of) + 1 if bigram else 1
        order = np.argsort(2 * level + single, kind="stable")
        dense = np.bincount(level[~single], minlength=len(sizes))
        rank = empty_like(order)
        rank[order] = np.arange(len(order)) - offsets[level]
        place = np.where(single, dense[level] * (contexts - 1) + rank - symbol, rank * contexts)
        largest = np.maximum.reduceat(cost.max(axis=1), offsets[:-2])
        weight = np.where(alive, np.exp(cost - largest[level[:states], None]), 0.0)
        rows, last = order[:states], order[states:] - states
        return cls(
            class_of,
            offsets,
            np.concatenate([[0], np.cumsum(dense * (contexts - 1) + sizes)]),
            dense,
            np.where(single, symbol, 0)[order].astype(np.int32),
            np.where(alive, place[ends], 0)[rows].astype(np.int32),
            weight[rows],
            alive[rows],
            np.exp(final - final.max())[last],
            float(largest.sum() + final.max()),
            cost[rows],
            final[last],
        )

    @cached_property
    def walk(self) -> LayoutArrays:
        """The fields that a pass reads."""
        return LayoutArrays(
            self.class_of, self.offsets, self.first_entry, self.dense, self.symbol, self.next_entry
        )

    @property
    def nbytes(self) -> int:
        """Bytes that a step without tangents reads and writes: these arrays and all of alpha."""
        arrays = (*self.walk, self.weight, self.final)
        return sum(array.nbytes for array in arrays) + 8 * int(self.first_entry[-1])

    @cached_property
    def unweighted(self) -> FloatArray:
        """The weights (N, C) of the loss 0: 1, or 0 if dead."""
        return self.alive.astype(np.float64)

    @cached_property
    def unweighted_final(self) -> FloatArray:
        """The final weights (S_l,) of the loss 0."""
        return np.ones(len(self.final))


def _only_symbols(
    class_of: IntArray, ends: IntArray, alive: npt.NDArray[np.bool_], siblings: IntArray
) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Return a symbol that enters each state, and whether it is the only one.

    The latter is False for a state alone in its level, which needs no shorter vector.  The arcs of
    a class without symbols enter no state.
    """
    classes = ends.shape[1]
    members = np.bincount(class_of, minlength=classes)
    enters = np.zeros((len(siblings), classes), dtype=bool)
    enters[ends[alive], np.nonzero(alive)[1]] = True
    enters[:, members == 0] = False
    counts = enters @ members
    symbol = np.zeros(classes, dtype=np.int64)
    symbol[class_of] = np.arange(len(class_of))
    return symbol[enters.argmax(axis=1)], (counts == 1) & (siblings > 1)
