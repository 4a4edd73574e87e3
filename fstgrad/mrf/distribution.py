"""Pairwise Markov random fields: the exponential softmax over the labelings of a graph."""

from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    Seed,
    direction_array,
    float_array,
    generator,
    instance,
    is_integer,
    log_weights,
    positive_integer,
    score_array,
)
from fstgrad.core.distribution import Distribution, log_probability, masked_inner
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.mrf import decoding, inference, objectives
from fstgrad.mrf.decoding import best_labelings
from fstgrad.mrf.exact.elimination import Elimination
from fstgrad.mrf.exact.engine import (
    LOWEST_ROUGH,
    ExactEngine,
    best_labeling,
    exact,
    require_precision,
)
from fstgrad.mrf.factors import Factor, model_parts
from fstgrad.mrf.graph import Graph, grid_edges
from fstgrad.mrf.result import Decoded, Inference
from fstgrad.mrf.scored_graph import ScoredGraph, Table


class PairwiseMRF(ScoredGraph, Distribution[Table]):
    """The distribution p(y) = exp(s(y)) / Z over labelings y of a graph, with the score

        s(y) = sum_i node[i, y_i] + sum_(e = ij) edge[e, y_i, y_j].

    Parameters
    ----------
    node_scores : (I, C) float64
        Log-weights in nats; -inf forbids a label.
    edge_scores : (E, C, C) or (C, C) float64
        Log-weights; `edge_scores[e, c, d]` is for label c at edges[e, 0] and d at edges[e, 1].
        A single (C, C) table is shared by all edges, and its gradient is the sum over the edges.
    edges : (E, 2) integers
        Pairs of different nodes; no pair occurs twice.
    labels_per_node : (I,) integers, optional
        Node i has the labels 0 .. labels_per_node[i] - 1 (default C); other labels are forbidden.

    Raises
    ------
    InvalidInputError
        Shapes do not match, a score is NaN or +inf, or there is a self-loop, a repeated edge, or an
        index out of range.

    Notes
    -----
    `log_partition`, `marginals`, `sample` and `mode` are exact or raise an error: InfeasibleError
    if every labeling is forbidden, MemoryLimitError if the tables of elimination are too large.
    They need linear time on forests and use elimination on other graphs.  `infer`, `decode` and
    `nll` also have approximate methods.

    References
    ----------
    D. McAllester, TTIC 31230 (2019), "Exponential Softmax" and "Exponential Softmax
    Backpropagation: The Model Marginals".

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
        super().__init__(Graph.checked(len(node), edges), node, edge_scores, labels_per_node)

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
            First come the horizontal pairs (r, c)-(r, c+1), then the vertical pairs (r, c)-(r+1, c)
            and, with connectivity 8, the diagonals (r, c)-(r+1, c+1) and (r, c+1)-(r+1, c).
        connectivity : 4 or 8
        """
        height, width = positive_integer("height", height), positive_integer("width", width)
        if not is_integer(connectivity) or connectivity not in (4, 8):
            raise InvalidInputError(f"connectivity is {connectivity!r}; choose 4 or 8")
        connectivity = 8 if connectivity == 8 else 4
        edges = grid_edges(height, width, connectivity)
        node_scores = score_array("node_scores", node_scores)
        if node_scores.ndim == 3:
            node_scores = log_weights("node_scores", node_scores, (height, width, None))
            node_scores = node_scores.reshape(height * width, -1)
        graph = Graph(height * width, edges, (height, width), connectivity)
        return cls.build(graph, node_scores, edge_scores)

    @classmethod
    def from_factors(cls, labels_per_node: npt.ArrayLike, factors: list[Factor]) -> "PairwiseMRF":
        """Return the model whose score is the sum of `factors`, (scope, log-table) pairs.

        Factors over the same nodes are added.  Factors over one node or a pair become node and edge
        scores; larger factors remain tables in `factors`, and `Table.factors` holds their marginals
        and gradients.  A factor over no node is a constant of the score.

        Parameters
        ----------
        labels_per_node : (I,) integers
        factors : list of (scope, table)
            The nodes, and a log-table in nats with an axis for each of them; -inf forbids a state.

        Raises
        ------
        InvalidInputError, InfeasibleError, MemoryLimitError
            See `fstgrad.mrf.factors.model_parts`.
        """
        parts = model_parts(labels_per_node, factors)
        graph = Graph.checked(len(parts.node), parts.edges)
        return cls.build(graph, parts.node, parts.edge, parts.labels, parts.offset, parts.factors)

    @property
    def exact(self) -> ExactEngine:
        """The exact engine: message passing on a forest, otherwise elimination."""
        return exact(self).engine

    def log_partition(self) -> float:
        """Return log Z in nats; O(I C^2) on forests, O(largest clique table) on other graphs."""
        recentered, offset = self.recentered
        return exact(recentered).log_partition + offset

    def marginals(self) -> Table:
        """Return P(y_i = c) (I, C), P(y_i = c, y_j = d) (E, C, C) and factors', read-only."""
        return exact(self.recentered[0]).marginals

    def log_prob(self, structure: npt.ArrayLike) -> float:
        """Return log p(y) in nats; -inf for a forbidden labeling."""
        recentered = self.recentered[0]
        log_z = exact(recentered).precise_log_partition
        return float(log_probability(recentered.score(structure), log_z))

    def cross_entropy(self, other: Distribution[Table]) -> float:
        """Return -E[log q(y)] in nats for q = `other`; +inf if q forbids what this model allows.

        Edges and larger factors are matched by their nodes, in any order; q may lack some of them.

        Raises
        ------
        InvalidInputError
            `other` is no random field, or has other numbers of nodes or labels.
        NotSupportedError
            `other` has an edge or a larger factor over nodes that none of this model joins.

        Examples
        --------
        >>> m = PairwiseMRF(np.zeros((2, 2)), np.eye(2), [(0, 1)])
        >>> m.cross_entropy(m) == m.entropy()
        True
        """
        if not isinstance(other, PairwiseMRF):
            raise InvalidInputError(f"other is a {type(other).__name__}; give a random field")
        model = other.recentered[0]
        name, shape = "the scores of other.node", self.scores.node.shape
        node = float_array(name, model.scores.node, shape)
        scores = Table(node, self._edge_scores_of(model), self._factor_scores_of(model))
        return float(model.log_partition() - self.inner(self.marginals(), scores) - model.offset)

    def _edge_scores_of(self, model: "PairwiseMRF") -> FloatArray:
        """Return another model's edge scores in the order and directions of this model's edges."""
        edges, others = self.graph.edges, model.graph.edges
        if np.array_equal(edges, others):
            return model.scores.edge
        keys, wanted = (
            pairs.min(axis=1) * self.num_nodes + pairs.max(axis=1) for pairs in (edges, others)
        )
        for pair in others[~np.isin(wanted, keys)][:1].tolist():
            raise _apart(pair)
        order = np.argsort(keys)
        place = order[np.searchsorted(keys[order], wanted)]
        stack = np.broadcast_to(model.edge_stack, (len(others), *model.edge_stack.shape[1:]))
        turned = (edges[place, 0] != others[:, 0])[:, None, None]
        table = np.zeros((len(edges), *stack.shape[1:]))
        table[place] = np.where(turned, stack.transpose(0, 2, 1), stack)
        return table

    def _factor_scores_of(self, model: "PairwiseMRF") -> FloatArray:
        """Return another model's scores of larger factors in the order of this model's cells."""
        places = {frozenset(self.factors.nodes(f)): f for f in range(self.factors.number)}
        table = np.zeros_like(self.factors.table)
        for f in range(model.factors.number):
            nodes = model.factors.nodes(f)
            if frozenset(nodes) not in places:
                raise _apart(nodes)
            place = places[frozenset(nodes)]
            axes = [nodes.index(node) for node in self.factors.nodes(place)]
            scores = model.factors.view(f).transpose(axes)
            name, shape = "the scores of other.factors", self.factors.shape(place)
            self.factors.view(place, table)[...] = float_array(name, scores, shape)
        return table

    def covariance_product(self, direction: Table) -> Table:
        """Return Cov[t] times `direction`: the derivative of the marginals along it, (E, C, C).

        direction : a Table of finite numbers, shaped like the scores.
        The method is elimination with tangents, at two to three times the cost of `marginals`; it
        raises MemoryLimitError if the tables are too large.
        """
        table = self._like_scores("direction", direction, finite=True)
        return Elimination(self.recentered[0]).tangents(table)

    def sample(self, k: int, rng: Seed = None) -> IntArray:
        """Return k independent, exact draws (k, I) int64."""
        recentered = self.recentered[0]
        labelings = recentered.exact.sample(positive_integer("k", k, minimum=0), generator(rng))
        for labels in labelings[:1]:
            require_precision(recentered.score(labels), LOWEST_ROUGH)
        return labelings

    def mode(self) -> IntArray:
        """Return a labeling (I,) int64 of the highest score, exact."""
        return best_labeling(self.recentered[0])

    def kbest(self, k: int) -> list[tuple[IntArray, float]]:
        """Return up to k best labelings (I,) and their log p in nats, best first; exact.

        Costs up to k I times as much as `mode`.

        Examples
        --------
        >>> m = PairwiseMRF([[0.0, 2.0], [1.0, 0.0]], np.zeros((2, 2)), [(0, 1)])
        >>> [(labels.tolist(), round(p, 4)) for labels, p in m.kbest(2)]
        [([1, 0], -0.4402), ([1, 1], -1.4402)]
        """
        recentered = self.recentered[0]
        log_z, labelings = exact(recentered).precise_log_partition, best_labelings(recentered)
        best = islice(labelings, positive_integer("k", k))
        return [(y, log_probability(score, log_z)) for y, score in best]

    def infer(self, method: str = "exact", **options: Any) -> Inference:
        """Return log Z and marginals by a method of `fstgrad.mrf.inference`, with its options."""
        return inference.infer(self, method, **options)

    def decode(self, method: str = "exact", **options: Any) -> Decoded:
        """Return a labeling of high score by a method of `fstgrad.mrf.decoding`."""
        return decoding.decode(self, method, **options)

    def nll(
        self, gold: npt.ArrayLike, method: str = "exact", **options: Any
    ) -> tuple[float, Table]:
        """Return -log p(gold) (nats) or another loss of `fstgrad.mrf.objectives`, and its gradient.

        gold : (I,) or (height, width) integers, -1 for an unknown label.  The gradient is a Table
        like the scores.
        """
        return objectives.nll(self, gold, method, **options)

    def risk(self, costs: Table) -> tuple[float, Table]:
        """Return E[<costs, t>], an expected cost, and its gradient in the scores; exact.

        costs : a Table of finite numbers like the scores, such as `hamming_costs(gold)`.

        Examples
        --------
        >>> m = PairwiseMRF(np.zeros((3, 2)), np.zeros((2, 2)), [(0, 1), (1, 2)])
        >>> value, gradient = m.risk(m.hamming_costs([0, 1, 1]))
        >>> round(value, 12)  # half of three labels
        1.5
        """
        value, covariance = super().risk(costs)
        return value, self._summed(covariance)

    def hamming_costs(self, gold: npt.ArrayLike) -> Table:
        """Return costs like the scores whose total is the number of labels that differ from gold.

        gold : (I,) or (height, width) integers.

        Examples
        --------
        >>> m = PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), [(0, 1)])
        >>> m.hamming_costs([0, 1]).node.tolist()
        [[0.0, 1.0], [1.0, 0.0]]
        """
        parts = self.parts(self.labeling(gold, "gold"))
        edge = np.zeros(self.scores.edge.shape)
        return Table(1.0 - parts.node, edge, np.zeros(self.factors.table.shape))

    def softmax_margin(
        self, gold: npt.ArrayLike, costs: Table | None = None
    ) -> tuple[float, Table]:
        """Return log sum_y exp(<costs, t(y)> + s(y) - s(gold)) in nats and its gradient; exact.

        gold : (I,) or (height, width) integers.  costs : as in `risk`; by default 0, for which the
        result is `nll(gold)`.  The gradient in the scores is marginals - parts(gold) under the
        scores plus costs.

        Examples
        --------
        >>> m = PairwiseMRF(np.zeros((1, 2)), np.zeros((2, 2)), [])
        >>> value, gradient = m.softmax_margin([0], m.hamming_costs([0]))
        >>> bool(np.isclose(value, np.log(1 + np.e)))
        True
        """
        parts = self.parts(self.labeling(gold, "gold"))
        if costs is None:
            return self.nll(gold)
        table = self._like_scores("costs", costs, finite=True)
        recentered = self.recentered[0]  # costs keep no digits beside large offsets
        scores = recentered.scores
        edge = scores.edge + table.edge.reshape(scores.edge.shape)
        augmented = recentered.with_scores(
            scores.node + table.node, edge, scores.factors + table.factors
        )
        value, gradient = augmented.nll(gold)
        return value + self.inner(parts, table), gradient

    def inner(self, weights: Table, values: Table) -> float:
        """Return <weights, values>, summed over nodes, edges and factors, with 0 * inf = 0."""
        for name, table in (("weights", weights), ("values", values)):
            instance(name, table, Table, "a Table, as marginals() returns it")
        if weights.edge.ndim == values.edge.ndim == 2:
            raise InvalidInputError("weights.edge is (C, C); give a table for each edge")
        return float(
            masked_inner(weights.node, values.node, 2)
            + masked_inner(weights.edge, values.edge, 3)
            + masked_inner(weights.factors, values.factors, 1)
        )

    def log_base(self, structure: npt.ArrayLike) -> float:
        """Return the offset of the score, in nats."""
        return self.offset

    def expected_log_base(self, other: Distribution[Table]) -> float:
        """Return the offset of the other's score, in nats."""
        return other.offset if isinstance(other, PairwiseMRF) else 0.0

    def _difference(self, left: Table, right: Table) -> Table:
        edge = left.edge - right.edge
        return self._summed(Table(left.node - right.node, edge, left.factors - right.factors))

    def _summed(self, table: Table) -> Table:
        """Return a table with its edges summed if all edges share one score table."""
        if not self.shared or table.edge.ndim == 2:
            return table
        return Table(table.node, table.edge.sum(axis=0), table.factors)

    def _like_scores(self, name: str, table: Table, *, finite: bool = False) -> Table:
        instance(name, table, Table, "a Table like the scores")
        checked = direction_array if finite else float_array
        node = checked(f"{name}.node", table.node, self.scores.node.shape)
        edge = checked(f"{name}.edge", table.edge)
        if edge.shape not in (self.scores.edge.shape, self.edge_stack.shape):
            raise InvalidInputError(
                f"{name}.edge has shape {edge.shape}; the scores have {self.scores.edge.shape}"
            )
        if np.isnan(node).any() or np.isnan(edge).any():
            raise InvalidInputError(f"{name} has NaN; give numbers")
        larger = checked(f"{name}.factors", table.factors, self.factors.table.shape)
        if np.isnan(larger).any():
            raise InvalidInputError(f"{name} has NaN; give numbers")
        return Table(node, edge, larger)

    def __repr__(self) -> str:
        return (
            f"PairwiseMRF({self.num_nodes:,} nodes, {self.graph.num_edges:,} edges, "
            f"{self.num_labels} labels)"
        )


def _apart(nodes: list[int]) -> NotSupportedError:
    """Return the error for a divergence from a model with a term over nodes that this one lacks."""
    return NotSupportedError(
        f"other has scores of the nodes {nodes} together, and this model has none; give this model "
        "a table of zeros over them"
    )
