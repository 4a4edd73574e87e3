"""Context-dependent rewriting: replacement rules as transducers (pynini's cdrewrite)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fstgrad.core.checks import IntArray
from fstgrad.core.errors import FstError
from fstgrad.openfst.arrays import FstArrays
from fstgrad.openfst.conversion import Fst, from_arrays, to_arrays
from fstgrad.openfst.library import pynini, pywrapfst

Part = tuple[IntArray, bool]  # labels, and whether the part is starred (any number of them)
Pair = tuple[Sequence[int], Sequence[int]]


def alternatives(pairs: Sequence[Pair]) -> Fst:
    """Return the transducer that reads the first labels of a pair and writes the second.

    A pair that reads nothing writes its labels once or more.
    """
    written = [_string(labels) if read else _string(labels).plus for read, labels in pairs]
    return pynini.union(
        *(pynini.cross(_string(read), own) for (read, _), own in zip(pairs, written, strict=True))
    )


def parts(sequence: Sequence[Part]) -> Fst:
    """Return the acceptor of the parts in sequence: one label each, any number if starred."""
    whole = pynini.accep("")
    for labels, is_starred in sequence:
        one = _loop_or_step(labels, is_loop=is_starred)
        whole = whole + one
    return whole


def anything(labels: IntArray) -> Fst:
    """Return the acceptor of all strings over the labels."""
    return _loop_or_step(labels, is_loop=True)


def preimage(context: Fst, expansion: Fst) -> Fst:
    """Return the acceptor of the strings that `expansion` can rewrite to a string of `context`."""
    return pynini.project(pynini.compose(expansion, context), "input").optimize()


def at_edge(context: Fst, side: Literal["before", "after"]) -> Fst:
    """Return the context anchored at the string's beginning ("before") or end ("after")."""
    whole: Fst
    whole = pynini.accep("[BOS]") + context if side == "before" else context + pynini.accep("[EOS]")
    return whole


def rewrite(
    replacement: Fst,
    before: Fst,
    after: Fst,
    strings: Fst,
    *,
    direction: Literal["ltr", "rtl", "sim"],
    is_obligatory: bool,
) -> Fst:
    """Return the transducer that replaces strings between two contexts.

    Parameters
    ----------
    replacement : Fst
        The transducer from strings to their replacements.
    before, after : Fst
        The contexts, unweighted acceptors.  A context from `at_edge` matches only at an edge of the
        string.
    strings : Fst
        The acceptor of all strings.
    direction : {"ltr", "rtl", "sim"}
        The order of application to overlapping matches: left to right, right to left, simultaneous.
    is_obligatory : bool
        Whether to replace every match; otherwise any subset of them.

    Raises
    ------
    FstError
        OpenFst cannot compile the rule.
    """
    mode: Literal["obl", "opt"] = "obl" if is_obligatory else "opt"
    try:
        return pynini.cdrewrite(replacement, before, after, strings, direction=direction, mode=mode)
    except (pywrapfst.FstOpError, pywrapfst.FstArgError) as error:
        raise FstError(f"the rule cannot be compiled ({error}); simplify its contexts") from error


def chained(machines: Sequence[Fst], most_arcs: int) -> FstArrays:
    """Return the optimized composition of transducers, with unchanged labels.

    Raises
    ------
    FstError
        An intermediate composition has more than `most_arcs` arcs.
    """
    whole = machines[0]
    for machine in machines[1:]:
        whole = pynini.compose(whole.arcsort("olabel"), machine)
        if (arcs := to_arrays(whole).num_arcs) > most_arcs:
            raise FstError(
                f"the transducer has {arcs:,} arcs, more than {most_arcs:,}; use smaller classes "
                "or contexts"
            )
        whole = whole.optimize()
    return to_arrays(whole.optimize())


def _string(labels: Sequence[int]) -> Fst:
    size = len(labels)
    final = np.full(size + 1, np.inf)
    final[size] = 0.0
    at, label = np.arange(size), np.array(labels, dtype=np.int64)
    return from_arrays(FstArrays("standard", 0, final, at, label, label, at + 1, np.zeros(size)))


def _loop_or_step(labels: IntArray, *, is_loop: bool) -> Fst:
    size = len(labels)
    final = np.array([0.0]) if is_loop else np.array([np.inf, 0.0])
    at, to = np.zeros(size, dtype=np.int64), np.full(size, 0 if is_loop else 1)
    return from_arrays(FstArrays("standard", 0, final, at, labels, labels, to, np.zeros(size)))
