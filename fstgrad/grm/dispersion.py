"""The maximum-likelihood fit of a negative binomial distribution to one column of counts."""

import numpy as np

from fstgrad.checks import FloatArray

LARGEST_DISPERSION = 1e4  # for larger r, the distribution is practically a Poisson distribution
SMALLEST_DISPERSION = 1e-3
SMALLEST_MEAN = 1e-6


def negative_binomial_fit(values: FloatArray, *, positive_only: bool) -> tuple[float, float]:
    """Return the mean m and the dispersion r (variance m + m^2 / r) fitted to counts (n,).

    positive_only : fit the distribution given x > 0 to the counts above 0.
    Returns (1e-6, 1) if there is no count above 0.
    """
    from scipy import optimize

    counts, weights = np.unique(values[values > 0] if positive_only else values, return_counts=True)
    if not counts.size or counts[-1] == 0:
        return SMALLEST_MEAN, 1.0
    share = weights / weights.sum()
    mean = max(float(share @ counts), SMALLEST_MEAN)
    excess = float(share @ (counts - mean) ** 2) - mean
    r = np.clip(mean**2 / excess if excess > 0 else LARGEST_DISPERSION, 0.05, LARGEST_DISPERSION)
    low, high = float(np.log(SMALLEST_DISPERSION)), float(np.log(LARGEST_DISPERSION))
    if not positive_only:  # the mean of the fit is the mean of the data
        found = optimize.minimize_scalar(
            lambda v: _cost(np.log(mean), v, counts, share, False),
            bounds=(low, high), method="bounded", options={"xatol": 1e-6},
        )  # fmt: skip
        return mean, float(np.exp(found.x))
    limits = optimize.Bounds([np.log(mean) - 12, low], [np.log(mean) + 3, high])
    done = optimize.minimize(  # type: ignore[call-overload]
        lambda v: _cost(float(v[0]), float(v[1]), counts, share, True),
        np.array([np.log(mean), np.log(r)]), method="L-BFGS-B", bounds=limits,
    )  # fmt: skip
    return float(np.exp(done.x[0])), float(np.exp(done.x[1]))


def _cost(
    log_mean: float, log_r: float, counts: FloatArray, share: FloatArray, positive_only: bool
) -> float:
    """Return the mean negative log-likelihood in nats.

    counts, share : (m,), the distinct counts and their relative frequencies.
    """
    from scipy.special import gammaln

    mean, r = np.exp(log_mean), np.exp(log_r)
    at_zero = -r * np.log1p(mean / r)
    terms = gammaln(counts + r) - gammaln(r) - gammaln(counts + 1.0)
    value = share @ (terms + at_zero - counts * np.log1p(r / mean))
    if positive_only:
        value -= np.log(-np.expm1(at_zero))
    return -float(value)
