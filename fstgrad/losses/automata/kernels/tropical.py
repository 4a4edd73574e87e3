"""Determinize one level in the tropical semiring, and minimize one level of B.

Rows are advanced, made canonical and merged.  A row holds the weights of M's K states (cells) for
one state of the result.  `tests/oracles/determinization.py` defines the same in numpy.
"""

import numpy as np

from fstgrad.core.checks import BoolArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel, shared_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.kernels.arguments import ClassArcs, MachineArcs
from fstgrad.losses.automata.kernels.tables import (
    HEAD,
    SPAN,
    hash_cells,
    lengthen,
    new_slots,
    number_row,
    rehash,
)
from fstgrad.losses.automata.semiring import INF


@kernel
def bounds(arcs: MachineArcs, final: IntArray, barred: BoolArray) -> tuple[IntArray, IntArray]:
    """Return lower and upper bounds (l + 1, K) of the cost to go with r symbols left, over all y.

        lower[r, j] = min_c min_k d_c(j, k) + lower[r - 1, k]
        upper[r, j] = max_c min_k d_c(j, k) + upper[r - 1, k]

    d_c(j, k) is the least cost of epsilon arcs from j, then an arc of class c to k.  For r = 0 both
    bounds are final[j].  The lower bound is exact.  Both are INF for states that are `barred`
    (l + 1, K) with r symbols left, so that determinization drops these cells.
    """
    first, nextstate, weight, eps_first, eps_nextstate, eps_weight = arcs
    length, size = len(barred) - 1, len(final)
    classes = (len(first) - 1) // size
    lower = np.full((length + 1, size), INF, np.int64)
    upper = np.zeros((length + 1, size), np.int64)
    for j in range(size):
        end = INF if barred[0, j] else final[j]
        lower[0, j], upper[0, j] = end, end
    low, high = empty(size, np.int64), empty(size, np.int64)
    for r in range(1, length + 1):
        for c in range(classes):
            for j in range(size - 1, -1, -1):
                low[j], high[j] = INF, INF
                if barred[r, j]:
                    upper[r, j] = INF
                    continue
                for a in range(first[c * size + j], first[c * size + j + 1]):
                    low[j] = min(low[j], weight[a] + lower[r - 1, nextstate[a]])
                    high[j] = min(high[j], weight[a] + upper[r - 1, nextstate[a]])
                for e in range(eps_first[j], eps_first[j + 1]):
                    low[j] = min(low[j], eps_weight[e] + low[eps_nextstate[e]])
                    high[j] = min(high[j], eps_weight[e] + high[eps_nextstate[e]])
                lower[r, j] = min(lower[r, j], saturate(low[j]))
                worst = saturate(high[j])
                upper[r, j] = worst if c == 0 else max(upper[r, j], worst)
    return lower, upper


@kernel
def policy(arcs: MachineArcs, upper: IntArray) -> tuple[IntArray, IntArray]:
    """Return (to, cost), each (l, K, C): one way to read each class from each state of M.

        to[r, j, c] = argmin_k d_c(j, k) + upper[r, k],  -1 if there is no way
        cost[r, j, c] = d_c(j, to[r, j, c])

    d_c and `upper` (l + 1, K) are those of `bounds`; r symbols are left after the step.  Any policy
    costs a string at least its loss.
    """
    first, nextstate, weight, eps_first, eps_nextstate, eps_weight = arcs
    length, size = len(upper) - 1, upper.shape[1]
    classes = (len(first) - 1) // size
    to = np.full((length, size, classes), -1, np.int64)
    cost = np.zeros((length, size, classes), np.int64)
    for r in range(length):
        for j in range(size - 1, -1, -1):
            for c in range(classes):
                bound = INF // 2
                for a in range(first[c * size + j], first[c * size + j + 1]):
                    if weight[a] + upper[r, nextstate[a]] < bound:
                        bound = weight[a] + upper[r, nextstate[a]]
                        to[r, j, c], cost[r, j, c] = nextstate[a], weight[a]
                for e in range(eps_first[j], eps_first[j + 1]):
                    k = eps_nextstate[e]
                    way = eps_weight[e] + cost[r, k, c]
                    if to[r, k, c] >= 0 and way + upper[r, to[r, k, c]] < bound:
                        bound = way + upper[r, to[r, k, c]]
                        to[r, j, c], cost[r, j, c] = to[r, k, c], way
    return to, cost


