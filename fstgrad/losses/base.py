"""Loss, the base of all losses; scaled losses; sums; the digest that defines a loss."""

import hashlib
import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import (
    LARGEST_COST,
    FloatArray,
    IntArray,
    instance,
    one_of,
    positive_integer,
    positive_number,
)
from fstgrad.core.errors import AlphabetError, InfeasibleError, InvalidInputError, NotSupportedError
from fstgrad.core.sequences import items
from fstgrad.core.short_repr import summary
from fstgrad.losses.automata.automaton import Cap, LossAutomaton
from fstgrad.losses.automata.band import BAND_AND_CAP, Band, compile_band
from fstgrad.losses.automata.caps import (
    RATIONAL_CAP,
    REFERENCE_CAP,
    TropicalCap,
    check_cap,
    in_nats,
)
from fstgrad.losses.automata.determinize import MAX_STATES, determinize, minimize, minimize_finals
from fstgrad.losses.automata.kernels.arguments import Strings
from fstgrad.losses.automata.machine import TargetMachine
from fstgrad.losses.automata.product import automaton_product, product_machine
from fstgrad.losses.automata.pruning import check_prune, compile_pruned
from fstgrad.losses.automata.semiring import TROPICAL
from fstgrad.losses.automata.target_loss import SumTargetLoss, TargetLoss
from fstgrad.losses.edit_operations import Alignment
from fstgrad.losses.evaluation import PairEvaluation, Programme, Target, no_finite_loss_error
from fstgrad.losses.report import LossReport, examine
from fstgrad.openfst import Fst, to_arrays

Engine = Literal["layered", "openfst"]
_SHOWN = ("loss", "losses", "factor", "order", "collapse")  # attributes that a repr shows


