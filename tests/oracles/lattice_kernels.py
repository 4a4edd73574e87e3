"""Readable versions of the kernels in `fstgrad.strings.lattices.kernels`, with the same results.

Only the tests use them, to check the kernels.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.losses.automata.semiring import INF
from fstgrad.strings.lattices.graph import Graph

HALF = INF // 2


def log_sums_ahead(graph: Graph, weight: FloatArray) -> FloatArray:
    """Return beta (S,): beta[s] = log sum over arcs from s of exp(weight + beta[target])."""
    beta = np.zeros(graph.num_states)
    for state in reversed(range(graph.num_states - 1)):
        arcs = graph.source == state
        beta[state] = np.logaddexp.reduce(weight[arcs] + beta[graph.nextstate[arcs]])
    return beta


def visits(graph: Graph, share: FloatArray) -> FloatArray:
    """Return the probability (S,) of passing each state; `share` (A,) is that of each arc."""
    visit = np.zeros(graph.num_states)
    visit[0] = 1.0
    for state in range(1, graph.num_states):
        arcs = graph.nextstate == state
        visit[state] = visit[graph.source[arcs]] @ share[arcs]
    return visit


def means_after(graph: Graph, share: FloatArray, value: FloatArray) -> FloatArray:
    """Return the mean (S,) of the sum of `value` (A,) over the walk from each state to the end."""
    mean = np.zeros(graph.num_states)
    for state in reversed(range(graph.num_states)):
        arcs = graph.source == state
        mean[state] = share[arcs] @ (value[arcs] + mean[graph.nextstate[arcs]])
    return mean


def means_before(graph: Graph, share: FloatArray, value: FloatArray) -> FloatArray:
    """Return the mean (S,) of the sum of `value` (A,) on the walk from the start to each state."""
    mean = np.zeros(graph.num_states)
    for state in range(graph.num_states):
        arcs = graph.nextstate == state
        mean[state] = share[arcs] @ (mean[graph.source[arcs]] + value[arcs])
    return mean


def matrix(size: int, source: IntArray, nextstate: IntArray, weight: IntArray) -> IntArray:
    """Return the least weight of the arcs between states, (K, K); INF without an arc."""
    result = np.full((size, size), INF)
    np.minimum.at(result, (source, nextstate), weight)
    return result


def closure(size: int, source: IntArray, nextstate: IntArray, weight: IntArray) -> IntArray:
    """Return the least weights (K, K) of paths of epsilon arcs, with empty paths."""
    result = matrix(size, source, nextstate, weight)
    result[np.arange(size), np.arange(size)] = np.minimum(result.diagonal(), 0)
    for k in range(size):
        result = np.minimum(result, result[:, k : k + 1] + result[k])
    return saturated(result)


def saturated(values: IntArray) -> IntArray:
    """Return values; those beyond +-INF / 2 become +-INF."""
    return np.where(values > HALF, INF, np.where(values < -HALF, -INF, values))


def advanced(rows: IntArray, step: IntArray) -> IntArray:
    """Return the min-plus product of rows (N, K) with a matrix (K, K)."""
    product: IntArray = (rows[:, :, None] + step).min(axis=1)
    return saturated(product)


def pair_bounds(gap: IntArray, lower: IntArray, step: IntArray) -> IntArray:
    """Return max over j' of min over k' of step[k, k'] - step[j, j'] + gap[j', k'] as (j, k).

    Cells j' that cannot reach the end, and missing arcs, do not count.
    """
    second = (step[None, :, :] + gap[:, None, :]).min(axis=2)  # (j', k)
    usable = (step < HALF) & (lower < HALF)
    bounds = np.where(usable[:, :, None], second[None] - step[:, :, None], -INF).max(axis=1)
    return saturated(bounds)


def pruned(row: IntArray, gap: IntArray, lower: IntArray) -> IntArray | None:
    """Return the canonical form of one row (K,), or None if it cannot reach the end.

    Redundant cells are dropped: first those that the most promising cell dominates, then, one by
    one in the order of their numbers, those that another cell dominates.
    """
    row = np.where((row > HALF) | (lower > HALF), INF, row)
    if (row == INF).all():
        return None
    pivot = int(np.argmin(row + lower))
    idle = row[pivot] + gap[:, pivot] <= row
    idle[pivot] = False
    row = np.where(idle, INF, row)
    for j in np.flatnonzero(row < HALF):
        others = (row < HALF) & (np.arange(len(row)) != j)
        if (row[others] + gap[j, others] <= row[j]).any():
            row[j] = INF
    result: IntArray = np.where(row < HALF, row - row.min(), INF)
    return result
