"""CollapsedLoss: the loss of the string to which a latent string collapses."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import FloatArray, IntArray, instance, one_of
from fstgrad.core.errors import AlphabetError, InvalidInputError, NotSupportedError
from fstgrad.core.sequences import items, members
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.band import Band
from fstgrad.losses.automata.collapse import ctc_machine, ended_machine, spelled_machine
from fstgrad.losses.automata.determinize import MAX_STATES
from fstgrad.losses.automata.kernels.arguments import Strings
from fstgrad.losses.automata.machine import TargetMachine
from fstgrad.losses.automata.product import automaton_product
from fstgrad.losses.automata.target_loss import SumTargetLoss, TargetLoss
from fstgrad.losses.base import Engine, Loss, SumLoss
from fstgrad.losses.evaluation import Target
from fstgrad.losses.exact_match import NoLoss
from fstgrad.openfst import Fst

Collapse = Literal["blank", "ctc", "end"]
COLLAPSES: tuple[Collapse, ...] = ("blank", "ctc", "end")


class CollapsedLoss(Loss):
    """The loss L(collapse(z), y_i) of latent strings z, in nats.

    Parameters
    ----------
    loss : Loss
        L, over the symbols of y; not a sum with a rational loss.
    alphabet : Alphabet
        The latent symbols.
    spelling : mapping of latent symbols to sequences of symbols of y, optional
        The symbols of y that a latent symbol spells; () for a symbol that the loss ignores.  A
        symbol that is not listed spells itself.
    collapse : {"blank", "ctc", "end"}, optional
        "blank": remove the symbols of `blank`.  "ctc": replace each run of one symbol by a single
        symbol, then remove `blank`.  "end": a symbol of `blank` ends y, and only such symbols may
        follow; so strings of length l represent all y of lengths 0 .. l.
    blank : sequence of symbols
        Latent symbols; required unless collapse="blank".

    Raises
    ------
    NotSupportedError
        The loss is a sum with a rational loss.
    InvalidInputError
        `blank` is empty although `collapse` needs it, or an argument has the wrong type.
    AlphabetError
        `blank` or `spelling` lists a symbol that is not latent, or a spelling has a symbol outside
        the alphabet of `loss`.

    Notes
    -----
    A target is a latent string too and is collapsed in the same way.  The exception is "ctc": there
    runs of the target are kept, so "aa" has two letters.  A target acceptor is over the alphabet of
    `loss` and is used as it is.

    Examples
    --------
    >>> import fstgrad as fg
    >>> latent = fg.Alphabet(["a", "b", "_", "ab"])
    >>> loss = CollapsedLoss(fg.EditDistance(fg.Alphabet("ab")), latent,
    ...                      {"_": (), "ab": ("a", "b")})
    >>> loss(["_", "ab", "a"], ["a", "b", "b"])
    1.0
    >>> loss.against(["ab", "b"]).losses_of(np.array([[2, 3, 0]]))
    array([1.])
    """

    def __init__(
        self,
        loss: Loss,
        alphabet: Alphabet,
        spelling: Mapping[str, Sequence[str]] | None = None,
        *,
        collapse: Collapse = "blank",
        blank: Sequence[str] = (),
    ) -> None:
        instance("loss", loss, Loss, "a Loss")
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        if loss._is_sum:
            raise NotSupportedError(
                "loss is a sum with a rational loss, or a rational loss with an end, which has no "
                "machine of one semiring; collapse each part by itself and add these up"
            )
        self.loss = loss
        self.alphabet = alphabet
        self.semiring = loss.semiring
        self.collapse = one_of("collapse", collapse, COLLAPSES)
        self.is_blank = _members(alphabet, blank)
        if collapse != "blank" and not self.is_blank.any():
            raise InvalidInputError(
                f"blank is empty; collapse={collapse!r} needs the symbol that the loss leaves out"
            )
        if spelling is not None:
            instance("spelling", spelling, Mapping, "a mapping from symbols to what they stand for")
        known = {} if spelling is None else dict(spelling)
        _members(alphabet, list(known), name="spelling")
        self.words = [
            np.zeros(0, dtype=np.int64)
            if hidden
            else loss.alphabet.encode(
                items(f"spelling of {symbol!r}", known.get(symbol, (symbol,))),
                name=f"spelling of {symbol!r}",
            )
            for symbol, hidden in zip(alphabet, self.is_blank, strict=True)
        ]

    @property
    def transducer(self) -> Fst:
        """Raise NotSupportedError: only the loss of collapsed strings may have a transducer."""
        raise NotSupportedError(
            f"a {type(self).__name__} has no single transducer; use .loss.transducer"
        )

    def read(self, z: SequenceLike) -> IntArray:
        """Return the collapse of the latent string `z`, int64 ids of the alphabet of `loss`.

        `z` is a sequence of symbols or ids; with "end", symbols after the first end are ignored.
        """
        ids = self.alphabet.encode(z, name="z")
        if self.collapse == "ctc":
            ids = ids[np.append(True, ids[1:] != ids[:-1])] if len(ids) else ids
        if self.collapse == "end":
            ends = np.flatnonzero(self.is_blank[ids])
            ids = ids if len(ends) == 0 else ids[: ends[0]]
        return self._spelled(ids)

    def _spelled(self, ids: IntArray) -> IntArray:
        parts = [self.words[i] for i in ids if not self.is_blank[i]]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])

    @property
    def _work(self) -> float | None:
        if self.collapse == "end" or self.loss._work is None:
            return None
        # the machine of "ctc" has up to n + 1 states for each one of `loss`
        return self.loss._work / (len(self.alphabet) + 1 if self.collapse == "ctc" else 1)

    def _of_pairs(self, y: Strings, z: Strings, pairs: IntArray, threads: int) -> FloatArray:
        """Return the losses of the collapsed strings; see `PairEvaluation`."""
        if self._work is None:
            return super()._of_pairs(y, z, pairs, threads)
        collapsed = self._joined_words(y, merges=self.collapse == "ctc")
        return self.loss._of_pairs(collapsed, self._joined_words(z, merges=False), pairs, threads)

    def _joined_words(self, strings: Strings, *, merges: bool) -> Strings:
        """Return what strings spell, without repeats of a symbol if `merges`."""
        ids, first = strings
        kept = np.ones(len(ids), dtype=np.bool_)
        if merges:
            kept[1:] = ids[1:] != ids[:-1]
            kept[first[:-1][first[:-1] < len(ids)]] = True
        sizes = np.array([len(word) for word in self.words])
        counts = np.where(kept, sizes[ids], 0)
        ends = np.append(0, np.cumsum(counts))
        # entry j of the result is this far behind the start of its word
        behind = np.arange(ends[-1]) - np.repeat(ends[:-1], counts)
        starts = np.append(0, np.cumsum(sizes))[ids]
        letters = np.concatenate(self.words)[np.repeat(starts, counts) + behind]
        return Strings(letters, ends[first])

    def _target(self, target: Target) -> Target:
        """Return the target over the alphabet of `loss`, which may be empty."""
        if isinstance(target, Fst):
            return target
        ids = self.alphabet.encode(target, name="target")
        return self._spelled(ids) if self.collapse == "ctc" else self.read(ids)

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
        """Return B over latent strings; the parameters are those of `Loss.compile`."""
        if cap is not None and self._is_sum:  # min(+inf, cap) = cap, but `ends` forbids
            raise NotSupportedError(
                "cap of a rational loss needs a collapse other than 'end'; leave it out"
            )
        b = super().compile(
            target, length, cap=cap, band=band, prune=prune, engine=engine, max_states=max_states
        )
        ends = self._end_loss()
        return (
            b
            if ends is None
            else automaton_product(b, ends.compile(self._symbol, b.length), max_states=max_states)
        )

    def against(
        self, target: Target, *, max_states: int | None = None
    ) -> TargetLoss | SumTargetLoss:
        """Return the loss of latent strings against one target; see `Loss.against`."""
        whole, ends = super().against(target, max_states=max_states), self._end_loss()
        return whole if ends is None else SumTargetLoss((whole, ends.against(self._symbol)))

    def _unchecked(self, target: Target) -> TargetLoss | SumTargetLoss:
        whole, ends = super()._unchecked(target), self._end_loss()
        return whole if ends is None else SumTargetLoss((whole, ends._unchecked(self._symbol)))

    @property
    def _is_sum(self) -> bool:
        return self._end_loss() is not None

    def _end_loss(self) -> Loss | None:
        """Return a loss that is +inf if a symbol follows an end; None if M already forbids this.

        The machine of a rational loss cannot: with smoothing, a string without a path has a finite
        loss.
        """
        if self.collapse != "end" or self.semiring == "tropical":
            return None
        blank = [a for a, hidden in zip(self.alphabet, self.is_blank, strict=True) if hidden]
        return CollapsedLoss(NoLoss(self.alphabet), self.alphabet, collapse="end", blank=blank)

    @property
    def _symbol(self) -> IntArray:
        """A string of one symbol that is not a blank, (1,): a target for `NoLoss`."""
        return np.flatnonzero(~self.is_blank)[:1]

    def _machine_within(self, target: Target, max_states: int | None) -> TargetMachine:
        inner = self.loss._machine_within(self._target(target), max_states)
        machine = spelled_machine(inner, self.words)
        if self.collapse == "ctc":
            return ctc_machine(machine, self.is_blank)
        if self.collapse == "end" and self.semiring == "tropical":
            return ended_machine(machine, self.is_blank)
        return machine

    def _to_loss(self, value: npt.NDArray[Any], machine: TargetMachine) -> FloatArray:
        return self.loss._to_loss(value, machine)


def collapsed(
    loss: Loss, blank: str | Sequence[str] | None, collapse: Collapse | None = None
) -> Loss:
    """Return the loss of strings whose blanks are collapsed; without a blank, `loss` itself.

    A sum is collapsed part by part.

    Parameters
    ----------
    loss : Loss
        Its alphabet contains the blanks.
    blank : symbol or sequence of symbols, optional
    collapse : {"blank", "ctc", "end"}, optional
        As in `CollapsedLoss`; "blank" by default.

    Raises
    ------
    InvalidInputError
        A collapse is given without a blank.
    AlphabetError
        A blank is not in the alphabet of the loss.
    """
    if blank is None:
        if collapse is not None:
            raise InvalidInputError(f"collapse is {collapse!r} without a blank; give blank")
        return loss
    instance("loss", loss, Loss, "a Loss")
    blanks = [blank] if isinstance(blank, str) else members("blank", blank)
    made: Callable[[Loss], Loss] = partial(
        CollapsedLoss,
        alphabet=loss.alphabet,
        collapse="blank" if collapse is None else collapse,
        blank=blanks,
    )
    if isinstance(loss, SumLoss):  # a sum may mix semirings, each part has one
        return SumLoss([made(part) for part in loss.losses])
    return made(loss)


def _members(
    alphabet: Alphabet, symbols: Sequence[str], name: str = "blank"
) -> npt.NDArray[np.bool_]:
    """Return which symbols of the alphabet are listed, (n,) bool."""
    symbols = members(name, symbols)
    for symbol in symbols:
        if not isinstance(symbol, str) or symbol not in alphabet:
            raise AlphabetError(
                f"{name} has {symbol!r}, which is not in the alphabet; add it to the alphabet"
            )
    listed = set(symbols)
    return np.array([symbol in listed for symbol in alphabet], dtype=bool)
