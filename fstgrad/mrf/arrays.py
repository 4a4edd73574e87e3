"""Named tuples of arrays: the form of a model that kernels read.

Letters: I nodes, E edges, C labels, F larger factors; K = 1 if all edges share a table, else K = E.
Float arrays are float64 and integer arrays int64 unless stated otherwise.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.uninitialized import empty_like

Indices = npt.NDArray[np.uint64]
Index = int | np.uint64  # unsigned indices spare kernels a test of the sign

TINY = 1e-290  # smallest weight of the linear domain; smaller ones need logarithms


class OutgoingArcs(NamedTuple):
    """The arcs of a graph, sorted by the node that they leave.

    Attributes
    ----------
    start : (I + 1,), leaving : (2E,)
        The arcs that leave node i are leaving[start[i]:start[i + 1]].
    source : (2E,)
        The node that each arc leaves; arc d ^ 1 is the reverse of d.
    """

    start: IntArray
    leaving: IntArray
    source: IntArray


class Network(NamedTuple):
    """The arcs of a graph, numbered by the node that they leave.

    Attributes
    ----------
    start : (I + 1,)
        The arcs that leave node i are start[i] .. start[i + 1] - 1.
    head, mate : (2E,) int32
        The node that each arc runs to, and its reverse arc.
    """

    start: IntArray
    head: npt.NDArray[np.int32]
    mate: npt.NDArray[np.int32]


class VectorLayout(NamedTuple):
    """The arcs of a network in an order for vectors: in blocks of nodes of about equal degree.

    Within a block, nodes are in order of decreasing degree.  Slot s of a block holds the s-th arc
    of each node that has one: of the first nodes of the block.  The lane of an arc is its position
    in the order block by block, slot by slot, node by node.  Label c of the message (C,) of a lane
    of block g is at C * block_lane[g] + c * (lanes of the block) + (lane - block_lane[g]).

    Attributes
    ----------
    node : (nodes with arcs,)
        The nodes, block by block.
    block_node, block_lane, block_slot : (blocks + 1,) uint64
        The first node, lane and slot of each block: block g has the nodes
        node[block_node[g]:block_node[g + 1]], and likewise lanes and slots.
    slot_lane : (slots + 1,) uint64
        The first lane of each slot.
    block_run, run_lane, run_flip : (blocks + 1,), (runs + 1,), (runs,)
        The first run of each block and the first lane of each run.  The lanes of run r read the
        shared table, transposed if run_flip[r] is 1.
    reverse_start, reverse_step : (2E,) uint64
        Where the message along the reverse of a lane's arc begins, and the step between labels.
    arc : (2E,)
        The arc of each lane.
    """

    node: IntArray
    block_node: Indices
    block_lane: Indices
    block_slot: Indices
    slot_lane: Indices
    block_run: IntArray
    run_lane: IntArray
    run_flip: IntArray
    reverse_start: Indices
    reverse_step: Indices
    arc: IntArray

    @classmethod
    def of(
        cls, network: Network, rank: IntArray, transposed: BoolArray, labels: int, size: int
    ) -> "VectorLayout":
        """Return the layout of messages of `labels` numbers, in blocks of about `size` arcs.

        rank : (I,), the order of nodes of equal degree.
        transposed : (2E,) bool, the arcs that read the shared table transposed.
        """
        degree = np.diff(network.start)
        tail = np.repeat(np.arange(len(degree)), degree)
        transposed_of = np.bincount(tail[transposed], minlength=len(degree))
        node = np.lexsort((rank, -degree))[: np.count_nonzero(degree)]
        number = (np.cumsum(degree[node]) - degree[node]) // size
        node = node[np.lexsort((transposed_of[node], -degree[node], number))]
        place = empty_like(degree)
        place[node] = np.arange(len(node))
        inner = np.lexsort((transposed, tail))  # arcs that do not read transposed come first
        slot_of = np.arange(len(tail)) - network.start[tail]
        by = np.lexsort((place[tail], slot_of, number[place[tail]]))
        arc, block, slot = inner[by], number[place[tail[by]]], slot_of[by]
        cut, first = _starts(number), _starts(block)
        group = np.repeat(np.arange(len(first) - 1), np.diff(first))
        mate = empty_like(arc)
        mate[arc] = np.arange(len(arc))
        mate = mate[network.mate[arc]]
        begin = first[group[mate]]
        slots, runs = _starts(block, slot), _starts(block, transposed[arc])
        unsigned = [
            array.astype(np.uint64)
            for array in (cut, first, np.searchsorted(slots, first), slots,
                          begin * (labels - 1) + mate, np.diff(first)[group[mate]])
        ]  # fmt: skip
        return cls(
            node=node, block_node=unsigned[0], block_lane=unsigned[1], block_slot=unsigned[2],
            slot_lane=unsigned[3], block_run=np.searchsorted(runs, first), run_lane=runs,
            run_flip=transposed[arc][runs[:-1]].astype(np.int64), reverse_start=unsigned[4],
            reverse_step=unsigned[5], arc=arc,
        )  # fmt: skip

    def by_table(
        self, network: Network, key: IntArray, labels: int
    ) -> tuple["VectorLayout", Indices, IntArray]:
        """Return the layout with the messages of each block in the order of their tables.

        key : (2E,), 2k + flip for the table k that each lane reads.
        Also returns the lane (2E,) within its block of each message, and the table of each run.
        """
        first = self.block_lane.astype(np.int64)
        block = np.repeat(np.arange(len(first) - 1), np.diff(first))
        take = np.lexsort((key, block))
        place, lane = empty_like(take), empty_like(take)
        place[take] = np.arange(len(take))
        lane[self.arc] = np.arange(len(take))
        mate = lane[network.mate[self.arc]]
        source = first[block[mate]] * (labels - 1) + place[mate]
        run, key = _starts(block, key[take]), key[take]
        first_of_runs = key[run[:-1]]
        layout = self._replace(
            reverse_start=source.astype(np.uint64), block_run=np.searchsorted(run, first),
            run_lane=run, run_flip=first_of_runs & 1,
        )  # fmt: skip
        return layout, (take - first[block]).astype(np.uint64), first_of_runs >> 1


def _starts(*keys: npt.NDArray[np.generic]) -> IntArray:
    """Return the indices at which one of the keys differs from its predecessor, then the length."""
    count = len(keys[0])
    new = np.ones(count, np.bool_)
    new[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return np.append(np.flatnonzero(new), count)


class Sites(NamedTuple):
    """The nodes in the order in which they are drawn, and their arcs.

    Attributes
    ----------
    node : (I,) int64
    start : (I + 1,) int64
        Site t has the arcs start[t] .. start[t + 1] - 1.
    head : (arcs,) int32
        The neighbour that each arc runs to.
    which : (arcs,) int64
        The table of each arc.
    """

    node: IntArray
    start: IntArray
    head: npt.NDArray[np.int32]
    which: IntArray


class Potentials(NamedTuple):
    """Edge scores in logs, edge (K, C, C), and as exp_edge = exp(edge - shift) (K, C, C).

    shift (K,) is the maximum of each table, 0 if all its scores are -inf.
    """

    edge: FloatArray
    exp_edge: FloatArray
    shift: FloatArray

    @classmethod
    def of(cls, edge: FloatArray) -> "Potentials":
        """Build from edge scores (K, C, C)."""
        shift = edge.max(axis=(1, 2), initial=-np.inf)
        shift[shift == -np.inf] = 0.0
        return cls(edge, np.exp(edge - shift[:, None, None]), shift)


class Factors(NamedTuple):
    """Log-tables over several nodes each, concatenated.

    Factor f is over the nodes scope[first[f]:first[f + 1]]; its table is table[cell[f]:cell[f + 1]]
    with the last node fastest.  A slot is a position in `scope`: one node of one factor.

    Attributes
    ----------
    table : (cells,) float64, log-weights in nats
    cell, first : (F + 1,)
    scope, stride, size, owner : (slots,)
        The node of each slot, its step in the table, its number of labels, and its factor.
    near, near_start : (slots,), (I + 1,)
        The slots of node i are near[near_start[i]:near_start[i + 1]].
    """

    table: FloatArray
    cell: IntArray
    first: IntArray
    scope: IntArray
    stride: IntArray
    size: IntArray
    owner: IntArray
    near: IntArray
    near_start: IntArray

    @classmethod
    def pack(cls, num_nodes: int, factors: Sequence[tuple[Sequence[int], FloatArray]]) -> "Factors":
        """Return the factors (scope, table), concatenated."""
        if not factors:
            start, none = np.zeros(1, np.int64), np.zeros(0, np.int64)
            ends = np.zeros(num_nodes + 1, np.int64)
            return cls(np.zeros(0), start, start, none, none, none, none, none, ends)
        scope, stride, size, owner, first, cell = [], [], [], [], [0], [0]
        for number, (nodes, table) in enumerate(factors):
            scope += list(nodes)
            size += list(table.shape)
            stride += [prod(table.shape[k + 1 :]) for k in range(table.ndim)]
            owner += [number] * table.ndim
            first.append(len(scope))
            cell.append(cell[-1] + table.size)
        flat = [np.ascontiguousarray(table, np.float64).ravel() for _, table in factors]
        members = np.array(scope, np.int64)
        counts = np.bincount(members, minlength=num_nodes)
        return cls(
            np.concatenate(flat) if flat else np.zeros(0),
            np.array(cell, np.int64),
            np.array(first, np.int64),
            members,
            np.array(stride, np.int64),
            np.array(size, np.int64),
            np.array(owner, np.int64),
            np.argsort(members, kind="stable").astype(np.int64),
            np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        )

    @property
    def number(self) -> int:
        """Number of factors F."""
        return len(self.first) - 1

    def nodes(self, f: int) -> list[int]:
        """Return the scope of factor f."""
        scope: list[int] = self.scope[self.first[f] : self.first[f + 1]].tolist()
        return scope

    def shape(self, f: int) -> tuple[int, ...]:
        """Return the shape of factor f's table."""
        return tuple(self.size[self.first[f] : self.first[f + 1]].tolist())

    def view(self, f: int, values: FloatArray | None = None) -> FloatArray:
        """Return a view of the part of `values` (cells,; default `table`) that is factor f's."""
        flat = self.table if values is None else values
        return flat[self.cell[f] : self.cell[f + 1]].reshape(self.shape(f))

    def cells(self, labels: IntArray) -> IntArray:
        """Return the cells (..., F), as indices into `table`, that labelings (..., I) use."""
        steps = labels[..., self.scope] * self.stride
        sums = np.add.reduceat(steps, self.first[:-1], axis=-1) if self.number else steps
        return np.asarray(self.cell[:-1] + sums, np.int64)


