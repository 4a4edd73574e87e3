"""TransducerLoss: the loss of any transducer; RuleLoss: that of a grammar, a text of rules."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import (
    COSTS,
    LARGEST_COST,
    FloatArray,
    IntArray,
    flag,
    instance,
    one_of,
    positive_number,
)
from fstgrad.core.errors import FstError, InfeasibleError, InvalidInputError
from fstgrad.losses import reference, transducers
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.composition import (
    composition,
    depth_range,
    states_with_free_skips,
    string_arrays,
)
from fstgrad.losses.automata.kernels.arguments import Strings
from fstgrad.losses.automata.machine import PAST_THE_END, TargetMachine
from fstgrad.losses.automata.reduction import merge_alike, target_machine
from fstgrad.losses.automata.semiring import SEMIRINGS, TROPICAL
from fstgrad.losses.base import Loss
from fstgrad.losses.edit_operations import Alignment, operations_of
from fstgrad.losses.evaluation import Target
from fstgrad.losses.pairwise import ArcCosts, PairLoss, losses_of_pairs, pair_loss
from fstgrad.losses.transducers.rules import RuleSet, RuleTransducer, compile_rules, read_rules
from fstgrad.openfst import (
    ArcType,
    Fst,
    FstArrays,
    acceptor_over,
    check_sides,
    check_symbols,
    compose,
    from_arrays,
    is_acyclic,
    is_binary,
    over_alphabet,
    read_file,
    to_arrays,
    with_arc_type,
    with_character_symbols,
)
from fstgrad.openfst.symbols import check_not_text


class TransducerLoss(Loss):
    """The loss of any transducer over one alphabet, in nats.

    semiring="tropical": L(y, y_i) is the least cost of a path.  semiring="probability":
    L(y, y_i) = -log(u + smoothing), where u is the sum over paths of exp(-cost); with `log=False`,
    L = -u.  With smoothing = 0, as in the paper, a hypothesis with u = 0 has the loss +inf and is
    left out of every sum; a positive smoothing keeps all hypotheses.

    Parameters
    ----------
    fst : pynini.Fst, FstArrays or RuleTransducer, or a sequence of FSTs
        It reads the hypothesis on the input side and writes the target on the output side.  Several
        transducers are composed, from left to right.  Weights are costs: float32 for arc type
        "standard", float64 for "log64"; +inf forbids.
    alphabet : Alphabet
        Label i + 1 is symbol i, on both sides, unless the FST has symbol tables: then labels are
        matched by symbol, and arcs with symbols outside the alphabet are left out, with an
        `UnusedArcsWarning`.
    semiring : {"tropical", "probability"}
    smoothing : float
        Added to u, >= 0; only in the probability semiring.
    log : bool
        Whether the loss is -log(u + smoothing) or -u; only in the probability semiring.

    Raises
    ------
    FstError
        A label of the transducer is outside the alphabet, or may be a byte of a text because there
        are no symbol tables; its symbol tables lack a symbol of the alphabet; the symbol tables
        between two factors differ; or a weight is NaN or below -1e150.
    InvalidInputError
        `smoothing` is negative, or `smoothing` or `log` is set in the tropical semiring.

    Attributes
    ----------
    rule_transducer : RuleTransducer, the rules of the arcs; None if the transducer names none.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> from fstgrad.losses.transducers import hamming_transducer
    >>> abc = Alphabet("acgt")
    >>> TransducerLoss(hamming_transducer(abc), abc)("gat", "cat")
    1.0
    """

    def __init__(
        self,
        fst: Fst | FstArrays | RuleTransducer | Sequence[Fst | FstArrays],
        alphabet: Alphabet,
        *,
        semiring: Literal["tropical", "probability"] = "tropical",
        smoothing: float = 0.0,
        log: bool = True,
    ) -> None:
        one_of("semiring", semiring, tuple(SEMIRINGS))
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        self.alphabet = alphabet
        self.semiring = semiring
        self.smoothing = positive_number("smoothing", smoothing, allow_zero=True)
        self.log = flag("log", log)
        if semiring == "tropical" and (self.smoothing > 0 or not self.log):
            raise InvalidInputError(
                f"smoothing is {self.smoothing:g} and log is {self.log} with tropical costs, which "
                "have neither; leave them out, or give semiring='probability'"
            )
        self.rule_transducer = fst if isinstance(fst, RuleTransducer) else None
        if isinstance(fst, RuleTransducer):
            if fst.alphabet != alphabet:
                raise InvalidInputError(
                    f"alphabet is {alphabet!r}, and that of fst {fst.alphabet!r}; give the latter"
                )
            fst = fst.fst
        parts = fst if isinstance(fst, Sequence) else [fst]
        self._arrays = self._checked_factors(parts)

    @staticmethod
    def from_file(
        path: str | os.PathLike[str],
        alphabet: Alphabet | None = None,
        *,
        semiring: Literal["tropical", "probability"] | None = None,
        symbols: str | os.PathLike[str] | None = None,
        smoothing: float = 0.0,
        log: bool = True,
    ) -> "TransducerLoss":
        """Return the loss of a transducer in a file.

        Parameters
        ----------
        path : path
            `x.fst`, an entry `x.far:NAME` of an archive, or AT&T text.  An archive that
            `fstgrad grammar` or `CostFit.write` wrote also has the names of rules.
        alphabet : Alphabet, optional
            Matched by symbol with the symbol tables of the FST.  In an FST without tables, labels
            are characters, as in pynini.  By default, the symbols of the input side.
        semiring : {"tropical", "probability"}, optional
            By default "probability" for the arc types "log" and "log64" of binary files, else
            "tropical"; text is always tropical.
        symbols : path, optional
            The symbol table of AT&T text; needed if its arcs have numeric labels.
        smoothing, log
            As in `TransducerLoss`.

        Raises
        ------
        FstError
            The file holds no such FST, or the symbols of alphabet and FST do not match.
        OSError
            The file cannot be read.
        """
        fst = with_character_symbols(read_file(path, symbols, alphabet=alphabet))
        if semiring is None:
            is_log = is_binary(os.fspath(path)) and fst.arc_type() != "standard"
            semiring = "probability" if is_log else "tropical"
        if alphabet is None:
            table = to_arrays(fst).input_symbols or ()
            alphabet = Alphabet(symbol for label, symbol in table if label != 0)
        whole = read_rules(path, to_arrays(fst), alphabet) or fst
        return TransducerLoss(whole, alphabet, semiring=semiring, smoothing=smoothing, log=log)

    @cached_property
    def factors(self) -> tuple[Fst, ...]:
        """The factors of U as pynini.Fst in "log64"; the first reads the hypothesis."""
        return tuple(from_arrays(factor) for factor in self._arrays)

    @cached_property
    def transducer(self) -> Fst:
        """The pynini.Fst U: arc type "standard" if tropical (float32 costs), "log64" otherwise."""
        whole = self._whole
        return with_arc_type(whole, "standard") if self.semiring == "tropical" else whole

    def _converse(self) -> "TransducerLoss":
        return TransducerLoss(
            [factor.invert() for factor in reversed(self._arrays)],
            self.alphabet,
            semiring=cast(Literal["tropical", "probability"], self.semiring),
            smoothing=self.smoothing,
            log=self.log,
        )

    @cached_property
    def _pair_loss(self) -> PairLoss | None:
        """The dynamic program for pairs; None if pairs need a machine."""
        if self.semiring != "tropical" or len(self._arrays) > 1:
            return None
        return pair_loss(self._arrays[0], len(self.alphabet))

    @property
    def _work(self) -> float | None:
        if self._pair_loss is None:
            return None
        return 6.0 if isinstance(self._pair_loss, ArcCosts) else 0.25

    def _of_pairs(self, y: Strings, z: Strings, pairs: IntArray, threads: int) -> FloatArray:
        if self._pair_loss is None:
            return super()._of_pairs(y, z, pairs, threads)
        return losses_of_pairs(self._pair_loss, y, z, pairs, threads)

    def align(self, y: SequenceLike, target: SequenceLike) -> Alignment:
        """Return a best alignment; see `Loss.align`."""
        if self.semiring != "tropical":
            return super().align(y, target)
        own, other = self.alphabet.encode(y, name="y"), self.alphabet.encode(target, name="target")
        fst = self._arrays[0] if len(self._arrays) == 1 else to_arrays(self._whole)
        cost, path = ArcCosts.of(fst, len(self.alphabet)).best_path(own, other)
        if cost == np.inf:
            raise InfeasibleError("the loss of y against target is +inf: no alignment is allowed")
        return Alignment(
            cost,
            operations_of(
                (self.alphabet.decode(own), self.alphabet.decode(other)),
                (fst.ilabel[path], fst.olabel[path]),
                (fst.source[path], fst.nextstate[path]),
                fst.weight[path],
                states_with_free_skips(fst),
            ),
        )

    @cached_property
    def _whole(self) -> Fst:
        return reduce(compose, self.factors)

    def _compile_reference(
        self,
        target: Target,
        length: int,
        cap: float | None,
        prune: float | None,
        max_states: int,
    ) -> LossAutomaton:
        arc_type: ArcType = "standard" if self.semiring == "tropical" else "log64"
        acceptor = reference.loss_acceptor(
            [with_arc_type(factor, arc_type) for factor in self.factors],
            self.alphabet,
            with_arc_type(self._target_acceptor(target), arc_type),
            length,
            smoothing=self.smoothing,
            log=self.log,
            cap=cap,
            prune=prune,
            max_states=max_states,
        )
        return LossAutomaton.from_arrays(self.alphabet, to_arrays(acceptor), length)

    def _machine(self, target: Target) -> TargetMachine:
        return self._composed(target, merges=True)

    def _unmerged_machine(self, target: Target, max_states: int) -> TargetMachine:
        return self._composed(target, merges=False)

    def _composed(self, target: Target, *, merges: bool) -> TargetMachine:
        if isinstance(target, Fst):
            right = to_arrays(self._target_acceptor(target))
            place = depth_range(right)
        else:
            right = string_arrays(self.alphabet.encode(target, name="target"))
            place = np.column_stack([np.arange(right.num_states)] * 2)
        for factor in reversed(self._arrays[1:]):
            right, pairs = composition(factor, right)
            place = place[pairs[:, 1]]
        left, class_of = merge_alike(self._arrays[0], np.unique(right.ilabel), len(self.alphabet))
        fst, pairs = composition(left, right)
        place = place[pairs[:, 1]]
        place[states_with_free_skips(left)[pairs[:, 0]]] = (
            -PAST_THE_END,
            PAST_THE_END,
        )
        classes, semiring = int(class_of.max()) + 1, SEMIRINGS[self.semiring]
        machine = target_machine(fst, classes, semiring, place=place, merges=merges)
        return replace(machine, class_of=machine.class_of[class_of])

    def _to_loss(self, value: npt.NDArray[Any], machine: TargetMachine) -> FloatArray:
        """Return the losses (k,) in nats for values (k,): costs, or sums u.

        A sum u gives -log(u + smoothing), or -u if `log` is False, times the unit of the machine.
        """
        if machine.semiring is TROPICAL:
            return super()._to_loss(value, machine)
        if not self.log:
            return machine.unit * (0.0 - value)  # not -0.0
        with np.errstate(divide="ignore"):
            return np.asarray(machine.unit * (0.0 - np.log(value + self.smoothing)))

    def _target_acceptor(self, target: Target) -> Fst:
        if not isinstance(target, Fst):
            ids = self.alphabet.encode(target, name="target")
            return transducers.string_acceptor(self.alphabet, ids, arc_type="log64")
        arrays = acceptor_over(to_arrays(target), self.alphabet, "target")
        fst = from_arrays(replace(arrays, arc_type="log64"))
        if not is_acyclic(fst):
            raise FstError("target is cyclic; give an acceptor of finitely many strings")
        return fst

    def _checked_factors(self, parts: Sequence[Fst | FstArrays]) -> tuple[FstArrays, ...]:
        """Return the factors in "log64"; the outer labels become those of the alphabet."""
        if not parts:
            raise FstError("fst is an empty sequence; give at least one transducer")
        arrays = [part if isinstance(part, FstArrays) else to_arrays(part) for part in parts]
        for left, right in pairwise(arrays):
            check_symbols(left.output_symbols, right.input_symbols)
        inputs, outputs = arrays[0].input_symbols, arrays[-1].output_symbols
        check_sides(inputs, outputs, self.alphabet)
        if not (inputs or outputs or any(isinstance(part, FstArrays) for part in parts)):
            labels = np.concatenate([arrays[0].ilabel, arrays[-1].olabel])
            check_not_text(labels, self.alphabet, "fst")
        if len(arrays) == 1:
            arrays[0] = over_alphabet(arrays[0], self.alphabet)
        else:
            arrays[0] = over_alphabet(arrays[0], self.alphabet, ("input",))
            arrays[-1] = over_alphabet(arrays[-1], self.alphabet, ("output",))
        for side, labels in (("input", arrays[0].ilabel), ("output", arrays[-1].olabel)):
            if labels.size and labels.max() > len(self.alphabet):
                raise FstError(
                    f"the transducer has label {labels.max()} on its {side} side; the alphabet "
                    f"has labels 1 .. {len(self.alphabet)}; if labels are characters, as in "
                    "strings of pynini, give fstgrad.openfst.with_character_symbols(fst)"
                )
        for part in arrays:
            costs = np.concatenate([part.weight, part.final])
            if (bad := ~(costs >= -LARGEST_COST)).any():
                raise FstError(f"a weight of the transducer is {costs[bad][0]:g}; {COSTS}")
        return tuple(replace(part, arc_type="log64") for part in arrays)


class RuleLoss(TransducerLoss):
    r"""The least cost in nats to turn the hypothesis into the target by copies, edits and rules.

    Parameters
    ----------
    rules : str or RuleSet
        The grammar, in the syntax of `fstgrad.losses.transducers.rules.syntax`.
    alphabet : Alphabet, optional
        By default that of the rules.  Rules with symbols outside it are ignored, but an obligatory
        rule that would write one forbids the strings that it reads.

    Raises
    ------
    FstError
        Some lines are wrong (the message lists each with its error), or the transducer is too
        large.
    InvalidInputError
        Neither the grammar nor the caller gives an alphabet.

    Examples
    --------
    >>> loss = RuleLoss("alphabet = chs\nsch -> sh 0.25")
    >>> loss("sch", "sh"), loss("ch", "sh")
    (0.25, 1.0)
    """

    rule_transducer: RuleTransducer

    def __init__(self, rules: str | RuleSet, alphabet: Alphabet | None = None) -> None:
        instance("rules", rules, str | RuleSet, "the text of a grammar, or a RuleSet")
        if alphabet is not None:
            instance("alphabet", alphabet, Alphabet, "an Alphabet")
        self.rules = RuleSet.parse(rules) if isinstance(rules, str) else rules
        compiled = compile_rules(self.rules, alphabet)
        super().__init__(compiled, compiled.alphabet)
