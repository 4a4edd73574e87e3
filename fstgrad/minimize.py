"""Minimization of a layered automaton: from the last level back, equal states become one."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.automaton import DEAD
from fstgrad.checks import IntArray
from fstgrad.determinize import RawAutomaton, RawLevel, unique_columns


def minimize(raw: RawAutomaton) -> RawAutomaton:
    """Return the minimal automaton whose costs add up along a path; O(arcs) hashing.

    The cheapest completion of every state is pushed towards the start first, so that states whose
    losses differ by a constant are one state (Mohri 2000, section 5); a single final state remains.
    """
    potential = raw.final
    number = np.zeros(len(raw.final), dtype=np.int64)
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


def minimize_finals(raw: RawAutomaton) -> RawAutomaton:
    """Return the minimal automaton whose arcs cost nothing and whose final losses differ.

    States from which every final loss is +inf are removed.
    """
    alive = np.isfinite(raw.final)
    final, inverse = np.unique(raw.final[alive], return_inverse=True)
    number = np.full(len(raw.final), DEAD, dtype=np.int64)
    number[alive] = inverse
    levels: list[RawLevel] = []
    for level in reversed(raw.levels):
        nothing = np.zeros(level.target.shape)
        merged, number = _merged(RawLevel(number_of(level.target, number), nothing))
        levels.append(merged)
    return RawAutomaton(tuple(reversed(levels)), raw.initial, final)


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
