"""The k best spanning arborescences, O(n^2) for each, after Camerini, Fratta and Maffioli (1980).

The trees not yet found are kept in sets.  A set has some arcs required and some forbidden.  In the
search for its best tree (`arborescence`), each arc of this tree was chosen by one component c, the
largest that it enters.  Without the arc, c takes its best other arc; the result is a tree if the
new head is no descendant of c in the best tree.  If all such heads are worse than others, a cycle
closes, but then the exchange of another arc of the cycle loses less.  The second-best tree of a set
therefore differs from the best one by the exchange of the one arc with the least loss, which is
found in O(n) per dependent.  This arc splits the set in two: in one it is forbidden, and the best
tree is the second-best of the whole set; in the other it is required, and the best tree stays the
best.  If trees tie, the search in the second set may find another one: this one is then the
second-best of this set, and an arc that it lacks splits the set.

To replace the best label of an arc by another one is also an exchange.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import copy_to
from fstgrad.trees.kernels.arborescence import expand, search

NONE = -1


class Sets(NamedTuple):
    """Sets of trees, each a part of its parent, and their best trees.

    kinds (s,) : 1 if the set requires its arc, 0 if it forbids it.  parents (s,).
    arcs (s, 3) : head, dependent, label.  best (s, n, 2) : heads and labels.
    value (s,) : the best tree's score.
    loss (s,) : the best tree's score minus that of the second-best, +inf if there is none.
    worst (s,) : the dependent whose arc the second-best tree exchanges.
    """

    kinds: IntArray
    parents: IntArray
    arcs: IntArray
    best: IntArray
    value: FloatArray
    loss: FloatArray
    worst: IntArray


class Tables(NamedTuple):
    """Work space: scores (n+1, n+1, y), scores of the best and second-best labels (n+1, n+1)."""

    scores: FloatArray
    best: FloatArray
    second: FloatArray


@part_kernel
def descend_from(heads: IntArray, below: BoolArray) -> None:
    """Set below[c, d], (n+1, n+1), to whether c is d or an ancestor of d."""
    below[:] = False
    for d in range(1, len(heads) + 1):
        node = d
        while node > 0:
            below[node, d] = True
            node = heads[node - 1]


@part_kernel
def least_loss(
    table: FloatArray, second: FloatArray, single: bool, heads: IntArray
) -> tuple[int, float, int]:
    """Find the best tree of a table and the arc whose exchange loses least.

    table : (n+1, n+1) scores, -inf forbids an arc.
    second : the score of each arc's second-best label, -inf if it has none.
    Return the number of root arcs, -1 without a tree; the loss, +inf if there is only one tree; and
    the dependent of the arc.
    """
    n = len(heads)
    score = empty((2 * n + 1, n + 1))
    entry = empty((2 * n + 1, n + 1), dtype=np.int64)
    chosen = np.zeros(2 * n + 1, dtype=np.int64)
    parent = empty(2 * n + 1, dtype=np.int64)
    count = search(table, n, single, score, entry, chosen, parent)
    if count == 0:
        return NONE, np.inf, 0
    roots = expand(count, n, chosen, entry, parent, heads)
    below = empty((n + 1, n + 1), dtype=np.bool_)
    descend_from(heads, below)
    owner = np.zeros(n + 1, dtype=np.int64)  # the component that chose the arc into a dependent
    for d in range(1, n + 1):
        owner[d] = NONE
    for c in range(count - 1, 0, -1):
        d = entry[c, chosen[c]]
        if owner[d] == NONE and heads[d - 1] == chosen[c]:
            owner[d] = c
    loss, worst = np.inf, 0
    for d in range(1, n + 1):
        c, head = owner[d], heads[d - 1]
        best = score[c, head]
        gap = table[head, d] - second[head, d]
        for h in range(n + 1):
            if h != head and not below[d, h] and not (single and h == 0):
                gap = min(gap, best - score[c, h])
        if c > n:  # the same head may enter c at another dependent
            gap = min(gap, best - same_head(table, score, chosen, parent, c, d))
        if gap < loss:
            loss, worst = gap, d
    return roots, loss, worst


@part_kernel
def same_head(
    table: FloatArray, score: FloatArray, chosen: IntArray, parent: IntArray, c: int, excluded: int
) -> float:
    """Return the score of the best arc from c's chosen head into c, not the arc to `excluded`."""
    head = chosen[c]
    best = -np.inf
    for d in range(1, len(table)):
        if d in (excluded, head) or table[head, d] == -np.inf:
            continue
        total = table[head, d]
        node = d
        while node != c and node != NONE:
            total -= score[node, chosen[node]]
            node = parent[node]
        if node == c:
            best = max(best, total)
    return best


