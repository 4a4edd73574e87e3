"""Poisson sums with a mode beyond the table of `counts`, by the trapezoid rule around the mode.

The log term is f(x) = sum_j eta_j x^(1/j) - log x!, with eta (k,).  Far out it is concave and wide;
the error of the rule with stride h decreases as e^(-2 pi^2 w^2 / h^2) for a distribution of
standard deviation w.
"""

import math

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.compiler import kernel
from fstgrad.core.uninitialized import empty
from fstgrad.grm.kernels.counts import NODES, Table, sum_counts
from fstgrad.grm.kernels.moments import (
    Moments,
    empty_moments,
    finish,
    raise_height,
    recenter,
)  # fmt: skip

WINDOW = 45.0  # terms this many nats below the mode are left out
POINTS = 64  # of the trapezoid rule, about
HUGE = 1e12  # from this mode on, rounding of the slope exceeds the error of a normal approximation


@kernel
def root(x: float, j: int) -> float:
    """Return x^(1/j)."""
    if j == 1:
        return x
    if j == 2:
        return math.sqrt(x)
    return math.pow(x, 1.0 / j)


@kernel
def slope(x: float, eta: FloatArray) -> float:
    """Return f'(x) for a large x, with digamma(x + 1) ~ log x + 1 / (2 x) - 1 / (12 x^2)."""
    total = eta[0] - (math.log(x) + 0.5 / x - 1.0 / (12.0 * x * x))
    for j in range(1, eta.shape[0]):
        total += eta[j] * root(x, j + 1) / ((j + 1) * x)
    return float(total)


@kernel
def difference(delta: float, mode: float, eta: FloatArray) -> float:
    """Return f(mode + delta) - f(mode) in nats, without cancellation of two large numbers."""
    u = delta / mode
    log_ratio = math.log1p(u)
    if abs(u) < 1e-3:  # (1 + u) log(1 + u) - u
        bend = u * u * (0.5 - u * (1 / 6 - u * (1 / 12 - u * (1 / 20 - u * (1 / 30 - u / 42)))))
    else:
        bend = (1.0 + u) * log_ratio - u
    total = delta * (eta[0] - math.log(mode)) - mode * bend - 0.5 * log_ratio
    total -= (1.0 / (mode + delta) - 1.0 / mode) / 12.0
    for j in range(1, eta.shape[0]):
        total += eta[j] * root(mode, j + 1) * math.expm1(log_ratio / (j + 1))
    return float(total)


@kernel
def edge(sign: float, farthest: float, mode: float, eta: FloatArray) -> float:
    """Return the distance from the mode at which f is WINDOW lower, at most `farthest`.

    sign : 1 for the right, -1 for the left side.
    """
    near, far = 0.0, min(1.0, farthest)
    while far < farthest and difference(sign * far, mode, eta) > -WINDOW:
        near, far = far, min(2.0 * far, farthest)
    for _ in range(60):
        middle = 0.5 * (near + far)
        if difference(sign * middle, mode, eta) > -WINDOW:
            near = middle
        else:
            far = middle
    return far


@kernel
def mode_beyond(first: float, eta: FloatArray) -> float:
    """Return the mode of the counts from `first` on; NaN if f may not be concave or has no mode."""
    bend = 0.0
    for j in range(1, eta.shape[0]):
        bend += max(-eta[j], 0.0) * j / (j + 1.0) ** 2 * root(first, j + 1) / first
    if bend >= 1.0:
        return math.nan
    low, high = first, 2.0 * first
    while slope(high, eta) > 0:
        low, high = high, 2.0 * high
        if high > 1e300:
            return math.nan
    for _ in range(100):
        middle = 0.5 * (low + high)
        if slope(middle, eta) > 0:
            low = middle
        else:
            high = middle
    return float(np.floor(low))


