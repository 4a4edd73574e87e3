"""Kernels that read only the shape of a graph."""

import numpy as np

from fstgrad.core.checks import IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import copy_to
from fstgrad.mrf.arrays import OutgoingArcs


@kernel
def breadth_first(
    outgoing: OutgoingArcs,
    member: IntArray,
    order: IntArray,
    parent_arc: IntArray,
) -> int:
    """Write a breadth-first order of the nodes i with member[i] = 1; return their number.

    order (>= their number,) lists each tree from its root, the smallest node, on; parent_arc[i] is
    the arc from the parent of i to i, -1 for a root.  All arrays int64; `member` (I,) is restored.
    """
    start, leaving, source = outgoing.start, outgoing.leaving, outgoing.source
    # bounds: a node enters `order` once, since its member becomes 2
    count = 0
    for root in range(len(member)):
        if member[root] != 1:
            continue
        member[root] = 2
        order[count] = root
        parent_arc[root] = -1
        head = count
        count += 1
        while head < count:
            node = order[head]
            head += 1
            for k in range(start[node], start[node + 1]):
                arc = leaving[k]
                child = source[arc ^ 1]
                if member[child] == 1:
                    member[child] = 2
                    order[count] = child
                    parent_arc[child] = arc
                    count += 1
    for k in range(count):
        member[order[k]] = 1
    return count


@kernel
def next_forest(edges: IntArray, size: int, queue: IntArray, group: IntArray) -> None:
    """Move the edges of a spanning forest to the end of `queue`; both parts keep their order.

    An edge is in the forest if the edges before it in the queue do not connect its ends (Kruskal).
    O(E log I).

    edges : (E, 2) int64
    size : the number of edges of a spanning forest
    queue : (E,) int64, the edges in the order in which they are tried, reordered in place
    group : (I,) int64, scratch memory
    """
    # bounds: `kept` has room for `size` edges, and no forest has more
    for i in range(len(group)):
        group[i] = i
    kept = empty(size, np.int64)
    count = 0
    for at in range(len(queue)):
        edge = queue[at]
        if count < size:
            a, b = find(group, edges[edge, 0]), find(group, edges[edge, 1])
            if a != b:
                group[max(a, b)] = min(a, b)
                kept[count] = edge
                count += 1
                continue
        queue[at - count] = edge
    copy_to(queue[len(queue) - count :], kept[:count])


@part_kernel
def find(group: IntArray, node: int) -> int:
    """Return the root of `node` in the union-find forest `group` (I,); halve the path to it."""
    # bounds: `group` holds nodes only, so `node` stays a valid index
    while group[node] != node:
        group[node] = group[group[node]]
        node = group[node]
    return int(node)


@kernel
def first_fit_colouring(outgoing: OutgoingArcs, order: IntArray, colour: IntArray) -> None:
    """Write for each node, in `order`, the smallest colour that none of its neighbours has yet.

    colour (I,) comes in as -1 for nodes without a colour.  All arrays int64.
    """
    start, leaving, source = outgoing.start, outgoing.leaving, outgoing.source
    for node in order:
        candidate = 0
        taken = True
        while taken:
            taken = False
            for k in range(start[node], start[node + 1]):
                if colour[source[leaving[k] ^ 1]] == candidate:
                    taken = True
            if taken:
                candidate += 1
        colour[node] = candidate
