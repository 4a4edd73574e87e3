"""Losses: a transducer between hypotheses and targets, read in a semiring.

A loss is U(y, y_i), the sum over the paths of a transducer that read the hypothesis y and write the
target y_i: in the tropical semiring the cheapest path (edit distances, alignments), in the
probability semiring a count or kernel value u, turned into -log(u + smoothing) or -u.

Index: `TransducerLoss` (any transducer), `EditDistance`, `SmithWaterman`, `Hamming`, `NGram`.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fstgrad import pipeline, transducers
from fstgrad.alphabet import Alphabet, SequenceLike
from fstgrad.automaton import Level, LossAutomaton
from fstgrad.checks import FloatArray, one_of, positive_integer, positive_number, real_array
from fstgrad.determinize import determinize
from fstgrad.errors import FstError, InfeasibleError, InvalidInputError
from fstgrad.evaluation import TargetLoss
from fstgrad.machine import TargetMachine
from fstgrad.minimize import minimize, minimize_finals
from fstgrad.openfst import (
    ArcType,
    Fst,
    compose,
    is_acceptor,
    is_acyclic,
    project,
    read,
    to_arrays,
    with_arc_type,
)
from fstgrad.reduction import target_machine
from fstgrad.semiring import SEMIRINGS, TROPICAL

Engine = Literal["layered", "openfst"]
Target = SequenceLike | Fst
MAX_STATES = 2_000_000


class TransducerLoss:
    """The loss of any transducer over one alphabet.

    L(y, y_i) = min over paths of the cost (semiring="tropical"), or -log(u + smoothing) with u the
    sum over paths of exp(-cost) (semiring="probability"); `log=False` gives -u instead.  With
    smoothing = 0, as in the paper, a hypothesis with u = 0 has the loss +inf and is left out of
    every sum; a positive smoothing keeps all hypotheses.

    Parameters
    ----------
    fst : pynini.Fst, or a sequence of them
        Reads the hypothesis on its input side, writes the target on its output side; several are
        composed.  Weights are costs: in "standard" float32, in "log64" float64.
    alphabet : Alphabet
        Label i + 1 is symbol i, on both sides.
    semiring : {"tropical", "probability"}
    smoothing : float
        In units of u; probability semiring only.
    log : bool
        Whether the loss is -log(u + smoothing) or -u; probability semiring only.

    Raises
    ------
    FstError
        A label of the transducer is not one of the alphabet.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> from fstgrad.transducers import hamming_transducer
    >>> abc = Alphabet("acgt")
    >>> TransducerLoss(hamming_transducer(abc), abc)("gat", "cat")
    1.0
    """

    def __init__(
        self,
        fst: Fst | Sequence[Fst],
        alphabet: Alphabet,
        *,
        semiring: Literal["tropical", "probability"] = "tropical",
        smoothing: float = 0.0,
        log: bool = True,
    ) -> None:
        one_of("semiring", semiring, tuple(SEMIRINGS))
        self.alphabet = alphabet
        self.semiring = semiring
        self.smoothing = positive_number("smoothing", smoothing, allow_zero=True)
        self.log = log
        parts = [fst] if not isinstance(fst, Sequence) else list(fst)
        self.factors = tuple(with_arc_type(part, "log64") for part in parts)
        self._check_labels()

    @cached_property
    def transducer(self) -> Fst:
        """The pynini.Fst U: arc type "standard" if tropical (float32 costs), "log64" otherwise."""
        whole = reduce(compose, self.factors)
        return with_arc_type(whole, "standard") if self.semiring == "tropical" else whole

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all that decides the loss: the transducers, the alphabet, the reading."""
        digest = hashlib.sha256()
        reading = self.alphabet.symbols, self.semiring, self.smoothing, self.log
        digest.update(repr(reading).encode())
        for factor in self.factors:
            arrays = to_arrays(factor)
            digest.update(repr((arrays.start, arrays.num_states, arrays.num_arcs)).encode())
            for name in ("final", "source", "ilabel", "olabel", "target", "weight"):
                digest.update(getattr(arrays, name).tobytes())
        return digest.hexdigest()

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

    def against(self, target: Target) -> TargetLoss:
        """Return the loss against one target, for many hypotheses at once: `losses_of(ids)`.

        Raises
        ------
        InfeasibleError
            The transducer rejects the target.
        """
        return TargetLoss(self.alphabet, self.machine(target), self.smoothing, self.log)

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
            Replaces the loss L by min(L, cap), in nats.
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
            cap = float(real_array("cap", cap, ()))
        if engine == "openfst":
            return self._compile_reference(target, length, cap, max_states)
        machine = self.machine(target)
        if machine.semiring is TROPICAL:
            machine = machine if cap is None else machine.with_constant(cap)
            raw = minimize(determinize(machine, length, max_states=max_states))
            unit = machine.unit
        else:
            raw = determinize(machine, length, max_states=max_states)
            losses = self._finished(raw.final, machine)
            losses = losses if cap is None else np.minimum(losses, cap)
            if not np.isfinite(losses).any():
                raise InfeasibleError(
                    f"every hypothesis of length {length} has an infinite loss (nothing in common "
                    "with the target); change the length or give smoothing > 0"
                )
            raw, unit = minimize_finals(replace(raw, initial=0.0, final=losses)), 1.0
        return LossAutomaton(
            self.alphabet,
            machine.class_of,
            tuple(Level(level.target, level.cost * unit) for level in raw.levels),
            float(raw.initial * unit),
            raw.final * unit,
        )

    def _compile_reference(
        self, target: Target, length: int, cap: float | None, max_states: int
    ) -> LossAutomaton:
        arc_type: ArcType = "standard" if self.semiring == "tropical" else "log64"
        acceptor = pipeline.loss_acceptor(
            [with_arc_type(factor, arc_type) for factor in self.factors],
            self.alphabet,
            with_arc_type(self._target_acceptor(target), arc_type),
            length,
            smoothing=self.smoothing,
            log=self.log,
            cap=cap,
            max_states=max_states,
        )
        return LossAutomaton.from_arrays(self.alphabet, to_arrays(acceptor), length)

    def _machine(self, target: Target) -> TargetMachine:
        result = self._target_acceptor(target)
        for factor in reversed(self.factors):
            result = compose(factor, result)
        fst = to_arrays(project(result, "input"))
        return target_machine(fst, len(self.alphabet), SEMIRINGS[self.semiring])

    def _finished(self, value: npt.NDArray[Any], machine: TargetMachine) -> FloatArray:
        """Return the loss in nats of values of the machine."""
        return TargetLoss(self.alphabet, machine, self.smoothing, self.log).in_nats(value)

    def _target_acceptor(self, target: Target) -> Fst:
        if not isinstance(target, Fst):
            ids = self.alphabet.encode(target, name="target")
            return transducers.string_acceptor(self.alphabet, ids, arc_type="log64")
        if not is_acceptor(target):
            raise FstError("target is a transducer; give an acceptor (project it to one side)")
        if not is_acyclic(target):
            raise FstError("target is cyclic; give an acceptor of finitely many strings")
        return with_arc_type(target, "log64")

    def _check_labels(self) -> None:
        first, last = to_arrays(self.factors[0]), to_arrays(self.factors[-1])
        for side, labels in (("input", first.ilabel), ("output", last.olabel)):
            if labels.size and labels.max() > len(self.alphabet):
                raise FstError(
                    f"the transducer has label {labels.max()} on its {side} side; the alphabet "
                    f"has labels 1 .. {len(self.alphabet)}"
                )


