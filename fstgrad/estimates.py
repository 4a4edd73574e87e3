"""What sampled objectives share: the result with its errors, and sums over weighted samples."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.errors import InfeasibleError, RenamedAttribute
from fstgrad.summary import short_repr

RELIABLE = 100.0  # effective samples below which the standard error itself is poorly known
WIDEST = 1.0  # nats: an interval of log Z that is wider says little
CONFIDENCE = 0.95
_STAKE = 0.75  # of the wealth, at most, on one sample
_HALVINGS = 50
EVERYTHING = (-np.inf, np.inf)


UNRELIABLE = (
    "too few for a trustworthy value; draw more samples (samples=), let proposal='auto' choose a "
    "band, or cap the loss (cap=)"
)


@dataclass(frozen=True)
class SampledObjective:
    """An objective and its gradient, estimated from samples.

    Attributes
    ----------
    value : float
        The objective in nats.
    gradient : array like the scores
        Its gradient.
    standard_error : float
        Of `value`, in nats: one standard deviation of it over fresh samples.
    gradient_standard_error : array like the scores
        Of every entry of `gradient`.
    effective_samples : float
        (sum of weights)^2 / (sum of squared weights), between 1 and `samples`.
    samples : int
        Number of strings that were drawn.
    interval : (float, float)
        Contains the objective with probability at least `confidence`, at any number of samples;
        nats.  An end is infinite where the weights of the samples have no known bound.
    confidence : float
    upper_bound : float
        The objective is certainly at most this; nats.
    proposal : str
        What was drawn from: "plain" (the scores alone), "band k", "cap c" or "mixture".
    widest : float
        The largest width of an interval that counts as narrow: 1 nat for a softmax margin, a tenth
        of the range of the loss for a risk.
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
    grad = RenamedAttribute("gradient")
    grad_standard_error = RenamedAttribute("gradient_standard_error")

    @property
    def width(self) -> float:
        """Width of the interval in nats."""
        return self.interval[1] - self.interval[0]

    @property
    def is_reliable(self) -> bool:
        """Whether the effective samples are enough (100) and the interval is narrow.

        The width of an interval with an infinite end is not considered.
        """
        return self.effective_samples >= RELIABLE and not self.widest < self.width < np.inf

    def __str__(self) -> str:
        """Return value, standard error and effective sample size in one line."""
        low, high = self.interval
        text = (
            f"{self.value:.6g} +- {self.standard_error:.2g} nats, {self.confidence:.0%} in "
            f"[{low:.6g}, {high:.6g}], {self.effective_samples:.0f} effective of {self.samples} "
            f"samples ({self.proposal})"
        )
        return text if self.is_reliable else f"{text}: {UNRELIABLE}"


class Parts(Protocol):
    """The parts of structures drawn from p: positions and contexts of strings, arcs of paths."""

    @property
    def marginals(self) -> FloatArray:
        """E_p[t], exact."""

    def counts(self, index: IntArray, values: FloatArray) -> FloatArray:
        """Return sum_i values[i] t(y_i) for k structures, given by the `index` of their parts."""


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


def mean_interval(
    values: FloatArray, *, confidence: float = CONFIDENCE, bounded: bool = True
) -> tuple[float, float]:
    """Return an interval of the mean of a variable in [0, 1], from independent values (k,).

    It holds with probability `confidence` at any k, whatever the distribution: a bet against a mean
    m that is too low (or too high) multiplies the wealth by 1 + s (x - m) for each value, the stake
    s chosen from the values before; a fair game reaches 2 / (1 - confidence) with probability at
    most (1 - confidence) / 2 (Ville).  Waudby-Smith and Ramdas, "Estimating means of bounded random
    variables by betting", J. R. Stat. Soc. B 86 (2024), section 4.  O(k log(1 / precision)).

    Not `bounded` variables in [0, inf) have a lower end only, which scales with the values.
    """
    goal = float(np.log(2 / (1 - confidence)))
    k, largest = len(values), float(values.max())
    number = np.arange(1, k + 1)
    # stakes on a mean above m: those of the values before, free of their scale
    mean = np.cumsum(values) / number
    power = np.square(mean) + np.cumsum(np.square(values - mean))
    unit = np.append(np.inf, (power / number)[:-1])
    rising = np.divide(2 * goal / k, unit, out=np.zeros(k), where=(unit > 0) & (unit < np.inf))
    rising = np.sqrt(rising)
    # and below m: those of a variable in [0, 1] of which nothing is known at first
    mean = (0.5 + np.cumsum(values)) / (number + 1)
    variance = (0.25 + np.cumsum(np.square(values - mean))) / (number + 1)
    falling = np.sqrt(2 * goal / (k * np.append(0.25, variance[:-1])))

    def refutes_low(m: float) -> bool:
        return bool(np.log1p(np.minimum(rising, _STAKE / m) * (values - m)).sum() >= goal)

    def refutes_high(m: float) -> bool:
        return bool(np.log1p(np.minimum(falling, _STAKE / (1 - m)) * (m - values)).sum() >= goal)

    low, kept, high, refuted = 0.0, largest, 0.0, 1.0  # means up to `low`, from `refuted` on, go
    for _ in range(_HALVINGS):
        middle = (low + kept) / 2
        if middle > 0:
            low, kept = (middle, kept) if refutes_low(middle) else (low, middle)
        middle = (high + refuted) / 2
        if bounded:
            high, refuted = (high, middle) if refutes_high(middle) else (middle, refuted)
    return low, refuted if bounded else np.inf


