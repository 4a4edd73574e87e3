"""Sampled objectives: any loss and any length, each with its standard error.

Strings are drawn exactly from p(y) = exp(w.Psi(y)) / Z, their losses are evaluated without an
automaton, and what can be had exactly from p (log Z, its marginals, covariances with additive
functions) is not sampled but used as a control.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fstgrad.alphabet import SequenceLike
from fstgrad.checks import FloatArray, IntArray, Seed, generator, positive_integer
from fstgrad.errors import InfeasibleError, InvalidInputError
from fstgrad.evaluation import SumTargetLoss, TargetLoss
from fstgrad.losses import Loss, Target
from fstgrad.strings.chain import Chain
from fstgrad.strings.distribution import StringDistribution

RELIABLE = 100.0  # effective samples below which the standard error itself is poorly known
_SHRINKAGE = 10.0  # pseudo-counts that pull the effect of a rare symbol towards zero


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


def sampled_softmax_margin(
    scores: npt.ArrayLike,
    gold: SequenceLike,
    loss: Loss | TargetLoss | SumTargetLoss,
    *,
    samples: int = 1000,
    rng: Seed = 0,
) -> SampledObjective:
    """Estimate F(scores) and dF/dscores of the softmax margin for a loss of any kind and length.

    With y_1 .. y_k drawn from p(y) = exp(w.Psi(y)) / Z and u_i = e^{L(y_i)},

        F = log Z + log mean(u) - w.Psi(gold),
        dF/dscores = E_p[t] + sum_i (u_i / sum u - 1 / k) t(y_i) - t(gold).

    log Z and E_p[t] are exact; the -1/k is the control variate mean(t) - E_p[t].  F has a bias of
    order 1/k, which the jackknife takes out to first order, as it gives the standard error.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64
        Log-weights in nats, as in `StringDistribution`.
    gold : sequence of length l
        The target y_i.
    loss : Loss, or the loss `against` a target
        `loss.against(gold)` can be given instead of `loss`, so that many steps share it.
    samples : int
        Number k of strings.
    rng : Generator, int or None
        The same seed gives the same result.

    Raises
    ------
    InfeasibleError
        The gold string has a score of -inf, or all drawn strings have the loss +inf.

    Notes
    -----
    Cost O(l n^q + k l K) for K arcs of the target machine.  Where the weights u vary by many
    orders of magnitude the effective sample size is small, and the result says so.

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> loss = fg.EditDistance(fg.Alphabet("ab"))
    >>> r = sampled_softmax_margin(np.zeros((3, 2)), "aba", loss, samples=2000)
    >>> exact, _ = fg.softmax_margin(np.zeros((3, 2)), "aba", loss.compile("aba"))
    >>> abs(r.value - exact) < 3 * r.standard_error
    True
    """
    distribution, target_loss = _checked(scores, gold, loss)
    ids = target_loss.alphabet.encode(gold, name="gold")
    cells, gold_score = distribution.gold(ids)
    chain = Chain(distribution.scores)
    strings = chain.draw(_uniforms(samples, rng, chain))
    losses = _usable_losses(target_loss, strings)
    places = chain.places(strings)

    largest = float(losses[losses < np.inf].max())
    weights = np.where(losses < np.inf, np.exp(np.minimum(losses, largest) - largest), 0.0)
    log_mean, error = _jackknifed_log_mean(weights)
    weights /= weights.sum()
    q, q_error = _controlled_marginals(chain, places, weights)
    q[cells] -= 1.0
    return SampledObjective(
        value=chain.log_partition + largest + log_mean - gold_score,
        grad=q,
        standard_error=error,
        grad_standard_error=q_error,
        effective_samples=float(1.0 / np.square(weights).sum()),
        samples=len(strings),
    )


def sampled_risk(
    scores: npt.ArrayLike,
    target: Target | None,
    loss: Loss | TargetLoss | SumTargetLoss,
    *,
    samples: int = 1000,
    rng: Seed = 0,
) -> SampledObjective:
    """Estimate the risk E[L(y)] under exp(w.Psi(y)) / Z and its gradient Cov[L, t].

    An additive function H(y) = sum_t a[t, y_t], fitted to the losses of one half of the samples,
    serves as control on the other half: E[H] and Cov[H, t] are exact, and only L - b H is sampled.
    Strings with L = +inf are left out of every sum; then nothing is controlled.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64
        Log-weights in nats.
    target : sequence or acyclic acceptor
        None if `loss` is already `loss.against(target)`.
    loss, samples, rng
        As in `sampled_softmax_margin`.

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> loss = fg.EditDistance(fg.Alphabet("ab"))
    >>> r = sampled_risk(np.zeros((3, 2)), "aba", loss, samples=2000)
    >>> exact, _ = fg.risk(np.zeros((3, 2)), loss.compile("aba"))
    >>> abs(r.value - exact) < 3 * r.standard_error
    True
    """
    distribution, target_loss = _checked(scores, target, loss)
    chain = Chain(distribution.scores)
    strings = chain.draw(_uniforms(samples, rng, chain))
    losses = _usable_losses(target_loss, strings)
    finite = losses < np.inf
    strings, losses = strings[finite], losses[finite]
    effects, fitted = np.zeros((chain.length, chain.n)), np.zeros(len(losses))
    if finite.all() and samples >= 4:
        effects, fitted = _additive_controls(strings, losses, chain.n)
    table = np.broadcast_to(
        effects.reshape(chain.length, *(1,) * (chain.order - 1), chain.n), chain.shape
    )
    rest = losses - fitted
    exact = float((chain.marginals * table).sum())
    value = float(rest.mean())
    covariance, error = _sampled_covariance(chain, chain.places(strings), rest - value)
    if effects.any():
        covariance = covariance + distribution.covariance_product(table)
    return SampledObjective(
        value=value + exact,
        grad=covariance,
        standard_error=float(rest.std() / np.sqrt(max(1, len(rest) - 1))),
        grad_standard_error=error,
        effective_samples=float(len(rest)),
        samples=len(finite),
    )


def _checked(
    scores: npt.ArrayLike, target: Target | None, loss: Loss | TargetLoss | SumTargetLoss
) -> tuple[StringDistribution, TargetLoss | SumTargetLoss]:
    distribution = StringDistribution(scores)
    n = distribution.scores.shape[-1]
    if len(loss.alphabet) != n:
        raise InvalidInputError(
            f"scores are for {n} symbols; the loss has an alphabet of {len(loss.alphabet)}"
        )
    if isinstance(loss, TargetLoss | SumTargetLoss):
        return distribution, loss
    if target is None:
        raise InvalidInputError("target is None; give it, or the loss as loss.against(target)")
    return distribution, loss.against(target)


def _uniforms(samples: int, rng: Seed, chain: Chain) -> FloatArray:
    positive_integer("samples", samples, minimum=2)
    return generator(rng).random((samples, chain.length))


def _usable_losses(loss: TargetLoss | SumTargetLoss, strings: IntArray) -> FloatArray:
    losses = loss.losses_of(strings)
    if not (losses < np.inf).any():
        raise InfeasibleError(
            f"all {len(losses)} samples have the loss +inf: draw more samples, give "
            "smoothing > 0, or compile the loss and compute exactly"
        )
    return losses


def _jackknifed_log_mean(weights: FloatArray) -> tuple[float, float]:
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


def _controlled_marginals(
    chain: Chain, places: IntArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return Q = E_p[t] + sum_i (w_i - 1/k) t_i for weights that sum to one, and its error.

    The error is that of the linearised estimate, sum_i (w_i (t_i - Q) - (t_i - E_p[t]) / k), whose
    squares are summed apart over the strings that have a part (t = 1) and those that do not.
    """
    k, mu = len(weights), chain.marginals
    first = chain.counts(places, weights)
    second = chain.counts(places, np.square(weights))
    number = chain.counts(places, np.ones(k))
    having = _squares(1 - first, (1 - mu) / k, second, first, number)
    total = float(np.square(weights).sum())
    lacking = _squares(first, mu / k, total - second, 1 - first, k - number)
    return mu + first - number / k, np.sqrt(np.maximum(having + lacking, 0.0))


