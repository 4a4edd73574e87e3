"""The same equations as `linear_chain`, for sums of pair marginals alone: 3 times as fast.

Chains of several lengths are stored position by position without padding.

Items are sorted by length, longest first.  Position t has one row for each item that reaches it, so
the items of a position are a prefix of the items of the position before.
"""

import math

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel, sum_part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import copy_to
from fstgrad.strings.kernels.linear_chain import add_product


@kernel
def shift_rows(table: FloatArray, largest: FloatArray) -> None:
    """Write the largest value of each row of `table` (P, n) to `largest`, and subtract it.

    `table` has no NaN.
    """
    rows, n = table.shape
    for i in range(rows):
        row = table[i]
        a = b = c = d = row[0]
        for y in range(0, n - 3, 4):
            a, b = max(a, row[y]), max(b, row[y + 1])
            c, d = max(c, row[y + 2]), max(d, row[y + 3])
        for y in range(n - n % 4, n):
            a = max(a, row[y])
        a = max(max(a, b), max(c, d))
        largest[i] = a
        for y in range(n):
            row[y] -= a


@kernel
def packed_passes(
    weights: FloatArray,
    step: FloatArray,
    turned: FloatArray,
    sizes: IntArray,
    node: FloatArray,
    step_sums: FloatArray,
    log_z: FloatArray,
) -> float:
    """Write the marginals, the sums of pair marginals and log Z; O(P n^2) for P rows.

    The equations are those of `linear_chain.forward_backward`.  Return the smallest factor that the
    passes divided by.

    weights : (P, n), exp(emission - largest of the row); overwritten
    step, turned : (n, n), exp(transition - largest), and its transpose
    sizes : (T,), the number of rows of each position
    node : (P, n), zeros at first
        Receives the marginals.
    step_sums : (n, n), zeros at first
        Receives sum over items and t of before[t-1, x] after[t, y]: the pair marginals divided by
        step[x, y].
    log_z : (items,), zeros at first
        Receives log Z of the scaled weights, without the subtracted maxima.
    """
    least, low, size = 1.0, 0, 0
    ahead, spare = np.ones((sizes[0], weights.shape[1])), empty(sizes[0])
    for t in range(len(sizes)):
        before = node[low : low + sizes[t]]
        low += size
        size = sizes[t]
        own = node[low : low + size]
        if t == 0:
            copy_to(own.reshape(-1), weights[:size].reshape(-1))
        else:
            add_product(before, step, own)
            own *= weights[low : low + size]
        least = min(least, _normalize(own, spare))
        for i in range(size):
            log_z[i] += math.log(spare[i]) if spare[i] > 0.0 else -np.inf
    for t in range(len(sizes) - 1, -1, -1):
        size = sizes[t]
        own, after, coming = node[low : low + size], weights[low : low + size], ahead[:size]
        own *= coming
        if t == 0:
            break
        after *= coming
        low -= sizes[t - 1]
        before = node[low : low + size]
        least = min(least, _normalize(after, spare))
        coming[:] = 0.0
        add_product(after, turned, coming)
        least = min(least, _share(before, after, coming))
        add_product(before.T, after, step_sums)
    return least


@sum_part_kernel
def _normalize(rows: FloatArray, sums: FloatArray) -> float:
    """Divide each row by its sum, write the sums, and return the smallest sum."""
    least = np.inf
    for i in range(len(rows)):
        row, total = rows[i], 0.0
        for y in range(len(row)):
            total += row[y]
        least = min(least, total)
        sums[i] = total
        share = 1.0 / total if total > 0.0 else 0.0
        for y in range(len(row)):
            row[y] *= share
    return least


@sum_part_kernel
def _share(before: FloatArray, after: FloatArray, ahead: FloatArray) -> float:
    """Divide the rows of `after` and `ahead` by before . ahead; return the least divisor."""
    least = np.inf
    for i in range(len(before)):
        left, right, row, total = before[i], ahead[i], after[i], 0.0
        for x in range(len(left)):
            total += left[x] * right[x]
        least = min(least, total)
        share = 1.0 / total if total > 0.0 else 0.0
        for x in range(len(left)):
            row[x] *= share
            right[x] *= share
    return least
