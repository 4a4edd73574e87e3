"""Subtraction-free marginals of spanning trees, and their derivatives along directions.

Nodes are eliminated as by Grassmann, Taksar and Heyman (1985).  If node k is eliminated, each of
its heads i takes over the share p_ik = w_ik / s_k of the arcs to k's dependents, where s_k is the
total weight that enters k from the remaining nodes; nothing is subtracted from a diagonal.  The
weight that enters the last node j is then Z / prod s_k.  The marginal of i -> j is w_ij e_ij,
normalised over i, where e_ij is the probability that the walk from dependents to heads that starts
at i reaches the root before j; e is computed backward through the eliminations.  To make every node
the last one, the range of nodes is halved: the left half is eliminated and the right half is solved
recursively, and vice versa, with 7/9 n^3 + n^3/2 multiplications in all.  Only sums, products and
quotients of positive numbers occur, so every marginal is exact to a few units in its last place,
however ill-conditioned the Laplacian is.

Single root: the root's weights rho are first-order (infinitesimal) quantities.  They stay out of
the pivots, and the factor of the last node is its rho.  If a node k is the last remaining one of a
closed component (`normal_form`) but not the last of all, k is the root's only dependent: its pivot
is its rho, k then stands for the root, and the other root arcs are dropped because they are of
second order.  In this case, no tree has the root arc of the last node j (`elsewhere`).

Arrays have slots along axis 0.  In floats, the 1 or 2 slots are a value and its derivative along a
direction.  On logarithms, a number is a column of 1, 2 or 4 slots: its logarithm l, the derivatives
l_a and l_b of l along a and b, and the mixed derivative l_ab; zero is (-inf, 0, 0, 0).  Products
add slots.  A sum of x and y with the shares p and q = 1 - p has

    l_a = p x_a + q y_a,    l_ab = p x_ab + q y_ab + p q (x_a - y_a) (x_b - y_b).

x (slots, m+1, m) holds the weights [root and nodes, nodes] of the remaining nodes; e is
(slots, n+1, n).
"""

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty

# Numbers that underflow (below 5e-324) are negligible next to a pivot of this size.
SMALLEST_PIVOT = 1e-280


@part_kernel
def eliminate(x: FloatArray, k: int, low: int, high: int, single: bool) -> float:
    """Eliminate node k from the nodes low .. high-1; return s_k, 0 if it may have underflowed."""
    w = x[0]
    total = 0.0 if single else w[0, k]
    for i in range(low + 1, high + 1):
        total += w[i, k]
    if not total > SMALLEST_PIVOT:
        return 0.0
    tangent = 0.0
    if len(x) > 1:
        tangent = 0.0 if single else x[1, 0, k]
        for i in range(low + 1, high + 1):
            tangent += x[1, i, k]
    row = w[k + 1, low:high]
    for step in range(low, high + 1):
        i = 0 if step == low else step
        if w[i, k] == 0.0 and len(x) == 1:
            continue
        p = w[i, k] / total
        w[i, k] = p
        target = w[i, low:high]
        for j in range(high - low):
            target[j] += p * row[j]
        if len(x) > 1:
            dp = (x[1, i, k] - p * tangent) / total
            x[1, i, k] = dp
            drow, dtarget = x[1, k + 1, low:high], x[1, i, low:high]
            for j in range(high - low):
                dtarget[j] += dp * row[j] + p * drow[j]
    return total


@part_kernel
def substitute(
    x: FloatArray, k: int, low: int, high: int, first: int, columns: tuple[int, int], e: FloatArray
) -> None:
    """Add the sum over the nodes i in low .. high-1 of p_ik e_ij to e_kj, j in `columns`.

    first : the node of e that is node 0 of x.  columns : begin and end of the columns of e.
    """
    left, right = columns
    out = e[0, first + k + 1, left:right]
    for i in range(low, high):
        p = x[0, i + 1, k]
        source = e[0, first + i + 1, left:right]
        for j in range(len(out)):
            out[j] += p * source[j]
    if len(x) > 1:
        slope = e[1, first + k + 1, left:right]
        for i in range(low, high):
            p, dp = x[0, i + 1, k], x[1, i + 1, k]
            source, dsource = e[0, first + i + 1, left:right], e[1, first + i + 1, left:right]
            for j in range(len(out)):
                slope[j] += dp * source[j] + p * dsource[j]


