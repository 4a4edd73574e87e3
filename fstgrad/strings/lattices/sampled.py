"""Sampled objectives on lattices, for losses whose exact composition is too large.

Paths are drawn exactly from p = exp(score) / Z, or from q proportional to p e^{L_k} for the loss
L_k of a band, whose composition is small.  Z, the arc posteriors and E[L_k] are exact.
"""

import contextlib

import numpy as np

from fstgrad.core.alphabet import SequenceLike
from fstgrad.core.checks import FloatArray, IntArray, Seed, generator, instance, positive_integer
from fstgrad.core.errors import (
    InfeasibleError,
    InvalidInputError,
    NotSupportedError,
    StateLimitError,
)
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
from fstgrad.core.uninitialized import empty
from fstgrad.losses import Loss, Target
from fstgrad.losses.automata.band import Band
from fstgrad.losses.automata.target_loss import SumTargetLoss, TargetLoss
from fstgrad.strings.lattices.graph import NO_SYMBOL, Flow, sums_by
from fstgrad.strings.lattices.lattice import Lattice
from fstgrad.strings.lattices.loss import LatticeLoss, banded
from fstgrad.strings.lattices.objectives import gold_paths

_PILOT = 200  # paths drawn to compare bands
_GOOD = 0.9  # share of effective samples that needs no wider band
_WIDEST_BAND = 8
_GROWTH = 4  # factor by which the states grow from a band to the next, about
_ROUNDING = 1e-12  # certified bounds are widened by this, relative to their size


class _Draws:
    """Paths drawn from a lattice, with their losses.

    Paths are drawn with weights e^{score + slope L_k}, where L_k is the loss of the band composed
    in `b`; without `b`, e^{score}.

    Attributes
    ----------
    steps : (k, longest) int64
        The arcs of each path, then -1.
    log_z : float
        The log of the sum of these weights over all paths, in nats.
    marginals : (A,) float64
        The arc posteriors under these weights.
    base : (k,) float64
        L_k of each path in nats; 0 without `b`.
    losses : (k,) float64
        L of each path in nats; may be +inf, but not for all paths.
    """

    def __init__(
        self,
        lattice: Lattice,
        against: TargetLoss | SumTargetLoss,
        samples: int,
        rng: np.random.Generator,
        b: LatticeLoss | None = None,
        slope: float = 0.0,
    ) -> None:
        self._lattice = lattice
        if b is None:
            self.flow = Flow.of(lattice.graph, lattice.scores)
            self.steps = self.flow.sample(samples, rng)
            self.log_z, self.marginals = self.flow.log_z, self.flow.posterior
            self.base = np.zeros(samples)
        else:
            self.flow = Flow.of(b.graph, lattice.scores[b.arc] + slope * b.cost)
            steps = self.flow.sample(samples, rng)
            self.steps = np.where(steps >= 0, b.arc[steps], -1)
            self.log_z = self.flow.log_z + slope * b.initial
            self.marginals = sums_by(b.arc, self.flow.posterior, lattice.num_arcs)
            self.base = b.initial + np.where(steps >= 0, b.cost[steps], 0.0).sum(axis=1)
        self.losses = self._losses(against)
        self.is_banded = b is not None

    def counts(self, index: IntArray, values: FloatArray) -> FloatArray:
        """Return (A,): for each arc, the sum of the `values` (k,) of the paths that pass it.

        `index` (k, longest) has the arcs of the paths, then -1.
        """
        row, step = np.nonzero(index >= 0)
        return sums_by(index[row, step], values[row], self._lattice.num_arcs)

    @property
    def log_weights(self) -> FloatArray:
        """L - L_k (k,) in nats, at most 0, with a band; else L.  -inf if L is +inf."""
        finite = self.losses < np.inf
        weights = np.full(len(self.losses), -np.inf)
        weights[finite] = self.losses[finite] - self.base[finite]
        return np.minimum(weights, 0.0) if self.is_banded else weights

    def _losses(self, loss: TargetLoss | SumTargetLoss) -> FloatArray:
        """Return the loss (k,) of the string of each path; strings of one length go together."""
        instance("loss", loss, TargetLoss | SumTargetLoss, "a Loss, or one against a target")
        labels = np.where(self.steps >= 0, self._lattice.label[self.steps], NO_SYMBOL)
        reads = labels != NO_SYMBOL
        lengths = reads.sum(axis=1)
        result = empty(len(labels))
        for length in np.unique(lengths):
            rows = lengths == length
            strings = labels[rows][reads[rows]].reshape(int(rows.sum()), int(length))
            result[rows] = loss.losses_of(strings)
        return require_finite_loss(result)


def lattice_sampled_softmax_margin(
    lattice: Lattice,
    gold: SequenceLike,
    loss: Loss | TargetLoss | SumTargetLoss,
    *,
    samples: int,
    rng: Seed,
    band: Band | None,
    choose: bool,
    max_states: int,
) -> SampledObjective:
    """Estimate F and dF/dscores (A,) over the paths of a lattice; see `sampled_softmax_margin`.

    Parameters
    ----------
    lattice, gold, loss, rng
        As in `sampled_softmax_margin`.
    samples : int
        Number k >= 2 of paths.
    band : int or (int, int), optional
        The band of the proposal.
    choose : bool
        Whether to choose a band, if `band` is None.
    max_states : int
        Limit on the states of the composition with a band.
    """
    samples = positive_integer("samples", samples, minimum=2)
    random, lattice = generator(rng), lattice.recentered
    ids, of_gold, gold_posterior = gold_paths(lattice, gold)
    against = _against(loss, ids)
    b, name = _band(lattice, against, band, choose, max_states, random)
    draws = _Draws(lattice, against, samples, random, b, slope=1.0)
    log_weights = draws.log_weights
    weights, log_mean, error = loss_augmented_weights(
        np.where(log_weights > -np.inf, log_weights, np.inf)
    )
    q, q_error = controlled_marginals(draws, draws.steps, weights)
    most = np.inf if b is None else 0.0
    low, high = log_mean_interval(log_weights, -np.inf, most)
    wider = _ROUNDING * max(1.0, abs(draws.log_z), abs(of_gold))
    shift = draws.log_z - of_gold
    return SampledObjective(
        value=float(np.clip(shift + log_mean, shift + low, shift + high)),
        gradient=np.subtract(q, gold_posterior),
        standard_error=error,
        gradient_standard_error=q_error,
        effective_samples=float(1.0 / np.square(weights).sum()),
        samples=samples,
        interval=(shift + low - wider, shift + high + wider),
        upper_bound=shift + most + wider,
        proposal=name,
    )


