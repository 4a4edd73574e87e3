"""Training objectives on lattices, each with its exact gradient in the scores of the arcs (A,)."""

import numpy as np

from fstgrad.core.alphabet import SequenceLike
from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.losses import Loss, Target
from fstgrad.strings.lattices import search
from fstgrad.strings.lattices.lattice import Lattice
from fstgrad.strings.lattices.loss import LatticeLoss


def gold_paths(lattice: Lattice, gold: SequenceLike) -> tuple[IntArray, float, FloatArray]:
    """Return the ids of a gold string, the log-sum of its paths and their arc posteriors (A,).

    Raises
    ------
    InfeasibleError
        The string is not in the lattice, or has probability zero.
    """
    ids = lattice.alphabet.encode(gold, name="gold")
    total, posterior = search.posterior_of_string(lattice.graph, lattice.label, lattice.scores, ids)
    if total == -np.inf:
        raise InfeasibleError(
            "every path that reads gold has a score of -inf: its probability is zero; "
            "do not forbid its arcs"
        )
    return ids, total, posterior


def lattice_softmax_margin(
    lattice: Lattice, gold: SequenceLike, loss: Loss | LatticeLoss | None = None
) -> tuple[float, FloatArray]:
    """Return the softmax margin F and dF/dscores (A,) over the paths of a lattice.

    F = log sum over paths of exp(L + score) - log sum over the paths that read `gold` of
    exp(score), in nats.  The gradient is the difference of the arc posteriors of the two sums.
    Without a loss, L = 0.
    """
    lattice = lattice.recentered
    ids, of_gold, gold_posterior = gold_paths(lattice, gold)
    if loss is None:
        return lattice.log_partition() - of_gold, lattice.marginals() - gold_posterior
    b = loss if isinstance(loss, LatticeLoss) else lattice.compile(loss, ids)
    log_z, posterior = b.augmented(lattice.graph, lattice.scores)
    return log_z - of_gold, np.subtract(posterior, gold_posterior)


def lattice_risk(
    lattice: Lattice, target: Target | LatticeLoss, loss: Loss | None = None
) -> tuple[float, FloatArray]:
    """Return E[L] in nats over the paths of a lattice and its gradient (A,), Cov[L, t].

    Paths with L = +inf are left out.
    """
    if isinstance(target, LatticeLoss):
        return target.risk(lattice.graph, lattice.recentered.scores)
    if loss is None:
        raise InvalidInputError(
            "loss is missing; give risk(lattice, target, loss), or a loss compiled for the "
            "lattice: risk(lattice, lattice.compile(loss, target))"
        )
    return lattice.compile(loss, target).risk(lattice.graph, lattice.recentered.scores)


def lattice_hinge(
    lattice: Lattice, gold: SequenceLike, loss: Loss | LatticeLoss
) -> tuple[float, FloatArray]:
    """Return the structured hinge loss over the paths, in nats, and t(worst) - t(gold) (A,).

    The value is max over paths of (L + score) - max over the paths of `gold` of score: the softmax
    margin of a lattice at temperature 0.  The difference is a subgradient if each string has one
    path.
    """
    lattice = lattice.recentered
    ids, _, _ = gold_paths(lattice, gold)
    b = loss if isinstance(loss, LatticeLoss) else lattice.compile(loss, ids)
    worst, value, _ = b.best(lattice.graph, lattice.scores)
    own, score = search.best_path_of_string(lattice.graph, lattice.label, lattice.scores, ids)
    return value - score, _counts(lattice, worst) - _counts(lattice, own)


def lattice_raml(
    lattice: Lattice, loss: LatticeLoss, temperature: float
) -> tuple[float, FloatArray]:
    """Return -E_r[log p] in nats over the paths, and its gradient (A,).

    r = e^{-L / temperature} / Z_r; the gradient is the difference of the arc posteriors of p and r.
    """
    lattice = lattice.recentered
    reward = loss.reward(lattice.graph, temperature)
    # a forbidden arc counts only if some path of r passes it
    taken = reward > 0
    mean = float(reward[taken] @ lattice.scores[taken])
    return lattice.log_partition() - mean, lattice.marginals() - reward


def lattice_direct_loss(
    lattice: Lattice, loss: LatticeLoss, epsilon: float
) -> tuple[float, FloatArray]:
    """Return the loss of the best path (nats) and (t(y_direct) - t(best)) / epsilon (A,).

    y_direct is the path with the highest score + epsilon L.  Only paths with a finite loss count.
    """
    lattice = lattice.recentered
    best, _, value = loss.best(lattice.graph, lattice.scores, 0.0)
    worse, _, _ = loss.best(lattice.graph, lattice.scores, epsilon)
    return value, (_counts(lattice, worse) - _counts(lattice, best)) / epsilon


def _counts(lattice: Lattice, path: IntArray) -> FloatArray:
    return np.bincount(path, minlength=lattice.num_arcs).astype(np.float64)
