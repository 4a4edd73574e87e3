"""The maximum-likelihood fit of a negative binomial distribution to one column of counts."""

import numpy as np

from fstgrad.core.checks import FloatArray

LARGEST_DISPERSION = 1e4  # for larger r, the distribution is practically a Poisson distribution
SMALLEST_DISPERSION = 1e-3
SMALLEST_MEAN = 1e-6


def negative_binomial_fit(
    values: FloatArray, weights: FloatArray | None = None, *, positive_only: bool
) -> tuple[float, float]:
    """Return the mean m and the dispersion r (variance m + m^2 / r) fitted to counts (n,).

    weights : (n,), > 0; ones for None.
    positive_only : fit the distribution given x > 0 to the counts above 0.
    Returns (1e-6, 1) if there is no count above 0.
    """
    from scipy import optimize

    used = values > 0 if positive_only else np.ones(len(values), dtype=bool)
    counts, which = np.unique(values[used], return_inverse=True)
    if not counts.size or counts[-1] == 0:
        return SMALLEST_MEAN, 1.0
    sums = np.bincount(which, None if weights is None else weights[used])
    share = sums / sums.sum()
    mean = max(float(share @ counts), SMALLEST_MEAN)
    excess = float(share @ (counts - mean) ** 2) - mean
    r = np.clip(mean**2 / excess if excess > 0 else LARGEST_DISPERSION, 0.05, LARGEST_DISPERSION)
    low, high = float(np.log(SMALLEST_DISPERSION)), float(np.log(LARGEST_DISPERSION))
    if not positive_only:  # the mean of the fit is the mean of the data
        found = optimize.minimize_scalar(
            lambda v: _cost(np.log(mean), v, counts, share, False)[0],
            bounds=(low, high), method="bounded", options={"xatol": 1e-6},
        )  # fmt: skip
        return mean, float(np.exp(found.x))
    limits = optimize.Bounds([np.log(mean) - 12, low], [np.log(mean) + 3, high])
    done = optimize.minimize(  # type: ignore[call-overload]
        lambda v: _cost(float(v[0]), float(v[1]), counts, share, True),
        np.array([np.log(mean), np.log(r)]), method="L-BFGS-B", bounds=limits, jac=True,
        options={"ftol": 1e-15, "gtol": 1e-10},
    )  # fmt: skip
    return float(np.exp(done.x[0])), float(np.exp(done.x[1]))


def _cost(
    log_mean: float, log_r: float, counts: FloatArray, share: FloatArray, positive_only: bool
) -> tuple[float, FloatArray]:
    """Return the mean negative log-likelihood in nats, and its gradient (2,) in both logarithms.

    counts, share : (m,), the distinct counts and their relative frequencies.
    """
    from scipy.special import digamma, gammaln

    mean, r = np.exp(log_mean), np.exp(log_r)
    at_zero = -r * np.log1p(mean / r)
    terms = gammaln(counts + r) - gammaln(r) - gammaln(counts + 1.0)
    value = share @ (terms + at_zero - counts * np.log1p(r / mean))
    zero_slope = np.array([-r * mean / (r + mean), at_zero + r * mean / (r + mean)])
    slope = zero_slope + share @ np.stack(
        [counts * r / (r + mean), r * (digamma(counts + r) - digamma(r) - counts / (r + mean))], 1
    )
    if positive_only:
        value -= np.log(-np.expm1(at_zero))
        slope += zero_slope / np.expm1(-at_zero)
    return -float(value), -slope
