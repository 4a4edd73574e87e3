"""Trees as arrays of heads: checks, tables of parts, and errors for tables without a tree.

A tree of n dependents is an array `heads` (n,) of int64: heads[d - 1] is the head of dependent d,
and 0 is the root.  A labeled tree is (n, 2): head and label.  In a ragged batch, the rows past the
length hold -1.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.errors import InfeasibleError, InvalidInputError

PADDING = -1
Ranked = tuple[IntArray, float]  # a tree and its score or log-probability
Namer = Callable[[int], str]  # returns the item's name for messages, as " of item 3"


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
    _check_cycles(array, real, name, item)
    roots = ((array == 0) & real).sum(axis=-1)
    if single_root and (roots > 1).any():
        where = tuple(int(i) for i in np.argwhere(roots > 1)[0])
        several = (np.flatnonzero(array[where] == 0) + 1).tolist()
        raise InvalidInputError(
            f"{name}{item(where[-1])} attaches dependents {several} to the root; "
            "attach exactly one, or pass single_root=False"
        )
    return array


def _check_cycles(heads: IntArray, real: BoolArray, name: str, item: Namer) -> None:
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
    found = np.full((*heads.shape[:-1], 2, 2), -1)
    if n:
        pair = np.stack(np.divmod(flat.argmax(axis=-1), n), axis=-1)
        arcs = np.stack([np.take_along_axis(heads, pair, axis=-1), pair + 1], axis=-1)
        crosses: BoolArray = np.asarray(flat.any(axis=-1))
        found = np.where(crosses[..., None, None], arcs, found)
    return found


def arc_table(heads: IntArray, labels: IntArray | None, shape: tuple[int, ...]) -> FloatArray:
    """Return the 0/1 table of arcs: the leading axes of `heads`, then (n+1, n+1[, y])."""
    table = np.zeros(shape)
    where = np.nonzero(heads >= 0)
    index = (*where[:-1], heads[where], where[-1] + 1)
    table[index if labels is None else (*index, labels[where])] = 1.0
    return table


def explain_infeasible(scores: FloatArray, item: str, *, single_root: bool) -> InfeasibleError:
    """Return the error for a table (n+1, n+1) that allows no tree; it names the nodes concerned."""
    allowed = scores > -np.inf
    allowed[:, 0] = False
    np.fill_diagonal(allowed, False)
    headless = np.flatnonzero(~allowed[:, 1:].any(axis=0)) + 1
    if len(headless):
        return InfeasibleError(
            f"dependents {headless.tolist()}{item} have no allowed head: scores[:, d] is -inf "
            "there; allow at least one"
        )
    lost = np.flatnonzero(~_reached(allowed, [0]))
    if len(lost):
        return InfeasibleError(
            f"no allowed arcs lead from the root to dependents {lost.tolist()}{item}: Z = 0; "
            "allow an arc into this set from outside it"
        )
    unreached = {
        child: np.flatnonzero(~_reached(allowed, [child]))[1:].tolist()
        for child in np.flatnonzero(allowed[0]).tolist()
    }
    if single_root and all(unreached.values()):
        why = [f"{child} does not reach {nodes}" for child, nodes in unreached.items()]
        return InfeasibleError(
            f"no tree with a single root arc is allowed{item}: Z = 0; of the root's dependents "
            f"{'; '.join(why)}; allow arcs between them or pass single_root=False"
        )
    return InfeasibleError(
        f"every allowed tree has crossing arcs{item}: Z = 0 over projective trees; allow more arcs "
        "or use SpanningTrees"
    )


def _reached(allowed: BoolArray, sources: list[int]) -> BoolArray:
    """Return a mask of the nodes that allowed arcs reach; the root only if it is a source."""
    reached = np.zeros(len(allowed), dtype=bool)
    reached[sources] = True
    for _ in range(len(allowed)):
        reached = reached | (reached[:, None] & allowed).any(axis=0)
    return reached
