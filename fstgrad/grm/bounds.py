"""Piecewise-linear bounds of M(a) = log of the integral of T^a exp(<eta, t>) over the base measure.

Section 5 of Inouye, Ravikumar and Dhillon (2016).  Write the integrand as e^g times a base that is
exponential-linear (Poisson, exponential) or Gaussian,

    g(x) = sum_j c_j x^(e_j) + q log x        with powers 0 < e_j < 1.

The domain is cut at the zeros of g'' (the real roots of a polynomial in x^(1/lcm)), so that g is
convex or concave on each piece.  There the chord lies on one side of g and a tangent on the other;
e^(line) times the base has a mass in closed form.  On the last piece the chord is flat, because
g' tends to 0.  Then the piece with the widest gap between its two masses is split, again and again.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fstgrad.checks import BoolArray, FloatArray
from fstgrad.errors import InvalidInputError
from fstgrad.grm.measures import ExponentialMeasure, GaussianMeasure, Measure, PoissonMeasure

if TYPE_CHECKING:
    from fstgrad.grm.families import Base

MOST_DOMAINS = 4096
Pair = tuple[FloatArray, FloatArray]


@dataclass
class Integrand:
    """Rows of e^g times a base measure on x > 0.

    coefficients (m, r), powers (r,) : g without its logarithm.  q : float.
    """

    measure: Measure
    coefficients: FloatArray
    powers: FloatArray
    q: float
    center: FloatArray  # (m, 1), where most of the mass is

    def g(self, x: FloatArray) -> FloatArray:
        """Return g(x), (m, c) for x (m, c)."""
        value = (self.coefficients[:, None, :] * x[..., None] ** self.powers).sum(axis=-1)
        if self.q:
            with np.errstate(divide="ignore"):
                value = value + self.q * np.log(x)
        return np.asarray(value)

    def slope(self, x: FloatArray) -> FloatArray:
        """Return g'(x)."""
        weights = self.coefficients * self.powers
        return np.asarray(
            (weights[:, None, :] * x[..., None] ** (self.powers - 1)).sum(axis=-1) + self.q / x
        )

    def bend(self, x: FloatArray) -> FloatArray:
        """Return x^2 g''(x)."""
        weights = self.coefficients * self.powers * (self.powers - 1)
        return np.asarray((weights[:, None, :] * x[..., None] ** self.powers).sum(axis=-1) - self.q)

    def inflections(self) -> FloatArray:
        """Return the zeros of g'' of each row, ascending, padded with the last one (0 if none)."""
        whole = math.lcm(*range(1, 2 * len(self.powers) + 3))
        degrees = np.rint(self.powers * whole).astype(int)
        common = math.gcd(whole, *degrees.tolist())
        degrees = degrees // common
        unit = whole // common
        found = []
        for row in self.coefficients * self.powers * (self.powers - 1):
            polynomial = np.zeros(degrees.max(initial=0) + 1)
            polynomial[degrees] = row
            polynomial[0] -= self.q
            roots = np.roots(polynomial[::-1])
            real = roots.real[(np.abs(roots.imag) <= 1e-7 * np.abs(roots)) & (roots.real > 0)]
            found.append(np.sort(real**unit))
        width = max((len(row) for row in found), default=0)
        out = np.zeros((len(found), width))
        for number, row in enumerate(found):
            out[number] = np.pad(row, (0, width - len(row)), constant_values=row.max(initial=0.0))
        return out


def log_moment(
    base: "Base", eta: FloatArray, a: float, *, domains: int = 10, tol: float | None = None
) -> Pair:
    """Return the bounds of log of the integral of T^a exp(<eta, t> + B), (m,), for eta (m, k)."""
    sides = _half_lines(base, eta, a)
    pieces = [_bound(side, a, domains, tol) for side in sides]
    lower = np.logaddexp.reduce([low for low, _ in pieces])
    upper = np.logaddexp.reduce([high for _, high in pieces])
    return lower, upper


def moments(base: "Base", eta: FloatArray, *, domains: int, tol: float | None) -> Pair:
    """Return the bounds of E[t_j], (m, k)."""
    k = eta.shape[1]
    low, high = np.empty(eta.shape), np.empty(eta.shape)
    for j in range(1, k + 1):
        even = base.name == "gaussian" and j % 2 == 0
        low[:, j - 1], high[:, j - 1] = _mean(base, eta, 1.0 / j, even, domains, tol)
    return low, high


