"""One level of the determinization of a target machine: advance, canonical form, hash, merge.

Arcs of M stand in arrays sorted by class: class c has the arcs first[c] .. first[c + 1].  A row
holds the K weights of M's states for one state of the result; new rows are looked up in a table
with open addressing and compared cell by cell.  The twins in numpy are in `fstgrad.determinize`.
"""

import numpy as np
import numpy.typing as npt

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.kernels.compiler import inner_kernel, kernel

INF = 2**60  # as in fstgrad.semiring
_ROUND, _KEEP = 1 << 11, -(1 << 12)  # mantissas are compared to 40 bits
_EXACT = 2.0**53


@kernel
def tropical_bounds(
    classes: int,
    first: IntArray,
    goal: IntArray,
    weight: IntArray,
    eps_first: IntArray,
    eps_goal: IntArray,
    eps_weight: IntArray,
    final: IntArray,
    length: int,
) -> tuple[IntArray, IntArray]:
    """Return bounds (l + 1, K) of what each state still costs with r symbols left, over all y.

    The lower bound is exact; the upper one takes for each symbol the cheapest arc.
    """
    size = len(final)
    lower, upper = np.full((length + 1, size), INF), np.zeros((length + 1, size), np.int64)
    for j in range(size):
        lower[0, j], upper[0, j] = final[j], final[j]
    low, high = np.empty(size, np.int64), np.empty(size, np.int64)
    for r in range(1, length + 1):
        for c in range(classes):
            for j in range(size - 1, -1, -1):
                low[j], high[j] = INF, INF
                for a in range(first[c * size + j], first[c * size + j + 1]):
                    low[j] = min(low[j], weight[a] + lower[r - 1, goal[a]])
                    high[j] = min(high[j], weight[a] + upper[r - 1, goal[a]])
                for e in range(eps_first[j], eps_first[j + 1]):
                    low[j] = min(low[j], eps_weight[e] + low[eps_goal[e]])
                    high[j] = min(high[j], eps_weight[e] + high[eps_goal[e]])
                lower[r, j] = min(lower[r, j], _bounded(low[j]))
                worst = _bounded(high[j])
                upper[r, j] = worst if c == 0 else max(upper[r, j], worst)
    return lower, upper


