"""The best labeling of a binary submodular model, by a minimum cut.

With energies E = -s and x_i in {0, 1}, node i is on the source's side where x_i = 0.  An edge with
energies (A B; C D) gives the node terms (C - A) x_i + (D - C) x_j and the arc i -> j of capacity
B + C - A - D >= 0 (Kolmogorov and Zabih 2004, theorem 4.1).

scipy's maximum flow takes 32-bit integers.  Capacities are scaled and rounded down, so its flow is
a flow of the true network too, and its value certifies how far the labeling is from the best.
"""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.errors import NotSupportedError
from fstgrad.mrf.result import Decoded
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible

LARGEST = 2**30


def graph_cut(model: ScoredGraph) -> Decoded:
    """Return a labeling of the highest score, its gap bounded by the rounding of the flow.

    Raises
    ------
    NotSupportedError
        More than two labels, or an edge that is not submodular:
        s(0, 0) + s(1, 1) < s(0, 1) + s(1, 0).
    """
    arcs, capacity, constant = _network(model)
    finite = capacity[np.isfinite(capacity)]
    # an infinite capacity: more than all finite ones together
    capacity = np.where(np.isfinite(capacity), capacity, finite.sum() + 1.0)
    scale = LARGEST / max(float(capacity.max(initial=0.0)), 1e-300)
    labels, flow = _cut(model.num_nodes, arcs, np.floor(capacity * scale))
    score = model.score(labels)
    if score == -np.inf:
        raise infeasible()
    lower_energy = constant + flow / scale
    return Decoded("graph_cut", labels, score, max(0.0, -lower_energy + model.offset - score))


def _network(model: ScoredGraph) -> tuple[IntArray, FloatArray, float]:
    """Return arcs (n, 2), capacities >= 0 and the constant energy; source I, sink I + 1."""
    if model.num_labels != 2:
        raise NotSupportedError(
            f"graph_cut needs two labels, the model has {model.num_labels}; take method 'exact', "
            "'max_product' or 'icm'"
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
    lowest = ends.min(axis=1)
    if (lowest == np.inf).any():
        raise infeasible()
    arcs = np.concatenate(
        (
            np.stack((edges[:, 0], edges[:, 1]), axis=1),
            np.stack((edges[:, 1], edges[:, 0]), axis=1),
            np.stack((np.full(nodes, nodes), np.arange(nodes)), axis=1),  # cut where x_i = 1
            np.stack((np.arange(nodes), np.full(nodes, nodes + 1)), axis=1),  # cut where x_i = 0
        )
    )
    forward = np.maximum(b + middle - a - d, 0.0)
    backward = np.where(np.isfinite(c), 0.0, np.inf)
    capacity = np.concatenate((forward, backward, ends[:, 1] - lowest, ends[:, 0] - lowest))
    return arcs, capacity, float(lowest.sum() + a.sum())


def _scatter(nodes: int, edges: IntArray, first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the sum at each node of `first` over its edges (i, .) and `second` over (., i)."""
    values = np.concatenate((first, second))
    return np.asarray(np.bincount(edges.T.ravel(), values, minlength=nodes), np.float64)


def _cut(nodes: int, arcs: IntArray, capacity: FloatArray) -> tuple[IntArray, int]:
    """Return labels (0 on the source's side of a minimum cut) and the flow's value."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    shape = (nodes + 2, nodes + 2)
    network = csr_array((capacity.astype(np.int32), arcs.T), shape=shape)
    result = maximum_flow(network, nodes, nodes + 1)
    residual = network - result.flow
    residual.eliminate_zeros()
    reached = breadth_first_order(residual, nodes, return_predecessors=False)
    labels = np.ones(nodes + 2, np.int64)
    labels[reached] = 0
    return labels[:nodes], int(result.flow_value)
