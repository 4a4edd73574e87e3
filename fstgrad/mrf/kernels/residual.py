"""Kernel of belief propagation in the order of the largest change (residual schedule)."""

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel
from fstgrad.mrf.kernels.messages import sum_messages, update_arc


@kernel
def sift(heap: IntArray, place: IntArray, priority: FloatArray, arc: int) -> None:
    """Move an arc to where its priority belongs: larger ones above, smaller arcs first in ties."""
    size, at = len(heap), place[arc]
    while at > 0:
        above = heap[(at - 1) // 2]
        if not before(priority, arc, above):
            break
        heap[at], place[above] = above, at
        at = (at - 1) // 2
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and before(priority, heap[child + 1], heap[child]):
            child += 1
        if not before(priority, heap[child], arc):
            break
        heap[at], place[heap[child]] = heap[child], at
        at = child
    heap[at], place[arc] = arc, at


@kernel
def before(priority: FloatArray, a: int, b: int) -> bool:
    """Return whether arc a is to be updated before arc b."""
    return priority[a] > priority[b] or (priority[a] == priority[b] and a < b)


@kernel
def send_largest(
    updates: int,
    tolerance: float,
    start: IntArray,
    leaving: IntArray,
    source: IntArray,
    node: FloatArray,
    rho: FloatArray,
    edge: FloatArray,
    exp_edge: FloatArray,
    shift: FloatArray,
    damping: float,
    maximum: int,
    total: FloatArray,
    messages: FloatArray,
    pending: FloatArray,
    priority: FloatArray,
    heap: IntArray,
    place: IntArray,
    scratch: FloatArray,
) -> float:
    """Send the pending message of the largest change, `updates` times; return that change.

    Stops early when it is not above `tolerance`; returns -1 if all labels of a node are dead.
    """
    for _ in range(updates):
        arc = heap[0]
        if priority[arc] <= tolerance:
            break
        messages[arc] = pending[arc]
        head = source[arc ^ 1]
        sum_messages(head, head + 1, start, leaving, node, rho, messages, total)
        priority[arc] = 0.0
        if damping > 0:  # one step does not reach the message's target
            priority[arc] = update_arc(
                arc, source, total, edge, exp_edge, shift, messages, damping, maximum, scratch,
                pending[arc],
            )  # fmt: skip
        sift(heap, place, priority, arc)
        for k in range(start[head], start[head + 1]):
            out = leaving[k]
            priority[out] = update_arc(
                out, source, total, edge, exp_edge, shift, messages, damping, maximum, scratch,
                pending[out],
            )  # fmt: skip
            if priority[out] < 0:
                return -1.0
            sift(heap, place, priority, out)
    return float(priority[heap[0]])
