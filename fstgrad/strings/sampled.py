"""Sampled objectives for losses of any kind and strings of any length, with valid intervals.

Strings are drawn exactly from a proposal (the scores alone, or with the loss of a band of
alignments), and their losses are evaluated without an automaton.  The exact quantities of the
proposal (log Z, marginals, expected loss) serve as control variates.
"""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import SequenceLike
from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    Seed,
    generator,
    instance,
    one_of,
    positive_integer,
)
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.core.estimates import (
    EVERYTHING,
    SampledObjective,
    bounded_mean_interval,
    controlled_marginals,
    log_mean_interval,
    loss_augmented_weights,
    require_finite_loss,
    sampled_covariance,
)
from fstgrad.losses import Loss, Target
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.band import Band
from fstgrad.losses.automata.target_loss import SumTargetLoss, TargetLoss
from fstgrad.strings.budget import Budget
from fstgrad.strings.distribution import StringDistribution
from fstgrad.strings.lattices import Lattice
from fstgrad.strings.lattices.sampled import (
    lattice_sampled_risk,
    lattice_sampled_softmax_margin,
)
from fstgrad.strings.markov_chain import Chain
from fstgrad.strings.proposals import KINDS, PROPOSAL_STATES, Choice, Compiled, Kind, Proposal
from fstgrad.strings.tangents import tangent

_SAMPLES = 1000  # number of paths drawn from a lattice if a Budget is given
_SHRINKAGE = 10.0  # pseudo-counts that pull the effect of a rare symbol towards zero
_STEEPEST = 2.0  # largest slope of an additive control; a well fitted one has about 1
_ROUNDING = 1e-12  # certified bounds are widened by this, relative to their size
_ON_A_LATTICE = (
    "strings of a lattice are drawn from its scores or with the loss of a band; give "
    "proposal='auto', 'plain' or 'band', and leave cap= out"
)


