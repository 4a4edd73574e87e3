"""Kernel of flooding tree-reweighted messages on any graph, as logarithms in lanes.

Lanes are those of `kernels.weights`: the inner loops run along arcs, and a message costs a vector
exponential and logarithm a label.  With rho the share of the trees that hold an edge,

    message[b] = log sum_a exp(total[a] - back[a]) exp(edge[a, b] / rho)

where total = node + sum of rho * message, and `back` is the message the other way.  What is sent
is message[b] - message[0] for the labels b >= 1; changes are those of messages with maximum 0.  For
models whose tables edge / rho span less than `powers.LARGEST_SPAN` nats: the largest term is at
least e^-span, so that no sum leaves the float range.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import inner_kernel, kernel
from fstgrad.mrf.arrays import Indices, Lanes
from fstgrad.mrf.kernels.grids import mix
from fstgrad.mrf.kernels.weights import hear
from fstgrad.vectors import exponentiate, logarithms

NO = np.uint64(0)
ONE = np.uint64(1)


class Shares(NamedTuple):
    """What belongs to the lanes beside their graph.

    Attributes
    ----------
    rho : (2E,)
        The share of each lane's edge.
    take : (2E,) or (0,)
        Where the edges have few tables, the messages of a block lie in the order of their tables:
        the r-th is that of the take[first + r]-th lane of the block.
    number : (runs,)
        The table of each run of such messages.
    """

    rho: FloatArray
    take: Indices
    number: IntArray


@kernel
def sweep(
    low: int,
    high: int,
    labels: int,
    lanes: Lanes,
    shares: Shares,
    node: FloatArray,
    table: FloatArray,
    damping: float,
    sent: FloatArray,
    fresh: FloatArray,
) -> float:
    """Send all messages of the blocks low .. high - 1; return the largest change before damping.

    `node` is flat, block by block as (C, nodes), for two labels as (1, nodes) the score of label 1
    less that of label 0; `sent` and `fresh` are flat, block by block as (C - 1, lanes); `table`
    holds exp(edge / rho - maximum), one after another by `number`, or that of each lane as in
    `kernels.weights.sweep`.
    """
    cells, own = labels * labels, len(shares.take) == 0
    said, rows = labels - 1, labels if labels > 2 else 1
    widest = 1
    for block in range(low, high):
        widest = max(widest, int(np.int64(lanes.first[block + 1] - lanes.first[block])))
    room = widest + 13 - widest % 8  # no power of two: rows would meet in one set of the cache
    # all as wide as the widest block, which has at least as many lanes as nodes
    heard, pre = np.empty((said, room)), np.empty((rows, room))
    mass, out = np.empty((labels, room)), np.empty((labels, room))
    top, work, worst = np.empty(room), np.empty(room), 0.0
    for block in range(low, high):
        begin, end = int(np.int64(lanes.first[block])), int(np.int64(lanes.first[block + 1]))
        width = np.uint64(end - begin)
        hear(lanes, lanes.first[block], width, sent, heard)
        _weigh(lanes, np.uint64(block), shares.rho, node, heard, top, pre)
        _turn(shares.take, lanes.first[block], width, pre, mass)
        if labels == 2:
            _raise_two(width, mass, work)
        else:
            _raise(mass, width, top, work)
        if own:
            scores = table[begin * cells : end * cells].reshape((labels, labels, end - begin))
            mix(mass, scores, 0, 0, NO, width, NO, out)
        else:
            for r in range(lanes.first_run[block], lanes.first_run[block + 1]):
                k, at = shares.number[r] * cells, np.uint64(lanes.run[r] - begin)
                count = np.uint64(lanes.run[r + 1] - lanes.run[r])
                scores = table[k : k + cells].reshape((labels, labels, 1))
                mix(mass, scores, lanes.flip[r], 0, at, count, at, out)
        old = sent[begin * said : end * said].reshape((said, end - begin))
        new = fresh[begin * said : end * said].reshape((said, end - begin))
        worst = _settle(out, old, width, damping, worst, top, work, new)
    return worst


@inner_kernel
def _weigh(
    lanes: Lanes, block: np.uint64, rho: FloatArray, node: FloatArray, heard: FloatArray,
    total: FloatArray, pre: FloatArray,
) -> None:  # fmt: skip
    """Write what each lane of a block says: its node's total less what it hears itself."""
    slot, first, last = lanes.slot, lanes.first_slot[block], lanes.first_slot[block + ONE]
    begin, nodes = slot[first], slot[first + ONE] - slot[first]
    rows, silent = np.uint64(pre.shape[0]), np.uint64(pre.shape[0] - heard.shape[0])
    for c in range(rows):
        base = lanes.cut[block] * rows + c * nodes
        for w in range(nodes):
            total[w] = node[base + w]
        if c < silent:  # nothing is heard of label 0
            for s in range(first, last):
                at = slot[s] - begin
                for w in range(slot[s + ONE] - slot[s]):
                    pre[c, at + w] = total[w]
            continue
        row = c - silent
        for s in range(first, last):
            at = slot[s] - begin
            for w in range(slot[s + ONE] - slot[s]):
                total[w] += rho[slot[s] + w] * heard[row, at + w]
        for s in range(first, last):
            at = slot[s] - begin
            for w in range(slot[s + ONE] - slot[s]):
                pre[c, at + w] = total[w] - heard[row, at + w]


