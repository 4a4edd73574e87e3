"""Exact inference on any graph that is narrow enough: variable elimination in a bucket tree.

Going up, the clique of node v adds up its scores and the messages of its children in the log
domain and sums v out; what stays is P(v | separator).  Going down, the belief of a clique is
P(separator) * P(v | separator): products of probabilities, with no division and no difference of
logarithms, so hard zeros need no care.

Source: Koller and Friedman, Probabilistic Graphical Models (2009), chapters 9 and 10.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.mrf.exact.plan import DEFAULT_BYTES, Plan, make_plan
from fstgrad.mrf.scored_graph import ScoredGraph, infeasible
from fstgrad.mrf.table import Table


@dataclass
class Bucket:
    """The clique of one node: its table, and after the sweep up P(node | separator)."""

    position: int
    clique: tuple[int, ...]
    shape: tuple[int, ...]
    table: FloatArray

    def strides(self, nodes: tuple[int, ...]) -> IntArray:
        """Return the strides of a table over `nodes` along the axes of this clique."""
        step = dict.fromkeys(self.clique, 0)
        width = 1
        for v in reversed(nodes):
            step[v] = width
            width *= self.shape[self.clique.index(v)]
        return np.array([step[v] for v in self.clique], np.int64)

    def add(self, nodes: tuple[int, ...], table: FloatArray) -> None:
        """Add a table over some of the clique's nodes."""
        from fstgrad.mrf.kernels.tables import add_table

        add_table(self.table, np.array(self.shape), table.ravel(), self.strides(nodes))

    def rows(self) -> FloatArray:
        """Return the table as one row for each state of the separator."""
        return self.table.reshape(-1, self.shape[-1])

    def eliminate(self) -> FloatArray:
        """Sum the node out: return the message; the table becomes P(node | separator)."""
        from fstgrad.mrf.kernels.tables import eliminate

        message = np.empty(len(self.table) // self.shape[-1])
        eliminate(self.table, self.shape[-1], message)
        return message

    def sum_onto(self, nodes: tuple[int, ...]) -> FloatArray:
        """Return the sum of the table over all nodes but these, flat."""
        from fstgrad.mrf.kernels.tables import sum_table

        out = np.zeros(prod(self.shape[self.clique.index(v)] for v in nodes))
        sum_table(self.table, np.array(self.shape), out, self.strides(nodes))
        return out


class Elimination:
    """The exact engine of a model on any graph.

    Parameters
    ----------
    model : ScoredGraph
    max_bytes : int
        Limit on the tables; a model that needs more raises MemoryLimitError before any is built.
    """

    def __init__(self, model: ScoredGraph, max_bytes: int = DEFAULT_BYTES) -> None:
        self.model = model
        self.max_bytes = max_bytes
        alive = model.scores.node > -np.inf
        if not alive.any(axis=1).all():
            raise infeasible()
        self.alive = [np.flatnonzero(row) for row in alive]
        self.plan = self._plan()
        self.edges_of: list[list[int]] = [[] for _ in self.plan.order]
        position = np.empty(model.num_nodes, np.int64)
        position[list(self.plan.order)] = np.arange(model.num_nodes)
        first = position[model.graph.edges].min(axis=1)
        for e, k in enumerate(first.tolist()):
            self.edges_of[k].append(e)

    def _plan(self) -> Plan:
        sizes = tuple(len(labels) for labels in self.alive)
        key = ("elimination", sizes, self.max_bytes)
        cache = self.model.graph.cache
        if key not in cache:
            cache[key] = make_plan(self.model.graph, sizes, self.max_bytes)
        plan: Plan = cache[key]
        return plan

    def _filled(self, table: Table, position: int) -> Bucket:
        """Return a bucket with the entries of its own node and edges from `table`."""
        plan = self.plan
        v = plan.order[position]
        bucket = Bucket(
            position, plan.cliques[position], plan.shape(position),
            np.zeros(plan.cells[position]),
        )  # fmt: skip
        bucket.add((v,), table.node[v, self.alive[v]])
        for e in self.edges_of[position]:
            a, b = (int(u) for u in self.model.graph.edges[e])
            edge = table.edge if table.edge.ndim == 2 else table.edge[e]
            bucket.add((a, b), edge[np.ix_(self.alive[a], self.alive[b])])
        return bucket

    def _bucket(self, position: int, messages: dict[int, FloatArray]) -> Bucket:
        """Return a bucket with its scores and its children's messages."""
        bucket = self._filled(self.model.scores, position)
        for child in self.plan.children[position]:
            bucket.add(self.plan.cliques[child][:-1], messages[child])
        return bucket

    def _sweep_up(self, *, keep: bool) -> tuple[float, dict[int, FloatArray]]:
        """Return log Z and the messages by position; without `keep` they are dropped when read."""
        plan, messages, value = self.plan, dict[int, FloatArray](), 0.0
        for k in range(len(plan.order)):
            bucket = self._bucket(k, messages)
            messages[k] = bucket.eliminate()
            if plan.parent[k] < 0:
                value += float(messages[k][0])
            if not keep:
                for child in plan.children[k]:
                    del messages[child]
        if value == -np.inf:
            raise infeasible()
        return value, messages

    def log_partition(self) -> float:
        """Return log Z in nats."""
        self.plan.require(self.plan.bytes_up, self.max_bytes)
        return self._sweep_up(keep=False)[0]

    def _conditionals(self) -> Iterator[Bucket]:
        """Yield the buckets as P(node | separator), last eliminated first.

        Each table is built a second time from the messages: those take less memory than tables.
        """
        plan = self.plan
        plan.require(plan.bytes_down, self.max_bytes)
        _, messages = self._sweep_up(keep=True)
        for k in range(len(plan.order) - 1, -1, -1):
            bucket = self._bucket(k, messages)
            bucket.eliminate()
            for child in plan.children[k]:
                del messages[child]
            yield bucket

    def marginals(self) -> Table:
        """Return node and edge marginals."""
        plan, marginals = self.plan, self._empty()
        beliefs: dict[int, Bucket] = {}
        for bucket in self._conditionals():
            k = bucket.position
            parent = plan.parent[k]
            if parent >= 0:
                separator = beliefs[parent].sum_onto(bucket.clique[:-1])
                bucket.rows()[...] *= separator[:, None]
                if plan.children[parent][0] == k:
                    del beliefs[parent]
            if plan.children[k]:
                beliefs[k] = bucket
            self._read(bucket, marginals)
        return marginals

    def _empty(self) -> Table:
        nodes, size = self.model.scores.node.shape
        return Table(np.zeros((nodes, size)), np.zeros((self.model.graph.num_edges, size, size)))

    def _read(self, bucket: Bucket, out: Table) -> None:
        """Sum a bucket's table onto its node and edges."""
        v = bucket.clique[-1]
        out.node[v, self.alive[v]] = bucket.sum_onto((v,))
        for e in self.edges_of[bucket.position]:
            a, b = (int(u) for u in self.model.graph.edges[e])
            cells = np.ix_(self.alive[a], self.alive[b])
            out.edge[e][cells] = bucket.sum_onto((a, b)).reshape(len(self.alive[a]), -1)

    def tangents(self, direction: Table) -> Table:
        """Return the derivative of the marginals along `direction`, a table of finite numbers.

        Each step of the two sweeps is differentiated: a message m(s) = log sum_v exp T(v, s) has
        dm = sum_v P(v | s) dT, and P(v | s) changes by P(v | s) (dT - dm).
        """
        buckets = list(self._conditionals())[::-1]
        changes = [self._filled(direction, bucket.position) for bucket in buckets]
        for bucket, change in zip(buckets, changes, strict=True):
            given, moved = bucket.rows(), change.rows()
            message = (given * moved).sum(axis=1)
            moved -= message[:, None]
            moved *= given
            parent = self.plan.parent[bucket.position]
            if parent >= 0:
                changes[parent].add(bucket.clique[:-1], message)
        marginals = self._empty()
        for bucket, change in zip(reversed(buckets), reversed(changes), strict=True):
            parent = self.plan.parent[bucket.position]
            if parent >= 0:
                nodes, given, moved = bucket.clique[:-1], bucket.rows(), change.rows()
                separator = buckets[parent].sum_onto(nodes)[:, None]
                moved *= separator
                moved += given * changes[parent].sum_onto(nodes)[:, None]
                given *= separator
            self._read(change, marginals)
        return marginals

    def sample(self, k: int, rng: np.random.Generator) -> IntArray:
        """Return k labelings, each drawn from the last eliminated node to the first."""
        chosen = np.zeros((k, self.model.num_nodes), np.int64)
        for bucket in self._conditionals():
            cumulative = bucket.rows()[self._rows(bucket.clique, bucket.shape, chosen)].cumsum(
                axis=1
            )
            uniform = rng.random(k) * cumulative[:, -1]
            chosen[:, bucket.clique[-1]] = (uniform[:, None] >= cumulative).sum(axis=1)
        return self._labels(chosen)

    def mode(self) -> IntArray:
        """Return a labeling of the highest score."""
        from fstgrad.mrf.kernels.tables import eliminate_maximum

        plan = self.plan
        plan.require(plan.bytes_down, self.max_bytes)
        messages, steps, value = dict[int, FloatArray](), [], 0.0
        for k in range(len(plan.order)):
            bucket = self._bucket(k, messages)
            messages[k] = np.empty(plan.messages[k])
            best = np.empty(plan.messages[k], np.int32)
            eliminate_maximum(bucket.table, bucket.shape[-1], messages[k], best)
            steps.append((bucket.clique, bucket.shape, best))
            value += float(messages[k][0]) if plan.parent[k] < 0 else 0.0
            for child in plan.children[k]:
                del messages[child]
        if value == -np.inf:
            raise infeasible()
        chosen = np.zeros((1, self.model.num_nodes), np.int64)
        for clique, shape, best in reversed(steps):
            chosen[:, clique[-1]] = best[self._rows(clique, shape, chosen)]
        labels: IntArray = self._labels(chosen)[0]
        return labels

    @staticmethod
    def _rows(clique: tuple[int, ...], shape: tuple[int, ...], chosen: IntArray) -> IntArray:
        """Return the flat index of each sample's separator."""
        rows = np.zeros(len(chosen), np.int64)
        for v, size in zip(clique[:-1], shape[:-1], strict=True):
            rows = rows * size + chosen[:, v]
        return rows

    def _labels(self, chosen: IntArray) -> IntArray:
        """Return labels from positions among the labels that are alive."""
        return np.stack([labels[chosen[:, v]] for v, labels in enumerate(self.alive)], axis=1)
