"""Trees as arrays of heads: checks, tables of parts, and which trees a table of scores allows.

A tree of n dependents is an array `heads` (n,) of int64: heads[d - 1] is the head of dependent d,
and 0 is the root.  A labeled tree is (n, 2): head and label.  In a ragged batch, the rows past the
length hold -1.

A table allows a tree if no arc of it is -inf.  A distribution allows a tree if its probability is
above zero in float64; a mask of -1e30 therefore forbids like -inf.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.errors import InvalidInputError

PADDING = -1
IGNORE_INDEX = -100  # also marks what is unknown, as in padded gold of PyTorch
# A probability below this may be a rounding error of 0.
ROUNDING_PROBABILITY = 1e-9
# exp(-745) is the smallest positive float64.
LEAST_LOG = -745.0

RankedTree = tuple[IntArray, float]  # a tree and its score or log-probability
Namer = Callable[[int], str]  # returns the item's name for messages, as " of item 3"
Arc = tuple[int, int]  # (head, dependent)
BestTrees = Callable[[FloatArray, IntArray], tuple[IntArray, int]]  # `TreeAlgorithms.best_trees`
LogPartition = Callable[[FloatArray, IntArray], FloatArray]


def check_heads(
    heads: npt.ArrayLike, lengths: IntArray, *, single_root: bool, name: str, item: Namer
) -> IntArray:
    """Return `heads` (..., b, n) as int64 trees; raise for cycles, bad heads and extra roots."""
    array = np.asarray(heads)
    if array.dtype.kind not in "iu":
        raise InvalidInputError(f"{name} has dtype {array.dtype}; give integer heads, 0 the root")
    array = array.astype(np.int64)
    real = np.arange(array.shape[-1]) < lengths[:, None]
    array = np.where(real, array, PADDING)
    bad = real & ((array < 0) | (array > lengths[:, None]))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InvalidInputError(
            f"{name}: the head of dependent {where[-1] + 1}{item(where[-2])} is {array[where]}; "
            f"heads run from 0, the root, to {lengths[where[-2]]}"
            + ("; lengths= says where a padded sentence ends" if array[where] < 0 else "")
        )
    check_cycles(array, real, name, item)
    roots = ((array == 0) & real).sum(axis=-1)
    if single_root and (roots > 1).any():
        where = tuple(int(i) for i in np.argwhere(roots > 1)[0])
        several = (np.flatnonzero(array[where] == 0) + 1).tolist()
        raise InvalidInputError(
            f"{name}{item(where[-1])} attaches dependents {several} to the root; "
            "attach exactly one, or pass single_root=False"
        )
    return array


def check_cycles(heads: IntArray, real: BoolArray, name: str, item: Namer) -> None:
    """Raise if following the heads, with doubled steps, does not lead every node to the root."""
    ancestor = np.concatenate([np.zeros_like(heads[..., :1]), np.where(real, heads, 0)], axis=-1)
    for _ in range(int(heads.shape[-1]).bit_length()):
        ancestor = np.take_along_axis(ancestor, ancestor, axis=-1)
    if not ancestor.any():
        return
    where = tuple(int(i) for i in np.argwhere(ancestor != 0)[0])
    cycle = [int(ancestor[where])]
    while (head := int(heads[(*where[:-1], cycle[-1] - 1)])) != cycle[0]:
        cycle.append(head)
    shown = " <- ".join(str(node) for node in [*cycle, cycle[0]])
    raise InvalidInputError(
        f"{name}{item(where[-2])} has a cycle of heads, {shown}; a tree leads every dependent "
        "to the root, 0"
    )


def real_arcs(lengths: IntArray, size: int) -> BoolArray:
    """Return a mask (b, size, size) of the cells that are arcs in items of these lengths."""
    real = np.arange(size) <= lengths[:, None]
    arcs: BoolArray = real[:, :, None] & real[:, None, :] & ~np.eye(size, dtype=bool)
    arcs[:, :, 0] = False
    return arcs


def crossing_arcs(heads: IntArray) -> IntArray:
    """Return the first two crossing arcs of each tree (..., n), (..., 2, 2) of (head, dependent).

    The result is -1 if none cross.  The root is leftmost; -1 in `heads` is no arc.  O(n^2) per
    tree.
    """
    n = heads.shape[-1]
    dependents = np.arange(1, n + 1)
    real = heads >= 0
    low, high = np.minimum(heads, dependents), np.maximum(heads, dependents)
    inside = (low[..., :, None] < low[..., None, :]) & (low[..., None, :] < high[..., :, None])
    beyond = high[..., :, None] < high[..., None, :]
    crossing: BoolArray = inside & beyond & real[..., :, None] & real[..., None, :]
    flat = crossing.reshape(*heads.shape[:-1], n * n)
    if not n:
        return np.full((*heads.shape[:-1], 2, 2), -1)
    pair = np.stack(np.divmod(flat.argmax(axis=-1), n), axis=-1)
    arcs = np.stack([np.take_along_axis(heads, pair, axis=-1), pair + 1], axis=-1)
    crosses: BoolArray = np.asarray(flat.any(axis=-1))
    return np.where(crosses[..., None, None], arcs, -1)


def arc_table(heads: IntArray, labels: IntArray | None, shape: tuple[int, ...]) -> FloatArray:
    """Return the 0/1 table of arcs: the leading axes of `heads`, then (n+1, n+1[, y])."""
    table = np.zeros(shape)
    where = np.nonzero(heads >= 0)
    index = (*where[:-1], heads[where], where[-1] + 1)
    table[index if labels is None else (*index, labels[where])] = 1.0
    return table


def explain_infeasible(scores: FloatArray, *, single_root: bool) -> str:
    """Return why a table (n+1, n+1) allows no tree, with the nodes concerned."""
    allowed = scores > -np.inf
    allowed[:, 0] = False
    np.fill_diagonal(allowed, False)
    headless = np.flatnonzero(~allowed[:, 1:].any(axis=0)) + 1
    if len(headless):
        return (
            f"dependents {headless.tolist()} have no allowed head: scores[:, d] is -inf there; "
            "allow at least one"
        )
    unreachable = np.flatnonzero(~_reached(allowed, [0]))
    if len(unreachable):
        return (
            f"no allowed arcs lead from the root to dependents {unreachable.tolist()}: Z = 0; "
            "allow an arc into this set from outside it"
        )
    unreached = {
        child: np.flatnonzero(~_reached(allowed, [child]))[1:].tolist()
        for child in np.flatnonzero(allowed[0]).tolist()
    }
    if single_root and all(unreached.values()):
        why = [f"{child} does not reach {nodes}" for child, nodes in unreached.items()]
        return (
            "no tree with a single root arc is allowed: Z = 0; of the root's dependents "
            f"{'; '.join(why)}; allow arcs between them or pass single_root=False"
        )
    return (
        "every allowed tree has crossing arcs: Z = 0 over projective trees; allow more arcs or use "
        "trees that may cross"
    )


def explain_excluded(
    heads: IntArray, forbidden: BoolArray, *, single_root: bool, projective: bool
) -> dict[tuple[int, ...], str]:
    """Return why trees (..., n) have the probability 0, by their places.

    forbidden : (...), whether an arc of the tree, or its label, has a score of -inf.
    """
    roots = np.asarray((heads == 0).sum(axis=-1))
    several = (roots > 1) & single_root
    arcs = crossing_arcs(heads if projective else heads[..., :0])
    crossing = np.asarray(arcs[..., 0, 0] >= 0)
    reasons: dict[tuple[int, ...], str] = {}
    for place in map(tuple, np.argwhere(several | crossing | forbidden).tolist()):
        if several[place]:
            reasons[place] = f"gold has {roots[place]} root arcs, single_root=True allows 1"
        elif crossing[place]:
            one, two = map(tuple, arcs[place].tolist())
            reasons[place] = (
                f"gold has the crossing arcs {one} and {two} (head, dependent); no projective tree "
                "has both"
            )
        else:
            reasons[place] = "gold has an arc with a score of -inf, so its probability is 0"
    return reasons


def _reached(allowed: BoolArray, sources: list[int]) -> BoolArray:
    """Return a mask of the nodes that allowed arcs reach; the root only if it is a source."""
    reached = np.zeros(len(allowed), dtype=bool)
    reached[sources] = True
    for _ in range(len(allowed)):
        reached = reached | (reached[:, None] & allowed).any(axis=0)
    return reached


class TreeAlgorithms(NamedTuple):
    """The family of trees of a distribution, without its arcs.

    best_trees : returns the best heads of tables (b, m+1, m+1) with lengths (b,), -1 for tables
        without a tree, and the first such table (-1 if there is none).
    log_partition : returns log Z of such tables and lengths.
    """

    single_root: bool
    projective: bool
    best_trees: BestTrees
    log_partition: LogPartition


def allows_beyond(
    scores: FloatArray, marginals: FloatArray, forbidden: BoolArray, lengths: IntArray,
    family: TreeAlgorithms, other: TreeAlgorithms,
) -> BoolArray:  # fmt: skip
    """Return the items (b,) with a tree of `family` that `other` forbids.

    scores, marginals : (b, m+1, m+1) of `family`.
    forbidden : (b, m+1, m+1), the arcs that `other` forbids.
    """
    used = marginals > 0
    table = np.where(used, scores, -np.inf)
    used_forbidden = used & forbidden
    beyond: BoolArray = np.any(used_forbidden & (marginals >= ROUNDING_PROBABILITY), axis=(1, 2))
    several = other.single_root and not family.single_root
    crossing = other.projective and not family.projective
    if several:
        beyond |= marginals[:, 0].sum(axis=1) > 1 + ROUNDING_PROBABILITY
    for item in np.flatnonzero(~beyond):
        n = int(lengths[item])
        # groups of arcs of which `other` forbids every tree that has all of them
        groups = [[arc] for arc in _arcs(used_forbidden[item])]
        if several:
            roots = [(0, int(d)) for d in np.flatnonzero(used[item, 0])]
            groups += [list(pair) for pair in itertools.combinations(roots, 2)]
        if crossing:
            gap = family.log_partition(table[[item]], lengths[[item]])
            gap = gap - other.log_partition(table[[item]], lengths[[item]])
            if gap[0] > ROUNDING_PROBABILITY:
                beyond[item] = True
                continue
            groups += _crossing_pairs(_arcs(used[item]))
        beyond[item] = any(_allows(table[item], n, family, group) for group in groups)
    return beyond


def _arcs(mask: BoolArray) -> list[Arc]:
    return [(int(head), int(dependent)) for head, dependent in np.argwhere(mask)]


def _crossing_pairs(arcs: list[Arc]) -> list[list[Arc]]:
    """Return the pairs of arcs that cross."""
    ends = np.array(arcs).reshape(-1, 2)
    low, high = ends.min(axis=1), ends.max(axis=1)
    crossing = (low[:, None] < low) & (low < high[:, None]) & (high[:, None] < high)
    return [[arcs[a], arcs[b]] for a, b in np.argwhere(crossing)]


def _allows(table: FloatArray, n: int, family: TreeAlgorithms, arcs: list[Arc]) -> bool:
    """Whether some tree with all of the arcs has a probability above zero in float64."""
    fixed = table.copy()
    for head, dependent in arcs:
        column = fixed[head, dependent]
        fixed[:, dependent] = -np.inf
        fixed[head, dependent] = column
    heads, infeasible = family.best_trees(np.stack([table, fixed]), np.array([n, n]))
    best, forced = table[heads[:, :n], np.arange(1, n + 1)].sum(axis=1)
    return infeasible < 0 and bool(forced - best > LEAST_LOG)
