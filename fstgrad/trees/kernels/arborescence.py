"""Maximum spanning arborescences of dense graphs in O(n^2), with the fewest root arcs if asked.

Tarjan (1977) for matrices: a path of components grows backward along best incoming arcs; where it
meets itself the cycle is contracted, and the heads' best arcs into the new component are the
maxima over its members of (score - score of the member's chosen arc).  Every contraction takes
O(n) for each member, and there are fewer than 2n components.

Scores are compared as pairs (root arcs saved, score): with `single`, a root arc costs a unit of the
first, so that the best tree has the fewest root arcs possible and among those the highest score.
This is the single-root optimum of Gabow and Tarjan (1984) without trying every root.
"""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel


@kernel
def best_heads(scores: FloatArray, n: int, single: bool, heads: IntArray) -> int:
    """Write the heads (n,) of the best tree; return the number of root arcs, -1 without a tree.

    scores : (n+1, n+1) log-weights; -inf arcs are never used.  Ties go to the lower head.
    """
    most = 2 * n + 1
    score = np.full((most, n + 1), -np.inf)
    saved = np.zeros((most, n + 1), dtype=np.int64)
    entry = np.zeros((most, n + 1), dtype=np.int64)
    for d in range(1, n + 1):
        for h in range(n + 1):
            score[d, h] = scores[h, d] if h != d else -np.inf
            entry[d, h] = d
        if single:
            saved[d, 0] = -1
    component = np.arange(n + 1)
    parent = np.full(most, -1, dtype=np.int64)
    chosen = np.zeros(most, dtype=np.int64)
    position = np.full(most, -1, dtype=np.int64)
    done = np.zeros(most, dtype=np.bool_)
    done[0] = True
    path = np.zeros(most, dtype=np.int64)
    count = n + 1
    for start in range(1, n + 1):
        top = component[start]
        if done[top]:
            continue
        size = 1
        path[0] = top
        position[top] = 0
        while size > 0:
            top = path[size - 1]
            best = -1
            for h in range(n + 1):
                if component[h] != top and score[top, h] > -np.inf:
                    better = best < 0 or saved[top, h] > saved[top, best]
                    if better or (
                        saved[top, h] == saved[top, best] and score[top, h] > score[top, best]
                    ):
                        best = h
            if best < 0:
                return -1
            chosen[top] = best
            source = component[best]
            if done[source]:
                for i in range(size):
                    done[path[i]] = True
                size = 0
            elif position[source] < 0:
                position[source] = size
                path[size] = source
                size += 1
            else:
                begin = position[source]
                contract(path[begin:size], count, chosen, score, saved, entry, component, parent)
                size = begin + 1
                path[begin] = count
                position[count] = begin
                count += 1
    return expand(count, n, chosen, entry, parent, heads)


@kernel
def contract(
    members: IntArray,
    new: int,
    chosen: IntArray,
    score: FloatArray,
    saved: IntArray,
    entry: IntArray,
    component: IntArray,
    parent: IntArray,
) -> None:
    """Make component `new` of the cycle `members`."""
    heads = score.shape[1]
    for member in members:
        parent[member] = new
        base = score[member, chosen[member]]
        units = saved[member, chosen[member]]
        for h in range(heads):
            if score[member, h] > -np.inf:
                gain = score[member, h] - base
                extra = saved[member, h] - units
                if (
                    score[new, h] == -np.inf
                    or extra > saved[new, h]
                    or (extra == saved[new, h] and gain > score[new, h])
                ):
                    score[new, h] = gain
                    saved[new, h] = extra
                    entry[new, h] = entry[member, h]
    for h in range(heads):
        if parent[component[h]] == new:
            component[h] = new


@kernel
def expand(
    count: int, n: int, chosen: IntArray, entry: IntArray, parent: IntArray, heads: IntArray
) -> int:
    """Write heads from the chosen arcs, the youngest component first; return the root arcs."""
    for c in range(count - 1, n, -1):
        h = chosen[c]
        d = entry[c, h]
        while parent[d] != c:
            d = parent[d]
        chosen[d] = h
    roots = 0
    for d in range(1, n + 1):
        heads[d - 1] = chosen[d]
        roots += chosen[d] == 0
    return roots


@kernel
def best_batch(
    scores: FloatArray, lengths: IntArray, single: bool, heads: IntArray, roots: IntArray
) -> None:
    """Write the best heads of every item, -1 past its length, and its number of root arcs."""
    heads[:] = -1
    for item in range(scores.shape[0]):
        n = lengths[item]
        roots[item] = best_heads(scores[item], n, single, heads[item, :n])
