"""Models in which some nodes have been given their labels and are gone."""

from dataclasses import dataclass

import numpy as np

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.scored_graph import ScoredGraph
from fstgrad.mrf.table import Table


@dataclass(frozen=True, eq=False)
class Clamped:
    """A pairwise model given the labels of some of its nodes.

    Attributes
    ----------
    whole : ScoredGraph
    labels : (I,) int64
        The labels that are given, -1 elsewhere.
    rest : ScoredGraph or None
        The model of the other nodes, the scores of the given ones folded in; None for no node.
    value : float
        The score of what is given alone, in nats.
    """

    whole: ScoredGraph
    labels: IntArray
    rest: ScoredGraph | None
    value: float

    @property
    def free(self) -> IntArray:
        """The nodes without a label."""
        return np.flatnonzero(self.labels < 0)

    def expand(self, rows: FloatArray, missing: float, given: float) -> FloatArray:
        """Return rows (free, C) as (I, C): `given` at the labels that are given, else `missing`."""
        out = np.full(self.whole.scores.node.shape, missing)
        known = np.flatnonzero(self.labels >= 0)
        out[known, self.labels[known]] = given
        out[self.free] = rows
        return out

    def table(self, marginals: Table | None) -> Table:
        """Return marginals of the rest as marginals of the whole."""
        size, edges = self.whole.num_labels, self.whole.graph.edges
        none = np.empty((0, size))
        node = self.expand(none if marginals is None else marginals.node, 0.0, 1.0)
        # an edge to a node with a given label: its marginals are a product
        edge = node[edges[:, 0]][:, :, None] * node[edges[:, 1]][:, None, :]
        if marginals is not None:
            edge[_inside(self.labels, edges)] = marginals.edge
        return Table(node, edge)


def clamp(whole: ScoredGraph, labels: IntArray) -> Clamped:
    """Return a pairwise model given some labels, -1 for the others.

    Models with the same nodes left share their graph, and what is planned for it.
    """
    free = labels < 0
    edges, table = whole.graph.edges, whole.edge_stack
    node = whole.scores.node.copy()
    number = np.arange(len(edges)) if len(table) > 1 else np.zeros(len(edges), np.int64)
    a, b = edges.T
    value = float(whole.scores.node[~free, labels[~free]].sum())
    both = ~free[a] & ~free[b]
    value += float(table[number[both], labels[a[both]], labels[b[both]]].sum())
    first = ~free[a] & free[b]
    np.add.at(node, b[first], table[number[first], labels[a[first]], :])
    second = free[a] & ~free[b]
    np.add.at(node, a[second], table[number[second], :, labels[b[second]]])
    if not free.any():
        return Clamped(whole, labels, None, value)
    inside = _inside(labels, edges)
    graph = _subgraph(whole.graph, free, inside)
    own = whole.scores.edge if whole.shared else table[inside]
    rest = ScoredGraph(graph, node[free], own, whole.labels_per_node[free])
    return Clamped(whole, labels, rest, value)


def _inside(labels: IntArray, edges: IntArray) -> IntArray:
    """Return the edges between two nodes without a label."""
    return np.flatnonzero((labels[edges] < 0).all(axis=1))


def _subgraph(graph: Graph, free: BoolArray, inside: IntArray) -> Graph:
    if free.all():
        return graph
    kept = graph.cache.setdefault("subgraphs", {})
    key = free.tobytes()
    if key not in kept:
        number = np.cumsum(free) - 1
        kept[key] = Graph(int(free.sum()), np.ascontiguousarray(number[graph.edges[inside]]))
    found: Graph = kept[key]
    return found
