"""Objectives over alignments with blanks (CTC): the loss applies to the collapsed path."""

from typing import Any, Literal

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray, IntArray, instance
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.uninitialized import empty
from fstgrad.losses import CollapsedLoss, ExactMatch, Loss
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.cache import AutomatonCache
from fstgrad.objectives.base import ALONE, Array, Arrays, Objective, Team
from fstgrad.objectives.strings import IGNORED, check_ids
from fstgrad.strings import risk as array_risk
from fstgrad.strings.objectives import latent_softmax_margin

CTCKind = Literal["nll", "softmax-margin", "risk"]
_AUTOMATA = AutomatonCache()


def check_labels(kind: CTCKind, loss: Loss | None, n: int, blank: Any) -> None:
    """Raise InvalidInputError unless the blank and the loss are over the n labels of the scores."""
    instance("loss", loss, Loss | None, "a Loss over the labels of the scores")
    if isinstance(blank, bool) or not isinstance(blank, int):
        raise InvalidInputError(f"blank is {blank!r}; give the id of the blank")
    if not 0 <= blank < n:
        raise InvalidInputError(f"blank is {blank}; the scores are for the labels 0 to {n - 1}")
    if kind != "nll" and (loss is None or len(loss.alphabet) != n):
        size = "no loss" if loss is None else f"a loss over {len(loss.alphabet)} symbols"
        raise InvalidInputError(
            f"scores are for {n} labels; got {size}: give a loss over the labels"
        )


class CTCObjective(Objective):
    """An objective over the paths of each item.

    Scores are one array (B, T, n), log-weights in nats.  Constants are gold (B, L) ids, padded with
    `IGNORED`, and optionally the numbers of frames (B,).

    Parameters
    ----------
    kind : {"nll", "softmax-margin", "risk"}
    loss : Loss over the labels, or None for "nll"
    n, blank : int
        The number of labels, and the id of the blank.
    cap, band : as in `Loss.compile`
    """

    def __init__(self, kind: CTCKind, loss: Loss | None, n: int, blank: int, *options: Any) -> None:
        self.kind, self.options = kind, options or (None, None)
        self.n, self.blank = n, blank
        self.what = f"ctc {kind.replace('-', ' ')}"
        abc = Alphabet(map(str, range(n))) if loss is None else loss.alphabet
        hidden = [abc.symbols[blank]]
        self.gold = CollapsedLoss(ExactMatch(abc), abc, collapse="ctc", blank=hidden)
        self.loss = None
        if loss is not None:
            self.loss = CollapsedLoss(loss, abc, collapse="ctc", blank=hidden)

    def evaluate(
        self, scores: Arrays, constants: Arrays, team: Team = ALONE
    ) -> tuple[Array, Arrays]:
        """Return the values (B,) in nats and the gradient (B, T, n).

        Raises
        ------
        InvalidInputError
            A gold string has the blank, or an id that is not a symbol.
        """
        (table,), (ids, *rest) = scores, constants
        sizes = rest[0] if rest else np.full(len(table), table.shape[1])
        targets = [row[row != IGNORED] for row in ids]
        self._check(targets)
        compiled = [self._compiled(t, int(size)) for t, size in zip(targets, sizes, strict=True)]
        values, gradient = empty(len(table)), np.zeros(table.shape, dtype=table.dtype)

        def run(i: int) -> None:
            gold, b = compiled[i]
            frames = table[i, : sizes[i]]
            values[i], gradient[i, : sizes[i]] = self._one(frames, gold, b)

        team.each(len(table), run)
        return values, [gradient]

    def _check(self, targets: list[IntArray]) -> None:
        for i, target in enumerate(targets):
            if len(target) and (target == self.blank).any():
                raise InvalidInputError(f"gold[{i}] has the blank, {self.blank}; leave blanks out")
        check_ids(targets, self.n)

    def _one(
        self, scores: Array, gold: LossAutomaton | None, b: LossAutomaton | None
    ) -> tuple[float, FloatArray]:
        if gold is not None:
            return latent_softmax_margin(scores, gold, b)
        return array_risk(scores, b)  # type: ignore[arg-type]  # a risk has a loss

    def _compiled(
        self, target: IntArray, size: int
    ) -> tuple[LossAutomaton | None, LossAutomaton | None]:
        """Return the automaton of the paths that collapse to gold, and that of the loss."""
        cap, band = self.options
        gold = b = None
        if self.kind != "risk":
            gold = _AUTOMATA.automaton(self.gold, target, size)
        if self.loss is not None:
            b = _AUTOMATA.automaton(self.loss, target, size, cap=cap, band=band)
        return gold, b
