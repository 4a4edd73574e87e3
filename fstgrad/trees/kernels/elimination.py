"""Subtraction-free marginals of spanning trees, and their derivative along one direction.

Node elimination in the manner of Grassmann, Taksar and Heyman (1985): node k goes, each of its
heads i takes the share p_ik = w_ik / s_k of its dependents, s_k the weight that enters k from the
nodes left, and never a diagonal is subtracted from.  What is left for the last node j is
Z / prod s_k.  The marginal of i -> j is w_ij e_ij, normalised over i, where e_ij is the chance
that the walk from dependents to heads gets from i to the root before it meets j; e is found
backward through the eliminations.  To make every node the last one, the range is halved: eliminate
the left half and recurse into the right one, and the other way round, 7/9 n^3 + n^3/2
multiplications in all.  Only sums, products and quotients of positive numbers occur, so every
marginal is right to a few units in its last place however ill-conditioned the Laplacian is.

Single root: the root's weights are first-order quantities rho; they stay out of the pivots, and the
last node's factor is its rho.

Tables are (value, tangent) pairs along axis 0: x[0] (m+1, m) holds the weights [root and nodes,
nodes] of the nodes left, x[1] their derivative; e[0], e[1] are (n+1, n).
"""

import numpy as np

from fstgrad.checks import FloatArray
from fstgrad.compiler import kernel

# What fell below the least float64, 5e-324, does not count next to a pivot of this size.
SMALLEST_PIVOT = 1e-280


@kernel
def eliminate(x: FloatArray, k: int, low: int, high: int, single: bool, along: bool) -> float:
    """Eliminate node k from the nodes low .. high-1; return s_k, 0 if it may have underflowed."""
    w, dw = x[0], x[1]
    total = 0.0 if single else w[0, k]
    tangent = 0.0 if single else dw[0, k]
    for i in range(low + 1, high + 1):
        total += w[i, k]
    if not total > SMALLEST_PIVOT:
        return 0.0
    if along:
        for i in range(low + 1, high + 1):
            tangent += dw[i, k]
    row, drow = w[k + 1], dw[k + 1]
    for step in range(low, high + 1):
        i = 0 if step == low else step
        p = w[i, k] / total
        w[i, k] = p
        target = w[i]
        for j in range(low, high):
            target[j] += p * row[j]
        if along:
            dp = (dw[i, k] - p * tangent) / total
            dw[i, k] = dp
            dtarget = dw[i]
            for j in range(low, high):
                dtarget[j] += dp * row[j] + p * drow[j]
    return total


@kernel
def substitute(
    x: FloatArray,
    k: int,
    low: int,
    high: int,
    first: int,
    start: int,
    stop: int,
    along: bool,
    e: FloatArray,
) -> None:
    """Write e_kj for the last nodes j in start .. stop-1, from those of the nodes low .. high-1."""
    w, dw = x[0], x[1]
    left, right = first + start, first + stop
    out = e[0, first + k + 1, left:right]
    dout = e[1, first + k + 1, left:right]
    out[:] = w[0, k]
    dout[:] = dw[0, k] if along else 0.0
    for i in range(low, high):
        p, dp = w[i + 1, k], dw[i + 1, k]
        source = e[0, first + i + 1, left:right]
        dsource = e[1, first + i + 1, left:right]
        for j in range(stop - start):
            out[j] += p * source[j]
        if along:
            for j in range(stop - start):
                dout[j] += dp * source[j] + p * dsource[j]


@kernel
def remove_half(
    x: FloatArray, y: FloatArray, keep_right: bool, single: bool, along: bool, z: FloatArray
) -> float:
    """Eliminate half the nodes of x in y, put the others into z; return sum log s, or -inf."""
    m, count = x.shape[2], z.shape[2]
    start = m - count if keep_right else 0
    y[:] = x
    value = 0.0
    for step in range(m - count):
        k = step if keep_right else m - 1 - step
        low, high = (k + 1, m) if keep_right else (0, k)
        pivot = eliminate(y, k, low, high, single, along)
        if pivot == 0.0:
            return -np.inf
        value += np.log(pivot)
    z[:, 0] = y[:, 0, start : start + count]
    z[:, 1:] = y[:, start + 1 : start + count + 1, start : start + count]
    return value


