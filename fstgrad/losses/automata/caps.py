"""Certified caps: lower and upper bounds of a loss that is cut off at a cap.

min(L, cap) is a lower bound of L.  The upper bound follows each hypothesis until its row holds only
the cap.  From there it continues from the cheapest state of M by one fixed policy; the result is
the cost of one alignment of the hypothesis, which is at least L.  Where L < cap, both bounds are
equal to L.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import IntArray, real_number
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.losses.automata.automaton import (
    DEAD,
    Cap,
    Level,
    LossAutomaton,
    UncertifiedCap,
    trusted,
)
from fstgrad.losses.automata.determinize import RawAutomaton, RawLevel, TropicalFrontier, minimize
from fstgrad.losses.automata.machine import TargetMachine
from fstgrad.losses.automata.semiring import TROPICAL

_NO_LIMIT = 2**40  # the same levels were built before, within the caller's limit


@dataclass(frozen=True, eq=False)
class TropicalCap:
    """The machine of min(L, cap); its last state holds the cap."""

    alphabet: Alphabet
    machine: TargetMachine
    length: int

    @cached_property
    def upper(self) -> LossAutomaton:
        """The automaton of the upper bound: the states of min(L, cap), then some states of M.

        Raises
        ------
        NotSupportedError
            Some hypothesis may have an infinite loss, so that no finite bound is known.
        """
        raw = minimize(_upper(self.machine, self.length))
        return in_nats(self.alphabet, self.machine.class_of, raw, self.machine.unit, None)

    def scaled(self, factor: float) -> "TropicalCap":
        """Return the machine of the loss times a factor > 0."""
        return replace(self, machine=replace(self.machine, unit=self.machine.unit * factor))

    @property
    def nbytes(self) -> int:
        """Bytes of the automaton of the upper bound, 0 until it is built."""
        upper = vars(self).get("upper")
        return 0 if upper is None else int(upper.nbytes)


RATIONAL_CAP = UncertifiedCap(
    "a cap saves no states of a rational loss, so it comes without bounds; compile without cap="
)
REFERENCE_CAP = UncertifiedCap("the reference engine gives none; compile with engine='layered'")
STORED_CAP = UncertifiedCap("the automaton was read from a file; compile it again for bounds")


def check_cap(cap: float | str) -> float:
    """Return a cap in nats, for callers without scores, which could choose one.

    Raises
    ------
    InvalidInputError
        `cap` is not a finite number; for "auto", the message names the functions that choose one.
    """
    if isinstance(cap, str) and cap == "auto":
        raise InvalidInputError(
            "cap is 'auto', which only scores can choose: use fg.choose_cap(scores, loss, target, "
            "tolerance=t).automaton or fg.PairObjective(..., cap='auto', tolerance=t); here, and "
            "on lattices, give a number"
        )
    return real_number("cap", cap)  # type: ignore[arg-type]  # real_number checks it


def in_nats(
    alphabet: Alphabet, class_of: IntArray, raw: RawAutomaton, unit: float, cap: Cap | None
) -> LossAutomaton:
    """Return the automaton whose costs are those of `raw` times `unit` (nats)."""
    return trusted(
        alphabet,
        class_of,
        tuple(Level(level.nextstate, level.cost * unit) for level in raw.levels),
        float(raw.initial * unit),
        raw.final * unit,
        cap,
    )


def _upper(machine: TargetMachine, length: int) -> RawAutomaton:
    """Return the automaton of the upper bound: the frontier's states, then cells under the policy.

    If only cells are left that need certain symbols to go on (the middle of a transposition), the
    string gets the upper bound of all strings.  For this, one more cell, K, reads each symbol at
    cost 0 and is entered at the rest of that bound.  O(states of min(L, cap) + l K C).
    """
    frontier = TropicalFrontier(machine, length, cap_state=machine.num_states - 1)
    ways, ways_cost, final = _with_waiting_cell(*frontier.policy())
    waiting = len(final) - 1
    cells = np.zeros(0, dtype=np.int64)
    initial, greatest = frontier.offset, frontier.greatest_uncapped
    if TROPICAL.is_zero(np.array(greatest)):
        raise _unbounded()
    if frontier.is_only_cap:
        cell, initial = frontier.first_way
        cells = np.array([cell])
    paid = np.array([initial])  # cost of the cheapest prefix to each state of the frontier
    levels: list[RawLevel] = []
    ahead = 0
    for remaining in reversed(range(length)):
        parts = [(ways[remaining, cells], ways_cost[remaining, cells])]
        if not frontier.is_only_cap:
            ahead, _, level = frontier.advance(remaining, _NO_LIMIT)
            lost = frontier.fall == -2
            cost = np.where(lost, greatest - paid[:, None], level.cost)
            parts.insert(0, (np.where(lost, waiting, frontier.fall), cost))
            paid = _least_paid(level, paid, ahead)
        if (parts[-1][0] < 0).any():
            raise _unbounded()
        cells = np.unique(np.concatenate([part[part >= 0] for part, _ in parts]))
        nextstates = [ahead + np.searchsorted(cells, part) for part, _ in parts]
        if len(parts) == 2:
            nextstates[0] = np.where(frontier.fall != -1, nextstates[0], level.nextstate)
        levels.append(RawLevel(np.concatenate(nextstates), np.concatenate([c for _, c in parts])))
    ends: Any = final[cells]
    if not frontier.is_only_cap:
        ends = np.concatenate([frontier.final, ends])
    return _reachable(RawAutomaton(tuple(levels), initial, ends))


def _with_waiting_cell(
    ways: IntArray, costs: IntArray, final: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the policy (l, K + 1, C), its costs and final weights, with the waiting cell added."""
    shape = (len(ways), 1, ways.shape[2])
    return (
        np.concatenate([ways, np.full(shape, len(final))], axis=1),
        np.concatenate([costs, np.zeros(shape, dtype=np.int64)], axis=1),
        np.append(final, 0),
    )


