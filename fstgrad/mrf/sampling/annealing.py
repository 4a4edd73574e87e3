"""Log Z by annealed importance sampling, with a standard error (Neal 2001).

Annealing leads from the model of the nodes alone, with known log Z_0, to the whole model: the
scores of edges and factors are multiplied by beta, which grows from 0 to 1.  A run has the weight

    log w = sum_t (beta_(t + 1) - beta_t) (edge and factor scores of y_t),

where y_0 is an exact draw and y_t is drawn from y_(t - 1) by one Gibbs sweep at beta_t.
E[w] = Z / Z_0 for any number of steps.
"""

import time
from itertools import pairwise

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray, Seed, generator, positive_integer
from fstgrad.core.errors import NotSupportedError
from fstgrad.core.estimates import jackknifed_log_mean
from fstgrad.mrf.result import Annealed
from fstgrad.mrf.sampling.chains import Chain, new_keys
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible


def annealed(
    model: ScoredGraph, *, steps: int = 200, runs: int = 100, rng: Seed = None
) -> Annealed:
    """Return log Z with its standard error (nats), and node marginals from weighted draws.

    There are no edge or factor marginals.  The cost is that of steps * runs chromatic sweeps.  If
    all runs miss the labelings of the highest scores, log Z is too low by more than its error says;
    `checked_annealing` looks for them.

    Parameters
    ----------
    steps : int
        The number of values of beta; with more values, the weights vary less and the error is
        smaller.
    runs : int
        The number of independent runs, at least two.
    rng : Generator, int or None

    Raises
    ------
    NotSupportedError
        Edges or factors have hard zeros, which would give most runs the weight zero.
    InfeasibleError
        A node has no allowed label.
    """
    begun = time.perf_counter()
    steps = positive_integer("steps", steps)
    runs = positive_integer("runs", runs, minimum=2)
    if model.has_hard_zeros:
        raise NotSupportedError(
            "ais needs finite scores of edges and factors; use infer('exact'), infer('bounds') "
            "or infer('trw')"
        )
    random = generator(rng)
    node = model.scores.node
    start = np.logaddexp.reduce(node, axis=1)
    if (start == -np.inf).any():
        raise infeasible()
    p = np.exp(node - start[:, None]).cumsum(axis=1)
    labels = (random.random((runs, len(node), 1)) * p[:, -1:] >= p).sum(axis=2)
    logs = np.zeros(runs)
    betas = np.linspace(0.0, 1.0, steps + 1)
    for low, high in pairwise(betas):
        logs += (high - low) * np.array([_interaction_score(model, y) for y in labels])
        warm = model.with_scores(node, high * model.scores.edge, high * model.factors.table)
        for row, key in zip(labels, new_keys(random, runs), strict=True):
            chain = Chain(warm, "chromatic", row, key)
            chain.advance(1)
            row[...] = chain.labels
    top = logs.max()
    weights = np.exp(logs - top)
    mean, error = jackknifed_log_mean(weights)
    share = weights / weights.sum()
    marginals, squares = np.zeros(node.shape), np.zeros(node.shape)
    for row, weight in zip(labels, share, strict=True):
        marginals[np.arange(len(node)), row] += weight
        squares[np.arange(len(node)), row] += weight**2
    effective = 1.0 / (share**2).sum()
    # the sum of share^2 ([y = c] - marginal)^2, and for labels in all or no runs that of two more
    variance = squares * (1 - 2 * marginals) + marginals**2 / effective
    shrunk = (marginals * effective + 1) / (effective + 2)
    variance = np.maximum(variance, shrunk * (1 - shrunk) / (effective + 2))
    free = node > -np.inf
    variance[~(free & (free.sum(axis=1) > 1)[:, None])] = 0.0
    return Annealed(
        "ais", float(start.sum() + top + mean + model.offset), "estimate", marginals,
        _no_edges, model.graph.num_edges, iterations=steps * runs,
        seconds=time.perf_counter() - begun,
        effective_samples=float(effective),
        log_partition_error=error, standard_error=np.sqrt(variance),
    )  # fmt: skip


def _interaction_score(model: ScoredGraph, y: IntArray) -> float:
    """Return the sum of the edge and factor scores of a labeling, in nats."""
    return model.score(y) - model.offset - float(model.scores.node[np.arange(len(y)), y].sum())


def _no_edges(low: int, high: int) -> FloatArray:
    raise NotSupportedError("ais does not count pairs; use infer('bp') or a sampler")