@part_kernel
def add_logs(sums: FloatArray, terms: FloatArray) -> None:
    """Add the terms (slots, m) to the sums (slots, m), element by element."""
    for j in range(sums.shape[1]):
        x, y = sums[0, j], terms[0, j]
        if y == -np.inf:
            continue
        if x == -np.inf:
            for slot in range(len(sums)):
                sums[slot, j] = terms[slot, j]
            continue
        if x >= y:
            small = np.exp(y - x)
            sums[0, j] = x + np.log1p(small)
            share = small / (1.0 + small)
        else:
            small = np.exp(x - y)
            sums[0, j] = y + np.log1p(small)
            share = 1.0 / (1.0 + small)
        if len(sums) > 1:
            gap = terms[1, j] - sums[1, j]
            sums[1, j] += share * gap
        if len(sums) > 2:
            other = terms[2, j] - sums[2, j]
            sums[2, j] += share * other
            both = share * (1.0 - share) * gap * other
            sums[3, j] += share * (terms[3, j] - sums[3, j]) + both


@part_kernel
def multiply_logs(factor: FloatArray, row: FloatArray, out: FloatArray) -> None:
    """Write factor (slots, 1) times row (slots, m)."""
    for j in range(row.shape[1]):
        zero = factor[0, 0] == -np.inf or row[0, j] == -np.inf
        for slot in range(len(row)):
            out[slot, j] = factor[slot, 0] + row[slot, j]
            if zero:
                out[slot, j] = -np.inf if slot == 0 else 0.0


@part_kernel
def eliminate_logs(
    x: FloatArray, k: int, low: int, high: int, single: bool, work: FloatArray
) -> float:
    """Eliminate node k from the nodes low .. high-1; return log s_k.

    work : (slots, m), m at least the number of nodes of x.
    """
    pivot = np.zeros((len(x), 1))
    pivot[0, 0] = -np.inf
    if not single:
        add_logs(pivot, x[:, 0, k : k + 1])
    for i in range(low + 1, high + 1):
        add_logs(pivot, x[:, i, k : k + 1])
    if pivot[0, 0] == -np.inf:
        return -np.inf
    for step in range(low, high + 1):
        i = 0 if step == low else step
        share = x[:, i, k : k + 1]
        if share[0, 0] > -np.inf:
            for slot in range(len(x)):
                share[slot, 0] -= pivot[slot, 0]
            through = work[:, : high - low]
            multiply_logs(share, x[:, k + 1, low:high], through)
            add_logs(x[:, i, low:high], through)
    return float(pivot[0, 0])


@part_kernel
def substitute_logs(
    x: FloatArray, k: int, low: int, high: int, reach: FloatArray, out: FloatArray, work: FloatArray
) -> None:
    """Add the sum over the nodes i in low .. high-1 of p_ik e_i to `out`, rows (slots, m).

    reach : (slots, nodes + 1, m), e of the root and the nodes of x.
    """
    through = work[:, : out.shape[1]]
    for i in range(low, high):
        share = x[:, i + 1, k : k + 1]
        if share[0, 0] > -np.inf:
            multiply_logs(share, reach[:, i + 1], through)
            add_logs(out, through)


@part_kernel
def make_root(x: FloatArray, k: int, low: int, high: int, logs: bool) -> float:
    """Let node k, the root's only dependent, replace the root; return the log of its weight."""
    weight = x[0, 0, k]
    for slot in range(len(x)):
        x[slot, 0, low:high] = x[slot, k + 1, low:high]
        x[slot, 0, k] = 1.0 if slot == 0 and not logs else 0.0
    if logs:
        return float(weight)
    return float(np.log(weight)) if weight > SMALLEST_PIVOT else -np.inf