def _squares(
    a: FloatArray, b: FloatArray, second: FloatArray, first: FloatArray, number: FloatArray
) -> FloatArray:
    """Return sum_i (a w_i - b)^2 from the number of terms and the first two power sums of w."""
    return np.square(a) * second - 2 * a * b * first + np.square(b) * number


def _additive_controls(
    strings: IntArray, losses: FloatArray, n: int
) -> tuple[FloatArray, FloatArray]:
    """Return the mean table b a (l, n) of both halves, and b H (k,) of each string.

    The table of a string's control comes from the half that it is not in.
    """
    half = len(losses) // 2
    positions = np.arange(strings.shape[1])
    table = np.zeros((strings.shape[1], n))
    fitted = np.empty(len(losses))
    for fit, use in ((slice(0, half), slice(half, None)), (slice(half, None), slice(0, half))):
        effects = _main_effects(strings[fit], losses[fit], n)
        h = effects[positions, strings[use]].sum(axis=1)
        h_centred = h - h.mean()
        spread = float(h_centred @ h_centred)
        slope = float(h_centred @ losses[use]) / spread if spread > 0 else 0.0
        fitted[use] = slope * h
        table += slope * effects * (len(h) / len(losses))
    return table, fitted


def _main_effects(strings: IntArray, losses: FloatArray, n: int) -> FloatArray:
    """Return how far the mean loss moves with each symbol at each position, (l, n)."""
    centred = losses - losses.mean()
    effects = np.empty((strings.shape[1], n))
    for t, symbols in enumerate(strings.T):
        number = np.bincount(symbols, minlength=n)
        effects[t] = np.bincount(symbols, centred, minlength=n) / (number + _SHRINKAGE)
    return effects


def _sampled_covariance(
    chain: Chain, places: IntArray, centred: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean(c (t - E_p[t])) for values c of mean zero, and its standard error."""
    k, mu = len(centred), chain.marginals
    mean = chain.counts(places, centred / k)
    having = chain.counts(places, np.square(centred) / k)
    second = having * (1 - 2 * mu) + np.square(mu) * float(np.square(centred).mean())
    error = np.sqrt(np.maximum(second - np.square(mean), 0.0) / max(1, k - 1))
    return mean, error
