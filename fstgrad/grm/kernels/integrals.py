"""Integrals over x > 0 of exp(sum_j eta_j T^(1/j)), T = x or x^2, by the trapezoid rule in log T.

With T = e^v and dx = c e^(c v) dv (c = 1 for T = x, 1/2 for T = x^2) the integrand is

    exp(h(v)),    h(v) = sum_j eta_j e^(v/j) + c v + log c,

which is analytic on the whole line, rises as e^(c v) on the left and falls faster than any
exponential on the right.  So the trapezoid rule converges exponentially: after halving the step,
the error is less than the change that the halving made.  The two tails are bounded in closed form.
eta is (k,), in nats per unit of t.
"""

import math

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.grm.kernels.counts import (
    Moments,
    add_moments,
    clear_moments,
    empty_moments,
    mirror_moments,
    write_divergence,
    write_results,
)  # fmt: skip

WINDOW = 50.0  # the integral leaves out what is this many nats below the maximum
CELL = 0.25  # step of the scan for maxima, in log T
MOST_POINTS = 1 << 17  # of the trapezoid rule
FARTHEST = 300.0  # log T at which a search stops: further on, powers of e^v may overflow
LEFT, RIGHT, PEAK, SCAN = range(4)  # the positions of what `window` writes


@part_kernel
def log_integrand(v: float, eta: FloatArray, c: float) -> float:
    """Return h(v)."""
    total = c * v + math.log(c)
    for j in range(eta.shape[0]):
        total += eta[j] * math.exp(v / (j + 1))
    return total


@part_kernel
def log_slope(v: float, eta: FloatArray, c: float) -> float:
    """Return h'(v)."""
    total = c
    for j in range(eta.shape[0]):
        total += eta[j] * math.exp(v / (j + 1)) / (j + 1)
    return total


@part_kernel
def slope_bound(v: float, eta: FloatArray, c: float) -> float:
    """Return an upper bound of h' on [v, inf), or inf if this method gives none.

    With l the first coefficient that is not zero, h'(v) = e^(v/l) (eta_l / l + sum over j > l of
    eta_j / j e^(v/j - v/l)) + c; the sum over positive eta_j only is larger and decreases in v.
    """
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


@part_kernel
def crossing(below: float, above: float, level: float, eta: FloatArray, c: float) -> float:
    """Return v at which h crosses `level`, by bisection: h(below) <= level < h(above)."""
    for _ in range(50):
        middle = 0.5 * (below + above)
        if log_integrand(middle, eta, c) > level:
            above = middle
        else:
            below = middle
    return below


@part_kernel
def maximum(left: float, right: float, eta: FloatArray, c: float) -> float:
    """Return the zero of h' in [left, right] by bisection: h'(left) > 0 >= h'(right)."""
    for _ in range(60):
        middle = 0.5 * (left + right)
        if log_slope(middle, eta, c) > 0:
            left = middle
        else:
            right = middle
    return 0.5 * (left + right)


@part_kernel
def window(eta: FloatArray, c: float, out: FloatArray) -> bool:
    """Write the interval of v outside which h is more than WINDOW nats below its maximum.

    out (4,) : [LEFT] and [RIGHT] are its ends, [PEAK] is the place of the maximum, and [SCAN] the
        length of the scan.
    Returns False if the mass lies beyond v = FARTHEST.
    """
    k = eta.shape[0]
    total = 1.0
    for j in range(k):
        total += abs(eta[j])
    start = -k * math.log(total) - 2.0 - (WINDOW + 2.0) / c
    rise = max(start, -k * math.log(4.0 * total / c))  # left of this, h' >= 3 c / 4: no maximum
    best, best_v = -np.inf, rise
    v, slope = rise, log_slope(rise, eta, c)
    while True:  # first scan: the maximum
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
        if v > FARTHEST:
            return False
    end, level = v, best - WINDOW
    out[PEAK], out[SCAN] = best_v, end - start
    out[LEFT], out[RIGHT] = best_v, best_v
    v, slope, high = rise, log_slope(rise, eta, c), log_integrand(rise, eta, c) > level
    if high:
        below = log_integrand(start, eta, c) <= level
        out[LEFT] = crossing(start, rise, level, eta, c) if below else start
    while v < end:  # second scan: the outermost crossings of the level
        after = v + CELL
        after_slope = log_slope(after, eta, c)
        high_after = log_integrand(after, eta, c) > level
        place, high_place = after, high_after
        if slope > 0 >= after_slope and not (high and high_after):
            place = maximum(v, after, eta, c)
            high_place = log_integrand(place, eta, c) > level
        if high_place and v < out[LEFT]:
            out[LEFT] = min(out[LEFT], v if high else crossing(v, place, level, eta, c))
        if high or high_place:
            inside = place if high_place else v
            reach = after if high_after else crossing(after, inside, level, eta, c)
            out[RIGHT] = max(out[RIGHT], reach)
        v, slope, high = after, after_slope, high_after
    return True


