"""Inputs of the kernels over pairs of strings: concatenated strings, arcs grouped by labels."""

from typing import NamedTuple

from fstgrad.core.checks import FloatArray, IntArray

# the positions of arguments of the kernels, which are arrays because a named tuple would cost
# microseconds in every call
SUBSTITUTE, DELETE, INSERT = range(3)
OPENING, EXTENDING, LOWEST = range(3)
Y_ENDS, TARGET_ENDS, LOCAL = range(3)
FREE_ENDS = ("y", "target", "local")  # in this order


class Strings(NamedTuple):
    """Concatenated strings of ids (int64): string i is ids[first[i] : first[i + 1]]."""

    ids: IntArray
    first: IntArray


class PairArcs(NamedTuple):
    """The arcs of a transducer with S states, grouped by their labels.

    The arcs that read label a and write label b are first[k] .. first[k + 1], k = a (n + 1) + b.
    Label 0 is epsilon, label i + 1 is symbol i, and state 0 is the start.  `weight` (A,) and
    `final` (S,) are costs in nats.
    """

    first: IntArray
    source: IntArray
    nextstate: IntArray
    weight: FloatArray
    final: FloatArray