@kernel
def add_beyond(first: float, eta: FloatArray, moments: Moments) -> bool:
    """Add the counts from `first` on to the moments; return False if `mode_beyond` returns NaN."""
    k = eta.shape[0]
    mode = mode_beyond(first, eta)
    if math.isnan(mode):
        return False
    left, right = edge(-1.0, mode - first, mode, eta), edge(1.0, 1e300, mode, eta)
    start = np.floor(mode - left)
    stride = max(1.0, np.floor((left + right) / POINTS))
    if difference(start - mode, mode, eta) > 1.0 - WINDOW:
        stride = 1.0  # the sum is cut off at `first`, at a term that is not negligible: no rule
    height, size = -math.lgamma(mode + 1.0), math.lgamma(mode + 1.0)
    center, at = empty(k), empty(k)
    for j in range(k):
        height += eta[j] * root(mode, j + 1)
        size += abs(eta[j]) * root(mode, j + 1)
        center[j] = root(mode, j + 1)
    recenter(moments, center)
    if height > moments.height[0]:
        raise_height(moments, height, size)
    for step in range(int((left + right) / stride) + 2):
        delta = start - mode + step * stride
        weight = stride * math.exp(difference(delta, mode, eta) + (height - moments.height[0]))
        log_ratio = math.log1p(delta / mode)
        for i in range(k):  # t - center without cancellation
            at[i] = center[i] * math.expm1(log_ratio / (i + 1))
        moments.mass[0] += weight
        for i in range(k):
            moments.first[i] += weight * at[i]
            for j in range(i + 1):
                moments.second[i, j] += weight * at[i] * at[j]
    moments.left_out[0] = 1e-15 * moments.mass[0]
    return True


@kernel
def laplace(
    mode: float, eta: FloatArray, bounds: FloatArray, mean: FloatArray, covariance: FloatArray
) -> None:
    """Write one row of results from the normal approximation around a huge mode.

    A = f(mode) + log(2 pi / -f''(mode)) / 2, E[t_j] = t_j(mode) and
    Cov[t_i, t_j] = t_i'(mode) t_j'(mode) / -f''(mode); the error of A is about 1 / mode.
    bounds (2,), mean (k,), covariance (k, k).
    """
    k = eta.shape[0]
    height, size, precision = -math.lgamma(mode + 1.0), math.lgamma(mode + 1.0), 1.0 / mode
    for j in range(k):
        power = root(mode, j + 1)
        height += eta[j] * power
        size += abs(eta[j]) * power
        precision += eta[j] * j / (j + 1.0) ** 2 * power / (mode * mode)
        mean[j] = power
    bounds[0] = height + 0.5 * math.log(2.0 * math.pi / precision)
    bounds[1] = 1.0 / mode + 1e-15 * (8.0 + 4.0 * (size + abs(bounds[0])))
    for i in range(k):
        for j in range(k):
            slopes = mean[i] * mean[j] / ((i + 1.0) * (j + 1.0) * mode * mode)
            covariance[i, j] = slopes / precision


@kernel
def wide_derivatives(
    eta: FloatArray, table: Table, bounds: FloatArray, mean: FloatArray, covariance: FloatArray
) -> None:
    """Write what `rows.derivatives` writes, for rows with terms beyond the table.

    All results of a row are NaN if its terms are not log-concave beyond the table.  For k = 1,
    A = E[t] = Cov[t] = e^eta_1.
    """
    m, k = eta.shape
    moments, heights = empty_moments(k), empty(NODES)
    for row in range(m):
        if k == 1:
            rate = math.exp(eta[row, 0])
            bounds[row, 0], bounds[row, 1] = rate, 4e-16 * rate * (1.0 + abs(eta[row, 0]))
            mean[row, 0] = rate
            covariance[row, 0, 0] = rate
            continue
        first = table.points[-1] + 1.0
        mode = mode_beyond(first, eta[row])
        if mode > HUGE:
            laplace(mode, eta[row], bounds[row], mean[row], covariance[row])
            continue
        sum_counts(eta[row], table, heights, moments)
        if add_beyond(first, eta[row], moments):
            finish(moments, bounds[row], mean[row], covariance[row])
        else:
            bounds[row] = np.nan
            mean[row] = np.nan
            covariance[row] = np.nan
