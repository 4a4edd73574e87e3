"""Pairwise Markov random fields: the exponential softmax on the labelings of a graph."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fstgrad.checks import (
    FloatArray,
    IntArray,
    Seed,
    generator,
    index_array,
    log_weights,
    positive_integer,
)
from fstgrad.distribution import Distribution, masked_inner
from fstgrad.errors import InfeasibleError, InvalidInputError
from fstgrad.mrf.graph import Graph, grid_edges
from fstgrad.mrf.table import Table

if TYPE_CHECKING:
    from fstgrad.mrf.decode import Decoded
    from fstgrad.mrf.exact.engine import ExactEngine
    from fstgrad.mrf.factors import Factor
    from fstgrad.mrf.result import Inference


@dataclass(frozen=True, eq=False)
class Potentials:
    """What the kernels read: edge scores in logs and as exponentials of (score - shift)."""

    node: FloatArray
    edge: FloatArray
    exp_edge: FloatArray
    shift: FloatArray

    @classmethod
    def of(cls, node: FloatArray, edge: FloatArray) -> "Potentials":
        """Build from node (I, C) and edge scores (K, C, C), K = 1 or E."""
        shift = edge.max(axis=(1, 2), initial=-np.inf)
        shift[shift == -np.inf] = 0.0
        return cls(node, edge, np.exp(edge - shift[:, None, None]), shift)


class PairwiseMRF(Distribution[Table]):
    """The distribution over labelings y of a graph with the score

        s(y) = sum_i node[i, y_i] + sum_(e = ij) edge[e, y_i, y_j],     p(y) = exp(s(y)) / Z.

    Parameters
    ----------
    node_scores : (I, C) float64
        Log-weights in nats; -inf forbids a label.
    edge_scores : (E, C, C) or (C, C) float64
        Log-weights; `edge_scores[e, c, d]` is for label c at edges[e, 0] and d at edges[e, 1].
        One (C, C) table is shared by all edges, and its gradient is the sum over the edges.
    edges : (E, 2) integers
        Pairs of different nodes, no pair twice.
    labels_per_node : (I,) integers, optional
        Node i has the labels 0 .. labels_per_node[i] - 1 (default C); the rest is forbidden.

    Raises
    ------
    InvalidInputError
        Shapes that clash, NaN, +inf, a self-loop, a repeated edge, an index out of range.

    Notes
    -----
    `log_partition`, `marginals`, `sample`, `mode` are exact or an error: linear time on forests,
    elimination on other graphs, MemoryLimitError where that is too wide.  `infer` and `nll` offer
    the approximations.

    References
    ----------
    D. McAllester, TTIC 31230 (2019), "Exponential Softmax" and "Approximate Algorithms for
    Exponential Softmax Backpropagation".

    Examples
    --------
    >>> m = PairwiseMRF(np.zeros((3, 2)), [[1.0, 0.0], [0.0, 1.0]], [(0, 1), (1, 2)])
    >>> round(m.log_partition(), 6) == round(float(np.log(2 * (np.e + 1) ** 2)), 6)
    True
    """  # noqa: D400

    def __init__(
        self,
        node_scores: npt.ArrayLike,
        edge_scores: npt.ArrayLike,
        edges: npt.ArrayLike,
        labels_per_node: npt.ArrayLike | None = None,
    ) -> None:
        node = log_weights("node_scores", node_scores, (None, None))
        self._set(Graph.checked(len(node), edges), node, edge_scores, labels_per_node)

    def _set(
        self,
        graph: Graph,
        node_scores: npt.ArrayLike,
        edge_scores: npt.ArrayLike,
        labels_per_node: npt.ArrayLike | None = None,
        offset: float = 0.0,
        num_variables: int | None = None,
    ) -> None:
        node = np.array(log_weights("node_scores", node_scores, (graph.num_nodes, None)), order="C")
        nodes, size = node.shape
        if nodes == 0 or size == 0:
            raise InvalidInputError(f"node_scores has shape {node.shape}; give a node and a label")
        per_edge = np.ndim(edge_scores) != 2
        shape = (graph.num_edges, size, size) if per_edge else (size, size)
        if per_edge and graph.num_edges == 0 and np.size(edge_scores) == 0:
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
        self.scores = Table(node, edge)
        self.offset = offset
        self.num_variables = nodes if num_variables is None else num_variables

    @classmethod
    def _build(cls, *arguments: Any, **settings: Any) -> "PairwiseMRF":
        model = cls.__new__(cls)
        model._set(*arguments, **settings)
        return model

    @classmethod
    def grid(
        cls,
        height: int,
        width: int,
        node_scores: npt.ArrayLike,
        edge_scores: npt.ArrayLike,
        *,
        connectivity: int = 4,
    ) -> "PairwiseMRF":
        """Return the model of a height x width image, pixels in row-major order.

        Parameters
        ----------
        node_scores : (height * width, C) or (height, width, C)
        edge_scores : (C, C) for all edges, or (E, C, C) in the order of `grid_edges`
            First the horizontal pairs (r, c)-(r, c+1), then the vertical (r, c)-(r+1, c), with
            connectivity 8 then the diagonals (r, c)-(r+1, c+1) and (r, c+1)-(r+1, c).
        connectivity : 4 or 8
        """
        height, width = positive_integer("height", height), positive_integer("width", width)
        if connectivity not in (4, 8):
            raise InvalidInputError(f"connectivity is {connectivity!r}; choose 4 or 8")
        edges = grid_edges(height, width, connectivity)
        edges.flags.writeable = False
        if np.ndim(node_scores) == 3:
            node_scores = log_weights("node_scores", node_scores, (height, width, None))
            node_scores = node_scores.reshape(height * width, -1)
        graph = Graph(height * width, edges, (height, width) if connectivity == 4 else None)
        return cls._build(graph, node_scores, edge_scores)

    @classmethod
    def from_factors(cls, labels_per_node: npt.ArrayLike, factors: "list[Factor]") -> "PairwiseMRF":
        """Return the model whose score is the sum of `factors`, (scope, log-table) pairs.

        Factors over one node or the same pair are added up; a factor over three or more nodes
        becomes a further node whose labels are the joint states of its scope (row-major, last
        node fastest), tied to the members of the scope by hard edges.  Such nodes come after the
        `num_variables` nodes of the caller.  A factor over no node is a constant of the score.
        """
        from fstgrad.mrf.factors import pairwise_parts

        parts = pairwise_parts(labels_per_node, factors)
        return cls._build(
            Graph.checked(len(parts.node), parts.edges), parts.node, parts.edge, parts.labels,
            offset=parts.offset, num_variables=parts.num_variables,
        )  # fmt: skip

    def with_scores(self, node_scores: npt.ArrayLike, edge_scores: npt.ArrayLike) -> "PairwiseMRF":
        """Return a model of the same graph, what was planned for its shape kept."""
        return self._build(
            self.graph, node_scores, edge_scores, self.labels_per_node, self.offset,
            self.num_variables,
        )  # fmt: skip

    def condition(self, evidence: Mapping[int, int]) -> "PairwiseMRF":
        """Return the model in which node i has the label evidence[i]: all others are forbidden.

        Its log_partition is log sum exp(s(y)) over the labelings that agree with the evidence,
        log P(evidence) + log Z.
        """
        node = self.scores.node.copy()
        for i, label in evidence.items():
            at = int(index_array("evidence node", [i], self.num_nodes)[0])
            label = int(self._label_array(f"evidence[{at}]", [label], np.array([at]))[0])
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
    def edge_stack(self) -> FloatArray:
        """The edge scores as (K, C, C), K = 1 where they are shared."""
        size = self.num_labels
        return self.scores.edge.reshape(-1, size, size)

    @cached_property
    def potentials(self) -> Potentials:
        """The scores in the form that the kernels read."""
        return Potentials.of(self.scores.node, self.edge_stack)

    @cached_property
    def exact(self) -> "ExactEngine":
        """The exact engine: message passing on a forest, else elimination."""
        from fstgrad.mrf.exact.engine import engine

        return engine(self)

    @cached_property
    def _log_partition(self) -> float:
        return self.exact.log_partition() + self.offset

    @cached_property
    def _marginals(self) -> Table:
        table = self.exact.marginals()
        for array in table:
            array.flags.writeable = False
        return table

    def log_partition(self) -> float:
        """Return log Z in nats; O(I C^2) on forests, O(largest clique table) elsewhere."""
        return self._log_partition

    def marginals(self) -> Table:
        """Return P(y_i = c) (I, C) and P(y_i = c, y_j = d) (E, C, C), read-only."""
        return self._marginals

    def labeling(self, structure: npt.ArrayLike, name: str = "labels") -> IntArray:
        """Return a labeling as int64 (I,), checked.

        Labels of the `num_variables` nodes of the caller suffice: the further nodes that stand
        for larger factors follow from them.
        """
        nodes = np.arange(self.num_nodes)
        if np.shape(structure) == (self.num_variables,) and self.num_variables < self.num_nodes:
            from fstgrad.mrf.factors import joint_labels

            known = self._label_array(name, structure, nodes[: self.num_variables])
            return np.concatenate((known, joint_labels(self, known)))
        return self._label_array(name, structure, nodes)

    def _label_array(self, name: str, labels: npt.ArrayLike, nodes: IntArray) -> IntArray:
        flat = np.reshape(labels, -1) if np.ndim(labels) == 2 else labels
        array = index_array(name, flat, self.num_labels, (len(nodes),))
        bad = np.flatnonzero(array >= self.labels_per_node[nodes])
        if bad.size:
            k = int(bad[0])
            raise InvalidInputError(
                f"{name}[{k}] is {array[k]}; node {nodes[k]} has the labels 0 to "
                f"{self.labels_per_node[nodes[k]] - 1}"
            )
        return array

    def score(self, structure: npt.ArrayLike) -> float:
        """Return s(y) in nats, -inf for a forbidden labeling."""
        y = self.labeling(structure)
        left, right = y[self.graph.edges].T
        edge = self.scores.edge[left, right] if self.shared else (
            self.scores.edge[np.arange(len(left)), left, right]
        )  # fmt: skip
        return float(self.scores.node[np.arange(len(y)), y].sum() + edge.sum()) + self.offset

    def parts(self, structure: npt.ArrayLike) -> Table:
        """Return the indicator tables (I, C) and (E, C, C) of one labeling."""
        y = self.labeling(structure)
        size, edges = self.num_labels, self.graph.edges
        node = np.zeros((len(y), size))
        node[np.arange(len(y)), y] = 1
        edge = np.zeros((len(edges), size, size))
        edge[np.arange(len(edges)), y[edges[:, 0]], y[edges[:, 1]]] = 1
        return Table(node, edge)

    def log_prob(self, structure: npt.ArrayLike) -> float:
        """Return log p(y) in nats; -inf for a labeling that is forbidden."""
        return self.score(structure) - self.log_partition()

    def covariance_product(self, direction: Table) -> Table:
        """Return the change of the marginals along `direction`, Cov[t] applied to it.

        By elimination with tangents on any graph that is narrow enough; two to three times the
        cost of `marginals`.
        """
        from fstgrad.mrf.exact.elimination import Elimination

        return Elimination(self).tangents(direction)

    def sample(self, k: int, rng: Seed = None) -> IntArray:
        """Return k labelings (k, I) int64, independent and exact."""
        return self.exact.sample(positive_integer("k", k, minimum=0), generator(rng))

    def mode(self) -> IntArray:
        """Return a labeling (I,) of the highest score, exact."""
        return self.exact.mode()

    def infer(self, method: str = "exact", **options: Any) -> "Inference":
        """Return log Z and marginals by one of the methods of `fstgrad.mrf.methods`."""
        from fstgrad.mrf.methods import infer

        return infer(self, method, **options)

    def decode(self, method: str = "exact", **options: Any) -> "Decoded":
        """Return a labeling of high score by one of the methods of `fstgrad.mrf.decode`."""
        from fstgrad.mrf.decode import decode

        return decode(self, method, **options)

    def nll(
        self, gold: npt.ArrayLike, method: str = "exact", **options: Any
    ) -> tuple[float, Table]:
        """Return -log p(gold) or a surrogate loss, and its gradient: see `fstgrad.mrf.losses`."""
        from fstgrad.mrf.losses import nll

        return nll(self, gold, method, **options)

    def inner(self, weights: Table, values: Table) -> float:
        """Return <weights, values> with 0 * inf = 0."""
        return float(
            masked_inner(weights.node, values.node, 2)
            + self._edge_inner(weights.edge, values.edge)
        )  # fmt: skip

    @staticmethod
    def _edge_inner(weights: FloatArray, values: FloatArray) -> float:
        if weights.ndim == values.ndim == 2:
            raise InvalidInputError("weights.edge is (C, C); give a table for each edge")
        return float(masked_inner(weights, values, 3))

    def log_base(self, structure: npt.ArrayLike) -> float:
        """Return the constant of the score."""
        return self.offset

    def expected_log_base(self, other: Distribution[Table]) -> float:
        """Return the constant of the other's score."""
        return other.offset if isinstance(other, PairwiseMRF) else 0.0

    def _difference(self, left: Table, right: Table) -> Table:
        edge = left.edge - right.edge
        return Table(left.node - right.node, edge.sum(axis=0) if self.shared else edge)

    def __repr__(self) -> str:
        return (
            f"PairwiseMRF({self.num_nodes:,} nodes, {self.graph.num_edges:,} edges, "
            f"{self.num_labels} labels)"
        )
