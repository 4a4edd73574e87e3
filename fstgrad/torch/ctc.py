"""Objectives over alignments with blanks: the loss sees what a path of T labels collapses to.

The collapse is that of connectionist temporal classification (CTC): runs of one label become one,
then blanks are left out.  Each objective is exact and comes with its exact gradient.
"""

from typing import Any, Literal

import numpy as np
import torch

from fstgrad.alphabet import Alphabet
from fstgrad.automata.automaton import LossAutomaton
from fstgrad.automata.band import Band
from fstgrad.checks import FloatArray, IntArray, instance
from fstgrad.errors import InvalidInputError
from fstgrad.losses import CollapsedLoss, ExactMatch, Loss
from fstgrad.losses.cache import AutomatonCache
from fstgrad.strings import risk as array_risk
from fstgrad.strings.latent import latent_softmax_margin
from fstgrad.torch import arguments
from fstgrad.torch.operators import Array, Arrays, Objective, keep, values
from fstgrad.torch.reductions import Reduction, reduced
from fstgrad.torch.strings import IGNORE_INDEX, Gold, Lengths, as_ids, checked_lengths
from fstgrad.torch.threads import each

CTCKind = Literal["nll", "softmax margin", "risk"]
_AUTOMATA = AutomatonCache()


def ctc_nll(
    scores: torch.Tensor,
    gold: Gold,
    *,
    blank: int = 0,
    lengths: Lengths = None,
    reduction: Reduction = "mean",
    ignore_index: int = IGNORE_INDEX,
) -> torch.Tensor:
    """Return -log p(gold) in nats, summed over all paths that collapse to gold.

    With log-probabilities of each position as scores it equals `torch.nn.functional.ctc_loss`
    (reduction "none"; "mean" here is over the items, without division by target lengths).  Scores
    need not be normalized: log Z of all paths is subtracted.

    Parameters
    ----------
    scores : (B, T, n) or (T, n) floating point
        Log-weights of labels; positions beyond a length get no gradient.
    gold : (B, S) or (S,) integer tensor, or sequences of ids
        The targets, without blanks; entries equal to `ignore_index` are padding.
    blank : int
        The id of the blank.
    lengths : (B,), optional
        Numbers of positions of the items.
    reduction : {"mean", "sum", "none"}

    Raises
    ------
    InfeasibleError
        A target needs more positions than its item has.

    References
    ----------
    Graves, Fernandez, Gomez and Schmidhuber (2006), Eq. 3.
    """
    return _evaluated("nll", scores, gold, None, blank, lengths, reduction, ignore_index)


def ctc_softmax_margin(
    scores: torch.Tensor,
    gold: Gold,
    loss: Loss,
    *,
    blank: int = 0,
    lengths: Lengths = None,
    reduction: Reduction = "mean",
    ignore_index: int = IGNORE_INDEX,
    cap: float | None = None,
    band: Band | None = None,
) -> torch.Tensor:
    """Return log sum over paths exp(L + score) less the log-weight of gold, in nats.

    The sum runs over all paths, and L is the loss of what a path collapses to against gold.

    Parameters
    ----------
    loss : Loss
        Over the n labels of the scores, the blank among them.
    cap, band
        As in `Loss.compile`: exact automata grow fast beyond 15 positions, capped ones linearly.

    Other parameters as in `ctc_nll`.

    Examples
    --------
    >>> import torch, fstgrad as fg, fstgrad.torch
    >>> loss = fg.EditDistance(fg.Alphabet("_ab"))
    >>> scores = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    >>> value = fstgrad.torch.ctc_softmax_margin(scores, [1, 2], loss)
    >>> value.backward()
    >>> bool((scores.grad.sum(1).abs() < 1e-12).all())
    True
    """
    options = (cap, band)
    return _evaluated(
        "softmax margin", scores, gold, loss, blank, lengths, reduction, ignore_index, options
    )


def ctc_risk(
    scores: torch.Tensor,
    gold: Gold,
    loss: Loss,
    *,
    blank: int = 0,
    lengths: Lengths = None,
    reduction: Reduction = "mean",
    ignore_index: int = IGNORE_INDEX,
    cap: float | None = None,
    band: Band | None = None,
) -> torch.Tensor:
    """Return the expected loss of what a path collapses to, under exp(score) / Z, in nats.

    Parameters as in `ctc_softmax_margin`.
    """
    options = (cap, band)
    return _evaluated("risk", scores, gold, loss, blank, lengths, reduction, ignore_index, options)