def _least_paid(level: RawLevel, paid: IntArray, states: int) -> IntArray:
    """Return the cost (S',) of the cheapest prefix to each state of the next level."""
    result = np.full(states, TROPICAL.zero)
    alive = level.nextstate != DEAD
    np.minimum.at(result, level.nextstate[alive], (paid[:, None] + level.cost)[alive])
    return result


def loss_range(machine: TargetMachine, length: int) -> tuple[float, float, float]:
    """Return the least loss, an upper bound of the greatest, and the least positive cost; nats.

    The last is the machine's unit if no cost is positive.

    Raises
    ------
    NotSupportedError
        Some hypothesis may have an infinite loss.
    """
    frontier = TropicalFrontier(machine, length)
    if machine.semiring.is_zero(np.array(frontier.greatest)):
        raise _unbounded()
    costs = np.concatenate([arcs.weight for arcs in (*machine.arcs, machine.epsilon)])
    positive = costs[(costs > 0) & ~machine.semiring.is_zero(costs)]
    return (
        float(frontier.least * machine.unit),
        float(frontier.greatest * machine.unit),
        float(positive.min() * machine.unit) if len(positive) else machine.unit,
    )


def _unbounded() -> NotSupportedError:
    return NotSupportedError(
        "some hypotheses above the cap may have an infinite loss, so that no upper bound is known; "
        "use a transducer that accepts every pair, or compile without cap="
    )


def _reachable(raw: RawAutomaton) -> RawAutomaton:
    """Return the automaton without the states that no prefix reaches."""
    found = np.array([0])
    levels: list[RawLevel] = []
    for level in raw.levels:
        nextstate, cost = level.nextstate[found], level.cost[found]
        found, number = np.unique(nextstate, return_inverse=True)
        if found[0] == DEAD:
            found, number = found[1:], number - 1
        levels.append(RawLevel(number.reshape(nextstate.shape), cost))
    return RawAutomaton(tuple(levels), raw.initial, raw.final[found])
