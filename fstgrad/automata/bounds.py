"""Certified caps: an automaton from above for a loss that was cut off at a cap.

min(L, cap) is a lower bound of L.  The upper bound follows every hypothesis until its row holds
nothing but the cap; from there it continues from the cheapest state of M by one fixed policy, which
costs one alignment of the hypothesis and so never less than L.  Up to the cap both bounds are L
itself.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fstgrad.alphabet import Alphabet
from fstgrad.automata.automaton import DEAD, Cap, Level, LossAutomaton, trusted
from fstgrad.automata.determinize import RawAutomaton, RawLevel, TropicalFrontier
from fstgrad.automata.machine import TargetMachine
from fstgrad.automata.minimize import minimize
from fstgrad.automata.semiring import TROPICAL
from fstgrad.checks import IntArray, real_number
from fstgrad.errors import InvalidInputError, NotSupportedError

_NO_LIMIT = 2**40  # the same levels were built under the caller's limit before


@dataclass(frozen=True, eq=False)
class TropicalCap:
    """The machine of min(L, cap), whose last state holds the cap."""

    alphabet: Alphabet
    machine: TargetMachine
    length: int

    @cached_property
    def upper(self) -> LossAutomaton:
        """The automaton from above: the states of min(L, cap) and, in each level, some of M's.

        Raises
        ------
        NotSupportedError
            Some hypothesis may have an infinite loss, so that no finite bound is known.
        """
        raw = minimize(_upper(self.machine, self.length))
        return in_nats(self.alphabet, self.machine.class_of, raw, self.machine.unit, None)

    @property
    def nbytes(self) -> int:
        """Bytes of the automaton from above, 0 until it is made."""
        upper = vars(self).get("upper")
        return 0 if upper is None else int(upper.nbytes)


@dataclass(frozen=True)
class UncertifiedCap:
    """A cap without bounds, and why."""

    reason: str

    @property
    def upper(self) -> LossAutomaton:
        """There is none."""
        raise NotSupportedError(f"no upper bound is known: {self.reason}")


RATIONAL_CAP = UncertifiedCap(
    "a cap saves no states of a rational loss, so it comes without bounds; compile without cap="
)
REFERENCE_CAP = UncertifiedCap("the reference engine gives none; compile with engine='layered'")
STORED_CAP = UncertifiedCap("the automaton was read from a file; compile it again for bounds")


def check_cap(cap: float | str) -> float:
    """Return a cap in nats where there are no scores that could choose one.

    Raises
    ------
    InvalidInputError
        It is not a number; for "auto" with what chooses it.
    """
    if isinstance(cap, str) and cap == "auto":
        raise InvalidInputError(
            "cap is 'auto', which only scores can choose: use fg.choose_cap(scores, loss, target, "
            "tolerance=t).automaton or fg.PairObjective(..., cap='auto', tolerance=t); here, and "
            "on lattices, give a number"
        )
    return real_number("cap", cap)  # type: ignore[arg-type]  # or an error


def in_nats(
    alphabet: Alphabet, class_of: IntArray, raw: RawAutomaton, unit: float, cap: Cap | None
) -> LossAutomaton:
    """Return the automaton whose costs are those of `raw` times `unit`."""
    return trusted(
        alphabet,
        class_of,
        tuple(Level(level.nextstate, level.cost * unit) for level in raw.levels),
        float(raw.initial * unit),
        raw.final * unit,
        cap,
    )


def _upper(machine: TargetMachine, length: int) -> RawAutomaton:
    """Return the automaton from above: states of the frontier, then cells that follow the policy.

    Where only cells are left that need certain symbols to go on (the middle of a transposition),
    the string gets the bound that holds for all strings: one more cell, K, that waits for nothing
    and is entered for what is left of that bound.  O(states of min(L, cap) + l K C).
    """
    frontier = TropicalFrontier(machine, length, cap_state=machine.num_states - 1)
    ways, ways_cost, final = _with_waiting_cell(*frontier.policy())
    waiting = len(final) - 1
    cells = np.empty(0, dtype=np.int64)
    initial, greatest = frontier.offset, frontier.greatest_uncapped
    if TROPICAL.is_zero(np.array(greatest)):
        raise _unbounded()
    if frontier.is_only_cap:
        cell, initial = frontier.first_way
        cells = np.array([cell])
    paid = np.array([initial])  # by the cheapest prefix that leads to each state of the frontier
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
    """Return ways on (l, K + 1, C), their costs and final weights with the cell that waits."""
    shape = (len(ways), 1, ways.shape[2])
    return (
        np.concatenate([ways, np.full(shape, len(final))], axis=1),
        np.concatenate([costs, np.zeros(shape, dtype=np.int64)], axis=1),
        np.append(final, 0),
    )


def _least_paid(level: RawLevel, paid: IntArray, states: int) -> IntArray:
    """Return the least cost (S',) of a prefix that leads to each state of the next level."""
    result = np.full(states, TROPICAL.zero)
    alive = level.nextstate != DEAD
    np.minimum.at(result, level.nextstate[alive], (paid[:, None] + level.cost)[alive])
    return result


def loss_range(machine: TargetMachine, length: int) -> tuple[float, float, float]:
    """Return the least loss, a bound of the greatest, and the least positive cost, in nats.

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
    """Return the automaton without the states that no prefix leads to."""
    found = np.array([0])
    levels: list[RawLevel] = []
    for level in raw.levels:
        nextstate, cost = level.nextstate[found], level.cost[found]
        found, number = np.unique(nextstate, return_inverse=True)
        if found[0] == DEAD:
            found, number = found[1:], number - 1
        levels.append(RawLevel(number.reshape(nextstate.shape), cost))
    return RawAutomaton(tuple(levels), raw.initial, raw.final[found])
