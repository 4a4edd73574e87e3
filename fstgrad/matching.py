"""U o Y_i for a string y_i, on arrays: what OpenFst's composition gives, without its overhead."""

import numpy as np

from fstgrad.checks import BoolArray, IntArray
from fstgrad.openfst import FstArrays


def matched(fst: FstArrays, ids: IntArray, labels: int) -> FstArrays:
    """Return Pi_1(U o Y) for the string with these ids (labels 1 .. `labels`), trimmed.

    States are pairs of a state of U and a position 0..l; an arc that writes nothing keeps the
    position.  O(l x arcs of U that write one symbol or nothing).
    """
    order = np.argsort(fst.olabel, kind="stable")
    first = np.searchsorted(fst.olabel[order], np.arange(labels + 2))
    width = len(ids) + 1
    silent = order[first[0] : first[1]]
    writing = [order[first[b] : first[b + 1]] for b in ids + 1]
    arc = np.concatenate([np.tile(silent, width), *writing])
    counts = np.array([len(arcs) for arcs in writing], dtype=np.int64)
    position = np.arange(width)
    before = np.concatenate([position.repeat(len(silent)), position[:-1].repeat(counts)])
    after = before.copy()
    after[len(silent) * width :] += 1
    source = fst.source[arc] * width + before
    target = fst.target[arc] * width + after
    ends = np.full((fst.num_states, width), np.inf)
    ends[:, -1] = fst.final
    final = ends.ravel()
    start = fst.start * width
    kept = _trim(source, target, start, np.isfinite(final))
    if fst.start < 0 or not kept[start]:
        none = np.empty(0, dtype=np.int64)
        return FstArrays(fst.arc_type, -1, np.empty(0), none, none, none, none, np.empty(0))
    number = np.cumsum(kept) - 1
    inside = kept[source] & kept[target]
    label = fst.ilabel[arc][inside]
    return FstArrays(
        fst.arc_type,
        int(number[start]),
        final[kept],
        number[source[inside]],
        label,
        label,
        number[target[inside]],
        fst.weight[arc][inside],
    )


def _trim(source: IntArray, target: IntArray, start: int, is_final: BoolArray) -> BoolArray:
    """Return which states lie on a path from the start to a final state."""
    source, target = np.divmod(np.unique(source * len(is_final) + target), len(is_final))
    from_start = np.zeros(len(is_final), dtype=bool)
    from_start[start] = True
    return _closure(source, target, from_start) & _closure(target, source, is_final.copy())


def _closure(source: IntArray, target: IntArray, found: BoolArray) -> BoolArray:
    """Return what can be reached from the states found; `found` is changed."""
    count = -1
    while count < (now := int(found.sum())):
        count = now
        found[target[found[source]]] = True
    return found
