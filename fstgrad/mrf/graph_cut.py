"""The best labeling of a binary submodular model, by a minimum cut.

With energies E = -s and x_i in {0, 1}, node i is on the source's side if x_i = 0.  An edge with
energies (A B; C D) gives the constant A, the node terms (C - A) x_i + (D - C) x_j and the arc
i -> j of capacity B + C - A - D >= 0 (Kolmogorov and Zabih 2004, theorem 4.1).  The value of the
flow certifies that the labeling is the best up to rounding.
"""

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import NotSupportedError
from fstgrad.core.uninitialized import empty
from fstgrad.mrf import kernels
from fstgrad.mrf.result import Decoded
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible


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
    residual, ends, constant = _network(model)
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


def _network(model: ScoredGraph) -> tuple[FloatArray, FloatArray, float]:
    """Return capacities (2E,) in the order of `Graph.network`, energies (I, 2) and a constant.

    ends[i, x] is the energy of x_i = x, with the unary parts of edges; the constant is the sum of
    the edge energies E(0, 0).
    """
    if model.num_labels != 2 or model.factors.number:
        has = f"{model.num_labels} labels" if model.num_labels != 2 else "larger factors"
        raise NotSupportedError(
            f"graph-cut needs two labels and pairs, but the model has {has}; use method 'exact', "
            "'max-product', 'expansion' or 'icm'"
        )
    graph, ends = model.graph, -model.scores.node
    residual = empty(len(graph.leaving))
    if not kernels.max_flow.capacities(graph.shape, model.edge_stack, residual, ends):
        raise NotSupportedError(
            "graph-cut needs submodular edges, s(0, 0) + s(1, 1) >= s(0, 1) + s(1, 0), and finite "
            "s(0, 0) and s(1, 1); use method 'exact', 'max-product' or 'icm'"
        )
    constant = -float(model.edge_stack[:, 0, 0].sum()) * (graph.num_edges if model.shared else 1)
    return residual, ends, constant
