"""Flooding belief propagation on a 4-connected grid, in the linear domain (`kernels.grids`)."""

from functools import cached_property, partial

import numpy as np

from fstgrad.checks import FloatArray
from fstgrad.mrf import kernels
from fstgrad.mrf.messages.arcs import GraphMessages
from fstgrad.mrf.scored_graph import ScoredGraph
from fstgrad.mrf.threads import Bands

PARALLEL_CELLS = 20_000  # with fewer cells (pixels times labels), one thread is used
LARGEST_SPAN = 200.0  # nats, of an edge table


def can_hold(model: ScoredGraph) -> bool:
    """Return whether plain floats (not logs) can hold the messages of a model.

    They can if there is no larger factor, and every edge table is finite and spans less than
    LARGEST_SPAN nats.
    """
    edge = model.edge_stack
    if model.factors.number or model.graph.num_edges == 0:
        return model.factors.number == 0
    with np.errstate(invalid="ignore"):  # a table of -inf alone
        return bool((edge.max(axis=(1, 2)) - edge.min(axis=(1, 2)) < LARGEST_SPAN).all())


class GridMessages:
    """The messages of a grid; the same results as `GraphMessages`, if floats can hold them.

    `sweep` returns the largest change, or None if a product leaves the float range; then start
    again with `GraphMessages`.
    """

    def __init__(self, model: ScoredGraph, maximum: int, threads: int) -> None:
        if model.graph.grid is None:
            raise ValueError("GridMessages needs a model made by ScoredGraph.grid")
        self.model, self.maximum = model, maximum
        height, width = self.shape = model.graph.grid
        size = model.num_labels
        top = model.scores.node.max(axis=1, keepdims=True)
        self.offset = float(top.sum()) + float(self._shifts())
        with np.errstate(invalid="ignore"):
            weights = np.exp(model.scores.node - top)  # NaN in a dead row fails the range check
        self.node = self._planes(weights, height, width)
        self.across, self.down = self._edge_planes()
        self.messages = np.ones((4, height, size, width))
        self.fresh = np.ones((4, height, size, width))
        small = height * width * size < PARALLEL_CELLS
        self.bands = Bands(height, 1 if small else threads)

    def factor_beliefs(self) -> tuple[FloatArray, float]:
        """Return the same as `GraphMessages` for a model without larger factors."""
        return np.empty(0), 0.0

    @staticmethod
    def _planes(rows: FloatArray, height: int, width: int) -> FloatArray:
        """Turn (height * width, ...) into (height, ..., width)."""
        return np.ascontiguousarray(
            np.moveaxis(rows.reshape(height, width, *rows.shape[1:]), 1, -1)
        )

    def _shifts(self) -> float:
        shift = self.model.potentials.shift
        return float(shift.sum() * (self.model.graph.num_edges if self.model.shared else 1))

    def _edge_planes(self) -> tuple[FloatArray, FloatArray]:
        height, width = self.shape
        tables = self.model.potentials.exp_edge
        if self.model.shared:
            shared = tables[:, :, :, None]
            return shared, shared
        cut = height * (width - 1)
        return (
            self._planes(tables[:cut], height, width - 1),
            self._planes(tables[cut:], height - 1, width),
        )

    def sweep(self, damping: float) -> float | None:
        """Compute all messages from the old ones; return the largest change in nats, or None."""

        def band(low: int, high: int) -> float:
            return float(
                kernels.grids.sweep(
                    low,
                    high,
                    self.node,
                    self.across,
                    self.down,
                    damping,
                    self.maximum,
                    self.messages,
                    self.fresh,
                )
            )

        changes = self.bands(band)
        self.messages, self.fresh = self.fresh, self.messages
        return None if min(changes) < 0 else max(changes)

    def node_beliefs(self) -> tuple[FloatArray, float] | None:
        """Return node beliefs (I, C) and sum_i (1 - degree_i) log Z_i; None if out of range."""
        out, log_norm = np.empty_like(self.node), np.empty(self.shape)
        fine = self.bands(
            partial(
                kernels.grids.beliefs,
                node=self.node,
                messages=self.messages,
                out=out,
                log_norm=log_norm,
            )
        )
        if not all(fine):
            return None
        weight = 1 - self.model.graph.degree.reshape(self.shape)
        rows = np.moveaxis(out, 1, 2).reshape(-1, out.shape[1])
        return np.ascontiguousarray(rows), float((weight * log_norm).sum())

    def log_pairs(self) -> float:
        """Return the sum of the log-normalizers of all edge beliefs, in nats.

        It includes the maxima that were subtracted from the scores, but not the model's offset.
        """
        height, width = self.shape
        horizontal, vertical = np.ones((height, width - 1)), np.ones((height - 1, width))
        self.bands(
            partial(
                kernels.grids.pair_norms,
                node=self.node,
                across=self.across,
                down=self.down,
                messages=self.messages,
                horizontal=horizontal,
                vertical=vertical,
            )
        )
        return float(np.log(horizontal).sum() + np.log(vertical).sum()) + self.offset

    def edge_beliefs(self, low: int, high: int) -> FloatArray:
        """Return the edge beliefs (high - low, C, C) of a range of edges."""
        return self._arcs.edge_beliefs(low, high)

    @cached_property
    def _arcs(self) -> GraphMessages:
        """The same messages as `GraphMessages`: by arc, in logs."""
        size = self.model.num_labels
        left, right, up, down = (np.moveaxis(m, 1, 2) for m in self.messages)
        horizontal = np.stack((left[:, 1:], right[:, :-1]), axis=2).reshape(-1, size)
        vertical = np.stack((up[1:], down[:-1]), axis=2).reshape(-1, size)
        arcs = GraphMessages(self.model, self.maximum, 1)
        with np.errstate(divide="ignore"):
            np.log(np.concatenate((horizontal, vertical)), out=arcs.messages)
        arcs.sum_up()
        return arcs
