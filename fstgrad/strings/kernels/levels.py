"""Small loops over the arrays of one level, shared by the passes with and without derivatives."""

import numpy as np
import numpy.typing as npt

from fstgrad.automata.layout import LevelWalk, Walk
from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import inner_kernel, part_kernel, sum_part_kernel

Int32Array = npt.NDArray[np.int32]
unsigned = np.uintp


@inner_kernel
def level_of(walk: Walk, t: int) -> LevelWalk:
    """Return the arrays of the level at position t."""
    lo, hi = walk.offsets[t], walk.offsets[t + 1]
    return LevelWalk(walk.class_of, walk.dense[t], walk.symbol[lo:hi], walk.next_entry[lo:hi])


@part_kernel
def largest(values: IntArray) -> int:
    """Return the largest of nonnegative numbers; 0 without any."""
    size = 0
    for value in values:
        size = max(size, int(value))
    return size


@part_kernel
def widest(first_entry: IntArray) -> int:
    """Return the number of entries of the largest level."""
    size = 0
    for t in range(len(first_entry) - 1):
        size = max(size, int(first_entry[t + 1] - first_entry[t]))
    return size


@part_kernel
def fill(values: FloatArray, value: float) -> None:
    """Set every entry to `value`; a slice assignment would take seconds to compile."""
    for i in range(len(values)):
        values[i] = value


@part_kernel
def scale(values: FloatArray, factor: float) -> None:
    """Multiply every entry by `factor`."""
    for i in range(len(values)):
        values[i] *= factor


@sum_part_kernel
def total_of(values: FloatArray) -> float:
    """Return the sum."""
    total = 0.0
    for i in range(len(values)):
        total += values[i]
    return total


@part_kernel
def sum_by_class(values: FloatArray, class_of: IntArray, sums: FloatArray) -> None:
    """Write the sum of the values of each class of symbols."""
    fill(sums, 0.0)
    for b in range(len(values)):
        sums[unsigned(class_of[b])] += values[b]


@inner_kernel
def replace_by_shares(table: FloatArray, mass: FloatArray, share: float) -> None:
    """Multiply `table` by `mass` and then by `share`; the other order could overflow."""
    for k in range(len(table)):
        for b in range(table.shape[1]):
            table[k, b] = table[k, b] * mass[k, b] * share
