"""The elimination of `kernels.elimination` on logarithms, for weights of any range, in numpy.

This is a readable version of that kernel.  It also works if a pivot is so small that weights below
the range of a float64 matter, where the kernel gives up.  Tables are pairs along axis 0:
logarithms, and their derivatives along one direction; a zero weight is (-inf, 0).

With a single root, the weights of the root are first-order quantities.  If none of the remaining
nodes can be the head of node k, then k is the only dependent of the root: its pivot is the weight
of its root arc, k replaces the root from then on, and the other root arcs, which are of second
order, are dropped.  If this happens before node j is the last one, `elsewhere[j]` is set: in the
trees of j, the root arc goes to another node.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray


class LogSolution(NamedTuple):
    """log Z, and tables (n+1, n+1): log gradient, marginals, and their derivative along v."""

    log_partition: float
    log_gradient: FloatArray
    marginals: FloatArray
    change: FloatArray


def solve(log_weights: FloatArray, direction: FloatArray, *, single: bool) -> LogSolution:
    """Return log Z, the log of the gradient of log Z in the weights, marginals and Cov v.

    log_weights, direction : (n+1, n+1) float64; the diagonal and column 0 are not read.
    log Z is -inf if no tree has a positive weight.  The cost is O(n^3) logarithms in O(n log n)
    array operations.
    """
    n = len(log_weights) - 1
    x = np.zeros((2, n + 1, n))
    x[0] = log_weights[:, 1:]
    x[0, np.arange(1, n + 1), np.arange(n)] = -np.inf
    x[1] = np.where(x[0] > -np.inf, direction[:, 1:], 0.0)
    reach = np.full((2, n + 1, n), -np.inf)
    reach[1] = 0.0
    reach[0, 0] = 0.0
    elsewhere = np.zeros(n, dtype=bool)
    value = _all_last(x, 0, single, single, reach, elsewhere)
    reach[0, 0, elsewhere] = -np.inf
    table = np.zeros((3, n + 1, n + 1))
    if value > -np.inf:
        parts = _times(x, reach)
        total = _sum(parts, axis=0)
        table[0, :, 1:] = reach[0] - total[0]
        table[1, :, 1:] = np.exp(parts[0] - total[0])
        table[2, :, 1:] = table[1, :, 1:] * (parts[1] - total[1])
    table[0, :, 0] = -np.inf
    return LogSolution(value, *table)


def _all_last(
    x: FloatArray,
    first: int,
    single: bool,
    first_order: bool,
    reach: FloatArray,
    elsewhere: BoolArray,
) -> float:
    """Fill `reach` for the nodes of x, which begin at `first`; return the sum of log pivots."""
    m = x.shape[2]
    if m == 1:
        elsewhere[first] = first_order and not single
        return float(x[0, 0, 0])
    half = m // 2
    value = 0.0
    for kept, gone in ((range(half, m), range(half)), (range(half), range(m - 1, half - 1, -1))):
        y, mode, value, modes = x.copy(), single, 0.0, []
        for k in gone:
            left = slice(k + 1, m) if kept.start else slice(0, k)
            pivot, mode = _eliminate(y, k, left, mode)
            value += pivot
            modes.append((k, left, mode))
        if value == -np.inf:
            return value
        rows = np.r_[0, np.array(kept) + 1]
        inner = y[:, rows][:, :, kept.start : kept.stop]
        value += _all_last(inner, first + kept.start, mode, first_order, reach, elsewhere)
        if value == -np.inf:
            return value
        columns = slice(first + kept.start, first + kept.stop)
        for k, left, was_single in reversed(modes):
            heads = slice(first + left.start + 1, first + left.stop + 1)
            share = y[:, left.start + 1 : left.stop + 1, k, None]
            root = np.repeat(y[:, 0, k, None], len(kept), axis=1)
            root[:, elsewhere[columns] & was_single] = [[-np.inf], [0.0]]
            inner = _sum(_times(share, reach[:, heads, columns]), axis=0)
            reach[:, first + k + 1, columns] = _add(root, inner)
    return value


def _eliminate(x: FloatArray, k: int, left: slice, single: bool) -> tuple[float, bool]:
    """Eliminate node k from the nodes `left`, in place; return its log pivot and `single` after."""
    heads = slice(left.start + 1, left.stop + 1)
    pivot = _sum(x[:, heads, k], axis=0)
    if not single:
        pivot = _add(pivot, x[:, 0, k])
    elif pivot[0] == -np.inf:
        root = float(x[0, 0, k])
        x[:, 0, left] = x[:, k + 1, left]
        x[:, 0, k] = 0.0
        return root, False
    if pivot[0] == -np.inf:
        return -np.inf, single
    for rows in (slice(0, 1), heads):
        share = x[:, rows, k]
        share[0] -= pivot[0]
        share[1] = np.where(share[0] > -np.inf, share[1] - pivot[1], 0.0)
        through = _times(share[:, :, None], x[:, k + 1, None, left])
        x[:, rows, left] = _add(x[:, rows, left], through)
    return float(pivot[0]), single


def _times(a: FloatArray, b: FloatArray) -> FloatArray:
    product = a + b
    product[1][product[0] == -np.inf] = 0.0
    return product


def _add(a: FloatArray, b: FloatArray) -> FloatArray:
    return _sum(np.stack([a, b], axis=1), axis=0)


def _sum(x: FloatArray, axis: int) -> FloatArray:
    """Return the log of the sum along `axis`, and its derivative, a weighted mean of theirs."""
    log, slope = x
    top = np.max(log, axis=axis, keepdims=True, initial=-np.inf)
    share = np.exp(log - np.where(top > -np.inf, top, 0.0))
    total = share.sum(axis=axis)
    safe = np.where(total > 0, total, 1.0)
    value = np.where(total > 0, np.log(safe) + np.squeeze(top, axis), -np.inf)
    return np.stack([value, (share * slope).sum(axis=axis) / safe])
