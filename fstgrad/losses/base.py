"""What every loss offers: a value for a pair, a machine against one target, and compilation."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fstgrad.alphabet import Alphabet, SequenceLike
from fstgrad.automaton import Cap, LossAutomaton
from fstgrad.bounds import RATIONAL_CAP, REFERENCE_CAP, TropicalCap, fixed_cap, in_nats
from fstgrad.checks import FloatArray, one_of, positive_integer
from fstgrad.determinize import determinize
from fstgrad.errors import InfeasibleError, InvalidInputError
from fstgrad.evaluation import SumTargetLoss, TargetLoss
from fstgrad.losses.fingerprint import fingerprint
from fstgrad.losses.report import LossReport, examine
from fstgrad.machine import TargetMachine
from fstgrad.minimize import minimize, minimize_finals
from fstgrad.openfst import Fst
from fstgrad.semiring import TROPICAL

Engine = Literal["layered", "openfst"]
Target = SequenceLike | Fst
MAX_STATES = 2_000_000


class Loss(ABC):
    """A loss L(y, y_i) of hypotheses y against targets y_i over one alphabet.

    A loss that is one transducer is a `TransducerLoss`.  `a + b` and `2 * a` are losses too.
    A subclass gives `_machine`, the automaton M of the loss against one target; all else follows.
    """

    alphabet: Alphabet
    semiring: Literal["tropical", "probability", "mixed"]

    @property
    @abstractmethod
    def transducer(self) -> Fst:
        """The pynini.Fst U of the loss; NotSupportedError where it is no single transducer."""

    @abstractmethod
    def _machine(self, target: Target) -> TargetMachine:
        """Return M as arrays, empty where the transducer rejects the target."""

    @abstractmethod
    def _compile_reference(
        self, target: Target, length: int, cap: float | None, max_states: int
    ) -> LossAutomaton:
        """Return B by OpenFst's determinization."""

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all that decides the loss; equal in every process."""
        return fingerprint(self)

    def __call__(self, y: SequenceLike, target: Target) -> float:
        """Return the loss of one pair in nats; +inf where the transducer has no path for it."""
        ids = self.alphabet.encode(y, name="y")
        machine = self._machine(target)
        row = machine.initial[:, None]
        for symbol_class in machine.class_of[ids]:
            row = machine.advance(row, symbol_class)
        return float(self._finished(machine.value(row), machine)[0])

    def machine(self, target: Target) -> TargetMachine:
        """Return M = Pi_1(U o Y_i) as arrays.

        Raises
        ------
        InfeasibleError
            The transducer rejects the target.
        """
        machine = self._machine(target)
        if machine.is_empty and self._finished(machine.semiring.full((1,)), machine)[0] == np.inf:
            shown = "acceptor" if isinstance(target, Fst) else " ".join(map(str, target))
            raise InfeasibleError(
                f"the transducer rejects the target {shown!r}: no hypothesis has a "
                "finite loss against it; let the transducer write every symbol of the target"
            )
        return machine

    def against(self, target: Target) -> TargetLoss | SumTargetLoss:
        """Return the loss against one target, for many hypotheses at once: `losses_of(ids)`.

        Raises
        ------
        InfeasibleError
            The transducer rejects the target.
        """
        return TargetLoss(self.alphabet, self.machine(target), self._finished)

    def compile(
        self,
        target: Target,
        length: int | None = None,
        *,
        cap: float | None = None,
        engine: Engine = "layered",
        max_states: int = MAX_STATES,
    ) -> LossAutomaton:
        """Return B, the loss against one target for all hypotheses of a length.

        Parameters
        ----------
        target : sequence of symbols or ids, or an acyclic acceptor
            With an acceptor the loss is the sum over its strings: the least loss if tropical.
        length : int
            Length l of the hypotheses; that of the target if left out.
        cap : float
            Replaces the loss L by min(L, cap), in nats.  `fg.choose_cap` chooses one for scores.
        engine : {"layered", "openfst"}
            OpenFst's determinization is the reference: slow, tropical costs in float32.
        max_states : int
            Exact determinization is exponential in l in the worst case; it stops at this number.

        Raises
        ------
        StateLimitError, InfeasibleError, AlphabetError, InvalidInputError
        """
        one_of("engine", engine, ("layered", "openfst"))
        positive_integer("max_states", max_states)
        if not isinstance(target, Fst) and len(target) == 0:
            raise InvalidInputError("target is empty; give at least one symbol")
        if length is None:
            if isinstance(target, Fst):
                raise InvalidInputError("length is missing; give it with a target acceptor")
            length = len(target)
        positive_integer("length", length)
        if cap is not None:
            cap = fixed_cap(cap)
        if engine == "openfst":
            b = self._compile_reference(target, length, cap, max_states)
            return b if cap is None else replace(b, cap=REFERENCE_CAP)
        machine = self.machine(target)
        certificate: Cap | None
        if machine.semiring is TROPICAL:
            machine = machine if cap is None else machine.with_constant(cap)
            certificate = None if cap is None else TropicalCap(self.alphabet, machine, length)
            raw = minimize(determinize(machine, length, max_states=max_states))
            unit = machine.unit
        else:
            certificate = None if cap is None else RATIONAL_CAP
            raw = determinize(machine, length, max_states=max_states)
            losses = self._finished(raw.final, machine)
            losses = losses if cap is None else np.minimum(losses, cap)
            if not np.isfinite(losses).any():
                raise InfeasibleError(
                    f"every hypothesis of length {length} has an infinite loss (nothing in common "
                    "with the target); change the length or give smoothing > 0"
                )
            raw, unit = minimize_finals(replace(raw, initial=0.0, final=losses)), 1.0
        return in_nats(self.alphabet, machine.class_of, raw, unit, certificate)

    def check(self, samples: Iterable[SequenceLike]) -> LossReport:
        """Return what the loss does to sample strings: identity, symmetry, sign, sizes.

        Every sample is taken as a hypothesis against every sample: O(samples^2) losses.

        Raises
        ------
        FstError
            The loss cannot be used: it has an epsilon cycle of negative cost, or of weights that do
            not converge.

        Examples
        --------
        >>> import fstgrad as fg
        >>> report = fg.EditDistance(fg.Alphabet("abc"), insert_cost=2.0).check(["ab", "cab"])
        >>> report.zero_at_identity, report.symmetric, report.negative
        (True, False, False)
        """
        return examine(self, samples)

    def __mul__(self, factor: float) -> "Loss":
        """Return the loss in another unit: factor * L(y, y_i), factor > 0."""
        # here and in __add__, as the results are losses themselves
        from fstgrad.losses.algebra import ScaledLoss

        return ScaledLoss(self, factor)

    __rmul__ = __mul__

    def __add__(self, other: "Loss") -> "Loss":
        """Return the sum of two losses over the same alphabet."""
        from fstgrad.losses.algebra import SumLoss

        return SumLoss([self, other])

    def _size(self, target: Target) -> int:
        """Return the number of states of M."""
        return self._machine(target).num_states

    def _finished(self, value: npt.NDArray[Any], machine: TargetMachine) -> FloatArray:
        """Return the loss in nats of values of the machine."""
        return np.where(machine.semiring.is_zero(value), np.inf, value * machine.unit)
