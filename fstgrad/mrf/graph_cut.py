"""The best labeling of a binary submodular model, by a minimum cut.

With energies E = -s and x_i in {0, 1}, node i is on the source's side where x_i = 0.  An edge with
energies (A B; C D) gives the node terms (C - A) x_i + (D - C) x_j and the arc i -> j of capacity
B + C - A - D >= 0 (Kolmogorov and Zabih 2004, theorem 4.1).  The value of the flow certifies how
far the labeling is from the best: rounding alone.
"""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.errors import NotSupportedError
from fstgrad.mrf import kernels
from fstgrad.mrf.result import Decoded
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible


def graph_cut(model: ScoredGraph) -> Decoded:
    """Return a labeling of the highest score; O(E) for each of the flow's paths.

    Raises
    ------
    NotSupportedError
        More than two labels, a factor over three or more nodes, or an edge that is not submodular:
        s(0, 0) + s(1, 1) < s(0, 1) + s(1, 0).
    """
    residual, ends, constant = _network(model)
    lowest = ends.min(axis=1)
    if (lowest == np.inf).any():
        raise infeasible()
    # the arc from the source is cut where x_i = 1, the arc to the sink where x_i = 0
    terminal = ends[:, 1] - ends[:, 0]
    tree = np.empty(model.num_nodes, np.int64)
    graph = model.graph
    flow = kernels.max_flow.max_flow(graph.network, residual[graph.leaving], terminal, tree)
    if flow == np.inf:
        raise infeasible()
    labels = np.where(tree == kernels.max_flow.SOURCE, 0, 1)
    score = model.score(labels)
    if score == -np.inf:
        raise infeasible()
    best = -(constant + float(lowest.sum()) + flow) + model.offset
    return Decoded("graph_cut", labels, score, max(0.0, best - score))


def _network(model: ScoredGraph) -> tuple[FloatArray, FloatArray, float]:
    """Return capacities (2E,) of the arcs, node energies (I, 2) and the constant energy."""
    if model.num_labels != 2 or model.factors.number:
        has = f"{model.num_labels} labels" if model.num_labels != 2 else "larger factors"
        raise NotSupportedError(
            f"graph_cut needs two labels and pairs, the model has {has}; take method 'exact', "
            "'max_product', 'expansion' or 'icm'"
        )
    nodes, edges = model.num_nodes, model.graph.edges
    energy = np.broadcast_to(-model.edge_stack, (len(edges), 2, 2))
    a, b, c, d = (energy[:, i, j] for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)))
    if not (np.isfinite(a) & np.isfinite(d)).all() or (b + c < a + d - 1e-12).any():
        raise NotSupportedError(
            "graph_cut needs submodular edges, s(0, 0) + s(1, 1) >= s(0, 1) + s(1, 0), and finite "
            "s(0, 0) and s(1, 1); take method 'exact', 'max_product' or 'icm'"
        )
    # where c is infinite an arc j -> i forbids it, and any c that leaves b + c >= a + d will do
    middle = np.where(np.isfinite(c), c, np.maximum(a, a + d - b))
    ends = -model.scores.node
    ends = ends + np.stack(
        (np.zeros(nodes), _scatter(nodes, edges, middle - a, d - middle)), axis=1
    )
    forward = np.maximum(b + middle - a - d, 0.0)
    backward = np.where(np.isfinite(c), 0.0, np.inf)
    return np.stack((forward, backward), axis=1).ravel(), ends, float(a.sum())


def _scatter(nodes: int, edges: IntArray, first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the sum at each node of `first` over its edges (i, .) and `second` over (., i)."""
    values = np.concatenate((first, second))
    return np.asarray(np.bincount(edges.T.ravel(), values, minlength=nodes), np.float64)
