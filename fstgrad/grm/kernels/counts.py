"""Sums over the counts x of e^f(x), f(x) = <eta, t(x)> + B(x), with a bound on what is left out.

A family of counts is a table (`fstgrad.grm.count_tables`).  It has the counts 0, 1, 2, ... singly,
then panels of `NODES` points with weights: the weighted sum over the points is the sum over all
counts of the panel (Gauss quadrature for sums, exact for polynomials of degree 2 NODES - 1).  The
cost depends on the width of a distribution in panels, not on its mean.

For every point, the table bounds all later and all earlier increments of B and of t_j, from x to
x + 1.  If the bound u of the later increments of f is negative, the terms after x sum to at most
e^f(x) e^u / (1 - e^u); the same holds before x.  A sum starts and ends where these remainders are
negligible.

eta is (k,), here with all statistics of the family; q is the index of a point.

Poisson sums with a mode beyond the table use the trapezoid rule around the mode (`add_beyond`).
There, f(x) = sum_j eta_j x^(1/j) - log x! is concave and wide; the error of the rule with stride h
decreases as e^(-2 pi^2 w^2 / h^2) for a distribution of standard deviation w.
"""

import math
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel, part_kernel
from fstgrad.core.uninitialized import empty

NEGLIGIBLE = 1e-18  # of the mass
WINDOW = 60.0  # a sum may start this many nats below the highest point
STRIDE = 16  # the search for the highest point evaluates every STRIDE-th point
NODES = 10  # points per panel
BENDING = 1.4  # largest second difference (nats) of f over a panel that quadrature can resolve
DEPTH = 45.0  # nats below the top beyond which a panel is not checked for bending
NOTHING = 90.0  # nats below the top beyond which even a million counts, squared, are below rounding
NEAR_MODE = 45.0  # terms this many nats below the mode are left out
POINTS = 64  # of the trapezoid rule, about
HUGE = 1e12  # from this mode on, rounding of the slope exceeds the error of a normal approximation


class Moments(NamedTuple):
    """Sums over the x of one row of eta; numbers are arrays (1,), so that kernels can change them.

    height : the largest f, in nats.  mass : the sum of e^(f - height).
    left_out : a bound on the terms that were not summed, in units of e^height.
    size : |B| + sum_j |eta_j t_j| at the largest term, for the rounding error of f.
    center (k,) : the reference values of t.
    first (k,), second (k, k) : the sums of e^(f - height) (t - center) and of
        e^(f - height) (t_i - center_i) (t_j - center_j) for j <= i.
    """

    height: FloatArray
    mass: FloatArray
    left_out: FloatArray
    size: FloatArray
    center: FloatArray
    first: FloatArray
    second: FloatArray


@part_kernel
def empty_moments(k: int) -> Moments:
    """Return memory for the sums of a row with k statistics."""
    return Moments(
        np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(k), np.zeros(k),
        np.zeros((k, k)),
    )  # fmt: skip


@part_kernel
def clear_moments(moments: Moments) -> None:
    """Reset all sums for a new row: height -inf, the rest 0."""
    moments.height[0] = -np.inf
    moments.mass[0] = 0.0
    moments.left_out[0] = 0.0
    moments.size[0] = 0.0
    for i in range(moments.first.shape[0]):  # slices are slower for so few entries
        moments.center[i] = 0.0
        moments.first[i] = 0.0
        for j in range(moments.first.shape[0]):
            moments.second[i, j] = 0.0


@part_kernel
def raise_height(moments: Moments, height: float, size: float) -> None:
    """Set a larger height, and the size of its term; rescale the sums by e^(old - new)."""
    scale = math.exp(moments.height[0] - height)
    moments.height[0] = height
    moments.size[0] = size
    moments.mass[0] *= scale
    moments.left_out[0] *= scale
    for i in range(moments.first.shape[0]):
        moments.first[i] *= scale
        for j in range(moments.first.shape[0]):
            moments.second[i, j] *= scale


@part_kernel
def recenter(moments: Moments, center: FloatArray) -> None:
    """Change the center to `center` (k,) and the sums accordingly."""
    k = center.shape[0]
    mass = moments.mass[0]
    for i in range(k):
        for j in range(i + 1):
            # E[(t_i - b_i)(t_j - b_j)] from the sums about a, with a - b = shift
            shift_i, shift_j = moments.center[i] - center[i], moments.center[j] - center[j]
            moments.second[i, j] += (
                shift_i * moments.first[j] + shift_j * moments.first[i] + shift_i * shift_j * mass
            )
    for i in range(k):
        moments.first[i] += (moments.center[i] - center[i]) * mass
        moments.center[i] = center[i]


