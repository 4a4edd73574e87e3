"""Flooding tree-reweighted message passing, vectorized over arcs (`kernels.trw_log`)."""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.mrf import kernels
from fstgrad.mrf.arrays import VectorLayout
from fstgrad.mrf.kernels.trw_log import EdgeShares
from fstgrad.mrf.messages.linear_domain import PARALLEL_BLOCKS, block_size
from fstgrad.mrf.messages.log_domain import LogMessages
from fstgrad.mrf.resources import ThreadRanges
from fstgrad.mrf.scored_graph import ScoredGraph

LARGEST_SPAN = 500.0  # nats, of a table edge / rho; e^-500 is well inside the float range
LEAST_ARCS = 256  # with fewer, the layout takes longer than it saves
MOST_TABLES = 64  # with more distinct tables edge / rho, each arc has its own


def tree_messages(model: ScoredGraph, threads: int, rho: FloatArray) -> LogMessages:
    """Return the messages of tree-reweighted message passing, vectorized if the model allows it.

    rho : (E + slots,) float64, as in `LogMessages`.
    """
    edge = model.edge_stack
    large = 2 * model.graph.num_edges >= LEAST_ARCS and model.num_labels > 1
    if large and model.factors.number == 0:
        with np.errstate(invalid="ignore"):  # a table of -inf alone
            span = (edge.max(axis=(1, 2)) - edge.min(axis=(1, 2))) / rho
        if (span < LARGEST_SPAN).all() and (model.scores.node.max(axis=1) > -np.inf).all():
            return VectorizedTreeMessages(model, threads, rho)
    return LogMessages(model, 0, threads, rho)


class VectorizedTreeMessages(LogMessages):
    """The messages of `LogMessages`, with sweeps that are vectorized over arcs."""

    def __init__(self, model: ScoredGraph, threads: int, rho: FloatArray) -> None:
        super().__init__(model, 0, threads, rho)
        graph, labels = model.graph, model.num_labels
        shares, number = np.unique(self.rho, return_inverse=True)
        few_tables = model.shared and len(shares) <= MOST_TABLES
        key = "tree layout", labels, few_tables
        if key not in graph.cache or not np.array_equal(graph.cache[key][0], rho):
            graph.cache[key] = rho, *self._layout(number.astype(np.int64), few_tables)
        _, self.layout, self.shares = graph.cache[key]
        node = model.scores.node
        node = node if labels > 2 else node[:, 1:] - node[:, :1]
        self.scores = empty(self.layout.node.size * node.shape[1])
        kernels.bp_linear.nodes_by_block(self.layout, node, self.scores)
        if few_tables:
            first = np.unique(number, return_index=True)[1]
            self.table = self.potentials.exp_edge[first].reshape(-1)
        else:
            self.table = empty(2 * self.potentials.exp_edge.size)
            kernels.bp_linear.tables_by_lane(
                self.layout, graph.leaving, self.potentials.exp_edge, self.table
            )
        self.sent = np.zeros(len(self.messages) * (labels - 1))
        self.fresh_sent = empty_like(self.sent)
        self.block_ranges = ThreadRanges(len(self.layout.block_node) - 1, threads, PARALLEL_BLOCKS)
        self.stale = False

    def _layout(self, number: IntArray, few_tables: bool) -> tuple[VectorLayout, EdgeShares]:
        """Return the layout of the graph; with few tables, messages are in the order of tables.

        number : (E,) int64, which of the distinct values of rho each edge has.
        """
        graph, labels = self.model.graph, self.model.num_labels
        no_arcs = np.zeros(len(graph.leaving), np.bool_)
        layout = VectorLayout.of(graph.network, graph.rank, no_arcs, labels - 1, block_size(labels))
        arc = graph.leaving[layout.arc]
        rho = self.rho[arc >> 1]
        if few_tables:
            layout, lane_of_message, table_of_run = layout.by_table(
                graph.network, 2 * number[arc >> 1] + (arc & 1), labels - 1
            )
            return layout, EdgeShares(rho, lane_of_message, table_of_run)
        return layout, EdgeShares(rho, np.zeros(0, np.uint64), np.zeros(0, np.int64))

    def sweep(self, damping: float) -> float:
        """Compute all messages from the old ones; return the largest change in nats."""

        def update(low: int, high: int) -> float:
            return kernels.trw_log.sweep(
                low, high, self.model.num_labels, self.layout, self.shares, self.scores, self.table,
                damping, self.sent, self.fresh_sent,
            )  # fmt: skip

        changes = self.block_ranges(update)
        self.sent, self.fresh_sent = self.fresh_sent, self.sent
        self.stale = True
        return float(max(changes))

    def sum_up(self) -> None:
        """Recompute messages and totals from `sent`."""
        if self.stale:
            incoming = empty((len(self.messages), self.model.num_labels - 1))
            kernels.bp_linear.messages_by_arc(self.layout, self.sent, incoming)
            top = np.maximum(incoming.max(axis=1, keepdims=True), 0.0)
            into = self.model.graph.leaving ^ 1
            self.messages[into, :1], self.messages[into, 1:] = -top, incoming - top
            self.stale = False
        super().sum_up()
