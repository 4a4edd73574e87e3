"""Pruning of M by a threshold, as in the experiments of Cortes et al. (2018).

An arc of M, at a position of the string, is dropped if each path through it costs more than the
cheapest path plus the threshold.  What is left is not L: a loss up to the least loss plus the
threshold stays, and any other loss stays, grows, or becomes infinite, so that its string is left
out of every sum.  Hence the result bounds neither log Z nor a risk, unlike a cap or a band.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import IntArray, positive_number
from fstgrad.core.errors import MemoryLimitError, NotSupportedError, StateLimitError
from fstgrad.io import memory_limit
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.caps import in_nats
from fstgrad.losses.automata.determinize import determinize, minimize, no_hypothesis
from fstgrad.losses.automata.machine import Arcs, TargetMachine, concatenate
from fstgrad.losses.automata.reduction import without_epsilons
from fstgrad.losses.automata.semiring import INF, TROPICAL

_ARC_BYTES = 2**7  # of an arc at one position: its place, source, nextstate, weight, and copies
_REMEDY = "Lower the threshold (prune=), raise max_states, or give cap= instead of prune=."
_ROUNDING = 1e-14  # relative; 0.3 / 0.1 is below 3


def check_prune(prune: float, semiring: str) -> float:
    """Return a threshold in nats.

    Raises
    ------
    InvalidInputError
        `prune` is not a finite number >= 0.
    NotSupportedError
        The loss is not tropical.
    """
    if semiring != "tropical":
        raise NotSupportedError(
            "prune drops alignments of a tropical loss, and this loss sums over paths or is a "
            "function; leave prune= out"
        )
    return positive_number("prune", prune, allow_zero=True)


def compile_pruned(
    alphabet: Alphabet, machine: TargetMachine, length: int, prune: float, max_states: int
) -> LossAutomaton:
    """Return B of M without the arcs that are only on paths above the least loss plus `prune`.

    Raises
    ------
    StateLimitError
        B would have more than `max_states` states.
    MemoryLimitError
        M at all positions does not fit in memory.
    InfeasibleError
        No hypothesis of this length has a finite loss.
    """
    pruned = pruned_machine(machine, length, prune)
    try:
        raw = minimize(determinize(pruned, length, max_states=max_states))
    except StateLimitError as error:
        raise StateLimitError(
            error.states, error.limit, where=error.where, remedy=_REMEDY, nbytes=error.nbytes
        ) from None
    b = in_nats(alphabet, machine.class_of, raw, machine.unit, None)
    return replace(b, prune=prune)


def pruned_machine(machine: TargetMachine, length: int, prune: float) -> TargetMachine:
    """Return M unrolled over the positions of Delta^l, without the paths above the threshold.

    A state of the result is a state of M at a position.  As in OpenFst's pruning after the removal
    of epsilons, an arc is kept if

        forward[t, j] + weight + backward[t + 1, k] <= forward[l, .] + final + `prune` (nats)

    for the cheapest string on the right side.  O(l x arcs of M without epsilons).
    """
    _check_memory(machine.num_states**2)
    paths = TROPICAL.full((machine.num_states, machine.num_states))
    np.fill_diagonal(paths, TROPICAL.one)
    paths = machine.close(paths)
    ways = (~TROPICAL.is_zero(paths)).sum(axis=1)
    _check_memory(int(ways[concatenate(machine.arcs).source].sum()))
    machine = without_epsilons(machine, paths.T)
    sizes = [len(own.source) for own in machine.arcs]
    every, of_class = concatenate(machine.arcs), np.repeat(np.arange(len(sizes)), sizes)
    forward = _distances(machine.initial, every.source, every, every.nextstate, length)
    backward = _distances(machine.final, every.nextstate, every, every.source, length)[::-1]
    least = int((forward[0] + backward[0]).min())
    if TROPICAL.is_zero(np.array(least)):
        raise no_hypothesis(length)
    most = least + int(min(prune / machine.unit * (1 + _ROUNDING), INF // 4))
    cheap = [
        np.flatnonzero(before[every.source] + every.weight + after[every.nextstate] <= most)
        for before, after in zip(forward[:-1], backward[1:], strict=True)
    ]
    position, arc = np.repeat(np.arange(length), [len(a) for a in cheap]), np.concatenate(cheap)
    _check_memory(len(arc))
    source = position * machine.num_states + every.source[arc]
    nextstate = (position + 1) * machine.num_states + every.nextstate[arc]
    states, number = np.unique(np.concatenate([source, nextstate]), return_inverse=True)
    level, cell = np.divmod(states, machine.num_states)
    kept = Arcs(number[: len(arc)], number[len(arc) :], every.weight[arc])
    return replace(
        machine,
        arcs=tuple(kept.take(of_class[arc] == own) for own in range(len(sizes))),
        initial=np.where(level == 0, machine.initial[cell], INF),
        final=np.where(level == length, machine.final[cell], INF),
        place=None,
    )


def _distances(
    first: IntArray, begin: IntArray, arcs: Arcs, end: IntArray, length: int
) -> IntArray:
    """Return the least costs (l + 1, K) of paths of 0, ..., l arcs from the weights `first` (K,).

    Arcs lead from `begin` to `end`, the states on their two sides.
    """
    result = TROPICAL.full((length + 1, len(first)))
    result[0] = first
    for before, after in pairwise(result):
        np.minimum.at(after, end, before[begin] + arcs.weight)
        after[TROPICAL.is_zero(after)] = TROPICAL.zero
    return result


def _check_memory(arcs: int) -> None:
    """Raise MemoryLimitError unless as many arcs fit."""
    if _ARC_BYTES * arcs > memory_limit():
        raise MemoryLimitError(
            f"pruning needs {arcs:,} arcs of the loss at all positions, "
            f"{_ARC_BYTES * arcs / 2**30:.1f} GiB; shorten the strings, or give cap= or band= "
            "instead of prune="
        )
