"""The columns of the design Z: sums over them, and their multiples.

A parameter adds a multiple of a column of the design to one coordinate of eta of one node: this is
a slot.  A tied parameter has several slots, one for each of its nodes, with different columns.
eta = offset + Z coef; eta is (q nodes, n samples, c coordinates), and there are m parameters.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel
from fstgrad.core.uninitialized import empty


class Slots(NamedTuple):
    """The design Z: how each parameter acts on eta.

    pointer (m + 1,) : parameter i has the slots pointer[i] .. pointer[i + 1] - 1.
    node, coordinate (s,) : the node and the coordinate of eta, from 0, that a slot acts on.
    start, end (s,) : a slot's column has the entries start .. end - 1 of `rows` and `values`.
    rows, values (entries,) : the sample and the value of each entry.
    """

    pointer: IntArray
    node: IntArray
    coordinate: IntArray
    start: IntArray
    end: IntArray
    rows: IntArray
    values: FloatArray


@inner_kernel
def column_sum(m: int, slots: Slots, values: FloatArray, table: FloatArray) -> float:
    """Return the inner product of the columns of parameter m, with entries `values`, and a table.

    table (q, n, c); sum over slots and entries of values[entry] * table[node, row, coordinate].
    """
    whole = 0.0
    for slot in range(slots.pointer[m], slots.pointer[m + 1]):
        node, j = slots.node[slot], slots.coordinate[slot]
        for at in range(slots.start[slot], slots.end[slot]):
            whole += values[at] * table[node, slots.rows[at], j]
    return whole


@kernel
def weigh(
    value: FloatArray,
    mean: FloatArray,
    second: FloatArray,
    eta: FloatArray,
    observed: FloatArray,
    weights: FloatArray,
    residual: FloatArray,
    covariance: FloatArray,
) -> float:
    """Write residual = w (E[t] - t) (n, c) and covariance = w Cov[t] (n, c, c) of a node.

    Returns its loss, mean_i w_i (A_i - <eta_i, t_i>), or +inf if a part of it is not finite.
    value (n,) : A.  mean, second : E[t], Cov[t].  eta, observed (n, c) : eta, t.  weights (n,) : w.
    """
    n, c = mean.shape
    total, is_finite = 0.0, True
    for i in range(n):
        fit, weight = value[i], weights[i]
        for j in range(c):
            fit -= eta[i, j] * observed[i, j]
            residual[i, j] = (mean[i, j] - observed[i, j]) * weight
            for other in range(c):
                covariance[i, j, other] = second[i, j, other] * weight
        is_finite = is_finite and np.isfinite(fit)
        total += weight * fit
    return total / n if is_finite else np.inf


@kernel
def gradients(slots: Slots, residual: FloatArray) -> FloatArray:
    """Return the gradient (m,) of the mean loss, Z' residual / n, from its derivative by eta.

    residual (q, n, c).
    """
    out = empty(slots.pointer.shape[0] - 1)
    for m in range(out.shape[0]):
        out[m] = column_sum(m, slots, slots.values, residual) / residual.shape[1]
    return out


@kernel
def curvatures(slots: Slots, hessian: FloatArray) -> FloatArray:
    """Return the second derivatives (m,) of the mean loss, the diagonal of Z' H Z / n."""
    diagonal = empty(hessian.shape[:3])
    for j in range(hessian.shape[3]):
        diagonal[:, :, j] = hessian[:, :, j, j]
    squares = slots.values * slots.values
    out = empty(slots.pointer.shape[0] - 1)
    for m in range(out.shape[0]):
        out[m] = column_sum(m, slots, squares, diagonal) / hessian.shape[1]
    return out


@kernel
def sample_means(hessian: FloatArray) -> FloatArray:
    """Return the mean (q, c, c) over the samples of matrices (q, n, c, c)."""
    q, n, c = hessian.shape[0], hessian.shape[1], hessian.shape[2]
    out = np.zeros((q, c, c))
    for node in range(q):
        for a in range(c):
            for b in range(c):
                total = 0.0
                for i in range(n):
                    total += hessian[node, i, a, b]
                out[node, a, b] = total / n
    return out


@kernel
def add_columns(slots: Slots, coef: FloatArray, eta: FloatArray) -> None:
    """Add Z coef to eta (q, n, c) in place."""
    for m in range(coef.shape[0]):
        if coef[m] != 0.0:
            for slot in range(slots.pointer[m], slots.pointer[m + 1]):
                node, j = slots.node[slot], slots.coordinate[slot]
                for at in range(slots.start[slot], slots.end[slot]):
                    eta[node, slots.rows[at], j] += coef[m] * slots.values[at]


@kernel
def product(slots: Slots, hessian: FloatArray, direction: FloatArray) -> FloatArray:
    """Return Z' H Z direction / n, (m,)."""
    q, n, c = hessian.shape[0], hessian.shape[1], hessian.shape[2]
    moved, change = np.zeros((q, n, c)), np.zeros((q, n, c))
    add_columns(slots, direction, moved)
    for node in range(q):
        for i in range(n):
            for a in range(c):
                if moved[node, i, a] != 0.0:
                    for b in range(c):
                        change[node, i, b] += hessian[node, i, a, b] * moved[node, i, a]
    return gradients(slots, change)


@kernel
def gather(
    indptr: IntArray,
    rows: IntArray,
    values: FloatArray,
    columns: IntArray,
    new_indptr: IntArray,
    new_rows: IntArray,
    new_values: FloatArray,
) -> None:
    """Copy the columns `columns` (c,) of a CSC matrix, in this order, to a new one.

    new_indptr (c + 1,), with new_indptr[0] set by the caller; new_rows, new_values (entries,).
    """
    # bounds: new_rows and new_values have as many entries as these columns together
    to = 0
    for c in range(columns.shape[0]):
        for at in range(indptr[columns[c]], indptr[columns[c] + 1]):
            new_rows[to] = rows[at]
            new_values[to] = values[at]
            to += 1
        new_indptr[c + 1] = to