@kernel
def restore_half(
    y: FloatArray, keep_right: bool, count: int, first: int, along: bool, e: FloatArray
) -> None:
    """Write e of the nodes that `remove_half` eliminated in y, the others being last in turn."""
    m = y.shape[2]
    start = m - count if keep_right else 0
    for step in range(m - count - 1, -1, -1):
        k = step if keep_right else m - 1 - step
        low, high = (k + 1, m) if keep_right else (0, k)
        substitute(y, k, low, high, first, start, start + count, along, e)


@kernel
def all_last(x: FloatArray, single: bool, along: bool, e: FloatArray) -> float:
    """Fill e; return sum log s with the last node's weight, -inf if a pivot may have underflowed.

    The recursion is spelt out as a stack of frames: (x, y) of each depth lie in one buffer, and
    `stage` counts the halves that a frame has removed.
    """
    n = x.shape[2]
    work = np.empty(8 * (n + 2) * (n + 3))
    work[: x.size] = x.reshape(-1)
    at, size, first, stage = np.zeros((4, 66), dtype=np.int64)
    logs = np.zeros(66)
    size[0] = n
    depth = 0
    value = np.nan
    while depth >= 0:
        m = size[depth]
        area = 2 * (m + 1) * m
        frame = work[at[depth] : at[depth] + area].reshape(2, m + 1, m)
        if m == 1:
            if not frame[0, 0, 0] > SMALLEST_PIVOT:
                return -np.inf
            if np.isnan(value):
                value = logs[:depth].sum() + np.log(frame[0, 0, 0])
            depth -= 1
            continue
        y = work[at[depth] + area : at[depth] + 2 * area].reshape(2, m + 1, m)
        half = m // 2
        if stage[depth] > 0:
            removed_left = stage[depth] == 1
            restore_half(
                y, removed_left, m - half if removed_left else half, first[depth], along, e
            )
        if stage[depth] == 2:
            depth -= 1
            continue
        keep_right = stage[depth] == 0
        count = m - half if keep_right else half
        base = at[depth] + 2 * area
        z = work[base : base + 2 * (count + 1) * count].reshape(2, count + 1, count)
        logs[depth] = remove_half(frame, y, keep_right, single, along, z)
        if logs[depth] == -np.inf:
            return -np.inf
        stage[depth] += 1
        depth += 1
        at[depth] = base
        size[depth] = count
        first[depth] = first[depth - 1] + (half if keep_right else 0)
        stage[depth] = 0
    return value


@kernel
def solve(
    w: FloatArray,
    v: FloatArray,
    n: int,
    single: bool,
    along: bool,
    g: FloatArray,
    mu: FloatArray,
    dmu: FloatArray,
) -> float:
    """Write g, mu and, if `along`, dmu = Cov v for one item; return log Z, -inf if it fails.

    Tables are laid out as in `matrix_tree`, w scaled likewise.
    """
    x = np.zeros((2, n + 1, n))
    e = np.zeros((2, n + 1, n))
    x[0] = w[: n + 1, 1 : n + 1]
    if along:
        x[1] = x[0] * v[: n + 1, 1 : n + 1]
    value = all_last(x, single, along, e)
    if value == -np.inf:
        return value
    e[0, 0] = 1.0
    g[:] = 0.0
    mu[:] = 0.0
    dmu[:] = 0.0
    for j in range(n):
        total = 0.0
        tangent = 0.0
        for i in range(n + 1):
            total += x[0, i, j] * e[0, i, j]
            if along:
                tangent += x[1, i, j] * e[0, i, j] + x[0, i, j] * e[1, i, j]
        for i in range(n + 1):
            part = x[0, i, j] * e[0, i, j] / total
            g[i, j + 1] = e[0, i, j] / total
            mu[i, j + 1] = part
            if along:
                change = x[1, i, j] * e[0, i, j] + x[0, i, j] * e[1, i, j]
                dmu[i, j + 1] = (change - part * tangent) / total
    # not finite: the root's first-order weights overflowed
    return value if np.isfinite(mu.sum() + dmu.sum()) else -np.inf
