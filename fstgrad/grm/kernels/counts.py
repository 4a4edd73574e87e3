"""Sums over the counts x of e^f(x), f(x) = <eta, t(x)> + B(x), with a bound on what is left out.

A family of counts is a table (`fstgrad.grm.tables`).  It has the counts 0, 1, 2, ... singly, then
panels of `NODES` points with weights: the weighted sum over the points is the sum over all counts
of the panel (Gauss quadrature for sums, exact for polynomials of degree 2 NODES - 1).  The cost
depends on the width of a distribution in panels, not on its mean.

For every point, the table bounds all later and all earlier increments of B and of t_j, from x to
x + 1.  If the bound u of the later increments of f is negative, the terms after x sum to at most
e^f(x) e^u / (1 - e^u); the same holds before x.  A sum starts and ends where these remainders are
negligible.

eta is (k,), here with all statistics of the family; q is the index of a point.
"""

import math
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel
from fstgrad.core.uninitialized import empty
from fstgrad.grm.kernels.moments import (
    Moments,
    clear,
    raise_height,
)

NEGLIGIBLE = 1e-18  # of the mass
WINDOW = 60.0  # a sum may start this many nats below the highest point
STRIDE = 16  # the search for the highest point evaluates every STRIDE-th point
NODES = 10  # points per panel
BENDING = 1.4  # largest second difference (nats) of f over a panel that quadrature can resolve
DEPTH = 45.0  # nats below the top beyond which a panel is not checked for bending
NOTHING = 90.0  # nats below the top beyond which even a million counts, squared, are below rounding


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


@kernel
def log_term(eta: FloatArray, table: Table, q: int) -> float:
    """Return f(x) = <eta, t(x)> + B(x) at point q, in nats."""
    total = table.log_base[q]
    for j in range(eta.shape[0]):
        total += eta[j] * table.statistics[q, j]
    return float(total)


@kernel
def term_size(eta: FloatArray, table: Table, q: int) -> float:
    """Return |B(x)| + sum_j |eta_j t_j(x)| at point q: f(x) is rounded relative to this size."""
    total = abs(table.log_base[q])
    for j in range(eta.shape[0]):
        total += abs(eta[j] * table.statistics[q, j])
    return float(total)


@kernel
def largest_later(eta: FloatArray, table: Table, q: int) -> float:
    """Return an upper bound of the increments f(x + 1) - f(x) from point q on, in nats."""
    return bound_of_increments(eta, table.later, q, 1)


@kernel
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


@kernel
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


@kernel
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


@kernel
def add_term(moments: Moments, weight: float, statistics: FloatArray, q: int) -> None:
    """Add a term with weight e^(f - height) and statistics[q] (k,) to the moments."""
    moments.mass[0] += weight
    for i in range(statistics.shape[1]):
        part = weight * (statistics[q, i] - moments.center[i])
        moments.first[i] += part
        for j in range(i + 1):
            moments.second[i, j] += part * (statistics[q, j] - moments.center[j])


@kernel
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


@kernel
def fill_heights(eta: FloatArray, table: Table, first: int, heights: FloatArray) -> float:
    """Write f at the points of a panel to heights (NODES,); return the largest.

    `first` is the index of the panel's first point.
    """
    top = -np.inf
    for i in range(NODES):
        heights[i] = log_term(eta, table, first + i)
        top = max(top, heights[i])
    return float(top)


@kernel
def bends(heights: FloatArray, top: float, best: float) -> bool:
    """Return whether a panel with f = heights (NODES,) must be added count by count.

    `top` is the largest of the heights, `best` the largest f of the whole sum.
    """
    bend = abs(heights[0] - heights[NODES // 2 - 1] - heights[NODES // 2] + heights[NODES - 1])
    return bool(top > best - DEPTH and bend > BENDING)


@kernel
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


@kernel
def ends(eta: FloatArray, table: Table, q: int, f: float, moments: Moments) -> bool:
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


@kernel
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


@kernel
def sum_counts(eta: FloatArray, table: Table, heights: FloatArray, moments: Moments) -> bool:
    """Write the moments of one eta (k,); return False if counts after the table are not negligible.

    heights (NODES,) : scratch memory.
    """
    clear(moments)
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
        if f > -np.inf and ends(eta, table, q, f, moments):
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
        if ends(eta, table, q - 1, heights[NODES - 1], moments):
            return True
    return table.bounded
