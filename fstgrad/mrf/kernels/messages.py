"""Kernels of message passing on any graph, in the log domain.

Letters: `arc` d runs from node i to node j; `total[i]` is the score row of i plus all messages into
i; `pre` = total[i] minus the message j -> i, what i says without having heard j.  A label whose
total is -inf is dead: no labeling uses it, so it is left out of every message.

The update of an arc i -> j (Yedidia, Freeman and Weiss 2005, Eq. 10, in logs) is

    message[b] = log sum_a exp(pre[a] + edge[a, b]),   then its maximum is subtracted.

Sums run over exp_edge; where a sum leaves the float range it is computed again, exactly, from
`edge`.
"""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel, part_kernel
from fstgrad.mrf.arrays import Potentials, Shape

TINY = 1e-250


@kernel
def send(
    pre: FloatArray,
    p: Potentials,
    arc: int,
    maximum: int,
    weight: FloatArray,
    out: FloatArray,
) -> float:
    """Write the message of an arc, its maximum 0, and return what was subtracted.

    maximum = 1 takes the largest term instead of the sum; `weight` is scratch of C numbers.
    Returns -inf where everything is dead.
    """
    size, flip = len(pre), arc & 1
    k = arc >> 1 if len(p.shift) > 1 else 0
    edge, exp_edge, shift = p.edge[k], p.exp_edge[k], p.shift[k]
    top = pre.max()
    if top == -np.inf:
        out[:] = -np.inf
        return -np.inf
    for a in range(size):
        weight[a] = np.exp(pre[a] - top)
    best = -np.inf
    for b in range(size):
        total = 0.0
        if maximum == 0:
            for a in range(size):
                total += weight[a] * (exp_edge[b, a] if flip else exp_edge[a, b])
        if total > TINY:
            out[b] = np.log(total) + top + shift
        else:
            out[b] = _reduce(pre, edge, flip, maximum, b)
        best = max(best, out[b])
    if best > -np.inf:
        for b in range(size):
            out[b] -= best
    return best


@part_kernel
def _reduce(pre: FloatArray, edge: FloatArray, flip: int, maximum: int, b: int) -> float:
    """Return the maximum or the log-sum-exp of pre[a] + edge[a, b] over a."""
    best = -np.inf
    for a in range(len(pre)):
        best = max(best, pre[a] + (edge[b, a] if flip else edge[a, b]))
    if maximum == 1 or best == -np.inf:
        return float(best)
    total = 0.0
    for a in range(len(pre)):
        total += np.exp(pre[a] + (edge[b, a] if flip else edge[a, b]) - best)
    return float(best + np.log(total))


@kernel
def without(total: FloatArray, message: FloatArray, pre: FloatArray) -> None:
    """Write pre = total - message, -inf at dead labels."""
    for c in range(len(total)):
        pre[c] = total[c] - message[c] if total[c] > -np.inf else -np.inf


@kernel
def sum_messages(
    low: int,
    high: int,
    shape: Shape,
    node: FloatArray,
    rho: FloatArray,
    messages: FloatArray,
    total: FloatArray,
) -> None:
    """Write total[i] = node[i] + sum over neighbours j of rho_ij * message(j -> i)."""
    size = node.shape[1]
    for i in range(low, high):
        for c in range(size):
            total[i, c] = node[i, c]
        for k in range(shape.start[i], shape.start[i + 1]):
            arc = shape.leaving[k] ^ 1
            weight = rho[arc >> 1]
            for c in range(size):
                total[i, c] += weight * messages[arc, c]


@kernel
def damped(fresh: FloatArray, old: FloatArray, damping: float) -> float:
    """Mix a new message with the old one in logs, the maximum 0; return how far they were apart.

    The distance is the largest |new - old| in nats, before damping.  A dead label stays dead.
    """
    distance = 0.0
    top = -np.inf
    for c in range(len(fresh)):
        if fresh[c] != old[c]:
            distance = max(distance, abs(fresh[c] - old[c]))
        if damping > 0 and fresh[c] > -np.inf and old[c] > -np.inf:
            fresh[c] = (1 - damping) * fresh[c] + damping * old[c]
        top = max(top, fresh[c])
    if damping > 0:
        for c in range(len(fresh)):
            fresh[c] -= top
    return distance


@kernel
def update_arc(
    arc: int,
    source: int,
    total: FloatArray,
    p: Potentials,
    messages: FloatArray,
    damping: float,
    maximum: int,
    scratch: FloatArray,
    out: FloatArray,
) -> float:
    """Write the new message of an arc from node `source`; return its change or -1 if dead.

    The change is that of the logarithms, before damping: a message that still moves from e^-15 to
    e^-30 has not settled, small as both are.
    """
    without(total[source], messages[arc ^ 1], scratch[0])
    if send(scratch[0], p, arc, maximum, scratch[1], out) == -np.inf:
        return -1.0
    return float(damped(out, messages[arc], damping))


@kernel
def flood(
    low: int,
    high: int,
    source: IntArray,
    total: FloatArray,
    p: Potentials,
    messages: FloatArray,
    damping: float,
    maximum: int,
    fresh: FloatArray,
) -> float:
    """Update the arcs low .. high - 1 from the same old messages; return the largest change."""
    scratch = np.empty((2, total.shape[1]))
    worst = 0.0
    for arc in range(low, high):
        change = update_arc(
            arc, source[arc], total, p, messages, damping, maximum, scratch, fresh[arc]
        )
        if change < 0:
            return -1.0
        worst = max(worst, change)
    return worst


@kernel
def node_beliefs(total: FloatArray, out: FloatArray, log_norm: FloatArray) -> None:
    """Write out[i] = softmax(total[i]) and its log-normalizer."""
    for i in range(len(total)):
        top = total[i].max()
        norm = 0.0
        for c in range(total.shape[1]):
            out[i, c] = np.exp(total[i, c] - top)
            norm += out[i, c]
        for c in range(total.shape[1]):
            out[i, c] /= norm
        log_norm[i] = top + np.log(norm)


@kernel
def edge_beliefs(
    low: int,
    high: int,
    source: IntArray,
    total: FloatArray,
    edge: FloatArray,
    messages: FloatArray,
    keep: int,
    out: FloatArray,
    log_norm: FloatArray,
) -> None:
    """Write out[e - low] = softmax(pre_i + edge_e + pre_j) and its log-normalizer.

    keep = 0 writes every table over out[0], where only the normalizers are wanted.
    """
    size = total.shape[1]
    first, second = np.empty(size), np.empty(size)
    for e in range(low, high):
        k = e if len(edge) > 1 else 0
        table = out[e - low if keep else 0]
        without(total[source[2 * e]], messages[2 * e + 1], first)
        without(total[source[2 * e + 1]], messages[2 * e], second)
        top = -np.inf
        for a in range(size):
            for b in range(size):
                table[a, b] = first[a] + edge[k, a, b] + second[b]
                top = max(top, table[a, b])
        norm = 0.0
        for a in range(size):
            for b in range(size):
                table[a, b] = np.exp(table[a, b] - top)
                norm += table[a, b]
        for a in range(size):
            for b in range(size):
                table[a, b] /= norm
        log_norm[e - low] = top + np.log(norm)
