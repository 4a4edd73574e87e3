"""Base measures and integrands of the piecewise-linear bounds (`fstgrad.grm.log_moments`).

A measure gives the log of the sum or the integral over [left, right] of e^(slope x) times a base,
for many pieces at once.  All arguments have one entry for each piece; `row` is the number of its
row of eta (m, k).  The result is a pair (lower, upper) in nats, as far apart as the errors of the
special functions require.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.uninitialized import empty

Pair = tuple[FloatArray, FloatArray]
ACCURACY = 1e-12  # of the special functions, relative
RELIABLE_RATE = 1e5  # scipy's incomplete gamma functions have this accuracy for rates up to here
LOG_2PI = math.log(2 * math.pi)


class Measure(ABC):
    """A base with weights e^(theta x) for the rows of eta."""

    discrete = False

    @abstractmethod
    def log_mass(
        self, row: IntArray, left: FloatArray, right: FloatArray, slope: FloatArray
    ) -> Pair:
        """Return bounds on the log mass of pieces with left < right <= +inf."""

    @abstractmethod
    def magnitude(self, x: FloatArray) -> FloatArray:
        """Return the size (m,) of the terms that cancel at x (m,), for the rounding error."""

    def log_term(self, row: IntArray, x: FloatArray) -> FloatArray:
        """Return the log weight of single points; only for discrete measures."""
        raise NotImplementedError

    def tail_is_finite(self, row: IntArray, slope: FloatArray) -> BoolArray:
        """Return whether e^(slope x) times the base is known to have a finite mass up to +inf."""
        return np.ones(row.shape, dtype=bool)


class PoissonMeasure(Measure):
    """Counts x = left, ..., right with weights e^(theta x) / x!, theta = eta_1 + slope."""

    discrete = True

    def __init__(self, eta: FloatArray) -> None:
        self.theta = eta[:, 0]

    def log_term(self, row: IntArray, x: FloatArray) -> FloatArray:
        """Return theta x - log x!."""
        from scipy.special import gammaln

        return np.asarray(self.theta[row] * x - gammaln(x + 1))

    def magnitude(self, x: FloatArray) -> FloatArray:
        """Return |theta| x."""
        return np.asarray(np.abs(self.theta * x))

    def log_mass(
        self, row: IntArray, left: FloatArray, right: FloatArray, slope: FloatArray
    ) -> Pair:
        """Return bounds on the log mass: by incomplete gamma functions, or by terms if unsafe."""
        theta = self.theta[row] + slope
        rate = np.exp(np.minimum(theta, 709.0))
        low, high = self._by_terms(theta, rate, left, right)
        mass, sound = self._by_gamma(rate, left, right)
        sound &= theta < 709.0
        error = 100 * ACCURACY + 1e-15 * np.sqrt(rate[sound])
        middle = rate[sound] + np.log(mass[sound])
        low[sound], high[sound] = middle - error, middle + error
        return low, high

    def _by_gamma(
        self, rate: FloatArray, left: FloatArray, right: FloatArray
    ) -> tuple[FloatArray, BoolArray]:
        """Return the probability of each piece under Poisson(rate), and whether it is reliable."""
        from scipy.special import gammainc, gammaincc

        end = np.where(np.isfinite(right), right, 0.0) + 1
        bounded = np.isfinite(right)
        below_left = np.where(left > 0, gammaincc(np.maximum(left, 1.0), rate), 0.0)
        above_left = np.where(left > 0, gammainc(np.maximum(left, 1.0), rate), 1.0)
        below = np.where(bounded, gammaincc(end, rate), 1.0)
        above = np.where(bounded, gammainc(end, rate), 0.0)
        falling, rising = left > rate, bounded & (right < rate)
        mass, larger = 1 - below_left - above, np.ones(rate.shape)
        mass[falling], larger[falling] = (above_left - above)[falling], above_left[falling]
        mass[rising], larger[rising] = (below - below_left)[rising], below[rising]
        trusted = (rate <= RELIABLE_RATE) & (left <= RELIABLE_RATE) | (mass > 1e-3)
        return mass, (mass > 1e-2 * larger) & (larger > 1e-280) & trusted

    def _by_terms(
        self, theta: FloatArray, rate: FloatArray, left: FloatArray, right: FloatArray
    ) -> Pair:
        """Return bounds from the largest term, the number of terms and a geometric series."""
        from scipy.special import gammaln

        bounded = np.isfinite(right)
        end = np.where(bounded, right, left)
        number = np.where(bounded, end - left + 1, np.inf)
        first = theta * left - gammaln(left + 1)
        last = np.where(bounded, theta * end - gammaln(end + 1), -np.inf)
        highest = np.maximum(first, last)
        most, ratio = np.minimum(rate, highest + rate), np.ones(rate.shape)
        falling, rising = left > rate, bounded & (end < rate)
        most[falling], ratio[falling] = first[falling], (rate / (left + 1))[falling]
        most[rising], ratio[rising] = last[rising], (end / rate)[rising]
        terms = np.minimum(number, 1.0 / np.maximum(1.0 - ratio, 1e-300))
        with np.errstate(invalid="ignore"):
            every = np.log(number) + np.minimum(first, last)
        low = np.maximum(highest, np.where(bounded, every, -np.inf))
        return low, np.maximum(most + np.log(terms), low)


class ExponentialMeasure(Measure):
    """x in [left, right] with weight e^(theta x); theta = eta_1 + slope."""

    def __init__(self, eta: FloatArray) -> None:
        self.theta = eta[:, 0]

    def magnitude(self, x: FloatArray) -> FloatArray:
        """Return |theta| x."""
        return np.asarray(np.abs(self.theta * x))

    def tail_is_finite(self, row: IntArray, slope: FloatArray) -> BoolArray:
        """Return whether at least half of the decay rate remains: theta + slope <= theta / 2."""
        return np.asarray(self.theta[row] + slope <= 0.5 * self.theta[row])

    def log_mass(
        self, row: IntArray, left: FloatArray, right: FloatArray, slope: FloatArray
    ) -> Pair:
        """Return the log of (e^(theta right) - e^(theta left)) / theta, +inf if infinite."""
        theta = self.theta[row] + slope
        size, width = np.abs(theta), right - left
        value = np.full(theta.shape, np.inf)
        tail = ~np.isfinite(right)
        decaying = tail & (theta < 0)
        value[decaying] = (theta * left)[decaying] - np.log(size[decaying])
        flat, sloped = ~tail & (size * width < 1e-12), ~tail & (size * width >= 1e-12)
        highest = np.where(theta < 0, theta * left, theta * np.where(tail, 0.0, right))
        value[flat] = highest[flat] + np.log(width[flat])
        part = np.log(-np.expm1(-(size * np.where(tail, 1.0, width))[sloped]))
        value[sloped] = highest[sloped] + part - np.log(size[sloped])
        return value - ACCURACY, value + ACCURACY


class GaussianMeasure(Measure):
    """x in [left, right] with weight e^(eta_1 x^2 + theta x); theta = linear + slope."""

    def __init__(self, eta: FloatArray, linear: FloatArray) -> None:
        self.sd = np.sqrt(-0.5 / eta[:, 0])
        self.linear = linear

    def magnitude(self, x: FloatArray) -> FloatArray:
        """Return (x / sd)^2 + |linear| x."""
        return np.asarray((x / self.sd) ** 2 + np.abs(self.linear * x))

    def log_mass(
        self, row: IntArray, left: FloatArray, right: FloatArray, slope: FloatArray
    ) -> Pair:
        """Return the log of a difference of normal distribution functions."""
        from scipy.special import log_ndtr

        theta, sd = self.linear[row] + slope, self.sd[row]
        mean = theta * sd**2
        scale = 0.5 * theta * mean + np.log(sd)
        a, b = (left - mean) / sd, (right - mean) / sd
        flip = a > 0
        a[flip], b[flip] = -b[flip], -a[flip]
        low, high = empty(a.shape), empty(a.shape)
        narrow = np.isfinite(a) & np.isfinite(b) & (b - a < 1e-3)
        low[narrow], high[narrow] = _narrow(a[narrow], b[narrow])
        rest = ~narrow
        with np.errstate(divide="ignore"):
            less = np.log(-np.expm1(np.minimum(log_ndtr(a[rest]) - log_ndtr(b[rest]), 0.0)))
        low[rest] = high[rest] = log_ndtr(b[rest]) + less + 0.5 * LOG_2PI
        return low + scale - 100 * ACCURACY, high + scale + 100 * ACCURACY


def _narrow(a: FloatArray, b: FloatArray) -> Pair:
    """Return bounds on the log of the integral of e^(-z^2 / 2) over a short interval [a, b].

    A difference of distribution functions would cancel there.
    """
    with np.errstate(divide="ignore"):
        width = np.log(b - a)
    ends = -0.5 * np.minimum(a * a, b * b), -0.5 * np.maximum(a * a, b * b)
    peak = np.where((a < 0) & (b > 0), 0.0, ends[0])
    return width + ends[1], width + peak


@dataclass(frozen=True)
class Integrand:
    """m rows of e^g times a base measure on x > 0, g(x) = sum_r c_r x^(e_r) + q log x.

    measure : Measure
    coefficients (m, r), powers (r,) : c and e of the terms that are not in the measure.
    q : float
    center (m,) : x near the largest part of the mass.
    at_zero : float, the log weight of x = 0 in a sum over counts.
    """

    measure: Measure
    coefficients: FloatArray
    powers: FloatArray
    q: float
    center: FloatArray
    at_zero: float = -np.inf

    def g(self, row: IntArray, x: FloatArray) -> FloatArray:
        """Return g(x) (c,) of the rows `row` (c,) at x (c,)."""
        value = (self.coefficients[row] * x[:, None] ** self.powers).sum(axis=-1)
        if self.q:
            with np.errstate(divide="ignore"):
                value = value + self.q * np.log(x)
        return np.asarray(value)

    def slope(self, row: IntArray, x: FloatArray) -> FloatArray:
        """Return g'(x)."""
        weights = (self.coefficients * self.powers)[row]
        return np.asarray((weights * x[:, None] ** (self.powers - 1)).sum(axis=-1) + self.q / x)

    def bend(self, row: IntArray, x: FloatArray) -> FloatArray:
        """Return x^2 g''(x)."""
        weights = (self.coefficients * self.powers * (self.powers - 1))[row]
        return np.asarray((weights * x[:, None] ** self.powers).sum(axis=-1) - self.q)

    def magnitude(self) -> FloatArray:
        """Return the size (m,) of the terms that cancel at the center, for the rounding error."""
        x = self.center
        size = (np.abs(self.coefficients) * x[:, None] ** self.powers).sum(axis=1)
        return np.asarray(size + (1 + self.q) * np.abs(np.log(x)) + self.measure.magnitude(x))

    def inflections(self) -> FloatArray:
        """Return the zeros x > 0 of g'' of each row (m, z), ascending, padded with the largest.

        A row without zeros is padded with 0.
        """
        multiple = math.lcm(*range(1, 2 * len(self.powers) + 3))
        degrees = np.rint(self.powers * multiple).astype(int)
        common = math.gcd(multiple, *degrees.tolist())
        degrees = degrees // common
        unit = multiple // common
        zeros = []
        for row in self.coefficients * self.powers * (self.powers - 1):
            polynomial = np.zeros(degrees.max(initial=0) + 1)
            polynomial[degrees] = row
            polynomial[0] -= self.q
            roots = np.roots(polynomial[::-1])
            real = roots.real[(np.abs(roots.imag) <= 1e-7 * np.abs(roots)) & (roots.real > 0)]
            zeros.append(np.sort(real**unit))
        width = max((len(row) for row in zeros), default=0)
        out = np.zeros((len(zeros), width))
        for number, row in enumerate(zeros):
            out[number] = np.pad(row, (0, width - len(row)), constant_values=row.max(initial=0.0))
        return out
