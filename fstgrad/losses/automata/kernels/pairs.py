"""Losses of pairs of strings, without an automaton: one dynamic program per pair.

Strings are concatenated: string i is ids[first[i] : first[i + 1]].  `pairs` (N, 2) are the indices
of a hypothesis in y and of a target in z.  Costs are float64, +inf if there is no path.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import copy_to
from fstgrad.losses.automata.kernels.arguments import (
    DELETE,
    EXTENDING,
    INSERT,
    LOCAL,
    LOWEST,
    MATCH,
    OPENING,
    SUBSTITUTE,
    TARGET_ENDS,
    Y_ENDS,
    PairArcs,
    Strings,
)

_WORD = 64
_INF = np.inf


@inner_kernel
def longest(strings: Strings) -> int:
    """Return the length of the longest string."""
    size = 0
    for t in range(len(strings.first) - 1):
        size = max(size, strings.first[t + 1] - strings.first[t])
    return size


@kernel
def unit_distances(y: Strings, z: Strings, pairs: IntArray, n: int) -> FloatArray:
    """Return the edit distances (N,) with unit costs; the alphabet has n symbols.

    d[i, j] = min(d[i-1, j-1] + [y_i != z_j], d[i-1, j] + 1, d[i, j-1] + 1), bit-parallel for 64
    symbols of the target at a time (Myers 1999; Hyyro 2003).
    """
    result = empty(len(pairs))
    words = max(1, (longest(z) + _WORD - 1) // _WORD)
    peq = np.zeros((words, n), np.uint64)
    pv, mv = empty(words, np.uint64), empty(words, np.uint64)
    one, all_ones = np.uint64(1), ~np.uint64(0)
    filled, begin = -1, 0
    for p in range(len(pairs)):
        target = pairs[p, 1]
        if target != filled:
            if filled >= 0:
                for j in range(z.first[filled], z.first[filled + 1]):
                    peq[(j - begin) // _WORD, z.ids[j]] = 0
            filled, begin = target, z.first[target]
            for j in range(begin, z.first[target + 1]):
                peq[(j - begin) // _WORD, z.ids[j]] |= one << np.uint64((j - begin) % _WORD)
        size = z.first[target + 1] - begin
        used = (size + _WORD - 1) // _WORD
        last = one << np.uint64((size - 1) % _WORD)
        for w in range(used):
            pv[w], mv[w] = all_ones, np.uint64(0)
        score = size
        start, stop = y.first[pairs[p, 0]], y.first[pairs[p, 0] + 1]
        if size == 0:
            result[p] = stop - start
            continue
        for i in range(start, stop):
            carry = 1
            for w in range(used):
                eq, up, down = peq[w, y.ids[i]], pv[w], mv[w]
                sideways = eq | down
                if carry < 0:
                    eq |= one
                diagonal = (((eq & up) + up) ^ up) | eq
                plus, minus = down | ~(diagonal | up), up & diagonal
                top = last if w == used - 1 else one << np.uint64(_WORD - 1)
                out = 0
                if plus & top:
                    out = 1
                elif minus & top:
                    out = -1
                plus, minus = plus << one, minus << one
                if carry < 0:
                    minus |= one
                elif carry > 0:
                    plus |= one
                pv[w], mv[w] = minus | ~(sideways | plus), plus & sideways
                carry = out
            score += carry
        result[p] = score
    return result


@kernel
def symbol_distances(y: Strings, z: Strings, pairs: IntArray, costs: FloatArray) -> FloatArray:
    """Return the least costs (N,), given costs (3,), [SUBSTITUTE], [DELETE] and [INSERT].

    The recurrence is that of `linear_distances`.  With three numbers in registers, the loop has 1.5
    times the speed of a loop over tables.
    """
    substitute, delete, insert = costs[SUBSTITUTE], costs[DELETE], costs[INSERT]
    result = empty(len(pairs))
    row = empty(longest(z) + 1)
    for p in range(len(pairs)):
        begin, end = z.first[pairs[p, 1]], z.first[pairs[p, 1] + 1]
        row[0] = 0.0
        for j in range(end - begin):
            row[j + 1] = row[j] + insert
        for i in range(y.first[pairs[p, 0]], y.first[pairs[p, 0] + 1]):
            before = row[0]
            row[0] += delete
            for j in range(end - begin):
                own = 0.0 if y.ids[i] == z.ids[begin + j] else substitute
                best = min(before + own, row[j + 1] + delete, row[j] + insert)
                before = row[j + 1]
                row[j + 1] = best
        result[p] = row[end - begin]
    return result


@kernel
def symbol_paths(
    y: Strings, z: Strings, pairs: IntArray, costs: FloatArray
) -> tuple[npt.NDArray[np.int8], IntArray]:
    """Return the steps of a cheapest alignment of each pair, given costs as in `symbol_distances`.

    Step k of pair p is steps[first[p] + k]: MATCH, SUBSTITUTE, DELETE (of y) or INSERT (of z).  Of
    equal costs, the last step of a cell is a match or a substitution, else a deletion, else an
    insertion, as in sclite (net_dp.c, calculate_internal_cells).  `first` is (N + 1,).
    """
    substitute, delete, insert = costs[SUBSTITUTE], costs[DELETE], costs[INSERT]
    room = 0
    for p in range(len(pairs)):
        room += y.first[pairs[p, 0] + 1] - y.first[pairs[p, 0]]
        room += z.first[pairs[p, 1] + 1] - z.first[pairs[p, 1]]
    steps, first = empty(room, np.int8), np.zeros(len(pairs) + 1, np.int64)
    row = empty(longest(z) + 1)
    back = empty((longest(y) + 1, longest(z) + 1), np.int8)
    back[0, :] = INSERT
    back[:, 0] = DELETE
    for p in range(len(pairs)):
        start, begin = y.first[pairs[p, 0]], z.first[pairs[p, 1]]
        size, other = y.first[pairs[p, 0] + 1] - start, z.first[pairs[p, 1] + 1] - begin
        for j in range(other + 1):
            row[j] = j * insert
        for i in range(size):
            before, symbol = row[0], y.ids[start + i]
            row[0] = (i + 1) * delete
            for j in range(other):
                step = MATCH if symbol == z.ids[begin + j] else SUBSTITUTE
                best = before if step == MATCH else before + substitute
                down, across = row[j + 1] + delete, row[j] + insert
                if down < best:
                    best, step = down, DELETE
                if across < best:
                    best, step = across, INSERT
                before = row[j + 1]
                row[j + 1] = best
                back[i + 1, j + 1] = step
        count, i, j = 0, size, other
        while i > 0 or j > 0:
            step = back[i, j]
            i -= step != INSERT
            j -= step != DELETE
            steps[first[p] + count] = step
            count += 1
        first[p + 1] = first[p] + count
        path = steps[first[p] : first[p + 1]]
        copy_to(path, path[::-1].copy())
    return steps[: first[-1]].copy(), first


@kernel
def linear_distances(
    y: Strings,
    z: Strings,
    pairs: IntArray,
    align: FloatArray,
    delete: FloatArray,
    insert: FloatArray,
) -> FloatArray:
    """Return the least costs (N,) of alignments; align (n, n), delete (n,), insert (n,) are costs.

    d[i, j] = min(d[i-1, j-1] + align[y_i, z_j], d[i-1, j] + delete[y_i], d[i, j-1] + insert[z_j]).
    """
    result = empty(len(pairs))
    row = empty(longest(z) + 1)
    for p in range(len(pairs)):
        begin, end = z.first[pairs[p, 1]], z.first[pairs[p, 1] + 1]
        row[0] = 0.0
        for j in range(end - begin):
            row[j + 1] = row[j] + insert[z.ids[begin + j]]
        for i in range(y.first[pairs[p, 0]], y.first[pairs[p, 0] + 1]):
            a = y.ids[i]
            before = row[0]
            row[0] += delete[a]
            for j in range(end - begin):
                b = z.ids[begin + j]
                best = min(before + align[a, b], row[j + 1] + delete[a], row[j] + insert[b])
                before = row[j + 1]
                row[j + 1] = best
        result[p] = row[end - begin]
    return result


@kernel
def affine_scores(
    y: Strings,
    z: Strings,
    pairs: IntArray,
    scores: npt.NDArray[Any],
    gaps: npt.NDArray[Any],
    free: IntArray,
) -> FloatArray:
    """Return the best scores (N,) of alignments with affine gaps, for opening >= extending.

    scores : (n, n) float32 or float64; more similar symbols score higher.
    gaps : (3,) [OPENING] is the cost of a gap's first symbol, [EXTENDING] that of each further one;
        [LOWEST] is -inf.
    free : (3,) 0 or 1; [Y_ENDS] : gaps at the ends of y are free; [TARGET_ENDS] : those at the ends
        of the target are; [LOCAL] : the alignment is local, which frees both and gives each cell at
        least 0.

        best[i, j] = max(best[i-1, j-1] + scores[y_i, z_j], down[i, j], across[i, j])
        down[i, j] = max(best[i-1, j] - opening, down[i-1, j] - extending)
        across[i, j] = max_k best[i, j-k] - opening - (k-1) extending

    A row needs three passes: matches and gaps in the target, a running maximum that carries gaps in
    y (with their extensions taken out), and the better of the two.  The first and the last
    vectorise (Gotoh 1982; the order of the passes follows Rognes 2011).
    """
    opening, extending, lowest = gaps[OPENING], gaps[EXTENDING], gaps[LOWEST]
    result = empty(len(pairs))
    room = longest(z) + 1
    best, came = empty(room, scores.dtype), empty(room, scores.dtype)
    down, run = empty(room, scores.dtype), empty(room, scores.dtype)
    slope = empty(room, scores.dtype)
    for j in range(room):
        slope[j] = extending * j
    profile, filled = empty((len(scores), room), scores.dtype), -1
    for p in range(len(pairs)):
        target = pairs[p, 1]
        begin, size = z.first[target], z.first[target + 1] - z.first[target]
        if target != filled:
            filled = target
            for a in range(len(scores)):
                for j in range(size):
                    profile[a, j] = scores[a, z.ids[begin + j]]
        best[0] = 0
        for j in range(1, size + 1):
            best[j] = 0 if free[TARGET_ENDS] or free[LOCAL] else -opening - slope[j - 1]
            down[j] = lowest
        highest, at_end = best[0] * 0, best[size]
        first, last = y.first[pairs[p, 0]], y.first[pairs[p, 0] + 1]
        floor = highest if free[LOCAL] else lowest
        for i in range(first, last):
            best, came = came, best
            best[0] = 0 if free[Y_ENDS] or free[LOCAL] else -opening - extending * (i - first)
            _matched(best, came, down, profile[y.ids[i]], size, gaps, floor)
            top = _run(best, run, slope, size, opening)
            highest = max(highest, top)
            at_end = max(at_end, best[size])
        value = best[size]
        if free[Y_ENDS]:
            value = at_end
        if free[TARGET_ENDS]:
            for j in range(size + 1):
                value = max(value, best[j])
        result[p] = highest if free[LOCAL] else value
    return result


@inner_kernel
def _matched(
    best: npt.NDArray[Any],
    came: npt.NDArray[Any],
    down: npt.NDArray[Any],
    row: npt.NDArray[Any],
    size: int,
    gaps: npt.NDArray[Any],
    floor: float,
) -> int:
    """Write the best of a match, a gap in the target and `floor` to best[1 :]; return `size`."""
    opening, extending = gaps[OPENING], gaps[EXTENDING]
    for j in range(size):
        one, two = came[j + 1] - opening, down[j + 1] - extending
        gap = one if one > two else two
        down[j + 1] = gap
        match = came[j] + row[j]
        match = match if match > gap else gap
        best[j + 1] = match if match > floor else floor
    return size


@inner_kernel
def _run(
    best: npt.NDArray[Any], run: npt.NDArray[Any], slope: npt.NDArray[Any], size: int, opening: Any
) -> Any:
    """Extend gaps in y along a row, in place; return the largest cell."""
    for j in range(size + 1):
        run[j] = best[j] + slope[j]
    carried = run[0]
    for j in range(1, size + 1):
        now = run[j]
        run[j] = carried
        carried = now if now > carried else carried
    highest = best[0]
    for j in range(1, size + 1):
        gap = run[j] - slope[j - 1] - opening
        cell = best[j] if best[j] > gap else gap
        best[j] = cell
        highest = cell if cell > highest else highest
    return highest


@kernel
def arc_costs(y: Strings, z: Strings, pairs: IntArray, arcs: PairArcs, n: int) -> FloatArray:
    """Return the least costs (N,) of the paths of a transducer that read y and write the target."""
    result = empty(len(pairs))
    none = np.zeros((0, 0, 0), np.int64)
    for p in range(len(pairs)):
        own = y.ids[y.first[pairs[p, 0]] : y.first[pairs[p, 0] + 1]]
        other = z.ids[z.first[pairs[p, 1]] : z.first[pairs[p, 1] + 1]]
        result[p] = _filled(own, other, arcs, n, none)[0]
    return result


@kernel
def best_path(y: IntArray, z: IntArray, arcs: PairArcs, n: int) -> tuple[float, IntArray]:
    """Return the least cost of a path that reads y and writes z, and its arcs from first to last.

    The path is given as indices into `arcs`.  It is empty if there is no path (cost +inf), or if
    arcs that neither read nor write form a cycle of negative cost (cost NaN).
    """
    states = len(arcs.final)
    back = np.full((len(y) + 1, len(z) + 1, states), -1, np.int64)
    cost, state = _filled(y, z, arcs, n, back)
    # a step advances in y or z, or is one of at most `states` silent steps at a cell
    path = empty(len(y) + len(z) + states * (len(y) + len(z) + 1), np.int64)
    i, j, size = len(y), len(z), 0
    while state >= 0:
        code = back[i, j, state]
        if code < 0:
            break
        arc, reads, writes = code >> 2, code & 1, (code >> 1) & 1
        path[size] = arc
        size += 1
        i, j, state = i - reads, j - writes, arcs.source[arc]
    return cost, path[:size][::-1].copy()


@inner_kernel
def _filled(y: IntArray, z: IntArray, arcs: PairArcs, n: int, back: IntArray) -> tuple[float, int]:
    """Return the least cost and its last state; the state is -1 without a path or a least cost.

    If it is not empty, `back` (l + 1, m + 1, S) receives the arc that enters each cell, times 4,
    plus 1 if it reads and 2 if it writes.  It keeps its value (-1) at the start.
    """
    states, width = len(arcs.final), n + 1
    keep = len(back) > 0
    above = np.full((len(z) + 1, states), _INF)
    row = np.full((len(z) + 1, states), _INF)
    for i in range(len(y) + 1):
        row[:, :] = _INF
        for j in range(len(z) + 1):
            if i == 0 and j == 0:
                row[0, 0] = 0.0
            for kind in range(4):
                reads, writes = kind & 1, kind >> 1
                if kind == 0 or i < reads or j < writes:
                    continue
                label = (y[i - 1] + 1 if reads else 0) * width + (z[j - 1] + 1 if writes else 0)
                for a in range(arcs.first[label], arcs.first[label + 1]):
                    before = above if reads else row
                    cost = before[j - writes, arcs.source[a]] + arcs.weight[a]
                    if cost < row[j, arcs.nextstate[a]]:
                        row[j, arcs.nextstate[a]] = cost
                        if keep:
                            back[i, j, arcs.nextstate[a]] = 4 * a + kind
            changed = True
            rounds = 0
            while changed and rounds <= states:
                changed = False
                rounds += 1
                for a in range(arcs.first[0], arcs.first[1]):
                    cost = row[j, arcs.source[a]] + arcs.weight[a]
                    if cost < row[j, arcs.nextstate[a]]:
                        row[j, arcs.nextstate[a]] = cost
                        changed = True
                        if keep:
                            back[i, j, arcs.nextstate[a]] = 4 * a
            if changed:
                return np.nan, -1
        above, row = row, above
    best, state = _INF, -1
    for s in range(states):
        if above[len(z), s] + arcs.final[s] < best:
            best, state = above[len(z), s] + arcs.final[s], s
    return best, state
