"""A, E[t] and Cov[t] of many rows of eta: the sums of `kernels.counts`, several rows at once.

Most rows of sparse data are equal, and most of the others have all their mass on a few counts.  So
equal rows are summed once, and sums over the first counts run for a block of rows at once, a vector
instruction for several rows.  Rows with mass beyond the first counts are left to `sum_counts`.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import add_scaled, exponentiate, logarithms
from fstgrad.grm.kernels.counts import (
    NEGLIGIBLE,
    NODES,
    Table,
    empty_moments,
    sum_counts,
    write_divergence,
    write_results,
)

BitArray = npt.NDArray[np.uint64]
FIRST = 64  # most counts that are summed in blocks; all are single points of the table
STEP = 8  # counts that are added to these sums at a time
LANES, FEWEST = 64, 8  # rows of a block, and of one for few rows
FALL = 40.0  # a sum may end at a term this many nats below the highest
LOW = -1e4  # in nats; exp(LOW) is 0


class Block(NamedTuple):
    """The sums of a block of L rows of eta, and memory for them.

    rows (L,) int64 : the rows.  eta (k, L).
    heights (FIRST, L) : f of each count, then its weight e^(f - top).
    top (L,) : the largest f.
    stop (L,) int64 : the number of counts of a sum; 0 if the first counts are not enough.
    left_out (L,) : a bound on the terms that were not summed, in units of e^top.
    sums (M, L) : the sums of the weights and of their products with each monomial of t; then the
        mass, E[t] and Cov[t].
    ratio (L,), room (FIRST * L,) : scratch memory.
    """

    rows: IntArray
    eta: FloatArray
    heights: FloatArray
    top: FloatArray
    stop: IntArray
    left_out: FloatArray
    sums: FloatArray
    ratio: FloatArray
    room: FloatArray


@part_kernel
def empty_block(k: int, lanes: int) -> Block:
    """Return memory for the sums of `lanes` rows with k statistics."""
    monomials = 1 + k + k * (k + 1) // 2
    return Block(
        np.zeros(lanes, np.int64), empty((k, lanes)), empty((FIRST, lanes)), empty(lanes),
        empty(lanes, np.int64), empty(lanes), empty((monomials, lanes)), empty(lanes),
        empty(FIRST * lanes),
    )  # fmt: skip


@part_kernel
def monomials(table: Table) -> FloatArray:
    """Return 1, t_i and t_i t_j for j <= i of the first counts, (M, FIRST) or fewer."""
    # bounds: row < 1 + k + k (k + 1) / 2
    t = table.statistics[:FIRST]
    k = t.shape[1]
    out = np.ones((1 + k + k * (k + 1) // 2, t.shape[0]))
    row = 1 + k
    for i in range(k):
        for q in range(t.shape[0]):
            out[1 + i, q] = t[q, i]
        for j in range(i + 1):
            for q in range(t.shape[0]):
                out[row, q] = t[q, i] * t[q, j]
            row += 1
    return out


@part_kernel
def raise_top(top: FloatArray, height: FloatArray) -> None:
    """Replace `top` (L,) by the larger of itself and `height`."""
    for lane in range(top.shape[0]):
        top[lane] = max(top[lane], height[lane])


@part_kernel
def mark_ends(block: Block, table: Table, q: int) -> bool:
    """Set stop and left_out of the sums whose terms after count q are negligible.

    As `fstgrad.grm.kernels.counts.is_rest_negligible`.  Returns whether all sums are complete.
    """
    # bounds: q < FIRST; `later` has two columns for each t_j
    ratio, height, later = block.ratio, block.heights[q], table.later[q]
    ratio[:] = later[0]
    for j in range(block.eta.shape[0]):
        eta, least, most = block.eta[j], later[1 + 2 * j], later[2 + 2 * j]
        for lane in range(ratio.shape[0]):
            ratio[lane] += eta[lane] * (most if eta[lane] > 0 else least)
    for lane in range(ratio.shape[0]):
        ratio[lane] = ratio[lane] if ratio[lane] < -1e-12 else 0.0
    exponentiate(ratio, block.room)
    square, is_whole = (table.points[q] + 1.0) ** 2, True
    for lane in range(ratio.shape[0]):
        fall = height[lane] - block.top[lane]
        is_sum = block.stop[lane] == 0 and block.top[lane] < np.inf
        if is_sum and fall < -FALL and ratio[lane] < 1.0:
            # the second moments of the rest are at most (x + 1)^2 times its mass
            rest = math.exp(fall) * ratio[lane] / (1.0 - ratio[lane])
            if rest * square <= NEGLIGIBLE:  # the mass is at least 1
                block.stop[lane] = q + 1
                block.left_out[lane] = rest + NEGLIGIBLE
        is_whole = is_whole and block.stop[lane] > 0
    return is_whole


@part_kernel
def sum_block(block: Block, table: Table, powers: FloatArray) -> None:
    """Write the sums of the rows block.eta; that of a row does not depend on the other rows.

    powers (M, FIRST) : the monomials of the table.
    """
    # bounds: count + STEP <= FIRST, the number of heights, of single points and of columns of
    # powers, and powers has 1 + k rows or more
    block.top[:] = -np.inf
    block.stop[:] = 0
    count, is_whole = 0, False
    while count < FIRST and not is_whole:
        for q in range(count, count + STEP):
            height = block.heights[q]
            height[:] = table.log_base[q]
            for j in range(block.eta.shape[0]):
                add_scaled(height, block.eta[j], powers[1 + j, q])
            raise_top(block.top, height)
        count += STEP
        is_whole = mark_ends(block, table, count - 1)
    for q in range(count):
        add_scaled(block.heights[q], block.top, -1.0)
    for lane in range(block.stop.shape[0]):
        for q in range(block.stop[lane], count):
            block.heights[q, lane] = LOW
    weights = block.heights[:count]
    exponentiate(weights.reshape(weights.size), block.room)
    block.sums[:] = 0.0
    for q in range(count):
        for i in range(powers.shape[0]):
            add_scaled(block.sums[i], weights[q], powers[i, q])
    divide_by_mass(block)


@part_kernel
def divide_by_mass(block: Block) -> None:
    """Turn the sums of weights and products into the mass, E[t] and Cov[t]."""
    # bounds: row < 1 + k + k (k + 1) / 2
    sums, inverse, k = block.sums, block.ratio, block.eta.shape[0]
    for lane in range(inverse.shape[0]):
        inverse[lane] = 1.0 / sums[0, lane] if sums[0, lane] > 0 else 0.0
    for i in range(1, sums.shape[0]):
        multiply(sums[i], inverse)
    row = 1 + k
    for i in range(k):
        for j in range(i + 1):
            subtract_product(sums[row], sums[1 + i], sums[1 + j])
            row += 1


@part_kernel
def multiply(x: FloatArray, y: FloatArray) -> None:
    """Multiply x (L,) by y."""
    for lane in range(x.shape[0]):
        x[lane] *= y[lane]


@part_kernel
def subtract_product(x: FloatArray, y: FloatArray, z: FloatArray) -> None:
    """Subtract y z from x (L,)."""
    for lane in range(x.shape[0]):
        x[lane] -= y[lane] * z[lane]


@part_kernel
def write_lane(
    block: Block,
    lane: int,
    table: Table,
    bounds: FloatArray,
    mean: FloatArray,
    covariance: FloatArray,
) -> None:
    """Write the results of a row, as `fstgrad.grm.kernels.counts.write_results` does.

    block.ratio holds log mass.
    """
    # bounds: lane < L, row < m, q < FIRST, and at < 1 + k + k (k + 1) / 2
    row, mass, k = block.rows[lane], block.sums[0, lane], mean.shape[1]
    q = 0
    while q < FIRST - 1 and block.heights[q, lane] < 1.0:  # the weight of the highest term is 1
        q += 1
    size = abs(table.log_base[q])
    at = 1 + k
    for i in range(k):  # slices cost more than these few entries
        size += abs(block.eta[i, lane] * table.statistics[q, i])
        mean[row, i] = block.sums[1 + i, lane]
        for j in range(i + 1):
            covariance[row, i, j] = covariance[row, j, i] = block.sums[at, lane]
            at += 1
    value = block.top[lane] + block.ratio[lane]
    bounds[row, 0] = value
    bounds[row, 1] = block.left_out[lane] / mass + 1e-15 * (8.0 + 4.0 * (size + abs(value)))


@kernel
def derivatives(
    eta: FloatArray, table: Table, bounds: FloatArray, mean: FloatArray, covariance: FloatArray
) -> None:
    """Write bounds = (A, bound on its error) (m, 2), E[t] (m, k) and Cov[t] (m, k, k), eta (m, k).

    If the table ends before the terms are negligible, A is +inf and the moments are NaN.  Equal
    rows, the majority in a sparse fit, are summed once.
    """
    given, out = (eta, table, monomials(table)), (bounds, mean, covariance)
    if eta.shape[0] <= FEWEST:  # two calls: loops over a constant number of lanes are faster
        write_rows(empty_block(eta.shape[1], FEWEST), given, out)
    else:
        write_rows(empty_block(eta.shape[1], LANES), given, out)


@inner_kernel
def write_rows(
    block: Block,
    given: tuple[FloatArray, Table, FloatArray],
    out: tuple[FloatArray, FloatArray, FloatArray],
) -> None:
    """Write the results of all rows, in blocks; arguments as in `write_block`."""
    # bounds: row < m, waiting < L
    eta, (bounds, mean, covariance) = given[0], out
    m, waiting = eta.shape[0], 0
    seen, same, bits = np.full(table_size(m), -1), empty(m, np.int64), eta.view(np.uint64)
    for row in range(m):
        same[row] = find_row(eta, bits, row, seen)
        if same[row] < 0:
            block.rows[waiting] = row
            waiting += 1
        if waiting == block.rows.shape[0] or (waiting > 0 and row == m - 1):
            write_block(block, waiting, given, out)
            waiting = 0
    for row in range(m):
        if same[row] >= 0:
            copy_row(bounds, mean, covariance, same[row], row)


@part_kernel
def write_block(
    block: Block,
    count: int,
    given: tuple[FloatArray, Table, FloatArray],
    out: tuple[FloatArray, FloatArray, FloatArray],
) -> None:
    """Write the results of the first `count` rows of a block.

    given : eta (m, k), the table, and its monomials.  out : bounds, mean and covariance.
    """
    # bounds: lane < L, count <= L, all rows < m
    eta, table, powers = given
    bounds, mean, covariance = out
    lanes = block.rows.shape[0]
    for lane in range(lanes):
        row = block.rows[min(lane, count - 1)]
        for j in range(eta.shape[1]):
            block.eta[j, lane] = eta[row, j]
    block.stop[:] = 0
    if table.singles >= FIRST and powers.shape[1] == FIRST:
        sum_block(block, table, powers)
        for lane in range(lanes):
            block.ratio[lane] = block.sums[0, lane] if block.stop[lane] > 0 else 1.0
        logarithms(block.ratio, block.room)
    heights, moments = empty(NODES), empty_moments(eta.shape[1])
    for lane in range(count):
        row = block.rows[lane]
        if block.stop[lane] > 0:
            write_lane(block, lane, table, bounds, mean, covariance)
        elif sum_counts(eta[row], table, heights, moments):
            write_results(moments, bounds[row], mean[row], covariance[row])
        else:
            write_divergence(bounds[row], mean[row], covariance[row])


@part_kernel
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


@part_kernel
def table_size(m: int) -> int:
    """Return the number of slots of a hash table for m rows: the first power of two >= 2 m."""
    size = 2
    while size < 2 * m:
        size *= 2
    return size


@part_kernel
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
