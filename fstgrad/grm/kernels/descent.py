"""Coordinate descent on the quadratic model of one or of many l1 regressions with tied parameters.

A parameter adds a multiple of a column of the design to one coordinate of eta of one node: this is
a slot.  A tied parameter has several slots, one for each of its nodes, with different columns.
With Z the design, eta = offset + Z coef; eta is (q nodes, n samples, c coordinates), and there are
m parameters.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import inner_kernel, kernel


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


class Quadratic(NamedTuple):
    """The quadratic model of the objective at coef + d, as a function of the direction d (m,).

        gradient . d + sum_s mean_i (Z d)_si' H_si (Z d)_si / 2
                     + sum_j ( ridge_j d_j^2 / 2 + penalty_j |coef_j + d_j| ).

    hessian (q, n, c, c) : H.  gradient, penalty, ridge, coef (m,).
    blocks (q, u) : the u unpenalised parameters of each node, which are moved together.
    coordinates (u,) : the coordinates of eta that they act on.
    inverses (q, u, u) : the inverses of their mean Hessians.
    """

    hessian: FloatArray
    gradient: FloatArray
    penalty: FloatArray
    ridge: FloatArray
    coef: FloatArray
    blocks: IntArray
    coordinates: IntArray
    inverses: FloatArray


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
    out = np.empty(slots.pointer.shape[0] - 1)
    for m in range(out.shape[0]):
        out[m] = column_sum(m, slots, slots.values, residual) / residual.shape[1]
    return out


@kernel
def curvatures(slots: Slots, hessian: FloatArray) -> FloatArray:
    """Return the second derivatives (m,) of the mean loss, the diagonal of Z' H Z / n."""
    diagonal = np.empty(hessian.shape[:3])
    for j in range(hessian.shape[3]):
        diagonal[:, :, j] = hessian[:, :, j, j]
    squares = slots.values * slots.values
    out = np.empty(slots.pointer.shape[0] - 1)
    for m in range(out.shape[0]):
        out[m] = column_sum(m, slots, squares, diagonal) / hessian.shape[1]
    return out


@kernel
def sample_means(hessian: FloatArray) -> FloatArray:
    """Return the mean (q, c, c) over the samples of matrices (q, n, c, c)."""
    q, n, c = hessian.shape[0], hessian.shape[1], hessian.shape[2]
    out = np.zeros((q, c, c))
    for node in range(q):
        for i in range(n):
            for a in range(c):
                for b in range(c):
                    out[node, a, b] += hessian[node, i, a, b] / n
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
def step(
    m: int,
    slots: Slots,
    model: Quadratic,
    curvature: FloatArray,
    direction: FloatArray,
    change: FloatArray,
) -> float:
    """Minimise the model in parameter m; return |change of the parameter| * curvature.

    With b = coef + direction and slope g of the smooth part, b becomes the soft threshold
    sign(b - g / curvature) max(|b - g / curvature| - penalty / curvature, 0).
    curvature (m,) includes the ridge.  direction (m,) and change (q, n, c) = H Z direction are
    updated in place.  A parameter without curvature does not move.
    """
    if curvature[m] <= 0.0:
        return 0.0
    slope = column_sum(m, slots, slots.values, change) / change.shape[1]
    slope = model.gradient[m] + model.ridge[m] * direction[m] + slope
    now = model.coef[m] + direction[m]
    target = now - slope / curvature[m]
    threshold = model.penalty[m] / curvature[m]
    if target > threshold:
        new = target - threshold
    elif target < -threshold:
        new = target + threshold
    else:
        new = 0.0
    delta = new - now
    if delta == 0.0:
        return 0.0
    direction[m] += delta
    for slot in range(slots.pointer[m], slots.pointer[m + 1]):
        node, j = slots.node[slot], slots.coordinate[slot]
        for at in range(slots.start[slot], slots.end[slot]):
            row = slots.rows[at]
            amount = delta * slots.values[at]
            for i in range(change.shape[2]):
                change[node, row, i] += amount * model.hessian[node, row, j, i]
    return float(abs(delta) * curvature[m])


@kernel
def block_step(node: int, model: Quadratic, direction: FloatArray, change: FloatArray) -> float:
    """Minimise the model in the unpenalised parameters of a node, jointly, by a Newton step.

    Updates `direction` and `change` as `step` does; returns the largest |slope| before the step.
    """
    n, c = change.shape[1], change.shape[2]
    u = model.coordinates.shape[0]
    slope, delta = np.zeros(u), np.zeros(u)
    largest = 0.0
    for a in range(u):
        for i in range(n):
            slope[a] += change[node, i, model.coordinates[a]]
        m = model.blocks[node, a]
        slope[a] = model.gradient[m] + model.ridge[m] * direction[m] + slope[a] / n
        largest = max(largest, abs(slope[a]))
    for a in range(u):
        for b in range(u):
            delta[a] -= model.inverses[node, a, b] * slope[b]
        direction[model.blocks[node, a]] += delta[a]
    for i in range(n):
        for a in range(u):
            j = model.coordinates[a]
            for b in range(c):
                change[node, i, b] += delta[a] * model.hessian[node, i, j, b]
    return largest


@kernel
def quadratic_descent(
    slots: Slots, model: Quadratic, tol: float, sweeps: int
) -> tuple[FloatArray, bool]:
    """Return the direction (m,) that minimises the penalised quadratic model, and if it converged.

    A sweep over all parameters is followed by sweeps over the non-zero and unpenalised ones, until
    no step changes a gradient by more than `tol`; then all are swept again, and the search
    has converged if the same holds.  Stops after `sweeps` sweeps with the current direction and
    False.  Every sweep first moves the blocks; their parameters do not move separately.
    """
    q, n, c = model.hessian.shape[0], model.hessian.shape[1], model.hessian.shape[2]
    count = model.gradient.shape[0]
    curvature = curvatures(slots, model.hessian) + model.ridge
    in_block = np.zeros(count, dtype=np.bool_)
    for node in range(q):
        for a in range(model.coordinates.shape[0]):
            in_block[model.blocks[node, a]] = True
    direction, change = np.zeros(count), np.zeros((q, n, c))
    everything = True
    for _ in range(sweeps):
        largest = 0.0
        for node in range(q):
            largest = max(largest, block_step(node, model, direction, change))
        for m in range(count):
            if in_block[m]:
                continue
            if everything or model.penalty[m] == 0.0 or model.coef[m] + direction[m] != 0.0:
                largest = max(largest, step(m, slots, model, curvature, direction, change))
        if largest <= tol:
            if everything:
                return direction, True
            everything = True
        else:
            everything = False
    return direction, False


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
