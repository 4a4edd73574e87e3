"""Spanning trees that cover a graph, and the upper bound on log Z that they give.

Split the score over T spanning forests, s = (1 / T) sum_t s_t, each edge in at least one of them:
log Z is convex in the scores, so

    log Z <= (1 / T) sum_t log Z_t                      (Wainwright, Jaakkola and Willsky 2005)

for every split, also for messages that have not converged.  With the totals n_i and messages m of
tree-reweighted message passing, each tree has the node scores n_i and, on its edges, the scores
edge / rho - m(j -> i) - m(i -> j).  The mean over the trees is the score of the model.

A larger factor is treated as a node whose label is a cell of its table.  It is in every tree, and
is joined to its nodes by links with score 0; no table of a link is ever built.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.uninitialized import empty
from fstgrad.mrf import kernels
from fstgrad.mrf.arrays import ForestScores
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.resources import NO_LIMIT, Budget
from fstgrad.mrf.scored_graph import ScoredGraph, Table

LEAST_TREES = 16


class TreeBound(NamedTuple):
    """The upper bound on log Z from spanning trees, without the model's constant.

    Attributes
    ----------
    value : float
        At least log Z, in nats.
    node : (I, C) float64
        At least the log of the sum over the labelings in which node i has label c.
    marginals : Table
        The gradient of `value` by the scores, for a fixed split; edge part (E, C, C).
    """

    value: float
    node: FloatArray
    marginals: Table


@dataclass(frozen=True, eq=False)
class TreeCover:
    """T spanning forests of a graph; for a model with larger factors, of `ScoredGraph.links`.

    Attributes
    ----------
    rho : (E,) float64
        The edge appearance probabilities: the share of the forests that contain each edge, > 0.
    orders, parent_arcs : (T, I) int64
        The nodes of each forest, parents before children, and the arc from the parent into each
        node, -1 for a root.
    """

    rho: FloatArray
    orders: IntArray
    parent_arcs: IntArray

    def log_bound(self, model: ScoredGraph, forest: ForestScores) -> float:
        """Return the value of `bound` (nats) without marginals, at a fraction of the cost."""
        top = forest.node.max(axis=1, keepdims=True)
        weight = np.exp(forest.node - top)
        trees = zip(self.orders, self.parent_arcs, strict=True)
        values = [_log_norm(model, forest, weight, float(top.sum()), *tree) for tree in trees]
        return sum(values) / len(values)

    def bound(
        self, model: ScoredGraph, forest: ForestScores, budget: Budget = NO_LIMIT
    ) -> TreeBound:
        """Return the mean over the trees of log Z, with its marginals.

        forest : the scores of every tree; those of edges are already divided by rho.
        Raises SpentError if the budget is spent before the last tree.
        """
        node, edge = np.zeros_like(forest.node), np.zeros_like(forest.potentials.edge)
        cells, upper = np.zeros_like(forest.cells), np.zeros_like(forest.node)
        value = 0.0
        for order, parent_arc in zip(self.orders, self.parent_arcs, strict=True):
            budget.check()
            value += kernels.factor_forests.add_tree(
                order, parent_arc, model.graph.source, model.factors, forest, node, edge, cells,
                upper,
            )  # fmt: skip
        trees = len(self.orders)
        edge /= (trees * self.rho[: len(edge)])[:, None, None]
        return TreeBound(value / trees, upper / trees, Table(node / trees, edge, cells / trees))


def _log_norm(
    model: ScoredGraph, forest: ForestScores, weight: FloatArray, top: float, order: IntArray,
    parent_arc: IntArray,
) -> float:  # fmt: skip
    """Return log Z of one forest, in nats.

    weight : (I, C), exp(node score - maximum of the node).  top : the sum of these maxima.
    """
    source, size = model.graph.source, model.num_labels
    if model.factors.number == 0:
        value = kernels.forests.partition_from_weights(
            order, parent_arc, source, forest.potentials, weight.copy(), empty(size)
        )
        if not np.isnan(value):
            return value + top
    messages = np.zeros((len(source), size))
    link_messages = np.zeros((len(model.factors.scope), size))
    return kernels.factor_forests.sweep_up(
        order,
        parent_arc,
        source,
        model.factors,
        forest,
        forest.node.copy(),
        messages,
        link_messages,
    )


def tree_cover(graph: Graph) -> TreeCover:
    """Return forests that use all edges about equally often; cached in `graph.cache`.

    Each forest prefers the edges that were used longest ago.  There are T >= 16 forests, as many as
    are needed to cover every edge (about E / I).  O(T E).  A graph that is a forest needs one.
    """
    if "trees" not in graph.cache:
        graph.cache["trees"] = _cover(graph)
    cached: TreeCover = graph.cache["trees"]
    return cached


def _cover(graph: Graph) -> TreeCover:
    if graph.is_forest:
        order, parent_arc = graph.traversal
        return TreeCover(np.ones(graph.num_edges), order[None], parent_arc[None])
    rng = np.random.default_rng(0)
    used = np.zeros(graph.num_edges, np.int64)
    size = int(np.count_nonzero(graph.traversal[1] >= 0))
    queue, group = rng.permutation(graph.num_edges), empty(graph.num_nodes, np.int64)
    orders: list[IntArray] = []
    parent_arcs: list[IntArray] = []
    while len(orders) < LEAST_TREES or (used == 0).any():
        kernels.graphs.next_forest(graph.edges, size, queue, group)
        rng.shuffle(queue[-size:])
        chosen = np.sort(queue[-size:])
        used[chosen] += 1
        order, parent_arc = _traversal(graph, chosen)
        orders.append(order)
        parent_arcs.append(parent_arc)
    return TreeCover(used / len(orders), np.array(orders), np.array(parent_arcs))


def _traversal(graph: Graph, chosen: IntArray) -> tuple[IntArray, IntArray]:
    """Return the traversal of the forest of the edges `chosen`; arcs are numbered as in `graph`."""
    order, parent_arc = Graph(graph.num_nodes, graph.edges[chosen]).traversal
    inner = parent_arc >= 0
    parent_arc[inner] = 2 * chosen[parent_arc[inner] >> 1] + (parent_arc[inner] & 1)
    return order, parent_arc
