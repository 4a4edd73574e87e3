"""Kernels of message passing on any graph, in the log domain, one message at a time.

The residual schedule (Elidan, McGraw and Koller 2006) and forests update messages one by one.  For
all messages at once, `bp_log_vectorized` is up to 10 times as fast.

Edge e has two arcs: 2e from its first node to its second, 2e + 1 back.  So arc ^ 1 is the reverse
of an arc and arc >> 1 its edge.  Arrays, with I nodes, E edges, C labels and K = E, or K = 1 if all
edges share a table:

    node, total (I, C)     scores of the nodes; the same plus all messages into each node
    edge (K, C, C)         scores of the edges, [label of first node, label of second]
    messages (2E, C)       the message along each arc, in nats, maximum 0
    rho (E,)               weight of the messages of an edge: 1, or its edge appearance probability
    cavity (C,)            total[i] - message(j -> i), what i knows without j

A label whose total is -inf is dead: no labeling uses it, and no message includes it.

The update of an arc i -> j (Yedidia, Freeman and Weiss 2005, in logs) is

    message[b] = log sum_a exp(cavity[a] + edge[a, b]),   then its maximum is subtracted.

Sums use exp(edge - maximum).  If a sum is too small for a float, the message is computed again from
`edge` as a log-sum-exp.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.mrf.arrays import OutgoingArcs, Potentials

TINY = 1e-250
ONE = np.uint64(1)


@part_kernel
def log_message(
    cavity: FloatArray,
    p: Potentials,
    arc: int,
    maximum: int,
    weight: FloatArray,
    out: FloatArray,
) -> float:
    """Write the message of an arc to out[arc], maximum 0; return the maximum that was subtracted.

    out[arc, b] = log sum_a exp(cavity[a] + edge[a, b]) - maximum over b; with maximum = 1 the
    largest term over a replaces the log-sum-exp.  cavity (C,); `weight` (C,) is scratch memory.
    Returns -inf if all labels of the source or of the target are dead.
    """
    edge, exp_edge, shift = p
    size, flip = len(cavity), arc & 1
    k = arc >> 1 if len(shift) > 1 else 0
    top = -np.inf
    for a in range(size):
        top = max(top, cavity[a])
    for b in range(size):
        out[arc, b] = 0.0 if top > -np.inf else -np.inf
    if top == -np.inf:
        return -np.inf
    if maximum == 0:
        for a in range(size):
            weight[a] = np.exp(cavity[a] - top)
        if flip:
            for b in range(size):
                for a in range(size):
                    out[arc, b] += weight[a] * exp_edge[k, b, a]
        else:
            for a in range(size):
                for b in range(size):
                    out[arc, b] += weight[a] * exp_edge[k, a, b]
    best = -np.inf
    for b in range(size):
        if out[arc, b] > TINY:
            out[arc, b] = np.log(out[arc, b]) + top + shift[k]
        else:
            out[arc, b] = log_sum_of_terms(cavity, edge, k, flip, maximum, b)
        best = max(best, out[arc, b])
    if best > -np.inf:
        for b in range(size):
            out[arc, b] -= best
    return best


@part_kernel
def log_sum_of_terms(
    cavity: FloatArray, edge: FloatArray, k: int, flip: int, maximum: int, b: int
) -> float:
    """Return the log-sum-exp, or with maximum = 1 the maximum, of cavity[a] + edge[k, a, b] over a.

    flip = 1 reads edge[k, b, a].
    """
    best = -np.inf
    for a in range(len(cavity)):
        best = max(best, cavity[a] + (edge[k, b, a] if flip else edge[k, a, b]))
    if maximum == 1 or best == -np.inf:
        return float(best)
    total = 0.0
    for a in range(len(cavity)):
        total += np.exp(cavity[a] + (edge[k, b, a] if flip else edge[k, a, b]) - best)
    return float(best + np.log(total))


@part_kernel
def cavity_scores(
    total: FloatArray, i: int, messages: FloatArray, arc: int, cavity: FloatArray
) -> None:
    """Write cavity = total[i] - messages[arc], -inf at dead labels."""
    for c in range(total.shape[1]):
        cavity[c] = total[i, c] - messages[arc, c] if total[i, c] > -np.inf else -np.inf


@kernel
def sum_messages(
    low: int,
    high: int,
    outgoing: OutgoingArcs,
    node: FloatArray,
    rho: FloatArray,
    messages: FloatArray,
    total: FloatArray,
) -> None:
    """Write total[i] = node[i] + sum over neighbours j of rho_ij * message(j -> i)."""
    start, leaving, _ = outgoing
    size = np.uint64(node.shape[1])
    for i in range(np.uint64(low), np.uint64(high)):
        for c in range(size):
            total[i, c] = node[i, c]
        for k in range(np.uint64(start[i]), np.uint64(start[i + ONE])):
            arc = np.uint64(leaving[k]) ^ ONE
            weight = rho[arc >> ONE]
            for c in range(size):
                total[i, c] += weight * messages[arc, c]


@part_kernel
def damp(fresh: FloatArray, old: FloatArray, arc: int, damping: float) -> float:
    """Damp the message fresh[arc] in place; return the largest |new - old| before damping, in nats.

    new := (1 - damping) * new + damping * old, then its maximum is subtracted.  A label that is
    dead in `new` stays dead; one that is dead in `old` alone keeps its new value.
    """
    change = 0.0
    top = -np.inf
    for c in range(fresh.shape[1]):
        new, before = fresh[arc, c], old[arc, c]
        if new != before:
            change = max(change, abs(new - before))
        if damping > 0 and new > -np.inf and before > -np.inf:
            new = (1 - damping) * new + damping * before
            fresh[arc, c] = new
        top = max(top, new)
    if damping > 0:
        for c in range(fresh.shape[1]):
            fresh[arc, c] -= top
    return change


@part_kernel
def update_message(
    arc: int,
    source: int,
    total: FloatArray,
    p: Potentials,
    messages: FloatArray,
    damping: float,
    maximum: int,
    scratch: tuple[FloatArray, FloatArray],
    fresh: FloatArray,
) -> float:
    """Write the new message of an arc from node `source` to fresh[arc]; return its change in nats.

    The change is the largest |new - old| of the logarithms, before damping: a message that moves
    from e^-15 to e^-30 has not converged, although both are small.  Returns -1 if all labels are
    dead.  `scratch` is two arrays (C,).
    """
    cavity, weight = scratch
    cavity_scores(total, source, messages, arc ^ 1, cavity)
    if log_message(cavity, p, arc, maximum, weight, fresh) == -np.inf:
        return -1.0
    return float(damp(fresh, messages, arc, damping))


@kernel
def node_beliefs(total: FloatArray, out: FloatArray, log_norm: FloatArray) -> None:
    """Write out[i] = softmax(total[i]) and log_norm[i] = log sum_c exp(total[i, c]).

    total, out (I, C); log_norm (I,).
    """
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
    """Write the beliefs and the log-normalizers of the edges i - j numbered low .. high - 1.

    out[e - low][a, b] = exp(pre_i[a] + edge_e[a, b] + pre_j[b] - log_norm[e - low]).  keep = 0 is
    for callers that need the normalizers only: all tables are written to out[0].  `source` is that
    of `OutgoingArcs`; out is (high - low, C, C) or (1, C, C), log_norm (high - low,).
    """
    size = total.shape[1]
    first, second = empty(size), empty(size)
    for e in range(low, high):
        k = e if len(edge) > 1 else 0
        table = out[e - low if keep else 0]
        cavity_scores(total, source[2 * e], messages, 2 * e + 1, first)
        cavity_scores(total, source[2 * e + 1], messages, 2 * e, second)
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


class Queue(NamedTuple):
    """A binary heap of the arcs; the arc with the largest priority is first.

    Attributes
    ----------
    pending : (2E, C) float64
        The message that each arc would send next.
    priority : (2E,) float64
        Its distance from the message that the arc sent last, in nats.
    heap, place : (2E,) int64
        The arcs in heap order, and the position of each arc in `heap`.
    """

    pending: FloatArray
    priority: FloatArray
    heap: IntArray
    place: IntArray


@part_kernel
def restore_heap(queue: Queue, arc: int) -> None:
    """Move an arc to the position in the heap that its changed priority needs."""
    heap, place, priority = queue.heap, queue.place, queue.priority
    size, at = len(heap), place[arc]
    while at > 0:
        above = heap[(at - 1) // 2]
        if not comes_first(priority, arc, above):
            break
        heap[at], place[above] = above, at
        at = (at - 1) // 2
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and comes_first(priority, heap[child + 1], heap[child]):
            child += 1
        if not comes_first(priority, heap[child], arc):
            break
        heap[at], place[heap[child]] = heap[child], at
        at = child
    heap[at], place[arc] = arc, at


@part_kernel
def comes_first(priority: FloatArray, a: int, b: int) -> bool:
    """Return whether arc a is sent before arc b: by larger priority, then by smaller number."""
    return priority[a] > priority[b] or (priority[a] == priority[b] and a < b)


@kernel
def send_largest(
    tol: float,
    damping: float,
    maximum: int,
    outgoing: OutgoingArcs,
    node: FloatArray,
    rho: FloatArray,
    p: Potentials,
    queue: Queue,
    total: FloatArray,
    messages: FloatArray,
) -> float:
    """Send the pending message with the largest change, 2E times; return the next change in nats.

    After each message, the messages that depend on it are computed again.  Stops early if no change
    exceeds `tol`.  Returns -1 if all labels of a node are dead.  `total`,
    `messages` and `queue` are updated in place.
    """
    scratch = empty(total.shape[1]), empty(total.shape[1])
    source, pending, priority = outgoing.source, queue.pending, queue.priority
    for _ in range(len(messages)):
        arc = queue.heap[0]
        if priority[arc] <= tol:
            break
        messages[arc] = pending[arc]
        head = source[arc ^ 1]
        sum_messages(head, head + 1, outgoing, node, rho, messages, total)
        priority[arc] = 0.0
        if damping > 0:  # a damped message has not reached its target: it has another change
            priority[arc] = update_message(
                arc, source[arc], total, p, messages, damping, maximum, scratch, pending
            )
        restore_heap(queue, arc)
        for k in range(outgoing.start[head], outgoing.start[head + 1]):
            out = outgoing.leaving[k]
            priority[out] = update_message(
                out, head, total, p, messages, damping, maximum, scratch, pending
            )
            if priority[out] < 0:
                return -1.0
            restore_heap(queue, out)
    return float(priority[queue.heap[0]])


@kernel
def update_all(
    source: IntArray,
    total: FloatArray,
    p: Potentials,
    messages: FloatArray,
    damping: float,
    maximum: int,
    pending: FloatArray,
    priority: FloatArray,
) -> bool:
    """Write the pending message and the priority of every arc.

    Returns False as soon as all labels of a message are dead.
    """
    scratch = empty(total.shape[1]), empty(total.shape[1])
    for arc in range(len(source)):
        priority[arc] = update_message(
            arc, source[arc], total, p, messages, damping, maximum, scratch, pending
        )
        if priority[arc] < 0:
            return False
    return True
