"""The design: products of statistics over sets of variables, and eta as sums of such products.

A set S of the term with root j adds theta_S prod_{t in S, t != s} t_j(x_t) to coordinate j of eta
of node s, for every s in S, and theta_S prod_{t in S} t_j(x_t) to log p(x).  For a fitted model,
`add_interactions` and `add_energies` compute both from the sets, which are the arrays of
`Parameters.flat`: sizes (m,), roots (m,) from 1, members (m, largest size) padded with -1, values
(m,) = theta_S.

A fit stores the products as the columns of a sparse matrix Z.  A parameter adds a multiple of a
column to one coordinate of eta of one node: this is a slot.  A tied parameter has several slots,
one for each of its nodes, with different columns.  eta = offset + Z coef; eta is (q nodes, n
samples, c coordinates), and there are m parameters.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel
from fstgrad.core.uninitialized import empty


class SparseDesign(NamedTuple):
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


@kernel
def add_interactions(
    statistics: FloatArray,
    sizes: IntArray,
    roots: IntArray,
    members: IntArray,
    values: FloatArray,
    eta: FloatArray,
) -> None:
    """Add theta_S prod_{t in S, t != s} t_j(x_t) to eta[row, s, j - 1], for every S and s in S.

    statistics : (n, p, >= k).  eta : (n, p, >= k), changed in place.
    Cost O(n m size^2); a set is skipped in a row in which two of its members are 0.
    """
    for row in range(statistics.shape[0]):
        for number in range(values.shape[0]):
            j = roots[number] - 1
            zeros = 0
            for a in range(sizes[number]):
                if statistics[row, members[number, a], j] == 0.0:
                    zeros += 1
            if zeros > 1:
                continue
            for a in range(sizes[number]):
                product = values[number]
                for b in range(sizes[number]):
                    if b != a:
                        product *= statistics[row, members[number, b], j]
                eta[row, members[number, a], j] += product


@kernel
def add_energies(
    statistics: FloatArray,
    sizes: IntArray,
    roots: IntArray,
    members: IntArray,
    values: FloatArray,
    energy: FloatArray,
) -> None:
    """Add sum_S theta_S prod_{t in S} t_j(x_t) to energy (n,), for statistics (n, p, >= k).

    Cost O(n m size).
    """
    for row in range(statistics.shape[0]):
        for number in range(values.shape[0]):
            product = values[number]
            for a in range(sizes[number]):
                product *= statistics[row, members[number, a], roots[number] - 1]
            energy[row] += product


@kernel
def subset_products(
    indptr: IntArray,
    indices: IntArray,
    data: FloatArray,
    size: int,
    binomial: IntArray,
    keys: IntArray,
    rows: IntArray,
    values: FloatArray,
) -> None:
    """Write (key, row, product) for every subset of `size` non-zeros of every row of a CSR matrix.

    The key of the columns i_1 < ... < i_size is the combinatorial number sum_j C(i_j, j), a rank
    without gaps; binomial[i, j] = C(i, j).  product is that of the entries.  keys, rows and values
    have length sum over rows of C(nnz_row, size), which is also the cost.
    """
    # bounds: entry < sum over rows of C(count, size), the length of keys, rows and values
    position = empty(size, dtype=np.int64)
    entry = 0
    for row in range(indptr.shape[0] - 1):
        start, count = indptr[row], indptr[row + 1] - indptr[row]
        if count < size:
            continue
        for j in range(size):
            position[j] = j
        while True:
            key = 0
            product = 1.0
            for j in range(size):
                at = start + position[j]
                key += binomial[indices[at], j + 1]
                product *= data[at]
            keys[entry], rows[entry], values[entry] = key, row, product
            entry += 1
            j = size - 1
            while j >= 0 and position[j] == count - size + j:
                j -= 1
            if j < 0:
                break
            position[j] += 1
            for later in range(j + 1, size):
                position[later] = position[later - 1] + 1


@kernel
def column_products(
    indptr: IntArray,
    rows: IntArray,
    values: FloatArray,
    columns: IntArray,
    vector: FloatArray,
    out: FloatArray,
) -> None:
    """Write out[c] = <column columns[c] of a CSC matrix, vector>; out (m,), vector (n,)."""
    for c in range(columns.shape[0]):
        total = 0.0
        for at in range(indptr[columns[c]], indptr[columns[c] + 1]):
            total += values[at] * vector[rows[at]]
        out[c] = total


@kernel
def add_rows(
    indptr: IntArray,
    columns: npt.NDArray[np.int32],
    values: FloatArray,
    rows: IntArray,
    vector: FloatArray,
    out: FloatArray,
) -> None:
    """Add sum over r in `rows` of vector[r] * (row r of a CSR matrix) to out (columns,).

    vector : (n,).  columns : int32, the column of each entry.
    """
    # bounds: columns[at] < len(out); rows[r] < len(vector)
    for r in range(rows.shape[0]):
        weight = vector[rows[r]]
        for at in range(indptr[rows[r]], indptr[rows[r] + 1]):
            out[columns[at]] += weight * values[at]


@kernel
def gather_columns(
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


@inner_kernel
def column_sum(m: int, slots: SparseDesign, values: FloatArray, table: FloatArray) -> float:
    """Return the inner product of the columns of parameter m, with entries `values`, and a table.

    table (q, n, c); sum over slots and entries of values[entry] * table[node, row, coordinate].
    """
    total = 0.0
    for slot in range(slots.pointer[m], slots.pointer[m + 1]):
        node, j = slots.node[slot], slots.coordinate[slot]
        for at in range(slots.start[slot], slots.end[slot]):
            total += values[at] * table[node, slots.rows[at], j]
    return total


@kernel
def weighted_loss(
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
def gradients(slots: SparseDesign, residual: FloatArray) -> FloatArray:
    """Return the gradient (m,) of the mean loss, Z' residual / n, from its derivative by eta.

    residual (q, n, c).
    """
    out = empty(slots.pointer.shape[0] - 1)
    for m in range(out.shape[0]):
        out[m] = column_sum(m, slots, slots.values, residual) / residual.shape[1]
    return out


@kernel
def curvatures(slots: SparseDesign, hessian: FloatArray) -> FloatArray:
    """Return the second derivatives (m,) of the mean loss, the diagonal of Z' H Z / n."""
    diagonal = empty(hessian.shape[:3])
    for q in range(hessian.shape[0]):
        for row in range(hessian.shape[1]):
            for j in range(hessian.shape[2]):
                diagonal[q, row, j] = hessian[q, row, j, j]
    squares = slots.values * slots.values
    out = empty(slots.pointer.shape[0] - 1)
    for m in range(out.shape[0]):
        out[m] = column_sum(m, slots, squares, diagonal) / hessian.shape[1]
    return out


@kernel
def add_columns(slots: SparseDesign, coef: FloatArray, eta: FloatArray) -> None:
    """Add Z coef to eta (q, n, c) in place."""
    for m in range(coef.shape[0]):
        if coef[m] != 0.0:
            for slot in range(slots.pointer[m], slots.pointer[m + 1]):
                node, j = slots.node[slot], slots.coordinate[slot]
                for at in range(slots.start[slot], slots.end[slot]):
                    eta[node, slots.rows[at], j] += coef[m] * slots.values[at]


@kernel
def hessian_product(slots: SparseDesign, hessian: FloatArray, direction: FloatArray) -> FloatArray:
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