class ModelScores(NamedTuple):
    """All scores of a model in nats: node (I, C), edge (K, C, C), and larger factors."""

    outgoing: OutgoingArcs
    node: FloatArray
    edge: FloatArray
    factors: Factors


class ForestScores(NamedTuple):
    """The scores of a forest: edges (E, C, C), nodes (I, C) and cells (cells,) of factors."""

    potentials: Potentials
    node: FloatArray
    cells: FloatArray


class Program(NamedTuple):
    """A bucket tree of n buckets, with the places in memory where each bucket reads and writes.

    Attributes
    ----------
    first_axis : (n + 1,), shape : (axes,)
        Bucket k has the axes first_axis[k] .. first_axis[k + 1] - 1, of these lengths.
    cells : (n,)
        Number of cells of each table.
    message : (n + 1,)
        Where each bucket's message begins; the last entry is the number of message cells.
    parent : (n,)
        The bucket that reads the message, -1 for none.
    first_input : (n + 1,), child : (inputs,)
        Bucket k has the inputs first_input[k] .. first_input[k + 1] - 1; `child` is the bucket that
        sends the input, -1 for a score table.
    source, target : (inputs,)
        Where a score table begins among the weights and among the marginals; for a message, both
        are where it begins among the messages.
    slowest : (inputs,)
        The first of a bucket's axes, from 0, that an input depends on.
    first_step, step : (inputs,), (steps,)
        In memory, input j moves by step[first_step[j] + a] for one step along axis a of its bucket.
    """

    first_axis: IntArray
    shape: IntArray
    cells: IntArray
    message: IntArray
    parent: IntArray
    first_input: IntArray
    child: IntArray
    source: IntArray
    target: IntArray
    slowest: IntArray
    first_step: IntArray
    step: IntArray


