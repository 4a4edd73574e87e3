"""Composition on arrays, equal to OpenFst's but without its overhead."""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.automata import kernels
from fstgrad.checks import BoolArray, IntArray
from fstgrad.openfst import FstArrays

_FEW = 2_000  # pairs of states and of arcs that are composed without the kernel


def string_arrays(ids: IntArray) -> FstArrays:
    """Return the acceptor of the string with these ids."""
    state = np.arange(len(ids))
    final = np.full(len(ids) + 1, np.inf)
    final[-1] = 0.0
    label = ids + 1
    return FstArrays("log64", 0, final, state, label, label, state + 1, np.zeros(len(ids)))


def compose_arrays(left: FstArrays, right: FstArrays) -> FstArrays:
    """Return left o right, trimmed; without a path it has no states and starts in -1."""
    return composition(left, right)[0]


def composition(left: FstArrays, right: FstArrays) -> tuple[FstArrays, IntArray]:
    """Return left o right, trimmed, and the pair of states (S, 2) that each of its states is.

    States are found from the start on; O(pairs + arcs log arcs of a state).
    """
    no_pairs = np.empty((0, 2), dtype=np.int64)
    if left.start < 0 or right.start < 0:
        return _nothing(), no_pairs
    left_order, left_side = _sort(left, left.olabel)
    right_order, right_side = _sort(right, right.ilabel)
    if left.num_states * right.num_states + len(left.source) * len(right.source) <= _FEW:
        pairs, arcs = compose_few(*left_side, *right_side)
    else:
        pairs, arcs = kernels.composition.compose(*left_side, *right_side)
    if len(pairs) == 0:
        return _nothing(), no_pairs
    own, other = left_order[arcs[:, 2]], right_order[arcs[:, 3]]  # -1 takes the last, which stays
    fst = FstArrays(
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


def compose_few(
    left_first: IntArray,
    left_label: IntArray,
    left_nextstate: IntArray,
    left_start: int,
    left_final: BoolArray,
    right_first: IntArray,
    right_label: IntArray,
    right_nextstate: IntArray,
    right_start: int,
    right_final: BoolArray,
) -> tuple[IntArray, IntArray]:
    """Return what `kernels.composition.compose` does, of few arcs, without its compilation."""
    meeting: dict[tuple[int, int], list[int]] = {}
    for state, (first, end) in enumerate(itertools.pairwise(left_first.tolist())):
        for own in range(first, end):
            meeting.setdefault((state, int(left_label[own])), []).append(own)
    number = {(left_start, right_start, False): 0}
    pairs, arcs = [*number], []
    for state, (p, q, has_moved) in enumerate(pairs):  # which grow on the way
        steps = [(own, -1) for own in meeting.get((p, 0), []) if not has_moved]
        for other in range(right_first[q], right_first[q + 1]):
            label = int(right_label[other])
            steps += [(own, other) for own in (meeting.get((p, label), []) if label else [-1])]
        for own, other in steps:
            left = int(left_nextstate[own]) if own >= 0 else p
            pair = left, int(right_nextstate[other]) if other >= 0 else q, own < 0
            if pair not in number:
                number[pair] = len(pairs)
                pairs.append(pair)
            arcs.append((state, number[pair], own, other))
    useful = {s for s, (p, q, _) in enumerate(pairs) if left_final[p] and right_final[q]}
    found = -1
    while found < len(useful):
        found = len(useful)
        useful |= {source for source, nextstate, *_ in arcs if nextstate in useful}
    if 0 not in useful:
        return np.empty((0, 2), dtype=np.int64), np.empty((0, 4), dtype=np.int64)
    again = {s: i for i, s in enumerate(sorted(useful))}
    kept = [(again[s], again[t], *by) for s, t, *by in arcs if s in again and t in again]
    table = np.array([pairs[s][:2] for s in again], dtype=np.int64)
    return table, np.array(kept, dtype=np.int64).reshape(-1, 4)


def _sort(fst: FstArrays, label: IntArray) -> tuple[IntArray, tuple[Any, ...]]:
    """Return the order of the arcs by source and label, -1 behind it, and what the kernel reads."""
    order = np.lexsort((label, fst.source))
    first = np.searchsorted(fst.source, np.arange(fst.num_states + 1))
    side = first, label[order], fst.nextstate[order], fst.start, np.isfinite(fst.final)
    return np.append(order, -1), side


def _taken(values: npt.NDArray[Any], where: IntArray) -> npt.NDArray[Any]:
    """Return values[where], zero where -1."""
    return np.append(values, values.dtype.type(0))[where]


def _nothing() -> FstArrays:
    none, no_weights = np.empty(0, dtype=np.int64), np.empty(0)
    return FstArrays("log64", -1, no_weights, none, none, none, none, no_weights)


def depth_range(fst: FstArrays) -> IntArray:
    """Return (S, 2): the symbols on the shortest and on the longest way to each state.

    The FST is acyclic; O(longest way x arcs).
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


def skips_all(fst: FstArrays) -> BoolArray:
    """Return (S,): the states that skip every symbol of either side for nothing, as loops."""
    loops = (fst.source == fst.nextstate) & (fst.weight == 0)
    skips = np.ones(fst.num_states, dtype=np.bool_)
    for own, other in ((fst.ilabel, fst.olabel), (fst.olabel, fst.ilabel)):
        found = loops & (own > 0) & (other == 0)
        pairs = np.unique(np.column_stack([fst.source[found], own[found]]), axis=0)
        number = np.bincount(pairs[:, 0], minlength=fst.num_states)
        skips &= number == len(np.unique(own[own > 0]))
    return skips
