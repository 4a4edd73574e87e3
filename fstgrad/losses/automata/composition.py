"""Compose transducers on arrays: OpenFst's composition without its overhead."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import BoolArray, IntArray
from fstgrad.losses.automata import kernels
from fstgrad.openfst import FstArrays
from fstgrad.openfst.arrays import trusted


def string_arrays(ids: IntArray) -> FstArrays:
    """Return the acceptor in log64 of the string with these ids (m,), weight 0."""
    state = np.arange(len(ids))
    final = np.full(len(ids) + 1, np.inf)
    final[-1] = 0.0
    label = ids + 1
    return trusted("log64", 0, final, state, label, label, state + 1, np.zeros(len(ids)))


def compose_arrays(left: FstArrays, right: FstArrays) -> FstArrays:
    """Return left o right, trimmed; if it has no path, it has no states and its start is -1."""
    return composition(left, right)[0]


def composition(left: FstArrays, right: FstArrays) -> tuple[FstArrays, IntArray]:
    """Return left o right, trimmed, and for each of its states the states (S, 2) of both sides.

    Only pairs that the start reaches are visited; O(pairs + arcs log arcs of a state).
    """
    no_pairs = np.zeros((0, 2), dtype=np.int64)
    if left.start < 0 or right.start < 0:
        return _nothing(), no_pairs
    left_order, left_side = _sort(left, left.olabel)
    right_order, right_side = _sort(right, right.ilabel)
    pairs, arcs = kernels.composition.compose(*left_side, *right_side)
    if len(pairs) == 0:
        return _nothing(), no_pairs
    own, other = left_order[arcs[:, 2]], right_order[arcs[:, 3]]  # -1 selects the last: -1
    fst = trusted(
        "log64",
        0,
        left.final[pairs[:, 0]] + right.final[pairs[:, 1]],
        arcs[:, 0],
        _taken(left.ilabel, own),
        _taken(right.olabel, other),
        arcs[:, 1],
        _taken(left.weight, own) + _taken(right.weight, other),
    )
    return fst, pairs


def _sort(fst: FstArrays, label: IntArray) -> tuple[IntArray, tuple[Any, ...]]:
    """Return the order of the arcs by source and label, then -1, and the inputs of the kernel."""
    order = np.lexsort((label, fst.source))
    first = np.searchsorted(fst.source, np.arange(fst.num_states + 1))
    side = first, label[order], fst.nextstate[order], fst.start, np.isfinite(fst.final)
    return np.append(order, -1), side


def _taken(values: npt.NDArray[Any], where: IntArray) -> npt.NDArray[Any]:
    """Return values[where], with 0 where the index is -1."""
    return np.append(values, values.dtype.type(0))[where]


def _nothing() -> FstArrays:
    none, no_weights = np.zeros(0, dtype=np.int64), np.zeros(0)
    return trusted("log64", -1, no_weights, none, none, none, none, no_weights)


def depth_range(fst: FstArrays) -> IntArray:
    """Return (S, 2) int64: the least and the greatest number of symbols read on a path to a state.

    The FST must be acyclic.  A state without a path has (2^40, -1).  O(longest path x arcs).
    """
    reads = (fst.ilabel > 0).astype(np.int64)
    low, high = np.full(fst.num_states, 2**40), np.full(fst.num_states, -1)
    if fst.start < 0:
        return np.stack([low, high], axis=1)
    low[fst.start] = high[fst.start] = 0
    for _ in range(fst.num_states):
        before = low.copy(), high.copy()
        np.minimum.at(low, fst.nextstate, low[fst.source] + reads)
        known = high[fst.source] >= 0
        np.maximum.at(high, fst.nextstate[known], (high[fst.source] + reads)[known])
        if np.array_equal(before[0], low) and np.array_equal(before[1], high):
            break
    return np.column_stack([low, high])


def states_with_free_skips(fst: FstArrays) -> BoolArray:
    """Return (S,) bool: the states with loops of weight 0 that skip every symbol of both sides.

    A loop skips an input symbol if it writes epsilon, and an output symbol if it reads epsilon.
    """
    loops = (fst.source == fst.nextstate) & (fst.weight == 0)
    skips = np.ones(fst.num_states, dtype=np.bool_)
    for own, other in ((fst.ilabel, fst.olabel), (fst.olabel, fst.ilabel)):
        found = loops & (own > 0) & (other == 0)
        if not found.any():
            skips &= not (own > 0).any()
            continue
        symbols = np.unique(own[own > 0])
        width = int(symbols[-1]) + 1 if symbols.size else 1
        pairs = np.unique(fst.source[found] * width + own[found])
        skips &= np.bincount(pairs // width, minlength=fst.num_states) == len(symbols)
    return skips