class EditDistance(TransducerLoss):
    """Edit distance: the least total cost of insertions, deletions and substitutions.

    L(y, y_i) = min over alignments of insert_cost #ins + delete_cost #del + substitute_cost #sub.

    Parameters
    ----------
    alphabet : Alphabet
        n symbols.
    insert_cost, delete_cost, substitute_cost : float
        An insertion adds a symbol of the target, a deletion removes a symbol of the hypothesis.
    confusion : (n, n) array, optional
        confusion[a, b] is the cost of aligning a in the hypothesis with b in the target, instead
        of 0 on the diagonal and `substitute_cost` off it.
    factored : bool
        Use the two factors whose size is linear in n (Figure 4b) instead of the one transducer.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> EditDistance(Alphabet("eginkst"))("sitting", "kitten")
    3.0
    """

    def __init__(
        self,
        alphabet: Alphabet,
        insert_cost: float = 1.0,
        delete_cost: float = 1.0,
        substitute_cost: float = 1.0,
        *,
        confusion: npt.ArrayLike | None = None,
        factored: bool = False,
    ) -> None:
        costs: dict[str, Any] = {
            "insert_cost": insert_cost,
            "delete_cost": delete_cost,
            "substitute_cost": substitute_cost,
            "arc_type": "log64",
        }
        if not factored:
            fst = transducers.edit_transducer(alphabet, confusion=confusion, **costs)
            super().__init__(fst, alphabet)
        elif confusion is None:
            super().__init__(transducers.edit_factors(alphabet, **costs), alphabet)
        else:
            raise InvalidInputError(
                "confusion has a cost for each pair of symbols and does not factor; "
                "leave factored=False"
            )


class SmithWaterman(TransducerLoss):
    """Smith-Waterman local alignment with linear gaps; never positive.

    L(y, y_i) = min over aligned factors of the sum of the costs; a match has a negative cost, and
    aligning nothing costs 0.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> SmithWaterman(Alphabet("acgt"))("ggacgg", "tact")
    -4.0
    """

    def __init__(
        self,
        alphabet: Alphabet,
        match: float = -2.0,
        substitute: float = 1.0,
        insert: float = 1.0,
        delete: float = 1.0,
    ) -> None:
        fst = transducers.smith_waterman_transducer(
            alphabet,
            match=match,
            substitute=substitute,
            insert=insert,
            delete=delete,
            arc_type="log64",
        )
        super().__init__(fst, alphabet)


class Hamming(TransducerLoss):
    """Hamming distance: `cost` for each position that differs; +inf for another length.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> Hamming(Alphabet("acgt"))("gat", "cat")
    1.0
    """

    def __init__(self, alphabet: Alphabet, cost: float = 1.0) -> None:
        fst = transducers.hamming_transducer(alphabet, cost=cost, arc_type="log64")
        super().__init__(fst, alphabet)


class NGram(TransducerLoss):
    """The n-gram loss: -log(U + smoothing), or -U, with U = sum_u c_u(y) c_u(y_i).

    u runs over the n-grams and c_u counts occurrences.  With smoothing = 0, as in the paper, a
    hypothesis that shares no n-gram with the target has the loss +inf and is left out.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> NGram(Alphabet("ab"), order=2, log=False)("abab", "bab")
    -3.0
    """

    def __init__(
        self, alphabet: Alphabet, order: int = 2, *, smoothing: float = 0.0, log: bool = True
    ) -> None:
        counter = transducers.ngram_counter(alphabet, order)
        inverted = read(counter).invert()
        super().__init__(
            (counter, inverted), alphabet, semiring="probability", smoothing=smoothing, log=log
        )
        self.order = order
