"""The arcs of a target machine for the kernels; this module does not load the compiler."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import IntArray


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