def sampled_softmax_margin(
    scores: npt.ArrayLike | Lattice,
    gold: SequenceLike,
    loss: Loss | TargetLoss | SumTargetLoss,
    *,
    samples: int | Budget = 1000,
    rng: Seed = 0,
    proposal: Kind = "auto",
    band: Band | None = None,
    cap: float | None = None,
    max_states: int = PROPOSAL_STATES,
    compiled: Compiled | None = None,
) -> SampledObjective:
    """Estimate F(scores) and dF/dscores of the softmax margin, for any loss and any length.

    With y_1 .. y_k drawn from the proposal q(y) = exp(B(y) + w.Psi(y)) / Z_q and the weights
    u_i = e^{L(y_i) - B(y_i)},

        F = log Z_q + log mean(u) - w.Psi(gold),
        dF/dscores = E_q[t] + sum_i (u_i / sum u - 1 / k) t(y_i) - t(gold).

    Z_q and E_q[t] are exact; the term -1/k is the control variate mean(t) - E_q[t].  F has a bias
    of order 1/k; the jackknife removes it to first order and gives the standard error.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, or a Lattice
        Log-weights in nats, as in `StringDistribution`; gradients on a lattice are (A,).
    gold : sequence of length l, or a string of the lattice
        The target y_i.
    loss : Loss, TargetLoss or SumTargetLoss
        The loss in nats, or `loss.against(gold)`, which many steps can share.
    samples : int or Budget
        Number k of strings, >= 2.  With a `Budget`, as many as its width needs and its seconds
        allow, judged by the strings that chose the proposal; on a lattice 1000.
    rng : Generator, int or None
        The same seed gives the same result.
    proposal : {"auto", "band", "cap", "plain", "mixture"}
        "plain": B = 0.  "band": B = L_k, the loss of the alignments in a band, so u_i <= 1 and
        log Z <= log Z_q.  "cap": B = min(L, cap).  "mixture": bands of one offset each.  "auto":
        `band` or `cap` if given, else the proposal with the narrowest expected interval.  Lattices
        support "auto", "plain" and "band".
    band : int or (int, int), optional
        As in `Loss.compile`; 2 by default if proposal="band".
    cap : float, optional
        In nats; by default about the highest that `max_states` allows.
    max_states : int
        Limit on the states of a proposal's automata.
    compiled : callable, optional
        Maps band=, cap= and max_states= to the automaton, for example from a cache.

    Raises
    ------
    InfeasibleError
        The gold string has a score of -inf, or all drawn strings have the loss +inf.
    NotSupportedError
        A band or a cap is requested, but the loss has none ("auto" skips these).
    InvalidInputError
        An argument has the wrong type, shape or range.

    Notes
    -----
    Cost O(l n^q S + k l K) for S states of B in a level and K arcs of the target machine.  If the
    weights vary by orders of magnitude, `is_reliable` of the result is False.

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> loss = fg.EditDistance(fg.Alphabet("ab"))
    >>> r = sampled_softmax_margin(np.zeros((3, 2)), "aba", loss, samples=2000)
    >>> exact, _ = fg.softmax_margin(np.zeros((3, 2)), "aba", loss.compile("aba"))
    >>> r.interval[0] <= exact <= r.interval[1]
    True
    """
    one_of("proposal", proposal, KINDS)
    if isinstance(scores, Lattice):
        return lattice_sampled_softmax_margin(
            scores, gold, loss, **_on_a_lattice(samples, rng, proposal, band, cap, max_states)
        )
    instance("loss", loss, (Loss, TargetLoss, SumTargetLoss), "a Loss")
    ids = loss.alphabet.encode(gold, name="gold")
    distribution, target_loss = _checked(scores, ids, loss)
    gold_index, gold_score = distribution.gold(ids)
    random = generator(rng)
    choice = _choice(distribution, target_loss, loss, ids, compiled, max_states)
    most = _number(samples, choice, target_loss)
    if isinstance(samples, Budget):
        choice = choice.within(most)
    chosen = _given(choice, proposal, band, cap)
    if isinstance(samples, Budget):
        trial = (
            choice.best(most, random, samples.width)
            if chosen is None
            else choice.trial(chosen, random)
        )
        chosen, most = trial.proposal, choice.samples_for(trial, samples.width, most)
    elif chosen is None:
        chosen = choice.best(most, random).proposal
    strings = chosen.draw(most, random)
    log_weights = chosen.log_weights(strings, require_finite_loss(target_loss.losses_of(strings)))
    weights, log_mean, error = loss_augmented_weights(
        np.where(log_weights > -np.inf, log_weights, np.inf)
    )
    log_mass = chosen.log_mass
    low, high = log_mean_interval(log_weights, chosen.low, chosen.high)
    parts = _Parts(chosen.chain, chosen.marginals)
    q, q_error = controlled_marginals(parts, parts.chain.flat_index(strings), weights)
    q.flat[gold_index] -= 1.0
    wider = _ROUNDING * max(1.0, abs(log_mass), abs(gold_score))
    return SampledObjective(
        value=float(np.clip(log_mass + log_mean, log_mass + low, log_mass + high)) - gold_score,
        gradient=q,
        standard_error=error,
        gradient_standard_error=q_error,
        effective_samples=float(1.0 / np.square(weights).sum()),
        samples=len(strings),
        interval=(log_mass + low - gold_score - wider, log_mass + high - gold_score + wider),
        upper_bound=log_mass + chosen.high - gold_score + wider,
        proposal=chosen.name,
    )


