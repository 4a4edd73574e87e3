"""Sampled objectives: any loss and any length, each with its standard error.

Strings are drawn exactly from p(y) = exp(w.Psi(y)) / Z, their losses are evaluated without an
automaton, and what can be had exactly from p (log Z, its marginals, covariances with additive
functions) is not sampled but used as a control.
"""

import numpy as np
import numpy.typing as npt

from fstgrad.alphabet import SequenceLike
from fstgrad.automata.evaluation import SumTargetLoss, TargetLoss
from fstgrad.checks import FloatArray, IntArray, Seed, generator, positive_integer
from fstgrad.errors import InvalidInputError
from fstgrad.estimates import (
    SampledObjective,
    controlled_marginals,
    loss_weighted,
    sampled_covariance,
    usable,
)
from fstgrad.lattices import Lattice
from fstgrad.lattices.sampled import (
    lattice_sampled_risk,
    lattice_sampled_softmax_margin,
)
from fstgrad.losses import Loss, Target
from fstgrad.strings.chain import Chain
from fstgrad.strings.distribution import StringDistribution

_SHRINKAGE = 10.0  # pseudo-counts that pull the effect of a rare symbol towards zero


def sampled_softmax_margin(
    scores: npt.ArrayLike | Lattice,
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
    scores : (l, n), (l, n+1, n), ... float64, or a Lattice
        Log-weights in nats, as in `StringDistribution`; gradients on a lattice are (A,).
    gold : sequence of length l, or a string of the lattice
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
    if isinstance(scores, Lattice):
        return lattice_sampled_softmax_margin(scores, gold, loss, samples=samples, rng=rng)
    distribution, target_loss = _checked(scores, gold, loss)
    ids = target_loss.alphabet.encode(gold, name="gold")
    gold_places, gold_score = distribution.gold(ids)
    chain = Chain(distribution.scores)
    strings = chain.draw(_uniforms(samples, rng, chain))
    losses = usable(target_loss.losses_of(strings))
    places = chain.places(strings)

    weights, log_mean, error = loss_weighted(losses)
    q, q_error = controlled_marginals(chain, places, weights)
    q.flat[gold_places] -= 1.0
    return SampledObjective(
        value=chain.log_partition + log_mean - gold_score,
        grad=q,
        standard_error=error,
        grad_standard_error=q_error,
        effective_samples=float(1.0 / np.square(weights).sum()),
        samples=len(strings),
    )


def sampled_risk(
    scores: npt.ArrayLike | Lattice,
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
    scores : (l, n), (l, n+1, n), ... float64, or a Lattice
        Log-weights in nats.  On a lattice of A arcs nothing is controlled; gradients are (A,).
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
    if isinstance(scores, Lattice):
        return lattice_sampled_risk(scores, target, loss, samples=samples, rng=rng)
    distribution, target_loss = _checked(scores, target, loss)
    chain = Chain(distribution.scores)
    strings = chain.draw(_uniforms(samples, rng, chain))
    losses = usable(target_loss.losses_of(strings))
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
    covariance, error = sampled_covariance(chain, chain.places(strings), rest - value)
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
