"""Determinization of a target machine over Delta^l, level by level, and minimization of B.

A state of level t is the row of M's forward weights of a prefix of length t, in canonical form;
prefixes with the same row share a state.  All states of a level are advanced together, one symbol
class after the other.

Canonical form of a row, with r symbols left:

- tropical: each cell that can never be on the cheapest path is dropped; the least remaining weight
  is subtracted and becomes the cost of the arc.  With lower bounds lb_j(r) and upper bounds ub_j(r)
  of the cost to go from cell j, j is dropped if v_j + lb_j(r) >= min_k (v_k + ub_k(r)), unless j is
  the cell k of the minimum.
- probability: cells from which no end can be reached in r symbols are set to zero.

In the worst case, exact determinization needs a number of states that is exponential in l.

Minimization merges equal states, from the last level to the first.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import BoolArray, IntArray
from fstgrad.core.errors import InfeasibleError, NotSupportedError, StateLimitError
from fstgrad.io import memory_limit
from fstgrad.losses.automata import kernels
from fstgrad.losses.automata.layout import DEAD
from fstgrad.losses.automata.machine import TargetMachine
from fstgrad.losses.automata.semiring import INF, TROPICAL

_STATE_MEMORY, _LEAST_MEMORY = 2**10, 2**24  # allowed memory: per state of the limit, and at least
_NO_LIMIT = 2**62
MAX_STATES = 2_000_000  # the default limit of a loss automaton


@dataclass(frozen=True)
class RawLevel:
    """Arcs from S states: `nextstate` (S, C) int64, -1 if dead, and `cost` (S, C) in units."""

    nextstate: IntArray
    cost: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.nextstate.nbytes + self.cost.nbytes


_NOTHING = RawLevel(np.zeros((0, 0), dtype=np.int64), np.zeros((0, 0)))


@dataclass(frozen=True)
class RawAutomaton:
    """A deterministic layered automaton in the units of its machine.

    Tropical: the weight of a string is initial + the costs of its arcs + `final` (S_l,).
    Probability: it is `final`; initial is 1, and arcs cost 0.
    """

    levels: tuple[RawLevel, ...]
    initial: Any
    final: npt.NDArray[Any]


class Step(NamedTuple):
    """A level of a frontier: the number of its states and the arcs that lead to them.

    If the level would exceed its memory limit, `needed` is the number of bytes that it would need,
    the level is empty, and the frontier does not advance; otherwise `needed` is 0.
    """

    states: int
    needed: int
    level: RawLevel


class LevelStates(Protocol):
    """The states of one level: rows of M's forward weights in canonical form."""

    def advance(self, remaining: int, limit: int, max_memory: int = ...) -> Step:
        """Read one symbol, after which `remaining` are left; stop above `limit` states."""

    @property
    def offset(self) -> Any:
        """The weight that was factored out of the row of the empty prefix."""

    @property
    def final(self) -> npt.NDArray[Any]:
        """Final weights (S,) of the states."""


def determinize(
    machine: TargetMachine, length: int, *, max_states: int, barred: BoolArray | None = None
) -> RawAutomaton:
    """Return the deterministic automaton of `machine` on the strings of `length` symbols.

    O(states x (arcs of M + hashing K cells)); each level is merged by hashing its rows.  `barred`
    (l + 1, K) bool, for tropical machines only, forbids states of M when r symbols are left.

    Raises
    ------
    StateLimitError
        The levels have more than `max_states` states, or with the next one they would need more
        than 1 KiB per state of the limit (at least 16 MiB, at most half of the memory); this is
        checked before the next level is allocated.
    NotSupportedError
        A tropical machine has 2^20 states or more.
    InfeasibleError
        No hypothesis of this length has a path.
    """
    frontier: LevelStates = (
        TropicalFrontier(machine, length, barred=barred)
        if machine.semiring is TROPICAL
        else CountFrontier(machine, length)
    )
    levels: list[RawLevel] = []
    states, held = 1, 0
    max_memory = min(max(_LEAST_MEMORY, _STATE_MEMORY * max_states), memory_limit())
    for remaining in reversed(range(length)):
        step = frontier.advance(remaining, max_states - states, max_memory - held)
        position = length - remaining
        if step.needed:
            raise too_many_states(states, max_states, position, length, held + step.needed)
        states += step.states
        if states > max_states:
            raise too_many_states(states, max_states, position, length)
        levels.append(step.level)
        held += step.level.nbytes
    return RawAutomaton(tuple(levels), frontier.offset, frontier.final)


