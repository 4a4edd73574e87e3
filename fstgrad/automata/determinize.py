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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fstgrad.automata.automaton import DEAD
from fstgrad.automata.machine import TargetMachine
from fstgrad.automata.semiring import INF, PROBABILITY, TROPICAL
from fstgrad.checks import BoolArray, IntArray
from fstgrad.errors import InfeasibleError, StateLimitError

SPAN = 2**20  # as in fstgrad.automata.kernels.tables

Rows = npt.NDArray[Any]  # (K, S): one column of K cells for each of S states
_MANTISSA_BITS = 40  # rows of inexact weights that agree so far are one state
_STATE_BYTES, _LEAST_BYTES = 2**10, 2**24  # of memory for each state of the limit; in any case
_NO_LIMIT = 2**62


@dataclass(frozen=True)
class RawLevel:
    """Arcs from S states: `target` (S, C) int64, -1 where dead, and `cost` (S, C) in units."""

    target: IntArray
    cost: npt.NDArray[Any]


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


class Canonical(Protocol):
    """A canonical form: from rows and the number of symbols left to (rows, offsets, alive)."""

    def __call__(self, rows: Rows, remaining: int) -> tuple[Rows, npt.NDArray[Any], BoolArray]:
        """Return canonical rows (K, S), what was taken out (S,) and which columns are alive."""


def determinize(
    machine: TargetMachine, length: int, *, max_states: int, compiled: bool = True
) -> RawAutomaton:
    """Return the deterministic automaton of `machine` on the strings of `length` symbols.

    Cost O(states x (arcs of M + hashing K cells)); every level is merged by hashing its rows.
    Without `compiled` this module does it in numpy, which keeps the cells that others imply by
    epsilons and is the twin that the tests compare with.

    Raises
    ------
    StateLimitError
        The levels so far have more than `max_states` states, or the next one would bring memory
        above 1 KiB for each state of the limit; that is known before it is allocated.
    InfeasibleError
        No hypothesis of this length has a path.
    """
    if compiled:
        return _compiled(machine, length, max_states)
    canonical = _CANONICAL[machine.semiring.name](machine, length)
    rows, offset, alive = canonical(machine.initial[:, None].copy(), length)
    if not alive.all():
        raise no_hypothesis(length)
    levels: list[RawLevel] = []
    states = rows.shape[1]
    for remaining in reversed(range(length)):
        rows, level = _advanced(machine, canonical, rows, remaining)
        levels.append(level)
        states += rows.shape[1]
        if states > max_states:
            raise too_many_states(states, max_states, length - remaining, length)
    return RawAutomaton(tuple(levels), offset[0], machine.value(rows))


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


def _compiled(machine: TargetMachine, length: int, max_states: int) -> RawAutomaton:
    form = TropicalFrontier if machine.semiring is TROPICAL else CountFrontier
    frontier = form(machine, length)
    levels: list[RawLevel] = []
    states, held = 1, 0
    max_bytes = max(_LEAST_BYTES, _STATE_BYTES * max_states)
    for remaining in reversed(range(length)):
        count, level = frontier.advance(remaining, max_states - states, max_bytes - held)
        if count < 0:
            needed = held - count
            raise too_many_states(states, max_states, length - remaining, length, needed)
        states += count
        if states > max_states:
            raise too_many_states(states, max_states, length - remaining, length)
        levels.append(level)
        held += level.target.nbytes + level.cost.nbytes
    return RawAutomaton(tuple(levels), frontier.offset, frontier.final)


