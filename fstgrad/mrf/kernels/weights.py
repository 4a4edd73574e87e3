"""Kernels of flooding belief propagation on any graph, in the linear domain.

`exp_edge` (K, C, C) holds exp(score - maximum) of each edge; arc a reads table which[a] >> 1,
transposed where which[a] is odd.  For models as in `kernels.grids`: no zero in an edge table, a
span that floats hold.

What the arcs said last lies in lanes, see `Lanes`, so that the inner loops run along arcs as those
of a grid run along pixels; with two labels, by arcs (2E, 2).
"""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import inner_kernel, kernel
from fstgrad.mrf.arrays import Indices, Lanes, Network
from fstgrad.mrf.kernels.grids import mix, settle

TINY = 1e-140
ONE = np.uint64(1)
NO = np.uint64(0)


@kernel
def tables_by_lane(lanes: Lanes, which: IntArray, exp_edge: FloatArray, out: FloatArray) -> None:
    """Write the table of each arc to the flat `out`, block by block as (C, C, lanes)."""
    first, arc, size = lanes.first, lanes.arc, exp_edge.shape[1]
    for block in range(len(first) - 1):
        low, high = np.int64(first[block]), np.int64(first[block + 1])
        for lane in range(low, high):
            table, cell = which[arc[lane]], low * size * size + lane - low
            for a in range(size):
                for b in range(size):
                    out[cell] = exp_edge[table >> 1, b, a] if table & 1 else (
                        exp_edge[table >> 1, a, b]
                    )  # fmt: skip
                    cell += high - low


@kernel
def nodes_by_block(lanes: Lanes, node: FloatArray, out: FloatArray) -> None:
    """Write node weights (I, C) to the flat `out`, block by block as (C, nodes)."""
    size = node.shape[1]
    for block in range(len(lanes.cut) - 1):
        low, high = np.int64(lanes.cut[block]), np.int64(lanes.cut[block + 1])
        for c in range(size):
            for v in range(low, high):
                out[low * size + c * (high - low) + v - low] = node[lanes.node[v], c]


@kernel
def by_arcs(lanes: Lanes, sent: FloatArray, messages: FloatArray) -> None:
    """Write what node i hears along its arc a to messages[a]."""
    for lane in range(len(lanes.arc)):
        at = lanes.source[lane]
        for c in range(messages.shape[1]):
            messages[lanes.arc[lane], c] = sent[at]
            at += lanes.step[lane]


@kernel
def sweep(
    low: int,
    high: int,
    lanes: Lanes,
    node: FloatArray,
    table: FloatArray,
    damping: float,
    maximum: int,
    sent: FloatArray,
    fresh: FloatArray,
) -> float:
    """Send all messages of the blocks low .. high - 1; return the largest change or -1.

    `node` is flat, block by block as (C, nodes); `table` is flat: a table (C, C) that all arcs
    share, else those of `tables_by_lane`; `sent` and `fresh` are flat, block by block as
    (C, lanes).  The change is that of the logarithms, before damping.
    """
    size = len(sent) // max(1, len(lanes.source))
    cells, shared = size * size, len(table) == size * size
    widest = 1
    for block in range(low, high):
        widest = max(widest, int(np.int64(lanes.first[block + 1] - lanes.first[block])))
    room = widest + 13 - widest % 8  # no power of two: rows would meet in one set of the cache
    heard, pre, out = np.empty((size, room)), np.empty((size, room)), np.empty((size, room))
    top, ratio = np.empty(widest), np.ones(2)
    for block in range(low, high):
        begin = int(np.int64(lanes.first[block]))
        end = int(np.int64(lanes.first[block + 1]))
        width = np.uint64(end - begin)
        hear(lanes, lanes.first[block], width, sent, heard)
        multiply(lanes, np.uint64(block), node, heard, top, pre)
        if shared:
            scores = table.reshape((size, size, 1))
            for r in range(lanes.first_run[block], lanes.first_run[block + 1]):
                at = np.uint64(lanes.run[r] - begin)
                count = np.uint64(lanes.run[r + 1] - lanes.run[r])
                mix(pre, scores, lanes.flip[r], maximum, at, count, at, out)
        else:
            scores = table[begin * cells : end * cells].reshape((size, size, end - begin))
            mix(pre, scores, 0, maximum, NO, width, NO, out)
        old = sent[begin * size : end * size].reshape((size, end - begin))
        new = fresh[begin * size : end * size].reshape((size, end - begin))
        if not settle(out, old, damping, 0, end - begin, top, ratio, new):
            return -1.0
    return float(max(np.log(ratio[0]), -np.log(ratio[1])))


@inner_kernel
def hear(
    lanes: Lanes, first: np.uint64, width: np.uint64, sent: FloatArray, heard: FloatArray
) -> None:
    """Write what each lane of a block hears to heard (C, lanes)."""
    for w in range(width):
        at, step = lanes.source[first + w], lanes.step[first + w]
        for c in range(heard.shape[0]):
            heard[c, w] = sent[at]
            at += step