def no_hypothesis(length: int) -> InfeasibleError:
    """Return the error for a length for which M has no path."""
    return InfeasibleError(
        f"no hypothesis of length {length} has a finite loss against the target; change the length"
    )


def too_many_states(
    states: int, limit: int, position: int, length: int, nbytes: int | None = None
) -> StateLimitError:
    """Return the error for a determinization that exceeds its limit at a position."""
    return StateLimitError(
        states,
        limit,
        nbytes=nbytes,
        where=f"determinization at position {position} of {length}",
        remedy=(
            "Lower the cap (cap=), which replaces the loss L by min(L, cap), raise max_states, "
            "shorten the strings, or draw samples (fg.sampled_softmax_margin), which any length "
            "and loss allows."
        ),
    )


def _check_size(states: int, length: int) -> None:
    """Raise if rows cannot hold the states of a machine, or memory its tables of bounds."""
    if states >= kernels.tables.SPAN:
        raise NotSupportedError(
            f"the machine of the loss against this target has {states:,} states, but fewer than "
            f"{kernels.tables.SPAN:,} are supported; shorten the target, or use each loss of a sum "
            "by itself"
        )
    needed = 3 * 8 * (length + 1) * states  # two tables of bounds, and twice the barred cells
    if needed > memory_limit():
        raise too_many_states(1, MAX_STATES, 0, length, needed)


