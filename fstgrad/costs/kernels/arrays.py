"""Named tuples of arrays that the kernels read; this module does not load the compiler."""

from typing import NamedTuple

from fstgrad.core.checks import FloatArray, IntArray


class PairLabels(NamedTuple):
    """The labels of N pairs of strings, 1 .. n each, concatenated.

    x, y : (total length,); pair i has x[x_first[i] : x_first[i + 1]], and y likewise.
    x_first, y_first : (N + 1,).
    """

    x: IntArray
    x_first: IntArray
    y: IntArray
    y_first: IntArray


class AlignmentArcs(NamedTuple):
    """The A arcs of a transducer, sorted by key.

    key_of, source, nextstate : (A,).  Arc a reads key_of[a] // width and writes key_of[a] % width,
        where 0 is epsilon; width is n + 1.
    keys (K,), first (K + 2,) : the arcs of keys[k] are first[k] .. first[k + 1] - 1; an empty range
        follows.
    """

    width: int
    keys: IntArray
    first: IntArray
    key_of: IntArray
    source: IntArray
    nextstate: IntArray


class SilentArcs(NamedTuple):
    """The arcs with key 0, by C strongly connected components in topological order.

    member_first (C + 1,), members : members[member_first[c] ..] are the states of component c.
    star_first (C + 1,), stars : stars[star_first[c] ..] are the log-sums of its inner paths, a
        flattened matrix in nats.
    push_first (C + 1,), push : push[push_first[c] ..] are the arcs that leave it.
    """

    member_first: IntArray
    members: IntArray
    star_first: IntArray
    push_first: IntArray
    push: IntArray
    stars: FloatArray
