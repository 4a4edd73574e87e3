"""Exact inference on any graph that is narrow enough: variable elimination in a bucket tree.

On the way up, the table of a bucket is the product of its score tables and its children's messages.
Its node is summed out, and P(v | separator) is stored.  On the way down, the belief of a bucket is
P(separator) * P(v | separator).  These are products of probabilities, without divisions or
differences of logarithms, so hard zeros need no special care.

Messages that would not fit in memory together are computed twice: once on the way up, and again on
the way down, one segment of buckets at a time.

Source: Koller and Friedman, Probabilistic Graphical Models (2009), chapters 9 and 10.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.mrf import kernels
from fstgrad.mrf.budget import ENDLESS, Budget
from fstgrad.mrf.exact.plan import DEFAULT_BYTES, Plan, make_plan
from fstgrad.mrf.exact.wiring import Folded, Layout, Wiring
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible
from fstgrad.mrf.table import Table

# A plan for all labels serves every evidence while its tables have at most this many cells.
KEPT_CELLS = 1 << 21


class Solved(NamedTuple):
    """Log Z and the messages of a sweep up."""

    value: float
    folded: Folded
    in_logs: bool
    weights: FloatArray
    smallest: FloatArray
    least: FloatArray
    messages: FloatArray

    def backwards(self) -> Iterator[tuple[int, int]]:
        """Yield the segments from the last one, each with its messages in place."""
        program, segments = self.folded
        for low, high in reversed(segments):
            if len(segments) > 1 and self.in_logs:
                kernels.buckets.sweep_up_logs(
                    program, low, high, True, self.weights, 0, self.messages
                )
            elif len(segments) > 1:
                kernels.buckets.sweep_up(
                    program, low, high, True, self.weights, self.smallest, self.least,
                    self.messages,
                )  # fmt: skip
            yield low, high


class Elimination:
    """The exact engine of a model on any graph.

    Parameters
    ----------
    model : ScoredGraph
    max_memory : int
        Limit on the tables in bytes; a model that needs more raises MemoryLimitError before any
        table is built.
    budget : Budget
        Limit on the search for an order; SpentError if it is spent before an order is found.
    """

    def __init__(
        self, model: ScoredGraph, max_memory: int = DEFAULT_BYTES, budget: Budget = ENDLESS
    ) -> None:
        self.model = model
        self.max_memory, self.budget = max_memory, budget
        alive = model.scores.node > -np.inf
        if not alive.any(axis=1).all():
            raise infeasible()
        self.wiring = self._wiring(alive)

    @property
    def plan(self) -> Plan:
        """The order of elimination and its cliques."""
        return self.wiring.plan

    def _wiring(self, alive: BoolArray) -> Wiring:
        """Return the wired bucket tree, for all labels or only for those that are allowed."""
        cache = self.model.graph.cache
        size = self.model.num_labels
        low = alive.argmax(axis=1)
        high = size - alive[:, ::-1].argmax(axis=1)
        all_labels = tuple(self.model.labels_per_node.tolist())
        what = "elimination", self.model.shared, self.max_memory
        whole = *what, (0,) * len(low), all_labels
        key = *what, tuple(low.tolist()), tuple(high.tolist())
        if whole in cache and sum(cache[whole].plan.cells) <= KEPT_CELLS:
            key = whole
            low, high = np.zeros_like(low), self.model.labels_per_node
        if key not in cache:
            sizes = (high - low).tolist()
            plan = make_plan(self.model.interactions, sizes, self.max_memory, self.budget)
            cache[key] = Wiring(plan, Layout.of(self.model), low)
        found: Wiring = cache[key]
        return found

    def _solved(self, folded: Folded) -> Solved:
        """Return log Z and the messages of a program, segment after segment."""
        program = folded.program
        self.plan.require(self.wiring.needed(program), self.max_memory)
        weights, smallest, offset, fits = self.wiring.weights(self.model)
        messages, least = np.empty(int(program.message[-1])), np.ones(len(self.plan.order))
        buckets = len(self.plan.order)
        if fits:
            value, fits = kernels.buckets.sweep_up(
                program, 0, buckets, False, weights, smallest, least, messages
            )
            value += offset
        if not fits:
            weights = self.wiring.scores(self.model)
            value = kernels.buckets.sweep_up_logs(program, 0, buckets, False, weights, 0, messages)
        if value == -np.inf:
            raise infeasible()
        return Solved(float(value), folded, not fits, weights, smallest, least, messages)

    def log_partition(self) -> float:
        """Return log Z in nats."""
        short = Folded(self.wiring.short_program, [(0, len(self.plan.order))])
        return self._solved(short).value

    def marginals(self) -> Table:
        """Return marginals of nodes, edges and factors."""
        found = self._solved(self.wiring.folded(self.max_memory))
        out = np.zeros(self.wiring.layout.marginal_cells)
        for low, high in found.backwards():
            kernels.buckets.sweep_down(
                found.folded.program, low, high, found.in_logs, found.weights, found.messages, out
            )
        return self.wiring.layout.table(out)

    def tangents(self, direction: Table) -> Table:
        """Return the derivative of the marginals along `direction`, a table of finite numbers."""
        program = self.wiring.program
        found = self._solved(Folded(program, [(0, len(self.plan.order))]))
        out = np.zeros(self.wiring.layout.marginal_cells)
        moved = self.wiring.layout.flat(direction)
        kernels.buckets.tangents(program, found.in_logs, found.weights, found.messages, moved, out)
        return self.wiring.layout.table(out)

    def _conditionals(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield bucket k and P(node | separator), (separator states, labels), last one first."""
        found = self._solved(self.wiring.folded(self.max_memory))
        program = found.folded.program
        size = kernels.tables.most_blocks(program)
        scratch = np.empty(size, np.int64), np.empty(size, np.int64)
        for low, high in found.backwards():
            for k in range(high - 1, low - 1, -1):
                table = np.empty(self.plan.cells[k])
                kernels.buckets.conditional(
                    program, k, found.in_logs, found.weights, found.messages, table, *scratch
                )
                yield k, table.reshape(-1, self.plan.sizes[self.plan.order[k]])

    def sample(self, k: int, rng: np.random.Generator) -> IntArray:
        """Return k labelings, each drawn from the last eliminated node to the first."""
        chosen = np.zeros((k, self.model.num_nodes), np.int64)
        for bucket, table in self._conditionals():
            cumulative = table[self._rows(bucket, chosen)].cumsum(axis=1)
            uniform = rng.random(k) * cumulative[:, -1]
            chosen[:, self.plan.order[bucket]] = (uniform[:, None] >= cumulative).sum(axis=1)
        return chosen + self.wiring.low

    def mode(self) -> IntArray:
        """Return a labeling of the highest score."""
        folded = self.wiring.folded(self.max_memory)
        program = folded.program
        self.plan.require(self.wiring.needed(program), self.max_memory)
        scores, messages = self.wiring.scores(self.model), np.empty(int(program.message[-1]))
        if (
            kernels.buckets.sweep_up_logs(
                program, 0, len(self.plan.order), False, scores, 1, messages
            )
            == -np.inf
        ):
            raise infeasible()
        labels = np.zeros(self.model.num_nodes, np.int64)
        for low, high in reversed(folded.segments):
            if len(folded.segments) > 1:
                kernels.buckets.sweep_up_logs(program, low, high, True, scores, 1, messages)
            kernels.buckets.best_labels(
                program, low, high, self.wiring.cliques, scores, messages, labels
            )
        return np.asarray(labels + self.wiring.low, np.int64)

    def _rows(self, k: int, chosen: IntArray) -> IntArray:
        """Return the flat index of each sample's separator."""
        rows = np.zeros(len(chosen), np.int64)
        for v, size in zip(self.plan.cliques[k][:-1], self.plan.shape(k)[:-1], strict=True):
            rows = rows * size + chosen[:, v]
        return rows
