"""Integrals over x > 0 of exp(sum_j eta_j T^(1/j)), T = x or x^2, by the trapezoid rule in log T.

With T = e^v and dx = c e^(c v) dv (c = 1 for T = x, 1/2 for T = x^2) the integrand is

    exp(h(v)),    h(v) = sum_j eta_j e^(v/j) + c v + log c,

analytic on the whole line, rising as e^(c v) on the left and falling faster than any exponential
on the right: the trapezoid rule converges exponentially, its error after a halving of the step is
below the change that the halving made.  The two tails are bounded in closed form.
"""

import math

import numpy as np

from fstgrad.checks import FloatArray
from fstgrad.compiler import kernel
from fstgrad.grm.kernels.poisson import finish

WINDOW = 50.0  # nats below the maximum that still count
CELL = 0.25  # of the scan for maxima
MOST_POINTS = 1 << 17


@kernel
def log_integrand(v: float, eta: FloatArray, c: float) -> float:
    """Return h(v)."""
    total = c * v + math.log(c)
    for j in range(eta.shape[0]):
        total += eta[j] * math.exp(v / (j + 1))
    return total


@kernel
def log_slope(v: float, eta: FloatArray, c: float) -> float:
    """Return h'(v)."""
    total = c
    for j in range(eta.shape[0]):
        total += eta[j] * math.exp(v / (j + 1)) / (j + 1)
    return total


@kernel
def slope_bound(v: float, eta: FloatArray, c: float) -> float:
    """Return an upper bound of h' that falls from v on, or +inf where there is none."""
    k = eta.shape[0]
    lead = 0
    while lead < k and eta[lead] == 0.0:
        lead += 1
    bracket = eta[lead] / (lead + 1)
    for j in range(lead + 1, k):
        if eta[j] > 0:
            bracket += eta[j] / (j + 1) * math.exp(v / (j + 1) - v / (lead + 1))
    if bracket >= 0:
        return np.inf
    return float(math.exp(v / (lead + 1)) * bracket + c)


@kernel
def crossing(below: float, above: float, level: float, eta: FloatArray, c: float) -> float:
    """Return where h crosses `level` between a point below it and a point above it."""
    for _ in range(50):
        middle = 0.5 * (below + above)
        if log_integrand(middle, eta, c) > level:
            above = middle
        else:
            below = middle
    return below


@kernel
def maximum(left: float, right: float, eta: FloatArray, c: float) -> float:
    """Return the zero of h' between a point where it is positive and one where it is not."""
    for _ in range(60):
        middle = 0.5 * (left + right)
        if log_slope(middle, eta, c) > 0:
            left = middle
        else:
            right = middle
    return 0.5 * (left + right)


@kernel
def window(eta: FloatArray, c: float, out: FloatArray) -> None:
    """Fill out = (left end, right end, place of the maximum, length of the scan) of what counts."""
    k = eta.shape[0]
    total = 1.0
    for j in range(k):
        total += abs(eta[j])
    start = -k * math.log(total) - 2.0 - (WINDOW + 2.0) / c
    best, best_v = -np.inf, start
    v, slope = start, log_slope(start, eta, c)
    while True:  # once up, for the maximum
        after = v + CELL
        after_slope = log_slope(after, eta, c)
        if slope > 0 >= after_slope:
            peak = maximum(v, after, eta, c)
            height = log_integrand(peak, eta, c)
            if height > best:
                best, best_v = height, peak
        v, slope = after, after_slope
        if slope_bound(v, eta, c) < -1.0 and log_integrand(v, eta, c) < best - WINDOW:
            break
    end, level = v, best - WINDOW
    out[2], out[3] = best_v, end - start
    out[0], out[1] = best_v, best_v
    v, slope = start, log_slope(start, eta, c)
    while v < end:  # once more, for the outermost crossings of the level
        after = v + CELL
        after_slope = log_slope(after, eta, c)
        high = log_integrand(v, eta, c) > level
        high_after = log_integrand(after, eta, c) > level
        place = after
        if slope > 0 >= after_slope and not (high and high_after):
            place = maximum(v, after, eta, c)
        high_place = log_integrand(place, eta, c) > level
        if high_place and v < out[0]:
            out[0] = min(out[0], v if high else crossing(v, place, level, eta, c))
        if high or high_place:
            inside = place if high_place else v
            reach = after if high_after else crossing(after, inside, level, eta, c)
            out[1] = max(out[1], reach)
        v, slope = after, after_slope


@kernel
def integrate(
    eta: FloatArray, c: float, tolerance: float, sums: FloatArray, center: FloatArray
) -> None:
    """Fill `sums`, laid out as those of a Poisson series, about `center`, for one eta (k,).

    A leading coefficient >= 0 has no integral: the sums become infinite.
    """
    k = eta.shape[0]
    lead = 0
    while lead < k and eta[lead] == 0.0:
        lead += 1
    sums[:] = 0.0
    if lead == k or eta[lead] > 0:
        sums[1] = np.inf
        return
    place = np.empty(4)
    window(eta, c, place)
    left, right = place[0], place[1]
    sums[0] = log_integrand(place[2], eta, c)
    sums[3] = abs(c * place[2])
    for j in range(k):
        center[j] = math.exp(place[2] / (j + 1))
        sums[3] += abs(eta[j]) * center[j]
    add_points(eta, c, left, (right - left) / 32, 33, sums, center)
    points, last = 32, np.nan
    while points < MOST_POINTS:
        before = sums[1] / points
        add_points(
            eta, c, left + 0.5 * (right - left) / points, (right - left) / points, points, sums,
            center,
        )  # fmt: skip
        points *= 2
        last = abs(sums[1] / points - before)
        if last <= tolerance * sums[1] / points:
            break
    step = (right - left) / points
    sums[1] *= step
    sums[4:] *= step
    # left of the scan e^(c v) decays from below the window, right of it at a rate above 1
    tails = math.exp(-WINDOW) * (4.0 / c + place[3])
    sums[2] = last * (right - left) + tails


