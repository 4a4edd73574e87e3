"""Build machines from groups of arcs; each field of a group is a number or an array.

Builders are functions that return arrays; `FstBuilder` converts these to a pynini.Fst.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, ParamSpec

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray, IntArray, instance
from fstgrad.core.errors import InvalidInputError
from fstgrad.openfst import ArcType, Fst, FstArrays, from_arrays

EPSILON_LABEL = 0
MAX_ARCS = 2**25
Parameters = ParamSpec("Parameters")


class ArcGroup(NamedTuple):
    """A group of arcs; the fields are broadcast against each other, and weights are costs."""

    source: npt.ArrayLike
    ilabel: npt.ArrayLike
    olabel: npt.ArrayLike
    weight: npt.ArrayLike
    nextstate: npt.ArrayLike


class FstBuilder(Generic[Parameters]):
    """A function that returns a pynini.Fst; `.arrays(...)` returns its arrays, without OpenFst."""

    def __init__(self, arrays: Callable[Parameters, FstArrays]) -> None:
        functools.update_wrapper(self, arrays)
        self.arrays = arrays

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Fst:
        """Return the FST, as a pynini.Fst."""
        return from_arrays(self.arrays(*args, **kwargs))


def machine(arc_type: ArcType, final: FloatArray, groups: Sequence[ArcGroup]) -> FstArrays:
    """Return the FST with start state 0, these final costs (+inf: not final) and these arcs.

    Raises
    ------
    InvalidInputError
        The FST would have more than 2^25 arcs (about 3 GB).
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
    return FstArrays(arc_type, 0, final, source, ilabel, olabel, nextstate, weight)


def final_at(states: int, *final: int) -> FloatArray:
    """Return final costs: 0 at the states `final`, +inf at the others."""
    costs = np.full(states, np.inf)
    costs[list(final)] = 0.0
    return costs


def labels(alphabet: Alphabet) -> IntArray:
    """Return the labels (n,) int64 of all symbols, 1 .. n."""
    instance("alphabet", alphabet, Alphabet, "an Alphabet")
    return np.arange(1, len(alphabet) + 1)
