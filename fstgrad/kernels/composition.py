"""Composition of two transducers: the pairs of states that lie on a path, and the arcs of both."""

import numpy as np

from fstgrad.checks import BoolArray, IntArray
from fstgrad.kernels.compiler import inner_kernel, kernel
from fstgrad.kernels.tables import HEAD, hashed_cells, longer, new_slots, numbered, rehashed

_STATE = HEAD + 3  # a pair of states and whether the right one has moved alone, in the pool
_ARC = 4


@kernel
def composed(
    left_first: IntArray,
    left_label: IntArray,
    left_goal: IntArray,
    left_start: int,
    left_final: BoolArray,
    right_first: IntArray,
    right_label: IntArray,
    right_goal: IntArray,
    right_start: int,
    right_final: BoolArray,
) -> tuple[IntArray, IntArray]:
    """Return the states (S, 2), pairs of states, and the arcs (A, 4) of left o right, trimmed.

    Arcs of a side leave state j from first[j] to first[j + 1], sorted by the label that meets the
    other side's; 0 is epsilon.  A row of the result is (source, target, left arc, right arc), -1
    for a side that stays, sorted by source; the start is state 0, and nothing is left where no path
    is.  Between two symbols that meet, the left side moves alone before the right one does, so that
    no path is there twice (Mohri, Pereira and Riley 1996).  O(pairs + arcs log arcs of a state).
    """
    slots, capacity = new_slots(64), 64
    pool, arcs = np.empty(capacity * _STATE, np.int64), np.empty(256 * _ARC, np.int64)
    cells = np.zeros(3, np.int64)
    cells[0], cells[1] = left_start, right_start
    numbered(slots, pool, 0, 0, cells, 0, 3, hashed_cells(cells, 0, 3))
    count, state, used = 1, 0, 0
    while state < count:
        p, q = pool[state * _STATE + HEAD], pool[state * _STATE + HEAD + 1]
        moved = pool[state * _STATE + HEAD + 2]
        left_stop, right_stop = left_first[p + 1], right_first[q + 1]
        fan = _fan(left_label[left_first[p] : left_stop], right_label[right_first[q] : right_stop])
        while used + fan * _ARC > len(arcs):
            arcs = longer(arcs)
        while (count + fan) * _STATE > len(pool):
            pool = longer(pool)
        while count + fan > capacity:
            capacity *= 2
            slots = rehashed(pool, count * _STATE, capacity)
        a, b = left_first[p], right_first[q]
        while a < left_stop and left_label[a] == 0:
            if moved == 0:
                cells[0], cells[1], cells[2] = left_goal[a], q, 0
                count, used = _arc(slots, pool, count, arcs, used, cells, state, a, -1)
            a += 1
        while b < right_stop and right_label[b] == 0:
            cells[0], cells[1], cells[2] = p, right_goal[b], 1
            count, used = _arc(slots, pool, count, arcs, used, cells, state, -1, b)
            b += 1
        for meeting in range(b, right_stop):
            label = right_label[meeting]
            own = a + np.searchsorted(left_label[a:left_stop], label)
            while own < left_stop and left_label[own] == label:
                cells[0], cells[1], cells[2] = left_goal[own], right_goal[meeting], 0
                count, used = _arc(slots, pool, count, arcs, used, cells, state, own, meeting)
                own += 1
        state += 1
    return _trimmed(pool, count, arcs[:used], left_final, right_final)


@inner_kernel
def _fan(left: IntArray, right: IntArray) -> int:
    """Return how many arcs may leave a pair of states with these labels on theirs."""
    fan = np.searchsorted(left, 1)
    for label in right:
        if label == 0:
            fan += 1
        else:
            fan += np.searchsorted(left, label + 1) - np.searchsorted(left, label)
    return int(fan)


@inner_kernel
def _arc(
    slots: IntArray,
    pool: IntArray,
    count: int,
    arcs: IntArray,
    used: int,
    cells: IntArray,
    source: int,
    left: int,
    right: int,
) -> tuple[int, int]:
    """Write an arc to the pair in `cells`, which may be new; return the counts after it."""
    hashed = hashed_cells(cells, 0, 3)
    target = numbered(slots, pool, count * _STATE, count, cells, 0, 3, hashed)
    arcs[used], arcs[used + 1], arcs[used + 2], arcs[used + 3] = source, target, left, right
    return count + (target == count), used + _ARC


@inner_kernel
def _trimmed(
    pool: IntArray, count: int, arcs: IntArray, left_final: BoolArray, right_final: BoolArray
) -> tuple[IntArray, IntArray]:
    """Return the states from which an end can be reached, and the arcs between them."""
    number = np.full(count, -1, np.int64)
    first, order = np.zeros(count + 2, np.int64), np.empty(len(arcs) // _ARC, np.int64)
    for a in range(len(order)):
        first[arcs[a * _ARC + 1] + 2] += 1
    for s in range(count):
        first[s + 2] += first[s + 1]
    for a in range(len(order)):
        goal = arcs[a * _ARC + 1]
        order[first[goal + 1]] = a
        first[goal + 1] += 1
    stack, depth = np.empty(count, np.int64), 0
    for s in range(count):
        if left_final[pool[s * _STATE + HEAD]] and right_final[pool[s * _STATE + HEAD + 1]]:
            number[s], stack[depth] = 0, s
            depth += 1
    while depth > 0:
        depth -= 1
        s = stack[depth]
        for i in range(first[s], first[s + 1]):
            source = arcs[order[i] * _ARC]
            if number[source] < 0:
                number[source], stack[depth] = 0, source
                depth += 1
    states, kept = np.empty((count, 2), np.int64), 0
    if number[0] < 0:
        return states[:0], np.empty((0, _ARC), np.int64)
    for s in range(count):
        if number[s] == 0:
            states[kept, 0], states[kept, 1] = pool[s * _STATE + HEAD], pool[s * _STATE + HEAD + 1]
            number[s] = kept
            kept += 1
    result, rows = np.empty((len(order), _ARC), np.int64), 0
    for a in range(len(order)):
        source, target = number[arcs[a * _ARC]], number[arcs[a * _ARC + 1]]
        if source >= 0 and target >= 0:
            result[rows, 0], result[rows, 1] = source, target
            result[rows, 2], result[rows, 3] = arcs[a * _ARC + 2], arcs[a * _ARC + 3]
            rows += 1
    return states[:kept], result[:rows]