@inner_kernel
def multiply(
    lanes: Lanes,
    block: np.uint64,
    node: FloatArray,
    heard: FloatArray,
    after: FloatArray,
    pre: FloatArray,
) -> None:
    """Write the product of a node's weight and of what it hears along its other arcs.

    Unsigned indices need no test of their sign, which took three quarters of the time.
    """
    slot, first, last = lanes.slot, lanes.first_slot[block], lanes.first_slot[block + ONE]
    begin, nodes = slot[first], slot[first + ONE] - slot[first]
    size = np.uint64(heard.shape[0])
    for c in range(size):
        base = lanes.cut[block] * size + c * nodes
        for w in range(nodes):
            pre[c, w] = node[base + w]
            after[w] = 1.0
        for s in range(first + ONE, last):
            at, before = slot[s] - begin, slot[s - ONE] - begin
            for w in range(slot[s + ONE] - slot[s]):
                pre[c, at + w] = pre[c, before + w] * heard[c, before + w]
        s = last
        while s > first:
            s -= ONE
            at = slot[s] - begin
            for w in range(slot[s + ONE] - slot[s]):
                later = after[w]
                pre[c, at + w] *= later
                after[w] = later * heard[c, at + w]


@kernel
def sweep_two(
    low: int,
    high: int,
    start: Indices,
    mate: Indices,
    which: Indices,
    node: FloatArray,
    table: FloatArray,
    damping: float,
    maximum: int,
    messages: FloatArray,
    sent: FloatArray,
    fresh: FloatArray,
) -> float:
    """Send all messages of the nodes low .. high - 1, as `sweep` does, for two labels.

    Arc a reads the table row which[a], its four cells as (own label, other label); `sent` (2E, 2)
    is what each arc sent last.  Two numbers are too few to be worth lanes.  Unsigned indices need
    no test of their sign, which took half of the time.
    """
    most = ONE
    for i in range(low, high):
        most = max(most, start[i + 1] - start[i])
    before = np.empty((most, 2))
    rise, fall = 1.0, 1.0
    for i in range(low, high):
        first, last = start[i], start[i + 1]
        p, q = node[i, 0], node[i, 1]
        for k in range(first, last):
            before[k - first, 0], before[k - first, 1] = p, q
            p *= messages[k, 0]
            q *= messages[k, 1]
        r, s = 1.0, 1.0
        k = last
        while k > first:
            k -= ONE
            p, q = before[k - first, 0] * r, before[k - first, 1] * s
            r *= messages[k, 0]
            s *= messages[k, 1]
            row = table[which[k]]
            if maximum == 0:
                x, y = p * row[0] + q * row[2], p * row[1] + q * row[3]
            else:
                x, y = max(p * row[0], q * row[2]), max(p * row[1], q * row[3])
            top = max(x, y)
            if not top >= TINY:
                return -1.0
            top = 1.0 / top
            x, y = x * top, y * top
            a, b = sent[k, 0], sent[k, 1]
            if (x > rise * a) | (x < fall * a) | (y > rise * b) | (y < fall * b):
                rise, fall = max(rise, x / a, y / b), min(fall, x / a, y / b)
            if damping > 0.0:
                x *= np.exp(damping * np.log(np.divide(a * y, b * x)))
                top = 1.0 / max(x, y)
                x, y = x * top, y * top
            sent[k, 0], sent[k, 1] = x, y
            to = mate[k]
            fresh[to, 0], fresh[to, 1] = x, y
    return float(max(np.log(rise), -np.log(fall)))


@kernel
def beliefs(
    low: int, high: int, net: Network, node: FloatArray, messages: FloatArray, out: FloatArray,
    log_norm: FloatArray,
) -> bool:  # fmt: skip
    """Write the normalized beliefs of nodes low .. high - 1; return False if one is below TINY."""
    for i in range(low, high):
        norm = 0.0
        for c in range(node.shape[1]):
            product = node[i, c]
            for arc in range(net.start[i], net.start[i + 1]):
                product *= messages[arc, c]
            out[i, c] = product
            norm += product
        if not norm >= TINY:
            return False
        log_norm[i] = np.log(norm)
        for c in range(node.shape[1]):
            out[i, c] /= norm
    return True


@kernel
def pair_norms(
    net: Network, which: IntArray, exp_edge: FloatArray, messages: FloatArray, beliefs: FloatArray,
    log_norm: FloatArray,
) -> float:  # fmt: skip
    """Return the sum of the log-normalizers of all edge beliefs, from normalized node beliefs."""
    size = beliefs.shape[1]
    start, head, mate = net
    total, other = 0.0, np.empty(size)
    for i in range(len(beliefs)):
        for arc in range(start[i], start[i + 1]):
            if which[arc] & 1:  # each edge once, from its first node
                continue
            j, back, edge, norm = head[arc], mate[arc], which[arc] >> 1, 0.0
            for b in range(size):
                other[b] = beliefs[j, b] / messages[back, b]
            for a in range(size):
                inner = 0.0
                for b in range(size):
                    inner += exp_edge[edge, a, b] * other[b]
                norm += beliefs[i, a] / messages[arc, a] * inner
            total += np.log(norm) + log_norm[i] + log_norm[j]
    return total
