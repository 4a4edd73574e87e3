"""Kernels of flooding belief propagation on any graph, in the linear domain.

Messages (2E, C) lie where they are read: row a is what node i hears along its arc a, i -> head[a],
maximum 1.  `table` (2K, C, C) holds exp(score - maximum) of each edge as its first node reads it,
then transposed; arc a reads table[which[a]].  For models as in `kernels.grids`: no zero in an edge
table, a span that floats hold.
"""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel, part_kernel
from fstgrad.mrf.arrays import Network

TINY = 1e-140


@kernel
def sweep(
    low: int,
    high: int,
    net: Network,
    which: IntArray,
    node: FloatArray,
    table: FloatArray,
    damping: float,
    maximum: int,
    messages: FloatArray,
    fresh: FloatArray,
) -> float:
    """Send all messages of the nodes low .. high - 1; return the largest change or -1.

    The change is that of the logarithms, before damping.  No slice is taken in the loops: each
    would cost more than a message of two labels.
    """
    size = node.shape[1]
    start, mate = net.start, net.mate
    most = 1
    for i in range(low, high):
        most = max(most, start[i + 1] - start[i])
    before, pre = np.empty((most, size)), np.empty(size)
    after, out = np.empty(size), np.empty(size)
    rise, fall = 1.0, 1.0
    for i in range(low, high):
        first, degree = start[i], start[i + 1] - start[i]
        for c in range(size):
            running = node[i, c]
            for k in range(degree):  # before[k]: the product of what comes before arc k
                before[k, c] = running
                running *= messages[first + k, c]
            after[c] = 1.0
        for arc in range(first + degree - 1, first - 1, -1):
            for c in range(size):
                pre[c] = before[arc - first, c] * after[c]
                after[c] *= messages[arc, c]
            w, back = which[arc], mate[arc]
            top = 0.0
            if size == 2 and maximum == 0:
                out[0] = pre[0] * table[w, 0, 0] + pre[1] * table[w, 1, 0]
                out[1] = pre[0] * table[w, 0, 1] + pre[1] * table[w, 1, 1]
                top = max(out[0], out[1])
            else:
                for b in range(size):
                    out[b] = 0.0
                for a in range(size):
                    weight = pre[a]
                    if maximum == 0:
                        for b in range(size):
                            out[b] += weight * table[w, a, b]
                    else:
                        for b in range(size):
                            out[b] = max(out[b], weight * table[w, a, b])
                for b in range(size):
                    top = max(top, out[b])
            if not top >= TINY:
                return -1.0
            scale = 1.0 / top
            for c in range(size):
                value, old = out[c] * scale, messages[back, c]
                if value > rise * old:
                    rise = value / old
                if value < fall * old:
                    fall = value / old
                fresh[back, c] = value
            if damping > 0:
                _damp(messages, back, damping, fresh)
    return float(max(np.log(rise), -np.log(fall)))


@part_kernel
def _damp(messages: FloatArray, arc: int, damping: float, fresh: FloatArray) -> None:
    """Replace a message by new^(1 - damping) * old^damping, maximum 1."""
    top = 0.0
    for c in range(fresh.shape[1]):
        mixed = (1.0 - damping) * np.log(fresh[arc, c]) + damping * np.log(messages[arc, c])
        fresh[arc, c] = np.exp(mixed)
        top = max(top, fresh[arc, c])
    for c in range(fresh.shape[1]):
        fresh[arc, c] /= top


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
    net: Network, which: IntArray, table: FloatArray, messages: FloatArray, beliefs: FloatArray,
    log_norm: FloatArray,
) -> float:  # fmt: skip
    """Return the sum of the log-normalizers of all edge beliefs, from normalized node beliefs."""
    size = beliefs.shape[1]
    total = 0.0
    for i in range(len(beliefs)):
        for arc in range(net.start[i], net.start[i + 1]):
            j, back = net.head[arc], net.mate[arc]
            if which[arc] & 1:  # each edge once, from its first node
                continue
            norm = 0.0
            for a in range(size):
                if beliefs[i, a] > 0:
                    inner = 0.0
                    for b in range(size):
                        inner += table[which[arc], a, b] * beliefs[j, b] / messages[back, b]
                    norm += beliefs[i, a] / messages[arc, a] * inner
            total += np.log(norm) + log_norm[i] + log_norm[j]
    return total
