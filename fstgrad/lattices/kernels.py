"""Loops of the lattices: sums over paths, and the rows of a loss along a lattice.

Numpy twins: `tests.oracles.lattice_kernels`.
"""

import numpy as np

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.compiler import kernel

_INF = 2**60  # `fstgrad.automata.semiring.INF`; what is above half of it is infinite
_HALF = 2**59


@kernel
def log_sums_ahead(
    beta: FloatArray, first: IntArray, nextstate: IntArray, weight: FloatArray
) -> None:
    """Fill beta[s] = log sum_e exp(weight[e] + beta[nextstate[e]]); the last beta is given.

    The arcs e that leave state s are first[s] .. first[s + 1] - 1.
    """
    for state in range(len(beta) - 2, -1, -1):
        largest = -np.inf
        for arc in range(first[state], first[state + 1]):
            largest = max(largest, weight[arc] + beta[nextstate[arc]])
        if largest > -np.inf:
            added = 0.0
            for arc in range(first[state], first[state + 1]):
                added += np.exp(weight[arc] + beta[nextstate[arc]] - largest)
            largest += np.log(added)
        beta[state] = largest


@kernel
def visits(visit: FloatArray, source: IntArray, nextstate: IntArray, share: FloatArray) -> None:
    """Fill visit[s] = the sum over the arcs into s of visit[source] share; visit[0] is given.

    Arcs are sorted by source.
    """
    for arc in range(len(source)):
        visit[nextstate[arc]] += visit[source[arc]] * share[arc]


@kernel
def means_before(
    mean: FloatArray, source: IntArray, nextstate: IntArray, share: FloatArray, value: FloatArray
) -> None:
    """Add up mean[nextstate] = sum_e share[e] (mean[source] + value[e]), arcs sorted by source."""
    for arc in range(len(source)):
        if share[arc] > 0.0:
            mean[nextstate[arc]] += share[arc] * (mean[source[arc]] + value[arc])


@kernel
def means_after(
    mean: FloatArray, source: IntArray, nextstate: IntArray, share: FloatArray, value: FloatArray
) -> None:
    """Add up mean[source] = sum_e share[e] (value[e] + mean[nextstate]), arcs sorted by source."""
    for arc in range(len(source) - 1, -1, -1):
        if share[arc] > 0.0:
            mean[source[arc]] += share[arc] * (value[arc] + mean[nextstate[arc]])


@kernel
def walks(
    steps: IntArray, uniform: FloatArray, first: IntArray, nextstate: IntArray, share: FloatArray
) -> None:
    """Fill each row of `steps` with the arcs of a path drawn by `uniform`, then -1.

    Arcs are sorted by source; the shares of the arcs that leave a state sum to one.
    """
    end = len(first) - 2
    for k in range(len(steps)):
        state = 0
        depth = 0
        while state != end:
            left = uniform[k, depth]
            chosen = -1
            for arc in range(first[state], first[state + 1]):
                if share[arc] > 0.0:
                    chosen = arc
                    left -= share[arc]
                    if left < 0.0:
                        break
            steps[k, depth] = chosen
            state = nextstate[chosen]
            depth += 1


@kernel
def advanced(
    rows: IntArray, source: IntArray, nextstate: IntArray, weight: IntArray, clear: bool
) -> IntArray:
    """Return the tropical rows (N, K) after these arcs; without `clear`, with the rows themselves.

    Without `clear` the arcs must be in topological order: epsilon arcs.
    """
    result = np.full_like(rows, _INF) if clear else rows.copy()
    origin = rows if clear else result
    for n in range(len(rows)):
        for arc in range(len(source)):
            before = origin[n, source[arc]]
            if before < _HALF:
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
    """Fill result[j, k] with the bound on c_k - c_j before a symbol, from `gap` after it.

    result[j, k] = max over arcs j -> j' of min over arcs k -> k' of w_k - w_j + gap[j', k'];
    cells j' that cannot finish (`lower`) do not count.  What is infinite stays above half of _INF
    in magnitude, as no sum of weights comes near it.
    """
    size = len(gap)
    ahead = gap.T.copy()
    scratch[:] = _INF
    result[:] = -_INF
    for arc in range(len(source)):
        for i in range(size):
            bound = ahead[nextstate[arc], i] + weight[arc]
            scratch[source[arc], i] = min(scratch[source[arc], i], bound)
    ahead[:] = scratch.T
    for arc in range(len(source)):
        if lower[nextstate[arc]] < _HALF:
            for k in range(size):
                bound = ahead[nextstate[arc], k] - weight[arc]
                result[source[arc], k] = max(result[source[arc], k], bound)


@kernel
def pair_closure(gap: IntArray, source: IntArray, nextstate: IntArray, weight: IntArray) -> None:
    """Let both cells of a pair follow epsilon arcs first, in place; arcs in topological order."""
    size = len(gap)
    turned = gap.T.copy()
    for arc in range(len(source) - 1, -1, -1):
        for j in range(size):
            bound = turned[nextstate[arc], j] + weight[arc]
            turned[source[arc], j] = min(turned[source[arc], j], bound)
    gap[:] = turned.T
    for arc in range(len(source) - 1, -1, -1):
        for k in range(size):
            bound = gap[nextstate[arc], k] - weight[arc]
            gap[source[arc], k] = max(gap[source[arc], k], bound)


@kernel
def pruned(
    rows: IntArray, gap: IntArray, lower: IntArray, offset: IntArray, alive: BoolArray
) -> None:
    """Bring tropical rows (N, K) to their canonical form in place.

    A cell j goes if it cannot finish, or if v_k + gap[j, k] <= v_j for a cell k that stays.  What
    is left is reduced by its minimum, `offset`.
    """
    size = rows.shape[1]
    kept = np.empty(size, dtype=np.int64)
    for n in range(len(rows)):
        row = rows[n]
        pivot, best = -1, _HALF
        for j in range(size):
            if row[j] >= _HALF or lower[j] >= _HALF:
                row[j] = _INF
            elif row[j] + lower[j] < best:
                pivot, best = j, row[j] + lower[j]
        alive[n] = pivot >= 0
        offset[n] = 0
        if pivot < 0:
            continue
        count = 0
        for j in range(size):
            if row[j] < _HALF:
                if j != pivot and row[pivot] + gap[j, pivot] <= row[j]:
                    row[j] = _INF
                else:
                    kept[count] = j
                    count += 1
        for a in range(count):
            j = kept[a]
            for b in range(count):
                k = kept[b]
                if k != j and row[k] < _HALF and row[k] + gap[j, k] <= row[j]:
                    row[j] = _INF
                    break
        smallest = _INF
        for a in range(count):
            smallest = min(smallest, row[kept[a]])
        offset[n] = smallest
        for a in range(count):
            if row[kept[a]] < _HALF:
                row[kept[a]] -= smallest