@part_kernel
def eliminate_half(
    x: FloatArray,
    y: FloatArray,
    keep_right: bool,
    mode: tuple[bool, bool],
    closed: BoolArray,
    z: FloatArray,
) -> tuple[float, int]:
    """Eliminate half of the nodes of x in y, and copy the others to z.

    mode : whether the root's only dependent is still unknown, and whether x holds logarithms.
    closed : (m,) a mask of the nodes of x in a closed component.
    Return the sum of log s, or -inf, and the step that found the root's dependent, m if none did.
    """
    m, count = x.shape[2], z.shape[2]
    start = m - count if keep_right else 0
    y[:] = x
    single, logs = mode
    value = 0.0
    root_step = m
    work = empty((len(x), m))
    for step in range(m - count):
        k = step if keep_right else m - 1 - step
        low, high = (k + 1, m) if keep_right else (0, k)
        if single and closed[k] and not closed[low:high].any():
            value += make_root(y, k, low, high, logs)
            single, root_step = False, step
        elif logs:
            value += eliminate_logs(y, k, low, high, single, work)
        else:
            pivot = eliminate(y, k, low, high, single)
            value += np.log(pivot) if pivot > 0.0 else -np.inf
        if value == -np.inf:
            return value, root_step
    z[:, 0] = y[:, 0, start : start + count]
    z[:, 1:] = y[:, start + 1 : start + count + 1, start : start + count]
    return value, root_step


@part_kernel
def back_substitute_half(
    y: FloatArray,
    keep_right: bool,
    mode: tuple[bool, bool],
    root_step: int,
    first: int,
    elsewhere: BoolArray,
    e: FloatArray,
) -> None:
    """Write e of the nodes that `eliminate_half` removed in y, for each of the others as last node.

    first : the node of e and `elsewhere` that is node 0 of y.
    """
    m = y.shape[2]
    half = m // 2
    single, logs = mode
    start, stop = (first + half, first + m) if keep_right else (first, first + half)
    work = empty((len(y), stop - start))
    for step in range(m - (stop - start) - 1, -1, -1):
        k = step if keep_right else m - 1 - step
        low, high = (k + 1, m) if keep_right else (0, k)
        for j in range(start, stop):
            no_root = single and step < root_step and elsewhere[j]
            for slot in range(len(y)):
                e[slot, first + k + 1, j] = 0.0 if no_root else y[slot, 0, k]
            if no_root and logs:
                e[0, first + k + 1, j] = -np.inf
        if logs:
            inner = e[:, first : first + m + 1, start:stop]
            substitute_logs(y, k, low, high, inner, inner[:, k + 1], work)
        else:
            substitute(y, k, low, high, first, (start, stop), e)


@part_kernel
def all_last(
    x: FloatArray, single: bool, logs: bool, closed: BoolArray, elsewhere: BoolArray, e: FloatArray
) -> float:
    """Fill e and `elsewhere`; return the sum of log s and of the last node's log-weight, or -inf.

    The recursion is written as a stack of frames: (x, y) of each depth are in one buffer, and
    `stage` counts the halves that a frame has removed.
    """
    slots, _, n = x.shape
    # depth d has at most m = n / 2^d + 1 nodes and two frames of slots m (m + 1) numbers: over all
    # depths at most slots (8/3 n^2 + 12 n + 4 log2 n + 8), which `work` holds; depth <= 65
    work = empty(4 * slots * (n + 2) * (n + 3))
    work[: x.size] = x.reshape(-1)
    at, size, first, stage, root_step = np.zeros((5, 66), dtype=np.int64)
    is_open = np.zeros(66, dtype=np.bool_)
    totals = np.zeros(66)
    size[0], is_open[0] = n, single
    depth = 0
    value = np.nan
    while depth >= 0:
        m, begin = size[depth], first[depth]
        area = slots * (m + 1) * m
        frame = work[at[depth] : at[depth] + area].reshape(slots, m + 1, m)
        if m == 1:
            last = frame[0, 0, 0] if logs else np.log(max(frame[0, 0, 0], SMALLEST_PIVOT))
            if last == -np.inf or (not logs and not frame[0, 0, 0] > SMALLEST_PIVOT):
                return -np.inf
            elsewhere[begin] = single and not is_open[depth]
            if np.isnan(value):
                value = totals[:depth].sum() + last
            depth -= 1
            continue
        y = work[at[depth] + area : at[depth] + 2 * area].reshape(slots, m + 1, m)
        half = m // 2
        mode = (is_open[depth], logs)
        if stage[depth] > 0:
            back_substitute_half(y, stage[depth] == 1, mode, root_step[depth], begin, elsewhere, e)
        if stage[depth] == 2:
            depth -= 1
            continue
        right = stage[depth] == 0
        count = m - half if right else half
        base = at[depth] + 2 * area
        z = work[base : base + slots * (count + 1) * count].reshape(slots, count + 1, count)
        totals[depth], root_step[depth] = eliminate_half(
            frame, y, right, mode, closed[begin : begin + m], z
        )
        if totals[depth] == -np.inf:
            return -np.inf
        stage[depth] += 1
        depth += 1
        at[depth], size[depth], stage[depth] = base, count, 0
        first[depth] = begin + (half if right else 0)
        is_open[depth] = is_open[depth - 1] and root_step[depth - 1] == m
    return value