@part_kernel
def mirror_moments(moments: Moments) -> None:
    """Turn sums over x > 0 into those over x < 0, for T = x^2: t_j changes its sign for even j."""
    k = moments.center.shape[0]
    for i in range(1, k, 2):
        moments.center[i] = -moments.center[i]
        moments.first[i] = -moments.first[i]
    for i in range(k):
        for j in range(i + 1):
            if (i + j) % 2 == 1:
                moments.second[i, j] = -moments.second[i, j]


@part_kernel
def add_moments(moments: Moments, other: Moments) -> None:
    """Add the sums of another part of the same row; `other` is recentered in place."""
    recenter(other, moments.center)
    if other.height[0] > moments.height[0]:
        raise_height(moments, other.height[0], max(moments.size[0], other.size[0]))
    scale = math.exp(other.height[0] - moments.height[0])
    moments.mass[0] += scale * other.mass[0]
    moments.left_out[0] += scale * other.left_out[0]
    moments.first[:] += scale * other.first
    moments.second[:] += scale * other.second


@part_kernel
def write_results(
    moments: Moments, bounds: FloatArray, mean: FloatArray, covariance: FloatArray
) -> None:
    """Write the results of one row from its sums.

    bounds (2,) = (A, bound on its error) with A = height + log mass; mean (k,) = E[t] = center +
    first / mass; covariance (k, k) = second / mass - (first / mass) (first / mass)'.
    """
    k = mean.shape[0]
    mass = moments.mass[0]
    bounds[0] = moments.height[0] + math.log(mass)
    rounding = 1e-15 * (8.0 + 4.0 * (moments.size[0] + abs(bounds[0])))
    bounds[1] = math.log1p(moments.left_out[0] / mass) + rounding
    for i in range(k):
        first = moments.first[i] / mass
        mean[i] = moments.center[i] + first
        for j in range(i + 1):
            second = moments.second[i, j] / mass - first * (moments.first[j] / mass)
            covariance[i, j] = second
            covariance[j, i] = second


@part_kernel
def write_divergence(bounds: FloatArray, mean: FloatArray, covariance: FloatArray) -> None:
    """Write the results of a row without a finite sum: A = +inf, moments NaN."""
    bounds[:] = np.inf
    mean[:] = np.nan
    covariance[:] = np.nan


class Table(NamedTuple):
    """The points of one family of counts, in ascending order.

    points (q,) : x.  quadrature (q,) : the weight of each point, in counts.
    log_base (q,), statistics (q, k) : B and t at x.
    later (q, 1 + 2 k) : the largest later increment of B, then for each t_j its least (column
        2 j - 1) and its largest (column 2 j) later increment.
    earlier (q, 1 + 2 k) : the least earlier increment of B, then those of t_j in the same columns.
    singles : the number of points that are single counts; the other points are in panels.
    panels (m + 1,) int64 : the first count of each panel, and the first count after the last one.
    interpolation (m, NODES) : barycentric weights of the points of each panel.
    bounded : whether the family has no counts after the last point.
    """

    points: FloatArray
    quadrature: FloatArray
    log_base: FloatArray
    statistics: FloatArray
    later: FloatArray
    earlier: FloatArray
    singles: int
    panels: IntArray
    interpolation: FloatArray
    bounded: bool


@part_kernel
def log_term(eta: FloatArray, table: Table, q: int) -> float:
    """Return f(x) = <eta, t(x)> + B(x) at point q, in nats."""
    total = table.log_base[q]
    for j in range(eta.shape[0]):
        total += eta[j] * table.statistics[q, j]
    return float(total)


@part_kernel
def term_size(eta: FloatArray, table: Table, q: int) -> float:
    """Return |B(x)| + sum_j |eta_j t_j(x)| at point q: f(x) is rounded relative to this size."""
    total = abs(table.log_base[q])
    for j in range(eta.shape[0]):
        total += abs(eta[j] * table.statistics[q, j])
    return float(total)