@kernel
def arc_kinds(arcs: ClassArcs, size: int) -> IntArray:
    """Return (C, K): the first class that has the arcs of class c from state j."""
    first, nextstate, weight = arcs
    classes = (len(first) - 1) // size
    kinds = empty((classes, size), np.int64)
    for j in range(size):
        for c in range(classes):
            begin, count = first[c * size + j], first[c * size + j + 1] - first[c * size + j]
            kinds[c, j] = c
            for d in range(c):
                other = first[d * size + j]
                equal = kinds[d, j] == d and first[d * size + j + 1] - other == count
                a = 0
                while equal and a < count:
                    equal = nextstate[begin + a] == nextstate[other + a]
                    equal = equal and weight[begin + a] == weight[other + a]
                    a += 1
                if equal:
                    kinds[c, j] = d
                    break
    return kinds


@inner_kernel
def _twin(kinds: IntArray, c: int, live: IntArray) -> int:
    """Return the first class whose arcs from all live cells are those of class `c`."""
    for d in range(c):
        equal = True
        for j in live:
            if kinds[c, j] != kinds[d, j]:
                equal = False
                break
        if equal:
            return d
    return c


@kernel
def determinize_level(
    pool: IntArray,
    states: int,
    kinds: IntArray,
    arcs: MachineArcs,
    lower: IntArray,
    upper: IntArray,
    remaining: int,
    cap_cell: int,
    limit: int,
    room: int,
) -> tuple[int, int, IntArray, IntArray, IntArray, IntArray]:
    """Return the next level: (states, cells needed, pool) and (nextstate, cost, fall), each (S, C).

    Parameters
    ----------
    pool, states
        The rows of the level as in `fstgrad.losses.automata.kernels.tables`, and their number.
    kinds : (C, K)
        As `arc_kinds` returns it.
    lower, upper : (l + 1, K)
        Bounds by the number of symbols left.
    remaining : int
        Number of symbols left after this one.
    cap_cell : int
        The state of M that holds the cap, or -1.  If only the cap is left of a row, but not of the
        row before, the `fall` of the arc is the other cell with the least upper bound, and `cost`
        is its weight; without such a cell, `fall` is -2.  Elsewhere `fall` is -1.
    limit : int
        Stop after a state that brings the level above this number of states.
    room : int
        Number of cells that rows may use.  If more are needed, the kernel stops before it allocates
        them and returns their number; otherwise the number of cells needed is 0.
    """
    classes, size = kinds.shape
    ends = np.full((states, classes), -1, np.int64)
    cost, fall = np.zeros((states, classes), np.int64), np.full((states, classes), -1, np.int64)
    found = empty(2 * len(pool) + 2 * classes * (size + HEAD), np.int64)
    capacity, slots = 2 * (states + classes), new_slots(2 * (states + classes))
    before, implied = np.full(size, INF, np.int64), np.full(size, INF, np.int64)
    cells = np.full((classes, size), INF, np.int64)
    starts, stops = empty(classes, np.int64), empty(classes, np.int64)
    hashes, live = np.zeros(classes, np.int64), empty(size, np.int64)
    twin = empty(classes, np.int64)
    count, used, at = int(0.0), int(0.0), 0  # a literal 0 would be of another type
    for s in range(states):
        start, stop = pool[at + 1] // SPAN, pool[at + 1] % SPAN
        row = pool[at + HEAD : at + HEAD + stop - start]
        at += HEAD + stop - start
        number = _open(row, start, arcs, lower[remaining + 1], upper[remaining + 1], before, live)
        was_cap = number == 1 and live[0] == cap_cell
        for c in range(classes):
            twin[c] = _twin(kinds, c, live[:number])
            if twin[c] < c:
                continue
            start, stop = _move(before, live[:number], arcs, c * size, cells[c])
            saved = _cheapest(cells[c], start, stop, upper[remaining], cap_cell)
            saved_cost = cells[c, saved] if saved >= 0 else 0  # a row of one cell has no cell -2
            cost[s, c], starts[c], stops[c] = canonical(
                cells[c], start, stop, arcs, lower[remaining], upper[remaining], implied
            )
            if starts[c] == cap_cell and stops[c] == cap_cell + 1 and not was_cap:
                fall[s, c] = saved
                if saved >= 0:
                    cost[s, c] = saved_cost
            hashes[c] = hash_cells(cells[c], starts[c], stops[c])
        _touch(slots, found, hashes)
        for c in range(classes):
            if twin[c] < c:
                ends[s, c], cost[s, c] = ends[s, twin[c]], cost[s, twin[c]]
                fall[s, c] = fall[s, twin[c]]
                continue
            if starts[c] < stops[c]:
                ends[s, c] = number_row(slots, found, used, count, cells[c], starts[c], stops[c],
                                      hashes[c])  # fmt: skip
                if ends[s, c] == count:
                    count += 1
                    used += HEAD + stops[c] - starts[c]
            else:
                cost[s, c] = 0
            cells[c, starts[c] : stops[c]] = INF
        for i in range(number):
            before[live[i]] = INF
        if count > limit:
            break
        if used + classes * (size + HEAD) > len(found):
            if 3 * len(found) > room:  # the old pool and one of twice its size
                return count, 3 * len(found), found, ends, cost, fall
            found = lengthen(found)
        if count + classes > capacity:
            capacity *= 2
            slots = rehash(found, used, capacity)
    return count, 0, found[:used], ends, cost, fall