@inner_kernel
def _turn(
    take: Indices, first: np.uint64, width: np.uint64, pre: FloatArray, out: FloatArray
) -> None:
    """Bring the lanes of a block into the order of their tables, if they have one."""
    for c in range(pre.shape[0]):
        if len(take) == 0:
            for w in range(width):
                out[c, w] = pre[c, w]
        else:
            for r in range(width):
                out[c, r] = pre[c, take[first + r]]


@inner_kernel
def _raise(mass: FloatArray, width: np.uint64, top: FloatArray, work: FloatArray) -> None:
    """Replace the scores of each lane by their exponentials, the largest 1."""
    for w in range(width):
        top[w] = mass[0, w]
    for c in range(1, mass.shape[0]):
        for w in range(width):
            top[w] = mass[c, w] if mass[c, w] > top[w] else top[w]
    for c in range(mass.shape[0]):
        for w in range(width):
            mass[c, w] -= top[w]
        exponentiate(mass[c, :width], work)


@inner_kernel
def _raise_two(width: np.uint64, mass: FloatArray, work: FloatArray) -> None:
    """Do the same for two labels, whose difference mass[0] holds."""
    for w in range(width):
        mass[1, w] = -abs(mass[0, w])
    exponentiate(mass[1, :width], work)
    for w in range(width):
        less, ahead = mass[1, w], mass[0, w] > 0.0
        mass[0, w] = less if ahead else 1.0
        mass[1, w] = 1.0 if ahead else less


@inner_kernel
def _settle(
    out: FloatArray, old: FloatArray, width: np.uint64, damping: float, worst: float,
    top: FloatArray, before: FloatArray, fresh: FloatArray,
) -> float:  # fmt: skip
    """Write the logarithms of out[b] / out[0], damped; return the largest change so far.

    `top` and `before` keep the maximum of each message and of the one before.
    """
    for w in range(width):
        out[0, w] = np.divide(1.0, out[0, w])
    for c in range(1, out.shape[0]):
        for w in range(width):
            out[c, w] *= out[0, w]
        logarithms(out[c, :width], top)
    for w in range(width):
        top[w], before[w] = 0.0, 0.0
    for c in range(old.shape[0]):
        for w in range(width):
            top[w] = max(top[w], out[c + 1, w])
            before[w] = max(before[w], old[c, w])
    beyond = 0
    for w in range(width):
        before[w] -= top[w]  # how far label 0 moves
        beyond += abs(before[w]) > worst
    for c in range(old.shape[0]):
        for w in range(width):
            moved = out[c + 1, w] - old[c, w]
            beyond += abs(moved + before[w]) > worst
            fresh[c, w] = out[c + 1, w] - damping * moved
    if beyond > 0:
        for w in range(width):
            worst = max(worst, abs(before[w]))
            for c in range(old.shape[0]):
                worst = max(worst, abs(out[c + 1, w] - old[c, w] + before[w]))
    return worst
