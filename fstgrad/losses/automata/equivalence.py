"""Merge states of a target machine with equal futures: partition refinement and quotient."""

from dataclasses import replace

import numpy as np

from fstgrad.core.checks import IntArray
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata import kernels
from fstgrad.losses.automata.machine import (
    Arcs,
    TargetMachine,
    concatenate,
    equal_arcs,
    hash_arcs,
    sum_parallel,
    symbol_classes,
    topological_order,
)
from fstgrad.losses.automata.semiring import TROPICAL

_CELLS = 2**27  # limit of the cells of closed rows in all rounds: about two seconds
_ARCS = 2**28  # limit of the arcs hashed in all rounds: about ten seconds


def merge_equivalent_states(machine: TargetMachine) -> TargetMachine:
    """Return the quotient by the coarsest equivalence of states with equal futures.

    Two states are equivalent if they have equal final weights and, for each class, equal total
    weights into each block.  Partition refinement costs O(rounds x arcs x blocks).  Once the rounds
    of a tropical machine have computed more than `_CELLS` cells, its arcs are compared one by one:
    epsilon arcs then count like other arcs, and a few equivalent states may stay apart.
    """
    is_tropical = machine.semiring is TROPICAL
    refine = refine_costs if is_tropical else refine_by_class
    _, block = np.unique(machine.final, return_inverse=True)
    blocks = int(block.max()) + 1
    cells = 0
    while blocks < machine.num_states:
        cells += (len(machine.arcs) + 1) * machine.num_states * blocks
        if is_tropical and cells > _CELLS:
            return merge_equal_arcs(machine, block)
        block = refine(machine, block, blocks)
        if int(block.max()) + 1 == blocks:
            return quotient(machine, block)
        blocks = int(block.max()) + 1
    return machine


def merge_equal_arcs(machine: TargetMachine, block: IntArray) -> TargetMachine:
    """Return the quotient by a refinement of `block` (K,): states with equal arcs into each block.

    A round costs O(arcs + states log states) and compares states by hashes of their arcs; the last
    round compares the arcs themselves.  If the rounds would hash more than `_ARCS` arcs, the
    machine is returned unchanged.
    """
    size, every = machine.num_states, concatenate((*machine.arcs, machine.epsilon))
    lengths = [len(arcs.source) for arcs in (*machine.arcs, machine.epsilon)]
    kind, weight = np.repeat(np.arange(len(lengths)), lengths), every.weight.view(np.uint64)
    blocks, seen = int(block.max()) + 1, 0
    while blocks < size:
        seen += len(kind) + size
        if seen > _ARCS:
            return machine
        into = hash_arcs(weight, kind, block[every.nextstate], seen)
        hashes = np.zeros(size, dtype=np.uint64)
        np.add.at(hashes, every.source, into)
        _, hashed = np.unique(hashes, return_inverse=True)
        _, refined = np.unique(block * size + hashed, return_inverse=True)
        if int(refined.max()) + 1 == blocks:  # hashes split no block: compare the arcs
            own = Arcs(np.full(size, -1), block, np.zeros(size, dtype=np.int64))
            led = Arcs(kind, block[every.nextstate], every.weight)
            label = np.concatenate([np.arange(size), every.source])
            refined = equal_arcs(concatenate((own, led)), label, size)
            if int(refined.max()) + 1 == blocks:
                return quotient(machine, block)
        block, blocks = refined, int(refined.max()) + 1
    return machine


def refine_by_class(machine: TargetMachine, block: IntArray, blocks: int) -> IntArray:
    """Return the blocks (K,), split by the total weights of each class into each block."""
    indicator = machine.semiring.full((machine.num_states, blocks))
    indicator[np.arange(machine.num_states), block] = machine.semiring.one
    indicator = machine.close_backward(indicator)
    signature = np.column_stack(
        [block] + [machine.step_backward(indicator, c) for c in range(len(machine.arcs))]
    )
    rows = np.ascontiguousarray(signature).view(np.dtype((np.void, signature[0].nbytes)))
    refined: IntArray = np.unique(rows.ravel(), return_inverse=True)[1]
    return refined


def refine_costs(machine: TargetMachine, block: IntArray, blocks: int) -> IntArray:
    """Return the result of `refine_by_class` for a tropical machine, computed by a kernel."""
    order, arcs = machine.by_class()
    refined = empty(len(block), dtype=np.int64)
    refined[order] = kernels.reduction.refine(arcs, block[order], blocks)
    return refined


def quotient(machine: TargetMachine, block: IntArray) -> TargetMachine:
    """Return the machine with one state per block; it gets the arcs of the block's last member.

    Last means last along the epsilon arcs.  Epsilon arcs within a block are removed, and other
    members may reach their arcs only through these.  If epsilon arcs between blocks form a cycle,
    the machine is returned unchanged.
    """
    semiring = machine.semiring
    first = _last_members(machine, block)
    is_first = np.zeros(machine.num_states, dtype=bool)
    is_first[first] = True

    def map_arcs(arcs: Arcs, *, loops: bool) -> Arcs:
        kept = arcs.take(is_first[arcs.source])
        moved = Arcs(block[kept.source], block[kept.nextstate], kept.weight)
        if not loops:  # an epsilon loop of non-negative cost changes no minimum
            moved = moved.take(moved.source != moved.nextstate)
        return sum_parallel(moved, semiring, len(first))

    initial = semiring.full((len(first),))
    semiring.plus.at(initial, block, machine.initial)
    epsilon = map_arcs(machine.epsilon, loops=False)
    order = topological_order(epsilon, len(first))
    if order is None:
        return machine
    arcs = tuple(map_arcs(arcs, loops=True) for arcs in machine.arcs)
    label = np.repeat(np.arange(len(arcs)), [len(a.source) for a in arcs])
    merged, classes = symbol_classes(concatenate(arcs), label, len(arcs))
    return replace(
        machine,
        class_of=merged[machine.class_of],
        arcs=classes,
        epsilon=epsilon.take(order),
        initial=initial,
        final=machine.final[first],
        place=None if machine.place is None else _spanned(machine.place, block, len(first)),
    )


def _spanned(place: IntArray, block: IntArray, blocks: int) -> IntArray:
    """Return `place` of each block: the least and the greatest over its members."""
    result = empty((blocks, *place.shape[1:]), dtype=np.int64)
    result[..., 0], result[..., 1] = place.max(), place.min()
    np.minimum.at(result[..., 0], block, place[..., 0])
    np.maximum.at(result[..., 1], block, place[..., 1])
    return result


def _last_members(machine: TargetMachine, block: IntArray) -> IntArray:
    """Return, for each block, a member without epsilon arcs to others of the block."""
    rank = np.zeros(machine.num_states, dtype=np.int64)
    for source, nextstate in zip(machine.epsilon.source, machine.epsilon.nextstate, strict=True):
        rank[nextstate] = max(rank[nextstate], rank[source] + 1)
    order = np.lexsort((-rank, block))
    return order[np.unique(block[order], return_index=True)[1]]