@inner_kernel
def _touch(slots: IntArray, pool: IntArray, hashes: IntArray) -> int:
    """Read ahead the memory that the lookups will need, so that the fetches overlap."""
    total = 0
    for hashed in hashes:
        slot = slots[hashed & (len(slots) - 1)]
        total += pool[slot & 0xFFFFFFFF] if slot >= 0 else 0
    return total


@inner_kernel
def _open(
    row: IntArray,
    start: int,
    arcs: MachineArcs,
    lower: IntArray,
    upper: IntArray,
    before: IntArray,
    live: IntArray,
) -> int:
    """Write a row, closed under epsilon arcs, to `before`, and the cells that can win to `live`.

    `live` is ascending; `before` is INF everywhere on entry.  Return the number of live cells.
    """
    eps_first, eps_nextstate, eps_weight = arcs.eps_first, arcs.eps_nextstate, arcs.eps_weight
    bound = INF // 2
    stop = start + len(row)
    for j in range(start, stop):
        before[j] = row[j - start]
        bound = min(bound, before[j] + upper[j])
    # number <= stop - start <= len(live): each cell is visited once
    number, j = 0, start
    while j < stop:
        if before[j] + lower[j] <= bound:
            live[number] = j
            number += 1
            for e in range(eps_first[j], eps_first[j + 1]):
                k = eps_nextstate[e]
                before[k] = min(before[k], before[j] + eps_weight[e])
                stop = max(stop, k + 1)
        else:
            before[j] = INF
        j += 1
    return number


@inner_kernel
def _move(
    before: IntArray, live: IntArray, arcs: MachineArcs, group: int, cells: IntArray
) -> tuple[int, int]:
    """Advance the live cells along the arcs of a class; return the range of cells reached."""
    first, nextstate, weight = arcs.first, arcs.nextstate, arcs.weight
    start, stop = len(cells), 0
    for j in live:
        for a in range(first[group + j], first[group + j + 1]):
            k = nextstate[a]
            cells[k] = min(cells[k], before[j] + weight[a])
            start, stop = min(start, k), max(stop, k + 1)
    return start, stop


