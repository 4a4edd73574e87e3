"""Whether one distribution of trees allows a tree that another forbids.

An arc is used if its marginal is above zero in float64, so that a mask of -1e30 forbids as -inf
does.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fstgrad.checks import BoolArray, FloatArray, IntArray

Finder = Callable[[FloatArray, IntArray], tuple[IntArray, BoolArray]]
Counter = Callable[[FloatArray, IntArray], FloatArray]

# A marginal below this may be what rounding left of an arc in no tree.
DOUBTFUL = 1e-9


class Family(NamedTuple):
    """Which trees a distribution is over, besides its arcs.

    find : the best heads and whether there are any, of tables (b, m+1, m+1) and lengths (b,).
    count_log : the log of Z of such tables.
    """

    single_root: bool
    projective: bool
    find: Finder
    count_log: Counter


def escapes(
    used: BoolArray, doubtful: BoolArray, forbidden: BoolArray, lengths: IntArray,
    own: Family, other: Family,
) -> BoolArray:  # fmt: skip
    """Return the items (b,) with a tree of `own` that `other` forbids.

    used, doubtful, forbidden : (b, m+1, m+1), arcs of the first family's trees; those of them with
        a tiny marginal; those that the other forbids.
    """
    table = np.where(used, 0.0, -np.inf)
    found: BoolArray = np.any(used & forbidden & ~doubtful, axis=(1, 2))
    for item in np.flatnonzero((used & forbidden & doubtful).any(axis=(1, 2)) & ~found):
        arcs = np.argwhere(used[item] & forbidden[item])
        found[item] = any(_possible(table[item], lengths[item], own, [tuple(a)]) for a in arcs)
    if other.single_root and not own.single_root:
        rewarded = table.copy()
        rewarded[:, 0] += 1.0
        heads, _ = own.find(rewarded, lengths)
        found |= (heads == 0).sum(axis=1) > 1
    if other.projective and not own.projective:
        for item in np.flatnonzero(~found):
            found[item] = _crosses(table[item], lengths[item], own, other)
    return found


def _crosses(table: FloatArray, n: int, own: Family, other: Family) -> bool:
    """Whether a tree of the arcs with a finite entry of `table` has crossing arcs."""
    length = np.array([n])
    gap = own.count_log(table[None], length)[0] - other.count_log(table[None], length)[0]
    if gap > DOUBTFUL:
        return True
    arcs = np.argwhere(table[: n + 1, : n + 1] > -np.inf)
    low, high = arcs.min(axis=1), arcs.max(axis=1)
    crossing = (low[:, None] < low) & (low < high[:, None]) & (high[:, None] < high)
    return any(
        _possible(table, n, own, [tuple(arcs[a]), tuple(arcs[b])]) for a, b in np.argwhere(crossing)
    )


def _possible(table: FloatArray, n: int, own: Family, arcs: list[tuple[int, ...]]) -> bool:
    """Whether a tree has all of the arcs."""
    fixed = table.copy()
    for head, dependent in arcs:
        column = fixed[head, dependent]
        fixed[:, dependent] = -np.inf
        fixed[head, dependent] = column
    return bool(own.find(fixed[None], np.array([n]))[1][0])