def sampled_risk(
    scores: npt.ArrayLike | Lattice,
    target: Target | None,
    loss: Loss | TargetLoss | SumTargetLoss,
    *,
    samples: int | Budget = 1000,
    rng: Seed = 0,
    proposal: Kind = "auto",
    band: Band | None = None,
    max_states: int = PROPOSAL_STATES,
    compiled: Compiled | None = None,
) -> SampledObjective:
    """Estimate the risk E[L(y)] under exp(w.Psi(y)) / Z and its gradient Cov[L, t].

    Strings are drawn from the scores alone.  The loss L_k of a band, if there is one, is the
    control variate: E[L_k] and its gradient are exact, E[L_k] is an upper bound, and only
    L - L_k <= 0 is sampled.  A second control variate is an additive function
    H(y) = sum_t a[t, y_t], fitted to L - L_k on one half of the samples and used on the other half.
    Strings with L = +inf are left out of every sum; if there are any, no control variate is used.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, or a Lattice
        Log-weights in nats.  On a lattice of A arcs H = 0; gradients are (A,).
    target : sequence or acyclic acceptor
        None if `loss` is already `loss.against(target)`.
    proposal : {"auto", "band", "plain"}
        Whether the loss of a band is the control variate.  "auto" widens the band, up to
        `max_states` states, while that reduces the variance, if the loss has bands.
    loss, samples, rng, band, max_states, compiled
        As in `sampled_softmax_margin`; the width of a `Budget` is not used.

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> loss = fg.EditDistance(fg.Alphabet("ab"))
    >>> r = sampled_risk(np.zeros((3, 2)), "aba", loss, samples=2000)
    >>> exact, _ = fg.risk(np.zeros((3, 2)), loss.compile("aba"))
    >>> r.interval[0] <= exact <= r.interval[1]
    True
    """
    one_of("proposal", proposal, ("auto", "band", "plain"))
    if isinstance(scores, Lattice):
        return lattice_sampled_risk(
            scores, target, loss, **_on_a_lattice(samples, rng, proposal, band, None, max_states)
        )
    distribution, target_loss = _checked(scores, target, loss)
    random = generator(rng)
    choice = _choice(distribution, target_loss, loss, target, compiled, max_states)
    number = _number(samples, choice, target_loss)
    control = _control(choice, proposal, band, random)
    chain = Chain(distribution.scores)
    strings = chain.draw(random.random((number, chain.length)))
    losses = require_finite_loss(target_loss.losses_of(strings))
    finite = losses < np.inf
    strings, losses = strings[finite], losses[finite]
    base = control.losses_of(strings) if control is not None else np.zeros(len(losses))
    complete = bool(finite.all())
    if not (complete and np.isfinite(base).all()):
        control, base = None, np.zeros(len(losses))
    effects, fitted = np.zeros((chain.length, chain.n)), np.zeros(len(losses))
    if complete and number >= 4:
        effects, fitted = _additive_controls(strings, losses - base, chain.n)
    table = np.broadcast_to(
        effects.reshape(chain.length, *(1,) * (chain.order - 1), chain.n), chain.shape
    )
    rest = losses - base - fitted
    exact = float((chain.marginals * table).sum())
    value = float(rest.mean())
    covariance, error = sampled_covariance(chain, chain.flat_index(strings), rest - value)
    if effects.any():
        covariance = covariance + distribution.covariance_product(table)
    upper, exact_base = choice.greatest, 0.0
    if control is not None:
        solved = tangent(distribution.scores, control, scale=0, slope=1)
        upper = exact_base = solved.slope
        covariance = covariance + solved.change
    least, most = choice.least, choice.greatest
    if control is not None:
        least, most = least - control.greatest, 0.0
    low, high = bounded_mean_interval(losses - base, least, most) if complete else EVERYTHING
    wider = _ROUNDING * (max(1.0, abs(upper)) if np.isfinite(upper) else 1.0)
    interval = (exact_base + low - wider, exact_base + high + wider)
    return SampledObjective(
        value=float(np.clip(value + exact + exact_base, *interval)),
        gradient=covariance,
        standard_error=float(rest.std() / np.sqrt(max(1, len(rest) - 1))),
        gradient_standard_error=error,
        effective_samples=float(len(rest)),
        samples=len(finite),
        interval=interval,
        upper_bound=upper + wider,
        widest=0.1 * (choice.greatest - choice.least),
        proposal="plain" if control is None else f"band {control.band}",
    )


def _on_a_lattice(
    samples: int | Budget,
    rng: Seed,
    proposal: Kind,
    band: Band | None,
    cap: float | None,
    max_states: int,
) -> dict[str, Any]:
    """Return the keyword arguments of the sampled objectives on a lattice."""
    if proposal not in ("auto", "plain", "band") or cap is not None:
        raise NotSupportedError(_ON_A_LATTICE)
    if proposal == "band" and band is None:
        band = 2
    choose = proposal == "auto" and band is None
    band = None if proposal == "plain" else band
    return dict(samples=_number(samples), rng=rng, band=band, choose=choose, max_states=max_states)


class _Parts:
    """The parts of strings drawn from a proposal, for `controlled_marginals`."""

    def __init__(self, chain: Chain, marginals: FloatArray) -> None:
        self.chain, self._marginals = chain, marginals

    @property
    def marginals(self) -> FloatArray:
        """E_q[t], exact, shaped like the scores."""
        return self._marginals

    def counts(self, index: IntArray, values: FloatArray) -> FloatArray:
        """Return sum_i values[i] t(y_i)."""
        return self.chain.counts(index, values)


