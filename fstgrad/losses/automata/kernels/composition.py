"""Compose two transducers: find the pairs of states on a path, and their arcs."""

import numpy as np

from fstgrad.core.checks import BoolArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.kernels.tables import HEAD, hash_cells, lengthen, number_row, rehash

_STATE = HEAD + 3  # of a pool entry: head, two states, whether the right one has moved alone
_ARC = 4


@kernel
def compose(
    left_first: IntArray,
    left_label: IntArray,
    left_nextstate: IntArray,
    left_start: int,
    left_final: BoolArray,
    right_first: IntArray,
    right_label: IntArray,
    right_nextstate: IntArray,
    right_start: int,
    right_final: BoolArray,
) -> tuple[IntArray, IntArray]:
    """Return the states (S, 2), as pairs of states, and the arcs (A, 4) of left o right, trimmed.

    State j of a side has the arcs first[j] .. first[j + 1], sorted by the label that must match the
    other side's (left output, right input); 0 is epsilon.  Arcs of the result are rows (source,
    nextstate, left arc, right arc), with -1 for a side that stays, sorted by source.  State 0 is
    the start; without a path, both results are empty.  Between two matching symbols, the left side
    moves alone before the right side does, so that no path occurs twice (Mohri, Pereira and Riley
    1996).  O(pairs + arcs log arcs of a state).
    """
    state, used = 0, 0
    # no literals: numba would compile the called kernels again for them
    count, begin, end = int(1.0), int(0.0), int(3.0)
    capacity = 64 * count
    pool, arcs = np.zeros(capacity * _STATE, np.int64), empty(256 * _ARC, np.int64)
    pool[1], pool[HEAD], pool[HEAD + 1] = 3, left_start, right_start
    slots, cells = rehash(pool, count * _STATE, capacity), empty(end, np.int64)
    while state < count:
        at = state * _STATE + HEAD
        p, q, has_moved = pool[at], pool[at + 1], pool[at + 2]
        for other in range(right_first[q] - 1, right_first[q + 1]):
            stays = other < right_first[q]
            label = 0 if stays else right_label[other]
            low, high = -1, 0
            if label > 0 or stays:
                low, high = _find_label(left_label, left_first[p], left_first[p + 1], label)
            if stays and has_moved:
                high = low
            while used + (high - low) * _ARC > len(arcs):
                arcs = lengthen(arcs)
            while count + high - low > capacity:
                capacity *= 2
                pool = lengthen(pool)
                slots = rehash(pool, count * _STATE, capacity)
            for own in range(low, high):
                cells[0] = left_nextstate[own] if own >= 0 else p
                cells[1] = q if stays else right_nextstate[other]
                cells[2] = own < 0
                hashed = hash_cells(cells, begin, end)
                used_cells = count * _STATE
                nextstate = number_row(slots, pool, used_cells, count, cells, begin, end, hashed)
                count += nextstate == count
                arcs[used], arcs[used + 1], arcs[used + 2] = state, nextstate, own
                arcs[used + 3] = -1 if stays else other
                used += _ARC
        state += 1
    return _trim(pool, count, arcs, used // _ARC, left_final, right_final)


@inner_kernel
def _find_label(labels: IntArray, start: int, stop: int, label: int) -> tuple[int, int]:
    """Return the range (low, high) of the label in the sorted labels[start : stop]."""
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        if labels[middle] < label:
            low = middle + 1
        else:
            high = middle
    while high < stop and labels[high] == label:
        high += 1
    return low, high


@part_kernel
def _trim(
    pool: IntArray,
    count: int,
    arcs: IntArray,
    num_arcs: int,
    left_final: BoolArray,
    right_final: BoolArray,
) -> tuple[IntArray, IntArray]:
    """Return the states from which an end can be reached, and the arcs between them."""
    number = np.full(count, -1, np.int64)
    first, order = np.zeros(count + 2, np.int64), empty(num_arcs, np.int64)
    for a in range(num_arcs):
        first[arcs[a * _ARC + 1] + 2] += 1
    for s in range(count):
        first[s + 2] += first[s + 1]
    for a in range(num_arcs):
        nextstate = arcs[a * _ARC + 1]
        order[first[nextstate + 1]] = a
        first[nextstate + 1] += 1
    # a state is pushed once, when it gets its number
    stack, depth = empty(count, np.int64), 0
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
    has_path = number[0] == 0
    # kept <= count and rows <= num_arcs: subsets of the states and of the arcs
    states, kept = empty((count, 2), np.int64), 0
    for s in range(count):
        if has_path and number[s] == 0:
            states[kept, 0], states[kept, 1] = pool[s * _STATE + HEAD], pool[s * _STATE + HEAD + 1]
            number[s] = kept
            kept += 1
    result, rows = empty((num_arcs, _ARC), np.int64), 0
    for a in range(num_arcs):
        source, nextstate = number[arcs[a * _ARC]], number[arcs[a * _ARC + 1]]
        if has_path and source >= 0 and nextstate >= 0:
            result[rows, 0], result[rows, 1] = source, nextstate
            result[rows, 2], result[rows, 3] = arcs[a * _ARC + 2], arcs[a * _ARC + 3]
            rows += 1
    return states[:kept], result[:rows]
