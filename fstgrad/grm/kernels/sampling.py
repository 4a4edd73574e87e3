"""Draws from node conditionals and Gibbs sweeps over them."""

import math

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel
from fstgrad.grm.kernels.halfline import log_integrand, window
from fstgrad.grm.kernels.poisson import LIMIT, TABLE, root, series

CELLS = 1024  # of the table of a density over the logarithm


@kernel
def draw_count(
    eta: FloatArray, roots: FloatArray, log_factorial: FloatArray, sums: FloatArray, u: float
) -> float:
    """Return the count at which the distribution function passes u; -1 where it is too wide."""
    if not series(eta, roots, log_factorial, sums):
        return -1.0
    left = u * sums[1]
    for x in range(LIMIT):
        f = -log_factorial[x] if x <= TABLE else -math.lgamma(x + 1.0)
        for j in range(eta.shape[0]):
            f += eta[j] * (roots[x, j] if x <= TABLE else root(float(x), j + 1))
        left -= math.exp(f - sums[0])
        if left <= 0:
            return float(x)
    return float(LIMIT)


@kernel
def table_mass(eta: FloatArray, c: float, place: FloatArray, table: FloatArray) -> float:
    """Fill the density over v = log T at CELLS + 1 points, scaled; return log of its integral.

    -inf where the density has no integral.
    """
    lead = 0
    while lead < eta.shape[0] and eta[lead] == 0.0:
        lead += 1
    if lead == eta.shape[0] or eta[lead] > 0:
        return -np.inf
    window(eta, c, place)
    step = (place[1] - place[0]) / CELLS
    height = log_integrand(place[2], eta, c)
    total = 0.0
    for at in range(CELLS + 1):
        table[at] = math.exp(log_integrand(place[0] + at * step, eta, c) - height)
        total += table[at]
    return height + math.log(total * step)


@kernel
def draw_table(place: FloatArray, table: FloatArray, u: float) -> float:
    """Return T at which the distribution function of a table passes u, linear in each cell."""
    total = 0.0
    for at in range(CELLS):
        total += 0.5 * (table[at] + table[at + 1])
    left = u * total
    step = (place[1] - place[0]) / CELLS
    for at in range(CELLS):
        a, b = table[at], table[at + 1]
        mass = 0.5 * (a + b)
        if left <= mass or at == CELLS - 1:
            left = min(left, mass)
            # a s + (b - a) s^2 / 2 = left
            s = 2.0 * left / (a + math.sqrt(max(a * a + 2.0 * (b - a) * left, 0.0)) + 1e-300)
            return math.exp(place[0] + (at + min(s, 1.0)) * step)
        left -= mass
    return math.exp(place[1])


@kernel
def draw_positive(eta: FloatArray, place: FloatArray, table: FloatArray, u: float) -> float:
    """Return a positive number with T = x; -1 where eta has no normalizer."""
    if table_mass(eta, 1.0, place, table) == -np.inf:
        return -1.0
    return draw_table(place, table, u)


@kernel
def draw_real(
    eta: FloatArray,
    place: FloatArray,
    table: FloatArray,
    other_place: FloatArray,
    other: FloatArray,
    reflected: FloatArray,
    u: float,
) -> float:
    """Return a real number with T = x^2; NaN where eta has no normalizer."""
    for j in range(eta.shape[0]):
        reflected[j] = eta[j] if j % 2 == 0 else -eta[j]
    right = table_mass(eta, 0.5, place, table)
    left = table_mass(reflected, 0.5, other_place, other)
    if right == -np.inf or left == -np.inf:
        return np.nan
    share = 1.0 / (1.0 + math.exp(right - left)) if right - left < 700 else 0.0
    if u < share:
        return -math.sqrt(draw_table(other_place, other, u / share))
    return math.sqrt(draw_table(place, table, (u - share) / (1.0 - share)))


@kernel
def sweep(
    family: int,
    state: FloatArray,
    statistics: FloatArray,
    intercepts: FloatArray,
    pointer: IntArray,
    touching: IntArray,
    sizes: IntArray,
    term_roots: IntArray,
    members: IntArray,
    values: FloatArray,
    roots: FloatArray,
    log_factorial: FloatArray,
    uniforms: FloatArray,
) -> int:
    """Draw every node of every chain given the others, once; return the node that failed or -1.

    family : 0 Poisson, 1 exponential, 2 Gaussian, 3 Gaussian with k <= 2.
    state (c, p), statistics (c, p, k) : updated.
    pointer (p + 1,), touching : the sets that hold each node.
    uniforms : (c, p); standard normal numbers for family 3.
    """
    chains, p, k = statistics.shape
    eta, sums, reflected = np.empty(k), np.empty(4 + k + k * k), np.empty(k)
    place, other_place = np.empty(4), np.empty(4)
    table, other = np.empty(CELLS + 1), np.empty(CELLS + 1)
    for chain in range(chains):
        for s in range(p):
            eta[:] = intercepts[s]
            for at in range(pointer[s], pointer[s + 1]):
                number = touching[at]
                j = term_roots[number] - 1
                product = values[number]
                for a in range(sizes[number]):
                    if members[number, a] != s:
                        product *= statistics[chain, members[number, a], j]
                eta[j] += product
            u = uniforms[chain, s]
            if family == 0:
                x = draw_count(eta, roots, log_factorial, sums, u)
            elif family == 1:
                x = draw_positive(eta, place, table, u)
            elif family == 3:
                x = np.nan
                if eta[0] < 0:
                    linear = eta[1] if k == 2 else 0.0
                    x = -0.5 * linear / eta[0] + u * math.sqrt(-0.5 / eta[0])
            else:
                x = draw_real(eta, place, table, other_place, other, reflected, u)
            if np.isnan(x) or (family < 2 and x < 0):
                return s
            state[chain, s] = x
            for j in range(k):
                value = root(abs(x), j + 1)
                if family >= 2:
                    value *= value
                    if j % 2 == 1 and x < 0:
                        value = -value
                statistics[chain, s, j] = value
    return -1