@kernel
def add_points(
    eta: FloatArray,
    c: float,
    first: float,
    step: float,
    count: int,
    sums: FloatArray,
    center: FloatArray,
) -> None:
    """Add the integrand and its moments about `center` at first, first + step, ..."""
    k = eta.shape[0]
    at = np.empty(k)
    for number in range(count):
        v = first + number * step
        h = c * v + math.log(c)
        for j in range(k):
            power = math.exp(v / (j + 1))
            h += eta[j] * power
            at[j] = power - center[j]
        weight = math.exp(h - sums[0])
        sums[1] += weight
        for i in range(k):
            sums[4 + i] += weight * at[i]
            for j in range(i + 1):
                sums[4 + k + i * k + j] += weight * at[i] * at[j]


@kernel
def merge(
    sums: FloatArray,
    center: FloatArray,
    mirrored: FloatArray,
    mirrored_center: FloatArray,
) -> None:
    """Add the integral over x < 0 of T = x^2; an even root carries the sign of x."""
    k = center.shape[0]
    if mirrored[0] > sums[0]:
        scale = math.exp(sums[0] - mirrored[0])
        sums[0], sums[3] = mirrored[0], max(sums[3], mirrored[3])
        sums[1] *= scale
        sums[2] *= scale
        sums[4:] *= scale
    scale = math.exp(mirrored[0] - sums[0])
    sums[1] += scale * mirrored[1]
    sums[2] += scale * mirrored[2]
    for i in range(k):
        sign_i = 1.0 if i % 2 == 0 else -1.0
        shift_i = sign_i * mirrored_center[i] - center[i]
        sums[4 + i] += scale * (sign_i * mirrored[4 + i] + shift_i * mirrored[1])
        for j in range(i + 1):
            sign_j = 1.0 if j % 2 == 0 else -1.0
            shift_j = sign_j * mirrored_center[j] - center[j]
            sums[4 + k + i * k + j] += scale * (
                sign_i * sign_j * mirrored[4 + k + i * k + j]
                + shift_i * sign_j * mirrored[4 + j]
                + shift_j * sign_i * mirrored[4 + i]
                + shift_i * shift_j * mirrored[1]
            )


@kernel
def derivatives(
    eta: FloatArray,
    two_sided: bool,
    tolerance: float,
    bounds: FloatArray,
    mean: FloatArray,
    covariance: FloatArray,
) -> None:
    """Fill A and its error (m, 2), E[t] (m, k) and Cov[t] (m, k, k) for eta (m, k).

    two_sided : T = x^2 over the whole line, where the even roots carry the sign of x; otherwise
        T = x over x > 0.
    """
    m, k = eta.shape
    sums, center = np.empty(4 + k + k * k), np.zeros(k)
    mirrored, mirrored_center = np.empty(4 + k + k * k), np.zeros(k)
    reflected = np.empty(k)
    c = 0.5 if two_sided else 1.0
    for row in range(m):
        if row > 0 and (eta[row] == eta[row - 1]).all():
            bounds[row], mean[row] = bounds[row - 1], mean[row - 1]
            covariance[row] = covariance[row - 1]
            continue
        integrate(eta[row], c, tolerance, sums, center)
        if two_sided and sums[1] < np.inf:
            for j in range(k):
                reflected[j] = eta[row, j] if j % 2 == 0 else -eta[row, j]
            integrate(reflected, c, tolerance, mirrored, mirrored_center)
            if mirrored[1] < np.inf:
                merge(sums, center, mirrored, mirrored_center)
            else:
                sums[1] = np.inf
        finish(sums, center, bounds[row], mean[row], covariance[row])


@kernel
def gaussian_pair(
    eta: FloatArray, bounds: FloatArray, mean: FloatArray, covariance: FloatArray
) -> None:
    """Fill the same for exp(eta_1 x^2 + eta_2 x), k <= 2, in closed form."""
    m, k = eta.shape
    for row in range(m):
        if eta[row, 0] >= 0:
            bounds[row] = np.inf
            mean[row] = np.nan
            covariance[row] = np.nan
            continue
        variance = -0.5 / eta[row, 0]
        linear = eta[row, 1] if k == 2 else 0.0
        place = linear * variance
        bounds[row, 0] = 0.5 * linear * place + 0.5 * math.log(2.0 * math.pi * variance)
        bounds[row, 1] = 1e-15 * (4.0 + 4.0 * abs(bounds[row, 0]) + 4.0 * abs(linear * place))
        mean[row, 0] = variance + place * place
        covariance[row, 0, 0] = 2.0 * variance * variance + 4.0 * variance * place * place
        if k == 2:
            mean[row, 1] = place
            covariance[row, 1, 1] = variance
            covariance[row, 0, 1] = 2.0 * variance * place
            covariance[row, 1, 0] = 2.0 * variance * place
