"""The k best trees by Lawler's partition (1972), for any family with a best tree."""

import heapq

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.trees.arcs import ArcTable
from fstgrad.trees.sampling import LOWEST_DRAWN
from fstgrad.trees.structures import BestTrees, RankedTree


def best_trees(table: ArcTable, count: int, find_best: BestTrees) -> list[RankedTree]:
    """Return up to `count` (tree, score), best first, for the table of one sentence.

    The remaining trees are kept in parts: each holds the trees that share the heads of the
    dependents before d with a tree already listed and differ from it at d.  The best tree of a part
    is one call of `find_best`; all parts that a listed tree leaves form one batch.
    """
    n = int(table.lengths[0])
    flat = table.flat[0] if table.labeled else table.flat[0][..., None]
    # (-score, tie-breaker, tree (n, 2), the part's table, the number of dependents fixed in it)
    heap: list[tuple[float, int, IntArray, FloatArray, int]] = []
    ranked: list[RankedTree] = []
    ties = 0
    parts = [(flat, 0)]
    while len(ranked) < count:
        if parts:
            scores = np.stack([part for part, _ in parts])
            best, _ = find_best(scores.max(axis=-1), np.full(len(parts), n))
            for (part, fixed), heads in zip(parts, best, strict=True):
                if (heads >= 0).all():
                    tree = _labeled(part, heads)
                    total = flat[tree[:, 0], np.arange(1, n + 1), tree[:, 1]].sum()
                    heapq.heappush(heap, (-float(total), ties, tree, part, fixed))
                    ties += 1
        if not heap:
            break
        negative, _, tree, part, fixed = heapq.heappop(heap)
        ranked.append((tree if table.labeled else tree[:, 0], -negative))
        parts = _divide(part, tree, fixed)
    return ranked


def _labeled(part: FloatArray, heads: IntArray) -> IntArray:
    """Return (n, 2) heads and best labels."""
    labels = part[heads, np.arange(1, len(heads) + 1)].argmax(axis=-1)
    return np.stack([heads, labels], axis=-1)


def _divide(part: FloatArray, tree: IntArray, fixed: int) -> list[tuple[FloatArray, int]]:
    """Split the trees of `part` except `tree` into parts, one per dependent not yet fixed."""
    parts = []
    prefix = part
    for d, (head, label) in enumerate(tree[fixed:].tolist(), start=fixed + 1):
        rest = prefix.copy()
        rest[head, d, label] = -np.inf
        if (rest[:, d] > -np.inf).any():
            parts.append((rest, d - 1))
        prefix = prefix.copy()
        prefix[:, d] = -np.inf
        prefix[head, d, label] = part[head, d, label]
    return parts


def merged(first: list[RankedTree], second: list[RankedTree], count: int) -> list[RankedTree]:
    """Return the best `count` trees of two lists, with the first list's log p of a tree of both.

    The first list comes from a normal form, which has no arcs of very low probability, and in which
    trees below LOWEST_DRAWN are raised to it.
    """
    drawn = [item for item in first if item[1] > LOWEST_DRAWN]
    known = {tree.tobytes() for tree, _ in drawn}
    both = [*drawn, *(item for item in second if item[0].tobytes() not in known)]
    return sorted(both, key=lambda item: -item[1])[:count]
