"""Minimization of a layered automaton: from the last level back, equal states become one."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.automata.automaton import DEAD
from fstgrad.automata.determinize import RawAutomaton, RawLevel, unique_columns
from fstgrad.checks import IntArray


def minimize(raw: RawAutomaton, *, compiled: bool = True) -> RawAutomaton:
    """Return the minimal automaton whose costs add up along a path; O(arcs) hashing.

    The cheapest completion of every state is pushed towards the start first, so that states whose
    losses differ by a constant are one state (Mohri 2000, section 5); a single final state remains.
    """
    potential = raw.final
    number = np.zeros(len(raw.final), dtype=np.int64)
    if compiled:
        merged_levels, potential = _compiled(raw.levels, number, potential)
        return RawAutomaton(merged_levels, raw.initial + potential[0], np.zeros(1, dtype=np.int64))
    levels: list[RawLevel] = []
    for level in reversed(raw.levels):
        dead = level.target == DEAD
        through = level.cost + potential[level.target]
        potential = np.where(dead, np.iinfo(np.int64).max, through).min(axis=1)
        cost = np.where(dead, 0, through - potential[:, None])
        merged, number = _merged(RawLevel(number_of(level.target, number), cost))
        levels.append(merged)
    return RawAutomaton(
        tuple(reversed(levels)), raw.initial + potential[0], np.zeros(1, dtype=np.int64)
    )


def minimize_finals(raw: RawAutomaton, *, compiled: bool = True) -> RawAutomaton:
    """Return the minimal automaton whose arcs cost nothing and whose final losses differ.

    States from which every final loss is +inf are removed.
    """
    alive = np.isfinite(raw.final)
    final, inverse = np.unique(raw.final[alive], return_inverse=True)
    number = np.full(len(raw.final), DEAD, dtype=np.int64)
    number[alive] = inverse
    if compiled:
        potential = np.zeros(len(number), dtype=np.int64)
        return RawAutomaton(_compiled(raw.levels, number, potential)[0], raw.initial, final)
    levels: list[RawLevel] = []
    for level in reversed(raw.levels):
        nothing = np.zeros(level.target.shape)
        merged, number = _merged(RawLevel(number_of(level.target, number), nothing))
        levels.append(merged)
    return RawAutomaton(tuple(reversed(levels)), raw.initial, final)


def _compiled(
    levels: tuple[RawLevel, ...], number: IntArray, potential: IntArray
) -> tuple[tuple[RawLevel, ...], IntArray]:
    """Return the levels merged from the last to the first, and the potential of the first."""
    from fstgrad.automata.kernels.levels import merged_level

    result = []
    for level in reversed(levels):
        target, cost, number, potential = merged_level(level.target, level.cost, number, potential)
        result.append(RawLevel(target, cost))
    return tuple(reversed(result)), potential


def number_of(target: IntArray, number: IntArray) -> IntArray:
    """Return the new numbers of the states in `target`, dead ones stay dead."""
    return np.where(target == DEAD, DEAD, number[target])


def _merged(level: RawLevel) -> tuple[RawLevel, IntArray]:
    """Return the level with equal states merged, and the number of each old state, or -1."""
    alive = (level.target != DEAD).any(axis=1)
    signature: npt.NDArray[Any] = np.concatenate([level.target.T, level.cost.T])[:, alive]
    classes = level.target.shape[1]
    rows, inverse = unique_columns(np.ascontiguousarray(signature))
    number = np.full(len(alive), DEAD, dtype=np.int64)
    number[alive] = inverse
    merged = RawLevel(
        np.ascontiguousarray(rows[:classes].T).astype(np.int64),
        np.ascontiguousarray(rows[classes:].T),
    )
    return merged, number
