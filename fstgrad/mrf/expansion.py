"""Labelings with more than two labels by alpha-expansion (Boykov, Veksler and Zabih 2001).

In a move, every node keeps its label or changes it to alpha; the best move is a minimum cut.  For
Potts scores, the energy -s of the result is at most twice the least energy, if the least energy of
each term is subtracted from both.
"""

import numpy as np

from fstgrad.core.checks import IntArray, positive_integer
from fstgrad.core.errors import NotSupportedError
from fstgrad.mrf.graph_cut import graph_cut
from fstgrad.mrf.result import Decoded
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible


def alpha_expansion(model: ScoredGraph, *, max_iter: int = 20) -> Decoded:
    """Return a labeling that no expansion move improves; its gap is inf (no bound is computed).

    Parameters
    ----------
    max_iter : int
        The largest number of rounds over all labels.

    Raises
    ------
    NotSupportedError
        There are larger factors, or edges for which a move is not submodular: the costs d = -s must
        satisfy d(a, a) + d(b, c) <= d(b, a) + d(a, c), as in Potts models and for every metric.
    InfeasibleError
        A node has no allowed label.
    """
    max_iter = positive_integer("max_iter", max_iter)
    if model.factors.number:
        raise NotSupportedError(
            "expansion needs pairs, but the model has larger factors; use method 'max-product' or "
            "'icm'"
        )
    labels = model.scores.node.argmax(axis=1).astype(np.int64)
    if (model.scores.node.max(axis=1) == -np.inf).any():
        raise infeasible()
    score, converged = model.score(labels), False
    for _ in range(max_iter):
        before = score
        for alpha in range(model.num_labels):
            found = graph_cut(_move(model, labels, alpha))
            if found.score > score + 1e-12 * max(1.0, abs(score)):
                labels = np.where(found.labels == 1, alpha, labels)
                score = model.score(labels)
        converged = score == before
        if converged:
            break
    return Decoded("expansion", labels, score, float("inf"), converged)


def _move(model: ScoredGraph, labels: IntArray, alpha: int) -> ScoredGraph:
    """Return the binary model of a move: label 1 means alpha, label 0 the current label."""
    nodes, (left, right) = np.arange(len(labels)), labels[model.graph.edges].T
    node = np.stack((model.scores.node[nodes, labels], model.scores.node[:, alpha]), axis=1)
    stack = model.edge_stack
    e = np.arange(len(left)) if len(stack) > 1 else np.zeros(len(left), np.int64)
    moved = np.full_like(left, alpha)
    edge = np.stack(
        [stack[e, a, b] for a in (left, moved) for b in (right, moved)], axis=1
    ).reshape(-1, 2, 2)
    edge[(left == alpha), 1] = edge[(left == alpha), 0]  # here labels 0 and 1 both mean alpha
    edge[(right == alpha), :, 1] = edge[(right == alpha), :, 0]
    return ScoredGraph(model.graph, node, edge, offset=model.offset)
