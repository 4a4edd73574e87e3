"""Coordinate descent on the quadratic model of one or of many l1 regressions with tied parameters.

The slopes of the model are sums over columns, or they are kept up to date by the normal matrices of
the nodes.  With matrices, a step costs a row of each of its matrices, in place of two passes over
its columns (covariance updates: Friedman, Hastie and Tibshirani 2010).
"""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import add_scaled
from fstgrad.grm.kernels.design import SparseDesign, column_sum, curvatures


class NormalMatrices(NamedTuple):
    """The normal matrices of the nodes; their rows and columns are the slots of each node.

    place (s,) : the number of each slot if slots are ordered by node.
    first, last (s,) : the slots of the same node have the numbers first .. last - 1.
    start (s,), entries : the row of a slot is entries[start : start + last - first]; without
        matrices, `entries` is empty.
    """

    place: IntArray
    first: IntArray
    last: IntArray
    start: IntArray
    entries: FloatArray


class Quadratic(NamedTuple):
    """The quadratic model of the objective at coef + d, as a function of the direction d (m,).

        gradient . d + sum_s mean_i (Z d)_si' H_si (Z d)_si / 2
                     + sum_j ( ridge_j d_j^2 / 2 + penalty_j |coef_j + d_j| ).

    hessian (q, n, c, c) : H.  gradient, penalty, ridge, coef (m,).
    blocks (q, u) : the u unpenalised parameters of each node, which are moved together.
    inverses (q, u, u) : the inverses of their mean Hessians.
    normal : the normal matrices Z_s' H_s Z_s / n of the nodes, or no matrices.
    """

    hessian: FloatArray
    gradient: FloatArray
    penalty: FloatArray
    ridge: FloatArray
    coef: FloatArray
    blocks: IntArray
    inverses: FloatArray
    normal: NormalMatrices


@kernel
def count_products(slots: SparseDesign, order: IntArray, samples: int) -> float:
    """Return the number of products of two entries of the same sample and node.

    order (s,) : the slots in the order of their nodes.
    """
    counts, node, out = np.zeros(samples), -1, 0.0
    for slot in order:
        if slots.node[slot] != node:
            node = slots.node[slot]
            counts[:] = 0.0
        for at in range(slots.start[slot], slots.end[slot]):
            count = counts[slots.rows[at]]
            counts[slots.rows[at]] = count + 1.0
            out += 2.0 * count + 1.0
    return out


@kernel
def fill_matrix(
    slots: SparseDesign, mine: IntArray, hessian: FloatArray, entries: FloatArray
) -> None:
    """Write the normal matrix (m * m,) of a node with slots `mine` (m,), and hessian (n, c, c)."""
    entries[:] = 0.0
    full = empty(mine.shape[0], np.bool_)
    for a in range(mine.shape[0]):
        full[a] = is_full(slots, mine[a], hessian.shape[0])
    add_full_columns(slots, mine, full, hessian, entries)
    add_other_columns(slots, mine[~full], np.flatnonzero(~full), hessian, entries)
    m = mine.shape[0]
    for a in range(m):
        for b in range(a):
            entries[b * m + a] = entries[a * m + b]


@part_kernel
def is_full(slots: SparseDesign, slot: int, n: int) -> bool:
    """Return whether a column has an entry for each of n samples, in their order."""
    start = slots.start[slot]
    if slots.end[slot] - start != n:
        return False
    row = 0
    while row < n and slots.rows[start + row] == row:
        row += 1
    return row == n


@part_kernel
def add_full_columns(
    slots: SparseDesign,
    mine: IntArray,
    full: BoolArray,
    hessian: FloatArray,
    entries: FloatArray,
) -> None:
    """Write the products of full columns with all columns below the diagonal: row by column."""
    n, m = hessian.shape[0], mine.shape[0]
    for a in range(m):
        if not full[a]:
            continue
        i, first = slots.coordinate[mine[a]], slots.start[mine[a]]
        for b in range(m):
            if full[b] and b > a:
                continue
            j, total = slots.coordinate[mine[b]], 0.0
            for at in range(slots.start[mine[b]], slots.end[mine[b]]):
                row = slots.rows[at]
                total += slots.values[at] * hessian[row, i, j] * slots.values[first + row]
            entries[max(a, b) * m + min(a, b)] = total / n


