"""Flooding belief propagation on any graph, in the linear domain (`kernels.bp_linear`)."""

from functools import cached_property

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.mrf import kernels
from fstgrad.mrf.arrays import VectorLayout
from fstgrad.mrf.messages.log_domain import LogMessages
from fstgrad.mrf.resources import ThreadRanges
from fstgrad.mrf.scored_graph import ScoredGraph

PARALLEL_NODES = 2000  # with fewer nodes, one thread is used
BLOCK_CELLS = 8192  # message entries per block
LEAST_ARCS = 512  # per block
PARALLEL_BLOCKS = 8  # with fewer blocks, one thread is used


def block_size(labels: int) -> int:
    """Return the number of arcs per block for messages of `labels` numbers."""
    return max(LEAST_ARCS, BLOCK_CELLS // labels)


class LinearMessages:
    """The messages of a graph as plain numbers; the same results as `LogMessages`.

    For models that `grid.floats_can_hold` accepts.  `sweep` returns the largest change, or None if
    a product leaves the float range; then start again with `LogMessages`.
    """

    def __init__(self, model: ScoredGraph, maximum: int, threads: int) -> None:
        self.model, self.maximum = model, maximum
        node, p = model.scores.node, model.potentials
        top = node.max(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            self.node = np.exp(node - top)  # NaN in a dead row fails the range check
        shifts = p.shift.sum() * (model.graph.num_edges if model.shared else 1)
        self.offset = float(top.sum() + shifts)
        self.which = model.graph.leaving & 1 if model.shared else model.graph.leaving
        self.log_norm = empty(model.num_nodes)
        self.node_ranges = ThreadRanges(model.num_nodes, threads, PARALLEL_NODES)
        self.sweeps: _TwoLabelSweeps | _LayoutSweeps = (
            _TwoLabelSweeps if model.num_labels == 2 else _LayoutSweeps
        )(self, threads)

    def sweep(self, damping: float) -> float | None:
        """Compute all messages from the old ones; return the largest change in nats, or None."""
        changes = self.sweeps.sweep(damping)
        return None if min(changes) < 0 else float(max(changes))

    @property
    def messages(self) -> FloatArray:
        """The message into the tail of each arc, from its head, (2E, C), maximum 1.

        Arcs are in the order of `Graph.network`.
        """
        return self.sweeps.messages_by_arc()

    def node_beliefs(self) -> tuple[FloatArray, float] | None:
        """Return node beliefs (I, C) and sum_i (1 - degree_i) log Z_i; None if out of range."""
        self.beliefs, messages = empty_like(self.node), self.messages
        network = self.model.graph.network

        def update(low: int, high: int) -> bool:
            return kernels.bp_linear.beliefs(
                low, high, network, self.node, messages, self.beliefs, self.log_norm
            )

        if not all(self.node_ranges(update)):
            return None
        return self.beliefs, float(((1 - self.model.graph.degree) * self.log_norm).sum())

    def log_edge_normalizers(self) -> float:
        """Return the sum of the log-normalizers of all edge beliefs, in nats.

        Call `node_beliefs` first.  The sum includes the maxima that were subtracted from the
        scores, but not the model's offset.
        """
        exp_edge, network = self.model.potentials.exp_edge, self.model.graph.network
        pairs = kernels.bp_linear.pair_norms(
            network, self.which, exp_edge, self.messages, self.beliefs, self.log_norm
        )
        return self.offset + float(pairs)

    def factor_beliefs(self) -> tuple[FloatArray, float]:
        """Return what `LogMessages` does for a model without larger factors."""
        return np.zeros(0), 0.0

    def edge_beliefs(self, low: int, high: int) -> FloatArray:
        """Return the edge beliefs (high - low, C, C) of a range of edges."""
        return self._arcs.edge_beliefs(low, high)

    @cached_property
    def _arcs(self) -> LogMessages:
        """The same messages as `LogMessages`: by arc, in logs."""
        arcs = LogMessages(self.model, self.maximum, 1)
        leaving = self.model.graph.leaving
        arcs.messages[leaving ^ 1] = np.log(self.messages)  # row a came along the reverse of arc a
        arcs.sum_up()
        return arcs


class _TwoLabelSweeps:
    """The sweeps of a model with two labels, arc by arc."""

    def __init__(self, owner: LinearMessages, threads: int) -> None:
        model, network = owner.model, owner.model.graph.network
        exp_edge = model.potentials.exp_edge
        both = np.stack((exp_edge, exp_edge.transpose(0, 2, 1)), axis=1).reshape(-1, 4)
        self.table = both if model.shared else both[owner.which]  # read in the order of the arcs
        which = owner.which if model.shared else np.arange(len(both))
        self.start, self.mate, self.which = (
            array.astype(np.uint64) for array in (network.start, network.mate, which)
        )
        self.node, self.maximum, self.ranges = owner.node, owner.maximum, owner.node_ranges
        shape = len(owner.which), 2
        self.messages, self.sent, self.fresh = np.ones(shape), np.ones(shape), np.ones(shape)

    def sweep(self, damping: float) -> list[float]:
        """Update all messages; return each band's largest change in nats, -1 if out of range."""

        def update(low: int, high: int) -> float:
            return kernels.bp_linear.sweep_two_labels(
                low, high, self.start, self.mate, self.which, self.node, self.table, damping,
                self.maximum, self.messages, self.sent, self.fresh,
            )  # fmt: skip

        changes = self.ranges(update)
        self.messages, self.fresh = self.fresh, self.messages
        return changes

    def messages_by_arc(self) -> FloatArray:
        """Return the message into each arc's tail, (2E, C)."""
        return self.messages


class _LayoutSweeps:
    """The sweeps of a model with any number of labels, block by block of nodes."""

    def __init__(self, owner: LinearMessages, threads: int) -> None:
        model, graph, labels = owner.model, owner.model.graph, owner.model.num_labels
        exp_edge = model.potentials.exp_edge
        is_asymmetric = bool(model.shared and (exp_edge[0] != exp_edge[0].T).any())
        key = "layout", labels, is_asymmetric
        if key not in graph.cache:
            transposed = (graph.leaving & 1 == 1) & is_asymmetric
            graph.cache[key] = VectorLayout.of(
                graph.network, graph.rank, transposed, labels, block_size(labels)
            )
        layout: VectorLayout = graph.cache[key]
        self.layout, self.maximum, self.shape = layout, owner.maximum, (len(layout.arc), labels)
        self.node, self.table = empty(layout.node.size * labels), exp_edge.reshape(-1)
        kernels.bp_linear.nodes_by_block(layout, owner.node, self.node)
        if not model.shared:
            self.table = empty(2 * exp_edge.size)
            kernels.bp_linear.tables_by_lane(layout, owner.which, exp_edge, self.table)
        self.sent, self.fresh = np.ones(len(layout.arc) * labels), np.ones(len(layout.arc) * labels)
        self.ranges = ThreadRanges(len(layout.block_node) - 1, threads, PARALLEL_BLOCKS)

    def sweep(self, damping: float) -> list[float]:
        """Update all messages; return each band's largest change in nats, -1 if out of range."""

        def update(low: int, high: int) -> float:
            return kernels.bp_linear.sweep(
                low, high, self.layout, self.node, self.table, damping, self.maximum, self.sent,
                self.fresh,
            )  # fmt: skip

        changes = self.ranges(update)
        self.sent, self.fresh = self.fresh, self.sent
        return changes

    def messages_by_arc(self) -> FloatArray:
        """Return the message into each arc's tail, (2E, C)."""
        incoming = empty(self.shape)
        kernels.bp_linear.messages_by_arc(self.layout, self.sent, incoming)
        return incoming
