"""Compilation: the methods of losses against one target, its machine M and its automaton B."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fstgrad.automata.automaton import Cap, LossAutomaton
from fstgrad.automata.band import Band, compile_band
from fstgrad.automata.bounds import RATIONAL_CAP, REFERENCE_CAP, TropicalCap, check_cap, in_nats
from fstgrad.automata.determinize import MAX_STATES, determinize
from fstgrad.automata.evaluation import SumTargetLoss, TargetLoss
from fstgrad.automata.machine import TargetMachine
from fstgrad.automata.minimize import minimize, minimize_finals
from fstgrad.automata.semiring import TROPICAL
from fstgrad.checks import FloatArray, one_of, positive_integer
from fstgrad.errors import InfeasibleError, InvalidInputError, NotSupportedError
from fstgrad.losses.evaluation import PairEvaluation, Programme, Target, rejected
from fstgrad.openfst import Fst

Engine = Literal["layered", "openfst"]


class Compilation(PairEvaluation):
    """The methods of a loss against one target.

    A subclass defines `_machine`, the automaton M of the loss against one target; all other methods
    use it.
    """

    def _machine(self, target: Target) -> TargetMachine:
        """Return M as arrays, empty if the transducer rejects the target (or define `_bounded`)."""
        return self._bounded(target, None)

    @abstractmethod
    def _compile_reference(
        self, target: Target, length: int, cap: float | None, max_states: int
    ) -> LossAutomaton:
        """Return B by OpenFst's determinization."""

    # the advice in the error if no hypothesis has a finite loss against a target
    _remedy = "let the transducer write every symbol of the target"

    def _bounded(self, target: Target, max_states: int | None) -> TargetMachine:
        """Return M; for a sum, `max_states` limits the memory of the product."""
        return self._machine(target)

    @property
    def _is_sum(self) -> bool:
        """Whether the loss is a sum of parts that have no common machine."""
        return False

    def machine(self, target: Target, *, max_states: int | None = None) -> TargetMachine:
        """Return M = Pi_1(U o Y_i), the loss against one target, as arrays.

        Raises
        ------
        InfeasibleError, StateLimitError
            The transducer rejects the target; a sum needs more memory than `max_states` allows.
        """
        machine = self._bounded(target, max_states)
        if machine.is_empty and self._finished(machine.semiring.full((1,)), machine)[0] == np.inf:
            raise rejected(self.alphabet, target, self._remedy)
        return machine

    def against(
        self, target: Target, *, max_states: int | None = None
    ) -> TargetLoss | SumTargetLoss:
        """Return the loss against one target; `losses_of(ids)` evaluates many hypotheses at once.

        Raises
        ------
        InfeasibleError, StateLimitError
            As in `machine`.
        """
        machine = self.machine(target, max_states=max_states)
        if isinstance(target, Fst) or self._work is None:
            return TargetLoss(self.alphabet, machine, self._finished)
        programme = Programme(self, self.alphabet.encode(target, name="target"), self._work)
        return TargetLoss(self.alphabet, machine, self._finished, programme)

    def compile(
        self,
        target: Target,
        length: int | None = None,
        *,
        cap: float | None = None,
        band: Band | None = None,
        engine: Engine = "layered",
        max_states: int = MAX_STATES,
    ) -> LossAutomaton:
        """Return B, the loss against one target for all hypotheses of length l.

        Parameters
        ----------
        target : sequence of symbols or ids, or an acyclic acceptor
            For an acceptor, U is summed over its strings: if tropical, the least loss counts.
        length : int
            Length l >= 1 of the hypotheses; by default that of the target.
        cap : float
            Compile min(L, cap), in nats, instead of L.  `fg.choose_cap` chooses a cap for scores.
        band : int or (int, int)
            Compile L_k >= L, the least cost of the alignments that leave the diagonal by at most
            `band` symbols (or whose offset, target minus hypothesis, is between the two numbers):
            far fewer states.  Places where both sides may be skipped at cost 0, as around a local
            alignment, are in every band.  Only for tropical losses, without a cap.
        engine : {"layered", "openfst"}
            OpenFst's determinization is the reference: slow, and tropical costs are float32.
        max_states : int
            Fail beyond this many states: their number is exponential in l in the worst case.

        Raises
        ------
        StateLimitError, InfeasibleError
            B has too many states; no loss is finite, or a band leaves out a finite one.
        AlphabetError, InvalidInputError, NotSupportedError
            A symbol is unknown; an argument is invalid; the loss has no band or no such engine.
        """
        one_of("engine", engine, ("layered", "openfst"))
        max_states = positive_integer("max_states", max_states)
        if not isinstance(target, Fst):
            target = self.alphabet.encode(target, name="target")
        if not isinstance(target, Fst) and len(target) == 0:
            raise InvalidInputError("target is empty; give at least one symbol")
        if length is None:
            if isinstance(target, Fst):
                raise InvalidInputError("length is missing; give it with a target acceptor")
            length = len(target)
        length = positive_integer("length", length)
        if cap is not None:
            cap = check_cap(cap)
        if engine == "layered":
            machine = self.machine(target, max_states=max_states)
        if band is not None:
            if cap is not None or engine != "layered":
                raise NotSupportedError(
                    "a band needs engine='layered' and no cap: min(L_k, cap) "
                    "bounds nothing; leave one of them out"
                )
            return compile_band(self.alphabet, machine, length, band, max_states)
        if engine == "openfst":
            b = self._compile_reference(target, length, cap, max_states)
            return b if cap is None else replace(b, cap=REFERENCE_CAP)
        certificate: Cap | None
        if machine.semiring is TROPICAL:
            machine = machine if cap is None else machine.with_constant(cap)
            certificate = None if cap is None else TropicalCap(self.alphabet, machine, length)
            raw = minimize(determinize(machine, length, max_states=max_states))
            unit = machine.unit
        else:
            certificate = None if cap is None else RATIONAL_CAP
            raw = determinize(machine, length, max_states=max_states)
            losses = np.minimum(self._finished(raw.final, machine), np.inf if cap is None else cap)
            if not np.isfinite(losses).any():
                raise InfeasibleError(
                    f"every hypothesis of length {length} has an infinite loss (nothing in common "
                    "with the target); change the length or give smoothing > 0"
                )
            raw, unit = minimize_finals(replace(raw, initial=0.0, final=losses)), 1.0
        return in_nats(self.alphabet, machine.class_of, raw, unit, certificate)

    def _size(self, target: Target) -> int:
        """Return the number of states of M."""
        return self._machine(target).num_states

    def _finished(self, value: npt.NDArray[Any], machine: TargetMachine) -> FloatArray:
        """Return the losses (k,) in nats for values (k,) of the machine."""
        return np.where(machine.semiring.is_zero(value), np.inf, value * machine.unit)
