"""Rows of cells in a table with open addressing: hash, look up, grow.

A slot holds the number of a row or -1; rows stand one behind the other in a pool.  A row is found
by its hash and compared cell by cell.
"""

import numpy as np
import numpy.typing as npt

from fstgrad.checks import FloatArray, IntArray
from fstgrad.kernels.compiler import inner_kernel, kernel


@kernel
def power_of_two(least: int) -> int:
    """Return the least power of 2 from 16 on that is not below `least`."""
    size = 16
    while size < least:
        size *= 2
    return size


@kernel
def longer(values: IntArray) -> IntArray:
    """Return the values with as many again behind them."""
    result = np.empty(2 * len(values), np.int64)
    result[: len(values)] = values
    return result


@kernel
def grown_rows(rows: FloatArray) -> FloatArray:
    """Return the rows with as many again behind them."""
    result = np.empty((2 * len(rows), rows.shape[1]))
    result[: len(rows)] = rows
    return result


@kernel
def rehashed(hashes: IntArray, count: int, least: int) -> npt.NDArray[np.int32]:
    """Return a table of at least `least` slots with the rows 0 .. count - 1 in it."""
    slots = np.full(power_of_two(least), -1, np.int32)
    for i in range(count):
        place = hashes[i] & (len(slots) - 1)
        while slots[place] >= 0:
            place = (place + 1) & (len(slots) - 1)
        slots[place] = i
    return slots


@inner_kernel
def hashed_cells(cells: IntArray, start: int, stop: int) -> int:
    """Return a 64-bit hash of cells[start : stop] and of where they stand."""
    value = np.int64(-3750763034362895579) + np.int64(start) * np.int64(0x2545F4914F6CDD1D)
    for j in range(start, stop):
        value = (value ^ cells[j]) * np.int64(1099511628211 * 2 + 0x9E3779B1 * 2 + 1)
        value ^= (value >> 29) & 0x7FFFFFFFF
    return value


@inner_kernel
def slot_of(
    slots: npt.NDArray[np.int32],
    hashes: IntArray,
    columns: IntArray,
    ends: IntArray,
    pool: IntArray,
    cells: IntArray,
    hashed: int,
    start: int,
    stop: int,
) -> int:
    """Return the slot of the row that equals cells[start : stop], or a free one for it.

    Row i starts at column columns[i] and stands in pool[ends[i] : ends[i + 1]].
    """
    mask = len(slots) - 1
    place = hashed & mask
    while slots[place] >= 0:
        at = slots[place]
        if (
            hashes[at] == hashed
            and columns[at] == start
            and ends[at + 1] - ends[at] == stop - start
        ):
            equal = True
            for j in range(start, stop):
                if pool[ends[at] + j - start] != cells[j]:
                    equal = False
                    break
            if equal:
                break
        place = (place + 1) & mask
    return place
