"""Sums over the counts of exp(sum_j eta_j x^(1/j)) / x!, with a stated remainder.

Every term of the sum is positive.  For x >= 0 the log-increment f(x + 1) - f(x) is at most

    u(x) = eta_1 + sum_{j>=2} max(eta_j, 0) ((x+1)^(1/j) - x^(1/j)) - log(x + 1),

which falls with x; once u(X) < 0 the terms after X sum to at most t(X) r / (1 - r), r = e^u(X).
Where `LIMIT` counts are not enough the rest is log-concave and wide: it is summed around its mode,
with a stride far below its width (the trapezoid rule, whose error falls as e^(-2 pi^2 w^2/h^2) for
a width w and a stride h).
"""

import math

import numpy as np

from fstgrad.checks import FloatArray
from fstgrad.compiler import kernel

NEGLIGIBLE = 1e-18
TABLE = 2048  # counts whose roots are looked up; larger ones are computed
LIMIT = 20_000  # counts that are summed one by one
WINDOW = 45.0  # nats below the mode that still count
POINTS = 4096  # of the wide part


@kernel
def root(x: float, j: int) -> float:
    """Return x^(1/j)."""
    if j == 1:
        return x
    if j == 2:
        return math.sqrt(x)
    return math.pow(x, 1.0 / j)


@kernel
def series(eta: FloatArray, roots: FloatArray, log_factorial: FloatArray, sums: FloatArray) -> bool:
    """Sum the counts below `LIMIT` for one eta (k,); return whether the rest is negligible.

    roots : (TABLE + 1, k), log_factorial : (TABLE + 1,), for the counts up to TABLE.
    sums : (4 + k + k^2,) float64: the largest log term; the sum and a bound on what is left out,
        both over e^largest; the size of the numbers that cancel in the largest term; the sums of
        x^(1/j) and of x^(1/i + 1/j), i >= j, over e^largest.
    """
    k = eta.shape[0]
    sums[:] = 0.0
    now, after = np.zeros(k), np.empty(k)
    for x in range(LIMIT):
        if x < TABLE:
            after[:] = roots[x + 1]
            log_x = log_factorial[x]
        else:
            for j in range(k):
                after[j] = root(x + 1.0, j + 1)
            log_x = math.lgamma(x + 1.0)
        f, size = -log_x, log_x
        increment = eta[0] - math.log(x + 1.0)
        for j in range(k):
            f += eta[j] * now[j]
            size += abs(eta[j]) * now[j]
            if j > 0 and eta[j] > 0:
                increment += eta[j] * (after[j] - now[j])
        if f > sums[0]:
            scale = math.exp(sums[0] - f)
            sums[0], sums[3] = f, size
            sums[1] *= scale
            sums[4:] *= scale
        weight = math.exp(f - sums[0])
        sums[1] += weight
        for i in range(k):
            first = weight * now[i]
            sums[4 + i] += first
            for j in range(i + 1):
                sums[4 + k + i * k + j] += first * now[j]
        if increment < -1e-12:
            ratio = math.exp(increment)
            sums[2] = weight * ratio / (1.0 - ratio)
            # the second moments of the rest exceed its mass by less than (x + 1)^2
            if sums[2] * (x + 1.0) * (x + 1.0) <= NEGLIGIBLE * sums[1]:
                return True
        now[:] = after
    return False


@kernel
def slope(x: float, eta: FloatArray) -> float:
    """Return the derivative of f at x >= LIMIT (the digamma function by its expansion)."""
    total = eta[0] - (math.log(x) + 0.5 / x - 1.0 / (12.0 * x * x))
    for j in range(1, eta.shape[0]):
        total += eta[j] * root(x, j + 1) / ((j + 1) * x)
    return float(total)


