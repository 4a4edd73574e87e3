"""Det(M) with a state limit, and what keeps it small in the probability semiring."""

import sys

import numpy as np

from fstgrad import openfst
from fstgrad.automata.determinize import MAX_STATES
from fstgrad.checks import IntArray
from fstgrad.errors import StateLimitError
from fstgrad.io import memory_limit
from fstgrad.openfst import Fst, FstArrays
from fstgrad.reference.states import depths, least_states

QUICK = 2**23  # looks of OpenFst at an arc, of half a microsecond, that need no counting ahead
DELTA = {"standard": 2.0**-24, "log64": 2.0**-33}  # powers of 2: integers stay integers


def determinized(
    machine: Fst,
    *,
    max_states: int = MAX_STATES,
    delta: float | None = None,
    prune: float | None = None,
) -> Fst:
    """Return Det(M), in which each y has one path; its weight is that of all its paths in M.

    Parameters
    ----------
    machine : pynini.Fst
        M as `hypothesis_machine` returns it.
    max_states : int
        Exponential in l in the worst case; it stops here.
    delta : float, optional
        The grid of residual weights, in nats: 2^-24 in "standard" and 2^-33 in "log64".
    prune : float, optional
        Drops the arcs of M that lie on no path within this of the best one ("standard" only), as
        the paper does.  Losses up to the least one plus `prune` stay as they are; the others stay,
        grow or become infinite.

    Raises
    ------
    StateLimitError
        More than `max_states` states.
    """
    if delta is None:
        delta = DELTA[machine.arc_type()]
    if openfst.is_empty(machine):
        return machine
    if prune is not None:
        machine = openfst.prune(machine, prune)
    arrays = openfst.to_arrays(machine)
    depth = depths(arrays)
    # OpenFst ends the process where memory ends, so that no more states are let be than fit in
    max_states = min(max_states, max(1, memory_limit() // _bytes_of_a_state(arrays, depth)))
    if arrays.arc_type == "standard":
        _check_states(arrays, depth, max_states)
        result = openfst.determinize(machine, delta=delta, max_states=max_states + 1)
    else:
        machine = merge_equivalent_states(machine)
        _check_growth(machine, max_states, delta)
        arrays = openfst.to_arrays(machine)
        result = openfst.determinize(machine, delta=delta, most_states=_most_states(arrays))
    if result.num_states() > max_states:
        raise too_many(result.num_states(), max_states)
    return result


def _bytes_of_a_state(arrays: FstArrays, depth: IntArray) -> int:
    """Return about the most that OpenFst needs for a state of Det(M): its subset and its arcs."""
    widest, symbols = int(np.bincount(depth[depth >= 0]).max()), len(np.unique(arrays.ilabel))
    return 512 + 64 * (widest + symbols)


def _check_states(arrays: FstArrays, depth: IntArray, max_states: int) -> None:
    """Raise if the limit is certainly passed, which OpenFst would need minutes to find out.

    It checks all arcs of a state of Det(M): the arcs of the states of M at one depth.
    """
    if max_states * int(np.bincount(depth[arrays.source]).max(initial=0)) > QUICK:
        states = least_states(arrays, depth, max_states)
        if states > max_states:
            raise too_many(states, max_states)


def _check_growth(machine: Fst, max_states: int, delta: float) -> None:
    """Raise before Det(M) passes the limit by more than a factor of the alphabet.

    OpenFst counts states only in the tropical semiring.  So the prefixes of M up to ever greater
    depths are determinized, each as deep as cannot pass n times the limit given the last: a level
    has at most n times the states of the level before it.
    """
    arrays = openfst.to_arrays(machine)
    depth = depths(arrays)
    symbols, length = len(np.unique(arrays.ilabel)), int(depth.max())
    reached, states, last = 0, 1, 1
    while True:
        steps = 1
        while states + sum(last * symbols**k for k in range(1, steps + 2)) <= symbols * max_states:
            steps += 1
            if reached + steps >= length:
                return
        reached += steps
        if reached >= length:
            return
        prefix = openfst.determinize(
            _prefix(arrays, depth, reached), delta=delta, most_states=_prefixes(symbols, reached)
        )
        at_end = depths(openfst.to_arrays(prefix)) == reached
        states, last = prefix.num_states(), int(at_end.sum())
        if states > max_states:
            raise too_many(states, max_states)


def _most_states(arrays: FstArrays) -> int:
    """Return a bound of the states of Det(M)."""
    return _prefixes(len(np.unique(arrays.ilabel)), int(depths(arrays).max()))


def _prefixes(symbols: int, length: int) -> int:
    """Return a bound of the number of prefixes, n^0 + ... + n^l, at most the largest integer."""
    return int(min((symbols + 1) ** length, sys.maxsize))


def _prefix(arrays: FstArrays, depth: IntArray, length: int) -> Fst:
    kept = depth[arrays.source] < length
    fields = ("source", "ilabel", "olabel", "nextstate", "weight")
    return openfst.connect(
        openfst.from_arrays(
            FstArrays(
                arc_type=arrays.arc_type,
                start=arrays.start,
                final=np.where(depth == length, 0.0, np.inf),
                **{name: getattr(arrays, name)[kept] for name in fields},
            )
        )
    )


def merge_equivalent_states(machine: Fst) -> Fst:
    """Return M with states merged that have the same future.

    This is minimization without determinism: states are equal if they are equally final and lead,
    for each label, with equal total weight into equal states.  OpenFst minimizes no
    non-deterministic automaton over the log semiring.  M must be acyclic; O(arcs log arcs).

    Without it the rational Det(M) explodes.  Weight pushing on top of it was measured to make
    Det(M) two to three times larger, because pushed weights are not logarithms of integers and
    equal residuals round apart.
    """
    arrays = openfst.to_arrays(openfst.topsort(machine))
    block = np.full(arrays.num_states, -1)
    bounds = np.searchsorted(arrays.source, np.arange(arrays.num_states + 1))
    log_weight = -arrays.weight
    known: dict[tuple[object, ...], int] = {}
    groups: list[dict[tuple[int, int], float]] = []
    final: list[float] = []
    for state in reversed(range(arrays.num_states)):
        sums: dict[tuple[int, int], float] = {}
        for arc in range(bounds[state], bounds[state + 1]):
            key = (int(arrays.ilabel[arc]), int(block[arrays.nextstate[arc]]))
            sums[key] = float(np.logaddexp(sums.get(key, -np.inf), log_weight[arc]))
        future = tuple(sorted((key, round(total, 12)) for key, total in sums.items()))
        signature = (float(arrays.final[state]), future)
        if signature not in known:
            known[signature] = len(groups)
            groups.append(sums)
            final.append(float(arrays.final[state]))
        block[state] = known[signature]
    arcs = [(s, a, t, w) for s, sums in enumerate(groups) for (a, t), w in sums.items()]
    source, label, nextstate, total = (np.array(column) for column in zip(*arcs, strict=True))
    return openfst.from_arrays(
        FstArrays(
            arc_type=arrays.arc_type,
            start=int(block[arrays.start]),
            final=np.array(final),
            source=source,
            ilabel=label,
            olabel=label,
            nextstate=nextstate,
            weight=-total,
        )
    )


def too_many(states: int, limit: int) -> StateLimitError:
    """Return the error of a determinization that passed its limit."""
    return StateLimitError(
        states,
        limit,
        where="determinization in OpenFst",
        remedy="Give cap= (edit-like losses) or a larger max_states=, up to half of the memory.",
    )
