"""Node elimination and selected inverses of sparse graphs, without subtractions.

Nodes are numbered in the order of their elimination.  The later neighbours of node k, including the
fill, are later[begin[k]:begin[k + 1]], ascending.  The arrays `into` and `out` have the same layout
and hold the weights of the arcs from these neighbours to k and from k to them.  Node k is
eliminated as in `elimination`: its head i takes over the share p = w_ik / s_k of every arc that
leaves k.  s_k is a sum of weights, never a difference, and log Z is the sum of log s_k.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import copy_to
from fstgrad.trees.kernels.sampling import first_above


@kernel
def fill(starts: IntArray, neighbours: IntArray, begin: IntArray) -> IntArray:
    """Write `begin` (n+1,), return `later`, of symmetric neighbours (CSR) in elimination order.

    With the fill, the later neighbours of k are its own and those of all nodes whose first later
    neighbour is k.
    """
    n = len(starts) - 1
    later = empty(4 * len(neighbours) + n, dtype=np.int64)
    child, sibling = np.full(n, -1), np.full(n, -1)
    mark = np.full(n, -1)
    size = 0
    for k in range(n):
        begin[k] = size
        if size + n > len(later):
            longer = empty(2 * len(later) + n, dtype=np.int64)
            copy_to(longer, later[:size])
            later = longer
        # each i is marked once for k, so n entries suffice
        mark[k] = k
        for at in range(starts[k], starts[k + 1]):
            i = neighbours[at]
            if i > k and mark[i] != k:
                mark[i] = k
                later[size] = i
                size += 1
        c = child[k]
        while c >= 0:
            for at in range(begin[c], begin[c + 1]):
                i = later[at]
                if mark[i] != k:
                    mark[i] = k
                    later[size] = i
                    size += 1
            c = sibling[c]
        copy_to(later[begin[k] : size], np.sort(later[begin[k] : size]))
        begin[k + 1] = size
        if size > begin[k]:
            first = later[begin[k]]
            sibling[k] = child[first]
            child[first] = k
    return later[:size].copy()


@part_kernel
def place(begin: IntArray, later: IntArray, k: int, i: int) -> int:
    """Return the index in `later` of the later neighbour i of k."""
    low, high = begin[k], begin[k + 1]
    while low < high:
        middle = (low + high) // 2
        if later[middle] < i:
            low = middle + 1
        else:
            high = middle
    return int(low)


@kernel
def scatter(
    heads: IntArray,
    dependents: IntArray,
    weights: FloatArray,
    begin: IntArray,
    later: IntArray,
    into: FloatArray,
    out: FloatArray,
) -> None:
    """Write the weights (m,) of arcs between nodes into `into` and `out`."""
    for arc in range(len(heads)):
        h, d = heads[arc], dependents[arc]
        if h > d:
            into[place(begin, later, d, h)] = weights[arc]
        else:
            out[place(begin, later, h, d)] = weights[arc]


@kernel
def eliminate(
    begin: IntArray, later: IntArray, into: FloatArray, out: FloatArray, root: FloatArray,
    pivots: FloatArray,
) -> bool:  # fmt: skip
    """Eliminate all nodes in place; return False if no weight enters some node.

    into is replaced by the shares p, and root (n,) by the weight of each node's root arc at its
    elimination.
    """
    n = len(root)
    where = np.full(n, -1)
    for k in range(n):
        first, last = begin[k], begin[k + 1]
        total = root[k]
        for at in range(first, last):
            total += into[at]
        if not total > 0.0:
            return False
        pivots[k] = total
        for at in range(first, last):
            into[at] /= total
        share = root[k] / total
        for at in range(first, last):
            root[later[at]] += share * out[at]
        for at in range(first, last):
            a = later[at]
            for entry in range(begin[a], begin[a + 1]):
                where[later[entry]] = entry
            for other in range(at + 1, last):
                entry = where[later[other]]
                out[entry] += into[at] * out[other]  # a -> b from a -> k -> b
                into[entry] += into[other] * out[at]  # b -> a
    return True


@kernel
def select_inverse(
    begin: IntArray, later: IntArray, into: FloatArray, out: FloatArray, pivots: FloatArray,
    b_diagonal: FloatArray, to_later: FloatArray, to_earlier: FloatArray,
) -> None:  # fmt: skip
    """Write the inverse B of the Laplacian on its diagonal and the filled pattern.

    b_diagonal (n,) : B_kk.  to_later : B_ki, to_earlier : B_ik for the later neighbours i of k.
    Takahashi's recurrences (1973); all terms are positive here.
    """
    n = len(pivots)
    where = np.full(n, -1)
    for k in range(n - 1, -1, -1):
        first, last = begin[k], begin[k + 1]
        for at in range(first, last):
            to_later[at] = 0.0
            to_earlier[at] = 0.0
        for at in range(first, last):
            a = later[at]
            step = out[at] / pivots[k]
            to_later[at] += step * b_diagonal[a]
            to_earlier[at] += b_diagonal[a] * into[at]
            for place_of in range(begin[a], begin[a + 1]):
                where[later[place_of]] = place_of
            for other in range(at + 1, last):
                pair = where[later[other]]
                to_later[other] += step * to_later[pair]
                to_later[at] += out[other] / pivots[k] * to_earlier[pair]
                to_earlier[other] += to_earlier[pair] * into[at]
                to_earlier[at] += to_later[pair] * into[other]
        total = 1.0 / pivots[k]
        for at in range(first, last):
            total += out[at] / pivots[k] * to_earlier[at]
        b_diagonal[k] = total


@kernel
def gather(
    heads: IntArray,
    dependents: IntArray,
    begin: IntArray,
    later: IntArray,
    to_later: FloatArray,
    to_earlier: FloatArray,
    out: FloatArray,
) -> None:
    """Write B_dh for each arc h -> d."""
    for arc in range(len(heads)):
        h, d = heads[arc], dependents[arc]
        if h > d:
            out[arc] = to_later[place(begin, later, d, h)]
        else:
            out[arc] = to_earlier[place(begin, later, h, d)]


@kernel
def wilson(
    starts: IntArray,
    heads: IntArray,
    cumulative: FloatArray,
    steps: int,
    rng: np.random.Generator,
    trees: IntArray,
) -> bool:
    """Write trees (k, n) as arc numbers, by walks along random heads to the tree so far.

    starts (n+1,) : the first arc into each dependent.  heads (m,) : the head of each arc, -1 for
    the root.  cumulative (m,) : the cumulative weights of the arcs into each dependent.
    steps : the number of steps that all walks together may take; return False if they need more.
    """
    n = len(starts) - 1
    for item in range(len(trees)):
        chosen = trees[item]
        in_tree = np.zeros(n, dtype=np.bool_)
        for start in range(n):
            node = start
            while node >= 0 and not in_tree[node]:
                if steps == 0:
                    return False
                steps -= 1
                last = starts[node + 1] - 1
                share = rng.random() * cumulative[last]
                arc = first_above(share, cumulative, starts[node], last)
                chosen[node] = arc
                node = heads[arc]
            node = start
            while node >= 0 and not in_tree[node]:
                in_tree[node] = True
                node = heads[chosen[node]]
    return True
