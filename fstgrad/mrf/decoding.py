"""Labelings of high score (MAP), by name: `decode(model, method, **options)`.

- "exact" : max-product on forests, elimination on other graphs
- "max-product" : the best label of each node by loopy max-product, then improved node by node
- "icm" : iterated conditional modes (Besag 1986) from several starts
- "graph-cut" : a minimum cut, optimal, for two labels and submodular scores
- "expansion" : alpha-expansion moves by minimum cuts, for Potts and metric scores
- "trw" : sequential reweighted message passing: a labeling and a bound on its gap to the best score

`best_labelings` yields the k best labelings, exact.
"""

from collections.abc import Iterator
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray, Seed, generator, positive_integer
from fstgrad.core.errors import InfeasibleError
from fstgrad.mrf import kernels
from fstgrad.mrf.exact.engine import best_labeling, exact
from fstgrad.mrf.graph_cuts import alpha_expansion, graph_cut
from fstgrad.mrf.inference import Method, bound
from fstgrad.mrf.messages.belief_propagation import max_product
from fstgrad.mrf.result import Decoded
from fstgrad.mrf.sampling.chains import allowed_labels, random_labels
from fstgrad.mrf.scored_graph import ScoredGraph
from fstgrad.mrf.trw_s import tree_mode


def exact_mode(model: ScoredGraph, *, max_memory: int | None = None) -> Decoded:
    """Return a labeling of the highest score, exact.

    Parameters and errors as in `fstgrad.mrf.exact.engine.best_labeling`.
    """
    labels = best_labeling(model, max_memory)
    return Decoded("exact", labels, model.score(labels), 0.0)


def max_product_mode(
    model: ScoredGraph,
    *,
    max_iter: int = 200,
    tol: float = 1e-6,
    damping: float = 0.3,
    threads: int = 1,
) -> Decoded:
    """Return the labeling of max-product, improved node by node; exact on forests without ties.

    If the best labels of the nodes form a forbidden labeling, it is repaired as
    `fstgrad.mrf.sampling.chains.allowed_labels` does.  The gap is inf (no bound is computed).

    Parameters as in `fstgrad.mrf.messages.belief_propagation.max_product`.
    """
    marginals = max_product(model, max_iter=max_iter, tol=tol, damping=damping, threads=threads)
    best: IntArray = marginals.node.argmax(axis=1).astype(np.int64)
    labels = allowed_labels(model, best, generator(0)).copy()
    _improve(model, labels)
    return Decoded("max-product", labels, model.score(labels), float("inf"), marginals.converged)


def iterated_modes(
    model: ScoredGraph, *, restarts: int = 10, max_iter: int = 1000, rng: Seed = 0
) -> Decoded:
    """Return the best of several local optima, labelings that no change of one label improves.

    The gap is inf (no bound is computed).

    Parameters
    ----------
    restarts : int
        The number of starts.  The first one is the best label of each node by its node scores, if
        this labeling is allowed; the others are random.
    max_iter : int
        The largest number of sweeps from each start.
    rng : Generator, int or None
    """
    random = generator(rng)

    def from_start(number: int) -> Decoded:
        labels = model.scores.node.argmax(axis=1).astype(np.int64)
        if number > 0 or model.score(labels) == -np.inf:
            labels = random_labels(model, random)
        converged = _improve(model, labels, positive_integer("max_iter", max_iter))
        return Decoded("icm", labels, model.score(labels), float("inf"), converged)

    optima = map(from_start, range(positive_integer("restarts", restarts)))
    return max(optima, key=lambda decoded: decoded.score)


def _improve(model: ScoredGraph, labels: IntArray, max_iter: int = 1000) -> bool:
    """Improve `labels` (I,) in place, node by node; return whether a local optimum was reached."""
    return any(
        kernels.coordinate_ascent.improve(model.pieces, labels) == 0 for _ in range(max_iter)
    )


DECODERS: dict[str, Method[Decoded]] = {
    "exact": Method(exact_mode),
    "max-product": Method(max_product_mode),
    "icm": Method(iterated_modes),
    "graph-cut": Method(graph_cut),
    "expansion": Method(alpha_expansion),
    "trw": Method(tree_mode),
}


def decode(model: ScoredGraph, method: str = "exact", **options: Any) -> Decoded:
    """Return a labeling of high score; the options are those of the method's function.

    Raises InvalidInputError for an unknown method or option.
    """
    recentered, offset = model.recentered
    decoded = bound(DECODERS, method, options)(recentered)
    return decoded if recentered is model else replace(decoded, score=decoded.score + offset)


def best_labelings(model: ScoredGraph) -> Iterator[tuple[IntArray, float]]:
    """Yield labelings (I,) and their scores in nats, the highest score first.

    After each labeling, the remaining ones are split by the first node whose label differs from it,
    and the best labeling of each part is found: one search per node for each labeling.  Source:
    Lawler (1972), "A procedure for computing the K best solutions to discrete optimization
    problems".
    """
    nodes = np.arange(model.num_nodes)
    parts: list[tuple[float, int, IntArray, FloatArray, int]] = []
    number = 0

    def keep(scores: FloatArray, first: int) -> None:
        nonlocal number
        part = model.with_scores(scores, model.scores.edge)
        try:
            labels = exact(part).engine.mode()
        except InfeasibleError:
            return
        score = model.score(labels)
        if score > -np.inf:
            heappush(parts, (-score, number, labels, scores, first))
            number += 1

    keep(np.array(model.scores.node), 0)
    while parts:
        negative, _, labels, scores, first = heappop(parts)
        yield labels, -negative
        for i in range(first, model.num_nodes):
            rest = scores.copy()
            rest[i, labels[i]] = -np.inf
            before = nodes[:i]
            scores_before = scores[before, labels[before]]
            rest[:i] = -np.inf
            rest[before, labels[before]] = scores_before
            if (rest[i] > -np.inf).any():
                keep(rest, i)
