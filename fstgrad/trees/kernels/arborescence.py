"""Maximum spanning arborescences of dense graphs in O(n^2), with a single root arc if requested.

The algorithm is that of Tarjan (1977) for matrices.  A path of components grows backward along best
incoming arcs.  When the path meets itself, the cycle is contracted; the best arc from each head
into the new component is the maximum over the members of (score - score of the member's chosen
arc).  A contraction takes O(n) per member, and there are fewer than 2n components.

Single root: a component takes a root arc only if no other arc enters it.  The best tree then has
the fewest root arcs possible and, among such trees, the highest score.  This is the single-root
optimum of Gabow and Tarjan (1984), found without trying every root.

Arrays of a search: components 1 .. n are the dependents, n+1 .. count-1 the contracted cycles.
score (2n+1, n+1) is the score of the best arc from each head into each component, minus the scores
chosen inside the component.  entry is the dependent at which this arc ends.  chosen is the head
that each component took.  parent is the component into which it was contracted, or -1.  The chosen
scores are a solution of the dual linear program.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import part_kernel
from fstgrad.core.uninitialized import empty


@part_kernel
def search(
    scores: FloatArray,
    n: int,
    single: bool,
    score: FloatArray,
    entry: IntArray,
    chosen: IntArray,
    parent: IntArray,
) -> int:
    """Contract cycles until every component has an arc; return `count`, 0 without a tree.

    scores : (n+1, n+1) log-weights; -inf arcs are never used.  Ties go to the lower head.
    """
    for h in range(n + 1):
        for d in range(1, n + 1):
            score[d, h] = scores[h, d]
    for d in range(1, n + 1):
        score[d, d] = -np.inf
        entry[d] = d
    parent[:] = -1
    # each contraction joins at least two components, so there are fewer than n: count <= 2 n + 1
    work = empty((4, 2 * n + 1), dtype=np.int64)  # a single allocation saves time for small n
    component, position, done, path = work[0, : n + 1], work[1], work[2], work[3]
    for h in range(n + 1):
        component[h] = h
    position[:] = -1
    done[:] = 0
    done[0] = 1
    count = n + 1
    for start in range(1, n + 1):
        top = component[start]
        if done[top] == 1:
            continue
        size = 1
        path[0] = top
        position[top] = 0
        while size > 0:
            top = path[size - 1]
            best = best_head(score[top], component, top, single)
            if best < 0:
                return 0
            chosen[top] = best
            source = component[best]
            if done[source] == 1:
                for i in range(size):
                    done[path[i]] = 1
                size = 0
            elif position[source] < 0:
                position[source] = size
                path[size] = source
                size += 1
            else:
                begin = position[source]
                contract(path[begin:size], count, chosen, score, entry, component, parent)
                size = begin + 1
                path[begin] = count
                position[count] = begin
                count += 1
    return count


@part_kernel
def best_head(score: FloatArray, component: IntArray, inner: int, single: bool) -> int:
    """Return the best head outside a component, -1 if there is none."""
    best = -1
    largest = -np.inf
    for h in range(1 if single else 0, len(score)):
        if score[h] > largest and component[h] != inner:
            best, largest = h, score[h]
    if single and best < 0 and score[0] > -np.inf:
        best = 0
    return best


@part_kernel
def contract(
    members: IntArray,
    new: int,
    chosen: IntArray,
    score: FloatArray,
    entry: IntArray,
    component: IntArray,
    parent: IntArray,
) -> None:
    """Contract the cycle `members` into the component `new`."""
    row, ends = score[new], entry[new]
    row[:] = -np.inf
    ends[:] = 0
    for member in members:
        parent[member] = new
        base = score[member, chosen[member]]
        source, from_ends = score[member], entry[member]
        for h in range(len(row)):
            gain = source[h] - base
            if gain > row[h]:
                row[h] = gain
                ends[h] = from_ends[h]
    for h in range(len(row)):
        if parent[component[h]] == new:
            component[h] = new


@part_kernel
def expand(
    count: int, n: int, chosen: IntArray, entry: IntArray, parent: IntArray, heads: IntArray
) -> int:
    """Write heads from the chosen arcs, last component first; return the number of root arcs.

    The arc that enters a cycle replaces the arc chosen by the member at which it ends.
    """
    final = chosen.copy()
    for c in range(count - 1, n, -1):
        h = final[c]
        d = entry[c, h]
        while parent[d] != c:
            d = parent[d]
        final[d] = h
    roots = 0
    for d in range(1, n + 1):
        heads[d - 1] = final[d]
        roots += final[d] == 0
    return roots


@part_kernel
def greedy_heads(scores: FloatArray, n: int, single: bool, heads: IntArray) -> int:
    """Write every dependent's best head; return the number of root arcs, -1 if it is no tree."""
    largest = np.full(n + 1, -np.inf)
    heads[:n] = -1
    for h in range(1 if single else 0, n + 1):
        row = scores[h]
        for d in range(1, n + 1):
            if row[d] > largest[d] and d != h:
                largest[d] = row[d]
                heads[d - 1] = h
    roots = 0
    for d in range(1, n + 1):
        if heads[d - 1] < 0:
            if not (single and scores[0, d] > -np.inf):
                return -1
            heads[d - 1] = 0
        roots += heads[d - 1] == 0
    for start in range(1, n + 1):
        d = start
        for _ in range(n):
            d = heads[d - 1]
            if d == 0:
                break
        if d > 0:
            return -1
    return roots


@part_kernel
def best_heads(scores: FloatArray, n: int, single: bool, heads: IntArray) -> tuple[int, float]:
    """Write the heads (n,) of the best tree; return the number of root arcs, -1 without a tree.

    Also return the largest absolute score that a contracted cycle took: the search cannot see
    differences below the rounding error of this score.
    """
    roots = greedy_heads(scores, n, single, heads)
    if roots >= 0:
        return roots, 0.0
    score = empty((2 * n + 1, n + 1))
    entry = empty((2 * n + 1, n + 1), dtype=np.int64)
    of_component = np.zeros((2, 2 * n + 1), dtype=np.int64)
    chosen, parent = of_component[0], of_component[1]
    count = search(scores, n, single, score, entry, chosen, parent)
    if count == 0:
        return -1, 0.0
    largest = 0.0
    for c in range(n + 1, count):
        largest = max(largest, abs(score[c, chosen[c]]))
    return expand(count, n, chosen, entry, parent, heads), largest