class CTCObjective(Objective):
    """One objective over the paths of each item.

    Parameters
    ----------
    kind : {"nll", "softmax margin", "risk"}
    loss : Loss over the labels, or None for "nll"
    n, blank : number of labels, and which of them is the blank
    cap, band : as in `Loss.compile`
    """

    def __init__(self, kind: CTCKind, loss: Loss | None, n: int, blank: int, *options: Any) -> None:
        self.kind, self.options = kind, options or (None, None)
        self.what = f"ctc {kind}"
        abc = Alphabet(map(str, range(n))) if loss is None else loss.alphabet
        hidden = [abc.symbols[blank]]
        self.gold = CollapsedLoss(ExactMatch(abc), abc, collapse="ctc", blank=hidden)
        self.loss = None
        if loss is not None:
            self.loss = CollapsedLoss(loss, abc, collapse="ctc", blank=hidden)

    def evaluate(self, scores: Arrays, constants: Arrays) -> tuple[Array, Arrays]:
        """Run the passes of each item, the items in the threads that PyTorch uses."""
        (table,), (ids, *rest) = scores, constants
        sizes = rest[0] if rest else np.full(len(table), table.shape[1])
        targets = [row[row >= 0] for row in ids]
        compiled = [self._compiled(t, int(size)) for t, size in zip(targets, sizes, strict=True)]
        found, gradient = np.empty(len(table)), np.zeros(table.shape, dtype=table.dtype)

        def run(i: int) -> None:
            gold, b = compiled[i]
            own = table[i, : sizes[i]]
            found[i], gradient[i, : sizes[i]] = self._one(own, gold, b)

        each(len(table), run)
        return found, [gradient]

    def _one(
        self, scores: Array, gold: LossAutomaton | None, b: LossAutomaton | None
    ) -> tuple[float, FloatArray]:
        if gold is not None:
            return latent_softmax_margin(scores, gold, b)
        return array_risk(scores, b)  # type: ignore[arg-type]  # a risk has a loss

    def _compiled(
        self, target: IntArray, size: int
    ) -> tuple[LossAutomaton | None, LossAutomaton | None]:
        """Return the automaton of the paths of gold, and that of the loss."""
        cap, band = self.options
        gold = b = None
        if self.kind != "risk":
            gold = _AUTOMATA.automaton(self.gold, target, size)
        if self.loss is not None:
            b = _AUTOMATA.automaton(self.loss, target, size, cap=cap, band=band)
        return gold, b


def _evaluated(
    kind: CTCKind,
    scores: torch.Tensor,
    gold: Gold,
    loss: Loss | None,
    blank: int,
    lengths: Lengths,
    reduction: Reduction,
    ignore_index: int,
    options: tuple[float | None, Band | None] = (None, None),
) -> torch.Tensor:
    """Put the arguments into the form of a batch and evaluate."""
    arguments.floating("scores", scores)
    instance("loss", loss, Loss | None, "a Loss over the labels of the scores")
    if isinstance(blank, bool) or not isinstance(blank, int):
        raise InvalidInputError(f"blank is {blank!r}; give the id of the blank")
    is_batch = scores.ndim == 3
    if scores.ndim not in (2, 3):
        raise InvalidInputError(
            f"scores have the shape {tuple(scores.shape)}; give (B, T, n), or (T, n)"
        )
    n = scores.shape[-1]
    if not 0 <= blank < n:
        raise InvalidInputError(f"blank is {blank}; the scores are for the labels 0 to {n - 1}")
    if kind != "nll" and (loss is None or len(loss.alphabet) != n):
        size = "no loss" if loss is None else f"a loss over {len(loss.alphabet)} symbols"
        raise InvalidInputError(f"scores are for {n} labels; got {size}: give one over the labels")
    ids = as_ids(gold, loss, ignore_index, is_batch=is_batch)
    if not is_batch:
        scores, ids = scores[None], ids[None]
    if len(ids) != len(scores):
        raise InvalidInputError(f"scores have {len(scores)} items; gold has {len(ids)}")
    constants = [ids]
    if lengths is not None:
        constants.append(checked_lengths(lengths, scores[..., 0]))
    if not torch.compiler.is_compiling() and bool((ids == blank).any()):
        raise InvalidInputError(f"gold has the blank, {blank}; targets hold no blanks")
    found = values(keep(CTCObjective, kind, loss, n, blank, *options), [scores], constants)
    return found[0] if not is_batch and reduction == "none" else reduced(found, reduction)
