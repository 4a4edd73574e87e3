"""Conditions a model on labels of some nodes and removes these nodes."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.mrf import kernels
from fstgrad.mrf.arrays import Factors
from fstgrad.mrf.factors import PADDED_CELLS
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.scored_graph import ScoredGraph, Table


class ReducedGraph(NamedTuple):
    """What remains of the graph and of the larger factors.

    Attributes
    ----------
    graph : Graph
        The graph of the free nodes, in their order.
    inside : int64
        The edges of the full graph between free nodes; they are the first edges of `graph`.
    larger : list of int
        The factors that stay factors: those with three or more free nodes; also those with two, if
        edge tables would need too much memory.
    pairs : list of (factor, edge, flip)
        Factors with two free nodes, the edge of `graph` to which each is added, and whether the
        edge has the two nodes in reverse order.
    reduced : list of int
        Factors with one free node or none.
    """

    graph: Graph
    inside: IntArray
    larger: list[int]
    pairs: list[tuple[int, int, bool]]
    reduced: list[int]


@dataclass(frozen=True, eq=False)
class Clamped:
    """A model given the labels of some of its nodes.

    Attributes
    ----------
    full : ScoredGraph
        The model without labels given.
    labels : (I,) int64
        The fixed labels, -1 for free nodes.
    rest : ScoredGraph or None
        The model of the free nodes, including their edges and factors with fixed nodes; None if
        there are no free nodes.
    value : float
        The score of the fixed nodes and of the edges and factors between them, in nats, without the
        offset.
    remains : ReducedGraph
    """

    full: ScoredGraph
    labels: IntArray
    rest: ScoredGraph | None
    value: float
    remains: ReducedGraph

    @property
    def free(self) -> IntArray:
        """The nodes without a fixed label, ascending."""
        return np.flatnonzero(self.labels < 0)

    def expand(self, rows: FloatArray, missing: float, given: float) -> FloatArray:
        """Return rows (free nodes, C) as (I, C).

        The row of a fixed node is `given` at its label and `missing` at all others.
        """
        out = np.full(self.full.scores.node.shape, missing)
        known = np.flatnonzero(self.labels >= 0)
        out[known, self.labels[known]] = given
        out[self.free] = rows
        return out

    def table(self, marginals: Table | None) -> Table:
        """Return marginals of `rest` as those of the full model; None if all nodes are fixed."""
        size, edges = self.full.num_labels, self.full.graph.edges
        none = np.zeros((0, size))
        node = self.expand(none if marginals is None else marginals.node, 0.0, 1.0)
        # with a fixed node at one end, the marginals of an edge are a product
        edge = node[edges[:, 0]][:, :, None] * node[edges[:, 1]][:, None, :]
        if marginals is not None:
            edge[self.remains.inside] = marginals.edge[: len(self.remains.inside)]
        return Table(node, edge, self._cells(node, marginals))

    def _cells(self, node: FloatArray, marginals: Table | None) -> FloatArray:
        """Return the marginals (cells,) of the larger factors of the full model."""
        factors, rest = self.full.factors, self.rest
        out = np.zeros(len(factors.table))
        if marginals is None or rest is None or len(out) == 0:
            kernels.coordinate_ascent.factor_products(factors, node, out)
            return out
        for f in self.remains.reduced:
            left = [v for v in factors.nodes(f) if self.labels[v] < 0]
            cells = slice_of(factors, f, self.labels, out)
            cells[...] = node[left[0], : len(cells)] if left else 1.0
        for f, edge, flip in self.remains.pairs:
            cells = slice_of(factors, f, self.labels, out)
            table = marginals.edge[edge].T if flip else marginals.edge[edge]
            cells[...] = table[: cells.shape[0], : cells.shape[1]]
        for number, f in enumerate(self.remains.larger):
            slice_of(factors, f, self.labels, out)[...] = rest.factors.view(
                number, marginals.factors
            )
        return out


def slice_of(
    factors: Factors, f: int, labels: IntArray, values: FloatArray | None = None
) -> FloatArray:
    """Return a view of the cells of factor f that agree with `labels` (I,), -1 for any label.

    values : (cells,), by default the log-tables.
    """
    index = [slice(None) if labels[v] < 0 else int(labels[v]) for v in factors.nodes(f)]
    return np.asarray(factors.view(f, values)[(*index, ...)])


def clamp(full: ScoredGraph, labels: IntArray) -> Clamped:
    """Return a model given some labels (I,), -1 for free nodes.

    Models with the same free nodes share a graph and its plans.  Larger factors keep the cells that
    agree with the labels; a factor with two free nodes becomes an edge, or is added to one.
    """
    free = labels < 0
    remains = _remains(full, free)
    edges, table, factors = full.graph.edges, full.edge_stack, full.factors
    node = full.scores.node.copy()
    number = np.arange(len(edges)) if len(table) > 1 else np.zeros(len(edges), np.int64)
    a, b = edges.T
    value = float(full.scores.node[~free, labels[~free]].sum())
    both = ~free[a] & ~free[b]
    value += float(table[number[both], labels[a[both]], labels[b[both]]].sum())
    first = ~free[a] & free[b]
    np.add.at(node, b[first], table[number[first], labels[a[first]], :])
    second = free[a] & ~free[b]
    np.add.at(node, a[second], table[number[second], :, labels[b[second]]])
    for f in remains.reduced:
        left = [v for v in factors.nodes(f) if free[v]]
        scores = slice_of(factors, f, labels)
        if left:
            node[left[0], : len(scores)] += scores
        else:
            value += float(scores)
    if not free.any():
        return Clamped(full, labels, None, value, remains)
    tables = full.scores.edge if full.shared else table[remains.inside]
    if remains.pairs:
        tables = np.zeros((remains.graph.num_edges, *table.shape[1:]))
        tables[: len(remains.inside)] = table[number[remains.inside]]
        for f, edge, flip in remains.pairs:
            scores = slice_of(factors, f, labels)
            scores = scores.T if flip else scores
            tables[edge, : scores.shape[0], : scores.shape[1]] += scores
    place = np.cumsum(free) - 1
    packed = [
        ([int(place[v]) for v in factors.nodes(f) if free[v]], slice_of(factors, f, labels))
        for f in remains.larger
    ]
    larger = Factors.pack(int(free.sum()), packed)
    rest = ScoredGraph(
        remains.graph, node[free], tables, full.labels_per_node[free], factors=larger
    )
    return Clamped(full, labels, rest, value, remains)


def _remains(full: ScoredGraph, free: BoolArray) -> ReducedGraph:
    """Return what remains if the nodes `free` (I,) are free; cached in `full.graph.cache`."""
    factors, edges = full.factors, full.graph.edges
    if free.all():
        every = list(range(factors.number))
        return ReducedGraph(full.graph, np.arange(len(edges)), every, [], [])
    known = full.graph.cache.setdefault("remains", {})
    key = free.tobytes()
    if key not in known:
        known[key] = _new_remains(full, free)
    cached: ReducedGraph = known[key]
    return cached


def _new_remains(full: ScoredGraph, free: BoolArray) -> ReducedGraph:
    factors, edges = full.factors, full.graph.edges
    inside = np.flatnonzero(free[edges].all(axis=1))
    place = np.cumsum(free) - 1
    pairs_left = place[edges[inside]]
    left = np.bincount(factors.owner, free[factors.scope], minlength=factors.number)
    two = np.flatnonzero(left == 2)
    reduced = np.flatnonzero(left < 2).tolist()
    if (len(inside) + len(two)) * full.num_labels**2 > PADDED_CELLS:
        two = two[:0]
    larger = np.setdiff1d(np.flatnonzero(left >= 2), two).tolist()
    numbers = {(a, b): e for e, (a, b) in enumerate(pairs_left.tolist())} if len(two) else {}
    pairs = []
    for f in two.tolist():
        a, b = (int(place[v]) for v in factors.nodes(f) if free[v])
        flip = (b, a) in numbers
        pairs.append((f, numbers.setdefault((b, a) if flip else (a, b), len(numbers)), flip))
    if pairs:
        pairs_left = np.array(list(numbers), np.int64)
    return ReducedGraph(
        Graph(int(free.sum()), np.ascontiguousarray(pairs_left)), inside, larger, pairs, reduced
    )
