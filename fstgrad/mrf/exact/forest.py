"""Exact inference on forests by two sweeps of messages, O(I C^2)."""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.mrf import kernels
from fstgrad.mrf.scored_graph import ScoredGraph, Table, infeasible


class Forest:
    """The exact engine of a model without cycles; results exclude the model's offset.

    Raises InfeasibleError if every labeling is forbidden.
    """

    def __init__(self, model: ScoredGraph) -> None:
        self.model = model
        self.order, self.parent_arc = model.graph.traversal

    def _up(self, maximum: int) -> tuple[FloatArray, FloatArray, float]:
        """Return totals (I, C), messages (2E, C), and log Z or (maximum = 1) the best score."""
        p, graph = self.model.potentials, self.model.graph
        total = self.model.scores.node.copy()
        messages = np.zeros((2 * graph.num_edges, self.model.num_labels))
        scale = empty(graph.num_nodes)
        kernels.forests.sweep_up(
            self.order, self.parent_arc, graph.source, p, maximum, total, messages, scale
        )  # fmt: skip
        roots = total[self.parent_arc < 0]
        ends = roots.max(axis=1) if maximum else np.logaddexp.reduce(roots, axis=1)
        with np.errstate(over="ignore"):
            value = float(scale.sum() + ends.sum())
        if value == -np.inf:
            raise infeasible()
        return total, messages, value

    def log_partition(self) -> float:
        """Return log Z in nats."""
        return self._up(0)[2]

    def marginals(self) -> Table:
        """Return node (I, C) and edge (E, C, C) marginals."""
        total, messages, _ = self._up(0)
        p, graph = self.model.potentials, self.model.graph
        kernels.forests.sweep_down(self.order, self.parent_arc, graph.source, p, total, messages)
        node = empty_like(total)
        kernels.bp_log.node_beliefs(total, node, empty(graph.num_nodes))
        edge = empty((graph.num_edges, *2 * total.shape[1:]))
        kernels.bp_log.edge_beliefs(
            0, graph.num_edges, graph.source, total, p.edge, messages, 1, edge,
            empty(graph.num_edges),
        )  # fmt: skip
        return Table(node, edge)

    def sample(self, k: int, rng: np.random.Generator) -> IntArray:
        """Return k independent labelings (k, I) int64, each drawn from the roots down."""
        total = self._up(0)[0]
        return self._draw(total, rng.random((k, self.model.num_nodes)))

    def mode(self) -> IntArray:
        """Return a labeling (I,) int64 of the highest score."""
        total = self._up(1)[0]
        best: IntArray = self._draw(total, np.full((1, self.model.num_nodes), -1.0))[0]
        return best

    def _draw(self, total: FloatArray, uniforms: FloatArray) -> IntArray:
        labels = np.zeros(uniforms.shape, np.int64)
        for row, uniform in zip(labels, uniforms, strict=True):
            kernels.forests.draw(
                self.order, self.parent_arc, self.model.graph.source, self.model.potentials.edge,
                total, uniform, row,
            )  # fmt: skip
        return labels