@part_kernel
def add_other_columns(
    slots: SparseDesign,
    mine: IntArray,
    number: IntArray,
    hessian: FloatArray,
    entries: FloatArray,
) -> None:
    """Add the products of the columns of slots `mine`, sample by sample, below the diagonal.

    number (columns,) : the rows of the matrix for these columns, ascending.
    """
    # bounds: start[row] counts the entries of a row that were written, so to < the total of counts
    # a counting sort orders the entries by sample: two columns meet only in samples of both
    n, m = hessian.shape[0], int(np.sqrt(entries.shape[0]) + 0.5)
    start = np.zeros(n + 1, np.int64)
    for slot in mine:
        for at in range(slots.start[slot], slots.end[slot]):
            start[slots.rows[at] + 1] += 1
    for row in range(n):
        start[row + 1] += start[row]
    local_slot, value = empty(start[n], np.int64), empty(start[n])
    for local in range(mine.shape[0]):
        for at in range(slots.start[mine[local]], slots.end[mine[local]]):
            to = start[slots.rows[at]]
            local_slot[to], value[to] = local, slots.values[at]
            start[slots.rows[at]] += 1
    coordinate, first = slots.coordinate[mine], 0
    places, changes = empty(m, np.uint64), empty((hessian.shape[1], m))
    for row in range(n):
        last = start[row]  # now the end of the row
        for b in range(last - first):
            places[b] = number[local_slot[first + b]]
            j, part = coordinate[local_slot[first + b]], value[first + b] / n
            for i in range(changes.shape[0]):
                changes[i, b] = hessian[row, i, j] * part
        for a in range(last - first):
            i, share = coordinate[local_slot[first + a]], value[first + a]
            to = places[a] * np.uint64(m)
            for b in range(a + 1):
                entries[to + places[b]] += share * changes[i, b]
        first = last


@inner_kernel
def soft_threshold(now: float, slope: float, curvature: float, penalty: float) -> float:
    """Return the minimum of slope (b - now) + curvature (b - now)^2 / 2 + penalty |b|.

    It is the soft threshold sign(t) max(|t| - penalty / curvature, 0) of t = now - slope /
    curvature; without curvature, `now`.
    """
    if curvature <= 0.0:
        return now
    target, threshold = now - slope / curvature, penalty / curvature
    if target > threshold:
        return target - threshold
    return target + threshold if target < -threshold else 0.0


@part_kernel
def add_columns_of(
    m: int, delta: float, slots: SparseDesign, hessian: FloatArray, change: FloatArray
) -> None:
    """Add H Z e_m delta to `change` (q, n, c)."""
    for slot in range(slots.pointer[m], slots.pointer[m + 1]):
        node, j = slots.node[slot], slots.coordinate[slot]
        for at in range(slots.start[slot], slots.end[slot]):
            row, amount = slots.rows[at], delta * slots.values[at]
            for i in range(change.shape[2]):
                change[node, row, i] += amount * hessian[node, row, j, i]


@kernel
def quadratic_descent(
    slots: SparseDesign, model: Quadratic, tol: float, rough: float, sweeps: int
) -> tuple[FloatArray, bool]:
    """Return the direction (m,) that minimises the penalised quadratic model, and if it is good.

    A sweep over all parameters is followed by sweeps over the non-zero and unpenalised ones, until
    no step changes a gradient by more than `tol`; then all are swept again, and the search has
    converged if the same holds.  After `sweeps` sweeps, the direction is good if no step of the
    last one changes a gradient by more than `rough`.  Every sweep first moves the blocks; their
    parameters do not move separately.
    """
    direction, everything = np.zeros(model.gradient.shape[0]), True
    in_block = np.zeros(direction.shape[0], dtype=np.bool_)
    for head in model.blocks.ravel():
        in_block[head] = True
    if model.normal.entries.shape[0] > 0:
        curvature = diagonals(slots.pointer, model.normal) + model.ridge
        slopes, change = np.zeros(slots.node.shape[0]), np.zeros((0, 0, 0))
    else:
        curvature = curvatures(slots, model.hessian) + model.ridge
        slopes, change = np.zeros(0), np.zeros(model.hessian.shape[:3])
    largest = np.inf
    for _ in range(sweeps):
        moves = ~in_block
        if not everything:
            moves &= (model.penalty == 0.0) | (model.coef + direction != 0.0)
        state = direction, curvature, moves
        largest = sweep(slots, model, slopes, change, state)
        if everything and largest <= tol:
            break
        everything = largest <= tol
    return direction, largest <= max(tol, rough)


