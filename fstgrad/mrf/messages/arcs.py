"""Loopy belief propagation on any graph, in the log domain."""

from functools import partial

import numpy as np

from fstgrad.checks import FloatArray
from fstgrad.mrf.scored_graph import Potentials, ScoredGraph, infeasible
from fstgrad.mrf.threads import Bands

PARALLEL_ARCS = 2000


class GraphMessages:
    """The messages (2E, C) of a model, in logs with maximum 0, and their updates.

    Parameters
    ----------
    rho : (E,) float64
        Edge appearance probabilities of tree-reweighted message passing; ones for belief
        propagation.
    """

    def __init__(
        self, model: ScoredGraph, maximum: int, threads: int, rho: FloatArray | None = None
    ) -> None:
        self.model, self.maximum, graph = model, maximum, model.graph
        if rho is None:
            self.rho, self.potentials = np.ones(graph.num_edges), model.potentials
        else:
            edge = np.broadcast_to(model.edge_stack, (len(rho), *model.edge_stack.shape[1:]))
            self.rho = rho
            self.potentials = Potentials.of(model.scores.node, edge / rho[:, None, None])
        self.messages = np.zeros((2 * graph.num_edges, model.num_labels))
        self.fresh = np.empty_like(self.messages)
        self.total = np.empty_like(model.scores.node)
        self.nodes = Bands(graph.num_nodes, threads, PARALLEL_ARCS)
        self.arcs = Bands(2 * graph.num_edges, threads, PARALLEL_ARCS)

    def sum_up(self) -> None:
        """Bring the totals up to date with the messages."""
        from fstgrad.mrf.kernels.messages import sum_messages

        graph = self.model.graph
        self.nodes(
            partial(
                sum_messages,
                start=graph.start,
                leaving=graph.leaving,
                node=self.model.scores.node,
                rho=self.rho,
                messages=self.messages,
                total=self.total,
            )
        )
        if (self.total.max(axis=1) == -np.inf).any():
            raise infeasible()

    def sweep(self, damping: float) -> float:
        """Update all messages once, all from the old ones; return the largest change."""
        from fstgrad.mrf.kernels.messages import flood

        self.sum_up()
        p = self.potentials
        changes = self.arcs(
            partial(
                flood,
                source=self.model.graph.source,
                total=self.total,
                edge=p.edge,
                exp_edge=p.exp_edge,
                shift=p.shift,
                messages=self.messages,
                damping=damping,
                maximum=self.maximum,
                fresh=self.fresh,
            )
        )
        if min(changes) < 0:
            raise infeasible()
        self.messages, self.fresh = self.fresh, self.messages
        return float(max(changes))

    def node_beliefs(self) -> tuple[FloatArray, float]:
        """Return node beliefs (I, C) and the sum of (1 - sum of rho) log Z_i."""
        from fstgrad.mrf.kernels.messages import node_beliefs

        self.sum_up()
        graph = self.model.graph
        node, log_norm = np.empty_like(self.total), np.empty(graph.num_nodes)
        node_beliefs(self.total, node, log_norm)
        degree = np.bincount(graph.source, np.repeat(self.rho, 2), minlength=graph.num_nodes)
        return node, float(((1 - degree) * log_norm).sum())

    def log_pairs(self) -> float:
        """Return the sum of rho times the log-normalizers of all edge beliefs."""
        size = self.model.num_labels
        log_norm = np.empty(self.model.graph.num_edges)
        table = np.empty((1, size, size))

        def band(low: int, high: int) -> None:
            self._edge_beliefs(low, high, 0, table.copy(), log_norm[low:high])

        with Bands(len(log_norm), len(self.arcs.ranges)) as edges:
            edges(band)
        return float((self.rho * log_norm).sum())

    def edge_beliefs(self, low: int, high: int) -> FloatArray:
        """Return the edge beliefs (high - low, C, C) of a range of edges."""
        size = self.model.num_labels
        out = np.empty((high - low, size, size))
        self._edge_beliefs(low, high, 1, out, np.empty(high - low))
        return out

    def _edge_beliefs(
        self, low: int, high: int, keep: int, out: FloatArray, log_norm: FloatArray
    ) -> None:
        from fstgrad.mrf.kernels.messages import edge_beliefs

        edge_beliefs(
            low, high, self.model.graph.source, self.total, self.potentials.edge, self.messages,
            keep, out, log_norm,
        )  # fmt: skip


class LargestFirst(GraphMessages):
    """The residual schedule of Elidan, McGraw and Koller (2006): the largest change goes first."""

    def __init__(
        self,
        model: ScoredGraph,
        maximum: int,
        tolerance: float,
        damping: float,
        rho: FloatArray | None = None,
    ) -> None:
        super().__init__(model, maximum, 1, rho)
        self.tolerance = tolerance
        arcs = len(self.messages)
        self.pending = self.messages.copy()
        self.scratch = np.empty((2, model.num_labels))
        # every arc gets its first pending message in place of what nobody has said yet
        self.priority = np.zeros(arcs)
        self.sum_up()
        self._first_messages(damping)
        self.heap = np.argsort(-self.priority, kind="stable").astype(np.int64)
        self.place = np.empty(arcs, np.int64)
        self.place[self.heap] = np.arange(arcs)

    def _first_messages(self, damping: float) -> None:
        from fstgrad.mrf.kernels.messages import update_arc

        p = self.potentials
        for arc in range(len(self.messages)):
            self.priority[arc] = update_arc(
                arc, self.model.graph.source, self.total, p.edge, p.exp_edge, p.shift,
                self.messages, damping, self.maximum, self.scratch, self.pending[arc],
            )  # fmt: skip
        if (self.priority < 0).any():
            raise infeasible()

    def sweep(self, damping: float) -> float:
        """Send 2E messages, each the one of the largest change; return the next largest."""
        from fstgrad.mrf.kernels.residual import send_largest

        if len(self.messages) == 0:
            return 0.0
        graph, p = self.model.graph, self.potentials
        change = send_largest(
            len(self.messages), self.tolerance * (1 - damping), graph.start, graph.leaving,
            graph.source, self.model.scores.node, self.rho, p.edge, p.exp_edge, p.shift, damping,
            self.maximum, self.total, self.messages, self.pending, self.priority, self.heap,
            self.place, self.scratch,
        )  # fmt: skip
        if change < 0:
            raise infeasible()
        return float(change)
