"""Loopy belief propagation on any graph, in the log domain."""

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.mrf import kernels
from fstgrad.mrf.arrays import ForestScores, Potentials
from fstgrad.mrf.messages.tree_cover import TreeBound, TreeCover
from fstgrad.mrf.resources import NO_LIMIT, Budget, ThreadRanges
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible

PARALLEL_ARCS = 2000
DIVERGED = 1e3  # a message larger than this times the largest span of a table does not converge


class LogMessages:
    """The messages (2E, C) of a model, in logs with maximum 0, and their updates.

    Parameters
    ----------
    model : ScoredGraph
    maximum : 0 or 1
        1 for max-product.
    threads : int
    rho : (E + slots,) float64, optional
        For tree-reweighted message passing: the share of the trees that contain each edge, then
        each link between a larger factor and one of its nodes.  By default all are 1: belief
        propagation.

    Notes
    -----
    Tree-reweighted messages may diverge if many larger factors share nodes.  They are then reset
    to 0, and the damping is raised (see `sweep`).
    """

    def __init__(
        self, model: ScoredGraph, maximum: int, threads: int, rho: FloatArray | None = None
    ) -> None:
        self.model, self.maximum, graph = model, maximum, model.graph
        self.limit, self.least_damping = np.inf, 0.0
        if rho is not None and model.factors.number:
            self.limit = DIVERGED * (1.0 + _largest_span(model)) / float(rho.min())
        if rho is None:
            self.rho, self.potentials = np.ones(graph.num_edges), model.potentials
            self.link_rho = np.ones(len(model.factors.scope))
        else:
            self.rho, self.link_rho = np.split(rho, [graph.num_edges])
            edge = np.broadcast_to(model.edge_stack, (len(self.rho), *model.edge_stack.shape[1:]))
            with np.errstate(over="ignore"):  # masks near the least float become -inf
                edge = edge / self.rho[:, None, None]
            edge.flags.writeable = False  # as the scores are: kernels have the same signature
            self.potentials = Potentials.of(edge)
        self.messages = np.zeros((2 * graph.num_edges, model.num_labels))
        self.fresh = empty_like(self.messages)
        self.factor_to_variable = np.zeros((len(model.factors.scope), model.num_labels))
        self.fresh_factor_to_variable = empty_like(self.factor_to_variable)
        self.total = empty_like(model.scores.node)
        self.node_ranges = ThreadRanges(graph.num_nodes, threads, PARALLEL_ARCS)
        self.arc_ranges = ThreadRanges(2 * graph.num_edges, threads, PARALLEL_ARCS)
        self.factor_ranges = ThreadRanges(model.factors.number, threads)

    def sum_up(self) -> None:
        """Recompute the totals from the messages; raise InfeasibleError if a node has no label."""
        outgoing, node = self.model.graph.outgoing, self.model.scores.node

        def update(low: int, high: int) -> None:
            kernels.bp_log.sum_messages(
                low, high, outgoing, node, self.rho, self.messages, self.total
            )

        self.node_ranges(update)
        if self.model.factors.number:
            kernels.bp_factors.add_messages(
                self.model.factors, self.link_rho, self.factor_to_variable, self.total
            )
        if (self.total.max(axis=1) == -np.inf).any():
            raise infeasible()

    def sweep(self, damping: float) -> float:
        """Compute all messages from the old ones; return the largest change in nats.

        The change is |new - old| before damping.  If a tree-reweighted message exceeds the limit,
        all messages are reset to 0, and from then on the damping is at least (1 + damping) / 2.
        Raises InfeasibleError if no labeling is allowed.
        """
        self.sum_up()
        damping = max(damping, self.least_damping)
        source, factors = self.model.graph.source, self.model.factors

        def update(low: int, high: int) -> float:
            return kernels.bp_log_vectorized.flood(
                low, high, source, self.total, self.potentials, self.messages, damping,
                self.maximum, self.fresh,
            )  # fmt: skip

        def update_factors(low: int, high: int) -> float:
            return kernels.bp_factors.flood(
                low, high, factors, self.link_rho, self.total, self.factor_to_variable, damping,
                self.maximum, self.fresh_factor_to_variable,
            )  # fmt: skip

        changes = self.arc_ranges(update)
        if factors.number:
            changes = changes + self.factor_ranges(update_factors)
        if min(changes) < 0:
            raise infeasible()
        self.messages, self.fresh = self.fresh, self.messages
        old, self.factor_to_variable = self.factor_to_variable, self.fresh_factor_to_variable
        self.fresh_factor_to_variable = old
        if max(changes) > self.limit and self._have_grown():
            self.messages[:], self.factor_to_variable[:] = 0.0, 0.0
            self.least_damping = (1.0 + damping) / 2.0
        return float(max(changes))

    def _have_grown(self) -> bool:
        """Return whether a finite message entry exceeds the limit; hard zeros do not count."""
        return any(
            (np.abs(messages[np.isfinite(messages)]) > self.limit).any()
            for messages in (self.messages, self.factor_to_variable)
        )

    def node_beliefs(self) -> tuple[FloatArray, float]:
        """Return node beliefs (I, C) and sum_i (1 - sum of rho over edges and links of i) log Z_i.

        log Z_i is the log-normalizer of the belief of node i, in nats.
        """
        self.sum_up()
        graph, factors = self.model.graph, self.model.factors
        node, log_norm = empty_like(self.total), empty(graph.num_nodes)
        kernels.bp_log.node_beliefs(self.total, node, log_norm)
        degree = np.bincount(graph.source, np.repeat(self.rho, 2), minlength=graph.num_nodes)
        degree = degree + np.bincount(factors.scope, self.link_rho, minlength=graph.num_nodes)
        return node, float(((1 - degree) * log_norm).sum())

    def factor_beliefs(self) -> tuple[FloatArray, float]:
        """Return beliefs (cells,) of the larger factors and the sum of their log-normalizers."""
        out = empty(len(self.model.factors.table))
        if len(out) == 0:
            return out, 0.0
        return out, float(
            kernels.bp_factors.factor_beliefs(
                self.model.factors, self.link_rho, self.total, self.factor_to_variable, out
            )
        )

    def tree_bound(self, cover: TreeCover, budget: Budget = NO_LIMIT) -> TreeBound:
        """Return the upper bound on log Z of these messages, without the model's constant."""
        return cover.bound(self.model, self._split(), budget)

    def log_bound(self, cover: TreeCover) -> float:
        """Return the value of `tree_bound` alone."""
        return cover.log_bound(self.model, self._split())

    def first_bound(self, cover: TreeCover) -> float:
        """Return the value of `log_bound` for messages of 0, those before the first sweep."""
        if self.model.factors.number:
            start = LogMessages(self.model, 0, 1, np.append(self.rho, self.link_rho))
            return start.log_bound(cover)
        forest = ForestScores(self.potentials, self.model.scores.node, np.zeros(0))
        return cover.log_bound(self.model, forest)

    def _split(self) -> ForestScores:
        """Return the scores of the nodes, edges and larger factors, the same in every tree."""
        self.sum_up()
        known = np.where(self.messages > -np.inf, self.messages, 0.0)  # a dead label stays dead
        table = self.potentials.edge - known[1::2, :, None] - known[::2, None, :]
        factors = self.model.factors
        cells = empty(len(factors.table))
        kernels.bp_factors.all_cell_scores(
            factors, self.link_rho, self.total, self.factor_to_variable, cells
        )
        return ForestScores(Potentials.of(table), self.total, cells)

    def log_edge_normalizers(self) -> float:
        """Return the sum of rho times the log-normalizers of all edge beliefs."""
        size = self.model.num_labels
        log_norm = empty(self.model.graph.num_edges)
        table = empty((1, size, size))

        def update(low: int, high: int) -> None:
            self._edge_beliefs(low, high, 0, table.copy(), log_norm[low:high])

        with ThreadRanges(len(log_norm), len(self.arc_ranges.ranges)) as edges:
            edges(update)
        return float((self.rho * log_norm).sum())

    def edge_beliefs(self, low: int, high: int) -> FloatArray:
        """Return the edge beliefs (high - low, C, C) of a range of edges."""
        size = self.model.num_labels
        out = empty((high - low, size, size))
        self._edge_beliefs(low, high, 1, out, empty(high - low))
        return out

    def _edge_beliefs(
        self, low: int, high: int, keep: int, out: FloatArray, log_norm: FloatArray
    ) -> None:
        kernels.bp_log.edge_beliefs(
            low, high, self.model.graph.source, self.total, self.potentials.edge, self.messages,
            keep, out, log_norm,
        )  # fmt: skip