@part_kernel
def sweep(
    slots: SparseDesign,
    model: Quadratic,
    slopes: FloatArray,
    change: FloatArray,
    state: tuple[FloatArray, FloatArray, BoolArray],
) -> float:
    """Minimise the model in the blocks, then in each parameter that moves.

    slopes (s,), with matrices : Z' H Z d / n of each slot, in the order of `NormalMatrices.place`.
    change (q, n, c), without : H Z d.
    state : direction, curvature and moves (m,).
    Returns the largest change of a gradient by a step.
    """
    direction, curvature, moves = state
    gradient, penalty, ridge, coef = model.gradient, model.penalty, model.ridge, model.coef
    normal, hessian, pointer, u = model.normal, model.hessian, slots.pointer, model.blocks.shape[1]
    by_rows, n, largest = slopes.shape[0] > 0, hessian.shape[1], 0.0
    steps = empty(u)
    for node in range(model.blocks.shape[0]):
        for a in range(u):
            m = int(model.blocks[node, a])
            if by_rows:
                slope = row_sum(m, pointer, normal.place, slopes)
            else:
                slope = column_sum(m, slots, slots.values, change) / n
            steps[a] = gradient[m] + ridge[m] * direction[m] + slope
            largest = max(largest, abs(steps[a]))
        for a in range(u):
            delta, m = 0.0, int(model.blocks[node, a])
            for b in range(u):
                delta -= model.inverses[node, a, b] * steps[b]
            direction[m] += delta
            if by_rows:
                add_normal_rows(m, delta, pointer, normal, slopes)
            else:
                add_columns_of(m, delta, slots, hessian, change)
    for m in range(moves.shape[0]):
        if not moves[m]:
            continue
        if by_rows:
            slope = row_sum(m, pointer, normal.place, slopes)
        else:
            slope = column_sum(m, slots, slots.values, change) / n
        slope += gradient[m] + ridge[m] * direction[m]
        now = coef[m] + direction[m]
        delta = soft_threshold(now, slope, curvature[m], penalty[m]) - now
        largest = max(largest, abs(delta) * curvature[m])
        if delta != 0.0:
            direction[m] += delta
            if by_rows:
                add_normal_rows(m, delta, pointer, normal, slopes)
            else:
                add_columns_of(m, delta, slots, hessian, change)
    return largest


@part_kernel
def row_sum(m: int, pointer: IntArray, place: IntArray, slopes: FloatArray) -> float:
    """Return the sum of the slopes of the slots of parameter m."""
    total = 0.0
    for slot in range(pointer[m], pointer[m + 1]):
        total += slopes[place[slot]]
    return total


@part_kernel
def add_normal_rows(
    m: int, delta: float, pointer: IntArray, normal: NormalMatrices, slopes: FloatArray
) -> None:
    """Add delta times the rows of parameter m in the normal matrices to the slopes."""
    for slot in range(pointer[m], pointer[m + 1]):
        first, last, start = normal.first[slot], normal.last[slot], normal.start[slot]
        add_scaled(slopes[first:last], normal.entries[start : start + last - first], delta)


@part_kernel
def diagonals(pointer: IntArray, normal: NormalMatrices) -> FloatArray:
    """Return the second derivatives (m,) of the mean loss from the normal matrices."""
    out = np.zeros(pointer.shape[0] - 1)
    for m in range(out.shape[0]):
        for slot in range(pointer[m], pointer[m + 1]):
            out[m] += normal.entries[normal.start[slot] + normal.place[slot] - normal.first[slot]]
    return out