def log_mean_interval(log_weights: FloatArray, low: float, high: float) -> tuple[float, float]:
    """Return an interval of log E[e^R] in nats from values of R in [low, high]."""
    bounded = bool(np.isfinite(high))
    scale = high if bounded else float(log_weights.max())
    weights = np.exp(log_weights - scale)
    floor = float(np.exp(low - scale)) if np.isfinite(low) else 0.0
    span = 1.0 - floor if bounded and floor < 1.0 else 1.0
    ends = mean_interval((weights - floor) / span, bounded=bounded)
    with np.errstate(divide="ignore"):
        logs = scale + np.log(floor + span * np.array(ends))
    return float(logs[0]), float(logs[1])


def bounded_mean_interval(values: FloatArray, low: float, high: float) -> tuple[float, float]:
    """Return an interval of the mean of a variable in [low, high]; see `mean_interval`."""
    if not np.isfinite([low, high]).all() or low >= high:
        return low, high
    ends = mean_interval(np.clip((values - low) / (high - low), 0.0, 1.0))
    return low + ends[0] * (high - low), low + ends[1] * (high - low)


def squares(
    a: FloatArray, b: FloatArray, second: FloatArray, first: FloatArray, number: FloatArray
) -> FloatArray:
    """Return sum_i (a w_i - b)^2 from the number of terms and the first two power sums of w."""
    return np.square(a) * second - 2 * a * b * first + np.square(b) * number


def controlled_marginals(
    parts: Parts, index: IntArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return Q = E_p[t] + sum_i (w_i - 1/k) t_i for weights that sum to one, and its error.

    The error is that of the linearised estimate, sum_i (w_i (t_i - Q) - (t_i - E_p[t]) / k), whose
    squares are summed apart over the strings that have a part (t = 1) and those that do not.
    """
    k, mu = len(weights), parts.marginals
    first = parts.counts(index, weights)
    second = parts.counts(index, np.square(weights))
    number = parts.counts(index, np.ones(k))
    having = squares(1 - first, (1 - mu) / k, second, first, number)
    total = float(np.square(weights).sum())
    lacking = squares(first, mu / k, total - second, 1 - first, k - number)
    return mu + first - number / k, np.sqrt(np.maximum(having + lacking, 0.0))


def sampled_covariance(
    parts: Parts, index: IntArray, centred: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean(c (t - E_p[t])) for values c of mean zero, and its standard error."""
    k, mu = len(centred), parts.marginals
    mean = parts.counts(index, centred / k)
    having = parts.counts(index, np.square(centred) / k)
    second = having * (1 - 2 * mu) + np.square(mu) * float(np.square(centred).mean())
    error = np.sqrt(np.maximum(second - np.square(mean), 0.0) / max(1, k - 1))
    return mean, error


def r_hat(means: FloatArray, within: FloatArray, draws: int) -> FloatArray:
    """Return the potential scale reduction (Gelman and Rubin 1992) of chains.

    sqrt((n - 1) / n + Var[chain means] / W); 1 where nothing varies, inf where no chain moves
    and their values differ, NaN for a single chain.

    Parameters
    ----------
    means : (chains, ...) float64
    within : (...) float64
        W, the mean of the chains' variances (ddof = 1).
    draws : int
        n, of each chain.
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
    """Return the variance of the mean of `count` batches from the sum of their squares."""
    return np.asarray(np.maximum(squares / count - mean**2, 0.0) / (count - 1))


def lugsail_variance(single: FloatArray, paired: FloatArray) -> FloatArray:
    """Return the variance of a mean from batches and from batches of twice their length.

    Correlated batches make the first too small; 2 paired - single removes the bias of order one
    over the length (Vats and Flegal 2022, "Lugsail lag windows", section 3).
    """
    return np.asarray(np.maximum(paired, 2 * paired - single))