def covariances(base: "Base", eta: FloatArray, *, domains: int, tol: float | None) -> Pair:
    """Return the bounds of Cov[t_i, t_j], (m, k, k)."""
    k = eta.shape[1]
    mean_low, mean_high = moments(base, eta, domains=domains, tol=tol)
    low, high = np.empty((len(eta), k, k)), np.empty((len(eta), k, k))
    for i in range(k):
        for j in range(i + 1):
            odd = base.name == "gaussian" and (i + j) % 2 == 1
            second = _mean(base, eta, 1.0 / (i + 1) + 1.0 / (j + 1), odd, domains, tol)
            corners = [
                p * q
                for p in (mean_low[:, i], mean_high[:, i])
                for q in (mean_low[:, j], mean_high[:, j])
            ]
            low[:, i, j] = low[:, j, i] = second[0] - np.max(corners, axis=0)
            high[:, i, j] = high[:, j, i] = second[1] - np.min(corners, axis=0)
    return low, high


def _mean(
    base: "Base", eta: FloatArray, a: float, signed: bool, domains: int, tol: float | None
) -> Pair:
    """Return the bounds of E[T^a], or of E[sign(x) T^a]."""
    total = [_bound(side, 0.0, domains, tol) for side in _half_lines(base, eta, 0.0)]
    parts = [_bound(side, a, domains, tol) for side in _half_lines(base, eta, a)]
    lower = np.logaddexp.reduce([low for low, _ in total])
    upper = np.logaddexp.reduce([high for _, high in total])
    least, most = np.zeros(len(eta)), np.zeros(len(eta))
    for side, (low, high) in enumerate(parts):
        if signed and side == 1:
            least, most = least - np.exp(high - lower), most - np.exp(low - upper)
        else:
            least, most = least + np.exp(low - upper), most + np.exp(high - lower)
    return least, most


def _half_lines(base: "Base", eta: FloatArray, a: float) -> list[Integrand]:
    """Return the integrands over x > 0, one or (Gaussian) two."""
    k = eta.shape[1]
    if base.name != "poisson" and not (eta[:, 0] < 0).all():
        raise InvalidInputError(
            f"eta_1 is {eta[:, 0].max()}; the bounds stand on a base that decays, eta_1 < 0: "
            'give method="direct"'
        )
    parts: list[tuple[Measure, FloatArray]]
    if base.name == "poisson":
        parts = [(PoissonMeasure(eta), eta)]
    elif base.name == "exponential":
        parts = [(ExponentialMeasure(eta), eta)]
    else:
        mirrored = eta * np.where(np.arange(1, k + 1) % 2 == 0, -1.0, 1.0)
        none = np.zeros((len(eta), 1))
        parts = [
            (GaussianMeasure(eta, side[:, 1:2] if k > 1 else none), side)
            for side in (eta, mirrored)
        ]
    first = 2 if base.name == "gaussian" else 1  # coefficients that the measure holds
    powers = base.exponents(k)
    return [
        Integrand(
            measure, side[:, first:], powers[first:], a * base.power,
            _center(base, side, powers, a * base.power),
        )
        for measure, side in parts
    ]  # fmt: skip


def _center(base: "Base", eta: FloatArray, powers: FloatArray, q: float) -> FloatArray:
    """Return about where the mass is on a logarithmic scale, (m, 1)."""
    v = np.linspace(-60, 60, 1201)
    x = np.exp(v)
    with np.errstate(over="ignore", invalid="ignore"):
        height = eta @ (x ** powers[:, None]) + (1 + q) * v
        if base.name == "poisson":
            height += base.log_base(x)
    peak = np.argmax(np.nan_to_num(height, nan=-np.inf), axis=1)
    return np.asarray(x[peak, None])


def _bound(integrand: Integrand, a: float, domains: int, tol: float | None) -> Pair:
    """Split until there are `domains` pieces, or the bounds are within `tol`."""
    discrete = integrand.measure.discrete
    ends = integrand.inflections()
    rows = len(ends)
    first = np.full((rows, 1), 1.0 if discrete else 0.0)
    cuts = np.maximum(np.floor(ends) if discrete else ends, first - (1.0 if discrete else 0.0))
    left = np.concatenate([first, cuts + 1 if discrete else cuts], axis=1)
    right = np.concatenate([cuts, np.full((rows, 1), np.inf)], axis=1)
    low, high = _piece(integrand, left, right)
    at_zero = 0.0 if discrete and a == 0 else -np.inf  # the term x = 0 of a sum over the counts
    every = np.arange(rows)
    while True:
        lower = np.logaddexp(np.logaddexp.reduce(low, axis=1), at_zero)
        upper = np.logaddexp(np.logaddexp.reduce(high, axis=1), at_zero)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            gap = np.where(high > low, high + np.log1p(-np.exp(low - high)), -np.inf)
        done = (right >= left).sum(axis=1) >= domains
        if tol is not None:
            done &= upper - lower <= tol
        done |= np.isneginf(gap).all(axis=1)  # nothing is left between the bounds
        if done.all() or left.shape[1] >= MOST_DOMAINS:
            break
        widest = np.argmax(gap, axis=1)
        l, r = left[every, widest], right[every, widest]
        cut = _cut(l, r, integrand.center[:, 0], discrete)
        right[every, widest] = cut
        left = np.append(left, np.where(cut < r, cut + discrete, np.inf)[:, None], axis=1)
        right = np.append(right, np.where(cut < r, r, -np.inf)[:, None], axis=1)
        new = np.stack([widest, np.full(rows, left.shape[1] - 1)], axis=1)
        low, high = (np.append(side, np.full((rows, 1), -np.inf), axis=1) for side in (low, high))
        pair = _piece(integrand, left[every[:, None], new], right[every[:, None], new])
        low[every[:, None], new], high[every[:, None], new] = pair
    rounding = 1e-14 * (1 + np.abs(upper) + _magnitude(integrand))
    return lower - rounding, upper + rounding


