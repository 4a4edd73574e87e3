"""Products: the machine or the automaton of a sum of two losses."""

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InfeasibleError, MemoryLimitError, StateLimitError
from fstgrad.io import memory_limit
from fstgrad.losses.automata.automaton import DEAD, Level, LossAutomaton
from fstgrad.losses.automata.equivalence import merge_equivalent_states
from fstgrad.losses.automata.kernels.tables import SPAN
from fstgrad.losses.automata.machine import GRID_BITS, Arcs, TargetMachine, concatenate, cost_unit
from fstgrad.losses.automata.semiring import TROPICAL

_ARC_BYTES = 2**8  # memory of an arc while states are merged: its arrays, their order and hashes
# bytes that the arcs of a product may use: per state of the limit, and at least
_STATE_MEMORY, _LEAST_MEMORY = 2**8, 2**27
_LARGEST_WEIGHT = 2**48  # leaves room for sums along strings below the semiring's infinity


def product_machine(
    a: TargetMachine, b: TargetMachine, *, max_states: int | None = None
) -> TargetMachine:
    """Return the tropical machine of the sum of two losses: K_a K_b states before reduction.

    State (i, j) has the number i K_b + j.  A symbol advances both sides, an epsilon arc one side.
    The epsilon arcs of `a` come first; this misses no path, since moves of the two sides commute.

    Raises
    ------
    StateLimitError
        The product would need more than 128 MiB and more than 256 bytes per state of the limit.
    MemoryLimitError
        The product has 2^20 states or more, or would need more than half of the memory.
    InvalidInputError
        The costs of the two losses are too far apart for one unit.
    """
    factor_a, factor_b, unit = _common_unit(a, b)
    a, b = a.rescale(factor_a, unit), b.rescale(factor_b, unit)
    size = b.num_states
    classes, class_of = np.unique(np.stack([a.class_of, b.class_of]), axis=1, return_inverse=True)
    _check_memory(a, b, classes, max_states)

    def joint(left: Arcs, right: Arcs) -> Arcs:
        return Arcs(
            np.add.outer(left.source * size, right.source).ravel(),
            np.add.outer(left.nextstate * size, right.nextstate).ravel(),
            np.add.outer(left.weight, right.weight).ravel(),
        )

    def stay(states: int) -> Arcs:
        every = np.arange(states)
        return Arcs(every, every, np.zeros(states, dtype=np.int64))

    def outer(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[Any]:
        total: npt.NDArray[Any] = np.add.outer(left, right).ravel()
        return np.where(TROPICAL.is_zero(total), TROPICAL.zero, total)

    machine = TargetMachine(
        TROPICAL,
        class_of.ravel(),
        tuple(joint(a.arcs[i], b.arcs[j]) for i, j in classes.T),
        concatenate((joint(a.epsilon, stay(size)), joint(stay(a.num_states), b.epsilon))),
        outer(a.initial, b.initial),
        outer(a.final, b.final),
        unit,
        None if a.place is None or b.place is None else _side_by_side(a.place, b.place),
    )
    return merge_equivalent_states(machine)


def _check_memory(
    a: TargetMachine, b: TargetMachine, classes: IntArray, max_states: int | None
) -> None:
    """Raise if the states or arcs of the product would not fit; allocate nothing."""
    states = a.num_states * b.num_states
    arcs = len(a.epsilon.source) * b.num_states + a.num_states * len(b.epsilon.source)
    for i, j in classes.T:
        arcs += len(a.arcs[i].source) * len(b.arcs[j].source)
    needed = _ARC_BYTES * arcs
    if states >= SPAN or needed > memory_limit():
        raise MemoryLimitError(
            f"the machine of a sum of two losses against this target would have {a.num_states:,} x "
            f"{b.num_states:,} states (fewer than {SPAN:,} can be determinized) and take "
            f"{needed:,} bytes; shorten the strings, or use each loss by itself (risks add up)"
        )
    if max_states is not None and needed > max(_LEAST_MEMORY, _STATE_MEMORY * max_states):
        raise StateLimitError(
            0,
            max_states,
            nbytes=needed,
            where=f"machine of a sum of two losses, of {a.num_states:,} x {b.num_states:,} states",
            remedy="Raise max_states, shorten the strings, or use each loss by itself "
            "(risks add up).",
        )


def _side_by_side(a: IntArray, b: IntArray) -> IntArray:
    """Return `place` (K_a K_b, T_a + T_b, 2) of the pairs of states."""
    return np.concatenate([np.repeat(a, len(b), axis=0), np.tile(b, (len(a), 1, 1))], axis=1)


def _common_unit(a: TargetMachine, b: TargetMachine) -> tuple[float, float, float]:
    """Return the units of `a` and `b` as multiples of a common unit, and that unit in nats.

    If the ratio of the units is one of small integers (1/3 and 1/2 are 2 and 3 sixths) and weights
    stay small, the common unit is exact.  Otherwise it is the smaller of the two units, or, if
    weights would be too large, the `cost_unit` of all costs together.

    Raises
    ------
    InvalidInputError
        The costs of the two are too far apart for one unit.
    """
    ratio = Fraction(a.unit / b.unit).limit_denominator(2**GRID_BITS)
    if ratio and abs(float(ratio) * b.unit - a.unit) <= 1e-12 * a.unit:
        factors = ratio.numerator, ratio.denominator
        if max(a.largest * factors[0], b.largest * factors[1]) < _LARGEST_WEIGHT:
            return *factors, a.unit / ratio.numerator
    unit = min(a.unit, b.unit)
    if max(a.largest * (a.unit / unit), b.largest * (b.unit / unit)) >= _LARGEST_WEIGHT:
        unit = cost_unit(np.concatenate([a.costs, b.costs]))
    return a.unit / unit, b.unit / unit, unit


def automaton_product(a: LossAutomaton, b: LossAutomaton, *, max_states: int) -> LossAutomaton:
    """Return the automaton of the sum of two losses: its states are the reachable pairs.

    O(pairs x joint classes).

    Raises
    ------
    StateLimitError
        More than `max_states` pairs.
    InfeasibleError
        No hypothesis has a finite sum.
    """
    product = pair_levels(a, b, max_states=max_states)
    if len(product.left) == 0:
        raise InfeasibleError("no hypothesis has a finite sum of losses; change the length")
    levels = tuple(
        Level(level.nextstate, level.left_cost + level.right_cost) for level in product.levels
    )
    final = a.final[product.left] + b.final[product.right]
    return LossAutomaton(a.alphabet, product.class_of, levels, a.initial + b.initial, final)


class PairLevel(NamedTuple):
    """The arcs of pairs of states: `nextstate` (S, C), -1 if dead; costs in nats, 0 if dead."""

    nextstate: IntArray
    left_cost: FloatArray
    right_cost: FloatArray


class PairLevels(NamedTuple):
    """The levels of two automata side by side.

    class_of : (n,) int64, the joint class of each symbol: its pair of classes.
    left, right : (S_l,) int64, the states of the last level in both automata.
    """

    class_of: IntArray
    levels: tuple[PairLevel, ...]
    left: IntArray
    right: IntArray


def pair_levels(a: LossAutomaton, b: LossAutomaton, *, max_states: int | None = None) -> PairLevels:
    """Return the pairs of states that common prefixes reach, level by level.

    Raises
    ------
    StateLimitError
        More than `max_states` pairs.
    """
    classes, class_of = np.unique(np.stack([a.class_of, b.class_of]), axis=1, return_inverse=True)
    left, right = np.zeros((2, 1), dtype=np.int64)
    levels: list[PairLevel] = []
    states = 1
    for level_a, level_b in zip(a.levels, b.levels, strict=True):
        to_a = level_a.nextstate[left][:, classes[0]]
        to_b = level_b.nextstate[right][:, classes[1]]
        alive = (to_a != DEAD) & (to_b != DEAD)
        width = int(to_b.max(initial=0)) + 1
        pairs, number = np.unique(to_a[alive] * width + to_b[alive], return_inverse=True)
        nextstate: IntArray = np.full(alive.shape, DEAD, dtype=np.int64)
        nextstate[alive] = number
        left_cost = np.where(alive, level_a.cost[left][:, classes[0]], 0.0)
        right_cost = np.where(alive, level_b.cost[right][:, classes[1]], 0.0)
        levels.append(PairLevel(nextstate, left_cost, right_cost))
        left, right = pairs // width, pairs % width
        states += len(pairs)
        if max_states is not None and states > max_states:
            raise StateLimitError(
                states,
                max_states,
                where="product of the automata of a sum",
                remedy="Shorten the strings or raise max_states.",
            )
    return PairLevels(class_of.ravel(), tuple(levels), left, right)
