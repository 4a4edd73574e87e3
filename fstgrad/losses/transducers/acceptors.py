"""Acceptors of one string and of all strings of one length."""

import numpy as np

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import positive_integer
from fstgrad.losses.transducers.arcs import ArcGroup, FstBuilder, final_at, labels, machine
from fstgrad.openfst import ArcType, FstArrays


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