def lattice_sampled_risk(
    lattice: Lattice,
    target: Target | None,
    loss: Loss | TargetLoss | SumTargetLoss,
    *,
    samples: int,
    rng: Seed,
    band: Band | None,
    choose: bool,
    max_states: int,
) -> SampledObjective:
    """Estimate E[L] and its gradient (A,) over the paths of a lattice; see `sampled_risk`.

    The parameters are those of `lattice_sampled_softmax_margin`, with a target instead of a gold
    string.  Paths with L = +inf are left out.  With a band, E[L_k] and its gradient are exact, and
    only L - L_k <= 0 is sampled.
    """
    samples = positive_integer("samples", samples, minimum=2)
    random, lattice = generator(rng), lattice.recentered
    loss = _against(loss, target)
    b, name = _band(lattice, loss, band, choose, max_states, random)
    draws = _Draws(lattice, loss, samples, random, b)
    finite = draws.losses < np.inf
    rest = draws.losses[finite] - draws.base[finite]
    mean = float(rest.mean())
    gradient, error = sampled_covariance(draws, draws.steps[finite], rest - mean)
    scale = len(rest) / max(1, len(rest) - 1)  # the mean was estimated from the same paths
    gradient, exact, upper, interval, widest = gradient * scale, 0.0, np.inf, EVERYTHING, np.inf
    if b is not None:
        exact, exact_gradient = b.risk(lattice.graph, lattice.scores)
        gradient = gradient + exact_gradient
        least = _least(lattice, loss)
        low, high = bounded_mean_interval(rest, least - b.range[1], 0.0)
        wider = _ROUNDING * max(1.0, abs(exact))
        upper, interval = exact + wider, (exact + low - wider, exact + high + wider)
        widest = 0.1 * (b.range[1] - least)
    return SampledObjective(
        value=float(np.clip(exact + mean, *interval)),
        gradient=gradient,
        standard_error=float(rest.std() / np.sqrt(max(1, len(rest) - 1))),
        gradient_standard_error=error * scale,
        effective_samples=float(len(rest)),
        samples=samples,
        interval=interval,
        upper_bound=upper,
        widest=widest,
        proposal=name,
    )


def _least(lattice: Lattice, loss: TargetLoss | SumTargetLoss) -> float:
    """Return a lower bound in nats of the finite losses of the strings of a lattice."""
    shortest, longest = lattice.graph.depths(lattice.label != NO_SYMBOL)[-1].tolist()
    least = np.inf
    for length in range(shortest, longest + 1):
        with contextlib.suppress(InfeasibleError):  # no string of this length has a finite loss
            least = min(least, loss.bounds(length)[0])
    return least


def _against(
    loss: Loss | TargetLoss | SumTargetLoss, target: Target | None
) -> TargetLoss | SumTargetLoss:
    """Return the loss against the target; `loss` may already be one."""
    instance("loss", loss, (Loss, TargetLoss, SumTargetLoss), "a Loss")
    if not isinstance(loss, Loss):
        return loss
    if target is None:
        raise InvalidInputError("target is None; give it, or the loss as loss.against(target)")
    return loss.against(target)


def _band(
    lattice: Lattice,
    against: TargetLoss | SumTargetLoss,
    band: Band | None,
    choose: bool,
    max_states: int,
    rng: np.random.Generator,
) -> tuple[LatticeLoss | None, str]:
    """Return the composition with `band`, or with the best band if `choose`, and its name.

    Return (None, "plain") if plain samples are better or no band works.  The band is widened until
    90 percent of the samples of the softmax margin are effective, or the next band would probably
    exceed `max_states`.
    """
    if band is not None:
        return banded(lattice.graph, lattice.label, against, band, max_states), f"band {band}"
    best: tuple[LatticeLoss | None, str] = None, "plain"
    share = 0.0
    for width in range(1, _WIDEST_BAND + 1 if choose else 1):
        try:
            b = banded(lattice.graph, lattice.label, against, width, max_states)
            reached = _effective(_Draws(lattice, against, _PILOT, rng, b, slope=1.0))
        except InfeasibleError:
            continue  # too narrow
        except (NotSupportedError, StateLimitError):
            break
        if reached > share:
            best, share = (b, f"band {width}"), reached
        if share > _GOOD or b.num_states * _GROWTH > max_states:
            break
    if best[0] is not None and _effective(_Draws(lattice, against, _PILOT, rng)) > share:
        return None, "plain"
    return best


def _effective(draws: _Draws) -> float:
    """Return the effective share of the samples, (sum w)^2 / (k sum w^2) for their weights w."""
    weights = np.exp(draws.log_weights - draws.log_weights.max())
    return float(weights.sum() ** 2 / np.square(weights).sum() / len(weights))
