"""The OpenFst operations that the project uses; each returns a new FST."""

import math
from collections.abc import Callable
from typing import Literal, ParamSpec, TypeVar

import numpy as np

from fstgrad.core.checks import FloatArray, cost, flag, one_of, positive_integer, positive_number
from fstgrad.core.errors import FstError
from fstgrad.openfst.arrays import FstArrays
from fstgrad.openfst.conversion import Fst, check_fst, from_arrays, read, to_arrays
from fstgrad.openfst.library import pynini, pywrapfst
from fstgrad.openfst.subprocess import run_in_subprocess
from fstgrad.openfst.symbols import as_symbols, check_symbols

P = ParamSpec("P")
R = TypeVar("R")

# An operation that visits at most this many bytes of stored FSTs, a fraction of a second, runs in
# this process.  A longer one runs in a separate process, which an interruption can kill.
_LARGE = 2**23
_MOST_STATES, _ROUNDING = 1000, 1e-12  # of a component whose cycles are checked; of its eigenvalue


def is_acceptor(fst: Fst) -> bool:
    """Return whether every arc has the same label on both sides."""
    check_fst(fst)
    return bool(fst.properties(pywrapfst.ACCEPTOR, True) == pywrapfst.ACCEPTOR)


def is_acyclic(fst: Fst) -> bool:
    """Return whether no path, epsilon arcs included, returns to a state."""
    check_fst(fst)
    return bool(fst.properties(pywrapfst.ACYCLIC, True) == pywrapfst.ACYCLIC)


def is_empty(fst: Fst) -> bool:
    """Return whether the FST has no start state, like an empty composition."""
    check_fst(fst)
    return bool(fst.start() == -1)


def compose(left: Fst, right: Fst) -> Fst:
    """Return the composition of left and right without useless states.

    An empty result has no start state (`is_empty`).

    Raises
    ------
    FstError
        The arc types differ, or the output symbols of `left` differ from the input symbols of
        `right`; or the result is empty, and only one of these two sides has a symbol table, as if a
        str of pynini, whose labels are bytes, is composed with a grammar.
    MemoryLimitError
        The result needs more than half of the memory.
    """
    _check_same_type("compose", left, right)
    check_symbols(as_symbols(left.output_symbols()), as_symbols(right.input_symbols()))
    sorted_left = arc_sort(left, "olabel")
    if left.num_states() * len(right.write_to_string()) > _LARGE:
        result = _call(run_in_subprocess, "compose", sorted_left, right)
    else:
        result = read(_call(pynini.compose, sorted_left, right))
    is_mixed = (left.output_symbols() is None) != (right.input_symbols() is None)
    if is_mixed and is_empty(result) and not is_empty(left) and not is_empty(right):
        side = "left" if left.output_symbols() is None else "right"
        raise FstError(
            f"the composition is empty, and {side} has no symbol table but the other side has one; "
            "a str of pynini has the labels of its bytes, so make it with "
            "fstgrad.openfst.acceptor_for(word, fst), or pynini.accep(' '.join(word), "
            "token_type=fst.input_symbols())"
        )
    return result


def project(fst: Fst, side: Literal["input", "output"]) -> Fst:
    """Return the acceptor of the labels on one side."""
    result = read(fst)
    _call(result.project, one_of("side", side, ("input", "output")))
    return result


def union(left: Fst, right: Fst) -> Fst:
    """Return the FST with the paths of both; FstError if the arc types differ."""
    _check_same_type("unite", left, right)
    result = read(left)
    _call(result.union, right)
    return result


def connect(fst: Fst) -> Fst:
    """Return the FST without the states that no path from the start to a final state visits."""
    result = read(fst)
    _call(result.connect)
    return result


def topsort(fst: Fst) -> Fst:
    """Return the FST with its states in topological order.

    Raises
    ------
    FstError
        The FST has a cycle.
    """
    result = read(fst)
    if not is_acyclic(result):
        raise FstError("fst has a cycle; only an acyclic fst has a topological order")
    _call(result.topsort)
    return result


def arc_sort(fst: Fst, side: Literal["ilabel", "olabel"]) -> Fst:
    """Return the FST with the arcs of each state sorted by their labels on one side."""
    result = read(fst)
    _call(result.arcsort, one_of("side", side, ("ilabel", "olabel")))
    return result


