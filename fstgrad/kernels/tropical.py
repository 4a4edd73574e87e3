"""Determinization in the tropical semiring, one level: advance, canonical form, merge.

Arcs of M stand in arrays by class and source: those of class c from state j of K are first[c K + j]
.. first[c K + j + 1]; epsilon arcs by source, and they lead to higher states.  A row holds the
weights of M's states for one state of the result.  The twins in numpy are in `fstgrad.determinize`.
"""

import numpy as np

from fstgrad.checks import IntArray
from fstgrad.kernels.compiler import inner_kernel, kernel
from fstgrad.kernels.tables import hashed_cells, longer, power_of_two, rehashed, slot_of

INF = 2**60  # as in fstgrad.semiring


@kernel
def bounds(
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


@kernel
def policy(
    classes: int,
    first: IntArray,
    goal: IntArray,
    weight: IntArray,
    eps_first: IntArray,
    eps_goal: IntArray,
    eps_weight: IntArray,
    upper: IntArray,
) -> tuple[IntArray, IntArray]:
    """Return (to, cost), each (l, K, C): one way of reading each class from each state of M.

    The way that is best by the upper bounds (l + 1, K) with r symbols left after it; -1 where there
    is none.  Any way costs a string at least its loss.
    """
    length, size = len(upper) - 1, upper.shape[1]
    to = np.full((length, size, classes), -1, np.int64)
    cost = np.zeros((length, size, classes), np.int64)
    for r in range(length):
        for j in range(size - 1, -1, -1):
            for c in range(classes):
                bound = INF // 2
                for a in range(first[c * size + j], first[c * size + j + 1]):
                    if weight[a] + upper[r, goal[a]] < bound:
                        bound = weight[a] + upper[r, goal[a]]
                        to[r, j, c], cost[r, j, c] = goal[a], weight[a]
                for e in range(eps_first[j], eps_first[j + 1]):
                    k = eps_goal[e]
                    way = eps_weight[e] + cost[r, k, c]
                    if to[r, k, c] >= 0 and way + upper[r, to[r, k, c]] < bound:
                        bound = way + upper[r, to[r, k, c]]
                        to[r, j, c], cost[r, j, c] = to[r, k, c], way
    return to, cost


@kernel
def advanced(
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
    cap_cell: int,
    limit: int,
) -> tuple[int, IntArray, IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Return the next level: number of states, pool, begins, starts; target, cost and fall (S, C).

    Parameters
    ----------
    pool, begins, starts : (cells,), (S + 1,), (S,)
        The cells of state s from column starts[s] on are pool[begins[s] : begins[s + 1]], the
        others are infinite.
    lower, upper : (2, K)
        Bounds before and after the symbol.
    cap_cell : int
        The state of M that holds the cap, or -1.  Where nothing but the cap is left of a row, the
        `fall` of the arc is the cell that led on most cheaply, or -2 without one, and the `cost` is
        the weight that it had; elsewhere `fall` is -1.
    limit : int
        Stop with an empty result when there are more states.
    """
    states, size = len(starts), lower.shape[1]
    target = np.full((states, classes), -1, np.int64)
    cost, fall = np.zeros((states, classes), np.int64), np.full((states, classes), -1, np.int64)
    found = np.empty(2 * len(pool) + 16 * size, np.int64)
    ends, columns = np.zeros(2 * states + 16, np.int64), np.empty(2 * states + 16, np.int64)
    hashes = np.empty(len(ends), np.int64)
    slots = np.full(power_of_two(4 * len(ends)), -1, np.int32)
    before, cells = np.full(size, INF), np.full(size, INF)
    live, implied = np.empty(size, np.int64), np.full(size, INF)
    count = 0
    for s in range(states):
        row = pool[begins[s] : begins[s + 1]]
        number = _opened(row, starts[s], eps_first, eps_goal, eps_weight, lower[0], upper[0],
                         before, live)  # fmt: skip
        for c in range(classes):
            start, stop = _moved(before, live[:number], first, goal, weight, c * size, cells)
            saved = _cheapest(cells, start, stop, upper[1], cap_cell)
            saved_cost = cells[saved]
            offset, start, stop = canonical(cells, start, stop, eps_first, eps_goal, eps_weight,
                                                lower[1], upper[1], implied)  # fmt: skip
            if offset < INF:
                cost[s, c] = offset
                was_cap = number == 1 and live[0] == cap_cell
                if start == cap_cell and stop == start + 1 and not was_cap:
                    fall[s, c] = saved
                    cost[s, c] = saved_cost if saved >= 0 else offset
                hashed = hashed_cells(cells, start, stop)
                place = slot_of(slots, hashes, columns, ends, found, cells, hashed, start, stop)
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
                    return count, found[:0], ends[:0], columns[:0], target, cost, fall
                if ends[count] + size > len(found):
                    found = longer(found)
                if count + 1 == len(ends):
                    ends, columns, hashes = longer(ends), longer(columns), longer(hashes)
                    slots = rehashed(hashes, count, 4 * len(ends))
            for j in range(start, stop):
                cells[j] = INF
        for i in range(number):
            before[live[i]] = INF
    cells_used = ends[count]
    return (count, found[:cells_used].copy(), ends[: count + 1].copy(), columns[:count].copy(),
            target, cost, fall)  # fmt: skip


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
def _moved(
    before: IntArray,
    live: IntArray,
    first: IntArray,
    goal: IntArray,
    weight: IntArray,
    group: int,
    cells: IntArray,
) -> tuple[int, int]:
    """Push the live cells through the arcs of a class; return the bounds of what they reach."""
    start, stop = len(cells), 0
    for j in live:
        for a in range(first[group + j], first[group + j + 1]):
            k = goal[a]
            cells[k] = min(cells[k], before[j] + weight[a])
            start, stop = min(start, k), max(stop, k + 1)
    return start, stop


@inner_kernel
def _cheapest(cells: IntArray, start: int, stop: int, upper: IntArray, cap_cell: int) -> int:
    """Return the cell besides the cap with the least bound of its total cost, -2 without one."""
    best, bound = -2, INF // 2
    if cap_cell >= 0:
        for j in range(start, stop):
            if j != cap_cell and cells[j] + upper[j] < bound:
                best, bound = j, cells[j] + upper[j]
    return best


@inner_kernel
def canonical(
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


@inner_kernel
def _bounded(value: int) -> int:
    """Return the value, with what stands for an infinity put back to it."""
    if value > INF // 2:
        return INF
    if value < -(INF // 2):
        return -INF
    return value
