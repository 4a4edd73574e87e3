"""Masses of an interval under exp(slope x) and the base of a family, for `fstgrad.grm.bounds`.

Each measure gives the log of the sum or the integral over [left, right] of e^(slope x) times its
base as a pair (lower, upper), apart by the accuracy of the special functions.  Arrays broadcast.
"""

import numpy as np

from fstgrad.checks import FloatArray

Pair = tuple[FloatArray, FloatArray]
ACCURACY = 1e-12  # of the special functions, relative


class PoissonMeasure:
    """Whole numbers left, ..., right with weights e^(theta x) / x!; theta = eta_1 + slope."""

    discrete = True

    def __init__(self, eta: FloatArray) -> None:
        self.theta = eta[:, :1]

    def log_mass(self, left: FloatArray, right: FloatArray, slope: FloatArray) -> Pair:
        """Return the bounds of the log mass; -inf for an empty interval."""
        from scipy.special import gammainc, gammaincc, gammaln

        theta = self.theta + slope
        rate = np.exp(theta)
        bounded = np.isfinite(right)
        end = np.where(bounded, right, left)
        number = right - left + 1
        first = theta * left - gammaln(left + 1)
        last = np.where(bounded, theta * end - gammaln(end + 1), -np.inf)
        falling, rising = left > rate, end < rate
        rising &= bounded
        start = np.maximum(left, 1e-300)
        below_left = np.where(left > 0, gammaincc(start, rate), 0.0)
        above_left = np.where(left > 0, gammainc(start, rate), 1.0)
        below = np.where(bounded, gammaincc(end + 1, rate), 1.0)
        above = np.where(bounded, gammainc(end + 1, rate), 0.0)
        mass = np.where(
            falling,
            above_left - above,
            np.where(rising, below - below_left, 1 - below_left - above),
        )
        larger = np.where(falling, above_left, np.where(rising, below, 1.0))
        sound = (mass > 1e-2 * larger) & (larger > 1e-280) & np.isfinite(rate)
        error = 100 * ACCURACY + 1e-15 * np.sqrt(np.where(sound, rate, 0.0))
        middle = np.where(sound, rate, 0.0) + np.log(np.where(sound, mass, 1.0))
        # elsewhere: the largest term, the number of terms, and a geometric series
        highest = np.maximum(first, last)
        most = np.where(falling, first, np.where(rising, last, np.minimum(rate, highest + rate)))
        ratio = np.where(falling, rate / (left + 1), np.where(rising, end / rate, 1.0))
        count = np.minimum(number, 1.0 / np.maximum(1.0 - ratio, 1e-300))
        all_least = np.where(bounded, np.log(np.maximum(end - left + 1, 1.0)), 0.0) + np.where(
            bounded, np.minimum(first, last), -np.inf
        )
        low = np.where(sound, middle - error, np.maximum(highest, all_least))
        high = np.where(sound, middle + error, most + np.log(np.maximum(count, 1.0)))
        single = number == 1
        low, high = np.where(single, first, low), np.where(single, first, high)
        empty = number <= 0
        return np.where(empty, -np.inf, low), np.where(empty, -np.inf, high)


class ExponentialMeasure:
    """x in [left, right] with weight e^(theta x); theta = eta_1 + slope."""

    discrete = False

    def __init__(self, eta: FloatArray) -> None:
        self.theta = eta[:, :1]

    def log_mass(self, left: FloatArray, right: FloatArray, slope: FloatArray) -> Pair:
        """Return the log of (e^(theta right) - e^(theta left)) / theta, +inf if infinite."""
        theta = self.theta + slope
        width = right - left
        size = np.abs(theta)
        tail = ~np.isfinite(right)
        highest = np.where(tail | (theta < 0), theta * left, theta * np.where(tail, 0.0, right))
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(size * width < 1e-12, np.log(width),
                            np.log(-np.expm1(-size * width)) - np.log(size))  # fmt: skip
        value = np.where(tail & (theta >= 0), np.inf, highest + part)
        value = np.where(width > 0, value, -np.inf)
        return value - ACCURACY, value + ACCURACY


class GaussianMeasure:
    """x in [left, right] with weight e^(eta_1 x^2 + theta x); theta = linear + slope."""

    discrete = False

    def __init__(self, eta: FloatArray, linear: FloatArray) -> None:
        self.sd = np.sqrt(-0.5 / eta[:, :1])
        self.linear = linear

    def log_mass(self, left: FloatArray, right: FloatArray, slope: FloatArray) -> Pair:
        """Return the log of a difference of normal distribution functions."""
        from scipy.special import log_ndtr

        theta = self.linear + slope
        mean = theta * self.sd**2
        a, b = (left - mean) / self.sd, (right - mean) / self.sd
        flip = a > 0
        a, b = np.where(flip, -b, a), np.where(flip, -a, b)
        with np.errstate(divide="ignore", invalid="ignore"):
            difference = np.where(b > a, log_ndtr(a) - log_ndtr(b), -1.0)
            log_probability = log_ndtr(b) + np.log(-np.expm1(difference))
        scale = 0.5 * theta * mean + np.log(self.sd) + 0.5 * np.log(2 * np.pi)
        value = scale + log_probability
        # a narrow interval, where the difference cancels: the smaller and the larger end
        narrow = (b - a < 1e-3) & np.isfinite(a) & np.isfinite(b)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = [np.log(b - a) - 0.5 * z * z - 0.5 * np.log(2 * np.pi) + scale for z in (a, b)]
        peak = np.where((a < 0) & (b > 0), np.log(np.maximum(b - a, 1e-300))
                        - 0.5 * np.log(2 * np.pi) + scale, -np.inf)  # fmt: skip
        low = np.where(narrow, np.minimum(*ends), value) - 100 * ACCURACY
        high = np.where(narrow, np.maximum(np.maximum(*ends), peak), value) + 100 * ACCURACY
        empty = ~(right > left)
        return np.where(empty, -np.inf, low), np.where(empty, -np.inf, high)


Measure = PoissonMeasure | ExponentialMeasure | GaussianMeasure
