"""Determinize one level of counts; `tests/oracles/determinization.py` defines it in numpy."""

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.kernels.arguments import ClassArcs
from fstgrad.losses.automata.kernels.tables import new_slots

_ROUND, _KEEP = 1 << 11, -(1 << 12)  # mantissas are compared to 40 bits
_EXACT = 2.0**53


@kernel
def supports(arcs: ClassArcs, final: FloatArray, length: int) -> BoolArray:
    """Return (l + 1, K): whether r symbols can lead from a state to an end; no epsilon arcs."""
    first, nextstate, weight = arcs
    size = len(final)
    useful = np.zeros((length + 1, size), np.bool_)
    for j in range(size):
        useful[0, j] = final[j] > 0.0
    for r in range(1, length + 1):
        for group in range(len(first) - 1):
            for a in range(first[group], first[group + 1]):
                if useful[r - 1, nextstate[a]] and weight[a] > 0.0:
                    useful[r, group % size] = True
    return useful


@kernel
def determinize_level(
    rows: FloatArray, arcs: ClassArcs, useful: BoolArray, limit: int, room: int
) -> tuple[int, int, FloatArray, IntArray]:
    """Return the next level: number of states, cells needed, rows (S', K), nextstate (S, C).

    M has no epsilon arcs.  A row advances by class c to after[k] = the sum of row[j] weight over
    the arcs j -> k of c; `useful` (K,) are the states from which an end can still be reached, and
    other cells are set to 0.  If rows would need more than `room` cells, the kernel stops before it
    allocates them and returns their number; otherwise the number of cells needed is 0.
    """
    first, nextstate, weight = arcs
    states, size = rows.shape
    classes = (len(first) - 1) // size
    ends = np.full((states, classes), -1, np.int64)
    # Before each state count + classes <= capacity, so that a new row has a place for every class.
    capacity = 2 * states + classes + 16
    if capacity * size > room:
        return 0, capacity * size, rows[:0], ends
    found, slots = empty((capacity, size)), new_slots(capacity)
    # number <= size: each cell of a row is visited once
    cells, live = np.zeros(size), empty(size, np.int64)
    factors = _factors(size)
    count = 0
    for s in range(states):
        number = 0
        for k in range(size):
            if rows[s, k] != 0.0:
                live[number] = k
                number += 1
        for c in range(classes):
            for i in range(number):
                k = c * size + live[i]
                for a in range(first[k], first[k + 1]):
                    cells[nextstate[a]] += rows[s, live[i]] * weight[a]
            hashed = 0
            for j in range(size):
                cells[j] = cells[j] if useful[j] else 0.0
                hashed += _comparable(cells[j]) * factors[j]
            ends[s, c] = _number_row(slots, found, count, cells, hashed)
            count += ends[s, c] == count
            for j in range(size):
                cells[j] = 0.0
        if count > limit:
            return count, 0, found[:0], ends
        if count + classes > capacity:
            needed = (3 * capacity + 2 * classes) * size  # the old rows and twice as many
            if needed > room:
                return count, needed, found[:0], ends
            capacity = 2 * (capacity + classes)
            found, slots = _grow(found, count, capacity, factors)
    return count, 0, found[:count].copy(), ends


@inner_kernel
def _factors(size: int) -> IntArray:
    """Return odd factors with well mixed bits, one for each cell of a row."""
    factors = empty(size, np.int64)
    value = np.int64(-7046029254386353131)
    for j in range(size):
        value = (value ^ (value >> 29)) * np.int64(-4658895280553007687)
        factors[j] = value | 1
    return factors


@inner_kernel
def _comparable(cell: float) -> int:
    """Return a key that equal cells share; all but integers below 2^53 are rounded to 40 bits."""
    bits = np.float64(cell).view(np.int64)
    if cell != np.rint(cell) or cell >= _EXACT:
        bits = (bits + _ROUND) & _KEEP
    return int(bits ^ (bits >> 32))


@inner_kernel
def _number_row(
    slots: IntArray, found: FloatArray, count: int, cells: FloatArray, hashed: int
) -> int:
    """Return the number of the row among those found; append a new row."""
    hashed = (hashed ^ (hashed >> 32)) & 0x7FFFFFFFFFFFFFFF
    place, tag = hashed & (len(slots) - 1), hashed >> 32
    while slots[place] >= 0:
        if slots[place] >> 32 == tag:
            number = slots[place] & 0xFFFFFFFF
            equal = True
            for j in range(len(cells)):
                if found[number, j] != cells[j]:
                    equal = equal and _comparable(found[number, j]) == _comparable(cells[j])
            if equal:
                return int(number)
        place = (place + 1) & (len(slots) - 1)
    slots[place] = (tag << 32) | count
    for j in range(len(cells)):
        found[count, j] = cells[j]
    return int(count)


@inner_kernel
def _grow(
    found: FloatArray, count: int, capacity: int, factors: IntArray
) -> tuple[FloatArray, IntArray]:
    """Return a copy of the rows with room for `capacity` rows, and its slots."""
    rows, slots = empty((capacity, found.shape[1])), new_slots(capacity)
    for i in range(count):
        hashed = 0
        for j in range(found.shape[1]):
            hashed += _comparable(found[i, j]) * factors[j]
        _number_row(slots, rows, i, found[i], hashed)
    return rows, slots
