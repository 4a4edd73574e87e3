"""Kernels of flooding belief propagation on any graph, in the linear domain.

Messages (2E, C) lie where they are read: row a is what node i hears along its arc a, i -> head[a],
maximum 1.  `exp_edge` (K, C, C) holds exp(score - maximum) of each edge; arc a reads table
which[a] >> 1, transposed where which[a] is odd.  For models as in `kernels.grids`: no zero in an
edge table, a span that floats hold.

The arcs are cut into groups of nodes, see `Groups`.  What a group says is laid out as (C, arcs), so
that the inner loops run along arcs as those of a grid run along pixels.
"""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import inner_kernel, kernel
from fstgrad.mrf.arrays import Groups, Indices, Network
from fstgrad.mrf.kernels.grids import mix, settle

TINY = 1e-140
ONE = np.uint64(1)


@kernel
def tables_by_group(groups: Groups, which: IntArray, exp_edge: FloatArray, out: FloatArray) -> None:
    """Write the table of each arc to the flat `out`, group by group as (C, C, arcs)."""
    first, lane, size = groups.first, groups.lane, exp_edge.shape[1]
    for group in range(len(first) - 1):
        low, high = first[group], first[group + 1]
        for arc in range(low, high):
            edge, cell = which[arc] >> 1, low * size * size + int(lane[arc])
            for a in range(size):
                for b in range(size):
                    out[cell] = exp_edge[edge, b, a] if which[arc] & 1 else exp_edge[edge, a, b]
                    cell += high - low


@kernel
def sweep(
    low: int,
    high: int,
    groups: Groups,
    node: FloatArray,
    table: FloatArray,
    damping: float,
    maximum: int,
    messages: FloatArray,
    sent: FloatArray,
    fresh: FloatArray,
) -> float:
    """Send all messages of the groups low .. high - 1; return the largest change or -1.

    `table` is flat: a table (C, C) that all arcs share, else those of `tables_by_group`; `sent` is
    what was sent last, flat, group by group as (C, arcs).  The change is that of the logarithms,
    before damping.
    """
    start, cut, begin, ahead, lane, to = groups
    size = node.shape[1]
    cells, shared = size * size, len(table) == size * size
    widest = 1
    for group in range(low, high):
        widest = max(widest, begin[group + 1] - begin[group])
    room = widest + 13 - widest % 8  # no power of two: rows would meet in one set of the cache
    pre, out, before = np.empty((size, room)), np.empty((size, room)), np.empty(widest)
    top, ratio = np.empty(widest), np.ones(2)
    for group in range(low, high):
        first, width, forth = begin[group], begin[group + 1] - begin[group], ahead[group]
        if width == 0:
            continue
        gather(cut[group], cut[group + 1], start, lane, node, messages, before, pre)
        if shared:
            scores = table.reshape((size, size, 1))
            mix(pre, scores, 0, maximum, 0, forth, out)
            mix(pre, scores, 1, maximum, forth, width - forth, out[:, forth:])
        else:
            scores = table[first * cells : (first + width) * cells].reshape((size, size, width))
            mix(pre, scores, 0, maximum, 0, width, out)
        old = sent[first * size : (first + width) * size].reshape((size, width))
        if not settle(out, old, damping, 0, width, top, ratio, pre):
            return -1.0
        for c in range(size):
            for w in range(width):
                old[c, w] = pre[c, w]
        for w in range(width):
            row = to[first + w]
            for c in range(size):
                fresh[row, c] = pre[c, w]
    return float(max(np.log(ratio[0]), -np.log(ratio[1])))


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
                x = np.exp((1.0 - damping) * np.log(x) + damping * np.log(a))
                y = np.exp((1.0 - damping) * np.log(y) + damping * np.log(b))
                top = 1.0 / max(x, y)
                x, y = x * top, y * top
            sent[k, 0], sent[k, 1] = x, y
            to = mate[k]
            fresh[to, 0], fresh[to, 1] = x, y
    return float(max(np.log(rise), -np.log(fall)))


@inner_kernel
def gather(
    low: int,
    high: int,
    start: Indices,
    lane: Indices,
    node: FloatArray,
    messages: FloatArray,
    before: FloatArray,
    pre: FloatArray,
) -> None:
    """Write what the nodes low .. high - 1 say along each arc, not having heard it, to its lane.

    Unsigned indices need no test of their sign, which took half of the time.
    """
    for i in range(low, high):
        first, last = start[i], start[i + 1]
        for c in range(node.shape[1]):
            running, after = node[i, c], 1.0
            for k in range(first, last):
                before[k - first] = running
                running *= messages[k, c]
            k = last
            while k > first:
                k -= ONE
                pre[c, lane[k]] = before[k - first] * after
                after *= messages[k, c]


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