def remove_epsilons(fst: Fst, *, delta: float) -> Fst:
    """Return an equivalent FST without arcs that are epsilon on both sides.

    Parameters
    ----------
    delta : float > 0
        The sum over epsilon cycles stops at changes below this.

    Raises
    ------
    FstError
        The sum over an epsilon cycle diverges.
    MemoryLimitError
        The result needs more than half of the memory.
    """
    delta = positive_number("delta", delta)
    if not is_acyclic(fst):
        _check_epsilon_cycles(to_arrays(fst))
    if len(fst.write_to_string()) > _LARGE:
        return _call(run_in_subprocess, "rmepsilon", fst, delta=delta)
    result = read(fst)
    _call(result.rmepsilon, delta=delta)
    return result


def _check_epsilon_cycles(arrays: FstArrays) -> None:
    """Raise FstError if the sum over the paths of epsilon arcs around a cycle diverges.

    In "standard", if a cycle has a negative cost; else, if a strongly connected component has a
    matrix of weights exp(-cost) with an eigenvalue of 1 or more: O(S^3) for one of S states, of
    which components of more than _MOST_STATES are not checked.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    is_epsilon = (arrays.ilabel == 0) & (arrays.olabel == 0) & (arrays.weight < np.inf)
    source, nextstate = arrays.source[is_epsilon], arrays.nextstate[is_epsilon]
    weight, size = arrays.weight[is_epsilon], arrays.num_states
    graph = coo_array((np.ones(len(weight)), (source, nextstate)), shape=(size, size))
    component = connected_components(graph.tocsr(), connection="strong")[1]
    for k in np.unique(component[source[component[source] == component[nextstate]]]):
        inside = (component[source] == k) & (component[nextstate] == k)
        states, ends = np.unique(
            np.concatenate([source[inside], nextstate[inside]]), return_inverse=True
        )
        if len(states) > _MOST_STATES:
            continue
        first, last = np.split(ends, 2)
        table = np.full((len(states), len(states)), np.inf)
        if arrays.arc_type == "standard":
            np.minimum.at(table, (first, last), weight[inside])
            diverges = _has_negative_cycle(table)
        else:
            table[...] = 0.0
            np.add.at(table, (first, last), np.exp(-weight[inside]))
            diverges = bool(np.abs(np.linalg.eigvals(table)).max() >= 1.0 - _ROUNDING)
        if diverges:
            raise FstError(
                f"the sum over the epsilon arcs around state {states[0]} diverges; raise their "
                "costs, or remove an arc of the cycle"
            )


def _has_negative_cycle(table: FloatArray) -> bool:
    """Return whether costs (S, S) have a cycle below 0: least costs of walks then go on falling."""
    least = np.zeros(len(table))
    for _ in range(len(table) + 1):
        shorter = np.minimum(least, (least[:, None] + table).min(axis=0))
        if (shorter >= least - _ROUNDING * np.maximum(1.0, np.abs(least))).all():
            return False
        least = shorter
    return True


def minimize(fst: Fst, *, delta: float) -> Fst:
    """Return the minimal equivalent of a deterministic FST.

    Parameters
    ----------
    delta : float > 0
        Weights closer than this count as equal.
    """
    result = read(fst)
    _call(result.minimize, delta=positive_number("delta", delta))
    return result


def determinize(
    fst: Fst, *, delta: float, max_states: int | None = None, most_states: float = math.inf
) -> Fst:
    """Return an equivalent FST in which no state has two arcs with the same input label.

    The worst case is exponential in the number of states.

    Parameters
    ----------
    delta : float > 0
        Residual weights are rounded to multiples of this.
    max_states : int, optional
        OpenFst stops when the result has this many states; the result is then incomplete.  Needs
        arc type "standard".
    most_states : float
        An upper bound on the states of the result, if known.  If it is small, the operation runs in
        this process, which saves the start of another one.

    Raises
    ------
    FstError
        `max_states` is given with another arc type, or OpenFst fails.
    MemoryLimitError
        The result needs more than half of the memory.
    """
    check_fst(fst)
    delta = positive_number("delta", delta)
    limit = pywrapfst.NO_STATE_ID
    if max_states is not None:
        limit = positive_integer("max_states", max_states)
    if not isinstance(most_states, float) or most_states != math.inf:
        most_states = positive_number("most_states", most_states, allow_zero=True)
    if max_states is not None and fst.arc_type() != "standard":
        raise FstError(
            f"OpenFst has no state limit for arc type {fst.arc_type()!r}; leave max_states out"
        )
    # one state of the result may visit the arcs of all states of the FST
    quick = _LARGE // max(1, len(fst.write_to_string()))
    if min(most_states, max_states or most_states) <= quick:
        return read(_call(pynini.determinize, fst, delta=delta, nstate=limit))
    if max_states is not None and quick:
        result = read(_call(pynini.determinize, fst, delta=delta, nstate=quick))
        if result.num_states() < quick:
            return result
    return _call(run_in_subprocess, "determinize", fst, delta=delta, nstate=limit)


def prune(fst: Fst, threshold: float) -> Fst:
    """Return the FST without the paths that cost more than the cheapest path plus `threshold`.

    Parameters
    ----------
    threshold : float >= 0, or inf

    Raises
    ------
    FstError
        The arc type is not "standard".
    """
    check_fst(fst)
    threshold = cost("threshold", threshold)
    if fst.arc_type() != "standard":
        raise FstError(f"arc type is {fst.arc_type()!r}; pruning needs 'standard' (tropical)")
    return read(_call(pynini.prune, fst, weight=threshold))


def shortest_distance(fst: Fst, *, delta: float, reverse: bool = False) -> FloatArray:
    """Return the distance of each state from the start, or to the end if `reverse`.

    The result is (S,) float64, in costs.  A distance is the semiring sum over all paths: a minimum
    in "standard", -log sum exp(-cost) in "log" and "log64".  It is +inf if there is no path.

    Parameters
    ----------
    delta : float > 0
        The sum over a cycle stops at changes below this.

    Raises
    ------
    FstError
        The sum over a cycle diverges.
    """
    reverse = flag("reverse", reverse)
    arrays = to_arrays(fst)
    states, steps = arrays.num_states, arrays.num_arcs
    if arrays.start == -1:
        return np.full(states, np.inf)
    every, end = np.arange(states), states + 1
    first, last = (
        (arrays.nextstate, arrays.source) if reverse else (arrays.source, arrays.nextstate)
    )
    ends = np.flatnonzero(np.isfinite(arrays.final)) if reverse else np.array([arrays.start])
    entry = arrays.final[ends] if reverse else np.zeros(1)
    # pynini returns distances with nine digits.  For full precision, make every arc an epsilon arc,
    # add to every state p an exit arc with the label p + 1, and remove the epsilons: the exit arc
    # p + 1 of the start then has the distance of p as its weight.  This is one shortest-distance
    # run.  (rmepsilon skips the states behind epsilons only with its default, connect=True.)
    label = np.concatenate([np.zeros(len(ends) + steps, dtype=np.int64), every + 1])
    exits = FstArrays(
        arc_type=arrays.arc_type,
        start=states,
        final=np.append(np.full(states + 1, np.inf), 0.0),
        source=np.concatenate([np.full(len(ends), states), first, every]),
        ilabel=label,
        olabel=label,
        nextstate=np.concatenate([ends, last, np.full(states, end)]),
        weight=np.concatenate([entry, arrays.weight, np.zeros(states)]),
    )
    found = to_arrays(remove_epsilons(from_arrays(exits), delta=delta))
    distance = np.full(states, np.inf)
    leaves = found.source == found.start
    distance[found.ilabel[leaves] - 1] = found.weight[leaves]
    return distance


def string_lengths(fst: Fst) -> set[int]:
    """Return the set of lengths of the strings of an acyclic acceptor, without epsilons."""
    arrays = to_arrays(topsort(connect(fst)))
    lengths: list[set[int]] = [set() for _ in range(arrays.num_states)]
    if arrays.start != -1:
        lengths[arrays.start].add(0)
    columns = (arrays.source.tolist(), arrays.nextstate.tolist(), (arrays.ilabel != 0).tolist())
    for source, nextstate, reads in zip(*columns, strict=True):
        lengths[nextstate] |= {length + reads for length in lengths[source]}
    ends = np.flatnonzero(np.isfinite(arrays.final))
    return set().union(*(lengths[state] for state in ends))


def _call(operation: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    try:
        return operation(*args, **kwargs)
    except pywrapfst.FstOpError as error:
        name = getattr(operation, "__name__", str(operation))
        raise FstError(f"OpenFst could not {name}: {error}; its reason is on stderr") from error


def _check_same_type(verb: str, left: Fst, right: Fst) -> None:
    check_fst(left, "left")
    check_fst(right, "right")
    if left.arc_type() != right.arc_type():
        raise FstError(
            f"cannot {verb} arc type {left.arc_type()!r} with {right.arc_type()!r}; "
            "convert one with with_arc_type"
        )
