"""Check whether one distribution of trees allows a tree that another forbids.

A tree is allowed if its probability is above zero in float64; a mask of -1e30 therefore forbids
like -inf.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray

Finder = Callable[[FloatArray, IntArray], tuple[IntArray, int]]
Arc = tuple[int, int]
Partition = Callable[[FloatArray, IntArray], FloatArray]

# A probability below this may be a rounding error of 0.
DOUBTFUL = 1e-9
# exp(-745) is the smallest positive float64.
LEAST = -745.0


class Family(NamedTuple):
    """The family of trees of a distribution, without its arcs.

    find : returns the best heads of tables (b, m+1, m+1) with lengths (b,), -1 for tables without a
        tree, and the first such table (-1 if there is none).
    log_partition : returns log Z of such tables and lengths.
    """

    single_root: bool
    projective: bool
    find: Finder
    log_partition: Partition


def escapes(
    scores: FloatArray, marginals: FloatArray, forbidden: BoolArray, lengths: IntArray,
    own: Family, other: Family,
) -> BoolArray:  # fmt: skip
    """Return the items (b,) with a tree of `own` that `other` forbids.

    scores, marginals : (b, m+1, m+1) of `own`.
    forbidden : (b, m+1, m+1), the arcs that `other` forbids.
    """
    used = marginals > 0
    table = np.where(used, scores, -np.inf)
    lost = used & forbidden
    found: BoolArray = np.any(lost & (marginals >= DOUBTFUL), axis=(1, 2))
    several = other.single_root and not own.single_root
    crossing = other.projective and not own.projective
    if several:
        found |= marginals[:, 0].sum(axis=1) > 1 + DOUBTFUL
    for item in np.flatnonzero(~found):
        n = int(lengths[item])
        groups = [[arc] for arc in _arcs(lost[item])]
        if several:
            roots = [(0, int(d)) for d in np.flatnonzero(used[item, 0])]
            groups += [list(pair) for pair in itertools.combinations(roots, 2)]
        if crossing:
            gap = own.log_partition(table[[item]], lengths[[item]])
            gap = gap - other.log_partition(table[[item]], lengths[[item]])
            if gap[0] > DOUBTFUL:
                found[item] = True
                continue
            groups += _crossing(_arcs(used[item]))
        found[item] = any(_counts(table[item], n, own, group) for group in groups)
    return found


def _arcs(mask: BoolArray) -> list[Arc]:
    return [(int(head), int(dependent)) for head, dependent in np.argwhere(mask)]


def _crossing(arcs: list[Arc]) -> list[list[Arc]]:
    """Return the pairs of arcs that cross."""
    ends = np.array(arcs).reshape(-1, 2)
    low, high = ends.min(axis=1), ends.max(axis=1)
    crossing = (low[:, None] < low) & (low < high[:, None]) & (high[:, None] < high)
    return [[arcs[a], arcs[b]] for a, b in np.argwhere(crossing)]


def _counts(table: FloatArray, n: int, own: Family, arcs: list[Arc]) -> bool:
    """Whether some tree with all of the arcs has a probability above zero in float64."""
    fixed = table.copy()
    for head, dependent in arcs:
        column = fixed[head, dependent]
        fixed[:, dependent] = -np.inf
        fixed[head, dependent] = column
    heads, lost = own.find(np.stack([table, fixed]), np.array([n, n]))
    best, forced = table[heads[:, :n], np.arange(1, n + 1)].sum(axis=1)
    return lost < 0 and bool(forced - best > LEAST)
