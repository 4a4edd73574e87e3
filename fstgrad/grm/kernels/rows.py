"""A, E[t] and Cov[t] of many rows of eta, for the families of counts.

Most rows of sparse data are equal, and most of the others have all their mass on a few counts:
equal rows are summed once, and the first counts are summed in vectors.  What the first counts do
not hold goes to `fstgrad.grm.kernels.counts`.
"""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import fused_kernel, kernel
from fstgrad.grm.kernels.counts import NODES, Table, ends, sum_counts, term_size
from fstgrad.grm.kernels.moments import Moments, clear, empty_moments, fail, finish
from fstgrad.vectors import exponentiate

FIRST = 64  # counts that are summed in vectors, all of them one by one in the table
STEP = 16  # counts that join these sums at a time
FALL = 40.0  # nats below the highest term at which the last one may end a sum


@fused_kernel
def total(x: FloatArray, count: int) -> float:
    """Return the sum of the first entries of x; `count` is a multiple of 4."""
    # four sums, so that none waits for another: q + 3 < count
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for q in range(0, count, 4):
        a += x[q]
        b += x[q + 1]
        c += x[q + 2]
        d += x[q + 3]
    return (a + b) + (c + d)


@fused_kernel
def inner_product(x: FloatArray, y: FloatArray, count: int) -> float:
    """Return the inner product of the first entries of x and y; `count` is a multiple of 4."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for q in range(0, count, 4):
        a += x[q] * y[q]
        b += x[q + 1] * y[q + 1]
        c += x[q + 2] * y[q + 2]
        d += x[q + 3] * y[q + 3]
    return (a + b) + (c + d)


@fused_kernel
def sum_first(
    eta: FloatArray,
    table: Table,
    columns: FloatArray,
    terms: FloatArray,
    room: FloatArray,
    moments: Moments,
) -> bool:
    """Sum one row over its first counts; return False unless what follows them is negligible.

    columns (k, FIRST) : the statistics of the first counts.  terms, room (FIRST,) : room.
    """
    # count <= FIRST is the length of columns[j], terms and room; the table has as many singles
    if table.singles < FIRST or table.points.shape[0] < FIRST:
        return False
    clear(moments)
    moments.mass[0] = 1.0  # that of the highest term, a lower bound
    count, is_whole = 0, False
    while count < FIRST and not is_whole:
        for q in range(count, count + STEP):
            terms[q] = table.log_base[q]
        for j in range(columns.shape[0]):
            for q in range(count, count + STEP):
                terms[q] += eta[j] * columns[j, q]
        for q in range(count, count + STEP):
            moments.height[0] = max(moments.height[0], terms[q])
        count += STEP
        last = terms[count - 1]
        is_whole = last < moments.height[0] - FALL and ends(eta, table, count - 1, last, moments)
    top = moments.height[0]
    if not (is_whole and top < np.inf):
        return False
    for q in range(count):
        if terms[q] == top:
            moments.size[0] = term_size(eta, table, q)
        terms[q] -= top
    exponentiate(terms[:count], room)
    moments.mass[0] = total(terms, count)
    for i in range(columns.shape[0]):
        for q in range(count):
            room[q] = terms[q] * columns[i, q]
        moments.first[i] = total(room, count)
        for j in range(i + 1):
            moments.second[i, j] = inner_product(room, columns[j], count)
    return True


@kernel
def derivatives(
    eta: FloatArray, table: Table, bounds: FloatArray, mean: FloatArray, covariance: FloatArray
) -> None:
    """Fill A and its largest error (m, 2), E[t] (m, k) and Cov[t] (m, k, k) for eta (m, k).

    A is +inf where the table ends before the sum does.  Rows that are equal, most of a sparse fit,
    are summed once.
    """
    m, k = eta.shape
    # row < m; heights has a place for each point of a panel, the moments one for each t_j, and
    # terms and room one for each of the first points
    moments, heights = empty_moments(k), np.empty(NODES)
    terms, room = np.empty(FIRST), np.empty(FIRST)
    columns = np.ascontiguousarray(table.statistics[:FIRST].T)
    seen = np.full(table_size(m), -1)
    for row in range(m):
        same = find_row(eta, row, seen)
        if same >= 0:
            bounds[row], mean[row], covariance[row] = bounds[same], mean[same], covariance[same]
        elif sum_first(eta[row], table, columns, terms, room, moments) or sum_counts(
            eta[row], table, heights, moments
        ):
            finish(moments, bounds[row], mean[row], covariance[row])
        else:
            fail(bounds[row], mean[row], covariance[row])


@kernel
def table_size(m: int) -> int:
    """Return a power of two of at least 2 m, the slots of a hash table."""
    size = 2
    while size < 2 * m:
        size *= 2
    return size


@kernel
def find_row(eta: FloatArray, row: int, seen: IntArray) -> int:
    """Return an earlier row equal to `row`, or -1 and note the row in the hash table `seen`."""
    # at < len(seen), a power of two; at most m of at least 2 m slots are taken, so one is free
    key = np.uint64(1469598103934665603)
    bits = eta[row].view(np.uint64)
    for j in range(bits.shape[0]):
        key = (key ^ bits[j]) * np.uint64(1099511628211)
        key ^= key >> np.uint64(29)
    at = np.int64(key & np.uint64(seen.shape[0] - 1))
    while seen[at] >= 0:
        other = seen[at]
        equal = True
        for j in range(bits.shape[0]):
            equal = equal and eta[other, j] == eta[row, j]
        if equal:
            return int(other)
        at = (at + 1) & (seen.shape[0] - 1)
    seen[at] = row
    return -1