class GridScores(NamedTuple):
    """The scores of a grid with one shared edge table and two labels, for Gibbs draws.

    node (height, width, C) : node scores in nats.
    weight (height, width, C) : exp(node - maximum of the pixel).
    ahead (C, C) : ahead[a] = exp(edge[a, :] - maximum), for a left or upper neighbour with label a.
    behind (C, C) : behind[a] = exp(edge[:, a] - maximum), for a right or lower neighbour.
    edge (C, C) : edge scores in nats.
    """

    node: FloatArray
    weight: FloatArray
    ahead: FloatArray
    behind: FloatArray
    edge: FloatArray


class Buckets(NamedTuple):
    """A bucket tree of n buckets: cliques[first_axis[k]:first_axis[k + 1]] are the nodes of k.

    sizes (I,) : the number of labels of each node.
    parent (n,) : the bucket that the message goes to, or -1.
    first_input (n + 1,) : bucket k has the inputs first_input[k] .. first_input[k + 1] - 1.
    """

    first_axis: IntArray
    cliques: IntArray
    sizes: IntArray
    parent: IntArray
    first_input: IntArray


class Scopes(NamedTuple):
    """Score table t is over scope[first[t]:first[t + 1]], with strides; bucket_of[t] reads it."""

    first: IntArray
    scope: IntArray
    stride: IntArray
    bucket_of: IntArray


class Inputs(NamedTuple):
    """The inputs of buckets: child, slowest, first_step and step as in `Program`.

    number (inputs,) : the number of a score table, -1 for a message.
    """

    child: IntArray
    slowest: IntArray
    first_step: IntArray
    step: IntArray
    number: IntArray
