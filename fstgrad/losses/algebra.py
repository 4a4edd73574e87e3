"""Losses made of losses: another unit, and sums."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.alphabet import SequenceLike
from fstgrad.automaton import DEAD, Level, LossAutomaton
from fstgrad.checks import FloatArray, IntArray, positive_number
from fstgrad.errors import AlphabetError, InfeasibleError, NotSupportedError, StateLimitError
from fstgrad.evaluation import SumTargetLoss
from fstgrad.losses.base import MAX_STATES, Engine, Loss, Target
from fstgrad.machine import TargetMachine
from fstgrad.openfst import Fst
from fstgrad.reduction import product_machine
from fstgrad.semiring import TROPICAL


class ScaledLoss(Loss):
    """factor * L(y, y_i): the same loss in another unit.

    Parameters
    ----------
    loss : Loss
    factor : float
        Above 0.

    Examples
    --------
    >>> from fstgrad import Alphabet, EditDistance
    >>> (0.5 * EditDistance(Alphabet("eginkst")))("sitting", "kitten")
    1.5
    """

    def __init__(self, loss: Loss, factor: float) -> None:
        self.alphabet = loss.alphabet
        self.semiring = loss.semiring
        self.loss = loss
        self.factor = positive_number("factor", factor)

    @property
    def transducer(self) -> Fst:
        """NotSupportedError: the factor belongs to the loss, not to a transducer."""
        raise NotSupportedError(
            f"a {type(self).__name__} is no transducer of its own; take .loss.transducer"
        )

    def _factor(self, target: Target) -> float:
        """Return what the loss against this target is multiplied with."""
        return self.factor

    def _machine(self, target: Target) -> TargetMachine:
        machine = self.loss._machine(target)
        if machine.semiring is not TROPICAL:
            return machine
        return replace(machine, unit=machine.unit * self._factor(target))

    def _finished(self, value: npt.NDArray[Any], machine: TargetMachine) -> FloatArray:
        if machine.semiring is TROPICAL:
            return super()._finished(value, machine)
        return self.factor * self.loss._finished(value, machine)

    def _compile_reference(
        self, target: Target, length: int, cap: float | None, max_states: int
    ) -> LossAutomaton:
        factor = self._factor(target)
        cap = None if cap is None else cap / factor
        b = self.loss._compile_reference(target, length, cap, max_states)
        levels = tuple(Level(level.target, level.cost * factor) for level in b.levels)
        return replace(b, levels=levels, initial=b.initial * factor, final=b.final * factor)


class SumLoss(Loss):
    """L_1(y, y_i) + L_2(y, y_i) + ... over one alphabet.

    Of tropical losses M is the product of the machines M_1, M_2, ..., as
    min_p a(p) + min_q b(q) = min_(p, q) a(p) + b(q): a sum takes a cap like any other loss.  With a
    rational loss in it there is no machine of one semiring; then B is the product of B_1, B_2, ...,
    compiled one by one, and `cap` is not supported.

    Parameters
    ----------
    losses : sequence of Loss

    Examples
    --------
    >>> from fstgrad import Alphabet, EditDistance, Hamming
    >>> abc = Alphabet("acgt")
    >>> (EditDistance(abc) + 2 * Hamming(abc))("gatc", "catc")
    3.0
    """

    def __init__(self, losses: Sequence[Loss]) -> None:
        parts = [part.losses if isinstance(part, SumLoss) else (part,) for part in losses]
        self.losses: tuple[Loss, ...] = tuple(loss for part in parts for loss in part)
        self.alphabet = self.losses[0].alphabet
        tropical = all(loss.semiring == "tropical" for loss in self.losses)
        self.semiring = "tropical" if tropical else "mixed"
        for loss in self.losses:
            if loss.alphabet != self.alphabet:
                raise AlphabetError(
                    f"a loss of the sum has {loss.alphabet!r}, the first one {self.alphabet!r}; "
                    "build both with the same alphabet"
                )

    @property
    def transducer(self) -> Fst:
        """NotSupportedError: the sum of two minima over paths is no minimum over paths of one."""
        raise NotSupportedError("a sum of losses is no single transducer; take those of .losses")

    def __call__(self, y: SequenceLike, target: Target) -> float:
        """Return the loss of one pair in nats."""
        return sum(loss(y, target) for loss in self.losses)

    def against(self, target: Target) -> SumTargetLoss:
        """Return the sum against one target, for many hypotheses at once."""
        return SumTargetLoss(tuple(loss.against(target) for loss in self.losses))

    def compile(
        self,
        target: Target,
        length: int | None = None,
        *,
        cap: float | None = None,
        engine: Engine = "layered",
        max_states: int = MAX_STATES,
    ) -> LossAutomaton:
        """Return B, as `Loss.compile`.

        Raises
        ------
        NotSupportedError
            A cap where one of the losses is rational.
        """
        if engine == "layered" and self.semiring == "tropical":
            return super().compile(target, length, cap=cap, max_states=max_states)
        if cap is not None:
            raise NotSupportedError(
                "cap of a sum needs tropical losses and engine='layered'; leave cap out, or sum "
                "tropical losses"
            )
        return reduce(
            lambda a, b: automaton_product(a, b, max_states=max_states),
            (
                loss.compile(target, length, engine=engine, max_states=max_states)
                for loss in self.losses
            ),
        )

    def _machine(self, target: Target) -> TargetMachine:
        if self.semiring == "mixed":
            raise NotSupportedError(
                "a sum with a rational loss has no machine of one semiring; compile it for a length"
                ", or take each loss of .losses by itself (risks add up)"
            )
        return reduce(product_machine, (loss._machine(target) for loss in self.losses))

    def _size(self, target: Target) -> int:
        return math.prod(loss._size(target) for loss in self.losses)

    def _compile_reference(
        self, target: Target, length: int, cap: float | None, max_states: int
    ) -> LossAutomaton:
        return self.compile(target, length, cap=cap, engine="openfst", max_states=max_states)


def automaton_product(a: LossAutomaton, b: LossAutomaton, *, max_states: int) -> LossAutomaton:
    """Return the automaton of the sum of two: its states are the pairs that a hypothesis reaches.

    O(pairs x joint classes).

    Raises
    ------
    StateLimitError
        More than `max_states` pairs.
    InfeasibleError
        No hypothesis has a finite sum.
    """
    classes, class_of = np.unique(np.stack([a.class_of, b.class_of]), axis=1, return_inverse=True)
    left, right = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    levels: list[Level] = []
    states = 1
    for level_a, level_b in zip(a.levels, b.levels, strict=True):
        goal_a = level_a.target[left][:, classes[0]]
        goal_b = level_b.target[right][:, classes[1]]
        cost = level_a.cost[left][:, classes[0]] + level_b.cost[right][:, classes[1]]
        alive = (goal_a != DEAD) & (goal_b != DEAD)
        width = int(goal_b.max(initial=0)) + 1
        pairs, number = np.unique(goal_a[alive] * width + goal_b[alive], return_inverse=True)
        target: IntArray = np.full(alive.shape, DEAD, dtype=np.int64)
        target[alive] = number
        levels.append(Level(target, np.where(alive, cost, 0.0)))
        left, right = pairs // width, pairs % width
        states += len(pairs)
        if states > max_states:
            raise StateLimitError(
                states,
                max_states,
                where="product of the automata of a sum",
                remedy="Shorten the strings or raise max_states.",
            )
    if len(left) == 0:
        raise InfeasibleError("no hypothesis has a finite sum of losses; change the length")
    final = a.final[left] + b.final[right]
    return LossAutomaton(a.alphabet, class_of.ravel(), tuple(levels), a.initial + b.initial, final)