@inner_kernel
def _cheapest(cells: IntArray, start: int, stop: int, upper: IntArray, cap_cell: int) -> int:
    """Return the cell with the least upper bound of the total cost, not the cap; -2 if none."""
    best, bound = -2, INF // 2
    if cap_cell >= 0:
        for j in range(start, stop):
            if j != cap_cell and cells[j] + upper[j] < bound:
                best, bound = j, cells[j] + upper[j]
    return best


@shared_kernel
def canonical(
    cells: IntArray,
    start: int,
    stop: int,
    arcs: MachineArcs,
    lower: IntArray,
    upper: IntArray,
    implied: IntArray,
) -> tuple[int, int, int]:
    """Bring cells[start : stop] to canonical form in place.

    Cell j is dropped (set to INF) if cells[j] + lower[j] >= min_k (cells[k] + upper[k]), unless it
    is the first to attain the minimum, or if epsilon arcs from another cell imply its weight.  The
    least remaining weight is then subtracted from all cells.

    Returns
    -------
    The weight subtracted, INF if no cell is left, then the first and the end of the range left.
    `implied` (K,) is workspace: INF everywhere on entry and on return.
    """
    eps_first, eps_nextstate, eps_weight = arcs.eps_first, arcs.eps_nextstate, arcs.eps_weight
    bound = INF // 2
    for j in range(start, stop):
        bound = min(bound, cells[j] + upper[j])
    offset, low, high, has_best = INF, stop, min(start, stop), False
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
                k = eps_nextstate[e]
                if k < stop:
                    implied[k] = min(implied[k], way + eps_weight[e])
    for j in range(low, high):
        if cells[j] < INF:
            cells[j] -= offset
    return offset, low, high


@inner_kernel
def saturate(value: int) -> int:
    """Return the value, or INF or -INF if it is beyond half of that."""
    if value > INF // 2:
        return INF
    if value < -(INF // 2):
        return -INF
    return value


@kernel
def merge_level(
    nextstate: IntArray, cost: IntArray, number: IntArray, potential: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return (nextstate, cost, number, potential) of a level after merging its equal states.

    `number` is the new number of each state, -1 if no arc is left; `potential` is the cost of its
    cheapest completion.  As arguments, both are those of the next level, and as results (') those
    of this level.  Costs are pushed towards the start:

        potential'[s] = min_c cost[s, c] + potential[nextstate[s, c]]
        cost'[s, c] = cost[s, c] + potential[nextstate[s, c]] - potential'[s]
    """
    states, classes = nextstate.shape
    width = 2 * classes
    pool = empty(states * (width + HEAD) + HEAD, np.int64)
    slots = new_slots(states)
    own_number, own_potential = np.full(states, -1, np.int64), np.zeros(states, np.int64)
    cells = empty(width, np.int64)
    begin = count = int(0.0)  # a literal 0 would be of another type
    for s in range(states):
        least = INF
        for c in range(classes):
            to = nextstate[s, c]
            cells[c] = number[to] if to >= 0 else -1
            if cells[c] >= 0:
                cells[classes + c] = cost[s, c] + potential[to]
                least = min(least, cells[classes + c])
        if least == INF:
            continue
        for c in range(classes):
            cells[classes + c] = cells[classes + c] - least if cells[c] >= 0 else 0
        own_potential[s] = least
        hashed = hash_cells(cells, begin, width)
        used = count * (width + HEAD)
        own_number[s] = number_row(slots, pool, used, count, cells, begin, width, hashed)
        count += own_number[s] == count
    merged_nextstate = empty((count, classes), np.int64)
    merged_cost = empty((count, classes), np.int64)
    for s in range(count):
        at = s * (width + HEAD) + HEAD
        for c in range(classes):
            merged_nextstate[s, c], merged_cost[s, c] = pool[at + c], pool[at + classes + c]
    return merged_nextstate, merged_cost, own_number, own_potential