def _largest_span(model: ScoredGraph) -> float:
    """Return the largest difference of two finite scores of a table."""
    tables = [(model.scores.node, (1,)), (model.edge_stack, (1, 2))]
    larger = (model.factors.view(f) for f in range(model.factors.number))
    tables += [(table, tuple(range(table.ndim))) for table in larger]
    spans = [0.0]
    for table, axes in tables:
        known = np.isfinite(table)
        top = np.max(table, axis=axes, initial=-np.inf, where=known)
        low = np.min(table, axis=axes, initial=np.inf, where=known)
        spans.append(float(np.max(top - low, initial=0.0)))
    return max(spans)


class ResidualMessages(LogMessages):
    """Messages with the residual schedule of Elidan, McGraw and Koller (2006).

    The message that would change most is sent first.  When no change exceeds `tol`, all messages
    are sent once, so that none is missing.  Only for models without larger factors.
    """

    def __init__(
        self,
        model: ScoredGraph,
        maximum: int,
        tol: float,
        damping: float,
        rho: FloatArray | None = None,
    ) -> None:
        super().__init__(model, maximum, 1, rho)
        self.tol, self.all_sent = tol, False
        self._line_up(damping)

    def _line_up(self, damping: float) -> None:
        """Compute the queue from the messages."""
        arcs = len(self.messages)
        self.sum_up()
        pending, priority = self.messages.copy(), np.zeros(arcs)
        if not kernels.bp_log.update_all(
            self.model.graph.source, self.total, self.potentials, self.messages, damping,
            self.maximum, pending, priority,
        ):  # fmt: skip
            raise infeasible()
        heap = np.argsort(-priority, kind="stable").astype(np.int64)
        place = empty(arcs, np.int64)
        place[heap] = np.arange(arcs)
        self.queue = kernels.bp_log.Queue(pending, priority, heap, place)

    def sweep(self, damping: float) -> float:
        """Send 2E messages, each time the one that would change most; return the next change.

        In nats.  Stops early if no change exceeds `tol`; the first time, it then sends all
        messages.  `damping` must be that of the constructor.
        """
        if len(self.messages) == 0:
            return 0.0
        change = kernels.bp_log.send_largest(
            self.tol, damping, self.maximum, self.model.graph.outgoing,
            self.model.scores.node, self.rho, self.potentials, self.queue,
            self.total, self.messages,
        )  # fmt: skip
        if change < 0:
            raise infeasible()
        if change <= self.tol and not self.all_sent:
            self.all_sent = True
            self.messages[...] = self.queue.pending
            self._line_up(damping)
            change = self.queue.priority.max()
        return float(change)
