"""Determinization of a target machine over Delta^l, level by level.

A state of level t is the row of M's forward weights of a prefix of length t, brought to a canonical
form; prefixes with the same row share a state.  All states of a level are advanced together, one
symbol class after the other.

Canonical form of a row, with r symbols left:

- tropical: the least weight that can still matter is subtracted and becomes the cost of the arc;
  then every cell that can never be on the cheapest path is dropped.  With lower bounds lb_j(r) and
  upper bounds ub_j(r) of what cell j still costs, j is dropped if
  v_j + lb_j(r) >= min_k (v_k + ub_k(r)), except the cell k of the minimum.
- probability: cells from which nothing can be reached in r symbols are set to zero.

Exact determinization takes exponentially many states in l in the worst case.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fstgrad.automata import kernels
from fstgrad.automata.few import few
from fstgrad.automata.machine import TargetMachine
from fstgrad.automata.semiring import INF, TROPICAL
from fstgrad.checks import BoolArray, IntArray
from fstgrad.errors import InfeasibleError, NotSupportedError, StateLimitError
from fstgrad.io import memory_limit

_STATE_BYTES, _LEAST_BYTES = 2**10, 2**24  # of memory for each state of the limit; in any case
_NO_LIMIT = 2**62
MAX_STATES = 2_000_000  # the default limit of a loss automaton


@dataclass(frozen=True)
class RawLevel:
    """Arcs from S states: `nextstate` (S, C) int64, -1 where dead, and `cost` (S, C) in units."""

    nextstate: IntArray
    cost: npt.NDArray[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.nextstate.nbytes + self.cost.nbytes


_NOTHING = RawLevel(np.empty((0, 0), dtype=np.int64), np.empty((0, 0)))


@dataclass(frozen=True)
class RawAutomaton:
    """A deterministic layered automaton in the units of its machine.

    The weight of a string is initial + the costs of its arcs, then `final` (S_l,), plus meaning the
    semiring's times.
    """

    levels: tuple[RawLevel, ...]
    initial: Any
    final: npt.NDArray[Any]


class Step(NamedTuple):
    """A level of a frontier: the number of its states and the arcs that lead to them.

    Where the level would take more memory than it may, `needed` is the bytes that it would take,
    the level is empty, and the frontier stays where it was; otherwise `needed` is 0.
    """

    states: int
    needed: int
    level: RawLevel


class Frontier(Protocol):
    """The states of one level: rows of M's forward weights in canonical form."""

    def advance(self, remaining: int, limit: int, max_memory: int = ...) -> Step:
        """Read one symbol, after which `remaining` are left; stop above `limit` states."""

    @property
    def offset(self) -> Any:
        """What was taken out of the row of the empty prefix."""

    @property
    def final(self) -> npt.NDArray[Any]:
        """Final weights (S,) of the states."""


def determinize(
    machine: TargetMachine, length: int, *, max_states: int, barred: BoolArray | None = None
) -> RawAutomaton:
    """Return the deterministic automaton of `machine` on the strings of `length` symbols.

    Cost O(states x (arcs of M + hashing K cells)); every level is merged by hashing its rows.
    A tropical machine keeps out of the states that are `barred` (l + 1, K) with r symbols left.

    Raises
    ------
    StateLimitError
        The levels so far have more than `max_states` states, or the next one would bring memory
        above 1 KiB for each state of the limit; that is known before it is allocated.
    InfeasibleError
        No hypothesis of this length has a path.
    """
    frontier: Frontier = (
        TropicalFrontier(machine, length, barred=barred)
        if machine.semiring is TROPICAL
        else CountFrontier(machine, length)
    )
    levels: list[RawLevel] = []
    states, held = 1, 0
    max_memory = min(max(_LEAST_BYTES, _STATE_BYTES * max_states), memory_limit())
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
    """Return the error of a length for which M has no path."""
    return InfeasibleError(
        f"no hypothesis of length {length} has a finite loss against the target; change the length"
    )


def too_many_states(
    states: int, limit: int, position: int, length: int, nbytes: int | None = None
) -> StateLimitError:
    """Return the error of a determinization that passed its limit at a position."""
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
    """Raise where rows cannot hold the states of a machine, or memory the bounds of its rows."""
    if states >= kernels.tables.SPAN:
        raise NotSupportedError(
            f"the machine of the loss against this target has {states:,} states, and rows hold "
            f"fewer than {kernels.tables.SPAN:,}; shorten the target, or use one loss of a sum"
        )
    needed = 3 * 8 * (length + 1) * states  # two tables of bounds, and what is barred, twice
    if needed > memory_limit():
        raise too_many_states(1, MAX_STATES, 0, length, needed)


class TropicalFrontier:
    """The states of one level in the tropical semiring, as the kernels keep them.

    Rows omit the cells that other cells imply by epsilons.  With `cap_state`, the state
    of M that holds the cap, `fall` (S, C) says after each step where nothing but the cap is left:
    the cell that led on most cheaply, -2 without one, elsewhere -1; `first_way` is such a cell of
    the start, and its cost.  `least` and `greatest` bound the loss of all strings.
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
        work = len(self._arcs.first) + len(self._arcs.weight)
        self._kinds = few(kernels.tropical.arc_kinds, work)(self._arcs.reading, size)
        self._cap = int(np.flatnonzero(order == cap_state)[0]) if cap_state >= 0 else -1
        self._final = machine.final[order]
        closed = np.zeros((length + 1, size), dtype=np.bool_)
        if barred is not None:
            closed[:] = barred[:, order]
        self._lower, self._upper = few(kernels.tropical.bounds, 2 * length * work)(
            self._arcs, self._final, closed
        )
        cells, implied = machine.initial[order], np.full(size, INF)
        self.least = int((cells + self._lower[-1]).min())
        bounds = cells + self._upper[-1]
        self.greatest = int(bounds.min())
        if self._cap >= 0:
            bounds[self._cap] = INF
        self.greatest_uncapped = int(bounds.min())
        self.first_way = int(bounds.argmin()), int(cells[bounds.argmin()])
        self.offset, start, stop = few(kernels.tropical.canonical, size)(
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
        steps = 10 * len(self._kinds) * len(self._pool)
        count, cells, pool, nextstate, cost, fall = few(kernels.tropical.advance, steps)(
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
        """Return one way on from every state of M, and final weights (K,).

        (l, K, C) states, -1 where there is none, and costs, by symbols left after the step.
        """
        return *kernels.tropical.policy(self._arcs, self._upper), self._final

    @property
    def final(self) -> npt.NDArray[Any]:
        """Final weights (S,): with no symbol left a row is one cell of weight zero."""
        final: npt.NDArray[Any] = self._final[self._pool.reshape(-1, 3)[:, 1] // self._span]
        return final


class CountFrontier:
    """The states of one level in the probability semiring, as the kernels keep them."""

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
        count, cells, rows, nextstate = kernels.counts.advance(
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
