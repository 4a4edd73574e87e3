"""Sums and maxima over the alignments of pairs of strings: the loops backward `transducer`.

An alignment of x and y is a path of the transducer that reads x and writes y.  The tables have one
entry per node (i, j, s): i symbols read, j written, in state s.  All weights are logarithms: higher
is likelier, and -inf forbids.  Sums from a node to the end are computed as sums from the start of
the reversed transducer.

Common arguments of the kernels
-------------------------------
- pairs, arcs, silent: see `arrays`.
- weight (A + S,): the log-weights of the arcs, then of ending in each state.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel, part_kernel
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.core.vectors import copy_to
from fstgrad.costs.kernels.arrays import AlignmentArcs, PairLabels, SilentArcs

_NONE = -2  # no path leads to a node
_START = -1


@kernel
def log_sums(
    pairs: PairLabels, arcs: AlignmentArcs, silent: SilentArcs, weight: FloatArray, start: int
) -> FloatArray:
    """Return the log-sum (N,) over the alignments of each pair; -inf if there is none.

    O(sum |x| |y| arcs that read and write the symbols of a node).
    """
    x, x_first, y, y_first = pairs
    arc_count = len(arcs.source)
    states = len(weight) - arc_count
    initial, final = _initial_weights(start, states), weight[arc_count:]
    table, groups = _empty_tables(x_first, y_first, states)
    result = empty(len(x_first) - 1)
    for n in range(len(result)):
        a, b = x[x_first[n] : x_first[n + 1]], y[y_first[n] : y_first[n + 1]]
        lengths = len(a), len(b)
        _arc_groups(a, b, arcs, groups)
        _forward(lengths, groups, arcs, silent, weight, initial, table)
        result[n] = _log_sum_at_end(table[lengths[0], lengths[1]], final)
    return result


@kernel
def expected_counts(
    pairs: PairLabels,
    arcs: AlignmentArcs,
    silent: SilentArcs,
    back_arcs: AlignmentArcs,
    back_silent: SilentArcs,
    weight: FloatArray,
    start: int,
    mass: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the log-sums (N,), and the counts (A + S,) summed over the pairs times mass (N,).

    The count of an event is its expected number in an alignment, with each alignment weighted by
    its share of the sum.  This is the gradient of the log-sum with respect to the weight.  Pairs
    without an alignment have no counts.  `back_arcs` and `back_silent` describe the reversed
    transducer.
    """
    x, x_first, y, y_first = pairs
    arc_count = len(arcs.source)
    states = len(weight) - arc_count
    initial, final = _initial_weights(start, states), weight[arc_count:].copy()
    forward, groups = _empty_tables(x_first, y_first, states)
    backward, back_groups = empty_like(forward), empty_like(groups)
    result, counts = empty(len(x_first) - 1), np.zeros(len(weight))
    for n in range(len(result)):
        a, b = x[x_first[n] : x_first[n + 1]], y[y_first[n] : y_first[n + 1]]
        lengths = len(a), len(b)
        _arc_groups(a, b, arcs, groups)
        _forward(lengths, groups, arcs, silent, weight, initial, forward)
        result[n] = _log_sum_at_end(forward[lengths[0], lengths[1]], final)
        if result[n] > -np.inf and mass[n] != 0:
            _arc_groups(a[::-1].copy(), b[::-1].copy(), arcs, back_groups)
            _forward(lengths, back_groups, back_arcs, back_silent, weight, final, backward)
            share = result[n], mass[n]
            _count(lengths, groups, arcs, weight, forward, backward, share, counts)
    return result, counts