@part_kernel
def largest_later(eta: FloatArray, table: Table, q: int) -> float:
    """Return an upper bound of the increments f(x + 1) - f(x) from point q on, in nats."""
    return bound_of_increments(eta, table.later, q, 1)


@part_kernel
def least_earlier(eta: FloatArray, table: Table, q: int) -> float:
    """Return a lower bound of the increments f(x + 1) - f(x) up to point q, in nats."""
    return bound_of_increments(eta, table.earlier, q, -1)


@inner_kernel
def bound_of_increments(eta: FloatArray, bounds: FloatArray, q: int, sign: int) -> float:
    """Return the largest (sign = 1) or the least (sign = -1) increment of f that `bounds` allow.

    The increment of B plus sum_j eta_j (increment of t_j), each at its worst bound.
    """
    total = bounds[q, 0]
    for j in range(eta.shape[0]):
        total += eta[j] * bounds[q, 2 + 2 * j if sign * eta[j] > 0 else 1 + 2 * j]
    return float(total)


@part_kernel
def start_of_sum(eta: FloatArray, table: Table) -> tuple[int, int]:
    """Return the index of the point at which a sum may start, and roughly that of the highest."""
    count = table.points.shape[0]
    best, peak, q = -np.inf, 0, 0
    while q < count:
        f = log_term(eta, table, q)
        if f > best:
            best, peak = f, q
        elif f < best - WINDOW and largest_later(eta, table, q) < 0:
            break
        q += STRIDE
    first = peak - peak % STRIDE
    while first > 0:
        f = log_term(eta, table, first)
        if f < best - WINDOW:
            increment = least_earlier(eta, table, first)
            if increment > 1e-3 and f - best - math.log(increment) < -WINDOW:
                break
        first -= STRIDE
    first = max(first, 0)
    if first > table.singles:  # a panel is summed as a whole
        first -= (first - table.singles) % NODES
    return first, peak


@part_kernel
def interpolate(x: float, table: Table, panel: int, values: FloatArray, first: int) -> float:
    """Return at x the polynomial that has `values` (>= NODES,) at the points of a panel.

    `first` is the index of the panel's first point.  Barycentric formula, O(NODES).
    """
    above, below = 0.0, 0.0
    for i in range(NODES):
        distance = x - table.points[first + i]
        if distance == 0.0:
            return float(values[i])
        share = table.interpolation[panel, i] / distance
        above += share * values[i]
        below += share
    return above / below


@part_kernel
def add_term(moments: Moments, weight: float, statistics: FloatArray, q: int) -> None:
    """Add a term with weight e^(f - height) and statistics[q] (k,) to the moments."""
    moments.mass[0] += weight
    for i in range(statistics.shape[1]):
        part = weight * (statistics[q, i] - moments.center[i])
        moments.first[i] += part
        for j in range(i + 1):
            moments.second[i, j] += part * (statistics[q, j] - moments.center[j])


@part_kernel
def add_counts(
    eta: FloatArray,
    table: Table,
    panel: int,
    heights: FloatArray,
    moments: Moments,
) -> None:
    """Add a panel count by count, if f bends more than the quadrature can resolve.

    f and t at each count are interpolated from the panel's points; heights (NODES,) holds f there.
    """
    k = eta.shape[0]
    at = empty((1, k))
    first = table.singles + panel * NODES
    for x in range(table.panels[panel], table.panels[panel + 1]):
        f = interpolate(float(x), table, panel, heights, first)
        if f > moments.height[0]:
            raise_height(moments, f, term_size(eta, table, first))
        for j in range(k):
            at[0, j] = interpolate(float(x), table, panel, table.statistics[first:, j], first)
        add_term(moments, math.exp(f - moments.height[0]), at, 0)


@part_kernel
def fill_heights(eta: FloatArray, table: Table, first: int, heights: FloatArray) -> float:
    """Write f at the points of a panel to heights (NODES,); return the largest.

    `first` is the index of the panel's first point.
    """
    top = -np.inf
    for i in range(NODES):
        heights[i] = log_term(eta, table, first + i)
        top = max(top, heights[i])
    return float(top)


