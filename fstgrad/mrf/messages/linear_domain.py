"""Flooding belief propagation on any graph, in the linear domain (`kernels.bp_linear`)."""

from functools import cached_property

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.mrf import kernels
from fstgrad.mrf.arrays import Lanes
from fstgrad.mrf.messages.log_domain import GraphMessages
from fstgrad.mrf.resources import ThreadRanges
from fstgrad.mrf.scored_graph import ScoredGraph

PARALLEL_NODES = 2000  # with fewer nodes, one thread is used
BLOCK_CELLS = 8192  # message entries per block
LEAST_ARCS = 512  # per block
PARALLEL_BLOCKS = 8  # with fewer blocks, one thread is used


def block_size(labels: int) -> int:
    """Return the number of arcs per block for messages of `labels` numbers."""
    return max(LEAST_ARCS, BLOCK_CELLS // labels)


class WeightMessages:
    """The messages of a graph as plain numbers; the same results as `GraphMessages`.

    For models that `grid.can_hold` accepts.  `sweep` returns the largest change, or None if a
    product leaves the float range; then start again with `GraphMessages`.
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
        self.nodes = ThreadRanges(model.num_nodes, threads, PARALLEL_NODES)
        self.sends: _ByArcs | _ByLanes = (_ByArcs if model.num_labels == 2 else _ByLanes)(
            self, threads
        )

    def sweep(self, damping: float) -> float | None:
        """Compute all messages from the old ones; return the largest change in nats, or None."""
        changes = self.sends.sweep(damping)
        return None if min(changes) < 0 else float(max(changes))

    @property
    def messages(self) -> FloatArray:
        """The message into the tail of each arc, from its head, (2E, C), maximum 1.

        Arcs are in the order of `Graph.network`.
        """
        return self.sends.by_arcs()

    def node_beliefs(self) -> tuple[FloatArray, float] | None:
        """Return node beliefs (I, C) and sum_i (1 - degree_i) log Z_i; None if out of range."""
        self.out, messages = empty_like(self.node), self.messages
        network = self.model.graph.network

        def band(low: int, high: int) -> bool:
            return kernels.bp_linear.beliefs(
                low, high, network, self.node, messages, self.out, self.log_norm
            )

        if not all(self.nodes(band)):
            return None
        return self.out, float(((1 - self.model.graph.degree) * self.log_norm).sum())

    def log_pairs(self) -> float:
        """Return the sum of the log-normalizers of all edge beliefs, in nats.

        Call `node_beliefs` first.  The sum includes the maxima that were subtracted from the
        scores, but not the model's offset.
        """
        exp_edge, network = self.model.potentials.exp_edge, self.model.graph.network
        pairs = kernels.bp_linear.pair_norms(
            network, self.which, exp_edge, self.messages, self.out, self.log_norm
        )
        return self.offset + float(pairs)

    def factor_beliefs(self) -> tuple[FloatArray, float]:
        """Return what `GraphMessages` does for a model without larger factors."""
        return np.zeros(0), 0.0

    def edge_beliefs(self, low: int, high: int) -> FloatArray:
        """Return the edge beliefs (high - low, C, C) of a range of edges."""
        return self._arcs.edge_beliefs(low, high)

    @cached_property
    def _arcs(self) -> GraphMessages:
        """The same messages as `GraphMessages`: by arc, in logs."""
        arcs = GraphMessages(self.model, self.maximum, 1)
        leaving = self.model.graph.leaving
        arcs.messages[leaving ^ 1] = np.log(self.messages)  # row a came along the reverse of arc a
        arcs.sum_up()
        return arcs


class _ByArcs:
    """The sweeps of a model with two labels, arc by arc."""

    def __init__(self, owner: WeightMessages, threads: int) -> None:
        model, network = owner.model, owner.model.graph.network
        exp_edge = model.potentials.exp_edge
        both = np.stack((exp_edge, exp_edge.transpose(0, 2, 1)), axis=1).reshape(-1, 4)
        self.table = both if model.shared else both[owner.which]  # read in the order of the arcs
        which = owner.which if model.shared else np.arange(len(both))
        self.start, self.mate, self.which = (
            array.astype(np.uint64) for array in (network.start, network.mate, which)
        )
        self.node, self.maximum, self.bands = owner.node, owner.maximum, owner.nodes
        shape = len(owner.which), 2
        self.messages, self.sent, self.fresh = np.ones(shape), np.ones(shape), np.ones(shape)

    def sweep(self, damping: float) -> list[float]:
        """Update all messages; return each band's largest change in nats, -1 if out of range."""

        def band(low: int, high: int) -> float:
            return kernels.bp_linear.sweep_two(
                low, high, self.start, self.mate, self.which, self.node, self.table, damping,
                self.maximum, self.messages, self.sent, self.fresh,
            )  # fmt: skip

        changes = self.bands(band)
        self.messages, self.fresh = self.fresh, self.messages
        return changes

    def by_arcs(self) -> FloatArray:
        """Return the message into each arc's tail, (2E, C)."""
        return self.messages


class _ByLanes:
    """The sweeps of a model with any number of labels, block by block of nodes."""

    def __init__(self, owner: WeightMessages, threads: int) -> None:
        model, graph, labels = owner.model, owner.model.graph, owner.model.num_labels
        exp_edge = model.potentials.exp_edge
        turned = bool(model.shared and (exp_edge[0] != exp_edge[0].T).any())
        key = "lanes", labels, turned
        if key not in graph.cache:
            behind = (graph.leaving & 1 == 1) & turned
            graph.cache[key] = Lanes.of(
                graph.network, graph.rank, behind, labels, block_size(labels)
            )
        lanes: Lanes = graph.cache[key]
        self.lanes, self.maximum, self.shape = lanes, owner.maximum, (len(lanes.arc), labels)
        self.node, self.table = empty(lanes.node.size * labels), exp_edge.reshape(-1)
        kernels.bp_linear.nodes_by_block(lanes, owner.node, self.node)
        if not model.shared:
            self.table = empty(2 * exp_edge.size)
            kernels.bp_linear.tables_by_lane(lanes, owner.which, exp_edge, self.table)
        self.sent, self.fresh = np.ones(len(lanes.arc) * labels), np.ones(len(lanes.arc) * labels)
        self.bands = ThreadRanges(len(lanes.cut) - 1, threads, PARALLEL_BLOCKS)

    def sweep(self, damping: float) -> list[float]:
        """Update all messages; return each band's largest change in nats, -1 if out of range."""

        def band(low: int, high: int) -> float:
            return kernels.bp_linear.sweep(
                low, high, self.lanes, self.node, self.table, damping, self.maximum, self.sent,
                self.fresh,
            )  # fmt: skip

        changes = self.bands(band)
        self.sent, self.fresh = self.fresh, self.sent
        return changes

    def by_arcs(self) -> FloatArray:
        """Return the message into each arc's tail, (2E, C)."""
        heard = empty(self.shape)
        kernels.bp_linear.by_arcs(self.lanes, self.sent, heard)
        return heard