@kernel
def first_order(
    w: FloatArray, n: int, single: bool, closed: BoolArray, g: FloatArray, mu: FloatArray
) -> float:
    """Write g and mu for one item; return log Z, -inf if it fails.

    Tables have the layout of `matrix_tree`, and w is scaled as there; closed : (n+1,).
    """
    no_direction = np.zeros((1, 1))
    return solve(w, no_direction, n, single, closed, g, mu, no_direction)


@kernel
def solve(
    w: FloatArray,
    v: FloatArray,
    n: int,
    single: bool,
    closed: BoolArray,
    g: FloatArray,
    mu: FloatArray,
    dmu: FloatArray,
) -> float:
    """Write g, mu and, if v is a table, dmu = Cov v for one item; return log Z, -inf if it fails.

    Tables have the layout of `matrix_tree`, and w is scaled as there; closed : (n+1,).
    """
    along = len(v) > 1
    slots = 2 if along else 1
    x = np.zeros((slots, n + 1, n))
    e = np.zeros((slots, n + 1, n))
    elsewhere = np.zeros(n, dtype=np.bool_)
    x[0] = w[: n + 1, 1 : n + 1]
    if along:
        x[1] = x[0] * v[: n + 1, 1 : n + 1]
    value = all_last(x, single, False, closed[1:], elsewhere, e)
    if value == -np.inf:
        return value
    g[:] = 0.0
    mu[:] = 0.0
    if along:
        dmu[:] = 0.0
    for j in range(n):
        e[0, 0, j] = 0.0 if elsewhere[j] else 1.0
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
        g[j + 1, j + 1] = 0.0
    # values that are not finite: the root's first-order weights overflowed
    finite = np.isfinite(mu.sum()) and np.isfinite(g.sum()) and np.isfinite(dmu.sum())
    return value if finite else -np.inf


@kernel
def solve_logs(
    log_w: FloatArray,
    directions: FloatArray,
    n: int,
    single: bool,
    closed: BoolArray,
    log_g: FloatArray,
    out: FloatArray,
) -> float:
    """Solve one item of log-weights (n+1, n+1) of any range; return log Z, -inf without a tree.

    directions : (0, 1 or 2, n+1, n+1), v and u.  log_g : the log of the gradient.
    out : (1, 2 or 4, n+1, n+1): mu, Cov v, Cov u, and the derivative of Cov v along u.
    """
    slots = len(out)
    x = np.zeros((slots, n + 1, n))
    e = np.zeros((slots, n + 1, n))
    elsewhere = np.zeros(n, dtype=np.bool_)
    for i in range(n + 1):
        for j in range(n):
            x[0, i, j] = log_w[i, j + 1] if i != j + 1 else -np.inf
            for slot in range(len(directions)):
                x[slot + 1, i, j] = directions[slot, i, j + 1] if x[0, i, j] > -np.inf else 0.0
    e[0] = -np.inf
    log_g[:] = -np.inf
    out[:] = 0.0
    value = all_last(x, single, True, closed[1:], elsewhere, e)
    if value == -np.inf:
        return value
    total = np.zeros((slots, n))
    total[0] = -np.inf
    part = empty((slots, n))
    for j in range(n):
        e[0, 0, j] = -np.inf if elsewhere[j] else 0.0
    for i in range(n + 1):
        for j in range(n):
            multiply_logs(x[:, i, j : j + 1], e[:, i, j : j + 1], part[:, j : j + 1])
        add_logs(total, part)
    for i in range(n + 1):
        for j in range(n):
            log_part = x[:, i, j] + e[:, i, j] - total[:, j]
            if i != j + 1:
                log_g[i, j + 1] = e[0, i, j] - total[0, j]
            if x[0, i, j] + e[0, i, j] > -np.inf:
                mu = np.exp(log_part[0])
                out[0, i, j + 1] = mu
                for slot in range(1, slots):
                    out[slot, i, j + 1] = mu * log_part[slot]
                if slots == 4:
                    out[3, i, j + 1] = mu * (log_part[3] + log_part[1] * log_part[2])
    return value
