"""Determinization by counts, and minimization of a level; twins in `fstgrad.minimize`."""

import numpy as np

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.kernels.compiler import inner_kernel, kernel
from fstgrad.kernels.tables import HEAD, hashed_cells, longer, new_slots, numbered, rehashed

INF = 2**60  # as in fstgrad.semiring
_ROUND, _KEEP = 1 << 11, -(1 << 12)  # mantissas are compared to 40 bits
_EXACT = 2.0**53


@kernel
def probability_level(
    rows: FloatArray,
    classes: int,
    first: IntArray,
    goal: IntArray,
    weight: FloatArray,
    useful: BoolArray,
    limit: int,
) -> tuple[int, FloatArray, IntArray]:
    """Return the number of states of the next level, their rows, and target (S, C).

    M has no epsilon arcs.  `useful` (K,) says from which states an end can still be reached.
    """
    states, size = rows.shape
    target = np.full((states, classes), -1, np.int64)
    capacity = 2 * states + 16
    found, pool = np.empty((capacity, size)), np.empty(capacity * (size + HEAD), np.int64)
    slots = new_slots(capacity)
    cells, key = np.empty(size, np.float64), np.empty(size, np.int64)
    count = 0
    for s in range(states):
        for c in range(classes):
            for j in range(size):
                cells[j] = 0.0
            for k in range(size):
                if rows[s, k] != 0.0:
                    for a in range(first[c * size + k], first[c * size + k + 1]):
                        if useful[goal[a]]:
                            cells[goal[a]] += rows[s, k] * weight[a]
            _comparable(cells, key)
            used = count * (size + HEAD)
            hashed = hashed_cells(key, 0, size)
            target[s, c] = numbered(slots, pool, used, count, key, 0, size, hashed)
            if target[s, c] == count:
                for j in range(size):
                    found[count, j] = cells[j]
                count += 1
            if count > limit:
                return count, found[:0], target
            if count == capacity:
                capacity *= 2
                pool = longer(pool)
                slots = rehashed(pool, count * (size + HEAD), capacity)
                grown = np.empty((capacity, size))
                for i in range(count):
                    for j in range(size):
                        grown[i, j] = found[i, j]
                found = grown
    return count, found[:count].copy(), target


@inner_kernel
def _comparable(cells: FloatArray, key: IntArray) -> None:
    """Write the bits of the cells; those of other numbers than integers rounded to 40 bits."""
    bits = cells.view(np.int64)
    for j in range(len(cells)):
        if cells[j] == np.rint(cells[j]) and cells[j] < _EXACT:
            key[j] = bits[j]
        else:
            key[j] = (bits[j] + _ROUND) & _KEEP


@kernel
def merged_level(
    target: IntArray, cost: IntArray, number: IntArray, potential: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return (target, cost, number, potential) of a level whose equal states are merged.

    `number` and `potential` of the next level's states come in, those of this level's go out: the
    new number, -1 where no arc is left, and the cheapest completion, which is pushed to the front.
    """
    states, classes = target.shape
    width = 2 * classes
    pool = np.empty(states * (width + HEAD) + HEAD, np.int64)
    slots = new_slots(states)
    own_number, own_potential = np.full(states, -1, np.int64), np.zeros(states, np.int64)
    cells = np.empty(width, np.int64)
    count = 0
    for s in range(states):
        least = INF
        for c in range(classes):
            to = target[s, c]
            cells[c] = number[to] if to >= 0 else -1
            if cells[c] >= 0:
                cells[classes + c] = cost[s, c] + potential[to]
                least = min(least, cells[classes + c])
        if least == INF:
            continue
        for c in range(classes):
            cells[classes + c] = cells[classes + c] - least if cells[c] >= 0 else 0
        own_potential[s] = least
        hashed = hashed_cells(cells, 0, width)
        used = count * (width + HEAD)
        own_number[s] = numbered(slots, pool, used, count, cells, 0, width, hashed)
        count += own_number[s] == count
    merged_target = np.empty((count, classes), np.int64)
    merged_cost = np.empty((count, classes), np.int64)
    for s in range(count):
        at = s * (width + HEAD) + HEAD
        for c in range(classes):
            merged_target[s, c], merged_cost[s, c] = pool[at + c], pool[at + classes + c]
    return merged_target, merged_cost, own_number, own_potential
