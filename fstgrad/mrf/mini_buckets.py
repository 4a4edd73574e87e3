"""Upper bounds on log Z and on the best score by weighted mini-buckets.

This is elimination, but a bucket with a table that would be too large is split into R mini-buckets
with tables T_r.  Mini-bucket r is summed with a power w_r; the powers sum to 1 (here w_r = 1 / R):

    log sum_v prod_r T_r  <=  sum_r w_r log sum_v T_r^(1 / w_r)                       (Hölder)

and for the best score, max_v sum_r log T_r <= sum_r max_v log T_r.  Before that, score is shifted
between the mini-buckets of a bucket so that their (powered) marginals of v agree (Liu and Ihler
2011, "Bounding the partition function using Hölder's inequality"; Ihler, Flerova, Dechter and Otten
2012, "Join-graph based cost-shifting schemes").  There is one sweep, O(buckets * max_cells).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.uninitialized import empty
from fstgrad.mrf.exact.plan import any_order
from fstgrad.mrf.resources import NO_LIMIT, Budget
from fstgrad.mrf.scored_graph import ScoredGraph, Table, infeasible, score_tables

Scope = tuple[int, ...]


class Piece(NamedTuple):
    """A log-table over some nodes: a score table of the model, or a message.

    Attributes
    ----------
    scope : the nodes, in reverse order of elimination
    table : float64 with an axis for each node, in nats
    source : the number of the mini-bucket that sent the message, or ~t for score table t (nodes,
        then edges, then larger factors)
    """

    scope: Scope
    table: FloatArray
    source: int


@dataclass(frozen=True, eq=False)
class MiniBucket:
    """Some tables of one node v, the last of the scope.

    scope : the nodes, in reverse order of elimination.
    table : the shifted sum of the pieces, in nats, with an axis for each node.
    weight : the power w_r of the sum over v.
    pieces : the tables and messages in the sum.
    """

    scope: Scope
    table: FloatArray
    weight: float
    pieces: list[Piece] = field(repr=False)


class MiniBuckets:
    """The upper bound of one model, and its gradient.

    Parameters
    ----------
    model : ScoredGraph
    max_cells : int
        A mini-bucket has at most this many cells, or as many as its largest table.
    maximum : bool
        Bound the best score instead of log Z.
    budget : Budget
        Checked between two tables or buckets.
    search : Budget
        For the search for an order; if it is spent, the nodes are eliminated in the given order.

    Attributes
    ----------
    value : float
        The bound in nats, with the model's offset.

    Raises
    ------
    SpentError
        `budget` is spent.
    InfeasibleError
        The bound is -inf: every labeling is forbidden.
    """

    def __init__(
        self,
        model: ScoredGraph,
        max_cells: int,
        *,
        maximum: bool = False,
        budget: Budget = NO_LIMIT,
        search: Budget = NO_LIMIT,
    ) -> None:
        self.model, self.maximum, self.budget = model, maximum, budget
        self.sizes = model.labels_per_node.tolist()
        order = any_order(model.interactions, self.sizes, search)
        self.place = {v: k for k, v in enumerate(order)}
        self.buckets: list[MiniBucket] = []
        waiting: list[list[Piece]] = [[] for _ in order]
        for piece in self._score_tables():
            waiting[self.place[piece.scope[-1]]].append(piece)
        value = model.offset
        for k, _ in enumerate(order):
            budget.check()
            for bucket in self._matched(self._split(waiting[k], max_cells)):
                message = self._message(bucket)
                self.buckets.append(bucket)
                if message.ndim == 0:
                    value += float(message)
                else:
                    sent = Piece(bucket.scope[:-1], message, len(self.buckets) - 1)
                    waiting[self.place[sent.scope[-1]]].append(sent)
            waiting[k].clear()
        if value == -np.inf:
            raise infeasible()
        self.value = value

    def _score_tables(self) -> Iterator[Piece]:
        """Yield the score tables, with their axes in reverse order of elimination."""
        for t, (nodes, table) in enumerate(score_tables(self.model)):
            self.budget.check()
            places = [self.place[v] for v in nodes]
            axes = sorted(range(len(nodes)), key=places.__getitem__, reverse=True)
            yield Piece(tuple(nodes[axis] for axis in axes), table.transpose(axes), ~t)

    def _split(self, pieces: list[Piece], max_cells: int) -> list[list[Piece]]:
        """Return the pieces of each mini-bucket.

        Each piece, the largest first, goes into the first mini-bucket that stays within max_cells
        or already has all its nodes.
        """
        parts: list[tuple[set[int], list[Piece]]] = []
        for piece in sorted(pieces, key=lambda p: -p.table.size):
            for scope, part in parts:
                within = scope.issuperset(piece.scope)
                if within or prod(self.sizes[v] for v in scope.union(piece.scope)) <= max_cells:
                    scope.update(piece.scope)
                    part.append(piece)
                    break
            else:
                parts.append((set(piece.scope), [piece]))
        return [part for _, part in parts]

    def _matched(self, parts: list[list[Piece]]) -> list[MiniBucket]:
        """Return the sums of the parts, shifted so that their marginals of their node agree."""
        weight = 1.0 / len(parts)
        scopes = [
            tuple(sorted({v for p in part for v in p.scope}, key=lambda v: -self.place[v]))
            for part in parts
        ]
        tables = [self._sum(scope, part) for scope, part in zip(scopes, parts, strict=True)]
        if len(parts) > 1:
            power = 1.0 if self.maximum else weight
            max_marginals = [
                np.max(t, axis=tuple(range(t.ndim - 1))) if self.maximum
                else _log_sum(t / power, tuple(range(t.ndim - 1)))
                for t in tables
            ]  # fmt: skip
            mean = np.sum(max_marginals, axis=0) / len(max_marginals)
            dead = mean == -np.inf
            for t, mine in zip(tables, max_marginals, strict=True):
                t += np.where(dead, -np.inf, power * (mean - np.where(dead, 0.0, mine)))
        return [
            MiniBucket(*given) for given in zip(scopes, tables, [weight] * len(parts), parts,
                                                strict=True)
        ]  # fmt: skip

    def _sum(self, scope: Scope, part: list[Piece]) -> FloatArray:
        total = np.zeros([self.sizes[v] for v in scope])
        for piece in part:
            total += piece.table.reshape([self.sizes[v] if v in piece.scope else 1 for v in scope])
        return total

    def _message(self, bucket: MiniBucket) -> FloatArray:
        if self.maximum:
            return np.asarray(bucket.table.max(axis=-1))
        return bucket.weight * _log_sum(bucket.table / bucket.weight, (bucket.table.ndim - 1,))

    def labels(self) -> IntArray:
        """Return the best label of each node in turn, given the nodes eliminated after it.

        If no bucket was split, this is the best labeling.
        """
        labels = np.zeros(self.model.num_nodes, np.int64)
        rows: dict[int, FloatArray] = {}
        ahead: int | None = None
        for bucket in reversed(self.buckets):
            v = bucket.scope[-1]
            if ahead is not None and v != ahead:
                labels[ahead] = rows.pop(ahead).argmax()
            row = bucket.table[tuple(labels[list(bucket.scope[:-1])])]
            rows[v] = rows[v] + row if v in rows else row
            ahead = v
        if ahead is not None:
            labels[ahead] = rows.pop(ahead).argmax()
        return labels

    def gradient(self) -> Table:
        """Return the derivatives of the bound on log Z by the scores, for fixed shifts.

        Edge part (E, C, C).  Raises SpentError if the budget is spent.
        """
        model = self.model
        node = np.zeros(model.scores.node.shape)
        edge = np.zeros((model.graph.num_edges, model.num_labels, model.num_labels))
        factors = empty(len(model.factors.table))  # each is a piece of one bucket
        messages_down: dict[int, FloatArray] = {}
        for number in range(len(self.buckets) - 1, -1, -1):
            self.budget.check()
            bucket = self.buckets[number]
            scaled = bucket.table / bucket.weight
            norm = _log_sum(scaled, (scaled.ndim - 1,))[..., None]
            belief = np.exp(np.where(norm == -np.inf, -np.inf, scaled - np.where(
                norm == -np.inf, 0.0, norm)))  # fmt: skip
            belief *= messages_down.pop(number, np.ones(()))[..., None]
            for piece in bucket.pieces:
                axes = tuple(a for a, v in enumerate(bucket.scope) if v not in piece.scope)
                share = belief.sum(axis=axes)
                if piece.source >= 0:
                    messages_down[piece.source] = share
                else:
                    self._put(~piece.source, piece.scope, share, (node, edge, factors))
        return Table(node, edge, factors)

    def _put(
        self, table: int, scope: Scope, share: FloatArray, out: tuple[FloatArray, ...]
    ) -> None:
        """Write the derivatives `share` by score table number `table` into the arrays of `out`."""
        nodes, edges = self.model.num_nodes, self.model.graph.num_edges
        if table < nodes:
            out[0][table, : len(share)] = share
            return
        if table < nodes + edges:
            a, b = self.model.graph.edges[table - nodes].tolist()
            members: list[int] = [a, b]
            share = share.transpose([scope.index(v) for v in members])
            out[1][table - nodes, : share.shape[0], : share.shape[1]] = share
            return
        f = table - nodes - edges
        members = self.model.factors.nodes(f)
        self.model.factors.view(f, out[2])[...] = share.transpose([scope.index(v) for v in members])


def _log_sum(table: FloatArray, axes: tuple[int, ...]) -> FloatArray:
    """Return the log-sum-exp over some axes; -inf if all entries are -inf."""
    if not axes:
        return np.array(table)
    top = table.max(axis=axes, keepdims=True)
    peak = np.where(top == -np.inf, 0.0, top)
    with np.errstate(divide="ignore"):
        log_sums = np.log(np.exp(table - peak).sum(axis=axes, keepdims=True)) + peak
    return np.asarray(log_sums.squeeze(axis=axes))
