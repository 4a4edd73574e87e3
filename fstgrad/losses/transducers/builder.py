"""FstBuilder: FSTs from groups of arcs; the acceptors of one string and of all of one length.

A builder is a function that returns arrays; `FstBuilder` converts these to a pynini.Fst.  Each
field of a group of arcs is a number or an array.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, ParamSpec

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import FloatArray, IntArray, instance, positive_integer
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


@FstBuilder
def string_acceptor(
    alphabet: Alphabet, sequence: SequenceLike, *, arc_type: ArcType = "standard"
) -> FstArrays:
    """Return the acceptor of one string.

    This is Y_i of Cortes et al. 2018, with l + 1 states and l arcs.  State s = 0 .. l follows s
    symbols; l is final.  One arc of cost 0 leads from s to s + 1.

    Parameters
    ----------
    alphabet : Alphabet
    sequence : sequence of symbols
        The string, of length l >= 0.
    arc_type : {"standard", "log", "log64"}

    Raises
    ------
    AlphabetError
        A symbol is not in the alphabet.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> string_acceptor(Alphabet("ab"), "abba").num_states()
    5
    """
    label = alphabet.encode(sequence) + 1
    length = len(label)
    state = np.arange(length)
    chain = ArcGroup(state, label, label, 0.0, state + 1)
    return machine(arc_type, final_at(length + 1, length), [chain])


@FstBuilder
def sigma_power(alphabet: Alphabet, length: int, *, arc_type: ArcType = "standard") -> FstArrays:
    """Return the acceptor Ybar of Delta^l, all strings of `length` symbols.

    This is Ybar of Cortes et al. 2018, with l + 1 states and l n arcs.  The states are 0 .. l; l is
    final.  From s to s + 1 leads one arc of cost 0 for each of the n symbols.

    Parameters
    ----------
    alphabet : Alphabet
        n symbols.
    length : int
        l >= 1.
    arc_type : {"standard", "log", "log64"}

    Raises
    ------
    InvalidInputError
        `length` is below 1, or there would be more than 2^25 arcs.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> sigma_power(Alphabet("abc"), 4).num_states()
    5
    """
    length = positive_integer("length", length)
    state, label = np.arange(length)[:, None], labels(alphabet)
    return machine(
        arc_type, final_at(length + 1, length), [ArcGroup(state, label, label, 0.0, state + 1)]
    )
