"""Draws from node conditionals, and Gibbs sweeps: one kernel for each kind of base.

Letters: c chains, p nodes, k roots, e statistics of the family's own; eta (k + e,) holds the
natural parameters of a node given all others, t their statistics.  Draws are by inversion of the
distribution function at uniform numbers in [0, 1), (c, p) float64 per sweep.  A sweep returns the
number of the node whose conditional cannot be drawn, or -1.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import copy_to
from fstgrad.grm.kernels.counts import (
    NODES,
    NOTHING,
    Moments,
    Table,
    bends,
    empty_moments,
    fill_heights,
    interpolate,
    log_term,
    start_of_sum,
    sum_counts,
)  # fmt: skip
from fstgrad.grm.kernels.integrals import LEFT, PEAK, RIGHT, log_integrand, window

CELLS = 1024  # of the table of a density over log T
PARTS = 64  # that a panel of counts is cut into
ROUNDING = 1e-13  # a remainder below this share of the mass is a rounding error


class ChainArrays(NamedTuple):
    """The state of the chains and the parameters of their conditionals.

    state (c, p), statistics (c, p, k + e) : x and t, updated in place by a sweep.
    intercepts (p, k + e).
    shift (c, p) : added to the first intercept of each node, chain by chain.
    pointer (p + 1,), touching : node s is in the sets touching[pointer[s]:pointer[s + 1]].
    sizes, roots, members, values : the sets, as in `Parameters.flat`.
    """

    state: FloatArray
    statistics: FloatArray
    intercepts: FloatArray
    shift: FloatArray
    pointer: IntArray
    touching: IntArray
    sizes: IntArray
    roots: IntArray
    members: IntArray
    values: FloatArray


class TableSet(NamedTuple):
    """Several tables, their arrays concatenated.

    which (p,) : the table of each node.  point, panel (tables + 1,) : where the points and the
    entries of `panels` of each table begin.  The other fields are those of `Table`.
    """

    which: IntArray
    point: IntArray
    panel: IntArray
    points: FloatArray
    quadrature: FloatArray
    log_base: FloatArray
    statistics: FloatArray
    later: FloatArray
    earlier: FloatArray
    singles: IntArray
    panels: IntArray
    interpolation: FloatArray
    bounded: BoolArray


def stack_tables(tables: Sequence[Table], which: IntArray) -> TableSet:
    """Return the tables as one TableSet; which (p,) is the table of each node."""
    whole = {
        name: np.concatenate([getattr(table, name) for table in tables])
        for name in (
            "points", "quadrature", "log_base", "statistics", "later", "earlier", "panels",
            "interpolation",
        )
    }  # fmt: skip
    return TableSet(
        which,
        np.cumsum([0, *(len(table.points) for table in tables)]).astype(np.int64),
        np.cumsum([0, *(len(table.panels) for table in tables)]).astype(np.int64),
        singles=np.array([table.singles for table in tables], dtype=np.int64),
        bounded=np.array([table.bounded for table in tables]),
        **whole,
    )


@part_kernel
def table_of(tables: TableSet, node: int) -> Table:
    """Return the table of a node; its arrays are views."""
    number = tables.which[node]
    a, b = tables.point[number], tables.point[number + 1]
    c, d = tables.panel[number], tables.panel[number + 1]
    return Table(
        tables.points[a:b], tables.quadrature[a:b], tables.log_base[a:b], tables.statistics[a:b],
        tables.later[a:b], tables.earlier[a:b], tables.singles[number], tables.panels[c:d],
        tables.interpolation[c - number : d - number - 1], tables.bounded[number],
    )  # fmt: skip


@part_kernel
def conditional(chains: ChainArrays, chain: int, node: int, eta: FloatArray) -> None:
    """Write eta (k + e,), the natural parameters of a node given the others in one chain.

    eta_j = intercept_j + [j = 1] shift + sum over the sets S of root j with the node of
    theta_S prod_{t in S without the node} t_j(x_t).
    """
    copy_to(eta, chains.intercepts[node])
    eta[0] += chains.shift[chain, node]
    for at in range(chains.pointer[node], chains.pointer[node + 1]):
        number = chains.touching[at]
        j = chains.roots[number] - 1
        product = chains.values[number]
        for a in range(chains.sizes[number]):
            if chains.members[number, a] != node:
                product *= chains.statistics[chain, chains.members[number, a], j]
        eta[j] += product


@part_kernel
def panel_mass(table: Table, panel: int, heights: FloatArray, top: float, is_bent: bool) -> float:
    """Return the sum of e^(f - top) over the counts of a panel with f = heights at its points."""
    first = table.singles + panel * NODES
    total = 0.0
    if is_bent:
        for x in range(table.panels[panel], table.panels[panel + 1]):
            total += math.exp(interpolate(float(x), table, panel, heights, first) - top)
        return total
    for i in range(NODES):
        total += table.quadrature[first + i] * math.exp(heights[i] - top)
    return total


@part_kernel
def draw_in_panel(
    table: Table, panel: int, heights: FloatArray, top: float, is_bent: bool, u: float
) -> float:
    """Return the count at which the share u of the mass of a panel is reached.

    f = heights at the panel's points.  A panel that is not bent is cut into PARTS parts of equal
    length, and counts within a part are treated as equally likely.
    """
    first = table.singles + panel * NODES
    start, end = table.panels[panel], table.panels[panel + 1]
    parts = end - start if is_bent else min(PARTS, end - start)
    mass, total = empty(parts), 0.0
    for part in range(parts):
        a, b = start + (end - start) * part // parts, start + (end - start) * (part + 1) // parts
        middle = interpolate(0.5 * (a + b - 1), table, panel, heights, first)
        mass[part] = (b - a) * math.exp(middle - top)
        total += mass[part]
    left = u * total
    for part in range(parts):
        if left <= mass[part] or part == parts - 1:
            a = start + (end - start) * part // parts
            b = start + (end - start) * (part + 1) // parts
            share = min(left / mass[part], 1.0) if mass[part] > 0 else 0.0
            return float(min(a + math.floor(share * (b - a)), b - 1))
        left -= mass[part]
    return float(end - 1)


@kernel
def draw_count(
    eta: FloatArray, table: Table, moments: Moments, heights: FloatArray, u: float
) -> float:
    """Return the count at which the distribution function reaches u; -1 if the sum does not end.

    The sum does not end if terms after the table are not negligible.  heights (NODES,) and moments
    are scratch memory.
    """
    if not sum_counts(eta, table, heights, moments):
        return -1.0
    left, top = u * moments.mass[0], moments.height[0]
    q = start_of_sum(eta, table)[0]
    count, last = table.points.shape[0], 0.0
    while q < min(table.singles, count):
        weight = math.exp(log_term(eta, table, q) - top)
        left -= weight
        if weight > 0:
            last = table.points[q]
            if left <= 0:
                return float(last)
        q += 1
    panel = (q - table.singles) // NODES
    while q < count and (last == 0.0 or left > ROUNDING * moments.mass[0]):
        highest = fill_heights(eta, table, q, heights)
        if highest > top - NOTHING:
            is_bent = bends(heights, highest, top)
            mass = panel_mass(table, panel, heights, top, is_bent)
            if left <= mass:
                return draw_in_panel(table, panel, heights, top, is_bent, left / mass)
            last = float(table.panels[panel + 1] - 1)
            left -= mass
        q += NODES
        panel += 1
    return float(last)


@kernel
def sweep_counts(chains: ChainArrays, tables: TableSet, uniforms: FloatArray) -> int:
    """Draw every node of every chain, given the others, for a family of counts."""
    count, p, k = chains.statistics.shape
    eta, moments, heights = empty(k), empty_moments(k), empty(NODES)
    for s in range(p):
        table = table_of(tables, s)
        for chain in range(count):
            conditional(chains, chain, s, eta)
            x = draw_count(eta, table, moments, heights, uniforms[chain, s])
            if x < 0:
                return s
            chains.state[chain, s] = x
            if x < table.singles:
                copy_to(chains.statistics[chain, s], table.statistics[int(x)])
                continue
            panel = int(np.searchsorted(table.panels, int(x), side="right")) - 1
            first = table.singles + panel * NODES
            for j in range(k):
                values = table.statistics[first : first + NODES, j]
                chains.statistics[chain, s, j] = interpolate(x, table, panel, values, first)
    return -1


@part_kernel
def table_mass(eta: FloatArray, c: float, place: FloatArray, table: FloatArray) -> float:
    """Write the density over v = log T at CELLS + 1 equidistant points; return its log-integral.

    table[i] = exp(h(v_i) - largest h), with h as in `kernels.integrals` (c = 1 for T = x, 1/2 for
    T = x^2), over the interval that `window` writes to place (4,).  Returns -inf if there is no
    finite integral.
    """
    lead = 0
    while lead < eta.shape[0] and eta[lead] == 0.0:
        lead += 1
    if lead == eta.shape[0] or eta[lead] > 0 or not window(eta, c, place):
        return -np.inf
    step = (place[RIGHT] - place[LEFT]) / CELLS
    height = log_integrand(place[PEAK], eta, c)
    lift = math.log(c) - height
    powers, ratios = empty(eta.shape[0]), empty(eta.shape[0])
    for j in range(eta.shape[0]):
        ratios[j] = math.exp(step / (j + 1))
    total = 0.0
    for at in range(CELLS + 1):
        v = place[LEFT] + at * step
        level = c * v + lift
        for j in range(eta.shape[0]):  # T^(1/j) by multiplication; from scratch at every 32nd point
            powers[j] = math.exp(v / (j + 1)) if at % 32 == 0 else powers[j] * ratios[j]
            level += eta[j] * powers[j]
        table[at] = math.exp(level)
        total += table[at]
    return height + math.log(total * step)


@part_kernel
def draw_table(place: FloatArray, table: FloatArray, u: float) -> float:
    """Return T at which the distribution function reaches u, for a table of `table_mass`.

    The density is treated as linear in each cell of v = log T.
    """
    total = 0.0
    for at in range(CELLS):
        total += 0.5 * (table[at] + table[at + 1])
    left = u * total
    step = (place[RIGHT] - place[LEFT]) / CELLS
    for at in range(CELLS):
        a, b = table[at], table[at + 1]
        mass = 0.5 * (a + b)
        if left <= mass or at == CELLS - 1:
            left = min(left, mass)
            # a s + (b - a) s^2 / 2 = left
            s = 2.0 * left / (a + math.sqrt(max(a * a + 2.0 * (b - a) * left, 0.0)) + 1e-300)
            return math.exp(place[LEFT] + (at + min(s, 1.0)) * step)
        left -= mass
    return math.exp(place[RIGHT])


@kernel
def sweep_positive(chains: ChainArrays, uniforms: FloatArray) -> int:
    """Draw every node of every chain, given the others, for positive x with T = x."""
    count, p, k = chains.statistics.shape
    eta, place, table = empty(k), empty(4), empty(CELLS + 1)
    for chain in range(count):
        for s in range(p):
            conditional(chains, chain, s, eta)
            if table_mass(eta, 1.0, place, table) == -np.inf:
                return s
            x = draw_table(place, table, uniforms[chain, s])
            chains.state[chain, s] = x
            for j in range(k):
                chains.statistics[chain, s, j] = math.pow(x, 1.0 / (j + 1))
    return -1


@part_kernel
def set_real(chains: ChainArrays, chain: int, node: int, x: float) -> None:
    """Store x and its statistics: t_j = |x|^(2/j), with the sign of x for even j."""
    chains.state[chain, node] = x
    for j in range(chains.statistics.shape[2]):
        value = math.pow(abs(x), 2.0 / (j + 1))
        chains.statistics[chain, node, j] = -value if j % 2 == 1 and x < 0 else value


@kernel
def sweep_real(chains: ChainArrays, uniforms: FloatArray) -> int:
    """Draw every node of every chain, given the others, for real x with T = x^2.

    The uniform number first chooses the sign of x by the masses of the two sides, then |x|.
    """
    count, p, k = chains.statistics.shape
    eta, reflected = empty(k), empty(k)
    place, other_place = empty(4), empty(4)
    table, other = empty(CELLS + 1), empty(CELLS + 1)
    for chain in range(count):
        for s in range(p):
            conditional(chains, chain, s, eta)
            for j in range(k):
                reflected[j] = eta[j] if j % 2 == 0 else -eta[j]
            right = table_mass(eta, 0.5, place, table)
            left = table_mass(reflected, 0.5, other_place, other)
            if right == -np.inf or left == -np.inf:
                return s
            share = 1.0 / (1.0 + math.exp(right - left)) if right - left < 700 else 0.0
            u = uniforms[chain, s]
            if u < share:
                x = -math.sqrt(draw_table(other_place, other, u / share))
            else:
                x = math.sqrt(draw_table(place, table, (u - share) / (1.0 - share)))
            set_real(chains, chain, s, x)
    return -1


@kernel
def sweep_normal(chains: ChainArrays, normals: FloatArray) -> int:
    """Draw every node of every chain of a Gaussian base with k <= 2, in closed form.

    x ~ N(-eta_2 / (2 eta_1), -1 / (2 eta_1)), from standard normal numbers (c, p).
    """
    count, p, k = chains.statistics.shape
    eta = empty(k)
    for chain in range(count):
        for s in range(p):
            conditional(chains, chain, s, eta)
            if not eta[0] < 0:
                return s
            linear = eta[1] if k == 2 else 0.0
            x = -0.5 * linear / eta[0] + normals[chain, s] * math.sqrt(-0.5 / eta[0])
            set_real(chains, chain, s, x)
    return -1
