"""Reduce a transducer before composition, and then M to a small target machine.

Symbols that the transducer treats alike are merged before composition.  In M, symbols with equal
arcs form a class, epsilon arcs are sorted topologically or removed, and states with equal futures
are merged.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import FstError
from fstgrad.losses.automata import kernels
from fstgrad.losses.automata.equivalence import merge_equivalent_states
from fstgrad.losses.automata.kernels.arguments import group_arcs
from fstgrad.losses.automata.machine import (
    GRID_BITS,
    Arcs,
    TargetMachine,
    concatenate,
    cost_unit,
    sum_parallel,
    symbol_classes,
    topological_order,
)
from fstgrad.losses.automata.semiring import PROBABILITY, TROPICAL, Semiring
from fstgrad.openfst import FstArrays
from fstgrad.openfst.arrays import trusted


def merge_alike(fst: FstArrays, written: IntArray, num_symbols: int) -> tuple[FstArrays, IntArray]:
    """Return a transducer that reads classes of symbols, and the class of each symbol (n,).

    Only arcs that write epsilon or a label of `written` are kept.  Symbols that are then read by
    equal arcs form a class; label c + 1 reads class c.  For the edit distance, all symbols outside
    the target form one class, so M costs no more for 10,000 words than for 100.
    """
    is_written = np.zeros(int(fst.olabel.max(initial=0)) + 1, dtype=np.bool_)
    is_written[written[written < len(is_written)]] = is_written[0] = True
    kept = is_written[fst.olabel]
    source, ilabel, olabel, nextstate, weight = (
        np.asarray(getattr(fst, name))[kept]
        for name in ("source", "ilabel", "olabel", "nextstate", "weight")
    )
    width = int(olabel.max(initial=0)) + 1
    reads = ilabel > 0
    arcs = Arcs(source[reads], nextstate[reads] * width + olabel[reads], weight[reads])
    class_of, classes = symbol_classes(arcs, ilabel[reads] - 1, num_symbols)
    merged = concatenate(classes)
    number = np.repeat(np.arange(len(classes)), [len(own.source) for own in classes])
    begin = np.concatenate([source[~reads], merged.source])
    order = np.argsort(begin, kind="stable")
    reduced = trusted(
        fst.arc_type,
        fst.start,
        fst.final,
        begin[order],
        np.concatenate([ilabel[~reads], number + 1])[order],
        np.concatenate([olabel[~reads], merged.nextstate % width])[order],
        np.concatenate([nextstate[~reads], merged.nextstate // width])[order],
        np.concatenate([weight[~reads], merged.weight])[order],
    )
    return reduced, class_of


def target_machine(
    fst: FstArrays,
    num_symbols: int,
    semiring: Semiring,
    *,
    place: IntArray | None = None,
    merges: bool = True,
) -> TargetMachine:
    """Return M as a reduced target machine.

    Parameters
    ----------
    fst : FstArrays
        The acceptor M; its weights are costs in nats (tropical) or -log of counts (probability).
    num_symbols : int
        Size n of the alphabet; label i + 1 is symbol i.
    semiring : Semiring
        TROPICAL or PROBABILITY.
    place : (S, 2), optional
        The least and the greatest number of target symbols read in each state.
    merges : bool
        Whether to merge states with equal futures; always in the probability semiring.

    Raises
    ------
    FstError
        M has an epsilon cycle of negative cost, or one whose weights do not converge.
    InvalidInputError
        The costs are too far apart for one unit (see `cost_unit`).
    """
    if fst.start < 0:
        return _empty_machine(num_symbols, semiring)
    weights, final, unit = semiring_weights(fst, semiring)
    arcs = Arcs(fst.source, fst.nextstate, weights)
    if semiring is PROBABILITY:
        return _counting_machine(fst, arcs, final, num_symbols)
    is_epsilon = fst.ilabel == 0
    class_of, classes = symbol_classes(
        arcs.take(~is_epsilon), fst.ilabel[~is_epsilon] - 1, num_symbols
    )
    initial = semiring.full((len(final),))
    initial[fst.start] = semiring.one
    if place is not None:
        place = place[:, None]
    machine = TargetMachine(
        semiring, class_of, classes, arcs.take(is_epsilon), initial, final, unit, place
    )
    ordered = order_epsilons(machine)
    return merge_equivalent_states(ordered) if merges else ordered


def _counting_machine(
    fst: FstArrays, arcs: Arcs, final: npt.NDArray[Any], num_symbols: int
) -> TargetMachine:
    """Return the machine of counts, with epsilon arcs removed and equivalent states merged."""
    size = len(final)
    silent = arcs.take((fst.ilabel == 0) & (arcs.weight > 0))
    paths = _closure_of_counts(silent, size)
    read = np.flatnonzero((fst.ilabel > 0) & (arcs.weight > 0))
    reading = group_arcs(
        (fst.ilabel[read] - 1) * size + arcs.source[read],
        arcs.nextstate[read],
        arcs.weight[read],
        num_symbols * size,
    )
    triples, weight, ends = kernels.reduction.quotient(paths, fst.start, reading, final)
    label, source, nextstate = triples.T
    class_of, classes = symbol_classes(Arcs(source, nextstate, weight), label, num_symbols)
    initial = np.zeros(len(ends))
    initial[0] = 1.0
    none = np.zeros(0, dtype=np.int64)
    return TargetMachine(
        PROBABILITY, class_of, classes, Arcs(none, none, np.zeros(0)), initial, ends, 1.0
    )


def _empty_machine(num_symbols: int, semiring: Semiring) -> TargetMachine:
    """Return the machine that accepts no hypothesis: one state, no arcs."""
    nothing = semiring.full((1,))
    none = Arcs(*(np.zeros(0, dtype=np.int64) for _ in range(3)))
    classes = np.zeros(num_symbols, dtype=np.int64)
    return TargetMachine(semiring, classes, (none,), none, nothing, nothing, 1.0)


def semiring_weights(
    fst: FstArrays, semiring: Semiring
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], float]:
    """Return arc and final weights in the semiring's dtype, and the unit of costs in nats."""
    from_log = np.concatenate([fst.weight, fst.final])
    if semiring is PROBABILITY:
        values = np.exp(-from_log)
        rounded = np.round(values * 2**GRID_BITS) / 2**GRID_BITS
        on_grid = np.abs(values - rounded) <= 1e-12 * np.maximum(1.0, values)
        values = np.where(on_grid & (rounded > 0), rounded, values)
        return values[: len(fst.weight)], values[len(fst.weight) :], 1.0
    finite = np.isfinite(from_log)
    unit = cost_unit(from_log[finite])
    units = np.full(len(from_log), TROPICAL.zero)
    units[finite] = np.rint(from_log[finite] / unit).astype(np.int64)
    return units[: len(fst.weight)], units[len(fst.weight) :], unit


