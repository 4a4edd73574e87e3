"""The data of a model: a graph and its score tables, and their form for kernels."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    index,
    index_array,
    instance,
    integers,
    log_weights,
    optional,
    score_array,
)
from fstgrad.core.distribution import offsets
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.mrf.arrays import Factors, ModelScores, Potentials
from fstgrad.mrf.graph import Graph

NO_FACTORS = np.zeros(0)
NO_FACTORS.flags.writeable = False


class _Pair(NamedTuple):
    node: FloatArray
    edge: FloatArray


class Table(_Pair):
    """Scores, marginals, parts or gradients of a model; unpacks as (node, edge).

    Attributes
    ----------
    node : (I, C) float64
        One entry for each node and label.
    edge : (E, C, C) float64, or (C, C) if all edges share their scores
        `edge[e, c, d]` is for label c at `edges[e, 0]` and label d at `edges[e, 1]`.
    factors : (cells,) float64
        One entry for each cell of each larger factor, as in `model.factors.table`; empty if there
        are none.
    """

    factors: FloatArray

    def __repr__(self) -> str:
        return short_repr(self)

    def __new__(
        cls, node: FloatArray, edge: FloatArray, factors: FloatArray = NO_FACTORS
    ) -> "Table":
        """Return the table of three arrays."""
        self = super().__new__(cls, node, edge)
        self.factors = factors
        return self


Scored = TypeVar("Scored", bound="ScoredGraph")


class ScoredGraph:
    """A graph with scores of its nodes, edges and larger factors, the input of all methods.

    Parameters
    ----------
    graph : Graph
    node_scores : (I, C) float64
        Log-weights in nats; -inf forbids a label.
    edge_scores : (E, C, C) float64, or (C, C) for a table that all edges share
        Log-weights in nats.
    labels_per_node : (I,) integers, optional
        Node i has the labels 0 .. labels_per_node[i] - 1; by default all C.
    offset : float
        A constant of the score, in nats.
    factors : Factors, optional
        Tables over more than two nodes.

    Raises
    ------
    InvalidInputError
        Shapes do not match, there is no node or no label, or a score is NaN or +inf.
    """

    def __init__(
        self,
        graph: Graph,
        node_scores: npt.ArrayLike,
        edge_scores: npt.ArrayLike,
        labels_per_node: npt.ArrayLike | None = None,
        offset: float = 0.0,
        factors: Factors | None = None,
    ) -> None:
        instance("graph", graph, Graph, "a Graph")
        node = np.array(log_weights("node_scores", node_scores, (graph.num_nodes, None)), order="C")
        nodes, size = node.shape
        if nodes == 0 or size == 0:
            raise InvalidInputError(
                f"node_scores has shape {node.shape}; give at least one node and one label"
            )
        edge_scores = score_array("edge_scores", edge_scores)
        per_edge = edge_scores.ndim != 2
        shape = (graph.num_edges, size, size) if per_edge else (size, size)
        if per_edge and graph.num_edges == 0 and edge_scores.size == 0:
            edge_scores = np.zeros(shape)
        edge = np.array(log_weights("edge_scores", edge_scores, shape), order="C")
        if labels_per_node is None:
            self.labels_per_node = np.full(nodes, size, np.int64)
        else:
            self.labels_per_node = index_array(
                "labels_per_node", labels_per_node, size + 1, (nodes,), lower=1
            )
            node[np.arange(size) >= self.labels_per_node[:, None]] = -np.inf
        node.flags.writeable = edge.flags.writeable = False
        self.graph = graph
        optional("factors", factors, Factors, "Factors")
        self.factors = Factors.pack(nodes, []) if factors is None else factors
        self.scores = Table(node, edge, self.factors.table)
        self.offset = float(log_weights("offset", offset, ()))
        self.cache: dict[str, Any] = {}  # results that depend on the scores

    @classmethod
    def build(cls: type[Scored], *arguments: Any, **settings: Any) -> Scored:
        """Return an instance from the arguments of ScoredGraph, without a subclass constructor."""
        model = cls.__new__(cls)
        ScoredGraph.__init__(model, *arguments, **settings)
        return model

    def with_scores(
        self: Scored,
        node_scores: npt.ArrayLike,
        edge_scores: npt.ArrayLike,
        factor_scores: npt.ArrayLike | None = None,
    ) -> Scored:
        """Return a model of the same graph, labels and offset with new scores.

        It reuses the plans for the graph.  node_scores and edge_scores are as in the constructor.

        factor_scores : (cells,) float64, optional
            New log-tables of the larger factors, as in `factors.table`; by default the old ones.
        """
        factors = self.factors
        if factor_scores is not None:
            table = log_weights("factor_scores", factor_scores, factors.table.shape)
            factors = factors._replace(table=table)
        return self.build(
            self.graph, node_scores, edge_scores, self.labels_per_node, self.offset, factors
        )

    def condition(self: Scored, evidence: Mapping[int, int]) -> Scored:
        """Return the model in which node i has the label evidence[i]; its others are forbidden.

        Its log_partition is the log of the sum of exp(s(y)) over the labelings that agree with the
        evidence, log P(evidence) + log Z.

        Raises
        ------
        InvalidInputError
            A node or label is out of range.
        InfeasibleError
            The node scores forbid a label of the evidence.
        """
        instance("evidence", evidence, Mapping, "a mapping of nodes to labels")
        node = self.scores.node.copy()
        for i, label in evidence.items():
            at = index("evidence node", i, self.num_nodes)
            label = index(f"evidence[{at}]", label, int(self.labels_per_node[at]))
            score = node[at, label]
            if score == -np.inf:
                raise InfeasibleError(
                    f"evidence[{at}] is {label}, a label that the node scores forbid"
                )
            node[at] = -np.inf
            node[at, label] = score
        return self.with_scores(node, self.scores.edge)

    @property
    def num_nodes(self) -> int:
        """Number of nodes I."""
        return self.graph.num_nodes

    @property
    def num_labels(self) -> int:
        """The largest number of labels, C."""
        return int(self.scores.node.shape[1])

    @property
    def shared(self) -> bool:
        """Whether all edges share one score table."""
        return self.scores.edge.ndim == 2

    @property
    def has_hard_zeros(self) -> bool:
        """Whether edges or larger factors have hard zeros, which may part the labelings."""
        return bool(np.isneginf(self.scores.edge).any() or np.isneginf(self.factors.table).any())

    @property
    def edge_stack(self) -> FloatArray:
        """The edge scores as (K, C, C), with K = 1 if they are shared, else E."""
        size = self.num_labels
        return self.scores.edge.reshape(-1, size, size)

    @cached_property
    def potentials(self) -> Potentials:
        """The edge scores in the form for message passing."""
        return Potentials.of(self.edge_stack)

    @cached_property
    def pieces(self) -> ModelScores:
        """All scores in the form for kernels that visit single nodes."""
        return ModelScores(self.graph.outgoing, self.scores.node, self.edge_stack, self.factors)

    @property
    def interactions(self) -> Graph:
        """The graph in which the nodes of each larger factor are also neighbours."""
        if self.factors.number == 0:
            return self.graph
        if "interactions" not in self.graph.cache:
            pairs = {tuple(sorted(edge)) for edge in self.graph.edges.tolist()}
            for f in range(self.factors.number):
                pairs.update(combinations(sorted(self.factors.nodes(f)), 2))
            self.graph.cache["interactions"] = Graph.checked(self.num_nodes, sorted(pairs))
        cached: Graph = self.graph.cache["interactions"]
        return cached

    @property
    def links(self) -> Graph:
        """The graph in which factor f is node I + f: the edges, then a link for each slot.

        Examples
        --------
        >>> import fstgrad as fg
        >>> m = fg.PairwiseMRF.from_factors([2, 2, 2], [([0, 1], np.eye(2)),
        ...                                             ([0, 1, 2], np.zeros((2, 2, 2)))])
        >>> m.links.edges.tolist()
        [[0, 1], [0, 3], [1, 3], [2, 3]]
        """
        if self.factors.number == 0:
            return self.graph
        if "links" not in self.graph.cache:
            ties = np.stack((self.factors.scope, self.num_nodes + self.factors.owner), axis=1)
            edges = np.concatenate((self.graph.edges, ties))
            self.graph.cache["links"] = Graph(self.num_nodes + self.factors.number, edges)
        cached: Graph = self.graph.cache["links"]
        return cached

    @property
    def is_forest(self) -> bool:
        """Whether the graph has no cycle and there is no larger factor."""
        return self.factors.number == 0 and self.graph.is_forest

    def labeling(self, structure: npt.ArrayLike, name: str = "structure") -> IntArray:
        """Return a labeling (I,), or (height, width) flattened, as int64 (I,), checked."""
        flat = integers(name, structure)
        if flat.ndim == 2:
            self.graph.check_image(name, flat.shape)
            flat = flat.reshape(-1)
        array = index_array(name, flat, self.num_labels, (self.num_nodes,))
        bad = np.flatnonzero(array >= self.labels_per_node)
        if bad.size:
            k = int(bad[0])
            raise InvalidInputError(
                f"{name}[{k}] is {array[k]}; node {k} has the labels 0 to "
                f"{self.labels_per_node[k] - 1}"
            )
        return array

    @property
    def recentered(self: Scored) -> tuple[Scored, float]:
        """The model without offsets that reduce precision, and the sum of these offsets.

        A node, an edge or a larger factor whose scores are all masked by a large finite number, for
        example those of a pixel of padding, has such an offset (nats).  It adds to every score, but
        to no difference of scores.

        Examples
        --------
        >>> import fstgrad as fg
        >>> m = fg.PairwiseMRF([[0.0, 1.0], [-1e30, -1e30]], np.eye(2), [(0, 1)])
        >>> m.recentered[0].scores.node.tolist(), m.recentered[1]
        ([[0.0, 1.0], [0.0, 0.0]], -1e+30)
        """
        if "recentered" not in self.cache:
            self.cache["recentered"] = self._without_offsets()
        cached: tuple[Scored, float] = self.cache["recentered"]
        return cached

    def _without_offsets(self: Scored) -> tuple[Scored, float]:
        node, edge = self.scores
        table, cell = self.factors.table, self.factors.cell
        of_nodes = offsets(node.max(axis=1))
        of_edges = offsets(self.edge_stack.max(axis=(1, 2)))
        of_factors = offsets(np.maximum.reduceat(table, cell[:-1]) if table.size else table)
        if not (of_nodes.any() or of_edges.any() or of_factors.any()):
            return self, 0.0
        edge = edge - (of_edges[0] if self.shared else of_edges[:, None, None])
        table = table - np.repeat(of_factors, np.diff(cell))
        uses = self.graph.num_edges if self.shared else 1
        total = of_nodes.sum() + uses * of_edges.sum() + of_factors.sum()
        return self.with_scores(node - of_nodes[:, None], edge, table), float(total)

    def score(self, structure: npt.ArrayLike) -> float:
        """Return s(y) in nats, with the offset; -inf for a forbidden labeling."""
        y = self.labeling(structure)
        left, right = y[self.graph.edges].T
        edge = self.scores.edge[left, right] if self.shared else (
            self.scores.edge[np.arange(len(left)), left, right]
        )  # fmt: skip
        node, larger = self.scores.node[np.arange(len(y)), y], self.factors.table
        return float(node.sum() + edge.sum() + larger[self.factors.cells(y)].sum() + self.offset)

    def parts(self, structure: npt.ArrayLike) -> Table:
        """Return the indicators of a labeling: nodes (I, C), edges (E, C, C), factors (cells,)."""
        y = self.labeling(structure)
        size, edges = self.num_labels, self.graph.edges
        node = np.zeros((len(y), size))
        node[np.arange(len(y)), y] = 1
        edge = np.zeros((len(edges), size, size))
        edge[np.arange(len(edges)), y[edges[:, 0]], y[edges[:, 1]]] = 1
        larger = np.zeros(len(self.factors.table))
        larger[self.factors.cells(y)] = 1
        return Table(node, edge, larger)


def infeasible() -> InfeasibleError:
    """Return the error for a model in which every labeling is forbidden."""
    return InfeasibleError(
        "every labeling has the score -inf, so Z = 0; remove contradictory evidence or hard zeros"
    )


def score_tables(model: ScoredGraph) -> Iterator[tuple[list[int], FloatArray]]:
    """Yield (scope, log-table) of each node, then edge, then larger factor, without padding."""
    sizes, stack = model.labels_per_node.tolist(), model.edge_stack
    for v, size in enumerate(sizes):
        yield [v], model.scores.node[v, :size]
    for e, (a, b) in enumerate(model.graph.edges.tolist()):
        yield [a, b], stack[e if len(stack) > 1 else 0, : sizes[a], : sizes[b]]
    for f in range(model.factors.number):
        yield model.factors.nodes(f), model.factors.view(f)
