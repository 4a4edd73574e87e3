"""Exact inference by variable elimination in a bucket tree, on graphs of small tree width.

On the way up, the table of a bucket is the product of its score tables and its children's messages;
summing out its node v gives the message to its parent.  On the way down, the table is computed
again and normalized to P(v | separator), and the belief of the bucket is
P(separator) * P(v | separator).  Beliefs are products of probabilities, so hard zeros need no
special care.

If the messages do not fit in memory together, they are computed twice: once on the way up, and
again on the way down, one segment of buckets at a time.

Source: Koller and Friedman, Probabilistic Graphical Models (2009), chapters 9 and 10.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.uninitialized import empty
from fstgrad.mrf import kernels
from fstgrad.mrf.exact.bucket_tree import BucketTree, ScoreLayout, SegmentedProgram
from fstgrad.mrf.exact.plan import ELIMINATION_MEMORY, Plan, make_plan
from fstgrad.mrf.resources import NO_LIMIT, Budget
from fstgrad.mrf.scored_graph import ScoredGraph, Table, infeasible

# If its tables have at most this many cells, the plan for all labels is also used with evidence.
REUSED_CELLS = 1 << 21


class UpwardSweep(NamedTuple):
    """The result of a sweep up: log Z without the model's offset (nats), and the messages.

    in_logs : whether `weights` are scores and `messages` logarithms.  The arrays are those of
    `kernels.buckets.sweep_up`.
    """

    value: float
    segmented: SegmentedProgram
    in_logs: bool
    weights: FloatArray
    smallest: FloatArray
    least: FloatArray
    messages: FloatArray

    def backwards(self) -> Iterator[tuple[int, int]]:
        """Yield the segments (low, high) from the last to the first, with messages recomputed."""
        program, segments = self.segmented
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
    """The exact engine of a model on any graph; results exclude the model's offset.

    Parameters
    ----------
    model : ScoredGraph
    max_memory : int
        Limit on the tables and messages, in bytes.
    budget : Budget
        Limit on the search for an order.

    Raises
    ------
    MemoryLimitError
        The model needs more memory; raised before any table is built.
    InfeasibleError
        A node has no allowed label.
    SpentError
        The budget is spent before an order is found.
    """

    def __init__(
        self, model: ScoredGraph, max_memory: int = ELIMINATION_MEMORY, budget: Budget = NO_LIMIT
    ) -> None:
        self.model = model
        self.max_memory, self.budget = max_memory, budget
        alive = model.scores.node > -np.inf
        if not alive.any(axis=1).all():
            raise infeasible()
        self.tree = self._bucket_tree(alive)

    @property
    def plan(self) -> Plan:
        """The order of elimination and its cliques."""
        return self.tree.plan

    def _bucket_tree(self, alive: BoolArray) -> BucketTree:
        """Return the bucket tree, for all labels or the range of allowed ones, cached.

        alive : (I, C) bool, the allowed labels.
        """
        cache = self.model.graph.cache
        size = self.model.num_labels
        low = alive.argmax(axis=1)
        high = size - alive[:, ::-1].argmax(axis=1)
        all_labels = tuple(self.model.labels_per_node.tolist())
        what = "elimination", self.model.shared, self.max_memory
        all_key = *what, (0,) * len(low), all_labels
        key = *what, tuple(low.tolist()), tuple(high.tolist())
        if all_key in cache and sum(cache[all_key].plan.cells) <= REUSED_CELLS:
            key = all_key
            low, high = np.zeros_like(low), self.model.labels_per_node
        if key not in cache:
            sizes = (high - low).tolist()
            plan = make_plan(self.model.interactions, sizes, self.max_memory, self.budget)
            cache[key] = BucketTree(plan, ScoreLayout.of(self.model), low)
        tree: BucketTree = cache[key]
        return tree

    def _sweep_up(self, segmented: SegmentedProgram) -> UpwardSweep:
        """Return log Z and the messages of a program after a sweep up through all segments."""
        program = segmented.program
        self.plan.require(self.tree.needed(program), self.max_memory)
        weights, smallest, offset, fits = self.tree.weights(self.model)
        messages, least = empty(int(program.message[-1])), np.ones(len(self.plan.order))
        buckets = len(self.plan.order)
        if fits:
            value, fits = kernels.buckets.sweep_up(
                program, 0, buckets, False, weights, smallest, least, messages
            )
            value += offset
        if not fits:
            weights = self.tree.scores(self.model)
            value = kernels.buckets.sweep_up_logs(program, 0, buckets, False, weights, 0, messages)
        if value == -np.inf:
            raise infeasible()
        return UpwardSweep(float(value), segmented, not fits, weights, smallest, least, messages)

    def log_partition(self) -> float:
        """Return log Z in nats."""
        short = SegmentedProgram(self.tree.upward_program, [(0, len(self.plan.order))])
        return self._sweep_up(short).value

    def marginals(self) -> Table:
        """Return marginals of nodes (I, C), edges (E, C, C) and larger factors (cells,)."""
        upward = self._sweep_up(self.tree.segmented(self.max_memory))
        out = np.zeros(self.tree.layout.marginal_cells)
        for low, high in upward.backwards():
            kernels.buckets.sweep_down(
                upward.segmented.program, low, high, upward.in_logs, upward.weights,
                upward.messages, out,
            )  # fmt: skip
        return self.tree.layout.table(out)

    def tangents(self, direction: Table) -> Table:
        """Return the derivative of the marginals along `direction`.

        direction : a Table of finite numbers, shaped like the scores or like the marginals.
        """
        program = self.tree.program
        upward = self._sweep_up(SegmentedProgram(program, [(0, len(self.plan.order))]))
        out = np.zeros(self.tree.layout.marginal_cells)
        moved = self.tree.layout.flat(direction)
        kernels.buckets.tangents(
            program, upward.in_logs, upward.weights, upward.messages, moved, out
        )
        return self.tree.layout.table(out)

    def _conditionals(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield each bucket, last first, with P(node | separator), (separator states, labels)."""
        upward = self._sweep_up(self.tree.segmented(self.max_memory))
        program = upward.segmented.program
        size = kernels.tables.most_blocks(program)
        scratch = empty(size, np.int64), empty(size, np.int64)
        for low, high in upward.backwards():
            for k in range(high - 1, low - 1, -1):
                table = empty(self.plan.cells[k])
                kernels.buckets.conditional(
                    program, k, upward.in_logs, upward.weights, upward.messages, table, *scratch
                )
                yield k, table.reshape(-1, self.plan.sizes[self.plan.order[k]])

    def sample(self, k: int, rng: np.random.Generator) -> IntArray:
        """Return k independent labelings (k, I) int64, drawn from the last node eliminated on."""
        chosen = np.zeros((k, self.model.num_nodes), np.int64)
        for bucket, table in self._conditionals():
            cumulative = table[self._rows(bucket, chosen)].cumsum(axis=1)
            uniform = rng.random(k) * cumulative[:, -1]
            chosen[:, self.plan.order[bucket]] = (uniform[:, None] >= cumulative).sum(axis=1)
        return chosen + self.tree.low

    def mode(self) -> IntArray:
        """Return a labeling (I,) int64 of the highest score."""
        segmented = self.tree.segmented(self.max_memory)
        program = segmented.program
        self.plan.require(self.tree.needed(program), self.max_memory)
        scores, messages = self.tree.scores(self.model), empty(int(program.message[-1]))
        if (
            kernels.buckets.sweep_up_logs(
                program, 0, len(self.plan.order), False, scores, 1, messages
            )
            == -np.inf
        ):
            raise infeasible()
        labels = np.zeros(self.model.num_nodes, np.int64)
        for low, high in reversed(segmented.segments):
            if len(segmented.segments) > 1:
                kernels.buckets.sweep_up_logs(program, low, high, True, scores, 1, messages)
            kernels.buckets.best_labels(
                program, low, high, self.tree.cliques, scores, messages, labels
            )
        return np.asarray(labels + self.tree.low, np.int64)

    def _rows(self, k: int, chosen: IntArray) -> IntArray:
        """Return the flat index (samples,) of the separator state of bucket k in each sample."""
        rows = np.zeros(len(chosen), np.int64)
        for v, size in zip(self.plan.cliques[k][:-1], self.plan.shape(k)[:-1], strict=True):
            rows = rows * size + chosen[:, v]
        return rows
