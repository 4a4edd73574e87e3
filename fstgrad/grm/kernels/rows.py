"""A, E[t] and Cov[t] of many rows of eta, for the families of counts.

Most rows of sparse data are equal, and most of the others have all their mass on a few counts.  So
equal rows are summed once, and sums over the first counts are vectorized.  Rows with mass beyond
the first counts are left to `fstgrad.grm.kernels.counts`.
"""

import numpy as np
import numpy.typing as npt

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import fused_kernel, kernel, sum_kernel
from fstgrad.grm.kernels.counts import NODES, Table, ends, sum_counts, term_size
from fstgrad.grm.kernels.moments import Moments, clear, empty_moments, fail, finish
from fstgrad.vectors import exponentiate

BitArray = npt.NDArray[np.uint64]
FIRST = 64  # most counts that are summed with vectors; all are single points of the table
STEP = 16  # counts that are added to these sums at a time
FALL = 40.0  # a sum may end at a term this many nats below the highest


@sum_kernel
def total(x: FloatArray) -> float:
    """Return the sum of a vector."""
    found = 0.0
    for q in range(x.shape[0]):
        found += x[q]
    return found


@sum_kernel
def inner_product(x: FloatArray, y: FloatArray) -> float:
    """Return the inner product of x and y[:len(x)]."""
    found = 0.0
    for q in range(x.shape[0]):
        found += x[q] * y[q]
    return found


@fused_kernel
def sum_first(
    eta: FloatArray,
    table: Table,
    columns: FloatArray,
    terms: FloatArray,
    room: FloatArray,
    moments: Moments,
) -> bool:
    """Write the moments of one eta (k,) from its first counts.

    Returns False if the terms after the first FIRST counts are not negligible or the table is
    shorter; the moments are then not valid.
    columns (k, FIRST) : the statistics of the first counts.  terms, room (FIRST,) : scratch memory.
    """
    # bounds: count <= FIRST, the length of columns[j], terms and room, and the table has as many
    # single points
    if table.singles < FIRST or table.points.shape[0] < FIRST:
        return False
    clear(moments)
    moments.mass[0] = 1.0  # the mass of the highest term: a lower bound
    top, count, is_whole = -np.inf, 0, False
    while count < FIRST and not is_whole:
        part, base = terms[count : count + STEP], table.log_base[count : count + STEP]
        for q in range(STEP):
            part[q] = base[q]
        for j in range(columns.shape[0]):
            column = columns[j, count : count + STEP]
            for q in range(STEP):
                part[q] += eta[j] * column[q]
        for q in range(STEP):
            top = max(top, part[q])
        moments.height[0] = top
        count += STEP
        last = terms[count - 1]
        is_whole = last < top - FALL and ends(eta, table, count - 1, last, moments)
    if not (is_whole and top < np.inf):
        return False
    for q in range(count):
        if terms[q] == top:
            moments.size[0] = term_size(eta, table, q)
        terms[q] -= top
    weights, products = terms[:count], room[:count]
    exponentiate(weights, room)
    moments.mass[0] = total(weights)
    for i in range(columns.shape[0]):
        column = columns[i]
        for q in range(count):
            products[q] = weights[q] * column[q]
        moments.first[i] = total(products)
        for j in range(i + 1):
            moments.second[i, j] = inner_product(products, columns[j])
    return True


@kernel
def derivatives(
    eta: FloatArray, table: Table, bounds: FloatArray, mean: FloatArray, covariance: FloatArray
) -> None:
    """Write bounds = (A, bound on its error) (m, 2), E[t] (m, k) and Cov[t] (m, k, k), eta (m, k).

    If the table ends before the terms are negligible, A is +inf and the moments are NaN.  Equal
    rows, the majority in a sparse fit, are summed once.
    """
    m, k = eta.shape
    # bounds: row < m; heights has an entry for each point of a panel, the moments one for each t_j,
    # and terms and room one for each of the first points
    moments, heights = empty_moments(k), np.empty(NODES)
    terms, room = np.empty(FIRST), np.empty(FIRST)
    columns = np.ascontiguousarray(table.statistics[:FIRST].T)
    seen = np.full(table_size(m), -1)
    bits = eta.view(np.uint64)
    for row in range(m):
        same = find_row(eta, bits, row, seen)
        if same >= 0:
            copy_row(bounds, mean, covariance, same, row)
        elif sum_first(eta[row], table, columns, terms, room, moments) or sum_counts(
            eta[row], table, heights, moments
        ):
            finish(moments, bounds[row], mean[row], covariance[row])
        else:
            fail(bounds[row], mean[row], covariance[row])


@kernel
def copy_row(
    bounds: FloatArray, mean: FloatArray, covariance: FloatArray, same: int, row: int
) -> None:
    """Copy the results of row `same` to row `row`."""
    k = mean.shape[1]  # bounds: same < row < m, the length of all
    bounds[row, 0], bounds[row, 1] = bounds[same, 0], bounds[same, 1]
    for i in range(k):  # slices cost more than these few entries
        mean[row, i] = mean[same, i]
        for j in range(k):
            covariance[row, i, j] = covariance[same, i, j]


@kernel
def table_size(m: int) -> int:
    """Return the number of slots of a hash table for m rows: the first power of two >= 2 m."""
    size = 2
    while size < 2 * m:
        size *= 2
    return size


@kernel
def find_row(eta: FloatArray, bits: BitArray, row: int, seen: IntArray) -> int:
    """Return an earlier row equal to `row`; if there is none, enter `row` in `seen`, return -1.

    bits : (m, k) uint64, the bits of eta.  seen : (table_size(m),) int64, a hash table of rows with
    -1 in free slots.
    """
    # bounds: at < len(seen), a power of two; at most m of at least 2 m slots are used, so one is
    # free
    key = np.uint64(1469598103934665603)
    for j in range(bits.shape[1]):
        key = (key ^ bits[row, j]) * np.uint64(1099511628211)
        key ^= key >> np.uint64(29)
    at = np.int64(key & np.uint64(seen.shape[0] - 1))
    while seen[at] >= 0:
        other = seen[at]
        equal = True
        for j in range(bits.shape[1]):
            equal = equal and eta[other, j] == eta[row, j]
        if equal:
            return int(other)
        at = (at + 1) & (seen.shape[0] - 1)
    seen[at] = row
    return -1
