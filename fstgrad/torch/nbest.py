"""Minimum risk over n-best lists: hypotheses of a beam search with scores, and any loss."""

from collections.abc import Sequence
from typing import Any

import torch

from fstgrad.core.alphabet import SequenceLike
from fstgrad.core.checks import instance, one_of
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.infeasible import Infeasible, check_infeasible
from fstgrad.core.sequences import batch
from fstgrad.losses import Loss
from fstgrad.objectives.nbest import NbestLosses
from fstgrad.objectives.strings import IGNORED
from fstgrad.torch import arguments
from fstgrad.torch.arrays import computes_on_device, upcast, validated
from fstgrad.torch.operators import REDUCTIONS, Reduction, measured, persistent, reduced
from fstgrad.torch.strings import IGNORE_INDEX, Gold, Lengths, as_ids, marked

Hypotheses = torch.Tensor | Sequence[Sequence[SequenceLike]] | Sequence[SequenceLike]


@validated
def nbest_risk(
    log_probs: torch.Tensor,
    hypotheses: Hypotheses,
    references: Gold,
    loss: Loss,
    lengths: Lengths = None,
    *,
    reduction: Reduction = "mean",
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
) -> torch.Tensor:
    """Return sum_j p_j L(hypothesis_j, reference) in nats with p = softmax(log_probs).

    This is minimum word error rate training.  The log-probabilities of a beam are renormalised over
    the list, and the exact gradient is p_j (L_j - risk).  Twice differentiable.

    Parameters
    ----------
    log_probs : (B, N), or (N,) for one list; floating point
        Log-weights of the hypotheses; -inf excludes a hypothesis.  They need not be normalised.
    hypotheses : (B, N, L) integer tensor, or B lists of up to N sequences
        One list has no batch axis.  Entries of a tensor equal to `ignore_index` are left out; a
        hypothesis may be empty.
    references : (B, L') integer tensor, or B sequences
    loss : Loss
        Any loss: the compiled kernels compute its value for every hypothesis.  Hypotheses of
        infinite loss are excluded from the softmax.
    lengths : (B,), optional
        Numbers of hypotheses of the lists; later entries are ignored.  Not needed if `hypotheses`
        are lists.
    reduction : {"mean", "sum", "none"}
        Over the lists.
    ignore_index : int
    infeasible : {"raise", "zero"}
        What to do with lists without a hypothesis that has both a log-weight above -inf and a
        finite loss, such as empty lists.  "raise": one error names them all.  "zero": their values
        and gradients are 0; "mean" divides by the number of all lists.

    Raises
    ------
    InvalidInputError
        If shapes do not fit, or a log-weight is NaN.
    InfeasibleError
        If lists are infeasible.

    Notes
    -----
    Prabhavalkar et al. 2018, "Minimum word error rate training for attention-based
    sequence-to-sequence models", section 3.

    Examples
    --------
    >>> import torch, fstgrad as fg, fstgrad.torch
    >>> abc = fg.Alphabet(["the", "cat", "sat"])
    >>> scores = torch.zeros(2, requires_grad=True)
    >>> beam = [["the", "cat"], ["the", "sat"]]
    >>> value = fstgrad.torch.nbest_risk(scores, beam, ["the", "cat"], fg.EditDistance(abc))
    >>> value.backward()
    >>> value.item(), scores.grad.tolist()
    (0.5, [-0.25, 0.25])
    """
    one_of("reduction", reduction, REDUCTIONS)
    check_infeasible(infeasible)
    arguments.floating("log_probs", log_probs)
    instance("loss", loss, Loss, "a Loss")
    if log_probs.ndim not in (1, 2):
        raise InvalidInputError(f"log_probs has the shape {tuple(log_probs.shape)}; give (B, N)")
    single = log_probs.ndim == 1
    if single:
        log_probs = log_probs[None]
        hypotheses, references = _one(hypotheses), _one(references)
    ids, counts = _as_table(hypotheses, loss, log_probs, ignore_index)
    golds = as_ids(references, loss, ignore_index, is_batch=True, name="references")
    if len(golds) != len(log_probs):
        raise InvalidInputError(
            f"log_probs has {len(log_probs)} lists; references has {len(golds)}"
        )
    if lengths is not None:
        counts = arguments.integer_per_item("lengths", lengths, len(log_probs))
    key = persistent(NbestLosses, loss, infeasible=infeasible)
    known = torch.zeros(log_probs.shape) if computes_on_device(log_probs) else log_probs
    losses = measured(key, log_probs, [ids, golds, counts, known])
    finite = losses.isfinite()  # False outside of the lists, and in all of an infeasible list
    scores = upcast(log_probs).to(torch.float64).masked_fill(~finite, -torch.inf)
    none = (scores == -torch.inf).all(dim=1, keepdim=True)
    bad = none | ~(scores < torch.inf).all(dim=1, keepdim=True)  # which only a device has here
    shares = torch.softmax(torch.where(bad, 0.0, scores), dim=1)
    risks = (shares * losses.masked_fill(~finite, 0.0)).sum(dim=1).to(upcast(log_probs).dtype)
    risks = torch.where(bad[:, 0], torch.nan, risks)
    if infeasible == "zero":
        risks = torch.where(none[:, 0], 0.0, risks)
    return risks[0] if single and reduction == "none" else reduced(risks, reduction)


def _one(given: Any) -> Any:
    """Return a batch of one item."""
    return given[None] if isinstance(given, torch.Tensor) else [given]


def _as_table(
    hypotheses: Hypotheses, loss: Loss, log_probs: torch.Tensor, ignore_index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids (B, N, L), `IGNORED` at unused positions, and numbers of hypotheses (B,)."""
    if isinstance(hypotheses, torch.Tensor):
        ids = marked("hypotheses", hypotheses, ignore_index)
        if hypotheses.shape[:2] != log_probs.shape or hypotheses.ndim != 3:
            raise InvalidInputError(
                f"hypotheses has the shape {tuple(hypotheses.shape)}, log_probs "
                f"{tuple(log_probs.shape)}; give (B, N, L) and (B, N)"
            )
        return ids, torch.full(log_probs.shape[:1], log_probs.shape[1])
    lists = [batch(f"hypotheses[{i}]", y) for i, y in enumerate(batch("hypotheses", hypotheses))]
    if len(lists) != len(log_probs):
        raise InvalidInputError(
            f"log_probs has {len(log_probs)} lists; hypotheses has {len(lists)}"
        )
    counts = [len(own) for own in lists]
    if max(counts, default=0) > log_probs.shape[1]:
        raise InvalidInputError(
            f"a list has {max(counts)} hypotheses, but log_probs has {log_probs.shape[1]} columns; "
            "give a column for each"
        )
    every = [y for own in lists for y in own]
    flat = as_ids(every, loss, ignore_index, is_batch=True, name="hypotheses")
    ids = torch.full((*log_probs.shape, flat.shape[1]), IGNORED)
    rows = [j + i * log_probs.shape[1] for i, count in enumerate(counts) for j in range(count)]
    ids.flatten(0, 1)[rows] = flat
    return ids, torch.tensor(counts)