def _number(
    samples: int | Budget,
    choice: Choice | None = None,
    against: TargetLoss | SumTargetLoss | None = None,
) -> int:
    """Return the number of strings to draw, or the largest number that a budget allows."""
    if not isinstance(samples, Budget):
        return positive_integer("samples", samples, minimum=2)
    if choice is None or against is None:
        return _SAMPLES
    return samples.most_samples(choice.scores, against.step_states)


def _choice(
    distribution: StringDistribution,
    against: TargetLoss | SumTargetLoss,
    loss: Loss | TargetLoss | SumTargetLoss,
    target: Target | None,
    compiled: Compiled | None,
    max_states: int,
) -> Choice:
    length = distribution.length
    if compiled is None and isinstance(loss, Loss) and target is not None:
        if loss.semiring == "tropical":
            compiled = partial(loss.compile, target, length)
    elif compiled is None and isinstance(against, TargetLoss) and against.has_bands:
        compiled = partial(against.compile, length)
    least, greatest = against.bounds(length)
    return Choice(distribution.scores, against.losses_of, compiled, least, greatest, max_states)


def _given(choice: Choice, kind: Kind, band: Band | None, cap: float | None) -> Proposal | None:
    """Return the requested proposal; None if "auto" must choose."""
    if kind == "band" or (kind == "auto" and band is not None):
        return choice.band(2 if band is None else band)
    if kind == "cap" or (kind == "auto" and cap is not None):
        return choice.highest_cap() if cap is None else choice.cap(cap)
    if kind == "mixture":
        return choice.mixture()
    return choice.plain() if kind == "plain" else None


def _control(
    choice: Choice, kind: Kind, band: Band | None, rng: np.random.Generator
) -> LossAutomaton | None:
    """Return the automaton of the band whose loss is the control variate of a risk, or None."""
    if kind == "plain" or (choice.compiled is None and kind == "auto" and band is None):
        return None
    if kind == "band" or band is not None:
        return choice.band(2 if band is None else band).parts[0].b
    return choice.best_control(rng)


def _checked(
    scores: npt.ArrayLike, target: Target | None, loss: Loss | TargetLoss | SumTargetLoss
) -> tuple[StringDistribution, TargetLoss | SumTargetLoss]:
    distribution = StringDistribution(scores).recentered
    instance("loss", loss, (Loss, TargetLoss, SumTargetLoss), "a Loss")
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


def _additive_controls(
    strings: IntArray, losses: FloatArray, n: int
) -> tuple[FloatArray, FloatArray]:
    """Return the table b a (l, n), averaged over two halves of the strings, and b H(y_i) (k,).

    a is fitted on one half; H(y) = sum_t a[t, y_t] and its regression slope b apply to the other.
    """
    half = len(losses) // 2
    positions = np.arange(strings.shape[1])
    table = np.zeros((strings.shape[1], n))
    fitted = np.zeros(len(losses))
    for fit, use in ((slice(0, half), slice(half, None)), (slice(half, None), slice(0, half))):
        effects = _main_effects(strings[fit], losses[fit], n)
        h = effects[positions, strings[use]].sum(axis=1)
        h_centred, rest = h - h.mean(), losses[use] - losses[use].mean()
        spread = float(h_centred @ h_centred)
        # Bounded, because strings that hardly differ in H would give any slope, and the table also
        # has the symbols that they lack.  Every slope is unbiased.
        slope = float(np.clip(h_centred @ rest / spread, 0.0, _STEEPEST)) if spread > 0 else 0.0
        fitted[use] = slope * h
        table += slope * effects * (len(h) / len(losses))
    return table, fitted


def _main_effects(strings: IntArray, losses: FloatArray, n: int) -> FloatArray:
    """Return the mean deviation of the loss for each symbol at each position, (l, n), shrunk."""
    centred = losses - losses.mean()
    effects = np.zeros((strings.shape[1], n))
    for t, symbols in enumerate(strings.T):
        number = np.bincount(symbols, minlength=n)
        effects[t] = np.bincount(symbols, centred, minlength=n) / (number + _SHRINKAGE)
    return effects
