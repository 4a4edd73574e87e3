"""Spanning trees that cover a graph, and the upper bound on log Z that they give.

Split the score over T spanning forests, s = (1 / T) sum_t s_t, each edge in at least one of them:
log Z is convex in the scores, so

    log Z <= (1 / T) sum_t log Z_t                      (Wainwright, Jaakkola and Willsky 2005)

for every split, including that of messages which have not converged.  With the totals n_i and
messages m of tree-reweighted message passing, tree t has the node scores n_i and, on its edges, the
scores edge / rho - m(j -> i) - m(i -> j); their mean is the score of the model.

A larger factor is treated as a node whose label is a cell of its table.  It is in every tree, and
links without a score join it to its nodes; no table of a link is ever built.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.mrf import kernels
from fstgrad.mrf.arrays import Split
from fstgrad.mrf.budget import ENDLESS, Budget
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.scored_graph import ScoredGraph
from fstgrad.mrf.table import Table

LEAST_TREES = 16


class TreeBound(NamedTuple):
    """The bound of the trees for a model, without its constant.

    Attributes
    ----------
    value : float
        At least log Z, in nats.
    node : (I, C) float64
        At least the log of the sum over the labelings in which node i has label c.
    marginals : Table
        The gradient of `value` by the scores, for a fixed split.
    """

    value: float
    node: FloatArray
    marginals: Table


@dataclass(frozen=True, eq=False)
class TreeCover:
    """Spanning forests of a graph: `ScoredGraph.links` for a model with larger factors.

    Attributes
    ----------
    rho : (E,) float64
        The share of the forests that contain an edge.
    orders, parent_arcs : (T, I) int64
        Each forest from its roots down, and the arc into each node.
    """

    rho: FloatArray
    orders: IntArray
    parent_arcs: IntArray

    def log_bound(self, model: ScoredGraph, split: Split) -> float:
        """Return the value of `bound` alone, at a fraction of the cost."""
        top = split.node.max(axis=1, keepdims=True)
        weight = np.exp(split.node - top)
        trees = zip(self.orders, self.parent_arcs, strict=True)
        values = [_log_norm(model, split, weight, float(top.sum()), *tree) for tree in trees]
        return sum(values) / len(values)

    def bound(self, model: ScoredGraph, split: Split, budget: Budget = ENDLESS) -> TreeBound:
        """Return the bound of the scores of each tree, those of edges divided by rho.

        SpentError if the budget is spent before the last tree.
        """
        node, edge = np.zeros_like(split.node), np.zeros_like(split.potentials.edge)
        cells, upper = np.zeros_like(split.cells), np.zeros_like(split.node)
        value = 0.0
        for order, parent_arc in zip(self.orders, self.parent_arcs, strict=True):
            budget.check()
            value += kernels.factor_forests.add_tree(
                order, parent_arc, model.graph.source, model.factors, split, node, edge, cells,
                upper,
            )  # fmt: skip
        trees = len(self.orders)
        edge /= (trees * self.rho[: len(edge)])[:, None, None]
        return TreeBound(value / trees, upper / trees, Table(node / trees, edge, cells / trees))


def _log_norm(
    model: ScoredGraph, split: Split, weight: FloatArray, top: float, order: IntArray,
    parent_arc: IntArray,
) -> float:  # fmt: skip
    """Return log Z of one forest; `weight` (I, C) is exp(node score - maximum), their sum `top`."""
    source, size = model.graph.source, model.num_labels
    if model.factors.number == 0:
        value = kernels.forests.weigh_up(
            order, parent_arc, source, split.potentials, weight.copy(), np.empty(size)
        )
        if not np.isnan(value):
            return value + top
    messages = np.zeros((len(source), size))
    heard = np.zeros((len(model.factors.scope), size))
    return kernels.factor_forests.sweep_up(
        order, parent_arc, source, model.factors, split, split.node.copy(), messages, heard
    )


def tree_cover(graph: Graph) -> TreeCover:
    """Return forests in which all edges are used about equally often; the same object each time.

    Each is a spanning forest of the edges that were used the longest time ago.  There are at least
    16, and as many as are needed to cover every edge.  O(T E) for T forests, which is about E / I.
    """
    if "trees" not in graph.cache:
        graph.cache["trees"] = _cover(graph)
    found: TreeCover = graph.cache["trees"]
    return found


def spanning_tree_weights(graph: Graph) -> FloatArray:
    """Return edge appearance probabilities (E,) of a distribution over spanning forests."""
    return tree_cover(graph).rho


def _cover(graph: Graph) -> TreeCover:
    if graph.is_forest:
        order, parent_arc = graph.traversal
        return TreeCover(np.ones(graph.num_edges), order[None], parent_arc[None])
    rng = np.random.default_rng(0)
    used = np.zeros(graph.num_edges, np.int64)
    size = int(np.count_nonzero(graph.traversal[1] >= 0))
    queue, group = rng.permutation(graph.num_edges), np.empty(graph.num_nodes, np.int64)
    orders: list[IntArray] = []
    parent_arcs: list[IntArray] = []
    while len(orders) < LEAST_TREES or (used == 0).any():
        kernels.graphs.next_forest(graph.edges, size, queue, group)
        rng.shuffle(queue[-size:])
        kept = np.sort(queue[-size:])
        used[kept] += 1
        order, parent_arc = _traversal(graph, kept)
        orders.append(order)
        parent_arcs.append(parent_arc)
    return TreeCover(used / len(orders), np.array(orders), np.array(parent_arcs))


def _traversal(graph: Graph, kept: IntArray) -> tuple[IntArray, IntArray]:
    """Return the order of a forest of some edges and the arcs, of the whole graph, from parents."""
    order, parent_arc = Graph(graph.num_nodes, graph.edges[kept]).traversal
    inner = parent_arc >= 0
    parent_arc[inner] = 2 * kept[parent_arc[inner] >> 1] + (parent_arc[inner] & 1)
    return order, parent_arc
