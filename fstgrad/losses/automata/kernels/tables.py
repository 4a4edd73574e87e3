"""Rows of cells in a pool, numbered in the order of their first occurrence.

The pool stores a row as its number, its span start * 2^20 + stop, and its cells from start to stop.
A hash table with open addressing finds rows.  A slot holds the upper 31 bits of the row's hash and
the row's offset in the pool, or -1 if it is empty.  Rows that agree in these bits are compared cell
by cell.
"""

import numpy as np

from fstgrad.core.checks import IntArray
from fstgrad.core.compiler import inner_kernel, part_kernel
from fstgrad.core.uninitialized import empty

SPAN = 1 << 20
HEAD = 2  # numbers before the cells of a row in the pool
_PLACE = (1 << 32) - 1


@inner_kernel
def hash_cells(cells: IntArray, start: int, stop: int) -> int:
    """Return a 63-bit hash of cells[start : stop]."""
    value = np.int64(-3750763034362895579)
    for j in range(start, stop):
        value = (value ^ cells[j]) * np.int64(0x100000001B3D1F)
        value ^= (value >> 29) & 0x7FFFFFFFF
    return int(value & 0x7FFFFFFFFFFFFFFF)


@inner_kernel
def number_row(
    slots: IntArray,
    pool: IntArray,
    used: int,
    count: int,
    cells: IntArray,
    start: int,
    stop: int,
    hashed: int,
) -> int:
    """Return the number of the row cells[start : stop]; add it as number `count` if it is new.

    A new row is written to pool[used :], which must have room for it.
    """
    mask, span = len(slots) - 1, start * SPAN + stop
    place, tag = hashed & mask, hashed >> 32
    while slots[place] >= 0:
        if slots[place] >> 32 == tag:
            at = slots[place] & _PLACE
            equal = pool[at + 1] == span
            j = start
            while equal and j < stop:
                equal = pool[at + HEAD + j - start] == cells[j]
                j += 1
            if equal:
                return int(pool[at])
        place = (place + 1) & mask
    slots[place] = (tag << 32) | used
    pool[used], pool[used + 1] = count, span
    for j in range(start, stop):
        pool[used + HEAD + j - start] = cells[j]
    return count


@part_kernel
def new_slots(rows: int) -> IntArray:
    """Return an empty table (int64, a power of 2 in size) with room for this many rows."""
    size = 16
    while size < 2 * rows:
        size *= 2
    return np.full(size, -1, np.int64)


@part_kernel
def rehash(pool: IntArray, used: int, rows: int) -> IntArray:
    """Return a table with room for `rows` rows that contains the rows of pool[:used]."""
    slots = new_slots(rows)
    at = 0
    while at < used:
        size = pool[at + 1] % SPAN - pool[at + 1] // SPAN
        hashed = hash_cells(pool, at + HEAD, at + HEAD + size)
        place = hashed & (len(slots) - 1)
        while slots[place] >= 0:
            place = (place + 1) & (len(slots) - 1)
        slots[place] = ((hashed >> 32) << 32) | at
        at += HEAD + size
    return slots


@part_kernel
def lengthen(values: IntArray) -> IntArray:
    """Return an array of twice the length that begins with the values."""
    result = empty(2 * len(values), np.int64)
    for i in range(len(values)):
        result[i] = values[i]
    return result