def order_epsilons(machine: TargetMachine) -> TargetMachine:
    """Return an equal tropical machine with epsilon arcs in topological order and closed rows.

    Epsilon arcs outside cycles are kept: they are few, and their closure is large.  Those in cycles
    are replaced by their closure.  The rows are `initial` and `final`.
    """
    order = topological_order(machine.epsilon, machine.num_states)
    if order is None:
        paths, between = _closed_components(machine.semiring, machine.epsilon, machine.num_states)
        return order_epsilons(_with_paths_before(replace(machine, epsilon=between), paths))
    machine = replace(machine, epsilon=machine.epsilon.take(order))
    return replace(
        machine,
        initial=machine.close(machine.initial[:, None].copy())[:, 0],
        final=machine.close_backward(machine.final[:, None].copy())[:, 0],
    )


def _cyclic_closure(semiring: Semiring, arcs: Arcs, size: int) -> npt.NDArray[Any]:
    """Return the weights (K, K) of all paths, the empty ones included (Lehmann 1977).

    For k = 0 .. K - 1: w_ij <- w_ij plus w_ik star(w_kk) w_kj, in the semiring, where star(w) is
    1 / (1 - w) for probabilities and 0 for costs.  Then the empty paths are added.

    Raises
    ------
    FstError
        A cycle has a negative cost, or a weight >= 1 as a probability.
    """
    closure = semiring.full((size, size))
    semiring.plus.at(closure, (arcs.source, arcs.nextstate), arcs.weight)
    for k in range(size):
        loop = closure[k, k]
        if semiring is TROPICAL and loop < 0:
            raise FstError(
                "the transducer has a cycle of insertions or deletions with negative cost; "
                "make their total cost >= 0"
            )
        if semiring is PROBABILITY and loop >= 1:
            raise FstError(
                f"the transducer has a cycle of epsilons of weight {loop:g} >= 1, so that the sum "
                "over its paths diverges; lower the weights"
            )
        star = semiring.one if semiring is TROPICAL else 1.0 / (1.0 - loop)
        through = semiring.times(closure[:, k : k + 1], star)
        closure = semiring.plus(closure, semiring.times(through, closure[k : k + 1]))
        closure[semiring.is_zero(closure)] = semiring.zero
    diagonal = np.arange(size)
    closure[diagonal, diagonal] = semiring.plus(closure[diagonal, diagonal], semiring.one)
    return closure


