"""The best labeling of a binary submodular model, by a minimum cut.

With energies E = -s and x_i in {0, 1}, node i is on the source's side where x_i = 0.  An edge with
energies (A B; C D) gives the node terms (C - A) x_i + (D - C) x_j and the arc i -> j of capacity
B + C - A - D >= 0 (Kolmogorov and Zabih 2004, theorem 4.1).  The value of the flow certifies how
far the labeling is from the best: rounding alone.
"""

import numpy as np

from fstgrad.checks import FloatArray
from fstgrad.errors import NotSupportedError
from fstgrad.mrf import kernels
from fstgrad.mrf.graph import Graph
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
    tree = np.empty(model.num_nodes, np.int8)
    graph = model.graph
    flow = kernels.max_flow.max_flow(graph.network, residual, terminal, tree)
    if flow == np.inf:
        raise infeasible()
    labels = np.where(tree == kernels.max_flow.SOURCE, 0, 1)
    score = model.score(labels)
    if score == -np.inf:
        raise infeasible()
    best = -(constant + float(lowest.sum()) + flow) + model.offset
    return Decoded("graph_cut", labels, score, max(0.0, best - score))


def _network(model: ScoredGraph) -> tuple[FloatArray, FloatArray, float]:
    """Return capacities (2E,) in the order of `Graph.network`, energies (I, 2) and a constant."""
    if model.num_labels != 2 or model.factors.number:
        has = f"{model.num_labels} labels" if model.num_labels != 2 else "larger factors"
        raise NotSupportedError(
            f"graph_cut needs two labels and pairs, the model has {has}; use method 'exact', "
            "'max_product', 'expansion' or 'icm'"
        )
    graph = model.graph
    a, b, c, d = -model.edge_stack.reshape(-1, 4).T
    if not (np.isfinite(a) & np.isfinite(d)).all() or (b + c < a + d - 1e-12).any():
        raise NotSupportedError(
            "graph_cut needs submodular edges, s(0, 0) + s(1, 1) >= s(0, 1) + s(1, 0), and finite "
            "s(0, 0) and s(1, 1); use method 'exact', 'max_product' or 'icm'"
        )
    # where c is infinite an arc j -> i forbids it, and any c that leaves b + c >= a + d will do
    middle = np.where(np.isfinite(c), c, np.maximum(a, a + d - b))
    capacity = np.maximum(b + middle - a - d, 0.0)
    # equal arcs both ways, where both are finite: less is left to flow from end to end
    half = np.where(np.isfinite(b) & np.isfinite(c), capacity / 2, 0.0)
    backward = np.where(np.isfinite(c), half, np.inf)
    ends = -model.scores.node
    ends[:, 1] += _scatter(graph, np.stack((middle - a - half, d - middle + half), axis=1))
    arcs = np.stack((capacity - half, backward), axis=1)
    constant = float(a.sum()) * (graph.num_edges if model.shared else 1)
    leaving = graph.leaving & 1 if len(arcs) == 1 else graph.leaving
    return arcs.ravel()[leaving], ends, constant


def _scatter(graph: Graph, values: FloatArray) -> FloatArray | float:
    """Return the sum at each node of values (K, 2) of the arcs that leave it, shared if K = 1."""
    if not values.any():
        return 0.0
    along = np.broadcast_to(values, (graph.num_edges, 2)).ravel()
    return np.asarray(np.bincount(graph.source, along, minlength=graph.num_nodes), np.float64)