@part_kernel
def constrain(scores: FloatArray, sets: Sets, member: int, tables: Tables) -> None:
    """Write the tables of a set from its arc and those of its ancestors."""
    work = tables.scores
    copy_to(work.reshape(-1), scores.reshape(-1))
    at = member
    while at > 0:
        head, d, label = sets.arcs[at, 0], sets.arcs[at, 1], sets.arcs[at, 2]
        if sets.kinds[at] == 1:
            required_score = work[head, d, label]
            work[:, d] = -np.inf
            work[head, d, label] = required_score
        else:
            work[head, d, label] = -np.inf
        at = sets.parents[at]
    for h in range(work.shape[0]):
        for d in range(work.shape[0]):
            first, other = -np.inf, -np.inf
            for y in range(work.shape[2]):
                x = work[h, d, y]
                if x > first:
                    first, other = x, first
                elif x > other:
                    other = x
            tables.best[h, d], tables.second[h, d] = first, other
        tables.best[h, h] = -np.inf
        tables.best[h, 0] = -np.inf


@part_kernel
def solve_set(scores: FloatArray, single: bool, sets: Sets, member: int, tables: Tables) -> bool:
    """Find the best tree of a set and the second-best's loss; return whether a tree exists."""
    constrain(scores, sets, member, tables)
    heads = empty(sets.best.shape[1], dtype=np.int64)
    roots, loss, worst = least_loss(tables.best, tables.second, single, heads)
    if roots == NONE or (single and roots > 1):
        sets.value[member], sets.loss[member] = -np.inf, np.inf
        return False
    total = 0.0
    for d in range(1, len(heads) + 1):
        h = heads[d - 1]
        sets.best[member, d - 1, 0] = h
        sets.best[member, d - 1, 1] = np.argmax(tables.scores[h, d])
        total += tables.best[h, d]
    sets.value[member], sets.loss[member], sets.worst[member] = total, loss, worst
    if sets.kinds[member] == 1:
        keep_best(sets, member)
    return True


@part_kernel
def keep_best(sets: Sets, member: int) -> None:
    """Make the parent's best tree that of a set that requires an arc of it."""
    parent = sets.parents[member]
    tree, parent_tree = sets.best[member], sets.best[parent]
    for d in range(1, len(tree) + 1):
        if (tree[d - 1] != parent_tree[d - 1]).any():  # a tie, or nearly one after rounding
            gap = sets.value[parent] - sets.value[member]
            sets.loss[member], sets.worst[member] = max(gap, 0.0), d
            sets.value[member] = sets.value[parent]
            copy_to(tree.reshape(-1), parent_tree.reshape(-1))
            return


@kernel
def best_trees(scores: FloatArray, single: bool, trees: IntArray) -> int:
    """Write up to k trees (k, n, 2) with labels, best first; return their number.

    scores : (n+1, n+1, y).
    """
    k, n = trees.shape[:2]
    # at most k - 1 splits, each of one set into two; each split finds one tree
    most = 2 * k + 1
    sets = Sets(
        np.zeros(most, dtype=np.int64),
        np.zeros(most, dtype=np.int64),
        np.zeros((most, 3), dtype=np.int64),
        np.zeros((most, n, 2), dtype=np.int64),
        np.full(most, -np.inf),
        np.full(most, np.inf),
        np.zeros(most, dtype=np.int64),
    )
    tables = Tables(empty(scores.shape), empty((n + 1, n + 1)), empty((n + 1, n + 1)))
    if not solve_set(scores, single, sets, 0, tables):
        return 0
    copy_to(trees[0].reshape(-1), sets.best[0].reshape(-1))
    used, written = 1, 1
    for _ in range(k - 1):
        top = int(np.argmax(sets.value[:used] - sets.loss[:used]))
        if sets.loss[top] == np.inf:
            break
        sets.loss[top] = np.inf
        d = sets.worst[top]
        for kind in range(2):
            s = used + kind
            sets.kinds[s], sets.parents[s] = kind, top
            sets.arcs[s, 0], sets.arcs[s, 1] = sets.best[top, d - 1, 0], d
            sets.arcs[s, 2] = sets.best[top, d - 1, 1]
            exists = solve_set(scores, single, sets, s, tables)
            if exists and kind == 0:
                copy_to(trees[written].reshape(-1), sets.best[s].reshape(-1))
                written += 1
        used += 2
    return written
