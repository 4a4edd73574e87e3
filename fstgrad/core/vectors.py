"""Exponentials, logarithms, multiples and copies of vectors, in loops that vectorize."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray
from fstgrad.core.compiler import fused_kernel, part_kernel

# The smallest integer whose exp is a normal number.
LOWEST = -708.0
# ln 2 in two parts; small integers times the first part are exact.
LN2, LN2_REST = 6.93147180369123816490e-01, 1.90821492927058770002e-10
LOG2_E = 1.4426950408889634
# x + ROUND - ROUND rounds a small x to an integer, which is in the low bits of x + ROUND.
ROUND = 1.5 * 2.0**52
ROUND_BITS = 0x4338000000000000
HALF_ROOT_BITS = 0x3FE6A09E667F3BCD  # the bits of sqrt(1 / 2)


@fused_kernel
def exponentiate(x: FloatArray, work: FloatArray) -> None:
    """Replace each x <= 0 of a vector by exp(x), and by 0 for x <= -708, in place.

    The error is at most a unit in the last place.  exp(x) = 2^k exp(r) with k an integer and
    |r| <= ln(2) / 2; exp(r) is its Taylor series up to r^13.

    work : float64 scratch, at least as long as x.
    """
    bits = work.view(np.int64)
    for j in range(len(x)):
        rounded = (x[j] if x[j] > LOWEST else LOWEST) * LOG2_E + ROUND
        work[j] = rounded
        k = rounded - ROUND
        r = (x[j] - k * LN2) - k * LN2_REST
        p = r * (1 / 6227020800) + 1 / 479001600
        p = p * r + 1 / 39916800
        p = p * r + 1 / 3628800
        p = p * r + 1 / 362880
        p = p * r + 1 / 40320
        p = p * r + 1 / 5040
        p = p * r + 1 / 720
        p = p * r + 1 / 120
        p = p * r + 1 / 24
        p = p * r + 1 / 6
        p = p * r + 0.5
        p = p * r + 1.0
        p = p * r + 1.0
        x[j] = p if x[j] > LOWEST else 0.0
    for j in range(len(x)):
        bits[j] = (bits[j] + 1023) << 52
    for j in range(len(x)):
        x[j] *= work[j]


@fused_kernel
def logarithms(x: FloatArray, work: FloatArray) -> None:
    """Replace each x of a vector by log(x), in place.

    x must be positive, finite and normal; the error is at most a unit in the last place.
    log(2^k (1 + f)) = k ln 2 + log(1 + f) with 1 + f between sqrt(1 / 2) and sqrt(2).  With
    s = f / (2 + f), log(1 + f) = 2 s + s^3 R(s^2), where R is the polynomial of fdlibm (e_log.c,
    Sun Microsystems 1993).

    work : float64 scratch, at least as long as x.
    """
    bits, exponents = x.view(np.int64), work.view(np.int64)
    for j in range(len(x)):
        exponents[j] = (bits[j] - HALF_ROOT_BITS) >> 52
    for j in range(len(x)):
        bits[j] -= exponents[j] << 52
        exponents[j] += ROUND_BITS
    for j in range(len(x)):
        k, f = work[j] - ROUND, x[j] - 1.0
        s = np.divide(f, 2.0 + f)  # the operator / tests for zero, which prevents vectorization
        z = s * s
        r = z * 1.479819860511658591e-01 + 1.531383769920937332e-01
        r = r * z + 1.818357216161805012e-01
        r = r * z + 2.222219843214978396e-01
        r = r * z + 2.857142874366239149e-01
        r = r * z + 3.999999999940941908e-01
        r = (r * z + 6.666666666666735130e-01) * z
        half = 0.5 * f * f
        x[j] = k * LN2 - ((half - (s * (half + r) + k * LN2_REST)) - f)


@fused_kernel
def add_scaled(total: FloatArray, x: FloatArray, factor: float) -> None:
    """Add a vector x times a factor to `total`, in place."""
    for j in range(total.shape[0]):  # LLVM unrolls a constant range and then does not vectorize it
        total[j] += x[j] * factor


@part_kernel
def copy_to(target: npt.NDArray[Any], x: npt.NDArray[Any]) -> None:
    """Copy a vector x (n,) to the first n entries of `target`.

    numba would compile `target[:] = x` with the text of its error, for seconds.
    """
    for i in range(x.shape[0]):
        target[i] = x[i]
