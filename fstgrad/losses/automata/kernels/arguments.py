"""Arguments of the kernels: arcs of a target machine; strings and arcs for pairs of strings.

This module does not load the compiler.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray


class ClassArcs(NamedTuple):
    """The arcs of M that read a symbol, by class and source.

    first : (C K + 1,) int64; class c has the arcs first[i] .. first[i + 1] from j, with i = c K + j
    nextstate, weight : (A,)
    """

    first: IntArray
    nextstate: IntArray
    weight: npt.NDArray[Any]


class MachineArcs(NamedTuple):
    """All arcs of M: the fields of `ClassArcs`, then the same fields for epsilon arcs, by source.

    `eps_first` is (K + 1,).  Epsilon arcs lead to states with higher numbers.
    """

    first: IntArray
    nextstate: IntArray
    weight: npt.NDArray[Any]
    eps_first: IntArray
    eps_nextstate: IntArray
    eps_weight: npt.NDArray[Any]

    @property
    def reading(self) -> ClassArcs:
        """The arcs that read a symbol."""
        return ClassArcs(self.first, self.nextstate, self.weight)


def group_arcs(
    group: IntArray, nextstate: IntArray, weight: npt.NDArray[Any], groups: int
) -> ClassArcs:
    """Return the arcs sorted by `group` (A,), with the first arc of each of `groups` groups."""
    if len(group) == 0:
        return ClassArcs(np.zeros(groups + 1, dtype=np.int64), nextstate.copy(), weight.copy())
    order = group.argsort(kind="stable")
    first = group[order].searchsorted(np.arange(groups + 1))
    return ClassArcs(first, nextstate[order], weight[order])


# the positions of arguments of the kernels, which are arrays because a named tuple would cost
# microseconds in every call
SUBSTITUTE, DELETE, INSERT, MATCH = range(4)  # a match costs nothing
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
