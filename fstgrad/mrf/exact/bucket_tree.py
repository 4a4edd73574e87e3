"""A bucket tree connected to the arrays of a model: where buckets read tables and messages."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.uninitialized import empty
from fstgrad.mrf import kernels
from fstgrad.mrf.arrays import TINY, Buckets, Factors, Inputs, Program, Scopes
from fstgrad.mrf.exact.plan import Plan
from fstgrad.mrf.scored_graph import ScoredGraph, Table


@dataclass(frozen=True, eq=False)
class ScoreLayout:
    """All score tables of a model in one flat array: nodes, then edges, then larger factors.

    Shared edge scores are stored once; their marginals are stored for each edge.

    Attributes
    ----------
    nodes, labels : int
        I and C.
    edges : (E, 2) int64
    shared : bool
        Whether all edges share one score table.
    factors : Factors
    """

    nodes: int
    labels: int
    edges: IntArray
    shared: bool
    factors: Factors

    @classmethod
    def of(cls, model: ScoredGraph) -> "ScoreLayout":
        """Return the layout of a model."""
        return cls(
            model.num_nodes, model.num_labels, model.graph.edges, model.shared, model.factors
        )

    @property
    def marginal_cells(self) -> int:
        """Number of cells of all marginals."""
        return (
            self.nodes * self.labels + len(self.edges) * self.labels**2 + (len(self.factors.table))
        )

    def table(self, flat: FloatArray) -> Table:
        """Return flat marginals (marginal_cells,) as a Table of views."""
        cut = self.nodes * self.labels
        end = cut + len(self.edges) * self.labels**2
        return Table(
            flat[:cut].reshape(self.nodes, self.labels),
            flat[cut:end].reshape(len(self.edges), self.labels, self.labels),
            flat[end:],
        )

    def flat(self, table: Table) -> FloatArray:
        """Return a table as one array (marginal_cells,), laid out like flat marginals."""
        edge = np.broadcast_to(table.edge, (len(self.edges), self.labels, self.labels))
        return np.concatenate((table.node.ravel(), edge.ravel(), table.factors))

    @cached_property
    def scopes(self) -> tuple[IntArray, IntArray, IntArray]:
        """The nodes of all T tables: first (T + 1,), nodes (slots,) and their strides (slots,).

        Table t has the nodes nodes[first[t]:first[t + 1]].
        """
        nodes, edges = self.nodes, len(self.edges)
        arity = np.concatenate((np.ones(nodes), np.full(edges, 2), np.diff(self.factors.first)))
        scope = np.concatenate((np.arange(nodes), self.edges.ravel(), self.factors.scope))
        stride = np.concatenate(
            (np.ones(nodes), np.tile([self.labels, 1], edges), self.factors.stride)
        )
        first = np.concatenate(([0], np.cumsum(arity)))
        return first.astype(np.int64), scope.astype(np.int64), stride.astype(np.int64)

    def beginnings(self, *, marginals: bool) -> IntArray:
        """Return where each table begins (T,) among the flat scores, or among flat marginals."""
        square, cut = self.labels**2, self.nodes * self.labels
        edge = np.arange(len(self.edges)) * (0 if self.shared and not marginals else square)
        stored = len(self.edges) if marginals or not self.shared else 1
        return np.concatenate(
            (
                np.arange(self.nodes) * self.labels,
                cut + edge,
                cut + stored * square + self.factors.cell[:-1],
            )
        ).astype(np.int64)


class SegmentedProgram(NamedTuple):
    """A program whose buckets are swept segment by segment, to save memory.

    Messages within a segment share memory with those of other segments, and are computed again when
    a sweep down needs them.  Messages from one segment to another have their own memory.

    Attributes
    ----------
    program : Program
    segments : list of (int, int)
        Ranges (low, high) of buckets.
    """

    program: Program
    segments: list[tuple[int, int]]


class BucketTree:
    """A plan with its program for the kernels.

    Parameters
    ----------
    plan : Plan
    layout : ScoreLayout
    low : (I,) int64
        The first label of each node that the tables include; plan.sizes labels follow from there.
    """

    def __init__(self, plan: Plan, layout: ScoreLayout, low: IntArray) -> None:
        self.plan, self.layout, self.low = plan, layout, low
        first, scope, stride = layout.scopes
        buckets = len(plan.order)
        position = empty(buckets, np.int64)
        position[list(plan.order)] = np.arange(buckets)
        self.bucket_of = np.minimum.reduceat(position[scope], first[:-1])
        shift = np.add.reduceat(low[scope] * stride, first[:-1])
        parent = np.array(plan.parent, np.int64)
        counts = np.bincount(self.bucket_of, minlength=buckets)
        counts += np.bincount(parent[parent >= 0], minlength=buckets)
        first_input = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        widths = np.array([len(clique) for clique in plan.cliques], np.int64)
        first_axis = np.concatenate(([0], np.cumsum(widths))).astype(np.int64)
        cliques = np.concatenate([np.array(clique, np.int64) for clique in plan.cliques])
        sizes = np.array(plan.sizes, np.int64)
        inputs = int(first_input[-1])
        child, slowest, first_step, number = (empty(inputs, np.int64) for _ in range(4))
        step = empty(int((counts * widths).sum()), np.int64)
        kernels.buckets.connect(
            Buckets(first_axis, cliques, sizes, parent, first_input),
            Scopes(first, scope, stride, self.bucket_of),
            Inputs(child, slowest, first_step, step, number),
        )
        self.number, self.cliques = number, cliques
        self._segmented: dict[int, SegmentedProgram] = {}
        self.score_place = layout.beginnings(marginals=False) + shift
        self.marginal_place = layout.beginnings(marginals=True) + shift
        message = np.concatenate(([0], np.cumsum(plan.messages))).astype(np.int64)
        self.program = Program(
            first_axis, sizes[cliques], np.array(plan.cells, np.int64), message, parent,
            first_input, child, *self._ends(child, message), slowest, first_step, step,
        )  # fmt: skip

    def _ends(self, child: IntArray, message: IntArray) -> tuple[IntArray, IntArray]:
        """Return `source` and `target` of a Program: where inputs are read, where marginals go."""
        table = child < 0
        source, target = message[child], message[child]
        source[table] = self.score_place[self.number[table]]
        target[table] = self.marginal_place[self.number[table]]
        return source, target

    def segmented(self, max_memory: int) -> SegmentedProgram:
        """Return the program in the fewest segments (1, 2, 4, ...) that need <= max_memory bytes.

        If no number of segments is enough, returns the one that needs least memory.
        """
        if max_memory not in self._segmented:
            candidates: list[SegmentedProgram] = []
            number = 1
            while number <= max(1, len(self.plan.order) // 2):
                candidates.append(self._in_segments(number))
                if self.needed(candidates[-1].program) <= max_memory:
                    break
                number *= 2
            self._segmented[max_memory] = min(candidates, key=lambda f: int(f.program.message[-1]))
        return self._segmented[max_memory]

    def needed(self, program: Program) -> int:
        """Return the bytes of all messages and the largest table."""
        return 8 * (int(program.message[-1]) + max(self.plan.cells))

    def _in_segments(self, number: int) -> SegmentedProgram:
        """Return the program in `number` segments with about equally many message cells."""
        cells = np.array(self.plan.messages, np.int64)
        if number == 1:
            return SegmentedProgram(self.program, [(0, len(cells))])
        done = np.cumsum(cells)
        segment = (done - cells) * number // done[-1]
        parent = self.program.parent
        crosses = (parent >= 0) & (segment[parent] != segment)
        message = empty(len(cells) + 1, np.int64)
        ends = np.cumsum(cells[crosses])
        message[:-1][crosses] = ends - cells[crosses]
        first, cuts = int(ends[-1]) if len(ends) else 0, np.flatnonzero(np.diff(segment)) + 1
        bounds = [0, *cuts.tolist(), len(cells)]
        message[-1] = first
        for low, high in pairwise(bounds):
            within = ~crosses[low:high]
            inner = np.cumsum(cells[low:high][within])
            message[low:high][within] = first + inner - cells[low:high][within]
            message[-1] = max(message[-1], first + int(inner[-1]) if len(inner) else first)
        source, target = self._ends(self.program.child, message)
        program = self.program._replace(message=message, source=source, target=target)
        return SegmentedProgram(program, list(pairwise(bounds)))

    @cached_property
    def upward_program(self) -> Program:
        """The program of a sweep up without a sweep down: messages reuse memory already read."""
        plan = self.plan
        free: dict[int, list[int]] = {}
        message, end = empty(len(plan.order) + 1, np.int64), 0
        for k, cells in enumerate(plan.messages):
            known = free.get(cells)
            if known:
                message[k] = known.pop()
            else:
                message[k], end = end, end + cells
            for c in plan.children[k]:
                free.setdefault(plan.messages[c], []).append(int(message[c]))
        message[-1] = end
        source, target = self._ends(self.program.child, message)
        return self.program._replace(message=message, source=source, target=target)

    def scores(self, model: ScoredGraph) -> FloatArray:
        """Return all log-tables in one array (nats) like `ScoreLayout`, without the constant."""
        return np.concatenate(
            (model.scores.node.ravel(), model.edge_stack.ravel(), model.factors.table)
        )

    def weights(self, model: ScoredGraph) -> tuple[FloatArray, FloatArray, float, bool]:
        """Return weights for the linear domain: (weights, smallest, offset, fits).

        weights are exp(score - maximum of its table or node), laid out as `scores`.  smallest
        (inputs,) is the smallest positive weight of the table of each input.  offset is the sum of
        the maxima in nats.  fits is False if a finite score has a weight below TINY.
        """
        node, stack = model.scores.node, model.edge_stack
        top = node.max(axis=1)
        shift = model.potentials.shift
        factors = model.factors
        if factors.number:
            peaks = np.maximum.reduceat(factors.table, factors.cell[:-1])
            peaks[peaks == -np.inf] = 0.0
        else:
            peaks = np.zeros(0)
        large = np.exp(factors.table - np.repeat(peaks, np.diff(factors.cell)))
        parts = (np.exp(node - top[:, None]), model.potentials.exp_edge, large)
        logs = (node > -np.inf, stack > -np.inf, factors.table > -np.inf)
        fits = all(bool((w[a] >= TINY).all()) for w, a in zip(parts, logs, strict=True))
        least = [
            _least(parts[0].reshape(len(node), -1)),
            np.broadcast_to(_least(parts[1].reshape(len(stack), -1)), len(model.graph.edges))
            if len(model.graph.edges)
            else np.zeros(0),
            np.minimum.reduceat(np.where(large > 0, large, 1.0), factors.cell[:-1])
            if factors.number
            else np.zeros(0),
        ]
        smallest = np.concatenate(least)[self.number]
        offset = top.sum() + peaks.sum()
        offset += shift.sum() * (len(model.graph.edges) if model.shared else 1)
        return np.concatenate([part.ravel() for part in parts]), smallest, float(offset), fits


def _least(rows: FloatArray) -> FloatArray:
    """Return the smallest positive entry of each row, 1 for a row without one."""
    return np.asarray(np.where(rows > 0, rows, 1.0).min(axis=1))
