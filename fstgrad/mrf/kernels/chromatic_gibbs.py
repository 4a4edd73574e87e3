"""Kernels of Gibbs sampling on any graph, colour class by colour class.

Nodes of one colour are not adjacent, so they can be drawn in any order.  Their arcs are stored in
the order in which the loops read them: as `Sites` for more than two labels, as `Blocks` for two.
Sweep k draws node i with the random number at counter + k * room + i.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel
from fstgrad.core.uninitialized import empty
from fstgrad.mrf.arrays import Indices, ModelScores, Sites
from fstgrad.mrf.kernels.forests import choose
from fstgrad.mrf.kernels.sites import site_scores, uniform

TINY = 1e-200
AHEAD = 32  # most sites in a block of `draw_many`: their table rows are fetched at once
STEPS = 16  # entries of the table of the logistic function per nat
REACH = 40  # the table covers -REACH .. REACH nats
BLOCK = 256  # most nodes in a block of `draw_binary`
LAST = 2.0 * REACH * STEPS  # index of the last entry of the table
ONE = np.uint64(1)


class Range(NamedTuple):
    """What one call draws: blocks low .. high - 1, `sweeps` times, with random key `key`.

    Sweep k reads the random numbers from counter + k * room on; `room` is at least I.
    """

    low: int
    high: int
    sweeps: int
    key: int
    counter: int
    room: int


class Blocks(NamedTuple):
    """The nodes of a graph in blocks of one colour; within a block, by decreasing degree.

    Slot s of a block holds the s-th arc of each node that has one: of the first nodes of the block,
    since degrees decrease.  The place of an arc in a slot is its lane.

    Attributes
    ----------
    node : (I,) uint64
        The nodes, block by block.
    cut, first_slot : (blocks + 1,) uint64
        Block b has the nodes node[cut[b]:cut[b + 1]] and the slots first_slot[b] ..
        first_slot[b + 1] - 1.
    slot : (slots + 1,) uint64
        Slot s has the lanes slot[s] .. slot[s + 1] - 1.
    head : (2E,) uint32
        The neighbour at the other end of each lane's arc.
    """

    node: Indices
    cut: Indices
    first_slot: Indices
    slot: Indices
    head: npt.NDArray[np.uint32]


def logistic_table() -> FloatArray:
    """Return 1 / (1 + e^x) at x = -REACH, -REACH + 1 / STEPS, ..., REACH, (LAST + 1,) float64."""
    return 1 / (1 + np.exp(np.arange(-REACH * STEPS, REACH * STEPS + 1) / STEPS))


@kernel
def draw_binary(
    r: Range, s: Blocks, own: FloatArray, gain: FloatArray, table: FloatArray, labels: IntArray
) -> None:
    """Draw labels 0 and 1 for the nodes of the blocks of a range.

    own (I,) and gain (2E, 2) are scores of label 1 minus label 0: own[t] of the t-th node of the
    blocks, gain[l, y] of lane l if the neighbour has label y.  With x their sum, P(label 0) =
    1 / (1 + e^x).  `table` is that of `logistic_table`; this function decreases, so two entries
    enclose its value, and the exponential is needed only if the random number lies between them.

    For speed, no branch depends on a label (branch prediction would fail), loops run along nodes,
    and indices are unsigned, which spares a test of their sign.
    """
    x, u, drawn = empty(BLOCK), empty(BLOCK), empty(BLOCK, np.int64)
    # bounds: no block has more than BLOCK nodes
    for sweep in range(r.sweeps):
        counter = r.counter + sweep * r.room
        for block in range(r.low, r.high):
            low, width = s.cut[block], s.cut[block + 1] - s.cut[block]
            for w in range(width):
                x[w] = own[low + w]
                u[w] = uniform(r.key, counter + int(s.node[low + w]))
            for slot in range(s.first_slot[block], s.first_slot[block + 1]):
                lane = s.slot[slot]
                for w in range(s.slot[slot + ONE] - lane):
                    x[w] += gain[lane + w, np.uint64(labels[s.head[lane + w]])]
            for w in range(width):
                at = (x[w] + REACH) * STEPS
                inside = (at >= 0.0) & (at < LAST)
                at = at if at > 0.0 else 0.0  # NaN too
                below = np.uint64(at if at < LAST - 1.0 else LAST - 1.0)
                least, most = table[below + ONE], table[below]
                sure = ((u[w] < least) | (u[w] >= most)) & inside
                drawn[w] = np.int64(u[w] >= most) + 2 * np.int64(1 - sure)
            for w in range(width):
                label = drawn[w]
                if label > 1:  # undecided by the table
                    label = 0 if u[w] * (1.0 + np.exp(x[w])) < 1.0 else 1
                labels[s.node[low + w]] = label


@kernel
def draw_many(
    r: Range, s: Sites, cut: IntArray, weight: FloatArray, table: FloatArray, m: ModelScores,
    labels: IntArray,
) -> float:  # fmt: skip
    """Draw labels for the blocks of a range, for any number of labels.

    Block b has the sites cut[b] .. cut[b + 1] - 1, all of one colour.  P(c) is proportional to
    weight[i, c] times table[which[a], y, c] over the arcs a of node i, y being the label of
    head[a].  weight (I, C) = exp(node score - maximum); table (tables, C, C) holds exp(edge score -
    maximum).  If the sum over c is below TINY, the label is drawn from the scores `m` in logs.  The
    result has no meaning (see `find_rows`).
    """
    size, seen = weight.shape[1], 0.0
    p, score, cells = empty(size), empty(size), table.reshape(-1)
    most, width = 0, np.uint64(size)
    for block in range(r.low, r.high):
        most = max(most, int(s.start[cut[block + 1]] - s.start[cut[block]]))
    row = empty(most, np.uint64)  # bounds: one entry for each arc of the largest block
    for sweep in range(r.sweeps):
        counter = r.counter + sweep * r.room
        for block in range(r.low, r.high):
            first, last = cut[block], cut[block + 1]
            begin = np.uint64(s.start[first])
            seen += find_rows(begin, np.uint64(s.start[last]), s, width, cells, labels, row)
            for t in range(first, last):
                i = s.node[t]
                for c in range(size):
                    p[c] = weight[i, c]
                for a in range(np.uint64(s.start[t]) - begin, np.uint64(s.start[t + 1]) - begin):
                    at = row[a]
                    for c in range(width):
                        p[c] *= cells[at + c]
                total = 0.0
                for c in range(size):
                    total += p[c]
                u = uniform(r.key, counter + i)
                if not total >= TINY:
                    site_scores(i, m, labels, score)
                    labels[i] = choose(score, u)
                    continue
                left, chosen = u * total, 0
                for c in range(size - 1):
                    left -= p[c]
                    chosen += left >= 0.0
                labels[i] = chosen
    return seen


@inner_kernel
def find_rows(
    begin: np.uint64,
    end: np.uint64,
    s: Sites,
    size: np.uint64,
    cells: FloatArray,
    labels: IntArray,
    row: Indices,
) -> float:
    """Write row[a - begin], the first cell of the table row that arc a reads, for begin <= a < end.

    It reads both ends of each row, so that many rows are on their way from memory at once, and
    returns the sum, so that a compiler keeps the reads.  This takes 3 to 5 times less time than
    waiting for each row in turn.
    """
    seen = 0.0
    for k in range(end - begin):
        a = begin + k
        at = (np.uint64(s.which[a]) * size + np.uint64(labels[np.uint64(s.head[a])])) * size
        row[k] = at
        seen += cells[at] + cells[at + size - ONE]
    return seen
