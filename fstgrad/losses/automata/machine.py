"""The target machine M = Pi_1(U o Y_i): the loss against one target as a weighted acceptor.

M reads a hypothesis y; the semiring sum over the paths of y is U(y, y_i).  M is stored as arrays.
A prefix of y is represented by a row of weights, one per state.  The next symbol advances the row
along the arcs of the symbol's class, then along the epsilon arcs.  M is reduced first: symbols with
equal arcs form a class, epsilon arcs are sorted (or removed), states with equal futures are merged.
"""

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray, real_number
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.kernels.arguments import MachineArcs, group_arcs
from fstgrad.losses.automata.semiring import TROPICAL, Semiring

GRID_BITS = 20  # multiples of 2^-20 are represented exactly
PAST_THE_END = 2**40  # beyond all positions
_FRACTION_BITS = 44  # bits of other costs, relative to the largest
_LARGEST = 2.0**44  # units of a cost; keeps sums along strings below the semiring's infinity
_MOST_UNITS = 2.0**59  # more is read as the semiring's infinity
_PRECISION = 2.0**-30  # greatest error of a cost: nats, or relative if the cost is above 1
_DIGITS = 9  # decimal places of costs that are decimal numbers


@dataclass(frozen=True)
class Arcs:
    """Weighted arcs between states: three arrays (A,)."""

    source: IntArray
    nextstate: IntArray
    weight: npt.NDArray[Any]

    def take(self, where: npt.NDArray[Any] | slice) -> "Arcs":
        """Return the arcs at the given positions, in a slice, or under a mask."""
        return Arcs(self.source[where], self.nextstate[where], self.weight[where])


