"""Sums over the counts of exp(<eta, t(x)> + B(x)), with a bound on what is left out.

A family of counts is a table (`fstgrad.grm.tables`): the counts 0, 1, 2, ... one by one, then
panels of `NODES` points whose weights give the sum over all counts of the panel (Gauss quadrature
for sums, exact for polynomials of degree 2 NODES - 1).  The cost depends on the width of a
distribution in panels, not on its mean.

The table holds, for every point, bounds of all later and of all earlier log-increments of B and of
t_j.  Where the bound u of the later increments of <eta, t> + B is negative, the terms after x sum
to at most f(x) e^u / (1 - e^u); the same holds before x.  A sum starts and ends where these
remainders are negligible.
"""

import math
from typing import NamedTuple

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import inner_kernel, kernel
from fstgrad.grm.kernels.moments import (
    Moments,
    clear,
    raise_height,
)

NEGLIGIBLE = 1e-18
WINDOW = 60.0  # nats below the highest point at which a sum may start
STRIDE = 16  # points between those that the search for the highest one looks at
NODES = 10  # points of a panel
BENDING = 1.4  # most second difference of the log term over a panel that its points can follow
DEPTH = 45.0  # nats below the top at which a panel needs no such check
NOTHING = 90.0  # nats below the top at which a million counts and their squares are no rounding


class Table(NamedTuple):
    """The points of one family of counts, in ascending order.

    points (q,) : x.  quadrature (q,) : how many counts a point stands for.
    log_base (q,), statistics (q, k) : B and t at x.
    later (q, 1 + 2 k) : the largest later increment of B, then the least and the largest of t_j.
    earlier (q, 1 + 2 k) : the least earlier increment of B, then those of t_j.
    panels (m + 1,) int64 : the first count of each panel; the first `singles` points have none.
    interpolation (m, NODES) : barycentric weights of the points of each panel.
    bounded : whether no counts follow the last point.
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
    """Return <eta, t(x)> + B(x) at point q."""
    total = table.log_base[q]
    for j in range(eta.shape[0]):
        total += eta[j] * table.statistics[q, j]
    return float(total)


@kernel
def term_size(eta: FloatArray, table: Table, q: int) -> float:
    """Return the size of the numbers that cancel in the log term of point q."""
    total = abs(table.log_base[q])
    for j in range(eta.shape[0]):
        total += abs(eta[j] * table.statistics[q, j])
    return float(total)


@kernel
def largest_later(eta: FloatArray, table: Table, q: int) -> float:
    """Return an upper bound of every log-increment after point q."""
    return bound_of_increments(eta, table.later, q, 1)


@kernel
def least_earlier(eta: FloatArray, table: Table, q: int) -> float:
    """Return a lower bound of every log-increment before point q."""
    return bound_of_increments(eta, table.earlier, q, -1)


@inner_kernel
def bound_of_increments(eta: FloatArray, bounds: FloatArray, q: int, sign: int) -> float:
    """Return the sum of eta_j times the largest increment of t_j (sign 1) or the least (-1)."""
    total = bounds[q, 0]
    for j in range(eta.shape[0]):
        total += eta[j] * bounds[q, 2 + 2 * j if sign * eta[j] > 0 else 1 + 2 * j]
    return float(total)


@kernel
def start_of_sum(eta: FloatArray, table: Table) -> tuple[int, int]:
    """Return the point at which a sum may start and about the highest point."""
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
    """Return at x what takes `values` at the points of a panel, the first of them point `first`."""
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
    """Add one term of weight e^(f - height), with row q of the statistics."""
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
    """Add a panel count by count, for terms that bend more than its points can follow."""
    k = eta.shape[0]
    at = np.empty((1, k))
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
    """Fill the log terms of the points of a panel, the first of them `first`; return the most."""
    top = -np.inf
    for i in range(NODES):
        heights[i] = log_term(eta, table, first + i)
        top = max(top, heights[i])
    return float(top)


@kernel
def bends(heights: FloatArray, top: float, best: float) -> bool:
    """Return whether a panel with log terms `heights` is to be added count by count."""
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
    """Add a panel by its points; `best` is about the highest log term of the whole sum.

    Within DEPTH of `best` few panels bend: a bend of BENDING nats a panel leaves that depth, or
    came from it, after about sqrt(2 DEPTH / BENDING) panels.  So the counts that are added one by
    one are some panels' worth, however many the table has.
    """
    # the points of a panel are first .. first + NODES - 1: (q - singles) is a multiple of NODES
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
    """Return whether what follows point q is negligible; its bound becomes `left_out`."""
    increment = largest_later(eta, table, q)
    if increment >= -1e-12:
        return False
    ratio = math.exp(increment)
    rest = math.exp(f - moments.height[0]) * ratio / (1.0 - ratio)
    # the second moments of the rest exceed its mass by less than (x + 1)^2
    if rest * (table.points[q] + 1.0) ** 2 > NEGLIGIBLE * moments.mass[0]:
        return False
    moments.left_out[0] = rest + NEGLIGIBLE * moments.mass[0]
    return True


@kernel
def add_singles(
    moments: Moments, weights: FloatArray, statistics: FloatArray, first: int, last: int
) -> None:
    """Add the moments of the points from `first` to before `last`, whose mass is counted."""
    # sums in registers: loops over the few statistics inside the one over the points cost more
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
    """Sum one row; return False where the counts after the last point are not negligible.

    heights (NODES,) : room.
    """
    clear(moments)
    weights = np.empty(table.singles)
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
