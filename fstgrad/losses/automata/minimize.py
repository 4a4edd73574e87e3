"""Minimize a layered automaton: merge equal states from the last level to the first."""

import numpy as np

from fstgrad.core.checks import IntArray
from fstgrad.losses.automata import kernels
from fstgrad.losses.automata.determinize import RawAutomaton, RawLevel
from fstgrad.losses.automata.layout import DEAD


def minimize(raw: RawAutomaton) -> RawAutomaton:
    """Return the minimal automaton of a loss that adds costs along a path; O(arcs), by hashing.

    First, the cost of each state's cheapest completion is pushed towards the start, so that states
    whose losses differ by a constant merge (Mohri 2000, section 5).  One final state remains.
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
        nextstate, cost, number, potential = kernels.levels.merge_level(
            level.nextstate, level.cost, number, potential
        )
        result.append(RawLevel(nextstate, cost))
    return tuple(reversed(result)), potential
