"""Kernels of sparse designs: products of statistics of sets of variables, and sums of columns."""

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel
from fstgrad.core.uninitialized import empty


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
