"""The data of a pairwise model: a graph, its score tables, and what kernels read of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fstgrad.checks import FloatArray, IntArray, index_array, log_weights
from fstgrad.errors import InfeasibleError, InvalidInputError
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.table import Table

Scored = TypeVar("Scored", bound="ScoredGraph")


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


class ScoredGraph:
    """A graph with scores of its nodes and edges: what engines and methods take.

    Parameters
    ----------
    graph : Graph
    node_scores : (I, C) float64, log-weights in nats
    edge_scores : (E, C, C) or (C, C) float64
    labels_per_node : (I,) integers, optional
    offset : float
        A constant of the score, in nats.
    num_variables : int, optional
        How many nodes are the caller's; further ones stand for the joint states of factors.
    """

    def __init__(
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
        self.cache: dict[str, Any] = {}  # what engines keep with the scores

    @classmethod
    def build(cls: type[Scored], *arguments: Any, **settings: Any) -> Scored:
        """Return an instance from the arguments above, whatever a subclass asks of its callers."""
        model = cls.__new__(cls)
        ScoredGraph.__init__(model, *arguments, **settings)
        return model

    def with_scores(self: Scored, node_scores: npt.ArrayLike, edge_scores: npt.ArrayLike) -> Scored:
        """Return a model of the same graph, what was planned for its shape kept."""
        return self.build(
            self.graph, node_scores, edge_scores, self.labels_per_node, self.offset,
            self.num_variables,
        )  # fmt: skip

    def condition(self: Scored, evidence: Mapping[int, int]) -> Scored:
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

    def labeling(self, structure: npt.ArrayLike, name: str = "labels") -> IntArray:
        """Return a labeling as int64 (I,), checked.

        Labels of the `num_variables` nodes of the caller suffice: the further nodes that stand
        for larger factors follow from them.
        """
        nodes = np.arange(self.num_nodes)
        if np.shape(structure) == (self.num_variables,) and self.num_variables < self.num_nodes:
            known = self._label_array(name, structure, nodes[: self.num_variables])
            return np.concatenate((known, self._joint_labels(known)))
        return self._label_array(name, structure, nodes)

    def _joint_labels(self, known: IntArray) -> IntArray:
        """Return the labels of the joint nodes, given those of the caller's nodes."""
        first = self.num_variables
        allowed = np.ones((self.num_nodes - first, self.num_labels), np.bool_)
        for e, (member, joint) in enumerate(self.graph.edges.tolist()):
            if joint >= first:
                allowed[joint - first] &= self.scores.edge[e, known[member]] == 0.0
        best: IntArray = allowed.argmax(axis=1).astype(np.int64)
        return best

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


def infeasible() -> InfeasibleError:
    """Return the error of a model whose every labeling is forbidden."""
    return InfeasibleError(
        "every labeling has the score -inf, so Z = 0; remove contradictory evidence or hard zeros"
    )
