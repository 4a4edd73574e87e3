"""Training losses of a Markov random field, each with its gradient in the scores.

    value, gradient = nll(model, gold, method, **options)

- "exact" : -log p(gold); gradient = marginals - gold (the model-marginals theorem).
- "bp", "trw", "mean_field" : the same with an estimate or bound of log Z and its marginals.
- "pseudolikelihood" : -sum_i log P(gold_i | gold elsewhere), with its exact gradient.
- "cd" : contrastive divergence: k sweeps of a chain from gold (or persistent chains).
- "cd1" : one Gibbs draw at one random node, times the number of nodes: the expectation of its
  gradient is the gradient of the pseudolikelihood.

The gradient is a `Table`; for shared edge scores its edge part is (C, C), summed over the edges.

Source: D. McAllester, TTIC 31230 (2019), "Approximate Algorithms for Exponential Softmax
Backpropagation"; Besag (1975); Hinton (2002); Tieleman (2008) for persistent chains.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.checks import FloatArray, IntArray, Seed, generator, one_of, positive_integer
from fstgrad.errors import InvalidInputError
from fstgrad.mrf.exact.engine import exact
from fstgrad.mrf.method import Method, bound
from fstgrad.mrf.methods import METHODS
from fstgrad.mrf.sampling.chains import Chain, Sampler, refuse_joint_nodes, start_labels
from fstgrad.mrf.scored_graph import ScoredGraph
from fstgrad.mrf.table import Table


def counts(model: ScoredGraph, labels: IntArray, weight: float, out: Table | None = None) -> Table:
    """Add weight times the parts of a labeling to a table like the model's scores."""
    from fstgrad.mrf.kernels.sites import count_parts

    if out is None:
        out = Table(np.zeros(model.scores.node.shape), np.zeros(model.scores.edge.shape))
    count_parts(labels, model.graph.edges, weight, out.node, _stack(out.edge))
    return out


def _stack(edge: FloatArray) -> FloatArray:
    """Return (C, C) as (1, C, C)."""
    return edge[None] if edge.ndim == 2 else edge


def exact_nll(model: ScoredGraph, gold: IntArray) -> tuple[float, Table]:
    """Return -log p(gold) and its gradient."""
    found = exact(model)
    return found.log_partition - model.score(gold), _less_gold(model, gold, found.marginals)


def _less_gold(model: ScoredGraph, gold: IntArray, marginals: Table) -> Table:
    """Return marginals - gold, the edges summed where they share their scores."""
    gradient = counts(model, gold, -1.0)
    gradient.node[...] += marginals.node
    gradient.edge[...] += marginals.edge.sum(axis=0) if model.shared else marginals.edge
    return gradient


def pseudolikelihood(model: ScoredGraph, gold: IntArray) -> tuple[float, Table]:
    """Return -sum_i log P(gold_i | gold elsewhere) and its gradient, O(E C).

    +inf, with the gradient undefined, where gold is forbidden.
    """
    from fstgrad.mrf.kernels.sites import pseudolikelihood as kernel

    refuse_joint_nodes(model, "pseudolikelihood")
    graph = model.graph
    gradient = Table(np.zeros(model.scores.node.shape), np.zeros(model.scores.edge.shape))
    value = kernel(
        graph.start, graph.leaving, graph.source, model.scores.node, model.edge_stack, gold,
        gradient.node, _stack(gradient.edge),
    )  # fmt: skip
    return float(value), gradient


class PersistentChains:
    """Chains that go on from one gradient step to the next (persistent contrastive divergence).

    Parameters
    ----------
    model : ScoredGraph
        Of the graph and label counts that all later models have.
    chains : int
    rng : Generator, int or None
    """

    def __init__(self, model: ScoredGraph, chains: int = 10, rng: Seed = None) -> None:
        random = generator(rng)
        count = positive_integer("chains", chains)
        self.labels = np.stack([start_labels(model, random) for _ in range(count)])
        self.rng = random


