"""The cheapest alignment of a path of one acyclic graph of symbols with a path of another."""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import IntArray
from fstgrad.core.compiler import kernel
from fstgrad.core.uninitialized import empty

UNREACHED = 2**62  # the cost of states that no path reaches


class WordGraph(NamedTuple):
    """A graph with the states 0 (start) .. S - 1 (end) in topological order.

    first (S + 1,) : the arcs that lead to state s are first[s] .. first[s + 1].
    source, label (A,) : of each arc; label -1 reads nothing.
    skip (A,) : the cost of an arc that is aligned with nothing.
    """

    first: IntArray
    source: IntArray
    label: IntArray
    skip: IntArray


@kernel
def cheapest_paths(y: WordGraph, z: WordGraph, substitute: int) -> tuple[IntArray, int]:
    """Return the steps (K, 2) of a cheapest alignment, and its cost; none, without a path.

    A step is an arc of y, or -1, and an arc of z, or -1.  Of equal costs, the last step of a pair
    of states reads both arcs, else an arc of y, else one of z, as in sclite.
    """
    n, m = len(y.first) - 1, len(z.first) - 1
    cost = empty((n, m), np.int64)
    back = empty((n, m, 2), np.int32)
    for i in range(n):
        for j in range(m):
            best = 0 if i + j == 0 else UNREACHED
            left, right = -1, -1
            for a in range(y.first[i], y.first[i + 1]):
                for b in range(z.first[j], z.first[j + 1]):
                    if y.label[a] >= 0 and z.label[b] >= 0:
                        own = cost[y.source[a], z.source[b]]
                        if y.label[a] != z.label[b]:
                            own += substitute
                        if own < best:
                            best, left, right = own, a, b
            for a in range(y.first[i], y.first[i + 1]):
                own = cost[y.source[a], j] + y.skip[a]
                if own < best:
                    best, left, right = own, a, -1
            for b in range(z.first[j], z.first[j + 1]):
                own = cost[i, z.source[b]] + z.skip[b]
                if own < best:
                    best, left, right = own, -1, b
            cost[i, j] = best
            back[i, j, 0], back[i, j, 1] = left, right
    steps = empty((len(y.label) + len(z.label), 2), np.int64)
    i, j, size = n - 1, m - 1, 0
    while i + j > 0 and cost[n - 1, m - 1] < UNREACHED:
        a, b = back[i, j, 0], back[i, j, 1]
        steps[size, 0], steps[size, 1] = a, b
        size += 1
        if a >= 0:
            i = y.source[a]
        if b >= 0:
            j = z.source[b]
    return steps[:size][::-1].copy(), cost[n - 1, m - 1]