@kernel
def difference(delta: float, mode: float, eta: FloatArray) -> float:
    """Return f(mode + delta) - f(mode) without the cancellation of two large numbers."""
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
    """Return the distance from the mode at which f has fallen by `WINDOW`, at most `farthest`."""
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
def wide(eta: FloatArray, sums: FloatArray, center: FloatArray) -> bool:
    """Add the counts from `LIMIT` on to `sums`; the moments become central about `center` (k,).

    Returns False where the rest is not log-concave, which needs |eta_j| of several hundred.
    """
    k = eta.shape[0]
    bend = 0.0
    for j in range(1, k):
        bend += max(-eta[j], 0.0) * j / (j + 1.0) ** 2 * root(float(LIMIT), j + 1) / LIMIT
    if bend >= 1.0:
        return False
    low, high = float(LIMIT), 2.0 * LIMIT
    while slope(high, eta) > 0:
        low, high = high, 2.0 * high
    for _ in range(100):
        middle = 0.5 * (low + high)
        if slope(middle, eta) > 0:
            low = middle
        else:
            high = middle
    mode = np.floor(low)
    left, right = edge(-1.0, mode - LIMIT, mode, eta), edge(1.0, 1e300, mode, eta)
    first = np.floor(mode - left)
    stride = max(1.0, np.floor((left + right) / POINTS)) if left + right > 2e5 else 1.0
    height, size = -math.lgamma(mode + 1.0), math.lgamma(mode + 1.0)
    for j in range(k):
        height += eta[j] * root(mode, j + 1)
        size += abs(eta[j]) * root(mode, j + 1)
        center[j] = root(mode, j + 1)
    recenter(sums, center)
    if height > sums[0]:
        scale = math.exp(sums[0] - height)
        sums[0], sums[3] = height, size
        sums[1] *= scale
        sums[4:] *= scale
    at = np.empty(k)
    for step in range(int((left + right) / stride) + 2):
        delta = first - mode + step * stride
        weight = stride * math.exp(difference(delta, mode, eta) + (height - sums[0]))
        log_ratio = math.log1p(delta / mode)
        sums[1] += weight
        for i in range(k):
            at[i] = center[i] * math.expm1(log_ratio / (i + 1))
            sums[4 + i] += weight * at[i]
            for j in range(i + 1):
                sums[4 + k + i * k + j] += weight * at[i] * at[j]
    sums[2] = 1e-15 * sums[1]
    return True


@kernel
def recenter(sums: FloatArray, center: FloatArray) -> None:
    """Turn sums of x^(1/j) and their products into sums about `center`."""
    k = center.shape[0]
    for i in range(k):
        for j in range(i + 1):
            sums[4 + k + i * k + j] += (
                center[i] * center[j] * sums[1] - center[i] * sums[4 + j] - center[j] * sums[4 + i]
            )
    for i in range(k):
        sums[4 + i] -= center[i] * sums[1]


@kernel
def derivatives(
    eta: FloatArray,
    roots: FloatArray,
    log_factorial: FloatArray,
    bounds: FloatArray,
    mean: FloatArray,
    covariance: FloatArray,
) -> None:
    """Fill A and its error, E[t] and Cov[t] for eta (m, k).

    bounds : (m, 2) float64, A and the largest error of it (remainder and rounding); NaN where
        the sum cannot be done.  mean : (m, k).  covariance : (m, k, k).
    Rows with eta_1 alone, most of a sparse fit, are summed once.
    """
    m, k = eta.shape
    sums, center = np.empty(4 + k + k * k), np.empty(k)
    plain = -1
    for row in range(m):
        alone = True
        for j in range(1, k):
            alone = alone and eta[row, j] == 0.0
        if alone and plain >= 0 and eta[plain, 0] == eta[row, 0]:
            bounds[row], mean[row], covariance[row] = bounds[plain], mean[plain], covariance[plain]
            continue
        center[:] = 0.0
        if not series(eta[row], roots, log_factorial, sums) and not wide(eta[row], sums, center):
            sums[1] = np.nan
        finish(sums, center, bounds[row], mean[row], covariance[row])
        if alone:
            plain = row


@kernel
def finish(
    sums: FloatArray,
    center: FloatArray,
    bounds: FloatArray,
    mean: FloatArray,
    covariance: FloatArray,
) -> None:
    """Turn the sums of one row into A, its error, the mean and the covariance."""
    k = center.shape[0]
    bounds[0] = sums[0] + math.log(sums[1])
    bounds[1] = math.log1p(sums[2] / sums[1]) + 1e-15 * (8.0 + 4.0 * (sums[3] + abs(bounds[0])))
    for i in range(k):
        first = sums[4 + i] / sums[1]
        mean[i] = center[i] + first
        for j in range(i + 1):
            second = sums[4 + k + i * k + j] / sums[1] - first * (sums[4 + j] / sums[1])
            covariance[i, j] = second
            covariance[j, i] = second