def _cut(left: FloatArray, right: FloatArray, center: FloatArray, discrete: bool) -> FloatArray:
    """Return where to split: near the mass, else geometrically over decades, else halfway."""
    tail = ~np.isfinite(right)
    inside = (left < center) & (center < right)
    far = (right > 4 * left) & ~tail
    geometric = np.sqrt(
        np.maximum(left, np.where(tail, 1.0, right) / 64) * np.where(tail, 1, right)
    )
    cut = np.where(far, geometric, np.where(tail, left, 0.5 * (left + np.where(tail, left, right))))
    beyond = np.where(inside, 1.5 * center, 2 * left + 1)
    cut = np.where(tail, beyond, cut)
    if discrete:
        cut = np.clip(np.floor(cut), left, np.where(tail, np.inf, np.maximum(right - 1, left)))
    return cut


def _piece(integrand: Integrand, left: FloatArray, right: FloatArray) -> Pair:
    """Return the log masses under the line below and the line above g on [left, right]."""
    tail = ~np.isfinite(right)
    empty = ~(right > left) & ~((right == left) & integrand.measure.discrete)
    l = np.where(empty, 1.0, left)
    r = np.where(tail | empty, l + 1.0, right)
    touch = np.clip(integrand.center, l, np.where(tail, np.inf, r))
    touch = np.where(touch == 0, 1e-3 * r, touch)
    for _ in range(200):  # on the tail the tangent must leave the integral finite
        steep = tail & ~_finite(integrand, touch)
        if not steep.any():
            break
        touch = np.where(steep, 2 * touch, touch)
    slope = integrand.slope(touch)
    tangent = integrand.g(touch) - slope * touch, slope
    with np.errstate(invalid="ignore", divide="ignore"):
        g_left, g_right = integrand.g(l), integrand.g(r)
        rise = np.where(tail | (r == l), 0.0, (g_right - g_left) / np.where(r == l, 1.0, r - l))
        chord = np.nan_to_num(g_left - rise * l, nan=-np.inf), np.nan_to_num(rise, posinf=0.0)
    inner = np.where(tail, 2 * l + 1, np.sqrt(np.maximum(l, 1e-6 * r) * r))
    concave = integrand.bend(inner) <= 0
    masses = []
    for (height, gradient), side in (((tangent), 0), ((chord), 0), ((tangent), 1), ((chord), 1)):
        mass = integrand.measure.log_mass(
            np.where(empty, 1.0, left), np.where(empty, -1.0, right), gradient
        )[side]
        masses.append(np.where(np.isneginf(height) | empty, -np.inf, height + mass))
    low = np.where(concave, masses[1], masses[0])
    high = np.where(concave, masses[2], masses[3])
    if integrand.measure.discrete:  # one count: both lines pass through it
        one = right == left
        exact = g_left + integrand.measure.log_mass(l, r, np.zeros(l.shape))[0]
        low, high = np.where(one, exact, low), np.where(one, exact, high)
    return low, high


def _finite(integrand: Integrand, touch: FloatArray) -> BoolArray:
    """Return whether the tangent at `touch` leaves a finite integral on an unbounded piece."""
    if isinstance(integrand.measure, ExponentialMeasure):
        theta = integrand.measure.theta
        return np.asarray(theta + integrand.slope(touch) <= 0.5 * theta)
    return np.ones(touch.shape, dtype=bool)


def _magnitude(integrand: Integrand) -> FloatArray:
    """Return the size of the numbers that cancel near the mass, (m,)."""
    x = integrand.center
    parts = np.abs(integrand.coefficients)[:, None, :] * x[..., None] ** integrand.powers
    size = parts.sum(axis=(1, 2)) + (1 + integrand.q) * np.abs(np.log(x[:, 0]))
    if isinstance(integrand.measure, GaussianMeasure):
        measure = integrand.measure
        return np.asarray(size + (x / measure.sd)[:, 0] ** 2 + np.abs(measure.linear * x)[:, 0])
    theta = integrand.measure.theta[:, 0]
    return np.asarray(size + np.abs(theta * x[:, 0]))
