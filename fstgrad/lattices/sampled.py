"""Sampled objectives on lattices, for losses whose exact composition is too large.

Paths are drawn exactly from p = exp(score) / Z; log Z and the arc posteriors are not sampled.
"""

import numpy as np

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
from fstgrad.lattices.graph import EPSILON, Flow, sums_by
from fstgrad.lattices.lattice import Lattice
from fstgrad.lattices.objectives import gold_paths
from fstgrad.losses import Loss, Target


class _Draws:
    """Paths drawn from a lattice, (k, longest) arcs, then -1."""

    def __init__(self, lattice: Lattice, samples: int, rng: Seed) -> None:
        positive_integer("samples", samples, minimum=2)
        self._lattice = lattice
        self.flow = Flow.of(lattice.graph, lattice.scores)
        self.steps = self.flow.sample(samples, generator(rng))

    @property
    def marginals(self) -> FloatArray:
        """The arc posteriors, exact."""
        return self.flow.posterior

    def counts(self, places: IntArray, values: FloatArray) -> FloatArray:
        """Return for each arc the sum of the values of the paths (k, longest) that pass it."""
        row, step = np.nonzero(places >= 0)
        return sums_by(places[row, step], values[row], self._lattice.num_arcs)

    def losses(self, loss: TargetLoss | SumTargetLoss) -> FloatArray:
        """Return the loss of each path's string; those of one length are evaluated together."""
        labels = np.where(self.steps >= 0, self._lattice.label[self.steps], EPSILON)
        reads = labels != EPSILON
        lengths = reads.sum(axis=1)
        result = np.empty(len(labels))
        for length in np.unique(lengths):
            rows = lengths == length
            strings = labels[rows][reads[rows]].reshape(int(rows.sum()), int(length))
            result[rows] = loss.losses_of(strings)
        return usable(result)


def lattice_sampled_softmax_margin(
    lattice: Lattice,
    gold: SequenceLike,
    loss: Loss | TargetLoss | SumTargetLoss,
    *,
    samples: int,
    rng: Seed,
) -> SampledObjective:
    """Estimate F and dF/dscores (A,) over the paths of a lattice; see `sampled_softmax_margin`."""
    ids, of_gold, gold_posterior = gold_paths(lattice, gold)
    draws = _Draws(lattice, samples, rng)
    losses = draws.losses(loss.against(ids) if isinstance(loss, Loss) else loss)
    weights, log_mean, error = loss_weighted(losses)
    q, q_error = controlled_marginals(draws, draws.steps, weights)
    return SampledObjective(
        value=draws.flow.log_z + log_mean - of_gold,
        gradient=np.subtract(q, gold_posterior),
        standard_error=error,
        gradient_standard_error=q_error,
        effective_samples=float(1.0 / np.square(weights).sum()),
        samples=samples,
    )


def lattice_sampled_risk(
    lattice: Lattice,
    target: Target | None,
    loss: Loss | TargetLoss | SumTargetLoss,
    *,
    samples: int,
    rng: Seed,
) -> SampledObjective:
    """Estimate E[L] and its gradient (A,) over the paths of a lattice; see `sampled_risk`.

    Paths with L = +inf are left out.
    """
    if isinstance(loss, Loss):
        if target is None:
            raise InvalidInputError("target is None; give it, or the loss as loss.against(target)")
        loss = loss.against(target)
    draws = _Draws(lattice, samples, rng)
    losses = draws.losses(loss)
    finite = losses < np.inf
    losses = losses[finite]
    value = float(losses.mean())
    gradient, error = sampled_covariance(draws, draws.steps[finite], losses - value)
    scale = len(losses) / max(1, len(losses) - 1)  # the mean was estimated from the same paths
    return SampledObjective(
        value=value,
        gradient=gradient * scale,
        standard_error=float(losses.std() / np.sqrt(max(1, len(losses) - 1))),
        gradient_standard_error=error * scale,
        effective_samples=float(len(losses)),
        samples=samples,
    )
