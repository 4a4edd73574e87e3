"""Build Det(M) under a state limit; keep it small in the probability semiring."""

import sys

import numpy as np

from fstgrad import openfst
from fstgrad.core.checks import IntArray
from fstgrad.core.errors import StateLimitError
from fstgrad.io import memory_limit
from fstgrad.losses.automata.determinize import MAX_STATES
from fstgrad.losses.reference.state_bound import depths, least_states
from fstgrad.openfst import Fst, FstArrays

QUICK = 2**23  # arc visits (half a microsecond each) up to which no states are counted first
DELTA = {"standard": 2.0**-24, "log64": 2.0**-33}  # powers of 2, so that integers stay integers


def determinized(
    machine: Fst,
    *,
    max_states: int = MAX_STATES,
    delta: float | None = None,
    prune: float | None = None,
) -> Fst:
    """Return Det(M), in which each y has one path, with the total weight of its paths in M.

    Parameters
    ----------
    machine : pynini.Fst
        M as `hypothesis_machine` returns it.
    max_states : int
        Largest number of states; in the worst case, their number is exponential in l.  It is also
        limited to the states that fit in half of the memory.
    delta : float, optional
        The grid of residual weights, in nats: 2^-24 in "standard" and 2^-33 in "log64".
    prune : float, optional
        Drop the arcs of M that are only on paths that cost more than the best path plus this, in
        nats ("standard" only), as in the paper.  Losses up to the least loss plus `prune` do not
        change; other losses stay, grow or become infinite.

    Raises
    ------
    StateLimitError
        Det(M) has more than `max_states` states.
    """
    if delta is None:
        delta = DELTA[machine.arc_type()]
    if openfst.is_empty(machine):
        return machine
    if prune is not None:
        machine = openfst.prune(machine, prune)
    arrays = openfst.to_arrays(machine)
    depth = depths(arrays)
    # OpenFst ends the process if memory runs out, so allow only states that fit
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
    """Return an estimate of the most bytes of a state of Det(M): its subset and its arcs."""
    widest, symbols = int(np.bincount(depth[depth >= 0]).max()), len(np.unique(arrays.ilabel))
    return 512 + 64 * (widest + symbols)


def _check_states(arrays: FstArrays, depth: IntArray, max_states: int) -> None:
    """Raise StateLimitError if the limit is certainly exceeded, before OpenFst works for minutes.

    For a state of Det(M), OpenFst visits all arcs of the states of M at one depth.
    """
    if max_states * int(np.bincount(depth[arrays.source]).max(initial=0)) > QUICK:
        states = least_states(arrays, depth, max_states)
        if states > max_states:
            raise too_many(states, max_states)


def _check_growth(machine: Fst, max_states: int, delta: float) -> None:
    """Raise StateLimitError before Det(M) exceeds the limit by more than the factor n.

    OpenFst can limit the number of states in the tropical semiring only.  So prefixes of M of
    increasing depth are determinized.  Since a level has at most n times the states of the level
    before it, each depth is chosen so that the result cannot have more than n times the limit.
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
    """Return an upper bound of the number of states of Det(M)."""
    return _prefixes(len(np.unique(arrays.ilabel)), int(depths(arrays).max()))


def _prefixes(symbols: int, length: int) -> int:
    """Return an upper bound of the number of prefixes, n^0 + ... + n^l, at most sys.maxsize."""
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
    """Return M with states of equal futures merged.

    This is minimization of a nondeterministic automaton, which OpenFst does not offer over the log
    semiring.  Two states are equivalent if they have equal final weights and, for each label, equal
    total weights into equivalent states.  M must be acyclic; O(arcs log arcs).

    Without this step, the rational Det(M) is far larger.  Additional weight pushing made Det(M) two
    to three times larger in measurements: pushed weights are not logarithms of integers, so equal
    residuals are rounded to different values.
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
    """Return the error for a determinization that exceeds its limit."""
    return StateLimitError(
        states,
        limit,
        where="determinization in OpenFst",
        remedy="Give cap= (edit-like losses) or a larger max_states=, up to half of the memory.",
    )