class TropicalFrontier:
    """The states of one level in the tropical semiring, as the kernels keep them.

    A row stands without the cells that other cells imply by epsilons.  With `cap_state`, the state
    of M that holds the cap, `fall` (S, C) says after each step where nothing but the cap is left:
    the cell that led on most cheaply, -2 without one, elsewhere -1; `first_way` is such a cell of
    the start, and its cost.  `least` and `greatest` bound the loss of all strings.
    """

    fall: IntArray

    def __init__(self, machine: TargetMachine, length: int, cap_state: int = -1) -> None:
        from fstgrad.automata.kernels import tropical

        kernels: Any = tropical
        self._advance: Callable[..., Any] = kernels.advanced
        order, self._arcs = machine.by_class()
        self._classes = len(machine.arcs)
        self._kinds = kernels.arc_kinds(self._classes, len(order), *self._arcs[:3])
        self._cap = int(np.flatnonzero(order == cap_state)[0]) if cap_state >= 0 else -1
        self._final = machine.final[order]
        self._lower, self._upper = kernels.bounds(self._classes, *self._arcs, self._final, length)
        cells, implied = machine.initial[order], np.full(len(order), INF)
        self.least = int((cells + self._lower[-1]).min())
        bounds = cells + self._upper[-1]
        self.greatest = int(bounds.min())
        if self._cap >= 0:
            bounds[self._cap] = INF
        self.first_way = int(bounds.argmin()), int(cells[bounds.argmin()])
        self.offset, start, stop = kernels.canonical(
            cells, 0, len(order), *self._arcs[3:], self._lower[-1], self._upper[-1], implied
        )
        if self.offset == INF:
            raise no_hypothesis(length)
        self.is_only_cap = (start, stop) == (self._cap, self._cap + 1)
        self._rows: tuple[IntArray, int] = (
            np.concatenate([[0, start * SPAN + stop], cells[start:stop]]),
            1,
        )

    def advance(
        self, remaining: int, limit: int, max_bytes: int = _NO_LIMIT
    ) -> tuple[int, RawLevel]:
        """Go on by one symbol; return the number of states, at most one above the limit.

        Where the level would take more than `max_bytes`, minus the bytes that it would take are
        returned for the number.
        """
        pool, states = self._rows
        arcs = 3 * 8 * states * self._classes  # target, cost and fall
        room = (max_bytes - arcs) // 8
        if 2 * len(pool) > room:
            return -arcs - 2 * pool.nbytes, _NOTHING
        now = [remaining + 1, remaining]
        count, pool, target, cost, self.fall = self._advance(
            *self._rows,
            self._kinds,
            *self._arcs,
            self._lower[now],
            self._upper[now],
            self._cap,
            limit,
            room,
        )
        if count < 0:
            return 8 * count - arcs, _NOTHING
        self._rows = pool, count
        return count, RawLevel(target, cost)

    def policy(self) -> tuple[IntArray, IntArray, npt.NDArray[Any]]:
        """Return one way on from every state of M, and final weights (K,).

        (l, K, C) states, -1 where there is none, and costs, by symbols left after the step.
        """
        from fstgrad.automata.kernels import tropical

        policy: Callable[..., Any] = tropical.policy
        return *policy(self._classes, *self._arcs, self._upper), self._final

    @property
    def final(self) -> npt.NDArray[Any]:
        """Final weights (S,): with no symbol left a row is one cell of weight zero."""
        final: npt.NDArray[Any] = self._final[self._rows[0].reshape(-1, 3)[:, 1] // SPAN]
        return final


class CountFrontier:
    """The states of one level in the probability semiring, as the kernels keep them."""

    def __init__(self, machine: TargetMachine, length: int) -> None:
        from fstgrad.automata.kernels.counts import probability_level, supports

        self._advance: Callable[..., Any] = probability_level
        order, arcs = machine.by_class()
        self._arcs = len(machine.arcs), arcs[0], arcs[1], arcs[2]
        self._useful = supports(*self._arcs, machine.final[order], length)
        self._rows = np.where(self._useful[length], machine.initial[order], 0.0)[None]
        self._final = machine.final[order]
        self.offset = 1.0

    def advance(
        self, remaining: int, limit: int, max_bytes: int = _NO_LIMIT
    ) -> tuple[int, RawLevel]:
        """Go on by one symbol, as `TropicalFrontier.advance`."""
        arcs = 2 * 8 * len(self._rows) * self._arcs[0]  # target and cost
        room = (max_bytes - arcs) // 8
        if 2 * self._rows.size > room:
            return -arcs - 2 * self._rows.nbytes, _NOTHING
        count, rows, target = self._advance(
            self._rows, *self._arcs, self._useful[remaining], limit, room
        )
        if count < 0:
            return 8 * count - arcs, _NOTHING
        self._rows = rows
        return count, RawLevel(target, np.zeros(target.shape, dtype=np.int64))

    @property
    def final(self) -> npt.NDArray[Any]:
        """Final weights (S,)."""
        final: npt.NDArray[Any] = self._rows @ self._final
        return final


def _advanced(
    machine: TargetMachine, canonical: Canonical, rows: Rows, remaining: int
) -> tuple[Rows, RawLevel]:
    """Return the states of the next level and the arcs that lead to them."""
    states, classes = rows.shape[1], len(machine.arcs)
    rows = machine.closed(rows)
    target = np.full((states, classes), DEAD, dtype=np.int64)
    cost = np.zeros((states, classes), dtype=rows.dtype)
    found: list[Rows] = []
    where: list[tuple[IntArray, IntArray]] = []
    for c in range(classes):
        moved, cost[:, c], alive = canonical(machine.advance(rows, c), remaining)
        kept, inverse = unique_columns(moved[:, alive])
        found.append(kept)
        where.append((np.flatnonzero(alive), inverse))
    merged, number = unique_columns(np.concatenate(found, axis=1))
    first = 0
    for c, (alive_states, inverse) in enumerate(where):
        target[alive_states, c] = number[first + inverse]
        first += found[c].shape[1]
    return merged, RawLevel(target, cost)


class TropicalForm:
    """The canonical form of tropical rows: residuals of the cells that can still win."""

    def __init__(self, machine: TargetMachine, length: int) -> None:
        self._zero = machine.semiring.zero
        self._is_zero = machine.semiring.is_zero
        lower, upper = [machine.final], [machine.final]
        for _ in range(length):
            lower.append(_over_classes(machine, lower[-1], np.minimum))
            upper.append(_over_classes(machine, upper[-1], np.maximum))
        self._lower, self._upper = lower, upper

    def __call__(self, rows: Rows, remaining: int) -> tuple[Rows, npt.NDArray[Any], BoolArray]:
        """Return residual rows, the offset that was subtracted, and which columns can finish."""
        at_least = rows + self._lower[remaining][:, None]
        at_most = rows + self._upper[remaining][:, None]
        best = at_most.argmin(axis=0)
        bound = at_most[best, np.arange(rows.shape[1])]
        drop = (at_least >= bound) | self._is_zero(at_least)
        drop[best, np.arange(rows.shape[1])] &= self._is_zero(bound)
        rows = np.where(drop, self._zero, rows)
        offset = rows.min(axis=0)
        alive = ~self._is_zero(offset)
        offset = np.where(alive, offset, 0)
        return np.where(drop, self._zero, rows - offset), offset, alive


def _over_classes(machine: TargetMachine, column: npt.NDArray[Any], best: np.ufunc) -> Rows:
    """Return the least or greatest cost-to-go over the symbol classes."""
    steps = [machine.retreat(column[:, None], c)[:, 0] for c in range(len(machine.arcs))]
    result: Rows = best.reduce(steps)
    return result


class SupportForm:
    """The canonical form of probability rows: zero where nothing can be reached any more."""

    def __init__(self, machine: TargetMachine, length: int) -> None:
        useful = [machine.final > 0]
        for _ in range(length):
            column = useful[-1].astype(np.float64)
            useful.append(_over_classes(machine, column, np.maximum) > 0)
        self.useful = useful

    def __call__(self, rows: Rows, remaining: int) -> tuple[Rows, npt.NDArray[Any], BoolArray]:
        """Return rows restricted to useful cells; the offset is one, all columns live."""
        rows = np.where(self.useful[remaining][:, None], rows, 0.0)
        return rows, np.ones(rows.shape[1]), np.ones(rows.shape[1], dtype=bool)


_CANONICAL: dict[str, Callable[[TargetMachine, int], Canonical]] = {
    TROPICAL.name: TropicalForm,
    PROBABILITY.name: SupportForm,
}


def unique_columns(rows: Rows) -> tuple[Rows, IntArray]:
    """Return the distinct columns of `rows` (K, S) and, for each column, its number among them.

    Columns are compared by a 64-bit hash and the result is verified; on a collision the hash is
    drawn anew.
    """
    keys = _comparable(rows)
    for salt in range(8):
        _, first, inverse = np.unique(_hashes(keys, salt), return_index=True, return_inverse=True)
        if np.array_equal(keys[:, first[inverse]], keys):
            return rows[:, first], inverse
    _, first, inverse = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    return rows[:, first], inverse.ravel()


def _comparable(rows: Rows) -> npt.NDArray[np.uint64]:
    """Return rows as bit patterns that are equal where the weights are taken as equal."""
    if rows.dtype == np.int64:
        return rows.view(np.uint64) if rows.flags.c_contiguous else rows.astype(np.uint64)
    if not np.array_equal(rows, np.rint(rows)):
        mantissa, exponent = np.frexp(rows)
        rows = np.ldexp(np.rint(np.ldexp(mantissa, _MANTISSA_BITS)), exponent - _MANTISSA_BITS)
    return np.ascontiguousarray(rows).view(np.uint64)


def _hashes(keys: npt.NDArray[np.uint64], salt: int) -> npt.NDArray[np.uint64]:
    """Return one hash for each column: mixed cells times random odd factors, added up."""
    factors = np.random.default_rng(salt).integers(2**63, size=len(keys), dtype=np.uint64) * 2 + 1
    mixed = keys * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= factors[:, None].astype(np.uint64)
    mixed ^= mixed >> np.uint64(29)
    hashes: npt.NDArray[np.uint64] = mixed.sum(axis=0, dtype=np.uint64)
    return hashes
