"""Confusion networks: the paths of a lattice aligned to one of them, the pivot.

The pivot has m words.  Slots are G gaps, then the first word of the pivot, G gaps, the second word,
and so on, with G gaps at the end: S = m + G (m + 1).  A path puts each of its words in a slot, in
order; to read a word costs 0 in the slot of the same word of the pivot and 1 in others, to leave
out a word of the pivot costs 1.  So the least cost of a path is its edit distance to the pivot.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.strings.lattices.graph import NO_SYMBOL, Flow, Graph

GAPS = 8  # slots between two words of the pivot, or more if a path would not fit
DIGITS = 9  # expected costs are compared after rounding, so that equal ones have one order


class ConfusionNetwork(NamedTuple):
    """The words of the paths of a lattice, aligned to a pivot; of each path one word per slot.

    slots : for each slot the alternatives (symbol, score), the likeliest first; None is no word.  A
        score is the log-probability in nats; those of a slot sum to 1.
    pivot : (m,) int64, the slot of each word of the pivot.
    """

    slots: list[list[tuple[str | None, float]]]
    pivot: IntArray


def slot_counts(
    graph: Graph, label: IntArray, flow: Flow, pivot: IntArray
) -> tuple[list[dict[int, float]], IntArray]:
    """Return for each slot the probability of each symbol, and the slots (m,) of the pivot.

    The alignment of a path is chosen from its end: at a state s and slot q, it depends on the
    expected cost of the paths that lead there,

        alpha(s, q) = sum over arcs e into s of p(e | s) min over k <= q of
                      alpha(source of e, k - 1) + cost of e in k + words of the pivot in k + 1 .. q,

    which is the least cost of each path where states have one path.  A slot has at most one word of
    a path, and each word of a path is in one slot.  O(A S).

    Parameters
    ----------
    label : (A,) ids, or -1.
    flow : Flow, of the scores.
    pivot : (m,) ids.

    Source: Xu, Povey, Mangu, Zhu (2011), "Minimum Bayes risk decoding and system combination based
    on a recursion for edit distance".
    """
    longest = int(graph.depths(label != NO_SYMBOL)[-1, 1])
    m = len(pivot)
    gaps = max(min(longest, GAPS), -(-(longest - m) // (m + 1)), 1)
    words = np.full(m + gaps * (m + 1), NO_SYMBOL)
    of_pivot = gaps + (gaps + 1) * np.arange(m)
    words[of_pivot] = pivot
    passed = np.concatenate([[0], np.cumsum(words != NO_SYMBOL)])  # words of the pivot before k
    share = flow.posterior / np.where(flow.visit > 0, flow.visit, 1.0)[graph.nextstate]
    last = _last_slots(graph, label, words, passed, share)
    return _flows(graph, label, last, share), of_pivot


def _last_slots(
    graph: Graph, label: IntArray, words: IntArray, passed: IntArray, share: FloatArray
) -> npt.NDArray[np.int32]:
    """Return (A, S + 1): the slot (from 1) of an arc's word if the path is at slot q; 0 for none.

    Among equal costs, the first slot.
    """
    slots = len(words)
    alpha = np.zeros((graph.num_states, slots + 1))
    alpha[0] = passed
    last = np.zeros((graph.num_arcs, slots + 1), dtype=np.int32)
    numbers = np.arange(1, slots + 1, dtype=np.int32)
    for arc, (source, nextstate) in enumerate(
        zip(graph.source.tolist(), graph.nextstate.tolist(), strict=True)
    ):
        if label[arc] == NO_SYMBOL:
            cost = alpha[source]
        else:
            here = alpha[source, :-1] + (words != label[arc]) - passed[1:]
            here = here.round(DIGITS)
            least = np.minimum.accumulate(here)
            is_new = np.concatenate([[True], here[1:] < least[:-1]])
            last[arc, 1:] = np.maximum.accumulate(np.where(is_new, numbers, 0))
            cost = np.concatenate([[np.inf], least + passed[1:]])
        if share[arc] > 0:
            alpha[nextstate] += share[arc] * cost
    return last


def _flows(
    graph: Graph, label: IntArray, last: npt.NDArray[np.int32], share: FloatArray
) -> list[dict[int, float]]:
    """Return for each slot the probability of each symbol, from the end of the lattice."""
    slots = last.shape[1] - 1
    at = np.zeros((graph.num_states, slots + 1))
    at[-1, slots] = 1.0
    tables: list[dict[int, float]] = [{} for _ in range(slots)]
    for arc in np.flatnonzero(share > 0)[::-1].tolist():
        source, symbol = int(graph.source[arc]), int(label[arc])
        flow = share[arc] * at[graph.nextstate[arc]]
        if symbol == NO_SYMBOL:
            at[source] += flow
            continue
        read = np.bincount(last[arc], flow, minlength=slots + 1)[1:]
        at[source, :-1] += read
        for k in np.flatnonzero(read).tolist():
            tables[k][symbol] = tables[k].get(symbol, 0.0) + float(read[k])
    return tables
