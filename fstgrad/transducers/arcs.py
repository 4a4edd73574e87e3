"""Machines written as groups of arcs: each field of a group is a number or an array of labels."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.alphabet import Alphabet
from fstgrad.checks import FloatArray, IntArray
from fstgrad.errors import InvalidInputError
from fstgrad.openfst import ArcType, Fst, FstArrays, from_arrays

EPSILON_LABEL = 0
MAX_ARCS = 2**25


class Arcs(NamedTuple):
    """Parallel arcs; the fields broadcast against each other, weights are costs."""

    source: npt.ArrayLike
    ilabel: npt.ArrayLike
    olabel: npt.ArrayLike
    weight: npt.ArrayLike
    nextstate: npt.ArrayLike


def machine(arc_type: ArcType, final: FloatArray, groups: Sequence[Arcs]) -> Fst:
    """Return the FST with start state 0, these final costs (+inf: not final) and these arcs.

    Raises
    ------
    InvalidInputError
        There would be more than 2^25 arcs, about 3 GB.
    """
    shapes = [np.broadcast_shapes(*map(np.shape, group)) for group in groups]
    total = sum(math.prod(shape) for shape in shapes)
    if total > MAX_ARCS:
        raise InvalidInputError(
            f"the alphabet is too large: the transducer would have {total:,} arcs, at most "
            f"{MAX_ARCS:,} are made; an edit distance needs few with factored=True, other losses "
            "that compare all pairs of symbols need a smaller alphabet"
        )
    columns = [np.broadcast_arrays(*(np.atleast_1d(field) for field in group)) for group in groups]
    source, ilabel, olabel, weight, nextstate = (
        np.concatenate([column[i].ravel() for column in columns]) for i in range(5)
    )
    return from_arrays(FstArrays(arc_type, 0, final, source, ilabel, olabel, nextstate, weight))


def final_at(states: int, *final: int) -> FloatArray:
    """Return final costs: 0 at the states `final`, +inf at the others."""
    costs = np.full(states, np.inf)
    costs[list(final)] = 0.0
    return costs


def labels(alphabet: Alphabet) -> IntArray:
    """Return the labels of all symbols, 1 .. n."""
    return np.arange(1, len(alphabet) + 1)