def contrastive_divergence(
    model: ScoredGraph,
    gold: IntArray,
    *,
    k: int = 1,
    sampler: Sampler = "chromatic",
    chains: int = 1,
    persistent: PersistentChains | None = None,
    rng: Seed = None,
    threads: int = 1,
) -> tuple[float, Table]:
    """Return the energy gap and the contrastive-divergence gradient.

    Chains start at gold, or where `persistent` left them, and make k sweeps.  With their ends y~,

        value = mean s(y~) - s(gold),    gradient = mean t(y~) - t(gold);

    the value is no likelihood: CD follows the gradient of no function of the scores.

    Parameters
    ----------
    k : int
        Sweeps.
    sampler : "gibbs", "chromatic", "blocked" or "metropolis"
    chains : int
        Ends to average where they are not persistent.
    persistent : PersistentChains, optional
        Is moved on.
    rng : Generator, int or None
        Where the chains are not persistent; those bring their own.
    """
    positive_integer("k", k)
    positive_integer("chains", chains)
    if persistent is None:
        starts, random = np.repeat(gold[None], chains, axis=0), generator(rng)
    else:
        starts, random = persistent.labels, persistent.rng
        if starts.shape[1] != model.num_nodes:
            raise InvalidInputError(
                f"persistent has chains of {starts.shape[1]} nodes, the model has "
                f"{model.num_nodes}; make the chains from a model of this graph"
            )
    gradient = counts(model, gold, -1.0)
    value = -model.score(gold)
    for row, key in zip(starts, random.integers(2**62, size=len(starts)).tolist(), strict=True):
        chain = Chain(model, sampler, row, key, threads)
        chain.advance(k)
        row[...] = chain.labels
        counts(model, chain.labels, 1.0 / len(starts), gradient)
        value += model.score(chain.labels) / len(starts)
    return value, gradient


def one_site_divergence(
    model: ScoredGraph, gold: IntArray, *, rng: Seed = None
) -> tuple[float, Table]:
    """Return the energy gap and gradient of one Gibbs draw at one random node, times I.

    The slides' Gibbs CD(1).  The node is uniform, so the expectation of I (t(y~) - t(gold)) is
    sum_i (E[t(y) | y_j = gold_j for j != i] - t(gold)), the pseudolikelihood gradient.
    """
    from fstgrad.mrf.kernels.sites import gibbs_sites

    refuse_joint_nodes(model, "cd1")
    graph, random = model.graph, generator(rng)
    site = random.integers(model.num_nodes, size=1)
    labels = gold.copy()
    gibbs_sites(
        0, 1, site, int(random.integers(2**62)), 0, graph.start, graph.leaving, graph.source,
        model.scores.node, model.edge_stack, labels,
    )  # fmt: skip
    gradient = counts(model, gold, -float(model.num_nodes))
    counts(model, labels, float(model.num_nodes), gradient)
    return model.num_nodes * (model.score(labels) - model.score(gold)), gradient


LOSSES: dict[str, Method[tuple[float, Table]]] = {
    "exact": Method(exact_nll),
    "pseudolikelihood": Method(pseudolikelihood),
    "cd": Method(contrastive_divergence),
    "cd1": Method(one_site_divergence),
}
ESTIMATES = {name: METHODS[name] for name in ("bp", "trw", "mean_field")}


def nll(
    model: ScoredGraph, gold: npt.ArrayLike, method: str, **options: Any
) -> tuple[float, Table]:
    """Return a loss and its gradient: see the list above."""
    one_of("method", method, [*LOSSES, *ESTIMATES])
    if method in LOSSES:
        function = bound(LOSSES, method, options)
        return function(model, model.labeling(gold, "gold"))
    estimate = bound(ESTIMATES, method, options)
    labels = model.labeling(gold, "gold")
    found = estimate(model)
    gradient = counts(model, labels, -1.0)
    gradient.node[...] += found.node
    gradient.edge[...] += found.edge_sum if model.shared else found.edge
    return found.log_partition - model.score(labels), gradient
