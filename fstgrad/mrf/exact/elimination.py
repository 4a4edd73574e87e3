"""Exact inference on any graph that is narrow enough: variable elimination in a bucket tree.

Going up, the table of a bucket is the product of its score tables and its children's messages; its
node is summed out, and what stays is P(v | separator).  Going down, the belief of a bucket is
P(separator) * P(v | separator): products of probabilities, with no division and no difference of
logarithms, so hard zeros need no care.

Source: Koller and Friedman, Probabilistic Graphical Models (2009), chapters 9 and 10.
"""

from collections.abc import Iterator

import numpy as np

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.mrf.exact.plan import DEFAULT_BYTES, Plan, make_plan
from fstgrad.mrf.exact.wiring import Layout, Wiring
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible
from fstgrad.mrf.table import Table

# A plan for all labels serves every evidence while its tables have at most this many cells.
KEPT_CELLS = 1 << 21


class Elimination:
    """The exact engine of a model on any graph.

    Parameters
    ----------
    model : ScoredGraph
    max_memory : int
        Limit on the tables; a model that needs more raises MemoryLimitError before any is built.
    """

    def __init__(self, model: ScoredGraph, max_memory: int = DEFAULT_BYTES) -> None:
        self.model = model
        self.max_memory = max_memory
        alive = model.scores.node > -np.inf
        if not alive.any(axis=1).all():
            raise infeasible()
        self.wiring = self._wiring(alive)
        self.in_logs = False

    @property
    def plan(self) -> Plan:
        """The order of elimination and its cliques."""
        return self.wiring.plan

    def _wiring(self, alive: BoolArray) -> Wiring:
        """Return the wired bucket tree: the one for all labels, or one for those that are alive."""
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
            plan = make_plan(self.model.interactions, (high - low).tolist(), self.max_memory)
            cache[key] = Wiring(plan, Layout.of(self.model), low)
        found: Wiring = cache[key]
        return found

    def _solved(self, *, keep: bool) -> tuple[float, FloatArray]:
        """Return log Z and the messages; without `keep` they overwrite each other."""
        from fstgrad.mrf.kernels.buckets import sweep_up, sweep_up_logs

        program = self.wiring.program if keep else self.wiring.short_program
        self.plan.require(8 * (int(program.message[-1]) + max(self.plan.cells)), self.max_memory)
        weights, smallest, offset, fits = self.wiring.weights(self.model)
        messages = np.empty(int(program.message[-1]))
        if fits:
            value, fits = sweep_up(program, weights, smallest, messages)
            value += offset
        if not fits:
            scores = self.wiring.scores(self.model)
            nowhere = np.empty(0, np.int32)
            value = sweep_up_logs(program, scores, 0, messages, nowhere)
        self.in_logs = not fits
        if value == -np.inf:
            raise infeasible()
        return float(value), messages

    @property
    def _inputs(self) -> FloatArray:
        """What the tables are filled with: logs or weights."""
        if self.in_logs:
            return self.wiring.scores(self.model)
        return self.wiring.weights(self.model)[0]

    def log_partition(self) -> float:
        """Return log Z in nats."""
        return self._solved(keep=False)[0]

    def marginals(self) -> Table:
        """Return marginals of nodes, edges and factors."""
        from fstgrad.mrf.kernels.buckets import sweep_down

        messages = self._solved(keep=True)[1]
        out = np.zeros(self.wiring.layout.marginal_cells)
        sweep_down(self.wiring.program, self.in_logs, self._inputs, messages, out)
        return self.wiring.layout.table(out)

    def tangents(self, direction: Table) -> Table:
        """Return the derivative of the marginals along `direction`, a table of finite numbers."""
        from fstgrad.mrf.kernels.buckets import tangents

        messages = self._solved(keep=True)[1]
        out = np.zeros(self.wiring.layout.marginal_cells)
        moved = self.wiring.layout.flat(direction)
        tangents(self.wiring.program, self.in_logs, self._inputs, messages, moved, out)
        return self.wiring.layout.table(out)

    def _conditionals(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield bucket k and P(node | separator), (separator states, labels), last one first."""
        from fstgrad.mrf.kernels.buckets import conditional
        from fstgrad.mrf.kernels.tables import most_blocks

        messages, program = self._solved(keep=True)[1], self.wiring.program
        size = most_blocks(program)
        scratch = np.empty(size, np.int64), np.empty(size, np.int64)
        inputs = self._inputs
        for k in range(len(self.plan.order) - 1, -1, -1):
            table = np.empty(self.plan.cells[k])
            conditional(program, k, self.in_logs, inputs, messages, table, *scratch)
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
        from fstgrad.mrf.kernels.buckets import sweep_up_logs

        program = self.wiring.program
        cells = int(program.message[-1])
        self.plan.require(12 * cells + 8 * max(self.plan.cells), self.max_memory)
        best = np.empty(cells, np.int32)
        scores = self.wiring.scores(self.model)
        if sweep_up_logs(program, scores, 1, np.empty(cells), best) == -np.inf:
            raise infeasible()
        chosen = np.zeros((1, self.model.num_nodes), np.int64)
        for k in range(len(self.plan.order) - 1, -1, -1):
            at = program.message[k] + self._rows(k, chosen)
            chosen[:, self.plan.order[k]] = best[at]
        labels: IntArray = chosen[0] + self.wiring.low
        return labels

    def _rows(self, k: int, chosen: IntArray) -> IntArray:
        """Return the flat index of each sample's separator."""
        rows = np.zeros(len(chosen), np.int64)
        for v, size in zip(self.plan.cliques[k][:-1], self.plan.shape(k)[:-1], strict=True):
            rows = rows * size + chosen[:, v]
        return rows