@inner_kernel
def _bounded(value: int) -> int:
    """Return the value, with what stands for an infinity put back to it."""
    if value > INF // 2:
        return INF
    if value < -(INF // 2):
        return -INF
    return value


@kernel
def tropical_level(
    pool: IntArray,
    begins: IntArray,
    starts: IntArray,
    first: IntArray,
    goal: IntArray,
    weight: IntArray,
    eps_first: IntArray,
    eps_goal: IntArray,
    eps_weight: IntArray,
    lower: IntArray,
    upper: IntArray,
    classes: int,
    limit: int,
) -> tuple[int, IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Return the next level: number of states, pool, begins, starts; and target and cost (S, C).

    Parameters
    ----------
    pool, begins, starts : (cells,), (S + 1,), (S,)
        The cells of state s from column starts[s] on are pool[begins[s] : begins[s + 1]], the
        others are infinite.
    lower, upper : (2, K)
        Bounds before and after the symbol.
    limit : int
        Stop with an empty result when there are more states.
    """
    states, size = len(starts), lower.shape[1]
    target = np.full((states, classes), -1, np.int64)
    cost = np.zeros((states, classes), np.int64)
    found = np.empty(2 * len(pool) + 16 * size, np.int64)
    ends, columns = np.zeros(2 * states + 16, np.int64), np.empty(2 * states + 16, np.int64)
    hashes = np.empty(len(ends), np.int64)
    slots = np.full(_power_of_two(4 * len(ends)), -1, np.int32)
    before, cells = np.full(size, INF), np.full(size, INF)
    live, implied = np.empty(size, np.int64), np.full(size, INF)
    count = 0
    for s in range(states):
        row = pool[begins[s] : begins[s + 1]]
        number = _opened(row, starts[s], eps_first, eps_goal, eps_weight, lower[0], upper[0],
                         before, live)  # fmt: skip
        for c in range(classes):
            start, stop = size, 0
            for i in range(number):
                j = live[i]
                for a in range(first[c * size + j], first[c * size + j + 1]):
                    k = goal[a]
                    cells[k] = min(cells[k], before[j] + weight[a])
                    start, stop = min(start, k), max(stop, k + 1)
            offset, start, stop = tropical_form(cells, start, stop, eps_first, eps_goal, eps_weight,
                                                lower[1], upper[1], implied)  # fmt: skip
            if offset < INF:
                cost[s, c] = offset
                hashed = _hash(cells, start, stop)
                place = _place(slots, hashes, columns, ends, found, cells, hashed, start, stop)
                if slots[place] < 0:
                    slots[place] = count
                    hashes[count], columns[count] = hashed, start
                    end = ends[count]
                    for j in range(start, stop):
                        found[end + j - start] = cells[j]
                    count += 1
                    ends[count] = end + stop - start
                target[s, c] = slots[place]
                if count > limit:
                    return count, found[:0], ends[:0], columns[:0], target, cost
                if ends[count] + size > len(found):
                    found = _longer(found)
                if count + 1 == len(ends):
                    ends, columns, hashes = _longer(ends), _longer(columns), _longer(hashes)
                    slots = _rehashed(hashes, count, 4 * len(ends))
            for j in range(start, stop):
                cells[j] = INF
        for i in range(number):
            before[live[i]] = INF
    cells_used = ends[count]
    return (count, found[:cells_used].copy(), ends[: count + 1].copy(), columns[:count].copy(),
            target, cost)  # fmt: skip


@inner_kernel
def _opened(
    row: IntArray,
    start: int,
    eps_first: IntArray,
    eps_goal: IntArray,
    eps_weight: IntArray,
    lower: IntArray,
    upper: IntArray,
    before: IntArray,
    live: IntArray,
) -> int:
    """Write a row closed under epsilons into `before`, and which of its cells can win into `live`.

    Both are in order; `before` is infinite where it comes in.  Returns the number of cells.
    """
    bound = INF // 2
    stop = start + len(row)
    for j in range(start, stop):
        before[j] = row[j - start]
        bound = min(bound, before[j] + upper[j])
    number, j = 0, start
    while j < stop:
        if before[j] + lower[j] <= bound:
            live[number] = j
            number += 1
            for e in range(eps_first[j], eps_first[j + 1]):
                k = eps_goal[e]
                before[k] = min(before[k], before[j] + eps_weight[e])
                stop = max(stop, k + 1)
        else:
            before[j] = INF
        j += 1
    return number


@inner_kernel
def tropical_form(
    cells: IntArray,
    start: int,
    stop: int,
    eps_first: IntArray,
    eps_goal: IntArray,
    eps_weight: IntArray,
    lower: IntArray,
    upper: IntArray,
    implied: IntArray,
) -> tuple[int, int, int]:
    """Bring cells[start : stop] to canonical form in place.

    Dropped are the cells that cannot be on the cheapest path, and those that another cell implies
    by epsilons.

    Returns
    -------
    What was subtracted, INF if no cell is left, and the bounds of the cells that are left.
    `implied` (K,) is workspace, infinite where it comes in and goes out.
    """
    bound = INF // 2
    for j in range(start, stop):
        bound = min(bound, cells[j] + upper[j])
    offset, low, high, has_best = INF, stop, start, False
    for j in range(start, stop):
        cell, way = cells[j], implied[j]
        if way < INF:
            implied[j] = INF
        if cell < way:
            is_best = not has_best and cell + upper[j] == bound
            if is_best or cell + lower[j] < bound:
                has_best = has_best or is_best
                way = cell
                offset, high = min(offset, cell), j + 1
                low = min(low, j)
            else:
                cells[j] = INF
        else:
            cells[j] = INF
        if way + lower[j] < bound:
            for e in range(eps_first[j], eps_first[j + 1]):
                k = eps_goal[e]
                if k < stop:
                    implied[k] = min(implied[k], way + eps_weight[e])
    for j in range(low, high):
        if cells[j] < INF:
            cells[j] -= offset
    return offset, low, high


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
    found = np.empty((2 * states + 16, size), np.float64)
    keys = np.empty((2 * states + 16) * size, np.int64)
    columns, ends = np.zeros(len(found), np.int64), np.arange(len(found) + 1) * size
    hashes = np.empty(len(found), np.int64)
    slots = np.full(_power_of_two(4 * len(found)), -1, np.int32)
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
            hashed = _hash(key, 0, size)
            place = _place(slots, hashes, columns, ends, keys, key, hashed, 0, size)
            if slots[place] < 0:
                slots[place] = count
                hashes[count] = hashed
                for j in range(size):
                    found[count, j] = cells[j]
                    keys[count * size + j] = key[j]
                count += 1
            target[s, c] = slots[place]
            if count > limit:
                return count, found[:0], target
            if count == len(found):
                found, keys, hashes = _grown(found), _longer(keys), _longer(hashes)
                columns, ends = np.zeros(len(found), np.int64), np.arange(len(found) + 1) * size
                slots = _rehashed(hashes, count, 4 * len(found))
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
    rows = np.empty((states, 2 * classes), np.int64)
    columns, ends = np.zeros(states, np.int64), np.arange(states + 1) * (2 * classes)
    hashes = np.empty(states, np.int64)
    slots = np.full(_power_of_two(2 * states + 1), -1, np.int32)
    own_number, own_potential = np.full(states, -1, np.int64), np.zeros(states, np.int64)
    cells = np.empty(2 * classes, np.int64)
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
        hashed = _hash(cells, 0, 2 * classes)
        place = _place(slots, hashes, columns, ends, rows.ravel(), cells, hashed, 0, 2 * classes)
        if slots[place] < 0:
            slots[place] = count
            hashes[count] = hashed
            for j in range(2 * classes):
                rows[count, j] = cells[j]
            count += 1
        own_number[s] = slots[place]
    return (
        rows[:count, :classes].copy(),
        rows[:count, classes:].copy(),
        own_number,
        own_potential,
    )


@inner_kernel
def _hash(cells: IntArray, start: int, stop: int) -> int:
    """Return a 64-bit hash of cells[start : stop] and of where they stand."""
    value = np.int64(-3750763034362895579) + np.int64(start) * np.int64(0x2545F4914F6CDD1D)
    for j in range(start, stop):
        value = (value ^ cells[j]) * np.int64(1099511628211 * 2 + 0x9E3779B1 * 2 + 1)
        value ^= (value >> 29) & 0x7FFFFFFFF
    return value


@inner_kernel
def _place(
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


@kernel
def _power_of_two(least: int) -> int:
    size = 16
    while size < least:
        size *= 2
    return size


@kernel
def _grown(rows: FloatArray) -> FloatArray:
    """Return the rows with as many again behind them."""
    result = np.empty((2 * len(rows), rows.shape[1]))
    result[: len(rows)] = rows
    return result


@kernel
def _longer(values: IntArray) -> IntArray:
    """Return the values with as many again behind them."""
    result = np.empty(2 * len(values), np.int64)
    result[: len(values)] = values
    return result


@kernel
def _rehashed(hashes: IntArray, count: int, least: int) -> npt.NDArray[np.int32]:
    slots = np.full(_power_of_two(least), -1, np.int32)
    for i in range(count):
        place = hashes[i] & (len(slots) - 1)
        while slots[place] >= 0:
            place = (place + 1) & (len(slots) - 1)
        slots[place] = i
    return slots
