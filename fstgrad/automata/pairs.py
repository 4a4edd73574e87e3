"""What the kernels of pairs of strings read: strings in a row, and arcs by their labels."""

from typing import NamedTuple

from fstgrad.checks import FloatArray, IntArray


class Strings(NamedTuple):
    """Strings of ids, one behind the other: string i from first[i] to first[i + 1]."""

    ids: IntArray
    first: IntArray


class PairArcs(NamedTuple):
    """The arcs of a transducer by labels: those that read a and write b, from a (n + 1) + b.

    Arcs first[k] .. first[k + 1] of a pair of labels; label 0 is epsilon, state 0 the start.
    """

    first: IntArray
    source: IntArray
    nextstate: IntArray
    weight: FloatArray
    final: FloatArray
