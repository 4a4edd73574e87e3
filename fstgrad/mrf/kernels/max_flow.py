"""Kernel of the maximum flow by two search trees (Boykov and Kolmogorov 2004).

Arcs are numbered as in `Network`.  residual[a] (2E,) is the residual capacity of arc a.
terminal[i] (I,) is, if positive, the residual capacity of the arc source -> i, and if negative,
minus that of the arc i -> sink.  A node is FREE, in the tree of the SOURCE or in that of the SINK.
parent[i] is the arc from i towards its root, ROOT for a root, ORPHAN for a node that has lost its
parent and NONE for a free node.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel
from fstgrad.core.uninitialized import empty
from fstgrad.mrf.arrays import Network, OutgoingArcs

FREE, SOURCE, SINK = 0, 1, 2
NONE, ROOT, ORPHAN = -1, -2, -3
ONE = np.uint64(1)
Int8Array = npt.NDArray[np.int8]
Int32Array = npt.NDArray[np.int32]


class Forest(NamedTuple):
    """The two search trees, arrays (I,): tree, parent arc and distance to the root of each node.

    The distance counts arcs, 1 for a root.  stamp[i] is the augmentation after which the distance
    was last known to be right.
    """

    tree: Int8Array
    parent: Int32Array
    distance: Int32Array
    stamp: IntArray


class ActiveNodes(NamedTuple):
    """The ring buffer of the active nodes, from which trees grow.

    queue (I,) int64; queued (I,) bool: the node is in the queue; ends (2,) int64: the position of
    the first entry and the number of entries.
    """

    queue: IntArray
    queued: BoolArray
    ends: IntArray


@kernel
def max_flow(net: Network, residual: FloatArray, terminal: FloatArray, tree: Int8Array) -> float:
    """Return the maximum flow, inf if it is unbounded; write tree[i] = SOURCE on the source's side.

    `residual` and `terminal` come in as capacities and are overwritten.  tree (I,) int8.
    """
    nodes = len(terminal)
    parent = np.full(nodes, NONE, np.int32)
    forest = Forest(tree, parent, np.ones(nodes, np.int32), np.zeros(nodes, np.int64))
    queue, queued, ends = (
        empty(nodes, np.int64),
        np.zeros(nodes, np.bool_),
        np.zeros(2, np.int64),
    )
    waiting = ActiveNodes(queue, queued, ends)
    # bounds: an augmentation orphans a node at most once: at most `nodes` orphans and children
    orphans, children = empty(nodes, np.int64), empty(nodes, np.int64)
    tree[:] = FREE
    flow, time = push_across(net, residual, terminal), 0
    for i in range(nodes):
        if terminal[i] != 0.0:
            tree[i] = SOURCE if terminal[i] > 0 else SINK
            parent[i] = ROOT
            push(np.uint64(i), waiting)
    while ends[1] > 0:
        v = np.uint64(queue[ends[0]])
        bridge = -1
        if tree[v] != FREE:
            bridge = grow(v, net, residual, forest, waiting)
        if bridge < 0:  # nothing more to do at this node
            ends[0] = ends[0] + 1 if ends[0] + 1 < nodes else 0
            ends[1] -= 1
            queued[v] = False
            continue
        time += 1
        sent, count = augment(bridge, net, residual, terminal, parent, orphans)
        if sent == np.inf:
            return np.inf
        flow += sent
        adopt(count, time, net, residual, forest, waiting, orphans, children)
    return flow


@kernel
def capacities(
    outgoing: OutgoingArcs, edge: FloatArray, residual: FloatArray, ends: FloatArray
) -> bool:
    """Write the capacity of each arc; add the unary part of the edge energies to ends[:, 1].

    edge (K, 2, 2) holds scores; residual (2E,) is in the order of `Network`; ends (I, 2) holds the
    energy of each label.  An edge i - j with energies (a b; c d) = -edge has

        E(x_i, x_j) = a + (c - a) x_i + (d - c) x_j + (b + c - a - d) (1 - x_i) x_j,

    so its arc i -> j gets the capacity b + c - a - d.  If b and c are finite, half of it goes to
    the arc j -> i instead, and the unary parts change by half of it: then less flow is needed.  The
    constant a is left to the caller.  Returns False if an edge has an infinite a or d or is not
    submodular (b + c < a + d); `residual` and `ends` are then incomplete.
    """
    for i in range(len(ends)):
        extra = 0.0
        for k in range(outgoing.start[i], outgoing.start[i + 1]):
            arc = np.uint64(outgoing.leaving[k])
            e = arc >> ONE if len(edge) > 1 else np.uint64(0)
            a, b, c, d = -edge[e, 0, 0], -edge[e, 0, 1], -edge[e, 1, 0], -edge[e, 1, 1]
            if not (np.isfinite(a) and np.isfinite(d)) or b + c < a + d - 1e-12:
                return False
            # if c is infinite, the arc j -> i forbids (1, 0), and any c with b + c >= a + d works
            middle = c if c < np.inf else max(a, a + d - b)
            capacity = max(b + middle - a - d, 0.0)
            half = capacity / 2 if b < np.inf and c < np.inf else 0.0
            if arc & ONE == 0:
                residual[k] = capacity - half
                extra += middle - a - half
            else:
                residual[k] = half if c < np.inf else np.inf
                extra += d - middle + half
        ends[i, 1] += extra
    return True


@inner_kernel
def push_across(net: Network, residual: FloatArray, terminal: FloatArray) -> float:
    """Push flow along paths source -> i -> j -> sink; return it.  The trees then find less."""
    flow = 0.0
    for i in range(np.uint64(len(terminal))):
        for arc in range(np.uint64(net.start[i]), np.uint64(net.start[i + ONE])):
            if terminal[i] <= 0:
                break
            j = np.uint64(net.head[arc])
            if terminal[j] < 0 and residual[arc] > 0:
                sent = min(terminal[i], residual[arc], -terminal[j])
                if sent < np.inf:
                    residual[arc] -= sent
                    residual[np.uint64(net.mate[arc])] += sent
                    terminal[i] -= sent
                    terminal[j] += sent
                    flow += sent
    return flow


@inner_kernel
def push(i: np.uint64, waiting: ActiveNodes) -> None:
    """Append node i to the queue of active nodes unless it is in it."""
    queue, queued, ends = waiting  # bounds: room for every node, and a node is queued at most once
    if not queued[i]:
        queued[i] = True
        at = ends[0] + ends[1]
        queue[np.uint64(at if at < len(queue) else at - len(queue))] = i
        ends[1] += 1


@inner_kernel
def grow(
    i: np.uint64, net: Network, residual: FloatArray, forest: Forest, waiting: ActiveNodes
) -> int:
    """Add the free neighbours of node i to its tree; return an arc that joins the trees, or -1.

    The arc returned runs from the source's tree to the sink's and is not saturated.
    """
    tree, parent, distance, stamp = forest
    own = tree[i]
    for arc in range(np.uint64(net.start[i]), np.uint64(net.start[i + ONE])):
        toward = arc if own == SOURCE else np.uint64(net.mate[arc])
        if residual[toward] <= 0:
            continue
        j = np.uint64(net.head[arc])
        if tree[j] == FREE:
            tree[j], parent[j] = own, net.mate[arc]
            distance[j], stamp[j] = distance[i] + 1, stamp[i]
            push(j, waiting)
        elif tree[j] != own:
            return int(np.int64(toward))
        elif stamp[j] <= stamp[i] and distance[j] > distance[i] + 1:
            parent[j] = net.mate[arc]
            distance[j], stamp[j] = distance[i] + 1, stamp[i]
    return -1


@inner_kernel
def augment(
    bridge: int,
    net: Network,
    residual: FloatArray,
    terminal: FloatArray,
    parent: Int32Array,
    orphans: IntArray,
) -> tuple[float, int]:
    """Push the largest flow along the path through arc `bridge`; return it and the orphan count.

    A node whose parent arc is saturated becomes an ORPHAN and is written to orphans (I,).  Returns
    (inf, 0), without changing anything, if the capacity of the path is infinite.
    """
    mid, back = np.uint64(bridge), np.uint64(net.mate[bridge])
    left, right = np.uint64(net.head[back]), np.uint64(net.head[mid])
    least = residual[mid]
    i = left
    while parent[i] != ROOT:
        up = np.uint64(parent[i])
        least = min(least, residual[np.uint64(net.mate[up])])
        i = np.uint64(net.head[up])
    least = min(least, terminal[i])
    j = right
    while parent[j] != ROOT:
        up = np.uint64(parent[j])
        least = min(least, residual[up])
        j = np.uint64(net.head[up])
    least = min(least, -terminal[j])
    if least == np.inf:
        return least, 0
    # bounds: the two paths share no node, so count <= number of nodes
    count = 0
    residual[mid] -= least
    residual[back] += least
    for side in range(2):
        v = left if side == 0 else right
        while parent[v] != ROOT:
            up = np.uint64(parent[v])
            other = np.uint64(net.mate[up])
            along, against = (other, up) if side == 0 else (up, other)
            residual[along] -= least
            residual[against] += least
            below, v = v, np.uint64(net.head[up])
            if residual[along] <= 0:
                parent[below] = ORPHAN
                orphans[count] = below
                count += 1
        terminal[v] += -least if side == 0 else least
        if terminal[v] == 0:
            parent[v] = ORPHAN
            orphans[count] = v
            count += 1
    return least, count


@inner_kernel
def root_distance(j: np.uint64, time: int, net: Network, forest: Forest) -> int:
    """Return the distance of node j from its root, or -1 if its path ends in an orphan.

    The distances of the nodes on the path are written and stamped with `time`.
    """
    _, parent, distance, stamp = forest
    steps, v = 0, j
    while True:
        if stamp[v] == time:
            steps += distance[v]
            break
        if parent[v] == ROOT:
            stamp[v], distance[v] = time, 1
            steps += 1
            break
        if parent[v] < 0:
            return -1
        steps += 1
        v = np.uint64(net.head[np.uint64(parent[v])])
    left, v = steps, j
    while stamp[v] != time:
        stamp[v], distance[v] = time, left
        left -= 1
        v = np.uint64(net.head[np.uint64(parent[v])])
    return steps


@inner_kernel
def adopt(
    count: int,
    time: int,
    net: Network,
    residual: FloatArray,
    forest: Forest,
    waiting: ActiveNodes,
    orphans: IntArray,
    children: IntArray,
) -> None:
    """Give every orphan the parent of its tree nearest to the root; if there is none, free it.

    Freeing a node makes its children orphans.  The `count` orphans are taken from the end of
    `orphans`, those nearest to their root first; the descendants of one, generation by generation,
    are handled before the next.  `children` (I,) is a ring buffer; it holds a node at most once.
    """
    tree, parent, distance, stamp = forest
    size = len(children)
    first, below = 0, 0
    while count > 0 or below > 0:
        if below > 0:
            i = np.uint64(children[first])
            first = first + 1 if first + 1 < size else 0
            below -= 1
        else:
            count -= 1
            i = np.uint64(orphans[count])
        own = tree[i]
        begin, end = np.uint64(net.start[i]), np.uint64(net.start[i + ONE])
        best, nearest = -1, 0
        for arc in range(begin, end):
            j = np.uint64(net.head[arc])
            if tree[j] != own or parent[j] == NONE:
                continue
            if residual[np.uint64(net.mate[arc]) if own == SOURCE else arc] > 0:
                far = root_distance(j, time, net, forest)
                if far >= 0 and (best < 0 or far < nearest):
                    best, nearest = int(np.int64(arc)), far
        if best >= 0:
            parent[i], stamp[i], distance[i] = best, time, nearest + 1
            continue
        for arc in range(begin, end):
            j = np.uint64(net.head[arc])
            if tree[j] != own:
                continue
            back = np.uint64(net.mate[arc])
            if residual[back if own == SOURCE else arc] > 0:
                push(j, waiting)
            if parent[j] == np.int64(back):
                parent[j] = ORPHAN
                at = first + below
                children[at if at < size else at - size] = j
                below += 1
        tree[i], parent[i] = FREE, NONE
