"""What sampled objectives share: the result with its errors, and sums over weighted samples."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.errors import InfeasibleError

RELIABLE = 100.0  # effective samples below which the standard error itself is poorly known


@dataclass(frozen=True)
class SampledObjective:
    """An objective and its gradient, estimated from samples.

    Attributes
    ----------
    value : float
        The objective in nats.
    grad : array like the scores
        Its gradient.
    standard_error : float
        Of `value`, in nats: one standard deviation of it over fresh samples.
    grad_standard_error : array like the scores
        Of every entry of `grad`.
    effective_samples : float
        (sum of weights)^2 / (sum of squared weights), between 1 and `samples`.
    samples : int
        Number of strings that were drawn.
    """

    value: float
    grad: FloatArray
    standard_error: float
    grad_standard_error: FloatArray
    effective_samples: float
    samples: int

    @property
    def is_reliable(self) -> bool:
        """Whether the effective samples are enough (100) to trust the standard errors."""
        return self.effective_samples >= RELIABLE

    def __str__(self) -> str:
        """Return value, standard error and effective sample size in one line."""
        text = (
            f"{self.value:.6g} +- {self.standard_error:.2g} nats, {self.effective_samples:.0f} "
            f"effective of {self.samples} samples"
        )
        if self.is_reliable:
            return text
        return f"{text}: too few for a trustworthy error; draw more samples or cap the loss"


class Parts(Protocol):
    """The parts of structures drawn from p: positions and contexts of strings, arcs of paths."""

    @property
    def marginals(self) -> FloatArray:
        """E_p[t], exact."""

    def counts(self, places: IntArray, values: FloatArray) -> FloatArray:
        """Return sum_i values[i] t(y_i) for k structures, given by the `places` of their parts."""


def usable(losses: FloatArray) -> FloatArray:
    """Return the losses of the samples, of which one at least is finite."""
    if not (losses < np.inf).any():
        raise InfeasibleError(
            f"all {len(losses)} samples have the loss +inf: draw more samples, give "
            "smoothing > 0, or compile the loss and compute exactly"
        )
    return losses


def loss_weighted(losses: FloatArray) -> tuple[FloatArray, float, float]:
    """Return e^L / sum e^L, and log mean e^L with its standard error, in nats."""
    largest = float(losses[losses < np.inf].max())
    weights = np.where(losses < np.inf, np.exp(np.minimum(losses, largest) - largest), 0.0)
    log_mean, error = jackknifed_log_mean(weights)
    return weights / weights.sum(), largest + log_mean, error


def jackknifed_log_mean(weights: FloatArray) -> tuple[float, float]:
    """Return log mean(weights), its bias of order 1/k taken out, and its standard error."""
    k = len(weights)
    plain = float(np.log(weights.mean()))
    others = (weights.sum() - weights) / (k - 1)
    if others.min() <= 0:
        return plain, np.inf
    left_out = np.log(others)
    mean = float(left_out.mean())
    spread = float(np.square(left_out - mean).sum())
    return k * plain - (k - 1) * mean, float(np.sqrt((k - 1) / k * spread))


def squares(
    a: FloatArray, b: FloatArray, second: FloatArray, first: FloatArray, number: FloatArray
) -> FloatArray:
    """Return sum_i (a w_i - b)^2 from the number of terms and the first two power sums of w."""
    return np.square(a) * second - 2 * a * b * first + np.square(b) * number


def controlled_marginals(
    parts: Parts, places: IntArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return Q = E_p[t] + sum_i (w_i - 1/k) t_i for weights that sum to one, and its error.

    The error is that of the linearised estimate, sum_i (w_i (t_i - Q) - (t_i - E_p[t]) / k), whose
    squares are summed apart over the strings that have a part (t = 1) and those that do not.
    """
    k, mu = len(weights), parts.marginals
    first = parts.counts(places, weights)
    second = parts.counts(places, np.square(weights))
    number = parts.counts(places, np.ones(k))
    having = squares(1 - first, (1 - mu) / k, second, first, number)
    total = float(np.square(weights).sum())
    lacking = squares(first, mu / k, total - second, 1 - first, k - number)
    return mu + first - number / k, np.sqrt(np.maximum(having + lacking, 0.0))


def sampled_covariance(
    parts: Parts, places: IntArray, centred: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean(c (t - E_p[t])) for values c of mean zero, and its standard error."""
    k, mu = len(centred), parts.marginals
    mean = parts.counts(places, centred / k)
    having = parts.counts(places, np.square(centred) / k)
    second = having * (1 - 2 * mu) + np.square(mu) * float(np.square(centred).mean())
    error = np.sqrt(np.maximum(second - np.square(mean), 0.0) / max(1, k - 1))
    return mean, error