@part_kernel
def bends(heights: FloatArray, top: float, best: float) -> bool:
    """Return whether a panel with f = heights (NODES,) must be added count by count.

    `top` is the largest of the heights, `best` the largest f of the whole sum.
    """
    bend = abs(heights[0] - heights[NODES // 2 - 1] - heights[NODES // 2] + heights[NODES - 1])
    return bool(top > best - DEPTH and bend > BENDING)


@part_kernel
def add_panel(
    eta: FloatArray,
    table: Table,
    panel: int,
    best: float,
    heights: FloatArray,
    moments: Moments,
) -> None:
    """Add a panel by quadrature, or count by count if it bends; `best` is about the largest f.

    Few panels within DEPTH nats of `best` bend: at a second difference of BENDING nats per panel, f
    crosses that depth in about sqrt(2 DEPTH / BENDING) panels.  So only a few panels are added
    count by count, however many the table has.
    """
    # bounds: a panel has the points first .. first + NODES - 1, and q - singles is a multiple of
    # NODES
    first = table.singles + panel * NODES
    top = fill_heights(eta, table, first, heights)
    if top < best - NOTHING:
        return
    if bends(heights, top, best):
        add_counts(eta, table, panel, heights, moments)
        return
    for i in range(NODES):
        if heights[i] > moments.height[0]:
            raise_height(moments, heights[i], term_size(eta, table, first + i))
        weight = table.quadrature[first + i] * math.exp(heights[i] - moments.height[0])
        add_term(moments, weight, table.statistics, first + i)


@part_kernel
def is_rest_negligible(eta: FloatArray, table: Table, q: int, f: float, moments: Moments) -> bool:
    """Return whether the terms after point q are negligible; then set moments.left_out.

    f is the log term of point q.
    """
    increment = largest_later(eta, table, q)
    if increment >= -1e-12:
        return False
    ratio = math.exp(increment)
    rest = math.exp(f - moments.height[0]) * ratio / (1.0 - ratio)
    # the second moments of the rest are at most (x + 1)^2 times its mass
    if rest * (table.points[q] + 1.0) ** 2 > NEGLIGIBLE * moments.mass[0]:
        return False
    moments.left_out[0] = rest + NEGLIGIBLE * moments.mass[0]
    return True


@part_kernel
def add_singles(
    moments: Moments, weights: FloatArray, statistics: FloatArray, first: int, last: int
) -> None:
    """Add the first and second moments of the points first .. last - 1; not their mass."""
    # loops over points are innermost, with sums in registers: the other way round is slower
    for i in range(statistics.shape[1]):
        center, total = moments.center[i], 0.0
        for q in range(first, last):
            total += weights[q] * (statistics[q, i] - center)
        moments.first[i] += total
        for j in range(i + 1):
            other, total = moments.center[j], 0.0
            for q in range(first, last):
                total += weights[q] * (statistics[q, i] - center) * (statistics[q, j] - other)
            moments.second[i, j] += total


@part_kernel
def sum_counts(eta: FloatArray, table: Table, heights: FloatArray, moments: Moments) -> bool:
    """Write the moments of one eta (k,); return False if counts after the table are not negligible.

    heights (NODES,) : scratch memory.
    """
    clear_moments(moments)
    weights = empty(table.singles)
    count = table.points.shape[0]
    first, peak = start_of_sum(eta, table)
    if peak > 0:
        for j in range(eta.shape[0]):
            moments.center[j] = table.statistics[peak, j]
    q = first
    while q < min(table.singles, count):
        f = log_term(eta, table, q)
        if f > moments.height[0]:
            scale = math.exp(moments.height[0] - f)
            for before in range(first, q):
                weights[before] *= scale
            raise_height(moments, f, term_size(eta, table, q))
        weights[q] = math.exp(f - moments.height[0]) if f > -np.inf else 0.0
        moments.mass[0] += weights[q]
        if f > -np.inf and is_rest_negligible(eta, table, q, f, moments):
            add_singles(moments, weights, table.statistics, first, q + 1)
            return True
        q += 1
    add_singles(moments, weights, table.statistics, first, q)
    panel = (q - table.singles) // NODES
    best = log_term(eta, table, peak)
    while q < count:
        add_panel(eta, table, panel, max(best, moments.height[0]), heights, moments)
        q += NODES
        panel += 1
        if is_rest_negligible(eta, table, q - 1, heights[NODES - 1], moments):
            return True
    return table.bounded


@part_kernel
def integer_root(x: float, j: int) -> float:
    """Return x^(1/j)."""
    if j == 1:
        return x
    if j == 2:
        return math.sqrt(x)
    return math.pow(x, 1.0 / j)


@part_kernel
def poisson_slope(x: float, eta: FloatArray) -> float:
    """Return f'(x) for a large x, with digamma(x + 1) ~ log x + 1 / (2 x) - 1 / (12 x^2)."""
    total = eta[0] - (math.log(x) + 0.5 / x - 1.0 / (12.0 * x * x))
    for j in range(1, eta.shape[0]):
        total += eta[j] * integer_root(x, j + 1) / ((j + 1) * x)
    return float(total)


@part_kernel
def poisson_difference(delta: float, mode: float, eta: FloatArray) -> float:
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
        total += eta[j] * integer_root(mode, j + 1) * math.expm1(log_ratio / (j + 1))
    return float(total)


@part_kernel
def distance_to_edge(sign: float, farthest: float, mode: float, eta: FloatArray) -> float:
    """Return the distance from the mode at which f is NEAR_MODE lower, at most `farthest`.

    sign : 1 for the right, -1 for the left side.
    """
    near, far = 0.0, min(1.0, farthest)
    while far < farthest and poisson_difference(sign * far, mode, eta) > -NEAR_MODE:
        near, far = far, min(2.0 * far, farthest)
    for _ in range(60):
        middle = 0.5 * (near + far)
        if poisson_difference(sign * middle, mode, eta) > -NEAR_MODE:
            near = middle
        else:
            far = middle
    return far


@part_kernel
def mode_beyond(first: float, eta: FloatArray) -> float:
    """Return the mode of the counts from `first` on; NaN if f may not be concave or has no mode."""
    bend = 0.0
    for j in range(1, eta.shape[0]):
        bend += max(-eta[j], 0.0) * j / (j + 1.0) ** 2 * integer_root(first, j + 1) / first
    if bend >= 1.0:
        return math.nan
    low, high = first, 2.0 * first
    while poisson_slope(high, eta) > 0:
        low, high = high, 2.0 * high
        if high > 1e300:
            return math.nan
    for _ in range(100):
        middle = 0.5 * (low + high)
        if poisson_slope(middle, eta) > 0:
            low = middle
        else:
            high = middle
    return float(np.floor(low))


@part_kernel
def add_beyond(first: float, eta: FloatArray, moments: Moments) -> bool:
    """Add the counts from `first` on to the moments; return False if `mode_beyond` returns NaN."""
    k = eta.shape[0]
    mode = mode_beyond(first, eta)
    if math.isnan(mode):
        return False
    left, right = (
        distance_to_edge(-1.0, mode - first, mode, eta),
        distance_to_edge(1.0, 1e300, mode, eta),
    )
    start = np.floor(mode - left)
    stride = max(1.0, np.floor((left + right) / POINTS))
    if poisson_difference(start - mode, mode, eta) > 1.0 - NEAR_MODE:
        stride = 1.0  # the sum is cut off at `first`, at a term that is not negligible: no rule
    height, size = -math.lgamma(mode + 1.0), math.lgamma(mode + 1.0)
    center, at = empty(k), empty(k)
    for j in range(k):
        height += eta[j] * integer_root(mode, j + 1)
        size += abs(eta[j]) * integer_root(mode, j + 1)
        center[j] = integer_root(mode, j + 1)
    recenter(moments, center)
    if height > moments.height[0]:
        raise_height(moments, height, size)
    for step in range(int((left + right) / stride) + 2):
        delta = start - mode + step * stride
        weight = stride * math.exp(
            poisson_difference(delta, mode, eta) + (height - moments.height[0])
        )
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


@part_kernel
def laplace_approximation(
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
        power = integer_root(mode, j + 1)
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
    """Write what `count_rows.derivatives` writes, for rows with terms beyond the table.

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
        first = float(table.panels[-1])  # the last point is before the end of its panel
        mode = mode_beyond(first, eta[row])
        if mode > HUGE:
            laplace_approximation(mode, eta[row], bounds[row], mean[row], covariance[row])
            continue
        sum_counts(eta[row], table, heights, moments)
        if add_beyond(first, eta[row], moments):
            write_results(moments, bounds[row], mean[row], covariance[row])
        else:
            bounds[row] = np.nan
            mean[row] = np.nan
            covariance[row] = np.nan
