"""Arguments of the kernels: named tuples, and names of positions; no compiler is loaded."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray

# the type of indices in inner loops: compiled code need not test them for being negative
unsigned = np.uintp

# the positions of `tally` in `passes.shift_scores`: one array, because a named tuple would cost
# microseconds in every call of a kernel
SHIFT, PREFIX_SWAP, TOTAL_RANGE, LARGEST_OFFSET, RECENT_RANGES = range(5)

Pair = tuple[FloatArray, FloatArray]  # an array and its derivative

LOWEST = -1e12  # `ctc`: deeper scores count as equal, so that sums of exponents are exact


class Work(NamedTuple):
    """Working memory for one level.

    rows : (states, (n + 1)^(q-2) n), alpha or beta by state, younger contexts and symbol
    mass : (K, n), the sums over states that turn scores into Q
    """

    rows: FloatArray
    mass: FloatArray


class Tangents(NamedTuple):
    """The derivatives of a pass along one direction of the scores, of the losses, or of both.

    table : (l, K, n), of exp(score); becomes the derivative of Q
    slope : (N, C), of the costs of the arcs
    final_slope : (S_l,), of the final costs
    moved : bool, whether some entry of `table` is not 0
    alpha, betas, rows, mass : like those of the pass
    """

    table: FloatArray
    slope: FloatArray
    final_slope: FloatArray
    moved: bool
    alpha: FloatArray
    betas: FloatArray
    rows: FloatArray
    mass: FloatArray


class LevelTangents(NamedTuple):
    """The part of `Tangents` at one level; `after` is the next alpha, `before` the new beta."""

    table: FloatArray
    slope: FloatArray
    moved: bool
    alpha: FloatArray
    after: FloatArray
    beta: FloatArray
    before: FloatArray
    rows: FloatArray
    mass: FloatArray


class ClassTangents(NamedTuple):
    """The derivatives of a pass by classes of symbols, as `Tangents`.

    sums : (l, C), of the sums of `table` over the symbols of each class
    alpha, beta, mass, ways : like those of the pass
    """

    table: FloatArray
    slope: FloatArray
    final_slope: FloatArray
    sums: FloatArray
    alpha: FloatArray
    beta: FloatArray
    mass: FloatArray
    ways: FloatArray


class Dual(NamedTuple):
    """Numbers and their derivatives along one direction: two arrays of one shape."""

    value: FloatArray
    change: FloatArray


class BatchLayoutArrays(NamedTuple):
    """The arrays of `automata.layout.LayoutArrays` of B automata, concatenated.

    class_of is (B, n), all others are flat.  Item i has the states states[i] .. states[i + 1] - 1,
    the arcs arcs[i] .. arcs[i + 1] - 1 and the final weights ends[i] .. ends[i + 1] - 1.
    """

    class_of: IntArray
    offsets: IntArray
    first_entry: IntArray
    dense: IntArray
    symbol: npt.NDArray[np.int32]
    next_entry: npt.NDArray[np.int32]
    states: IntArray
    arcs: IntArray
    ends: IntArray


class GoldStates(NamedTuple):
    """The states of the paths that collapse to a gold string; state s of `ctc` has the index s + 2.

    symbol : (2 S + 5,), the label that a state reads
    place : (2 S + 5,), the place of this label in `labels`
    labels : (U,), the distinct labels that are read
    skips, barred : (2 S + 5,), 1 and 0 if the blank before this state may be skipped, else 0 and
        -inf
    """

    symbol: IntArray
    place: IntArray
    labels: IntArray
    skips: FloatArray
    barred: FloatArray


class GoldFrames(NamedTuple):
    """The rows of a block of K frames in `ctc`; row r + 1 of the first three follows frame r.

    mantissa, exponent : (K + 1, 2 S + 5), the weights of prefixes by their last state
    mean : (K + 1, 2 S + 5), the mean over these prefixes of their sums of a direction
    stay, step, skip : (K, 2 S + 5), the shares of the prefixes by the state before
    """

    mantissa: FloatArray
    exponent: FloatArray
    mean: FloatArray
    stay: FloatArray
    step: FloatArray
    skip: FloatArray