class TropicalFrontier:
    """The states of one level in the tropical semiring, stored for the kernels.

    Rows omit the cells that other cells imply by epsilon arcs.  `cap_state` is the state of M that
    holds the cap, or -1.  With a cap, `fall` (S, C) is set by each step for arcs after which only
    the cap is left: the other cell with the least upper bound, or -2 if there is none.  For other
    arcs it is -1.  `first_way` is such a cell of the start, and its cost.  `least` and `greatest`
    bound the losses of all strings, in units; `greatest_uncapped` leaves out the cap.
    """

    fall: IntArray

    def __init__(
        self,
        machine: TargetMachine,
        length: int,
        cap_state: int = -1,
        barred: BoolArray | None = None,
    ) -> None:
        _check_size(machine.num_states, length)
        order, self._arcs = machine.by_class()
        size = len(order)
        self._kinds = kernels.tropical.arc_kinds(self._arcs.reading, size)
        self._cap = int(np.flatnonzero(order == cap_state)[0]) if cap_state >= 0 else -1
        self._final = machine.final[order]
        closed = np.zeros((length + 1, size), dtype=np.bool_)
        if barred is not None:
            closed[:] = barred[:, order]
        self._lower, self._upper = kernels.tropical.bounds(self._arcs, self._final, closed)
        cells, implied = machine.initial[order], np.full(size, INF)
        self.least = int((cells + self._lower[-1]).min())
        bounds = cells + self._upper[-1]
        self.greatest = int(bounds.min())
        if self._cap >= 0:
            bounds[self._cap] = INF
        self.greatest_uncapped = int(bounds.min())
        self.first_way = int(bounds.argmin()), int(cells[bounds.argmin()])
        self.offset, start, stop = kernels.tropical.canonical(
            cells, 0, size, self._arcs, self._lower[-1], self._upper[-1], implied
        )
        if self.offset == INF:
            raise no_hypothesis(length)
        self.is_only_cap = (start, stop) == (self._cap, self._cap + 1)
        self._span = kernels.tables.SPAN
        self._pool = np.concatenate([[0, start * self._span + stop], cells[start:stop]])
        self._states = 1

    def advance(self, remaining: int, limit: int, max_memory: int = _NO_LIMIT) -> Step:
        """Read one symbol, after which `remaining` are left; stop above `limit` states."""
        arcs = 3 * 8 * self._states * len(self._kinds)  # nextstate, cost and fall
        room = (max_memory - arcs) // 8
        if 2 * len(self._pool) > room:
            return Step(0, arcs + 2 * self._pool.nbytes, _NOTHING)
        count, cells, pool, nextstate, cost, fall = kernels.tropical.determinize_level(
            self._pool,
            self._states,
            self._kinds,
            self._arcs,
            self._lower,
            self._upper,
            remaining,
            self._cap,
            limit,
            room,
        )
        if cells:
            return Step(0, 8 * cells + arcs, _NOTHING)
        self._pool, self._states, self.fall = pool, count, fall
        return Step(count, 0, RawLevel(nextstate, cost))

    def policy(self) -> tuple[IntArray, IntArray, npt.NDArray[Any]]:
        """Return the next states and costs of one policy, and the final weights (K,).

        States (l, K, C), -1 if there is none, and costs (l, K, C) in units; the first index is the
        number of symbols left after the step.
        """
        return *kernels.tropical.policy(self._arcs, self._upper), self._final

    @property
    def final(self) -> npt.NDArray[Any]:
        """Final weights (S,) in units; with no symbol left, a row is one cell of weight 0."""
        final: npt.NDArray[Any] = self._final[self._pool.reshape(-1, 3)[:, 1] // self._span]
        return final


class CountFrontier:
    """The states of one level in the probability semiring, stored for the kernels."""

    def __init__(self, machine: TargetMachine, length: int) -> None:
        order, arcs = machine.by_class()
        self._arcs, self._classes = arcs.reading, len(machine.arcs)
        self._final = machine.final[order]
        self._useful = kernels.counts.supports(self._arcs, self._final, length)
        self._rows = np.where(self._useful[length], machine.initial[order], 0.0)[None]
        self.offset = 1.0

    def advance(self, remaining: int, limit: int, max_memory: int = _NO_LIMIT) -> Step:
        """Read one symbol, after which `remaining` are left; stop above `limit` states."""
        arcs = 2 * 8 * len(self._rows) * self._classes  # nextstate and cost
        room = (max_memory - arcs) // 8
        if 2 * self._rows.size > room:
            return Step(0, arcs + 2 * self._rows.nbytes, _NOTHING)
        count, cells, rows, nextstate = kernels.counts.determinize_level(
            self._rows, self._arcs, self._useful[remaining], limit, room
        )
        if cells:
            return Step(0, 8 * cells + arcs, _NOTHING)
        self._rows = rows
        return Step(count, 0, RawLevel(nextstate, np.zeros(nextstate.shape, dtype=np.int64)))

    @property
    def final(self) -> npt.NDArray[Any]:
        """Final weights (S,)."""
        final: npt.NDArray[Any] = self._rows @ self._final
        return final


def minimize(raw: RawAutomaton) -> RawAutomaton:
    """Return the minimal automaton of a loss that adds costs along a path; O(arcs), by hashing.

    First, the cost of each state's cheapest completion is pushed towards the start, so that states
    whose losses differ by a constant merge (Mohri 2000).  One final state remains.
    """
    number = np.zeros(len(raw.final), dtype=np.int64)
    levels, potential = _merge(raw.levels, number, raw.final)
    return RawAutomaton(levels, raw.initial + potential[0], np.zeros(1, dtype=np.int64))


def minimize_finals(raw: RawAutomaton) -> RawAutomaton:
    """Return the minimal automaton of a loss that depends on the final state only: arcs cost 0.

    States from which every final loss is +inf are removed.
    """
    alive = np.isfinite(raw.final)
    final, inverse = np.unique(raw.final[alive], return_inverse=True)
    number = np.full(len(raw.final), DEAD, dtype=np.int64)
    number[alive] = inverse
    levels, _ = _merge(raw.levels, number, np.zeros(len(number), dtype=np.int64))
    return RawAutomaton(levels, raw.initial, final)


def _merge(
    levels: tuple[RawLevel, ...], number: IntArray, potential: IntArray
) -> tuple[tuple[RawLevel, ...], IntArray]:
    """Return the merged levels, and the potential (cheapest completion) of the first level."""
    result = []
    for level in reversed(levels):
        nextstate, cost, number, potential = kernels.tropical.merge_level(
            level.nextstate, level.cost, number, potential
        )
        result.append(RawLevel(nextstate, cost))
    return tuple(reversed(result)), potential