def _closed_components(semiring: Semiring, epsilon: Arcs, size: int) -> tuple[Arcs, Arcs]:
    """Return the epsilon paths within each component, and the epsilon arcs between components.

    Empty paths are included.  The states of a component lead to each other.  A component of s
    states costs O(s^3); if the target is a string, s is at most the transducer's number of states.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    ends = epsilon.source, epsilon.nextstate
    graph = csr_array((np.ones(len(epsilon.source), dtype=np.int8), ends), shape=(size, size))
    _, component = connected_components(graph, connection="strong")
    inside = component[epsilon.source] == component[epsilon.nextstate]
    within, place = epsilon.take(inside), np.zeros(size, dtype=np.int64)
    single = np.flatnonzero(~np.isin(component, component[within.source]))
    paths = [Arcs(single, single, np.full(len(single), semiring.one, dtype=semiring.dtype))]
    for number in np.unique(component[within.source]):
        members = np.flatnonzero(component == number)
        place[members] = np.arange(len(members))
        own = within.take(component[within.source] == number)
        local = Arcs(place[own.source], place[own.nextstate], own.weight)
        closure = _cyclic_closure(semiring, local, len(members))
        sources, nextstates = np.nonzero(~semiring.is_zero(closure))
        paths.append(Arcs(members[sources], members[nextstates], closure[sources, nextstates]))
    return concatenate(tuple(paths)), epsilon.take(~inside)


def _closure_of_counts(silent: Arcs, size: int) -> FloatArray:
    """Return (K, K): the weights of all epsilon paths, including the empty ones."""
    inner: Arcs | None = None
    order = topological_order(silent, size)
    if order is None:
        inner, between = _closed_components(PROBABILITY, silent, size)
        silent = _paths_then_arcs(inner, between, PROBABILITY, size)
        order = topological_order(silent, size)
    arcs = silent.take(np.asarray(order))
    paths = kernels.reduction.closure(size, arcs.source, arcs.nextstate, arcs.weight)
    if inner is not None:
        from scipy.sparse import csr_array

        last = csr_array((inner.weight, (inner.source, inner.nextstate)), shape=(size, size))
        paths = np.ascontiguousarray(paths @ last)
    return paths


def without_epsilons(machine: TargetMachine, closure: npt.NDArray[Any]) -> TargetMachine:
    """Return the machine without epsilon arcs: `closure` (K, K) precedes each arc and the end.

    The arcs of a state then determine its whole future, so `merge_equivalent_states` can compare
    them.  States that only epsilon arcs enter are no longer reached and are dropped.
    """
    sources, nextstates = np.nonzero(~machine.semiring.is_zero(closure))
    paths = Arcs(sources, nextstates, closure[sources, nextstates])
    none = machine.epsilon.take(np.zeros(0, dtype=np.int64))
    return _with_paths_before(replace(machine, epsilon=none), paths)


def _with_paths_before(machine: TargetMachine, paths: Arcs) -> TargetMachine:
    """Return the machine with `paths` put before each arc and before the end."""
    semiring, size = machine.semiring, machine.num_states
    final = semiring.full((size,))
    ends = semiring.times(paths.weight, machine.final[paths.nextstate])
    semiring.plus.at(final, paths.source, ends)
    return _reachable(
        replace(
            machine,
            arcs=tuple(_paths_then_arcs(paths, arcs, semiring, size) for arcs in machine.arcs),
            epsilon=_paths_then_arcs(paths, machine.epsilon, semiring, size),
            final=final,
        )
    )


def _paths_then_arcs(paths: Arcs, arcs: Arcs, semiring: Semiring, size: int) -> Arcs:
    """Return each path followed by each arc, summed over those between the same two states."""
    paths = paths.take(np.argsort(paths.nextstate, kind="stable"))
    first = np.searchsorted(paths.nextstate, np.arange(size + 1))
    counts = np.diff(first)[arcs.source]
    which = np.repeat(np.arange(len(counts)), counts)
    path = np.arange(len(which)) + (first[arcs.source] - np.cumsum(counts) + counts)[which]
    weight = semiring.times(paths.weight[path], arcs.weight[which])
    return sum_parallel(Arcs(paths.source[path], arcs.nextstate[which], weight), semiring, size)


def _reachable(machine: TargetMachine) -> TargetMachine:
    """Return the machine without the states that the start does not reach."""
    found = ~machine.semiring.is_zero(machine.initial)
    every = concatenate((*machine.arcs, machine.epsilon))
    count = 0
    while count < found.sum():
        count = int(found.sum())
        found[every.nextstate[found[every.source]]] = True
    number = np.cumsum(found) - 1

    def renumber(arcs: Arcs) -> Arcs:
        kept = arcs.take(found[arcs.source])
        return Arcs(number[kept.source], number[kept.nextstate], kept.weight)

    return replace(
        machine,
        arcs=tuple(renumber(arcs) for arcs in machine.arcs),
        epsilon=renumber(machine.epsilon),
        initial=machine.initial[found],
        final=machine.final[found],
        place=None if machine.place is None else machine.place[found],
    )
