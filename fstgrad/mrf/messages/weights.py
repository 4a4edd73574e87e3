"""Flooding belief propagation on any graph, as products of weights."""

from functools import cached_property

import numpy as np

from fstgrad.checks import FloatArray
from fstgrad.mrf import kernels
from fstgrad.mrf.arrays import Groups
from fstgrad.mrf.messages.arcs import GraphMessages
from fstgrad.mrf.scored_graph import ScoredGraph
from fstgrad.mrf.threads import Bands

PARALLEL_NODES = 2000
GROUP = 128  # arcs
PARALLEL_GROUPS = 50


class WeightMessages:
    """The messages of a graph as plain numbers; the same answers as `GraphMessages`.

    For models that `grid.can_hold` accepts.  `sweep` returns the largest change, or None
    when a product leaves the float range: then start again with `GraphMessages`.
    """

    def __init__(self, model: ScoredGraph, maximum: int, threads: int) -> None:
        self.model, self.maximum = model, maximum
        node, p = model.scores.node, model.potentials
        top = node.max(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            self.node = np.exp(node - top)  # NaN in a dead row fails the range check
        shifts = p.shift.sum() * (model.graph.num_edges if model.shared else 1)
        self.offset = float(top.sum() + shifts)
        arcs, network = model.graph.leaving, model.graph.network
        self.which = arcs & 1 if model.shared else arcs
        self.messages = np.ones((len(arcs), model.num_labels))
        self.fresh = np.ones_like(self.messages)
        self.sent: FloatArray = np.ones_like(self.messages)
        self.log_norm = np.empty(model.num_nodes)
        self.nodes = Bands(model.num_nodes, threads, PARALLEL_NODES)
        if model.num_labels == 2:
            both = np.stack((p.exp_edge, p.exp_edge.transpose(0, 2, 1)), axis=1)
            self.table: FloatArray = both.reshape(-1, 4)
            ends = (network.start, network.mate, self.which)
            self.start, self.mate, self.table_of = (a.astype(np.uint64) for a in ends)
            return
        self.arcs = Groups.of(network, self.which % 2 == 1, GROUP)
        self.table = p.exp_edge.reshape(-1)
        if not model.shared:
            self.table = np.empty(2 * self.table.size)
            kernels.weights.tables_by_group(self.arcs, self.which, p.exp_edge, self.table)
        self.sent = self.sent.reshape(-1)
        self.groups = Bands(len(self.arcs.ahead), threads, PARALLEL_GROUPS)

    def sweep(self, damping: float) -> float | None:
        """Update all messages once."""

        def band_of_two(low: int, high: int) -> float:
            return kernels.weights.sweep_two(
                low, high, self.start, self.mate, self.table_of, self.node, self.table,
                damping, self.maximum, self.messages, self.sent, self.fresh,
            )  # fmt: skip

        def band(low: int, high: int) -> float:
            return kernels.weights.sweep(
                low, high, self.arcs, self.node, self.table, damping, self.maximum,
                self.messages, self.sent, self.fresh,
            )  # fmt: skip

        changes = self.nodes(band_of_two) if self.model.num_labels == 2 else self.groups(band)
        self.messages, self.fresh = self.fresh, self.messages
        return None if min(changes) < 0 else float(max(changes))

    def node_beliefs(self) -> tuple[FloatArray, float] | None:
        """Return node beliefs (I, C) and the sum over i of (1 - degree_i) log Z_i."""
        self.out = np.empty_like(self.node)
        network = self.model.graph.network

        def band(low: int, high: int) -> bool:
            return kernels.weights.beliefs(
                low, high, network, self.node, self.messages, self.out, self.log_norm
            )

        if not all(self.nodes(band)):
            return None
        return self.out, float(((1 - self.model.graph.degree) * self.log_norm).sum())

    def log_pairs(self) -> float:
        """Return the sum of the log-normalizers of all edge beliefs."""
        exp_edge, network = self.model.potentials.exp_edge, self.model.graph.network
        pairs = kernels.weights.pair_norms(
            network, self.which, exp_edge, self.messages, self.out, self.log_norm
        )
        return self.offset + float(pairs)

    def factor_beliefs(self) -> tuple[FloatArray, float]:
        """Return what `GraphMessages` does for a model without larger factors."""
        return np.empty(0), 0.0

    def edge_beliefs(self, low: int, high: int) -> FloatArray:
        """Return the edge beliefs (high - low, C, C) of a range of edges."""
        return self._arcs.edge_beliefs(low, high)

    @cached_property
    def _arcs(self) -> GraphMessages:
        """The messages arc by arc, in logs."""
        arcs = GraphMessages(self.model, self.maximum, 1)
        leaving = self.model.graph.leaving
        arcs.messages[leaving ^ 1] = np.log(self.messages)  # row a is what arc a's tail hears
        arcs.sum_up()
        return arcs
