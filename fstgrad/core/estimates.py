"""Shared by sampled objectives: the result with its errors, and sums over weighted samples."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InfeasibleError
from fstgrad.core.short_repr import short_repr

RELIABLE = 100.0  # effective samples; with fewer, the standard error itself is inaccurate
WIDEST = 1.0  # nats; a wider interval of log Z is not informative
CONFIDENCE = 0.95
_STAKE = 0.75  # largest fraction of the wealth to bet on one sample
_HALVINGS = 50  # bisection steps for an end of an interval
EVERYTHING = (-np.inf, np.inf)


UNRELIABLE = (
    "too few for a trustworthy value; draw more samples, let proposal='auto' choose a band, or cap "
    "the loss"
)


@dataclass(frozen=True, eq=False)
class SampledObjective:
    """An objective and its gradient, estimated from samples.

    Attributes
    ----------
    value : float
        The estimate of the objective, in nats.
    gradient : array like the scores
        The estimate of the gradient.
    standard_error : float
        The standard error of `value`, in nats.
    gradient_standard_error : array like the scores
        The standard error of each entry of `gradient`, estimated from the same samples.  It is too
        small, even 0, for entries that few samples have: with peaked scores and 200 samples, two
        standard errors contain about half of the entries.  Only `interval`, of the value, holds at
        any number of samples.
    effective_samples : float
        (sum of weights)^2 / (sum of squared weights), between 1 and `samples`.
    samples : int
        The number of sampled strings.
    interval : (float, float)
        An interval in nats that contains the objective with probability at least `confidence`, at
        any number of samples.  An end is infinite if the sample weights have no known bound.
    confidence : float
        The confidence level of `interval`.
    upper_bound : float
        A certain upper bound on the objective, in nats.
    proposal : str
        The proposal distribution: "plain" (the scores alone), "band k", "cap c" or "mixture".
    widest : float
        The largest width of a narrow interval: 1 nat for a softmax margin, a tenth of the range of
        the loss for a risk.
    """

    value: float
    gradient: FloatArray
    standard_error: float
    gradient_standard_error: FloatArray
    effective_samples: float
    samples: int
    interval: tuple[float, float] = EVERYTHING
    confidence: float = CONFIDENCE
    upper_bound: float = np.inf
    proposal: str = "plain"
    widest: float = WIDEST

    __repr__ = short_repr

    @property
    def width(self) -> float:
        """The width of the interval in nats."""
        return self.interval[1] - self.interval[0]

    @property
    def is_reliable(self) -> bool:
        """Whether there are 100 effective samples and the interval is at most `widest` wide.

        An interval with an infinite end is ignored.
        """
        return self.effective_samples >= RELIABLE and not self.widest < self.width < np.inf

    def __str__(self) -> str:
        """Return value, standard error, interval and effective sample size in one line."""
        low, high = self.interval
        text = (
            f"{self.value:.6g} +- {self.standard_error:.2g} nats, {self.confidence:.0%} in "
            f"[{low:.6g}, {high:.6g}], {self.effective_samples:.0f} effective of {self.samples} "
            f"samples ({self.proposal})"
        )
        return text if self.is_reliable else f"{text}: {UNRELIABLE}"


class Parts(Protocol):
    """The parts t(y) of structures y sampled from p, such as symbols in context or lattice arcs."""

    @property
    def marginals(self) -> FloatArray:
        """The exact marginals E_p[t]."""

    def counts(self, index: IntArray, values: FloatArray) -> FloatArray:
        """Return sum_i values[i] t(y_i) over k structures, given by the `index` of their parts."""


def require_finite_loss(losses: FloatArray) -> FloatArray:
    """Return the losses of the samples; raise InfeasibleError if all of them are +inf."""
    if not (losses < np.inf).any():
        raise InfeasibleError(
            f"all {len(losses)} samples have the loss +inf: draw more samples, use a loss that is "
            "finite for more strings, or compile the loss and compute exactly"
        )
    return losses


def loss_augmented_weights(losses: FloatArray) -> tuple[FloatArray, float, float]:
    """Return the weights e^L / sum e^L (k,), and log mean e^L with its standard error, in nats.

    `losses` are the L of k samples in nats; a loss of +inf gets the weight 0.
    """
    largest = float(losses[losses < np.inf].max())
    weights = np.where(losses < np.inf, np.exp(np.minimum(losses, largest) - largest), 0.0)
    log_mean, error = jackknifed_log_mean(weights)
    return weights / weights.sum(), largest + log_mean, error


def jackknifed_log_mean(weights: FloatArray) -> tuple[float, float]:
    """Return the jackknife estimate of log mean(weights), and its standard error.

    With f = log mean(weights) and f_i the same without weight i, the estimate is
    k f - (k - 1) mean(f_i), which has no bias of order 1/k, and the variance is
    (k - 1) / k sum_i (f_i - mean(f_i))^2.  If only one weight is positive, return f and inf.
    """
    k = len(weights)
    plain = float(np.log(weights.mean()))
    others = (weights.sum() - weights) / (k - 1)
    if others.min() <= 0:
        return plain, np.inf
    left_out = np.log(others)
    mean = float(left_out.mean())
    spread = float(np.square(left_out - mean).sum())
    return k * plain - (k - 1) * mean, float(np.sqrt((k - 1) / k * spread))


def mean_interval(
    values: FloatArray, *, confidence: float = CONFIDENCE, bounded: bool = True
) -> tuple[float, float]:
    """Return a confidence interval of the mean of a variable in [0, 1], from k independent values.

    The interval contains the mean with probability at least `confidence`, for any k and any
    distribution.  A bet that the mean exceeds m multiplies the wealth by 1 + s (x - m) at each
    value x, where the stake s depends only on earlier values; a bet that it is below m, by
    1 + s (m - x).  If the mean is m, the game is fair, and the wealth ever reaches
    2 / (1 - confidence) with probability at most (1 - confidence) / 2 (Ville's inequality).  The
    interval therefore excludes every m at which the wealth of a bet reaches this.  Waudby-Smith and
    Ramdas, "Estimating means of bounded random variables by betting", J. R. Stat. Soc. B 86 (2024).
    O(k log(1 / precision)).

    If not `bounded`, the variable is in [0, inf), the upper end is inf, and the lower end scales
    with the values.
    """
    goal = float(np.log(2 / (1 - confidence)))
    k, largest = len(values), float(values.max())
    number = np.arange(1, k + 1)
    # stakes on a mean above m, from earlier values; they are invariant to the scale of the values
    mean = np.cumsum(values) / number
    power = np.square(mean) + np.cumsum(np.square(values - mean))
    unit = np.append(np.inf, (power / number)[:-1])
    rising = np.divide(2 * goal / k, unit, out=np.zeros(k), where=(unit > 0) & (unit < np.inf))
    rising = np.sqrt(rising)
    # stakes on a mean below m, from earlier values and a prior mean 1/2 and variance 1/4
    mean = (0.5 + np.cumsum(values)) / (number + 1)
    variance = (0.25 + np.cumsum(np.square(values - mean))) / (number + 1)
    falling = np.sqrt(2 * goal / (k * np.append(0.25, variance[:-1])))

    def refutes_low(m: float) -> bool:
        return bool(np.log1p(np.minimum(rising, _STAKE / m) * (values - m)).sum() >= goal)

    def refutes_high(m: float) -> bool:
        return bool(np.log1p(np.minimum(falling, _STAKE / (1 - m)) * (m - values)).sum() >= goal)

    # one bet excludes the mean `low` but not `kept`, the other excludes `refuted` but not `high`
    low, kept, high, refuted = 0.0, largest, 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + kept) / 2
        if middle > 0:
            low, kept = (middle, kept) if refutes_low(middle) else (low, middle)
        middle = (high + refuted) / 2
        if bounded:
            high, refuted = (high, middle) if refutes_high(middle) else (middle, refuted)
    return low, refuted if bounded else np.inf


def log_mean_interval(log_weights: FloatArray, low: float, high: float) -> tuple[float, float]:
    """Return a confidence interval of log E[e^R] in nats, from k independent values of R.

    R is in [low, high], which may be infinite; see `mean_interval`.
    """
    bounded = bool(np.isfinite(high))
    scale = high if bounded else float(log_weights.max())
    weights = np.exp(log_weights - scale)
    floor = float(np.exp(low - scale)) if np.isfinite(low) else 0.0
    if bounded and floor >= 1.0:  # all values are the same
        return low, high
    span = 1.0 - floor if bounded else 1.0
    ends = mean_interval((weights - floor) / span, bounded=bounded)
    with np.errstate(divide="ignore"):
        logs = scale + np.log(floor + span * np.array(ends))
    return float(logs[0]), float(logs[1])


def bounded_mean_interval(values: FloatArray, low: float, high: float) -> tuple[float, float]:
    """Return a confidence interval of the mean of a variable in [low, high], as `mean_interval`.

    If an end is infinite or low >= high, return (low, high).
    """
    if not np.isfinite([low, high]).all() or low >= high:
        return low, high
    ends = mean_interval(np.clip((values - low) / (high - low), 0.0, 1.0))
    return low + ends[0] * (high - low), low + ends[1] * (high - low)


def sum_of_squared_differences(
    a: FloatArray, b: FloatArray, second: FloatArray, first: FloatArray, number: FloatArray
) -> FloatArray:
    """Return sum_i (a w_i - b)^2 from the number of terms and the power sums of w.

    `first` is sum_i w_i, `second` is sum_i w_i^2; arrays broadcast.
    """
    return np.square(a) * second - 2 * a * b * first + np.square(b) * number


def controlled_marginals(
    parts: Parts, index: IntArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return Q = E_p[t] + sum_i (w_i - 1/k) t_i and its standard error; the weights sum to one.

    The squared error is sum_i (w_i (t_i - S) - (t_i - E_p[t]) / k)^2 with S = sum_i w_i t_i, from
    the linearized estimate.  It is summed separately over the structures that have a part (t = 1)
    and those that do not.
    """
    k, mu = len(weights), parts.marginals
    first = parts.counts(index, weights)
    second = parts.counts(index, np.square(weights))
    number = parts.counts(index, np.ones(k))
    having = sum_of_squared_differences(1 - first, (1 - mu) / k, second, first, number)
    total = float(np.square(weights).sum())
    lacking = sum_of_squared_differences(first, mu / k, total - second, 1 - first, k - number)
    return mu + first - number / k, np.sqrt(np.maximum(having + lacking, 0.0))


def sampled_covariance(
    parts: Parts, index: IntArray, centred: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean(c (t - E_p[t])) and its standard error, for values c (k,) of mean zero."""
    k, mu = len(centred), parts.marginals
    mean = parts.counts(index, centred / k)
    having = parts.counts(index, np.square(centred) / k)
    second = having * (1 - 2 * mu) + np.square(mu) * float(np.square(centred).mean())
    error = np.sqrt(np.maximum(second - np.square(mean), 0.0) / max(1, k - 1))
    return mean, error


def r_hat(means: FloatArray, within: FloatArray, draws: int) -> FloatArray:
    """Return the potential scale reduction (Gelman and Rubin 1992) of chains.

    It is sqrt((n - 1) / n + Var[chain means] / W); 1 if nothing varies, inf if the chains are
    constant at different values, and NaN for a single chain.

    Parameters
    ----------
    means : (chains, ...) float64
        The mean of each chain.
    within : (...) float64
        W, the mean of the chains' variances (ddof = 1).
    draws : int
        n, the number of draws of each chain.
    """
    if len(means) < 2:
        return np.full(means.shape[1:], np.nan)
    between = means.var(axis=0, ddof=1)
    ratio = np.ones(within.shape)
    np.divide(between, within, out=ratio, where=within > 0)
    ratio[within > 0] += (draws - 1) / draws
    ratio[(within == 0) & (between > 0)] = np.inf
    return np.asarray(np.sqrt(ratio))


def variance_of_mean(mean: FloatArray, squares: FloatArray, count: int) -> FloatArray:
    """Return the variance of the mean of `count` batches: (squares / count - mean^2) / (count - 1).

    `squares` is the sum of the squared batch means.
    """
    return np.asarray(np.maximum(squares / count - mean**2, 0.0) / (count - 1))


def lugsail_variance(single: FloatArray, paired: FloatArray) -> FloatArray:
    """Return the variance of a mean, max(paired, 2 paired - single).

    `single` is its estimate from batches, and `paired` from batches of twice the length.  Because
    batches are correlated, `single` is too small; 2 paired - single has no bias of order 1 / length
    (Vats and Flegal 2022, "Lugsail lag windows").
    """
    return np.asarray(np.maximum(paired, 2 * paired - single))
