"""Kernels of flooding belief propagation on any graph, in the linear domain.

The same equation as `bp_log`, with products in place of sums of logarithms.  `sweep_two_labels` is
`sweep` for two labels: 1.2 to 1.3 times as fast without damping, which is the default, and free of
the layout, which takes about as long as 20 sweeps.

`exp_edge` (K, C, C) holds exp(score - maximum) of each edge.  Arc a reads table which[a] >> 1, and
reads it transposed if which[a] is odd.  The models are those of `kernels.bp_grid`: no zero in an
edge table, and a span of scores that floats can hold.  The message from node i to node j is

    message[b] = sum_a node_i[a] * product of messages into i except from j [a] * exp_edge[a, b],

divided by its maximum.  `sweep` stores messages in lanes (see `VectorLayout`), so that inner loops
run along arcs as those of a grid run along pixels; `sweep_two_labels` as (2E, 2).  Arcs are
numbered as in `Network`.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel
from fstgrad.core.uninitialized import empty
from fstgrad.mrf.arrays import Indices, Network, VectorLayout
from fstgrad.mrf.kernels.bp_grid import marginalize, normalize_and_damp

TINY = 1e-140
ONE = np.uint64(1)
NO = np.uint64(0)


@kernel
def tables_by_lane(
    layout: VectorLayout, which: IntArray, exp_edge: FloatArray, out: FloatArray
) -> None:
    """Write the table of each arc to `out` (2E C C,), block by block as (C, C, lanes).

    Table cells are [label of the sender, label of the receiver].
    """
    first, arc, size = layout.block_lane, layout.arc, exp_edge.shape[1]
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
def nodes_by_block(layout: VectorLayout, node: FloatArray, out: FloatArray) -> None:
    """Write node weights (I, C) to `out` (nodes with arcs * C,), block by block as (C, nodes)."""
    size = node.shape[1]
    for block in range(len(layout.block_node) - 1):
        low, high = np.int64(layout.block_node[block]), np.int64(layout.block_node[block + 1])
        for c in range(size):
            for v in range(low, high):
                out[low * size + c * (high - low) + v - low] = node[layout.node[v], c]


@kernel
def messages_by_arc(layout: VectorLayout, sent: FloatArray, messages: FloatArray) -> None:
    """Write the message along the reverse of each arc a to messages[a], (2E, C)."""
    for lane in range(len(layout.arc)):
        at = layout.reverse_start[lane]
        for c in range(messages.shape[1]):
            messages[layout.arc[lane], c] = sent[at]
            at += layout.reverse_step[lane]


@kernel
def sweep(
    low: int,
    high: int,
    layout: VectorLayout,
    node: FloatArray,
    table: FloatArray,
    damping: float,
    maximum: int,
    sent: FloatArray,
    fresh: FloatArray,
) -> float:
    """Write the messages that blocks low .. high - 1 send to `fresh`; return the largest change.

    The change is |log new - log old| before damping, in nats; -1 if the maximum of a message is
    below TINY.  All arrays are flat: node block by block as (C, nodes); table either one (C, C)
    that all edges share or those of `tables_by_lane`; sent (old messages) and fresh block by block
    as (C, lanes).  Damping as in `bp_grid.normalize_and_damp`.
    """
    size = len(sent) // max(1, len(layout.reverse_start))
    cells, shared = size * size, len(table) == size * size
    widest = 1
    for block in range(low, high):
        widest = max(widest, int(np.int64(layout.block_lane[block + 1] - layout.block_lane[block])))
    room = widest + 13 - widest % 8  # not a power of two: else rows share one set of the cache
    incoming, cavity, out = empty((size, room)), empty((size, room)), empty((size, room))
    top, ratio = empty(widest), np.ones(2)
    for block in range(low, high):
        begin = int(np.int64(layout.block_lane[block]))
        end = int(np.int64(layout.block_lane[block + 1]))
        width = np.uint64(end - begin)
        gather_incoming(layout, layout.block_lane[block], width, sent, incoming)
        multiply_others(layout, np.uint64(block), node, incoming, top, cavity)
        if shared:
            scores = table.reshape((size, size, 1))
            for r in range(layout.block_run[block], layout.block_run[block + 1]):
                at = np.uint64(layout.run_lane[r] - begin)
                count = np.uint64(layout.run_lane[r + 1] - layout.run_lane[r])
                marginalize(cavity, scores, layout.run_flip[r], maximum, at, count, at, out)
        else:
            scores = table[begin * cells : end * cells].reshape((size, size, end - begin))
            marginalize(cavity, scores, 0, maximum, NO, width, NO, out)
        old = sent[begin * size : end * size].reshape((size, end - begin))
        new = fresh[begin * size : end * size].reshape((size, end - begin))
        if not normalize_and_damp(out, old, damping, 0, end - begin, top, ratio, new):
            return -1.0
    return float(max(np.log(ratio[0]), -np.log(ratio[1])))


@inner_kernel
def gather_incoming(
    layout: VectorLayout, first: np.uint64, width: np.uint64, sent: FloatArray, incoming: FloatArray
) -> None:
    """Write the message along the reverse of each lane's arc to incoming (C, >= lanes).

    `first` is the first lane of the block, `width` its number of lanes.
    """
    for w in range(width):
        at, step = layout.reverse_start[first + w], layout.reverse_step[first + w]
        for c in range(incoming.shape[0]):
            incoming[c, w] = sent[at]
            at += step


@inner_kernel
def multiply_others(
    layout: VectorLayout,
    block: np.uint64,
    node: FloatArray,
    incoming: FloatArray,
    after: FloatArray,
    cavity: FloatArray,
) -> None:
    """Write cavity (C, >= lanes): the node's weight times the messages along all its other arcs.

    The product leaves out one message without a division: products of the messages before it, from
    the first slot on, times products of those after it, from the last slot back.  after (>= nodes,)
    is scratch memory.  Indices are unsigned: a test of their sign took three quarters of the time.
    """
    slot, first, last = layout.slot_lane, layout.block_slot[block], layout.block_slot[block + ONE]
    begin, nodes = slot[first], slot[first + ONE] - slot[first]
    size = np.uint64(incoming.shape[0])
    for c in range(size):
        base = layout.block_node[block] * size + c * nodes
        for w in range(nodes):
            cavity[c, w] = node[base + w]
            after[w] = 1.0
        for s in range(first + ONE, last):
            at, before = slot[s] - begin, slot[s - ONE] - begin
            for w in range(slot[s + ONE] - slot[s]):
                cavity[c, at + w] = cavity[c, before + w] * incoming[c, before + w]
        s = last
        while s > first:
            s -= ONE
            at = slot[s] - begin
            for w in range(slot[s + ONE] - slot[s]):
                later = after[w]
                cavity[c, at + w] *= later
                after[w] = later * incoming[c, at + w]


@kernel
def sweep_two_labels(
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
    """Send all messages of the nodes low .. high - 1 as `sweep` does, for two labels without lanes.

    table (rows, 4): arc a reads row which[a], cells (own label, other label).  node (I, 2).
    sent (2E, 2), the last message along each arc, is overwritten; messages and fresh (2E, 2) are
    the old and the new messages by receiving arc, fresh[mate[a]] = sent[a].  Returns the largest
    |log new - log old| before damping, or -1.  Indices are unsigned: a test of their sign took half
    of the time.
    """
    most = ONE
    for i in range(low, high):
        most = max(most, start[i + 1] - start[i])
    before = empty((most, 2))
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
    """Write the normalized beliefs of nodes low .. high - 1 and their log-normalizers.

    out[i, c] = node[i, c] * product of messages[a, c] over the arcs a of i / norm, and log_norm[i]
    = log norm.  Returns False if a norm is below TINY.  messages (2E, C) as `messages_by_arc`
    writes them.
    """
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
    """Return the sum over edges of the log-normalizers of the edge beliefs, from node beliefs.

    For arc a from i to j with the reverse arc r: log_norm[i] + log_norm[j] + log sum over (p, q) of
    beliefs[i, p] / messages[a, p] * exp_edge[p, q] * beliefs[j, q] / messages[r, q], in nats.
    `beliefs` (I, C) and `log_norm` (I,) are those that the kernel `beliefs` writes.
    """
    size = beliefs.shape[1]
    start, head, mate = net
    total, other = 0.0, empty(size)
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
