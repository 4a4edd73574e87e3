"""Machines that read latent strings: M after a map that shortens, spells out or ends a string.

A collapse maps a latent string z to a hypothesis y, and the loss depends on y only.  Composed with
M, the collapse gives a machine over latent symbols.  Everything computed from M (automata,
gradients, samples, caps) can then be computed for latent strings.

- `spelled_machine` : each latent symbol spells a string of symbols, possibly the empty one.
- `ctc_machine` : runs of a symbol become one symbol, then blanks are left out.
- `ended_machine` : an end symbol ends y; only end symbols follow.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fstgrad.core.checks import BoolArray, IntArray
from fstgrad.losses.automata.equivalence import merge_equivalent_states
from fstgrad.losses.automata.machine import Arcs, TargetMachine


def spelled_machine(machine: TargetMachine, words: Sequence[IntArray]) -> TargetMachine:
    """Return the machine over latent symbols that reads symbol i as the string words[i] of ids.

    Words with the same classes of symbols share their arcs; each such word costs O(|word| arcs K).
    """
    spelt = [tuple(machine.class_of[word].tolist()) for word in words]
    number = {classes: i for i, classes in enumerate(dict.fromkeys(spelt))}
    return replace(
        machine,
        class_of=np.array([number[classes] for classes in spelt], dtype=np.int64),
        arcs=tuple(_word_arcs(machine, classes) for classes in number),
    )


def ctc_machine(machine: TargetMachine, blank: BoolArray) -> TargetMachine:
    """Return the machine of the collapse of connectionist temporal classification.

    A state of the result is (state of M, last symbol read), with n for a blank or the start:
    K (n + 1) states before reduction.  Reading symbol a right after a does not change the state.

    Parameters
    ----------
    machine : TargetMachine of n symbols
    blank : (n,) bool, True for the symbols that are left out

    References
    ----------
    Graves, Fernandez, Gomez, Schmidhuber (2006), section 3.1: the map B.
    """
    n, size = len(blank), machine.num_states
    every = np.arange(size * (n + 1))
    one = machine.semiring.one

    def lift(arcs: Arcs, last: IntArray, after: int | None) -> Arcs:
        """Return the arcs from each (source, last) to (nextstate, after or last)."""
        nextstate = last if after is None else np.full(len(last), after)
        return Arcs(
            np.add.outer(arcs.source * (n + 1), last).ravel(),
            np.add.outer(arcs.nextstate * (n + 1), nextstate).ravel(),
            np.repeat(arcs.weight, len(last)),
        )

    def symbol_arcs(a: int) -> Arcs:
        if blank[a]:
            nextstate = every // (n + 1) * (n + 1) + n
            return Arcs(every, nextstate, np.full(len(every), one, dtype=machine.semiring.dtype))
        moved = lift(machine.arcs[machine.class_of[a]], np.delete(np.arange(n + 1), a), a)
        stay = np.arange(size) * (n + 1) + a
        return Arcs(
            np.concatenate([moved.source, stay]),
            np.concatenate([moved.nextstate, stay]),
            np.concatenate([moved.weight, np.full(size, one, dtype=machine.semiring.dtype)]),
        )

    initial = machine.semiring.full((size, n + 1))
    initial[:, n] = machine.initial
    return merge_equivalent_states(
        replace(
            machine,
            class_of=np.arange(n),
            arcs=tuple(symbol_arcs(a) for a in range(n)),
            epsilon=lift(machine.epsilon, np.arange(n + 1), None),
            initial=initial.ravel(),
            final=np.repeat(machine.final, n + 1),
            place=None if machine.place is None else np.repeat(machine.place, n + 1, axis=0),
        )
    )


def ended_machine(machine: TargetMachine, end: BoolArray) -> TargetMachine:
    """Return the machine in which the symbols of `end` (n,) bool end the hypothesis.

    Only end symbols may follow an end symbol.  One state is added, which the end leads to.  A
    string without an end symbol is a whole hypothesis.
    """
    over = machine.num_states
    states = np.append(np.arange(over), over)
    semiring = machine.semiring
    stop = Arcs(states, np.full(over + 1, over), np.append(machine.final, semiring.one))
    stop = stop.take(~semiring.is_zero(stop.weight))
    classes = np.where(end, len(machine.arcs), machine.class_of)
    used, class_of = np.unique(classes, return_inverse=True)  # that of blanks is empty
    return replace(
        machine,
        class_of=class_of,
        arcs=tuple((*machine.arcs, stop)[c] for c in used),
        initial=np.append(machine.initial, semiring.zero),
        final=np.append(machine.final, semiring.one),
        place=machine.place_and_anywhere(),
    )


def _word_arcs(machine: TargetMachine, classes: tuple[int, ...]) -> Arcs:
    """Return the arcs that read one symbol of each of these classes, in this order.

    The machine closes rows under epsilon before and after a word, so only inner steps close here.
    """
    semiring = machine.semiring
    rows = semiring.full((machine.num_states, machine.num_states))
    np.fill_diagonal(rows, semiring.one)
    for symbol_class in classes[:-1]:
        rows = machine.advance(rows, symbol_class)
    if classes:
        rows = replace(machine, epsilon=machine.epsilon.take(slice(0))).advance(rows, classes[-1])
    nextstate, source = np.nonzero(~semiring.is_zero(rows))
    return Arcs(source, nextstate, rows[nextstate, source])