@kernel
def best_counts(
    pairs: PairLabels, arcs: AlignmentArcs, weight: FloatArray, start: int, mass: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the largest weight (N,) of an alignment of each pair, and the counts (A + S,).

    The counts are those of these alignments, times mass (N,).  The weight is NaN if silent arcs
    form a cycle of positive weight.
    """
    x, x_first, y, y_first = pairs
    table, groups = _empty_tables(x_first, y_first, len(weight) - len(arcs.source))
    result, counts = empty(len(x_first) - 1), np.zeros(len(weight))
    parent = empty(table.shape, np.int64)
    for n in range(len(result)):
        a, b = x[x_first[n] : x_first[n + 1]], y[y_first[n] : y_first[n + 1]]
        _arc_groups(a, b, arcs, groups)
        path, result[n] = _best((len(a), len(b)), groups, arcs, weight, start, table, parent)
        for event in path:
            counts[event] += mass[n]
    return result, counts


@kernel
def best_sums(
    pairs: PairLabels, arcs: AlignmentArcs, weight: FloatArray, start: int
) -> tuple[FloatArray, float]:
    """Return the largest weight (|x| + 1, |y| + 1, S) of a path from the start to each node.

    `pairs` is one pair.  Also return the largest weight of a whole alignment, NaN if silent arcs
    form a cycle of positive weight.
    """
    x, x_first, y, y_first = pairs
    table, groups = _empty_tables(x_first, y_first, len(weight) - len(arcs.source))
    _arc_groups(x, y, arcs, groups)
    parent = empty(table.shape, np.int64)
    _, value = _best((len(x), len(y)), groups, arcs, weight, start, table, parent)
    return table, value


@part_kernel
def _empty_tables(x_first: IntArray, y_first: IntArray, states: int) -> tuple[FloatArray, IntArray]:
    """Return empty tables for the nodes of the longest strings: weights, and keys of arcs."""
    longest = np.array([1, 1])
    for n in range(len(x_first) - 1):
        longest[0] = max(longest[0], x_first[n + 1] - x_first[n] + 1)
        longest[1] = max(longest[1], y_first[n + 1] - y_first[n] + 1)
    table = empty((longest[0], longest[1], states))
    return table, empty((longest[0], longest[1], 3), np.int64)


@part_kernel
def _initial_weights(start: int, states: int) -> FloatArray:
    """Return the initial log-weights (S,): 0 for `start`, -inf for other states."""
    initial = np.full(states, -np.inf)  # 0 <= start < states: PairTransducer checks it
    initial[start] = 0.0
    return initial


@inner_kernel
def _log_add(a: float, b: float) -> float:
    low, high = min(a, b), max(a, b)
    return high if low == -np.inf else high + np.log1p(np.exp(low - high))


@part_kernel
def _log_sum_at_end(row: FloatArray, final: FloatArray) -> float:
    """Return the log-sum of row + final (S,) over the states."""
    total = -np.inf
    for s in range(len(row)):
        total = _log_add(total, row[s] + final[s])
    return total


@part_kernel
def _arc_groups(x: IntArray, y: IntArray, arcs: AlignmentArcs, groups: IntArray) -> None:
    """Fill groups[i, j, step] with the k of the arcs that lead to nodes (i, j) by this step.

    Step 0 reads x[i - 1] and writes y[j - 1], step 1 reads only, step 2 writes only.  Without arcs,
    k is that of the empty range.
    """
    width, keys = arcs.width, arcs.keys
    for i in range(len(x) + 1):
        for j in range(len(y) + 1):
            for step in range(3):
                groups[i, j, step] = len(keys)
                if (step < 2 and i == 0) or (step != 1 and j == 0):
                    continue
                key = (x[i - 1] * width if step < 2 else 0) + (y[j - 1] if step != 1 else 0)
                low, high = 0, len(keys)
                while low < high:
                    middle = (low + high) // 2
                    if keys[middle] < key:
                        low = middle + 1
                    else:
                        high = middle
                if low < len(keys) and keys[low] == key:
                    groups[i, j, step] = low


@part_kernel
def _forward(
    lengths: tuple[int, int],
    groups: IntArray,
    arcs: AlignmentArcs,
    silent: SilentArcs,
    weight: FloatArray,
    initial: FloatArray,
    table: FloatArray,
) -> None:
    """Fill table[i, j, s] with the log-sum of the paths from the start to each node.

    table[i, j, t] = log sum of exp(table[p, q, s] + weight) over the arcs s -> t that lead from
    (p, q) to (i, j), then closed over silent arcs; exp(initial) is added at (0, 0).
    """
    # Two rounds over the arcs: the largest weight into each state first, so that no exponential
    # overflows.
    states, is_silent = table.shape[2], len(silent.member_first) > 1
    first, source, nextstate = arcs.first, arcs.source, arcs.nextstate
    top, total = empty(states), empty(states)
    for i in range(lengths[0] + 1):
        for j in range(lengths[1] + 1):
            for s in range(states):
                top[s] = initial[s] if i + j == 0 else -np.inf
                total[s] = 1.0 if i + j == 0 else 0.0
            for step in range(3):
                k, p, q = groups[i, j, step], i - (step < 2), j - (step != 1)
                for a in range(first[k], first[k + 1]):
                    value = table[p, q, source[a]] + weight[a]
                    top[nextstate[a]] = max(top[nextstate[a]], value)
            for step in range(3):
                k, p, q = groups[i, j, step], i - (step < 2), j - (step != 1)
                for a in range(first[k], first[k + 1]):
                    value = table[p, q, source[a]] + weight[a]
                    if value > -np.inf:
                        total[nextstate[a]] += np.exp(value - top[nextstate[a]])
            for s in range(states):
                table[i, j, s] = top[s] + np.log(total[s]) if top[s] > -np.inf else -np.inf
            if is_silent:
                _close_over_silent_arcs(table[i, j], arcs, silent, weight)


@part_kernel
def _close_over_silent_arcs(
    row: FloatArray, arcs: AlignmentArcs, silent: SilentArcs, weight: FloatArray
) -> None:
    """Add the weights that reach each state of a node over silent arcs, in place."""
    member_first, members, star_first, push_first, push, stars = silent
    for c in range(len(member_first) - 1):
        begin, size = member_first[c], member_first[c + 1] - member_first[c]
        sums = np.full(size, -np.inf)
        for t in range(size):
            for s in range(size):
                star = stars[star_first[c] + s * size + t]
                sums[t] = _log_add(sums[t], row[members[begin + s]] + star)
        for t in range(size):
            row[members[begin + t]] = sums[t]
        for k in range(push_first[c], push_first[c + 1]):
            s, t = arcs.source[push[k]], arcs.nextstate[push[k]]
            row[t] = _log_add(row[t], row[s] + weight[push[k]])


@part_kernel
def _count(
    lengths: tuple[int, int],
    groups: IntArray,
    arcs: AlignmentArcs,
    weight: FloatArray,
    forward: FloatArray,
    backward: FloatArray,
    share: tuple[float, float],
    counts: FloatArray,
) -> None:
    """Add mass times the expected number of each arc and end to the counts.

    counts[a] += mass exp(forward + weight[a] + backward - log-sum), over all nodes that arc a
    leaves; share = (log-sum, mass).  backward[i, j] are the sums with i symbols left to read and j
    to write.
    """
    keys, first, source, nextstate = arcs.keys, arcs.first, arcs.source, arcs.nextstate
    silent = first[1] if len(keys) and keys[0] == 0 else 0
    for i in range(lengths[0] + 1):
        for j in range(lengths[1] + 1):
            left, right = lengths[0] - i, lengths[1] - j
            for step in range(3):
                k, p, q = groups[i, j, step], i - (step < 2), j - (step != 1)
                for a in range(first[k], first[k + 1]):
                    value = (
                        forward[p, q, source[a]] + weight[a] + backward[left, right, nextstate[a]]
                    )
                    if value > -np.inf:
                        counts[a] += share[1] * np.exp(value - share[0])
            for a in range(silent):
                value = forward[i, j, source[a]] + weight[a] + backward[left, right, nextstate[a]]
                if value > -np.inf:
                    counts[a] += share[1] * np.exp(value - share[0])
    for s in range(forward.shape[2]):
        value = forward[lengths[0], lengths[1], s] + weight[len(source) + s]
        if value > -np.inf:
            counts[len(source) + s] += share[1] * np.exp(value - share[0])


@part_kernel
def _best(
    lengths: tuple[int, int],
    groups: IntArray,
    arcs: AlignmentArcs,
    weight: FloatArray,
    start: int,
    table: FloatArray,
    parent: IntArray,
) -> tuple[IntArray, float]:
    """Return the best alignment (its arcs, then A + its last state; empty if none), its weight."""
    keys, first, source, nextstate = arcs.keys, arcs.first, arcs.source, arcs.nextstate
    states, nothing = table.shape[2], np.zeros(0, np.int64)
    silent = first[1] if len(keys) and keys[0] == 0 else 0
    for i in range(lengths[0] + 1):
        for j in range(lengths[1] + 1):
            for s in range(states):
                is_start = i + j == 0 and s == start
                table[i, j, s] = 0.0 if is_start else -np.inf
                parent[i, j, s] = _START if is_start else _NONE
            for step in range(3):
                k, p, q = groups[i, j, step], i - (step < 2), j - (step != 1)
                for a in range(first[k], first[k + 1]):
                    value = table[p, q, source[a]] + weight[a]
                    if value > table[i, j, nextstate[a]]:
                        table[i, j, nextstate[a]], parent[i, j, nextstate[a]] = value, a
            # Bellman-Ford over the silent arcs: a path without a cycle has fewer arcs than there
            # are states, so a change in a later round shows a cycle of positive weight.
            changed, rounds = silent > 0, 0
            while changed:
                changed, rounds = False, rounds + 1
                if rounds > states + 1:
                    return nothing, np.nan
                for a in range(silent):
                    value = table[i, j, source[a]] + weight[a]
                    if value > table[i, j, nextstate[a]]:
                        table[i, j, nextstate[a]], parent[i, j, nextstate[a]] = value, a
                        changed = True
    last, value = 0, -np.inf
    for s in range(states):
        ended = table[lengths[0], lengths[1], s] + weight[len(source) + s]
        if ended > value:
            last, value = s, ended
    if value == -np.inf:
        return nothing, value
    return _trace_back(lengths[0], lengths[1], last, arcs, parent), value


@part_kernel
def _trace_back(i: int, j: int, state: int, arcs: AlignmentArcs, parent: IntArray) -> IntArray:
    """Return the arcs of the best path from the start to a node, then A + its state."""
    width, key_of, source = arcs.width, arcs.key_of, arcs.source
    path = empty(64, np.int64)
    path[0], used = len(source) + state, 1  # used < len(path): `path` grows when it is full
    while parent[i, j, state] != _START:
        a = parent[i, j, state]
        if used == len(path):
            longer = empty(2 * used, np.int64)
            copy_to(longer, path)
            path = longer
        path[used] = a
        used += 1
        i -= key_of[a] >= width
        j -= key_of[a] % width > 0
        state = source[a]
    return path[:used][::-1].copy()