@part_kernel
def integrate(eta: FloatArray, c: float, tol: float, moments: Moments) -> bool:
    """Write the moments of one eta (k,) over x > 0; return False if there is no finite integral.

    The integral diverges if the first coefficient that is not zero is positive, or if all are zero;
    it is also refused if the mass lies beyond floats.  The step is halved until the mass changes by
    at most `tol`, relative.
    """
    k = eta.shape[0]
    clear_moments(moments)
    lead = 0
    while lead < k and eta[lead] == 0.0:
        lead += 1
    if lead == k or eta[lead] > 0:
        return False
    place = empty(4)
    if not window(eta, c, place):
        return False
    left, right = place[LEFT], place[RIGHT]
    if not right - left > 1e-9 * (1.0 + abs(left)):
        return False  # the window is as narrow as the spacing of floats there
    moments.height[0] = log_integrand(place[PEAK], eta, c)
    moments.size[0] = abs(c * place[PEAK])
    for j in range(k):
        moments.center[j] = math.exp(place[PEAK] / (j + 1))
        moments.size[0] += abs(eta[j]) * moments.center[j]
    add_points(eta, c, left, (right - left) / 32, 33, moments)
    points, last = 32, np.nan
    while points < MOST_POINTS:
        before = moments.mass[0] / points
        width = (right - left) / points
        add_points(eta, c, left + 0.5 * width, width, points, moments)
        points *= 2
        last = abs(moments.mass[0] / points - before)
        if last <= tol * moments.mass[0] / points:
            break
    step = (right - left) / points
    moments.mass[0] *= step
    moments.first[:] *= step
    moments.second[:] *= step
    # outside the window the integrand is below e^-WINDOW of its maximum; beyond the scan it decays
    # at a rate of at least 3 c / 4 on the left and 1 on the right
    tails = math.exp(-WINDOW) * (4.0 / c + place[SCAN])
    moments.left_out[0] = last * (right - left) + tails
    return True


@part_kernel
def add_points(
    eta: FloatArray, c: float, first: float, step: float, count: int, moments: Moments
) -> None:
    """Add the integrand and its moments at v = first + i * step, i = 0 .. count - 1."""
    k = eta.shape[0]
    at = empty(k)
    for number in range(count):
        v = first + number * step
        h = c * v + math.log(c)
        for j in range(k):
            power = math.exp(v / (j + 1))
            h += eta[j] * power
            at[j] = power - moments.center[j]
        weight = math.exp(h - moments.height[0])
        moments.mass[0] += weight
        for i in range(k):
            moments.first[i] += weight * at[i]
            for j in range(i + 1):
                moments.second[i, j] += weight * at[i] * at[j]


@kernel
def derivatives(
    eta: FloatArray,
    two_sided: bool,
    tol: float,
    bounds: FloatArray,
    mean: FloatArray,
    covariance: FloatArray,
) -> None:
    """Write bounds = (A, bound on its error) (m, 2), E[t] (m, k) and Cov[t] (m, k, k), eta (m, k).

    two_sided : whether T = x^2 over the whole line, with the sign of x in t_j for even j; otherwise
        T = x over x > 0.
    A row without a finite integral gets A = +inf and NaN moments.
    """
    m, k = eta.shape
    moments, mirrored, reflected = empty_moments(k), empty_moments(k), empty(k)
    c = 0.5 if two_sided else 1.0
    for row in range(m):
        if row > 0 and (eta[row] == eta[row - 1]).all():
            bounds[row], mean[row] = bounds[row - 1], mean[row - 1]
            covariance[row] = covariance[row - 1]
            continue
        finite = integrate(eta[row], c, tol, moments)
        if two_sided and finite:
            for j in range(k):
                reflected[j] = eta[row, j] if j % 2 == 0 else -eta[row, j]
            finite = integrate(reflected, c, tol, mirrored)
            mirror_moments(mirrored)
            add_moments(moments, mirrored)
        if finite:
            write_results(moments, bounds[row], mean[row], covariance[row])
        else:
            write_divergence(bounds[row], mean[row], covariance[row])


@kernel
def gaussian_pair(
    eta: FloatArray, bounds: FloatArray, mean: FloatArray, covariance: FloatArray
) -> None:
    """Write what `derivatives` writes for exp(eta_1 x^2 + eta_2 x), k <= 2, in closed form.

    With v = -1 / (2 eta_1) and m = eta_2 v: A = eta_2 m / 2 + log(2 pi v) / 2, E[x^2] = v + m^2,
    E[x] = m, Var[x^2] = 2 v^2 + 4 v m^2, Var[x] = v, Cov[x^2, x] = 2 v m.  A row with eta_1 >= 0
    gets A = +inf and NaN moments.
    """
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
