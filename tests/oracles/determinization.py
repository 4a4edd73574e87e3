"""Determinization and minimization of a target machine, level by level, in numpy.

The tests compare the kernels of `fstgrad.losses.automata` with these definitions.  Unlike the
kernels, this code keeps cells that follow from other cells by epsilon arcs.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import BoolArray, IntArray
from fstgrad.losses.automata.determinize import RawAutomaton, RawLevel
from fstgrad.losses.automata.layout import DEAD
from fstgrad.losses.automata.machine import TargetMachine
from fstgrad.losses.automata.semiring import PROBABILITY, TROPICAL
from fstgrad.strings.lattices.rows import unique_columns

Rows = npt.NDArray[Any]  # (K, S): for each of S states, a column of K cells


class Canonical(Protocol):
    """A function from rows and the number of remaining symbols to canonical rows."""

    def __call__(self, rows: Rows, remaining: int) -> tuple[Rows, npt.NDArray[Any], BoolArray]:
        """Return canonical rows (K, S), removed offsets (S,), and which columns are alive (S,)."""


def determinize(machine: TargetMachine, length: int) -> RawAutomaton:
    """Return the deterministic automaton of `machine` for strings of `length` symbols."""
    canonical = _CANONICAL[machine.semiring.name](machine, length)
    rows, offset, alive = canonical(machine.initial[:, None].copy(), length)
    assert alive.all()
    levels: list[RawLevel] = []
    for remaining in reversed(range(length)):
        rows, level = _advanced(machine, canonical, rows, remaining)
        levels.append(level)
    return RawAutomaton(tuple(levels), offset[0], machine.value(rows))


def _advanced(
    machine: TargetMachine, canonical: Canonical, rows: Rows, remaining: int
) -> tuple[Rows, RawLevel]:
    """Return the states of the next level and the arcs that lead to them."""
    states, classes = rows.shape[1], len(machine.arcs)
    rows = machine.close(rows)
    nextstate = np.full((states, classes), DEAD, dtype=np.int64)
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
        nextstate[alive_states, c] = number[first + inverse]
        first += found[c].shape[1]
    return merged, RawLevel(nextstate, cost)


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
        """Return residual rows, the subtracted offsets, and which columns can reach the end."""
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
    steps = [machine.step_backward(column[:, None], c)[:, 0] for c in range(len(machine.arcs))]
    result: Rows = best.reduce(steps)
    return result


class SupportForm:
    """The canonical form of probability rows: cells that cannot reach the end are zero."""

    def __init__(self, machine: TargetMachine, length: int) -> None:
        useful = [machine.final > 0]
        for _ in range(length):
            column = useful[-1].astype(np.float64)
            useful.append(_over_classes(machine, column, np.maximum) > 0)
        self.useful = useful

    def __call__(self, rows: Rows, remaining: int) -> tuple[Rows, npt.NDArray[Any], BoolArray]:
        """Return rows restricted to useful cells; offsets are one, and all columns are alive."""
        rows = np.where(self.useful[remaining][:, None], rows, 0.0)
        return rows, np.ones(rows.shape[1]), np.ones(rows.shape[1], dtype=bool)


_CANONICAL: dict[str, Callable[[TargetMachine, int], Canonical]] = {
    TROPICAL.name: TropicalForm,
    PROBABILITY.name: SupportForm,
}


def minimize(raw: RawAutomaton) -> RawAutomaton:
    """Return the minimal automaton if costs add up along a path."""
    potential = raw.final
    number = np.zeros(len(raw.final), dtype=np.int64)
    levels: list[RawLevel] = []
    for level in reversed(raw.levels):
        dead = level.nextstate == DEAD
        through = level.cost + potential[level.nextstate]
        potential = np.where(dead, np.iinfo(np.int64).max, through).min(axis=1)
        cost = np.where(dead, 0, through - potential[:, None])
        merged, number = _merged(RawLevel(_number_of(level.nextstate, number), cost))
        levels.append(merged)
    return RawAutomaton(
        tuple(reversed(levels)), raw.initial + potential[0], np.zeros(1, dtype=np.int64)
    )


def minimize_finals(raw: RawAutomaton) -> RawAutomaton:
    """Return the minimal automaton if arcs cost nothing and only final losses differ."""
    alive = np.isfinite(raw.final)
    final, inverse = np.unique(raw.final[alive], return_inverse=True)
    number = np.full(len(raw.final), DEAD, dtype=np.int64)
    number[alive] = inverse
    levels: list[RawLevel] = []
    for level in reversed(raw.levels):
        nothing = np.zeros(level.nextstate.shape)
        merged, number = _merged(RawLevel(_number_of(level.nextstate, number), nothing))
        levels.append(merged)
    return RawAutomaton(tuple(reversed(levels)), raw.initial, final)


def _number_of(nextstate: IntArray, number: IntArray) -> IntArray:
    """Return the new numbers of the next states; DEAD stays DEAD."""
    return np.where(nextstate == DEAD, DEAD, number[nextstate])


def _merged(level: RawLevel) -> tuple[RawLevel, IntArray]:
    """Return the level with equal states merged, and the new number of each old state, or DEAD."""
    alive = (level.nextstate != DEAD).any(axis=1)
    signature: npt.NDArray[Any] = np.concatenate([level.nextstate.T, level.cost.T])[:, alive]
    classes = level.nextstate.shape[1]
    rows, inverse = unique_columns(np.ascontiguousarray(signature))
    number = np.full(len(alive), DEAD, dtype=np.int64)
    number[alive] = inverse
    merged = RawLevel(
        np.ascontiguousarray(rows[:classes].T).astype(np.int64),
        np.ascontiguousarray(rows[classes:].T),
    )
    return merged, number
