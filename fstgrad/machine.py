"""The target machine M = Pi_1(U o Y_i): the loss against one target as a weighted acceptor.

M reads a hypothesis y; the sum over its paths of y is U(y, y_i).  Here M stands as arrays that a
prefix of y is pushed through: a row of weights, one for each state, is advanced by the arcs of a
class of symbols and then by the epsilon arcs.  Before that M is made small: symbols with the same
arcs form a class, epsilon arcs are ordered (or removed), states with the same future are merged.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.checks import FloatArray, IntArray
from fstgrad.errors import FstError, InvalidInputError
from fstgrad.openfst import FstArrays
from fstgrad.semiring import PROBABILITY, TROPICAL, Semiring

_GRID_BITS = 20  # weights that are multiples of 2^-20 are taken as exact
_FRACTION_BITS = 44  # resolution of costs that are not, relative to the largest one


@dataclass(frozen=True)
class Arcs:
    """Weighted arcs between states: three arrays of shape (number of arcs,)."""

    source: IntArray
    target: IntArray
    weight: npt.NDArray[Any]

    def take(self, where: npt.NDArray[Any]) -> "Arcs":
        """Return the arcs at the given positions, or under a mask."""
        return Arcs(self.source[where], self.target[where], self.weight[where])


@dataclass(frozen=True)
class TargetMachine:
    """M with K states, in one semiring, over symbol classes.

    States 0..K-1, start in the row `initial` (K,) and end by the row `final` (K,), both closed
    under epsilon.  `arcs[c]` are the arcs of class c, `class_of` (n,) gives the class of each
    symbol, `epsilon` the epsilon arcs in topological order.  Weights are in the semiring's dtype;
    tropical ones count `unit`, a cost in nats.
    """

    semiring: Semiring
    class_of: IntArray
    arcs: tuple[Arcs, ...]
    epsilon: Arcs
    initial: npt.NDArray[Any]
    final: npt.NDArray[Any]
    unit: float

    @property
    def num_states(self) -> int:
        """Number of states K."""
        return len(self.final)

    def advance(self, rows: npt.NDArray[Any], symbol_class: int) -> npt.NDArray[Any]:
        """Return rows (K, S) after one symbol of the class: O(S (arcs of the class + epsilon))."""
        after = self.semiring.full(rows.shape)
        arcs = self.arcs[symbol_class]
        for source, target, weight in zip(arcs.source, arcs.target, arcs.weight, strict=True):
            moved = self.semiring.times(rows[source], weight)
            self.semiring.plus(after[target], moved, out=after[target])
        return self._closed_forward(after)

    def retreat(self, columns: npt.NDArray[Any], symbol_class: int) -> npt.NDArray[Any]:
        """Return the weights (K, S) of reading one symbol of the class, then `columns` (K, S)."""
        before = self.semiring.full(columns.shape)
        arcs = self.arcs[symbol_class]
        for source, target, weight in zip(arcs.source, arcs.target, arcs.weight, strict=True):
            moved = self.semiring.times(columns[target], weight)
            self.semiring.plus(before[source], moved, out=before[source])
        return self._closed_backward(before)

    def value(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the weight (S,) of each of the rows (K, S) at the end of the hypothesis."""
        result: npt.NDArray[Any] = self.semiring.plus.reduce(
            self.semiring.times(rows, self.final[:, None]), axis=0
        )
        return result

    def with_constant(self, cost: float) -> "TargetMachine":
        """Return the machine of min(loss, cost): one more state that waits with weight `cost`.

        Raises
        ------
        InvalidInputError
            The semiring is not the tropical one.
        """
        if self.semiring is not TROPICAL:
            raise InvalidInputError(f"the {self.semiring.name} semiring has no minimum of losses")
        machine = self._with_unit(cost)
        state = machine.num_states
        loop = np.array([state], dtype=np.int64)
        stay = Arcs(loop, loop, np.zeros(1, dtype=np.int64))
        return replace(
            machine,
            arcs=tuple(_concatenated((arcs, stay)) for arcs in machine.arcs),
            initial=np.append(machine.initial, np.int64(round(cost / machine.unit))),
            final=np.append(machine.final, np.int64(0)),
        )

    def _with_unit(self, cost: float) -> "TargetMachine":
        """Return the machine in a unit of which `cost` is a multiple too; units are powers of 2."""
        parts = [self.initial, self.final, self.epsilon.weight, *(a.weight for a in self.arcs)]
        weights = np.concatenate(parts)
        finite = weights[~self.semiring.is_zero(weights)] * self.unit
        unit = cost_unit(np.append(finite, cost))
        factor = round(self.unit / unit)

        def scaled(weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
            zero = self.semiring.is_zero(weight)
            return np.where(zero, self.semiring.zero, np.where(zero, 0, weight) * factor)

        return replace(
            self,
            arcs=tuple(replace(arcs, weight=scaled(arcs.weight)) for arcs in self.arcs),
            epsilon=replace(self.epsilon, weight=scaled(self.epsilon.weight)),
            initial=scaled(self.initial),
            final=scaled(self.final),
            unit=unit,
        )

    def _closed_forward(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        for source, target, weight in zip(
            self.epsilon.source, self.epsilon.target, self.epsilon.weight, strict=True
        ):
            moved = self.semiring.times(rows[source], weight)
            self.semiring.plus(rows[target], moved, out=rows[target])
        rows[self.semiring.is_zero(rows)] = self.semiring.zero
        return rows

    def _closed_backward(self, columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
        for source, target, weight in zip(
            self.epsilon.source[::-1],
            self.epsilon.target[::-1],
            self.epsilon.weight[::-1],
            strict=True,
        ):
            moved = self.semiring.times(columns[target], weight)
            self.semiring.plus(columns[source], moved, out=columns[source])
        columns[self.semiring.is_zero(columns)] = self.semiring.zero
        return columns


def target_machine(fst: FstArrays, num_symbols: int, semiring: Semiring) -> TargetMachine:
    """Return the arrays of M, small and ordered.

    Parameters
    ----------
    fst : FstArrays
        The acceptor M, weights as costs (tropical) or as -log of probabilities or counts.
    num_symbols : int
        Size n of the alphabet; label i + 1 is symbol i.
    semiring : Semiring
        What the weights mean.

    Raises
    ------
    FstError
        M is empty, has an epsilon cycle of negative cost, or one whose weights do not converge.
    """
    if fst.start < 0:
        raise FstError("the transducer and the target have no pair in common")
    weights, final, unit = _semiring_weights(fst, semiring)
    all_arcs = Arcs(fst.source, fst.target, weights)
    is_epsilon = fst.ilabel == 0
    class_of, arcs = _symbol_classes(
        all_arcs.take(~is_epsilon), fst.ilabel[~is_epsilon] - 1, num_symbols
    )
    initial = semiring.full((len(final),))
    initial[fst.start] = semiring.one
    machine = TargetMachine(
        semiring, class_of, arcs, all_arcs.take(is_epsilon), initial, final, unit
    )
    return merge_equal_futures(order_epsilons(machine))


def _semiring_weights(
    fst: FstArrays, semiring: Semiring
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], float]:
    """Return arc weights and final weights in the semiring's dtype, and the unit of costs."""
    from_log = np.concatenate([fst.weight, fst.final])
    if semiring is PROBABILITY:
        values = np.exp(-from_log)
        rounded = np.round(values * 2**_GRID_BITS) / 2**_GRID_BITS
        on_grid = np.abs(values - rounded) <= 1e-12 * np.maximum(1.0, values)
        values = np.where(on_grid & (rounded > 0), rounded, values)
        return values[: len(fst.weight)], values[len(fst.weight) :], 1.0
    finite = np.isfinite(from_log)
    unit = cost_unit(from_log[finite])
    units = np.full(len(from_log), TROPICAL.zero)
    units[finite] = np.rint(from_log[finite] / unit).astype(np.int64)
    return units[: len(fst.weight)], units[len(fst.weight) :], unit


def cost_unit(costs: FloatArray) -> float:
    """Return the largest 2^-k, 0 <= k <= 20, of which all costs are multiples, else a fine one."""
    for bits in range(_GRID_BITS + 1):
        scaled = costs * 2.0**bits
        if np.array_equal(scaled, np.rint(scaled)):
            return float(2.0**-bits)
    return float(2.0 ** (np.ceil(np.log2(np.abs(costs).max())) - _FRACTION_BITS))


def _symbol_classes(arcs: Arcs, label: IntArray, num: int) -> tuple[IntArray, tuple[Arcs, ...]]:
    """Return the class of each of `num` labels and the arcs of each class: equal arcs, one class.

    Labels without arcs form a class too.
    """
    order = np.lexsort((arcs.weight, arcs.target, arcs.source, label))
    arcs, label = arcs.take(order), label[order]
    bounds = np.searchsorted(label, np.arange(num + 1))
    keys: dict[bytes, int] = {}
    classes: list[Arcs] = []
    class_of = np.empty(num, dtype=np.int64)
    for symbol in range(num):
        own = arcs.take(np.arange(bounds[symbol], bounds[symbol + 1]))
        key = own.source.tobytes() + own.target.tobytes() + own.weight.tobytes()
        class_of[symbol] = keys.setdefault(key, len(classes))
        if class_of[symbol] == len(classes):
            classes.append(own)
    return class_of, tuple(classes)


def order_epsilons(machine: TargetMachine) -> TargetMachine:
    """Return an equal machine whose epsilon arcs are in topological order, rows closed.

    Tropical epsilon arcs are kept where they have no cycle (they are few, their closure is not);
    otherwise, and always in the probability semiring, they are replaced by their closure.
    """
    order = _topological_order(machine.epsilon, machine.num_states)
    if order is not None and machine.semiring is TROPICAL:
        machine = replace(machine, epsilon=machine.epsilon.take(order))
    else:
        machine = _without_epsilons(machine, _closure(machine, order))
    return replace(
        machine,
        initial=machine._closed_forward(machine.initial.copy()),
        final=machine._closed_backward(machine.final.copy()),
    )


def _topological_order(arcs: Arcs, num_states: int) -> IntArray | None:
    """Return the arcs sorted by a topological order of their sources; None if there is a cycle."""
    indegree = np.bincount(arcs.target, minlength=num_states)
    leaving: dict[int, list[int]] = {}
    for arc, source in enumerate(arcs.source.tolist()):
        leaving.setdefault(source, []).append(arc)
    ready = np.flatnonzero(indegree == 0).tolist()
    order: list[int] = []
    while ready:
        for arc in leaving.get(ready.pop(), ()):
            order.append(arc)
            target = int(arcs.target[arc])
            indegree[target] -= 1
            if indegree[target] == 0:
                ready.append(target)
    return np.array(order, dtype=np.int64) if len(order) == len(arcs.source) else None


def _closure(machine: TargetMachine, order: IntArray | None) -> npt.NDArray[Any]:
    """Return the (K, K) matrix of all epsilon paths, the empty ones included (Lehmann 1977)."""
    semiring, size = machine.semiring, machine.num_states
    closure = semiring.full((size, size))
    if order is not None:
        closure[np.arange(size), np.arange(size)] = semiring.one
        return replace(machine, epsilon=machine.epsilon.take(order))._closed_forward(closure.T).T
    arcs = machine.epsilon
    semiring.plus.at(closure, (arcs.source, arcs.target), arcs.weight)
    for k in range(size):
        loop = closure[k, k]
        if semiring is TROPICAL and loop < 0:
            raise FstError(
                "the transducer has a cycle of insertions or deletions with negative cost; "
                "make their total cost >= 0"
            )
        if semiring is PROBABILITY and loop >= 1:
            raise FstError(
                "the transducer has a cycle of epsilons whose weights sum to "
                f"{loop:g} >= 1 and so do not converge; lower them"
            )
        star = semiring.one if semiring is TROPICAL else 1.0 / (1.0 - loop)
        through = semiring.times(closure[:, k : k + 1], star)
        closure = semiring.plus(closure, semiring.times(through, closure[k : k + 1]))
        closure[semiring.is_zero(closure)] = semiring.zero
    diagonal = np.arange(size)
    closure[diagonal, diagonal] = semiring.plus(closure[diagonal, diagonal], semiring.one)
    return closure


def _without_epsilons(machine: TargetMachine, closure: npt.NDArray[Any]) -> TargetMachine:
    """Return the machine in which every arc is followed by the closure."""
    semiring = machine.semiring
    followers = [np.flatnonzero(~semiring.is_zero(row)) for row in closure]

    def closed(arcs: Arcs) -> Arcs:
        counts = [len(followers[target]) for target in arcs.target]
        targets = np.concatenate([np.empty(0, dtype=np.int64)] + [followers[t] for t in arcs.target])
        sources = np.repeat(arcs.source, counts)
        weight = semiring.times(
            np.repeat(arcs.weight, counts), closure[np.repeat(arcs.target, counts), targets]
        )
        return _summed(Arcs(sources, targets, weight), semiring, machine.num_states)

    empty = machine.epsilon.take(np.empty(0, dtype=np.int64))
    rows = semiring.times(machine.initial[:, None], closure)
    columns = semiring.times(closure, machine.final[None, :])
    return replace(
        machine,
        arcs=tuple(closed(arcs) for arcs in machine.arcs),
        epsilon=empty,
        initial=semiring.plus.reduce(rows, axis=0),
        final=semiring.plus.reduce(columns, axis=1),
    )


def _summed(arcs: Arcs, semiring: Semiring, num_states: int) -> Arcs:
    """Return the arcs with those between the same two states added up."""
    keys, where = np.unique(arcs.source * num_states + arcs.target, return_inverse=True)
    weight = semiring.full((len(keys),))
    semiring.plus.at(weight, where, arcs.weight)
    return Arcs(keys // num_states, keys % num_states, weight)


def merge_equal_futures(machine: TargetMachine) -> TargetMachine:
    """Return the quotient by the coarsest equivalence of states with equal futures.

    Two states are equal if they are equally final and, for each class, lead with equal total
    weight into each block: partition refinement, O(rounds (arcs K + K log K)).
    """
    block = np.zeros(machine.num_states, dtype=np.int64)
    blocks = 1
    while True:
        indicator = machine.semiring.full((machine.num_states, blocks))
        indicator[np.arange(machine.num_states), block] = machine.semiring.one
        indicator = machine._closed_backward(indicator)
        signature = np.column_stack(
            [block, machine.final]
            + [machine.retreat(indicator, c) for c in range(len(machine.arcs))]
        )
        _, first, block = np.unique(signature, axis=0, return_index=True, return_inverse=True)
        if len(first) == blocks:
            break
        blocks = len(first)
    if blocks == machine.num_states:
        return machine
    return _quotient(machine, block.ravel(), first)


def _quotient(machine: TargetMachine, block: IntArray, first: IntArray) -> TargetMachine:
    """Return one state for each block, with the arcs of its first member."""
    semiring = machine.semiring
    is_first = np.zeros(machine.num_states, dtype=bool)
    is_first[first] = True

    def mapped(arcs: Arcs, *, loops: bool) -> Arcs:
        kept = arcs.take(is_first[arcs.source])
        moved = Arcs(block[kept.source], block[kept.target], kept.weight)
        if not loops:  # an epsilon loop of non-negative cost changes no minimum
            moved = moved.take(moved.source != moved.target)
        return _summed(moved, semiring, len(first))

    initial = semiring.full((len(first),))
    semiring.plus.at(initial, block, machine.initial)
    epsilon = mapped(machine.epsilon, loops=False)
    order = _topological_order(epsilon, len(first))
    if order is None:
        return machine
    arcs = tuple(mapped(arcs, loops=True) for arcs in machine.arcs)
    label = np.repeat(np.arange(len(arcs)), [len(a.source) for a in arcs])
    merged, classes = _symbol_classes(_concatenated(arcs), label, len(arcs))
    return replace(
        machine,
        class_of=merged[machine.class_of],
        arcs=classes,
        epsilon=epsilon.take(order),
        initial=initial,
        final=machine.final[first],
    )


def _concatenated(parts: tuple[Arcs, ...]) -> Arcs:
    return Arcs(
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.target for part in parts]),
        np.concatenate([part.weight for part in parts]),
    )
