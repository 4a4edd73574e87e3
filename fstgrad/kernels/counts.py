"""Machines that count, weights being probabilities: reduction, and determinization by level.

The twins in numpy are in `fstgrad.reduction` and `fstgrad.determinize`.
"""

import numpy as np

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.kernels.compiler import inner_kernel, kernel
from fstgrad.kernels.tables import HEAD, hashed_cells, longer, new_slots, numbered

_ROUND, _KEEP = 1 << 11, -(1 << 12)  # mantissas are compared to 40 bits
_EXACT = 2.0**53


@kernel
def closure(size: int, source: IntArray, target: IntArray, weight: FloatArray) -> FloatArray:
    """Return (K, K): the weights of all epsilon paths; the arcs come in topological order."""
    paths = np.zeros((size, size))
    for s in range(size):
        paths[s, s] = 1.0
        for e in range(len(source)):
            paths[s, target[e]] += paths[s, source[e]] * weight[e]
    return paths


@kernel
def quotient(
    paths: FloatArray,
    start: int,
    classes: int,
    first: IntArray,
    goal: IntArray,
    weight: FloatArray,
    final: FloatArray,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the machine without epsilons whose states have different futures; it starts in 0.

    Parameters
    ----------
    paths : (K, K)
        The weights of all epsilon paths; they move before the symbol that follows them.
    start, classes, first, goal, weight
        Class c has arcs first[c K + j] .. first[c K + j + 1] from state j.
    final : (K,)

    Returns
    -------
    Arcs (A, 3), rows of (class, source, target); their weights (A,); final weights (K',).

    Two states are equal if they are equally final and lead, for each class, with equal total weight
    into each block: partition refinement, O(rounds x arcs of the closed machine).
    """
    size = len(final)
    order, ends, block = _entered(paths, start, classes, first, goal, final)
    sums, touched = np.zeros(size), np.empty(size, np.int64)
    pool, row = np.empty(1024, np.int64), np.empty(3 * len(goal) + 1, np.int64)
    leads = np.empty(size, np.int64)
    blocks = 0
    while True:
        capacity, count, used = len(order), 0, 0
        slots, fresh = new_slots(capacity), np.zeros(size, np.int64)
        for s in order:
            row[0] = ends[s : s + 1].view(np.int64)[0] if blocks == 0 else block[s]
            width, leaders = 1, 0
            for k in range(size):
                if paths[s, k] != 0.0:
                    leads[leaders] = k
                    leaders += 1
            for c in range(classes if blocks > 0 else 0):
                number = 0
                for k in leads[:leaders]:
                    for a in range(first[c * size + k], first[c * size + k + 1]):
                        to = block[goal[a]]
                        if sums[to] == 0.0:
                            number = _inserted(touched, number, to)
                        sums[to] += paths[s, k] * weight[a]
                for i in range(number):
                    to = touched[i]
                    row[width], row[width + 1] = c, to
                    row[width + 2] = sums[to : to + 1].view(np.int64)[0]
                    sums[to] = 0.0
                    width += 3
            while used + width + HEAD > len(pool):
                pool = longer(pool)
            hashed = hashed_cells(row, 0, width)
            fresh[s] = numbered(slots, pool, used, count, row, 0, width, hashed)
            if fresh[s] == count:
                count += 1
                used += width + HEAD
        block = fresh
        if count == blocks:
            return _written(pool, used, order, block, ends, count)
        blocks = count


@inner_kernel
def _inserted(sorted_values: IntArray, number: int, value: int) -> int:
    """Insert a value that may be there already; return how many there are."""
    place = number
    while place > 0 and sorted_values[place - 1] >= value:
        place -= 1
    if place < number and sorted_values[place] == value:
        return number
    for i in range(number, place, -1):
        sorted_values[i] = sorted_values[i - 1]
    sorted_values[place] = value
    return number + 1


@inner_kernel
def _entered(
    paths: FloatArray, start: int, classes: int, first: IntArray, goal: IntArray, final: FloatArray
) -> tuple[IntArray, FloatArray, IntArray]:
    """Return the states that symbols lead to, from the start on, final weights, and zeros (K,)."""
    size = len(final)
    order, seen = np.empty(size, np.int64), np.zeros(size, np.bool_)
    order[0], seen[start], count, done = start, True, 1, 0
    ends = np.zeros(size)
    while done < count:
        s = order[done]
        done += 1
        for k in range(size):
            if paths[s, k] != 0.0:
                ends[s] += paths[s, k] * final[k]
                for c in range(classes):
                    for a in range(first[c * size + k], first[c * size + k + 1]):
                        if not seen[goal[a]]:
                            order[count], seen[goal[a]] = goal[a], True
                            count += 1
    return order[:count], ends, np.zeros(size, np.int64)


@inner_kernel
def _written(
    pool: IntArray, used: int, order: IntArray, block: IntArray, ends: FloatArray, blocks: int
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the arcs between blocks, which stand in the pool, their weights and the final ones."""
    final = np.empty(blocks)
    for s in order:
        final[block[s]] = ends[s]
    arcs, count, at = np.empty((used // 3, 3), np.int64), 0, 0
    weight = np.empty(len(arcs))
    while at < used:
        stop = at + HEAD + pool[at + 1]
        for i in range(at + HEAD + 1, stop, 3):
            arcs[count, 0], arcs[count, 1], arcs[count, 2] = pool[i], pool[at], pool[i + 1]
            weight[count] = pool[i + 2 : i + 3].view(np.float64)[0]
            count += 1
        at = stop
    return arcs[:count], weight[:count], final


@kernel
def supports(
    classes: int,
    first: IntArray,
    goal: IntArray,
    weight: FloatArray,
    final: FloatArray,
    length: int,
) -> BoolArray:
    """Return (l + 1, K): from which states of M, without epsilons, r symbols can lead to an end."""
    size = len(final)
    useful = np.zeros((length + 1, size), np.bool_)
    for j in range(size):
        useful[0, j] = final[j] > 0.0
    for r in range(1, length + 1):
        for group in range(classes * size):
            for a in range(first[group], first[group + 1]):
                if useful[r - 1, goal[a]] and weight[a] > 0.0:
                    useful[r, group % size] = True
    return useful


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
    found, slots = np.empty((capacity, size)), new_slots(capacity)
    cells, live = np.zeros(size), np.empty(size, np.int64)
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
                    cells[goal[a]] += rows[s, live[i]] * weight[a]
            hashed = 0
            for j in range(size):
                cells[j] = cells[j] if useful[j] else 0.0
                hashed += _comparable(cells[j]) * factors[j]
            target[s, c] = _numbered(slots, found, count, cells, hashed)
            count += target[s, c] == count
            for j in range(size):
                cells[j] = 0.0
        if count > limit:
            return count, found[:0], target
        if count + classes > capacity:
            capacity = 2 * (capacity + classes)
            found, slots = _grown(found, count, capacity, factors)
    return count, found[:count].copy(), target


@inner_kernel
def _factors(size: int) -> IntArray:
    """Return odd factors with bits all over, one for each cell of a row."""
    factors = np.empty(size, np.int64)
    value = np.int64(-7046029254386353131)
    for j in range(size):
        value = (value ^ (value >> 29)) * np.int64(-4658895280553007687)
        factors[j] = value | 1
    return factors


@inner_kernel
def _comparable(cell: float) -> int:
    """Return what equal cells have in common; all but integers are rounded to 40 bits."""
    bits = np.float64(cell).view(np.int64)
    if cell != np.rint(cell) or cell >= _EXACT:
        bits = (bits + _ROUND) & _KEEP
    return bits ^ (bits >> 32)


@inner_kernel
def _numbered(
    slots: IntArray, found: FloatArray, count: int, cells: FloatArray, hashed: int
) -> int:
    """Return the number of the row among those found; a new one is written behind them."""
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
    return count


@inner_kernel
def _grown(
    found: FloatArray, count: int, capacity: int, factors: IntArray
) -> tuple[FloatArray, IntArray]:
    """Return the rows with room for `capacity`, and their slots."""
    rows, slots = np.empty((capacity, found.shape[1])), new_slots(capacity)
    for i in range(count):
        hashed = 0
        for j in range(found.shape[1]):
            hashed += _comparable(found[i, j]) * factors[j]
        _numbered(slots, rows, i, found[i], hashed)
    return rows, slots