@dataclass(frozen=True)
class TargetMachine:
    """M with K states, in one semiring, over symbol classes.

    The states are 0..K-1, with initial weights `initial` (K,) and final weights `final` (K,).
    `arcs[c]` are the arcs of class c, `class_of` (n,) int64 is the class of each symbol, and
    `epsilon` are the epsilon arcs in topological order.  Weights have the semiring's dtype;
    tropical weights count units of `unit` nats, and the loss of a sum over paths is multiplied by
    `unit`.  `place` (K, T, 2) int64 is the least and the
    greatest number of target symbols read in each state, for each of T targets that are read side
    by side (T > 1 in a sum of losses).
    """

    semiring: Semiring
    class_of: IntArray
    arcs: tuple[Arcs, ...]
    epsilon: Arcs
    initial: npt.NDArray[Any]
    final: npt.NDArray[Any]
    unit: float
    place: IntArray | None = None

    @property
    def num_states(self) -> int:
        """Number of states K."""
        return len(self.final)

    @property
    def is_empty(self) -> bool:
        """Whether no hypothesis has a path."""
        return bool(self.semiring.is_zero(self.final).all())

    def advance(self, rows: npt.NDArray[Any], symbol_class: int) -> npt.NDArray[Any]:
        """Return closed rows (K, S) after one symbol of the class, from closed rows (K, S).

        after[k] is the sum of rows[j] times weight over the arcs j -> k of the class, closed by
        `close`.  O(S (arcs of the class + epsilon arcs)).
        """
        after, arcs = self.semiring.full(rows.shape), self.arcs[symbol_class]
        self._relax(after, arcs.nextstate, rows, arcs.source, arcs.weight)
        return self.close(after)

    def step_backward(self, columns: npt.NDArray[Any], symbol_class: int) -> npt.NDArray[Any]:
        """Return the weights (K, S) of reading one symbol of the class, then `columns` (K, S)."""
        before, arcs = self.semiring.full(columns.shape), self.arcs[symbol_class]
        self._relax(before, arcs.source, columns, arcs.nextstate, arcs.weight)
        return self.close_backward(before)

    def close(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Extend the rows (K, S) along the epsilon arcs, in place, and return them."""
        arcs = self.epsilon
        self._relax(rows, arcs.nextstate, rows, arcs.source, arcs.weight)
        rows[self.semiring.is_zero(rows)] = self.semiring.zero
        return rows

    def close_backward(self, columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Prepend the epsilon arcs to the columns (K, S), in place, and return them."""
        arcs = self.epsilon.take(slice(None, None, -1))
        self._relax(columns, arcs.source, columns, arcs.nextstate, arcs.weight)
        columns[self.semiring.is_zero(columns)] = self.semiring.zero
        return columns

    def _relax(
        self,
        into: npt.NDArray[Any],
        ends: IntArray,
        rows: npt.NDArray[Any],
        starts: IntArray,
        weights: npt.NDArray[Any],
    ) -> None:
        """Add rows[starts] times the weights to into[ends], one arc at a time."""
        for start, end, weight in zip(starts, ends, weights, strict=True):
            moved = self.semiring.times(rows[start], weight)
            self.semiring.plus(into[end], moved, out=into[end])

    def value(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the weight (S,) at the end of the hypothesis: sum of rows (K, S) times final."""
        result: npt.NDArray[Any] = self.semiring.plus.reduce(
            self.semiring.times(rows, self.final[:, None]), axis=0
        )
        return result

    def with_constant(self, cost: float) -> "TargetMachine":
        """Return the machine of min(loss, cost), `cost` in nats.

        One state is added: its initial weight is `cost`, and it reads every symbol at cost 0.

        Raises
        ------
        InvalidInputError
            The semiring is not tropical, `cost` is not a finite number, or no unit fits both `cost`
            and the other costs.
        """
        if self.semiring is not TROPICAL:
            raise InvalidInputError(f"a {self.semiring.name} loss cannot have a cap; leave it out")
        cost = real_number("cap", cost)
        try:
            machine = self._with_unit(cost)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"cap is {cost:g}: {error}; give a cap of the size of the losses, or leave it out"
            ) from error
        state = machine.num_states
        loop = np.array([state], dtype=np.int64)
        stay = Arcs(loop, loop, np.zeros(1, dtype=np.int64))
        return replace(
            machine,
            arcs=tuple(concatenate((arcs, stay)) for arcs in machine.arcs),
            initial=np.append(machine.initial, np.int64(round(cost / machine.unit))),
            final=np.append(machine.final, np.int64(0)),
            place=self.place_and_anywhere(),
        )

    def place_and_anywhere(self) -> IntArray | None:
        """Return `place` with one more state, which may be anywhere in the targets."""
        if self.place is None:
            return None
        last = np.broadcast_to(np.array([-PAST_THE_END, PAST_THE_END]), (1, *self.place.shape[1:]))
        return np.concatenate([self.place, last])

    def by_class(self) -> tuple[IntArray, MachineArcs]:
        """Return the states, sorted so that epsilon arcs lead up, and the kernels' arcs."""
        size, epsilon = self.num_states, self.epsilon
        number = order = np.arange(size)
        if len(epsilon.source) > 0:
            rank = [0] * size
            for source, nextstate in zip(
                epsilon.source.tolist(), epsilon.nextstate.tolist(), strict=True
            ):
                rank[nextstate] = max(rank[nextstate], rank[source] + 1)
            order = np.argsort(rank, kind="stable")
            number = empty(size, dtype=np.int64)
            number[order] = np.arange(size)
        classes = np.repeat(np.arange(len(self.arcs)), [len(arcs.source) for arcs in self.arcs])
        every = concatenate(self.arcs)
        groups = classes * size + number[every.source]
        reading = group_arcs(groups, number[every.nextstate], every.weight, len(self.arcs) * size)
        silent = group_arcs(number[epsilon.source], number[epsilon.nextstate], epsilon.weight, size)
        return order, MachineArcs(*reading, *silent)

    def _with_unit(self, cost: float) -> "TargetMachine":
        """Return the machine in a unit, as `cost_unit` chooses it, that also fits `cost` (nats)."""
        if not abs(cost) / self.unit < _MOST_UNITS:
            raise InvalidInputError("it is too large to be counted in the unit of the other costs")
        finite = self._finite_weights()
        unit = self.unit * min(1.0, cost_unit(np.append(finite, cost / self.unit), self.unit))
        if not self.unit / unit < _MOST_UNITS:
            raise InvalidInputError("the other costs are too large to be counted in its unit")
        return self.rescale(round(self.unit / unit), unit)

    def rescale(self, factor: float, unit: float) -> "TargetMachine":
        """Return the tropical machine with weights times `factor`, rounded, in a new `unit`."""

        def scaled(weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
            zero = self.semiring.is_zero(weight)
            times = np.rint(np.where(zero, 0, weight) * factor).astype(np.int64)
            return np.where(zero, self.semiring.zero, times)

        return replace(
            self,
            arcs=tuple(replace(arcs, weight=scaled(arcs.weight)) for arcs in self.arcs),
            epsilon=replace(self.epsilon, weight=scaled(self.epsilon.weight)),
            initial=scaled(self.initial),
            final=scaled(self.final),
            unit=unit,
        )

    def support(self) -> "TargetMachine":
        """Return the tropical machine with loss 0 for each string of finite loss, else +inf."""
        return self.rescale(0, self.unit)

    @property
    def largest(self) -> int:
        """Largest magnitude of a finite weight, in units."""
        return int(np.abs(self._finite_weights()).max(initial=0))

    @property
    def costs(self) -> FloatArray:
        """All finite weights in nats."""
        return self._finite_weights() * self.unit

    def _finite_weights(self) -> npt.NDArray[Any]:
        parts = [self.initial, self.final, self.epsilon.weight, *(a.weight for a in self.arcs)]
        weights = np.concatenate(parts)
        return weights[~self.semiring.is_zero(weights)]


def cost_unit(costs: FloatArray, nats: float = 1.0) -> float:
    """Return a unit of which all costs are multiples, exactly or nearly.

    Costs and the result are in multiples of `nats`; an error gives costs in nats.

    The first that fits: the largest 2^-k with 0 <= k <= 20; the largest 10^-k with 1 <= k <= 9,
    because written costs have few digits; 2^-44 of the next power of 2 above the largest cost.

    Raises
    ------
    InvalidInputError
        The costs are too far apart for one unit: rounding would change one of them by more than
        2^-30 * nats and by more than 2^-30 of its size.
    """
    sizes = np.abs(costs[costs != 0])
    largest = float(sizes.max(initial=0.0))
    for bits in range(GRID_BITS + 1):
        scaled = costs * 2.0**bits if largest <= _LARGEST * 2.0**-bits else np.array([0.5])
        if np.array_equal(scaled, np.rint(scaled)):
            return float(2.0**-bits)
    for digits in range(1, _DIGITS + 1):
        if largest > _LARGEST / 10.0**digits:
            break
        scaled = costs * 10.0**digits
        if np.allclose(scaled, np.rint(scaled), rtol=1e-15, atol=0):
            return float(10.0**-digits)
    # frexp finds 2^(k - 1) <= largest < 2^k exactly; rounded logarithms may miss k
    unit = math.ldexp(1.0, max(math.frexp(largest)[1] - _FRACTION_BITS, -1022))
    lost = np.abs(np.rint(sizes / unit) * unit - sizes) > _PRECISION * np.maximum(sizes, 1.0)
    if lost.any():
        worst = float(sizes[lost].min())
        raise InvalidInputError(
            f"a cost of {worst * nats:g} beside one of {largest * nats:g}, {largest / worst:.3g} "
            "times as much, would be rounded: costs are multiples of one unit.  To forbid "
            "something, give an infinite cost (inf) instead of a large one"
        )
    return unit


def symbol_classes(arcs: Arcs, label: IntArray, num: int) -> tuple[IntArray, tuple[Arcs, ...]]:
    """Return the class of each label 0 .. num - 1, and the arcs of each class.

    Labels with equal arcs are in one class; labels without arcs form a class too.
    """
    order, bounds, first, found = _alike(arcs, label, num)
    arcs = arcs.take(order)
    rank = np.argsort(first)
    class_of = np.argsort(rank)[found]
    chosen = first[rank]
    own = zip(bounds[chosen].tolist(), bounds[chosen + 1].tolist(), strict=True)
    return class_of, tuple(arcs.take(slice(*span)) for span in own)


def equal_arcs(arcs: Arcs, label: IntArray, num: int) -> IntArray:
    """Return a number for each label 0 .. num - 1, the same for labels with equal arcs."""
    return _alike(arcs, label, num)[3]


def _alike(arcs: Arcs, label: IntArray, num: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Group labels with equal arcs; return (order, bounds, first, found).

    `order` sorts the arcs by label, and label i then has the arcs bounds[i] .. bounds[i + 1].
    `first` is the first label of each group, and `found` (num,) is the group of each label.  Labels
    are compared by hashes of their arcs; the groups are verified, and a collision changes the hash.
    """
    order = np.lexsort((arcs.weight, arcs.nextstate, arcs.source, label))
    arcs, label = arcs.take(order), label[order]
    bounds = np.searchsorted(label, np.arange(num + 1))
    start, count = bounds[:-1], np.diff(bounds)
    columns = np.ascontiguousarray(arcs.weight).view(np.uint64), arcs.source, arcs.nextstate
    for salt in itertools.count(1):
        sums = np.append(np.uint64(0), np.cumsum(hash_arcs(*columns, salt)))
        hashes = sums[bounds[1:]] - sums[start]
        _, first, found = np.unique(hashes, return_index=True, return_inverse=True)
        model = first[found]
        if np.array_equal(count[model], count):
            twin = np.arange(len(label)) + (start[model] - start)[label]
            if all(np.array_equal(column[twin], column) for column in columns):
                break
    return order, bounds, first, found


def hash_arcs(
    weight: npt.NDArray[np.uint64], source: IntArray, nextstate: IntArray, salt: int
) -> npt.NDArray[np.uint64]:
    """Return a hash of each arc, which mixes all its bits by shifts and products."""
    mixed = weight + np.uint64(salt)
    for number in (source, nextstate):
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed += number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(32)
    return mixed


def concatenate(parts: tuple[Arcs, ...]) -> Arcs:
    """Return the arcs of all parts, concatenated."""
    return Arcs(
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.nextstate for part in parts]),
        np.concatenate([part.weight for part in parts]),
    )


def sum_parallel(arcs: Arcs, semiring: Semiring, num_states: int) -> Arcs:
    """Return the arcs, with all arcs between the same two states summed into one."""
    keys, where = np.unique(arcs.source * num_states + arcs.nextstate, return_inverse=True)
    weight = semiring.full((len(keys),))
    semiring.plus.at(weight, where, arcs.weight)
    return Arcs(keys // num_states, keys % num_states, weight)


def topological_order(arcs: Arcs, num_states: int) -> IntArray | None:
    """Return the indices of the arcs in topological order of their sources; None for a cycle."""
    indegree = np.bincount(arcs.nextstate, minlength=num_states)
    leaving: dict[int, list[int]] = {}
    for arc, source in enumerate(arcs.source.tolist()):
        leaving.setdefault(source, []).append(arc)
    ready = np.flatnonzero(indegree == 0).tolist()
    order: list[int] = []
    while ready:
        for arc in leaving.get(ready.pop(), ()):
            order.append(arc)
            nextstate = int(arcs.nextstate[arc])
            indegree[nextstate] -= 1
            if indegree[nextstate] == 0:
                ready.append(nextstate)
    return np.array(order, dtype=np.int64) if len(order) == len(arcs.source) else None
