"""The exact k best labelings of a random field."""

from collections.abc import Iterator
from heapq import heappop, heappush

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InfeasibleError
from fstgrad.mrf.exact.engine import exact
from fstgrad.mrf.scored_graph import ScoredGraph


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
            own = scores[before, labels[before]]
            rest[:i] = -np.inf
            rest[before, labels[before]] = own
            if (rest[i] > -np.inf).any():
                keep(rest, i)
