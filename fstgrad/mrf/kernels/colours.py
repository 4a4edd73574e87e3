"""Kernels that draw the labels of the nodes of an edge list, colour class by colour class.

The arcs lie in the order in which they are read.  For more than two labels, site t has the arcs
start[t] .. start[t + 1] - 1, and head[a] is the neighbour that arc a runs to; for two labels see
`Blocks`.  Sweep k reads the random numbers from `counter` + k * `room`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel
from fstgrad.mrf.arrays import Indices, Pieces, Sites
from fstgrad.mrf.kernels.forests import choose
from fstgrad.mrf.kernels.sites import site_scores, uniform

TINY = 1e-200
STEPS = 16  # entries of a table of the logistic function for each nat
REACH = 40
BLOCK = 256  # nodes
LAST = 2.0 * REACH * STEPS  # entry of the table
ONE = np.uint64(1)


class Range(NamedTuple):
    """The sites or blocks low .. high - 1, drawn in some sweeps with the numbers of a key."""

    low: int
    high: int
    sweeps: int
    key: int
    counter: int
    room: int


class Blocks(NamedTuple):
    """The nodes of a graph in blocks of one colour, in order of their degree, the highest first.

    Slot s of a block is the s-th arc of each of its nodes that has as many, a lane for each: these
    are the first nodes of the block.

    Attributes
    ----------
    node : (I,)
    cut, first_slot : (blocks + 1,)
        Block b has the nodes cut[b] .. cut[b + 1] - 1 of this order and the slots first_slot[b] ..
        first_slot[b + 1] - 1.
    slot : (slots + 1,)
        The first lane of each slot.
    head : (2E,)
        The neighbour that each lane hears.
    """

    node: Indices
    cut: Indices
    first_slot: Indices
    slot: Indices
    head: npt.NDArray[np.uint32]


def logistic_table() -> FloatArray:
    """Return 1 / (1 + e^x) at x = -REACH, -REACH + 1 / STEPS, ..., REACH."""
    return 1 / (1 + np.exp(np.arange(-REACH * STEPS, REACH * STEPS + 1) / STEPS))


@kernel
def draw_binary(
    r: Range, s: Blocks, own: FloatArray, gain: FloatArray, table: FloatArray, labels: IntArray
) -> None:
    """Draw labels 0 and 1 for the nodes of the blocks of a range.

    own[t] and gain[l, y] are scores of label 1 less those of label 0: the t-th node's, and what
    lane l adds where the neighbour has label y.  P(0) = 1 / (1 + e^x) falls, so two entries of its
    table enclose it; the exponential is taken only where the random number lies between them.
    No branch depends on a label, for nobody can foretell it, and loops run along nodes; unsigned
    indices need no test of their sign.
    """
    x, u, drawn = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK, np.int64)
    # no block has more than BLOCK nodes
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
                if label > 1:  # not sure
                    label = 0 if u[w] * (1.0 + np.exp(x[w])) < 1.0 else 1
                labels[s.node[low + w]] = label


@kernel
def draw_many(
    r: Range, s: Sites, weight: FloatArray, table: FloatArray, m: Pieces, labels: IntArray
) -> None:
    """Draw labels for the sites of a range.

    weight (I, C) = exp(node score - maximum), table[which[a], y] what arc a multiplies where the
    neighbour has label y.  Products that leave the float range are drawn from the scores `m`.
    """
    size = weight.shape[1]
    p, score = np.empty(size), np.empty(size)
    for sweep in range(r.sweeps):
        counter = r.counter + sweep * r.room
        for t in range(r.low, r.high):
            i = s.node[t]
            for c in range(size):
                p[c] = weight[i, c]
            for a in range(s.start[t], s.start[t + 1]):
                w, y = s.which[a], labels[s.head[a]]
                for c in range(size):
                    p[c] *= table[w, y, c]
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
