"""The states of Det(M), counted from below: a number that it has at least, without OpenFst.

A state of Det(M) is the vector of M's weights of a prefix, less its minimum.  So every set of
prefixes with vectors that differ gives a lower bound, and a limit that lies below it is passed.
"""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.openfst import FstArrays

_APART = 1e-4  # weights that differ by so much are different to OpenFst, which has float32
_ROOM = 2**22  # numbers of an array that is made for a level


def depths(arrays: FstArrays) -> IntArray:
    """Return each state's number of arcs from the start, in a machine where it is unique.

    Arcs are sorted by their sources.  O(states + arcs).
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
    """Return a number that the states of Det(M) reach, M tropical, or any above `limit`.

    M is followed level by level, along about twice as many prefixes a level as make `limit` states
    in all.  O(limit arcs / levels), a hundredth of what OpenFst takes for the limit.

    Parameters
    ----------
    arrays : FstArrays
        M, acyclic; all paths to a state have the same length, `depth` (states,).
    limit : int
    """
    bounds = np.searchsorted(arrays.source, np.arange(arrays.num_states + 1))
    order = np.argsort(depth, kind="stable")
    first = np.searchsorted(depth[order], np.arange(depth.max() + 2))
    place = np.empty(arrays.num_states, dtype=np.int64)  # of a state within its level
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
    """Return bounds[r], ..., bounds[r + 1] - 1 for all rows r, one after another."""
    sizes = bounds[rows + 1] - bounds[rows]
    ends = np.cumsum(sizes)
    places: IntArray = np.arange(ends[-1] if len(ends) else 0) + np.repeat(
        bounds[rows] - ends + sizes, sizes
    )
    return places


def _step(
    weights: FloatArray, arrays: FstArrays, place: IntArray, arcs: IntArray, size: int
) -> FloatArray:
    """Return the weights (prefixes, size) of the next level after the symbol of these arcs."""
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
    """Return up to `width` rows that differ, less their minima, and how many there are at least.

    Rows whose sums with random factors lie apart have a number that does.
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
