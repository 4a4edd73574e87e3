"""A lower bound of the number of states of Det(M), computed without OpenFst.

A state of Det(M) is the vector of M's weights of a prefix, minus its minimum.  So each set of
prefixes with different vectors gives a lower bound, and a limit below this bound is exceeded.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.uninitialized import empty
from fstgrad.openfst import FstArrays

_APART = 1e-4  # weights that differ by more are different to OpenFst, which uses float32
_ROOM = 2**22  # largest size of an array that is allocated for a level


def depths(arrays: FstArrays) -> IntArray:
    """Return the depth (states,) of each state: its number of arcs from the start, or -1.

    All paths to a state must have the same length, and arcs must be sorted by source.  O(states +
    arcs).
    """
    depth = np.full(arrays.num_states, -1)
    bounds = np.searchsorted(arrays.source, np.arange(arrays.num_states + 1))
    frontier, level = np.array([arrays.start]), 0
    while len(frontier):
        depth[frontier] = level
        level += 1
        ahead = np.zeros(arrays.num_states, dtype=bool)
        ahead[arrays.nextstate[_ranges(bounds, frontier)]] = True
        frontier = np.flatnonzero(ahead)
    return depth


def least_states(arrays: FstArrays, depth: IntArray, limit: int) -> int:
    """Return a lower bound of the number of states of Det(M), M tropical; stop above `limit`.

    The rows of up to 2 limit / levels prefixes are advanced along M, level by level.  O(limit arcs
    / levels), about 1 % of the time that OpenFst needs to reach the limit.

    Parameters
    ----------
    arrays : FstArrays
        M, acyclic, with arcs sorted by source.
    depth : (states,) int64
        As `depths` returns it: all paths to a state have the same length.
    limit : int
        Number of states above which the count stops.
    """
    bounds = np.searchsorted(arrays.source, np.arange(arrays.num_states + 1))
    order = np.argsort(depth, kind="stable")
    first = np.searchsorted(depth[order], np.arange(depth.max() + 2))
    place = empty(arrays.num_states, dtype=np.int64)  # of a state in its level
    place[order] = np.arange(arrays.num_states) - first[depth[order]]
    width = 2 * (limit // len(first) + 1)
    weights, found = np.zeros((1, 1)), 1
    for level in range(len(first) - 2):
        arcs = _ranges(bounds, order[first[level] : first[level + 1]])
        label, size = arrays.ilabel[arcs], first[level + 2] - first[level + 1]
        steps = [
            _step(weights, arrays, place, arcs[label == symbol], int(size))
            for symbol in np.unique(label)
        ]
        weights, number = _different(np.concatenate(steps), width)
        found += number
        if found > limit or not number:
            break
    return found


def _ranges(bounds: IntArray, rows: IntArray) -> IntArray:
    """Return bounds[r], ..., bounds[r + 1] - 1 for all rows r, concatenated."""
    sizes = bounds[rows + 1] - bounds[rows]
    ends = np.cumsum(sizes)
    places: IntArray = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
        bounds[rows] - ends + sizes, sizes
    )
    return places


def _step(
    weights: FloatArray, arrays: FstArrays, place: IntArray, arcs: IntArray, size: int
) -> FloatArray:
    """Return the weights (prefixes, size) of the next level, after the symbol of these arcs."""
    goal = place[arrays.nextstate[arcs]]
    order = np.argsort(goal, kind="stable")
    source, cost = place[arrays.source[arcs[order]]], arrays.weight[arcs[order]]
    reached, starts = np.unique(goal[order], return_index=True)
    result = np.full((len(weights), size), np.inf)
    rows = max(1, _ROOM // max(1, len(arcs)))
    for at in range(0, len(weights), rows):
        sums = weights[at : at + rows, source] + cost
        result[at : at + rows, reached] = np.minimum.reduceat(sums, starts, axis=1)
    return result


def _different(weights: FloatArray, width: int) -> tuple[FloatArray, int]:
    """Return up to `width` different rows minus their minima, and a lower bound of their number.

    Rows are compared by sums of their cells, weighted with random factors: if two sums are far
    enough apart, so is at least one pair of cells.  Rows without a finite weight are left out.
    """
    least = weights.min(axis=1)
    rows = weights[np.isfinite(least)] - least[np.isfinite(least), None]
    if not len(rows):
        return rows, 0
    finite = np.isfinite(rows)
    known = np.where(finite, rows, 2.0 * rows[finite].max() + 1.0)
    factor = np.random.default_rng(0).random(rows.shape[1])
    total = known @ factor
    order = np.argsort(total, kind="stable")
    is_new = np.append(True, np.diff(total[order]) > _APART * (1.0 + factor.sum()))
    new = order[is_new]
    kept = np.linspace(0, len(new) - 1, min(width, len(new))).astype(np.int64)
    return rows[new[kept]], len(new)