class Loss(PairEvaluation):
    """A loss L(y, y_i) in nats of hypotheses y against targets y_i over one alphabet.

    A `TransducerLoss` is given by one transducer.  `a + b` and `2 * a` are losses too.

    A subclass sets the attributes `alphabet` and `semiring` and defines `_machine`, the automaton M
    of the loss against one target, which all other methods use; `transducer`, for the FST of the
    loss or an error.  `engine="openfst"` needs `_compile_reference`.  A function of Python is a
    `FunctionLoss`.
    """

    alphabet: Alphabet
    semiring: Literal["tropical", "probability", "mixed"]

    def __repr__(self) -> str:
        parts = {name: vars(self)[name] for name in _SHOWN if name in vars(self)}
        return summary(type(self).__name__, {"symbols": len(self.alphabet)} | parts)

    @property
    @abstractmethod
    def transducer(self) -> Fst:
        """The pynini.Fst U of the loss; NotSupportedError if U is not a single transducer."""

    @cached_property
    def fingerprint(self) -> str:
        """A digest of everything that defines the loss; the same in every process."""
        return fingerprint(self)

    def _machine(self, target: Target) -> TargetMachine:
        """Return M as arrays, empty if the target is rejected (or define `_machine_within`)."""
        return self._machine_within(target, None)

    def _compile_reference(
        self,
        target: Target,
        length: int,
        cap: float | None,
        prune: float | None,
        max_states: int,
    ) -> LossAutomaton:
        """Return B by OpenFst's determinization."""
        raise NotSupportedError(
            f"engine='openfst' needs a transducer, which a {type(self).__name__} does not have; "
            "leave engine out"
        )

    def converse(self) -> "Loss":
        """Return the loss with both sides exchanged: L'(y, z) = L(z, y).

        Compiled against a fixed hypothesis, it gives the expected loss against random targets.

        Raises
        ------
        NotSupportedError
            The loss is not made of transducers, or its unit depends on the target.

        Examples
        --------
        >>> import fstgrad as fg
        >>> loss = fg.EditDistance(fg.Alphabet("ab"), insert_cost=0.5)
        >>> loss("a", "ab"), loss.converse()("a", "ab"), loss.converse()("ab", "a")
        (0.5, 1.0, 0.5)
        """
        return self._converse()

    def _converse(self) -> "Loss":
        raise NotSupportedError(
            f"{type(self).__name__} has no converse; its sides cannot be exchanged, so compute "
            "losses of pairs instead"
        )

    # the advice in the error if no hypothesis has a finite loss against a target
    _remedy = "let the transducer write every symbol of the target"

    def _machine_within(self, target: Target, max_states: int | None) -> TargetMachine:
        """Return M; for a sum, `max_states` limits the memory of the product."""
        return self._machine(target)

    def _unmerged_machine(self, target: Target, max_states: int) -> TargetMachine:
        """Return the M that `prune` prunes: of a transducer, with all states of U o Y_i."""
        return self._machine_within(target, max_states)

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
        if max_states is not None:
            max_states = positive_integer("max_states", max_states)
        return self._checked(self._machine_within(target, max_states), target)

    def _checked(self, machine: TargetMachine, target: Target) -> TargetMachine:
        """Return M; raise InfeasibleError if no hypothesis has a finite loss."""
        if machine.is_empty and self._to_loss(machine.semiring.full((1,)), machine)[0] == np.inf:
            raise no_finite_loss_error(self.alphabet, target, self._remedy)
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
            return TargetLoss(self.alphabet, machine, self._to_loss)
        programme = Programme(self, self.alphabet.encode(target, name="target"), self._work)
        return TargetLoss(self.alphabet, machine, self._to_loss, programme)

    def compile(
        self,
        target: Target,
        length: int | None = None,
        *,
        cap: float | None = None,
        band: Band | None = None,
        prune: float | None = None,
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
        prune : float
            Drop the arcs of M, at each position, that are only on paths of cost above the least
            loss plus `prune`, in nats, as in the experiments of Cortes et al.  Unlike a cap or a
            band, this is an approximation without a bound: losses up to that sum stay, others
            stay, grow, or become +inf, and strings of infinite loss are left out of every sum.
            Only for tropical losses, without a cap or a band.
        engine : {"layered", "openfst"}
            OpenFst's determinization is the reference: slow, and tropical costs are float32.
        max_states : int
            Fail beyond this many states: their number is exponential in l in the worst case.

        Raises
        ------
        StateLimitError, InfeasibleError
            B has too many states; no loss is finite, or a band leaves out a finite one.
        AlphabetError, InvalidInputError, NotSupportedError
            A symbol is unknown; an argument is invalid; the loss has no band, cannot be
            pruned, or has no such engine.
        """
        one_of("engine", engine, ("layered", "openfst"))
        max_states = positive_integer("max_states", max_states)
        if not isinstance(target, Fst):
            target = self.alphabet.encode(target, name="target")
        if length is None:
            if isinstance(target, Fst):
                raise InvalidInputError("length is missing; give it with a target acceptor")
            if len(target) == 0:
                raise InvalidInputError(
                    "target is empty; give the length of the hypotheses with an empty target"
                )
            length = len(target)
        length = positive_integer("length", length)
        if cap is not None:
            cap = check_cap(cap)
        if prune is not None:
            prune = check_prune(prune, self.semiring)
            if cap is not None or band is not None:
                raise NotSupportedError(
                    "prune excludes cap and band, whose bounds it would break; leave one of them "
                    "out"
                )
        if band is not None and cap is not None:
            raise NotSupportedError(BAND_AND_CAP)
        if band is not None and engine != "layered":
            raise NotSupportedError(f"band needs engine='layered', not {engine!r}")
        if engine == "openfst":
            b = self._compile_reference(target, length, cap, prune, max_states)
            return replace(b, cap=None if cap is None else REFERENCE_CAP, prune=prune)
        if prune is not None:
            unmerged = self._unmerged_machine(target, max_states)
            return compile_pruned(
                self.alphabet, self._checked(unmerged, target), length, prune, max_states
            )
        machine = self.machine(target, max_states=max_states)
        if band is not None:
            return compile_band(self.alphabet, machine, length, band, max_states)
        return self._determinized(machine, length, cap, max_states)

    def _determinized(
        self, machine: TargetMachine, length: int, cap: float | None, max_states: int
    ) -> LossAutomaton:
        """Return B of M by the layered engine."""
        certificate: Cap | None
        if machine.semiring is TROPICAL:
            machine = machine if cap is None else machine.with_constant(cap)
            certificate = None if cap is None else TropicalCap(self.alphabet, machine, length)
            raw = minimize(determinize(machine, length, max_states=max_states))
            unit = machine.unit
        else:
            certificate = None if cap is None else RATIONAL_CAP
            raw = determinize(machine, length, max_states=max_states)
            losses = np.minimum(self._to_loss(raw.final, machine), np.inf if cap is None else cap)
            if not np.isfinite(losses).any():
                raise InfeasibleError(
                    f"every hypothesis of length {length} has an infinite loss (nothing in common "
                    "with the target); change the length or give smoothing > 0"
                )
            raw, unit = minimize_finals(replace(raw, initial=0.0, final=losses)), 1.0
        return in_nats(self.alphabet, machine.class_of, raw, unit, certificate)

    def _num_machine_states(self, target: Target) -> int:
        """Return the number of states of M."""
        return self._machine(target).num_states

    def _to_loss(self, value: npt.NDArray[Any], machine: TargetMachine) -> FloatArray:
        """Return the losses (k,) in nats for values (k,) of the machine."""
        return np.where(machine.semiring.is_zero(value), np.inf, value * machine.unit)

    def check(self, samples: Iterable[SequenceLike]) -> LossReport:
        """Return properties of the loss on sample strings: identity, symmetry, sign, sizes.

        Every sample is compared with every sample: O(samples^2) losses.

        Raises
        ------
        FstError
            The loss is undefined: an epsilon cycle has a negative cost, or the sum over its weights
            does not converge.

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
        return ScaledLoss(self, factor)

    __rmul__ = __mul__

    def __add__(self, other: "Loss") -> "Loss":
        """Return the sum of two losses; AlphabetError if their alphabets differ."""
        return SumLoss([self, other])


class MachineLoss(Loss):
    """A tropical loss that is defined by its machine M; it has no transducer."""

    semiring: Literal["tropical", "probability", "mixed"] = "tropical"

    def __init__(self, alphabet: Alphabet) -> None:
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        self.alphabet = alphabet

    @property
    def transducer(self) -> Fst:
        """Raise NotSupportedError: the loss has a machine but no transducer."""
        raise NotSupportedError(f"a {type(self).__name__} has no transducer; compile it")


class ScaledLoss(Loss):
    """The loss factor * L(y, y_i): L in another unit.

    Parameters
    ----------
    loss : Loss
    factor : float, > 0 and at most 1e150

    Examples
    --------
    >>> from fstgrad import Alphabet, EditDistance
    >>> (0.5 * EditDistance(Alphabet("eginkst")))("sitting", "kitten")
    1.5
    """

    def __init__(self, loss: Loss, factor: float) -> None:
        instance("loss", loss, Loss, "a Loss")
        self.alphabet = loss.alphabet
        self.semiring = loss.semiring
        self.loss = loss
        self.factor = positive_number("factor", factor, most=LARGEST_COST)

    @property
    def transducer(self) -> Fst:
        """Raise NotSupportedError: the factor belongs to the loss, not to a transducer."""
        raise NotSupportedError(
            f"a {type(self).__name__} is not a transducer itself; use .loss.transducer"
        )

    def _converse(self) -> Loss:
        if type(self) is not ScaledLoss:  # the factor may depend on the target
            return super()._converse()
        return ScaledLoss(self.loss.converse(), self.factor)

    def align(self, y: SequenceLike, target: SequenceLike) -> Alignment:
        """Return a best alignment with scaled costs; see `Loss.align`."""
        ids = self.alphabet.encode(target, name="target")
        return self.loss.align(y, ids).scaled(self._factor(ids))

    def _of_pairs(self, y: Strings, z: Strings, pairs: IntArray, threads: int) -> FloatArray:
        factors = np.ones(len(z.first) - 1)
        for target in np.unique(pairs[:, 1]):
            factors[target] = self._factor(z.ids[z.first[target] : z.first[target + 1]])
        return factors[pairs[:, 1]] * self.loss._of_pairs(y, z, pairs, threads)

    @property
    def _work(self) -> float | None:
        return self.loss._work

    def _factor(self, target: Target) -> float:
        """Return the factor of the loss against this target."""
        return self.factor

    def compile(
        self,
        target: Target,
        length: int | None = None,
        *,
        cap: float | None = None,
        band: Band | None = None,
        prune: float | None = None,
        engine: Engine = "layered",
        max_states: int = MAX_STATES,
    ) -> LossAutomaton:
        """Return B; see `Loss.compile`."""
        if not self._is_sum:
            return super().compile(
                target,
                length,
                cap=cap,
                band=band,
                prune=prune,
                engine=engine,
                max_states=max_states,
            )
        factor = self._factor(target)
        cap = None if cap is None else check_cap(cap) / factor
        b = self.loss.compile(
            target, length, cap=cap, band=band, prune=prune, engine=engine, max_states=max_states
        )
        return b.scaled(factor)

    def against(
        self, target: Target, *, max_states: int | None = None
    ) -> TargetLoss | SumTargetLoss:
        """Return the scaled loss against one target; see `Loss.against`."""
        if not self._is_sum:
            return super().against(target, max_states=max_states)
        return self.loss.against(target, max_states=max_states).scaled(self._factor(target))

    def _unchecked(self, target: Target) -> TargetLoss | SumTargetLoss:
        if not self._is_sum:
            return super()._unchecked(target)
        return self.loss._unchecked(target).scaled(self._factor(target))

    @property
    def _is_sum(self) -> bool:
        return self.loss._is_sum

    def _num_machine_states(self, target: Target) -> int:
        return self.loss._num_machine_states(target)

    def _machine_within(self, target: Target, max_states: int | None) -> TargetMachine:
        machine = self.loss._machine_within(target, max_states)
        return replace(machine, unit=machine.unit * self._factor(target))

    def _unmerged_machine(self, target: Target, max_states: int) -> TargetMachine:
        machine = self.loss._unmerged_machine(target, max_states)
        return replace(machine, unit=machine.unit * self._factor(target))

    def _to_loss(self, value: npt.NDArray[Any], machine: TargetMachine) -> FloatArray:
        return self.loss._to_loss(value, machine)

    def _compile_reference(
        self,
        target: Target,
        length: int,
        cap: float | None,
        prune: float | None,
        max_states: int,
    ) -> LossAutomaton:
        factor = self._factor(target)
        cap, prune = (None if nats is None else nats / factor for nats in (cap, prune))
        return self.loss._compile_reference(target, length, cap, prune, max_states).scaled(factor)


class SumLoss(Loss):
    """The sum L_1(y, y_i) + L_2(y, y_i) + ... of losses over one alphabet.

    For tropical losses, M is the product of the machines M_1, M_2, ..., because
    min_p a(p) + min_q b(q) = min_(p, q) a(p) + b(q); so `cap` and `band` are supported.  A sum with
    a rational loss has no machine in one semiring.  Then B is the product of B_1, B_2, ...,
    compiled one by one, and neither `cap` nor `band` is supported.

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
        given = items("losses", losses) or [None]
        for i, part in enumerate(given):
            instance(f"losses[{i}]", part, Loss, "a Loss")
        parts = [part.losses if isinstance(part, SumLoss) else (part,) for part in given]
        self.losses: tuple[Loss, ...] = tuple(loss for part in parts for loss in part)
        self.alphabet = self.losses[0].alphabet
        kinds = {loss.semiring for loss in self.losses}
        self.semiring = "tropical" if kinds == {"tropical"} else "mixed"
        for loss in self.losses:
            if loss.alphabet != self.alphabet:
                raise AlphabetError(
                    f"a loss has {loss.alphabet!r}, not {self.alphabet!r}; use the same alphabet"
                )

    @property
    def transducer(self) -> Fst:
        """Raise NotSupportedError: a sum of losses is not a single transducer."""
        raise NotSupportedError("a sum of losses is not a single transducer; use those of .losses")

    def _converse(self) -> Loss:
        return SumLoss([loss.converse() for loss in self.losses])

    def _of_pairs(self, y: Strings, z: Strings, pairs: IntArray, threads: int) -> FloatArray:
        parts = [loss._of_pairs(y, z, pairs, threads) for loss in self.losses]
        return np.asarray(np.sum(parts, axis=0))

    def _unchecked(self, target: Target) -> SumTargetLoss:
        return SumTargetLoss(tuple(loss._unchecked(target) for loss in self.losses))

    def against(self, target: Target, *, max_states: int | None = None) -> SumTargetLoss:
        """Return the sum against one target; see `Loss.against`."""
        return SumTargetLoss(tuple(x.against(target, max_states=max_states) for x in self.losses))

    def compile(
        self,
        target: Target,
        length: int | None = None,
        *,
        cap: float | None = None,
        band: Band | None = None,
        prune: float | None = None,
        engine: Engine = "layered",
        max_states: int = MAX_STATES,
    ) -> LossAutomaton:
        """Return B; see `Loss.compile`.

        Raises
        ------
        NotSupportedError
            `cap`, `band` or `prune` is given, and a loss is rational or engine="openfst".
        """
        if engine == "layered" and self.semiring == "tropical":
            return super().compile(
                target, length, cap=cap, band=band, prune=prune, max_states=max_states
            )
        if cap is not None or band is not None or prune is not None:
            raise NotSupportedError(
                "cap, band or prune of a sum needs tropical losses and engine='layered'; leave it "
                "out, or the engine, or sum tropical losses"
            )
        parts = [partial(x.compile, target, length, engine=engine) for x in self.losses]
        product = partial(automaton_product, max_states=max_states)
        return reduce(product, (compiled(max_states=max_states) for compiled in parts))

    @property
    def _is_sum(self) -> bool:
        return self.semiring == "mixed"

    def _machine_within(self, target: Target, max_states: int | None) -> TargetMachine:
        if self.semiring == "mixed":
            raise NotSupportedError(
                "a sum with a rational loss has no machine of one semiring; use .against(target) "
                "or .compile(target, length), which need none"
            )
        product = partial(product_machine, max_states=max_states)
        return reduce(product, (loss._machine_within(target, max_states) for loss in self.losses))

    def _num_machine_states(self, target: Target) -> int:
        return math.prod(loss._num_machine_states(target) for loss in self.losses)

    def _compile_reference(
        self,
        target: Target,
        length: int,
        cap: float | None,
        prune: float | None,
        max_states: int,
    ) -> LossAutomaton:
        return self.compile(
            target, length, cap=cap, prune=prune, engine="openfst", max_states=max_states
        )


_FST_ARRAYS = ("final", "source", "ilabel", "olabel", "nextstate", "weight")


def fingerprint(thing: Any) -> str:
    """Return the SHA-256 digest, in hex, of the class and the attributes of an object.

    It is the same in every process.  Values of cached properties are ignored, because they follow
    from the other attributes.
    """
    digest = hashlib.sha256()
    for part in _parts(thing):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _parts(value: Any) -> list[bytes]:
    """Return the bytes of a value: its type, then its content."""
    if isinstance(value, Fst):
        arrays = to_arrays(value)
        sizes = (arrays.arc_type, arrays.start, arrays.num_states)
        tables = (arrays.input_symbols, arrays.output_symbols)
        return [
            repr((sizes, tables)).encode(),
            *(getattr(arrays, name).tobytes() for name in _FST_ARRAYS),
        ]
    if isinstance(value, np.ndarray):
        return [repr((value.dtype.str, value.shape)).encode(), value.tobytes()]
    if isinstance(value, Alphabet):
        return [repr(value.symbols).encode()]
    if isinstance(value, list | tuple):
        return [b"sequence", *(fingerprint(item).encode() for item in value)]
    if isinstance(value, set | frozenset):
        return [b"set", *sorted(fingerprint(item).encode() for item in value)]
    if isinstance(value, dict):
        return [b"mapping", *(fingerprint(pair).encode() for pair in value.items())]
    if value is None or isinstance(value, str | bytes | int | float | np.generic):
        return [repr(value).encode()]
    kind = type(value)
    attributes = {
        name: item
        for name, item in vars(value).items()
        if not isinstance(getattr(kind, name, None), cached_property)
    }
    return [f"{kind.__module__}.{kind.__qualname__}".encode(), *_parts(attributes)]
