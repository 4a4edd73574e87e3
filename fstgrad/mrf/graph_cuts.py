"""Labelings of high score by minimum cuts.

`graph_cut` finds the best labeling of a binary submodular model.  With energies E = -s and x_i in
{0, 1}, node i is on the source's side if x_i = 0.  An edge with energies (A B; C D) gives the
constant A, the node terms (C - A) x_i + (D - C) x_j and the arc i -> j of capacity
B + C - A - D >= 0 (Kolmogorov and Zabih 2004).  The value of the flow certifies that
the labeling is the best up to rounding.

`alpha_expansion` (Boykov, Veksler and Zabih 2001) is for more than two labels.  In a move, every
node keeps its label or changes it to alpha; the best move is a minimum cut.  For Potts scores, the
energy -s of the result is at most twice the least energy, if the least energy of each term is
subtracted from both.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray, positive_integer
from fstgrad.core.errors import NotSupportedError
from fstgrad.core.uninitialized import empty
from fstgrad.mrf import kernels
from fstgrad.mrf.result import Decoded
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible

OTHERS = "'exact', 'trw', 'max-product' or 'icm'"  # the decoders of all models


def graph_cut(model: ScoredGraph) -> Decoded:
    """Return a labeling of the highest score; its gap is 0 up to rounding.  O(E) per path of flow.

    Raises
    ------
    NotSupportedError
        The model does not have two labels, has a factor over three or more nodes, or has an edge
        that is not submodular, s(0, 0) + s(1, 1) < s(0, 1) + s(1, 0), or with s(0, 0) or s(1, 1) of
        -inf.
    InfeasibleError
        Every labeling is forbidden.
    """
    if model.num_labels != 2 or model.factors.number:
        has = f"{model.num_labels} labels" if model.num_labels != 2 else "larger factors"
        raise NotSupportedError(
            f"graph-cut needs two labels and pairs, but the model has {has}; use method "
            f"{_others(model)}"
        )
    return _minimum_cut(
        model,
        "graph-cut needs submodular edges, s(0, 0) + s(1, 1) >= s(0, 1) + s(1, 0), and finite "
        f"s(0, 0) and s(1, 1); use method {OTHERS}",
    )


def _others(model: ScoredGraph) -> str:
    """Return the names of methods that apply to a model to which `graph_cut` does not."""
    return OTHERS.replace("'trw'", "'expansion', 'trw'") if _is_metric(model) else OTHERS


def _is_metric(model: ScoredGraph) -> bool:
    """Return whether every move of `alpha_expansion` is submodular."""
    stack = model.edge_stack
    if model.factors.number or not np.isfinite(stack).all():
        return False
    return all(
        bool((stack[:, a, None, None, a] + stack >= stack[:, :, None, a] + stack[:, a, None]).all())
        for a in range(model.num_labels)
    )


def _minimum_cut(model: ScoredGraph, needs: str) -> Decoded:
    """Return the best labeling of two labels; NotSupportedError(needs) if it is not submodular."""
    residual, ends, constant = _network(model, needs)
    lowest = np.minimum(ends[:, 0], ends[:, 1])
    if (lowest == np.inf).any():
        raise infeasible()
    # the arc from the source is cut if x_i = 1, the arc to the sink if x_i = 0
    terminal = ends[:, 1] - ends[:, 0]
    tree = empty(model.num_nodes, np.int8)
    graph = model.graph
    flow = kernels.max_flow.max_flow(graph.network, residual, terminal, tree)
    if flow == np.inf:
        raise infeasible()
    labels = (tree != kernels.max_flow.SOURCE).astype(np.int64)
    score = model.score(labels)
    if score == -np.inf:
        raise infeasible()
    best = -(constant + float(lowest.sum()) + flow) + model.offset
    return Decoded("graph-cut", labels, score, max(0.0, best - score))


def _network(model: ScoredGraph, needs: str) -> tuple[FloatArray, FloatArray, float]:
    """Return capacities (2E,) in the order of `Graph.network`, energies (I, 2) and a constant.

    ends[i, x] is the energy of x_i = x, with the unary parts of edges; the constant is the sum of
    the edge energies E(0, 0).
    """
    graph, ends = model.graph, -model.scores.node
    residual = empty(len(graph.leaving))
    if not kernels.max_flow.capacities(graph.outgoing, model.edge_stack, residual, ends):
        raise NotSupportedError(needs)
    constant = -float(model.edge_stack[:, 0, 0].sum()) * (graph.num_edges if model.shared else 1)
    return residual, ends, constant


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
            f"expansion needs pairs, but the model has larger factors; use method {OTHERS}"
        )
    labels = model.scores.node.argmax(axis=1).astype(np.int64)
    if (model.scores.node.max(axis=1) == -np.inf).any():
        raise infeasible()
    score, converged = model.score(labels), False
    for _ in range(max_iter):
        before = score
        for alpha in range(model.num_labels):
            move = _minimum_cut(
                _move(model, labels, alpha),
                "expansion needs edges with s(a, a) + s(b, c) >= s(b, a) + s(a, c) for all labels, "
                f"as in Potts models, and finite s(a, a) and s(b, c); use method {OTHERS}",
            )
            if move.score > score + 1e-12 * max(1.0, abs(score)):
                labels = np.where(move.labels == 1, alpha, labels)
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
