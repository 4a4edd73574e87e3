"""Named tuples that the passes read; this module does not load the compiler."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.checks import FloatArray, IntArray


class Work(NamedTuple):
    """Working memory of a level: rows (states, (n + 1)^(q-2) n), masses (K, n), a row (n,)."""

    rows: FloatArray
    mass: FloatArray
    ways: FloatArray


class Dual(NamedTuple):
    """Numbers and their derivatives along one direction, of one shape."""

    value: FloatArray
    change: FloatArray


class DualWork(NamedTuple):
    """`Work` with derivatives."""

    rows: Dual
    mass: Dual
    ways: Dual


class Walks(NamedTuple):
    """The layouts of B automata, one behind another, as in `automata.layout.Walk`.

    class_of (B, n); next_entry flat; item i has the states states[i] .. states[i + 1], the arcs
    arcs[i] .. arcs[i + 1] and the final weights ends[i] .. ends[i + 1].
    """

    class_of: IntArray
    offsets: IntArray
    places: IntArray
    dense: IntArray
    symbol: npt.NDArray[np.int32]
    next_entry: npt.NDArray[np.int32]
    states: IntArray
    arcs: IntArray
    ends: IntArray
