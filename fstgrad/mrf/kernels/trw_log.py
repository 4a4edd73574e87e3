"""Kernel of flooding tree-reweighted message passing on any graph, with log messages in lanes.

Lanes are those of `kernels.bp_linear`: the inner loops run along arcs, and a message costs one
vectorized exponential and logarithm per label.  Let rho be the share of the trees that contain the
edge i - j.  The message from i to j is (Wainwright, Jaakkola and Willsky 2005, in logs)

    message[b] = log sum_a exp(total_i[a] - back[a]) exp(edge[a, b] / rho),

where total_i = node_i + sum over neighbours k of rho_ik * message(k -> i), and back = message
(j -> i).  Messages are stored as message[b] - message[0] for the labels b >= 1, but changes are
measured between messages with maximum 0.  The tables edge / rho must span less than
`powers.LARGEST_SPAN` nats: then each sum is at least e^-span of its largest possible value, and no
sum leaves the float range.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import exponentiate, logarithms
from fstgrad.mrf.arrays import Indices, Lanes
from fstgrad.mrf.kernels.bp_linear import hear
from fstgrad.mrf.kernels.grids import mix

NO = np.uint64(0)
ONE = np.uint64(1)


class Shares(NamedTuple):
    """What the lanes need besides the graph.

    If edges and shares give few distinct tables edge / rho, the messages of a block are stored in
    the order of their tables, so that a run of messages uses one table.

    Attributes
    ----------
    rho : (2E,) float64
        The share of each lane's edge, in (0, 1].
    take : (2E,) uint64, or (0,)
        Message r of a block belongs to lane take[first + r] of the block, with `first` the block's
        first lane.  Empty if there are many tables: messages are then in the order of the lanes.
    number : (runs,) int64
        The table of each run; runs are those of `Lanes`.
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
    """Write the messages that blocks low .. high - 1 send to `fresh`; return the largest change.

    The change is |new - old| of the log messages with maximum 0, before damping, in nats.  All
    arrays are flat: node block by block as (C, nodes), or for two labels (1, nodes), score of label
    1 minus score of label 0; sent (old messages) and fresh block by block as (C - 1, lanes); table
    holds exp(edge / rho - maximum), (C, C) each, indexed by `number` or, if `take` is empty, by
    lane as in `kernels.bp_linear.sweep`.  labels = C.
    """
    cells, own = labels * labels, len(shares.take) == 0
    said, rows = labels - 1, labels if labels > 2 else 1
    widest = 1
    for block in range(low, high):
        widest = max(widest, int(np.int64(lanes.first[block + 1] - lanes.first[block])))
    room = widest + 13 - widest % 8  # not a power of two: else rows share one set of the cache
    # bounds: all are as wide as the widest block, which has at least as many lanes as nodes
    heard, pre = empty((said, room)), empty((rows, room))
    mass, out = empty((labels, room)), empty((labels, room))
    top, work, worst = empty(room), empty(room), 0.0
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
    """Write pre = total_i - back for each lane of a block, (C, >= lanes); for two labels (1, ...).

    total_i = node_i + sum over its lanes of rho * heard.  `total` (>= nodes,) is scratch memory.
    """
    slot, first, last = lanes.slot, lanes.first_slot[block], lanes.first_slot[block + ONE]
    begin, nodes = slot[first], slot[first + ONE] - slot[first]
    rows, silent = np.uint64(pre.shape[0]), np.uint64(pre.shape[0] - heard.shape[0])
    for c in range(rows):
        base = lanes.cut[block] * rows + c * nodes
        for w in range(nodes):
            total[w] = node[base + w]
        if c < silent:  # messages of label 0 are 0
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
    """Write out[c, r] = pre[c, take[first + r]]; copy `pre` if `take` is empty."""
    for c in range(pre.shape[0]):
        if len(take) == 0:
            for w in range(width):
                out[c, w] = pre[c, w]
        else:
            for r in range(width):
                out[c, r] = pre[c, take[first + r]]


@inner_kernel
def _raise(mass: FloatArray, width: np.uint64, top: FloatArray, work: FloatArray) -> None:
    """Replace the scores of each lane by mass[c, w] = exp(mass[c, w] - max_c mass[c, w])."""
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
    """Do what `_raise` does for two labels; mass[0] comes in as score of label 1 minus label 0."""
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
    """Write the new messages log(out[b] / out[0]), damped, to fresh[b - 1]; return the new `worst`.

    fresh = (1 - damping) * new + damping * old.  `worst` is the largest change so far of messages
    with maximum 0, before damping.  `out` is overwritten; `top` and `before` (>= width,) are
    scratch memory, for the maximum of each new and each old message.
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
        before[w] -= top[w]  # the change of label 0
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
