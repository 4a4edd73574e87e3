"""The reduction of a target machine in numpy, to check the kernels of `fstgrad.losses.automata`."""

import numpy as np

from fstgrad.losses.automata.equivalence import quotient, refine_by_class
from fstgrad.losses.automata.machine import Arcs, TargetMachine, symbol_classes
from fstgrad.losses.automata.reduction import order_epsilons, semiring_weights, without_epsilons
from fstgrad.losses.automata.semiring import PROBABILITY


def target_machine(fst, num_symbols, semiring) -> TargetMachine:
    """Return M with epsilons ordered or removed, and states with equal futures merged."""
    weights, final, unit = semiring_weights(fst, semiring)
    arcs = Arcs(fst.source, fst.nextstate, weights)
    silent = fst.ilabel == 0
    class_of, classes = symbol_classes(arcs.take(~silent), fst.ilabel[~silent] - 1, num_symbols)
    initial = semiring.full((len(final),))
    initial[fst.start] = semiring.one
    machine = TargetMachine(semiring, class_of, classes, arcs.take(silent), initial, final, unit)
    if semiring is PROBABILITY:
        return merge_equivalent_states(
            without_epsilons(machine, closure(arcs.take(silent), initial))
        )
    return merge_equivalent_states(order_epsilons(machine))


def closure(arcs: Arcs, like):
    """Return the weights (K, K) of all paths between states, (I - E)^-1."""
    step = np.zeros((len(like), len(like)))
    np.add.at(step, (arcs.source, arcs.nextstate), arcs.weight)
    return np.linalg.inv(np.eye(len(like)) - step).round(12)


def merge_equivalent_states(machine: TargetMachine) -> TargetMachine:
    """Return the quotient by the coarsest equivalence of states with equal futures."""
    _, block = np.unique(machine.final, return_inverse=True)
    blocks = int(block.max()) + 1
    while blocks < machine.num_states:
        block = refine_by_class(machine, block, blocks)
        if int(block.max()) + 1 == blocks:
            return quotient(machine, block)
        blocks = int(block.max()) + 1
    return machine
