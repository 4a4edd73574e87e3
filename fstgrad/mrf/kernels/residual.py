"""Kernel of belief propagation in the order of the largest change (residual schedule)."""

from typing import NamedTuple

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel
from fstgrad.core.uninitialized import empty
from fstgrad.mrf.arrays import Potentials, Shape
from fstgrad.mrf.kernels.bp_log import sum_messages, update_arc


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


@kernel
def sift(queue: Queue, arc: int) -> None:
    """Move an arc to the position in the heap that its changed priority needs."""
    heap, place, priority = queue.heap, queue.place, queue.priority
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
    """Return whether arc a is sent before arc b: by larger priority, then by smaller number."""
    return priority[a] > priority[b] or (priority[a] == priority[b] and a < b)


@kernel
def send_largest(
    tol: float,
    damping: float,
    maximum: int,
    shape: Shape,
    node: FloatArray,
    rho: FloatArray,
    p: Potentials,
    queue: Queue,
    total: FloatArray,
    messages: FloatArray,
) -> float:
    """Send the pending message with the largest change, 2E times; return the next change in nats.

    After each message, the messages that depend on it are computed again.  Stops early if no change
    exceeds `tol`.  Returns -1 if all labels of a node are dead.  Arrays as in
    `kernels.bp_log`; `total`, `messages` and `queue` are updated in place.
    """
    scratch = empty(total.shape[1]), empty(total.shape[1])
    source, pending, priority = shape.source, queue.pending, queue.priority
    for _ in range(len(messages)):
        arc = queue.heap[0]
        if priority[arc] <= tol:
            break
        messages[arc] = pending[arc]
        head = source[arc ^ 1]
        sum_messages(head, head + 1, shape, node, rho, messages, total)
        priority[arc] = 0.0
        if damping > 0:  # a damped message has not reached its target: it has another change
            priority[arc] = update_arc(
                arc, source[arc], total, p, messages, damping, maximum, scratch, pending
            )
        sift(queue, arc)
        for k in range(shape.start[head], shape.start[head + 1]):
            out = shape.leaving[k]
            priority[out] = update_arc(
                out, head, total, p, messages, damping, maximum, scratch, pending
            )
            if priority[out] < 0:
                return -1.0
            sift(queue, out)
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
        priority[arc] = update_arc(
            arc, source[arc], total, p, messages, damping, maximum, scratch, pending
        )
        if priority[arc] < 0:
            return False
    return True
