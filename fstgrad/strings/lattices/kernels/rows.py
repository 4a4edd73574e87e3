"""Kernels for rows of a target machine along a lattice, in the tropical semiring."""

import numpy as np

from fstgrad.core.checks import BoolArray, IntArray
from fstgrad.core.compiler import kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import copy_to
from fstgrad.losses.automata.semiring import INF


@kernel
def advance(
    rows: IntArray, source: IntArray, nextstate: IntArray, weight: IntArray, clear: bool
) -> IntArray:
    """Return the tropical rows (N, K) after these arcs.

    result[n, j'] = min over the arcs j -> j' of rows[n, j] + weight.  Without `clear`, the arcs are
    epsilon arcs in topological order, and the rows themselves are included in the minimum.
    """
    result = np.full_like(rows, INF) if clear else rows.copy()
    origin = rows if clear else result
    for n in range(len(rows)):
        for arc in range(len(source)):
            before = origin[n, source[arc]]
            if before < INF // 2:
                after = before + weight[arc]
                if after < result[n, nextstate[arc]]:
                    result[n, nextstate[arc]] = after
    return result


@kernel
def pair_step(
    gap: IntArray,
    lower: IntArray,
    source: IntArray,
    nextstate: IntArray,
    weight: IntArray,
    scratch: IntArray,
    result: IntArray,
) -> None:
    """Fill `result` (K, K) with bounds on c_k - c_j before a symbol, from `gap` (K, K) after it.

    result[j, k] = max over arcs j -> j' of min over arcs k -> k' of w_k - w_j + gap[j', k'].
    Cells j' that cannot finish (`lower` (K,) is infinite) are skipped.  Infinite entries stay above
    INF / 2 in magnitude, because finite sums are much smaller.
    """
    size = len(gap)
    ahead = gap.T.copy()
    scratch[:] = INF
    result[:] = -INF
    for arc in range(len(source)):
        for i in range(size):
            bound = ahead[nextstate[arc], i] + weight[arc]
            scratch[source[arc], i] = min(scratch[source[arc], i], bound)
    for i in range(size):
        copy_to(ahead[i], scratch[:, i])
    for arc in range(len(source)):
        if lower[nextstate[arc]] < INF // 2:
            for k in range(size):
                bound = ahead[nextstate[arc], k] - weight[arc]
                result[source[arc], k] = max(result[source[arc], k], bound)


@kernel
def pair_closure(gap: IntArray, source: IntArray, nextstate: IntArray, weight: IntArray) -> None:
    """Include epsilon arcs, before the next symbol, in the bounds `gap` (K, K), in place.

    The arcs are in topological order: gap[j, k] takes the minimum over epsilon arcs of k of
    gap[j, k'] + w_k, then the maximum over epsilon arcs of j of gap[j', k] - w_j.
    """
    size = len(gap)
    turned = gap.T.copy()
    for arc in range(len(source) - 1, -1, -1):
        for j in range(size):
            bound = turned[nextstate[arc], j] + weight[arc]
            turned[source[arc], j] = min(turned[source[arc], j], bound)
    for i in range(size):
        copy_to(gap[i], turned[:, i])
    for arc in range(len(source) - 1, -1, -1):
        for k in range(size):
            bound = gap[nextstate[arc], k] - weight[arc]
            gap[source[arc], k] = max(gap[source[arc], k], bound)


@kernel
def prune(
    rows: IntArray, gap: IntArray, lower: IntArray, offset: IntArray, alive: BoolArray
) -> None:
    """Bring tropical rows (N, K) to their canonical form in place.

    A cell j is removed (set to INF) if it cannot finish (`lower` (K,) is infinite), or if
    v_k + gap[j, k] <= v_j for a cell k that stays.  The minimum of the remaining cells is
    subtracted and written to `offset` (N,).  alive[n] says whether a cell of row n remains.
    """
    size = rows.shape[1]
    kept = empty(size, dtype=np.int64)
    for n in range(len(rows)):
        row = rows[n]
        pivot, best = -1, INF // 2
        for j in range(size):
            if row[j] >= INF // 2 or lower[j] >= INF // 2:
                row[j] = INF
            elif row[j] + lower[j] < best:
                pivot, best = j, row[j] + lower[j]
        alive[n] = pivot >= 0
        offset[n] = 0
        if pivot < 0:
            continue
        # count <= size: each cell is visited once
        count = 0
        for j in range(size):
            if row[j] < INF // 2:
                if j != pivot and row[pivot] + gap[j, pivot] <= row[j]:
                    row[j] = INF
                else:
                    kept[count] = j
                    count += 1
        for a in range(count):
            j = kept[a]
            for b in range(count):
                k = kept[b]
                if k != j and row[k] < INF // 2 and row[k] + gap[j, k] <= row[j]:
                    row[j] = INF
                    break
        smallest = INF
        for a in range(count):
            smallest = min(smallest, row[kept[a]])
        offset[n] = smallest
        for a in range(count):
            if row[kept[a]] < INF // 2:
                row[kept[a]] -= smallest


@kernel
def prune_by_cells(
    rows: IntArray, lower: IntArray, upper: IntArray, offset: IntArray, alive: BoolArray
) -> None:
    """Do the same as `prune` with gap[j, k] = upper[k] - lower[j], in O(K) per row.

    A cell j is removed if v_j + lower[j] >= v_k + upper[k] for a cell k that stays.  The kernel
    compares only with the least v_k + upper[k], because one of the cells with this sum stays.
    """
    size = rows.shape[1]
    for n in range(len(rows)):
        row = rows[n]
        least, holders = INF // 2, 0
        alive[n] = False
        offset[n] = 0
        for j in range(size):
            if row[j] >= INF // 2 or lower[j] >= INF // 2:
                row[j] = INF
                continue
            alive[n] = True
            if upper[j] < INF // 2 and row[j] + upper[j] <= least:
                holders = holders + 1 if row[j] + upper[j] == least else 1
                least = row[j] + upper[j]
        smallest = INF
        for j in range(size):
            if row[j] >= INF // 2:
                continue
            holds = upper[j] < INF // 2 and row[j] + upper[j] == least
            if holders - holds > 0 and row[j] + lower[j] >= least:
                row[j] = INF
                holders -= holds
            smallest = min(smallest, row[j])
        if alive[n]:
            offset[n] = smallest
            for j in range(size):
                if row[j] < INF // 2:
                    row[j] -= smallest
