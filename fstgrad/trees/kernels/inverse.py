"""Inverses of small dense matrices, written as loops that compilers vectorize.

Rows are padded to whole vectors, and pivots are taken four at a time, so a row is read and written
once for four multiplications and additions of each entry.  Up to a few hundred rows, this is faster
than LAPACK, whose calls and panels cost more than the arithmetic.
"""

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.compiler import fused_kernel
from fstgrad.core.uninitialized import empty

# The product of four such pivots is within the range of float64.
SMALLEST_PIVOT = 1e-70


@fused_kernel
def invert_corner(a: FloatArray, k: int, p: FloatArray) -> float:
    """Write the inverse of rows and columns k .. k+3 to p; return the determinant, 0 if it fails.

    It fails if a pivot is not above SMALLEST_PIVOT.
    """
    for i in range(4):
        for j in range(4):
            p[i, j] = a[k + i, k + j]
    determinant = 1.0
    for i in range(4):
        pivot = p[i, i]
        if not pivot > SMALLEST_PIVOT:
            return 0.0
        determinant *= pivot
        p[i, i] = 1.0
        scale = 1.0 / pivot
        for j in range(4):
            p[i, j] *= scale
        for other in range(4):
            if other != i:
                factor = p[other, i]
                p[other, i] = 0.0
                for j in range(4):
                    p[other, j] -= factor * p[i, j]
    return determinant


@fused_kernel
def solve_rows(a: FloatArray, k: int, p: FloatArray) -> None:
    """Multiply the rows k .. k+3 by p; p also replaces their columns k .. k+3."""
    one, two, three, four = a[k], a[k + 1], a[k + 2], a[k + 3]
    p11, p12, p13, p14 = p[0, 0], p[0, 1], p[0, 2], p[0, 3]
    p21, p22, p23, p24 = p[1, 0], p[1, 1], p[1, 2], p[1, 3]
    p31, p32, p33, p34 = p[2, 0], p[2, 1], p[2, 2], p[2, 3]
    p41, p42, p43, p44 = p[3, 0], p[3, 1], p[3, 2], p[3, 3]
    for i in range(4):
        for j in range(4):
            a[k + i, k + j] = 1.0 if i == j else 0.0
    for j in range(a.shape[1]):
        x, y, z, last = one[j], two[j], three[j], four[j]
        one[j] = p11 * x + p12 * y + p13 * z + p14 * last
        two[j] = p21 * x + p22 * y + p23 * z + p24 * last
        three[j] = p31 * x + p32 * y + p33 * z + p34 * last
        four[j] = p41 * x + p42 * y + p43 * z + p44 * last


@fused_kernel
def clear_rows(a: FloatArray, k: int, i: int) -> None:
    """Subtract multiples of the rows k .. k+3 from the rows i and i + 1."""
    one, two, three, four = a[k], a[k + 1], a[k + 2], a[k + 3]
    upper, lower = a[i], a[i + 1]
    p, q, r, s = upper[k], upper[k + 1], upper[k + 2], upper[k + 3]
    t, u, v, w = lower[k], lower[k + 1], lower[k + 2], lower[k + 3]
    for j in range(k, k + 4):
        upper[j] = 0.0
        lower[j] = 0.0
    for j in range(a.shape[1]):
        x, y, z, last = one[j], two[j], three[j], four[j]
        upper[j] = upper[j] - p * x - q * y - r * z - s * last
        lower[j] = lower[j] - t * x - u * y - v * z - w * last


@fused_kernel
def invert(a: FloatArray) -> float:
    """Invert in place; return the log-determinant, -inf if a pivot is tiny or not positive.

    Gauss-Jordan elimination without exchanges, for matrices whose columns are diagonally dominant.
    The number of rows must be a multiple of four; columns beyond this number are padding.
    """
    n = len(a)
    p = empty((4, 4))
    log_determinant = 0.0
    for k in range(0, n, 4):
        determinant = invert_corner(a, k, p)
        if determinant == 0.0:
            return -np.inf
        log_determinant += np.log(determinant)
        solve_rows(a, k, p)
        for i in range(0, k, 2):
            clear_rows(a, k, i)
        for i in range(k + 4, n, 2):
            clear_rows(a, k, i)
    return log_determinant
