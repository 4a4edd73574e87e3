"""Flooding belief propagation on a grid, in the linear domain (`kernels.bp_grid`)."""

from collections.abc import Iterator
from functools import cached_property, partial

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.mrf import kernels
from fstgrad.mrf.messages.log_domain import LogMessages
from fstgrad.mrf.resources import ThreadRanges
from fstgrad.mrf.scored_graph import ScoredGraph

PARALLEL_CELLS = 20_000  # with fewer cells (pixels times labels), one thread is used
LARGEST_SPAN = 200.0  # nats, of an edge table


def floats_can_hold(model: ScoredGraph) -> bool:
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
    """The messages of a grid; the same results as `LogMessages`, if floats can hold them.

    `sweep` returns the largest change, or None if a product leaves the float range; then start
    again with `LogMessages`.
    """

    def __init__(self, model: ScoredGraph, maximum: int, threads: int) -> None:
        if model.graph.pixels is None:
            raise ValueError("GridMessages needs a model made by PairwiseMRF.grid")
        self.model, self.maximum = model, maximum
        height, width = self.shape = model.graph.pixels
        self.steps = np.array(model.graph.steps)
        size = model.num_labels
        top = model.scores.node.max(axis=1, keepdims=True)
        self.offset = float(top.sum()) + float(self._shifts())
        with np.errstate(invalid="ignore"):
            weights = np.exp(model.scores.node - top)  # NaN in a dead row fails the range check
        self.node = np.ascontiguousarray(np.moveaxis(weights.reshape(height, width, size), 1, -1))
        self.table = self._tables()
        self.messages = np.ones((2 * len(self.steps), height, size, width))
        self.fresh = np.ones_like(self.messages)
        small = height * width * size < PARALLEL_CELLS
        self.ranges = ThreadRanges(height, 1 if small else threads)

    def factor_beliefs(self) -> tuple[FloatArray, float]:
        """Return the same as `LogMessages` for a model without larger factors."""
        return np.zeros(0), 0.0

    def _shifts(self) -> float:
        shift = self.model.potentials.shift
        return float(shift.sum() * (self.model.graph.num_edges if self.model.shared else 1))

    def _directions(self) -> Iterator[tuple[slice, int, int, int]]:
        """Yield (edges of the direction, rows, columns, step to the right) of each direction."""
        height, width = self.shape
        low = 0
        for down, right in self.steps.tolist():
            rows, columns = height - down, width - abs(right)
            yield slice(low, low + rows * columns), rows, columns, right
            low += rows * columns

    def _tables(self) -> FloatArray:
        """Return the weights of the edges as `kernels.bp_grid` reads them."""
        tables = self.model.potentials.exp_edge
        size = self.model.num_labels
        if self.model.shared:
            return tables.reshape(1, 1, size, size, 1)
        height, width = self.shape
        room = width + 1 - width % 2  # not a power of two: else rows share one set of the cache
        out = np.ones((len(self.steps), height, size, size, room))
        for d, (edges, rows, columns, _) in enumerate(self._directions()):
            row_tables = tables[edges].reshape(rows, columns, size, size)
            out[d, :rows, :, :, :columns] = np.moveaxis(row_tables, 1, -1)
        return out

    def sweep(self, damping: float) -> float | None:
        """Compute all messages from the old ones; return the largest change in nats, or None."""

        def update(low: int, high: int) -> float:
            return float(
                kernels.bp_grid.sweep(
                    low, high, self.steps, self.node, self.table, damping, self.maximum,
                    self.messages, self.fresh,
                )
            )  # fmt: skip

        changes = self.ranges(update)
        self.messages, self.fresh = self.fresh, self.messages
        return None if min(changes) < 0 else max(changes)

    def node_beliefs(self) -> tuple[FloatArray, float] | None:
        """Return node beliefs (I, C) and sum_i (1 - degree_i) log Z_i; None if out of range."""
        out, log_norm = empty_like(self.node), empty(self.shape)
        in_range = self.ranges(
            partial(
                kernels.bp_grid.beliefs,
                node=self.node,
                messages=self.messages,
                out=out,
                log_norm=log_norm,
            )
        )
        if not all(in_range):
            return None
        weight = 1 - self.model.graph.degree.reshape(self.shape)
        rows = np.moveaxis(out, 1, 2).reshape(-1, out.shape[1])
        return np.ascontiguousarray(rows), float((weight * log_norm).sum())

    def log_edge_normalizers(self) -> float:
        """Return the sum of the log-normalizers of all edge beliefs, in nats.

        It includes the maxima that were subtracted from the scores, but not the model's offset.
        """
        norms = np.ones((len(self.steps), *self.shape))
        self.ranges(
            partial(
                kernels.bp_grid.pair_norms,
                steps=self.steps,
                node=self.node,
                table=self.table,
                messages=self.messages,
                out=norms,
            )
        )
        return float(np.log(norms).sum()) + self.offset

    def edge_beliefs(self, low: int, high: int) -> FloatArray:
        """Return the edge beliefs (high - low, C, C) of a range of edges."""
        return self._arcs.edge_beliefs(low, high)

    @cached_property
    def _arcs(self) -> LogMessages:
        """The same messages as `LogMessages`: by arc, in logs."""
        size = self.model.num_labels
        messages = empty((2 * self.model.graph.num_edges, size))
        by_edge = messages.reshape(-1, 2, size)
        for d, (edges, rows, columns, right) in enumerate(self._directions()):
            ahead, back = np.moveaxis(self.messages[2 * d : 2 * d + 2], 2, -1)
            first, second = max(0, -right), max(0, right)
            ahead = ahead[self.shape[0] - rows :, second : second + columns]
            by_edge[edges, 0] = ahead.reshape(-1, size)
            by_edge[edges, 1] = back[:rows, first : first + columns].reshape(-1, size)
        arcs = LogMessages(self.model, self.maximum, 1)
        with np.errstate(divide="ignore"):
            np.log(messages, out=arcs.messages)
        arcs.sum_up()
        return arcs
