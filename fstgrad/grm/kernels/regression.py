"""Coordinate descent on the quadratic model of one l1 node regression."""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel


@kernel
def curvatures(
    indptr: IntArray, rows: IntArray, values: FloatArray, root: IntArray, hessian: FloatArray
) -> FloatArray:
    """Return mean_i z_ic^2 H_i[j, j] for every column c of the working set, j = root[c]."""
    n = hessian.shape[0]
    out = np.empty(root.shape[0])
    for c in range(root.shape[0]):
        j = root[c]
        total = 0.0
        for at in range(indptr[c], indptr[c + 1]):
            total += values[at] * values[at] * hessian[rows[at], j, j]
        out[c] = total / n
    return out


@kernel
def gradients(
    indptr: IntArray, rows: IntArray, values: FloatArray, root: IntArray, residual: FloatArray
) -> FloatArray:
    """Return mean_i z_ic r_i[j] for every column c of the working set, j = root[c]."""
    n = residual.shape[0]
    out = np.empty(root.shape[0])
    for c in range(root.shape[0]):
        j = root[c]
        total = 0.0
        for at in range(indptr[c], indptr[c + 1]):
            total += values[at] * residual[rows[at], j]
        out[c] = total / n
    return out


@kernel
def step(
    c: int,
    indptr: IntArray,
    rows: IntArray,
    values: FloatArray,
    root: IntArray,
    hessian: FloatArray,
    gradient: FloatArray,
    curvature: FloatArray,
    penalty: FloatArray,
    coef: FloatArray,
    direction: FloatArray,
    change: FloatArray,
) -> float:
    """Minimise the quadratic model in coordinate c; return the change in units of the gradient.

    change : (n, k), H_i times the change of eta_i along `direction`; kept up to date.
    """
    n, k = change.shape
    if curvature[c] <= 0.0:
        return 0.0
    j = root[c]
    slope = 0.0
    for at in range(indptr[c], indptr[c + 1]):
        slope += values[at] * change[rows[at], j]
    slope = gradient[c] + slope / n
    now = coef[c] + direction[c]
    target = now - slope / curvature[c]
    threshold = penalty[c] / curvature[c]
    if target > threshold:
        new = target - threshold
    elif target < -threshold:
        new = target + threshold
    else:
        new = 0.0
    delta = new - now
    if delta == 0.0:
        return 0.0
    direction[c] += delta
    for at in range(indptr[c], indptr[c + 1]):
        row = rows[at]
        amount = delta * values[at]
        for i in range(k):
            change[row, i] += amount * hessian[row, j, i]
    return float(abs(delta) * curvature[c])


@kernel
def quadratic_descent(
    indptr: IntArray,
    rows: IntArray,
    values: FloatArray,
    root: IntArray,
    hessian: FloatArray,
    gradient: FloatArray,
    penalty: FloatArray,
    coef: FloatArray,
    tolerance: float,
    sweeps: int,
) -> tuple[FloatArray, bool]:
    """Return the direction (c,) that minimises the penalised quadratic model, and if it does.

    The model is <gradient, d> + mean_i (Z d)_i H_i (Z d)_i / 2 + <penalty, |coef + d|>, with the
    columns of Z in CSC form, column c acting on coordinate root[c] of eta.  Sweeps over all
    columns alternate with sweeps over the non-zero ones until no gradient moves by `tolerance`.
    After `sweeps` of them the direction is what it is, and the second value False.
    """
    n, k = hessian.shape[0], hessian.shape[1]
    count = root.shape[0]
    curvature = curvatures(indptr, rows, values, root, hessian)
    direction = np.zeros(count)
    change = np.zeros((n, k))
    everything = True
    for _ in range(sweeps):
        largest = 0.0
        for c in range(count):
            if everything or penalty[c] == 0.0 or coef[c] + direction[c] != 0.0:
                moved = step(
                    c, indptr, rows, values, root, hessian, gradient, curvature, penalty, coef,
                    direction, change,
                )  # fmt: skip
                largest = max(largest, moved)
        if largest <= tolerance:
            if everything:
                return direction, True
            everything = True
        else:
            everything = False
    return direction, False


@kernel
def add_columns(
    indptr: IntArray,
    rows: IntArray,
    values: FloatArray,
    root: IntArray,
    coef: FloatArray,
    eta: FloatArray,
) -> None:
    """Add Z coef to eta (n, k) in place."""
    for c in range(root.shape[0]):
        if coef[c] != 0.0:
            for at in range(indptr[c], indptr[c + 1]):
                eta[rows[at], root[c]] += coef[c] * values[at]


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
    """Copy the CSC columns `columns` behind one another, in the order given."""
    to = 0
    for c in range(columns.shape[0]):
        for at in range(indptr[columns[c]], indptr[columns[c] + 1]):
            new_rows[to] = rows[at]
            new_values[to] = values[at]
            to += 1
        new_indptr[c + 1] = to
