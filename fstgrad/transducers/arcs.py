"""Machines written as groups of arcs: each field of a group is a number or an array of labels."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.alphabet import Alphabet
from fstgrad.checks import FloatArray, IntArray
from fstgrad.openfst import ArcType, Fst, FstArrays, from_arrays

EPSILON_LABEL = 0


class Arcs(NamedTuple):
    """Parallel arcs; the fields broadcast against each other, weights are costs."""

    source: npt.ArrayLike
    ilabel: npt.ArrayLike
    olabel: npt.ArrayLike
    weight: npt.ArrayLike
    target: npt.ArrayLike


def machine(arc_type: ArcType, final: FloatArray, groups: Sequence[Arcs]) -> Fst:
    """Return the FST with start state 0, these final costs (+inf: not final) and these arcs."""
    columns = [np.broadcast_arrays(*(np.atleast_1d(field) for field in group)) for group in groups]
    source, ilabel, olabel, weight, target = (
        np.concatenate([column[i].ravel() for column in columns]) for i in range(5)
    )
    return from_arrays(FstArrays(arc_type, 0, final, source, ilabel, olabel, target, weight))


def final_at(states: int, *final: int) -> FloatArray:
    """Return final costs: 0 at the states `final`, +inf at the others."""
    costs = np.full(states, np.inf)
    costs[list(final)] = 0.0
    return costs


def labels(alphabet: Alphabet) -> IntArray:
    """Return the labels of all symbols, 1 .. n."""
    return np.arange(1, len(alphabet) + 1)
