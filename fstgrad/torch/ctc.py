"""Objectives over alignments with blanks: the loss is that of the collapsed path of T labels.

The collapse is that of connectionist temporal classification (CTC): runs of one label become one
label, then blanks are removed.  The likelihood is exact; margins and risks are exact or sampled.
"""

from typing import NamedTuple, cast

import numpy as np
import torch

from fstgrad.core.checks import one_of
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.infeasible import Infeasible, check_infeasible
from fstgrad.losses import Loss
from fstgrad.losses.automata.band import Band
from fstgrad.objectives.base import Arrays, Objective
from fstgrad.objectives.ctc import (
    CTCKind,
    CTCLikelihood,
    CTCObjective,
    check_labels,
    ctc_options,
)
from fstgrad.objectives.infeasible import FeasibleItems
from fstgrad.objectives.sampling import Method, Options, Sampling
from fstgrad.objectives.strings import IGNORED, Item
from fstgrad.torch import arguments
from fstgrad.torch.arrays import computes_on_device, to_numpy, upcast, validated
from fstgrad.torch.device import ctc as on_device
from fstgrad.torch.device import strings
from fstgrad.torch.operators import REDUCTIONS, Reduction, objective_of, persistent, reduced, values
from fstgrad.torch.strings import IGNORE_INDEX, Gold, Lengths, as_ids, checked_lengths, packed
from fstgrad.torch.threads import team
from fstgrad.torch.transforms import knows_values, refuse_transforms, uncompiled


@validated
def ctc_nll(
    scores: torch.Tensor,
    gold: Gold,
    *,
    blank: int = 0,
    lengths: Lengths = None,
    reduction: Reduction = "mean",
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
) -> torch.Tensor:
    """Return -log p(gold) in nats, summed over all paths that collapse to gold.

    If the scores are log-probabilities at each position, the result equals
    `torch.nn.functional.ctc_loss` with reduction "none"; "mean" here is the mean over the items,
    without division by target lengths.  Scores need not be normalized: log Z of all paths is
    subtracted.  Twice differentiable.  O(B T S) time, O(B T n) memory; the result does not depend
    on the number of threads, nor on the other items.

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
    infeasible : {"raise", "zero"}
        What to do with items whose target needs more frames, or whose paths of gold have scores of
        -inf.  "raise": one error names them all.  "zero": their values and gradients are 0, as with
        PyTorch's zero_infinity; "mean" divides by the number of all items.

    References
    ----------
    Graves, Fernandez, Gomez and Schmidhuber (2006), Eq. 3.
    """
    given = (scores, gold, None, blank, lengths, ignore_index)
    return _evaluated("nll", given, (reduction, infeasible))


@validated
def ctc_softmax_margin(
    scores: torch.Tensor,
    gold: Gold,
    loss: Loss,
    *,
    blank: int = 0,
    lengths: Lengths = None,
    reduction: Reduction = "mean",
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
    cap: float | None = None,
    band: Band | None = None,
    method: Method | None = None,
    sampling: Sampling | None = None,
) -> torch.Tensor:
    """Return log sum over paths exp(L + score) minus the log-weight of gold, in nats.

    The sum runs over all paths, and L is the loss of the collapsed path against gold.

    Parameters
    ----------
    loss : Loss
        A loss over the n labels of the scores, including the blank.
    cap, band
        As in `softmax_margin`: the loss min(L, cap), or that of the alignments within a band.
    method : {"exact", "sampled", "auto"}, optional
        As in `softmax_margin`.  By default "auto", or "exact" if a cap or a band is given: exact
        automata grow fast with the positions and the labels of gold, capped ones more slowly.
    sampling : Sampling, optional
        As in `softmax_margin`; an unreliable estimate is a warning.

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
    options = ctc_options(cap, band, method, sampling)
    given = (scores, gold, loss, blank, lengths, ignore_index)
    return _evaluated("softmax-margin", given, (reduction, infeasible), options)


@validated
def ctc_risk(
    scores: torch.Tensor,
    gold: Gold,
    loss: Loss,
    *,
    blank: int = 0,
    lengths: Lengths = None,
    reduction: Reduction = "mean",
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
    cap: float | None = None,
    band: Band | None = None,
    method: Method | None = None,
    sampling: Sampling | None = None,
) -> torch.Tensor:
    """Return the expected loss of the collapsed path under exp(score) / Z, in nats.

    Parameters as in `ctc_softmax_margin`.
    """
    options = ctc_options(cap, band, method, sampling)
    given = (scores, gold, loss, blank, lengths, ignore_index)
    return _evaluated("risk", given, (reduction, infeasible), options)


class CTCAlignment(NamedTuple):
    """The best path of each item of a batch (B axes) or of one item.

    Attributes
    ----------
    labels : (B, T) int64
        The label of each frame, -100 beyond the frames of an item.
    start, end : (B, S) int64
        Label i of gold is read in the frames start[i] .. end[i] - 1; -100 where gold is padding.
    log_prob : (B,)
        log p(path) in nats among all paths, in the dtype of the scores (half precision: float32).
    """

    labels: torch.Tensor
    start: torch.Tensor
    end: torch.Tensor
    log_prob: torch.Tensor


@uncompiled
def ctc_align(
    scores: torch.Tensor,
    gold: Gold,
    *,
    blank: int = 0,
    lengths: Lengths = None,
    ignore_index: int = IGNORE_INDEX,
) -> CTCAlignment:
    """Return the most probable path that collapses to gold: forced alignment.

    Of equal paths, the one whose last label ends first and begins first, then the label before, and
    so on.  Not differentiable; O(B T S).

    Parameters as in `ctc_nll`.

    Raises
    ------
    InfeasibleError
        If a target needs more positions than its item has, or its paths have scores of -inf.

    Examples
    --------
    >>> import torch, fstgrad.torch as fgt
    >>> scores = torch.tensor([[2.0, 0, 0], [0, 2, 0], [0, 2, 0], [0, 0, 2]])
    >>> best = fgt.ctc_align(scores, [1, 2])
    >>> best.labels.tolist(), best.start.tolist(), best.end.tolist()
    ([0, 1, 1, 2], [1, 3], [3, 4])
    """
    tables, constants, is_batch = _arguments(
        "nll", scores, gold, None, blank, lengths, ignore_index
    )
    if computes_on_device(scores):
        found = _aligned(tables[0], constants, int(blank))
        return found if is_batch else CTCAlignment(*(part[0] for part in found))
    arrays, fixed = ([to_numpy(t) for t in tensors] for tensors in (tables, constants))
    parts = list(map(torch.from_numpy, CTCLikelihood(blank).align(arrays, fixed, team())))
    parts[3] = parts[3].to(upcast(scores).dtype)
    return CTCAlignment(*(parts if is_batch else [part[0] for part in parts]))


def _aligned(scores: torch.Tensor, constants: list[torch.Tensor], blank: int) -> CTCAlignment:
    """Return the best paths by operations of PyTorch; -100 and NaN for an item without a path."""
    states = on_device.states_of(scores, *constants, blank=blank, ignored=IGNORED)
    path, log_prob = on_device.best_states(scores, states)
    good = ~log_prob.isnan()[:, None]
    kept = (constants[0] != IGNORED).to(scores.device, non_blocking=True)
    reads = 2 * kept.cumsum(dim=1) - 1  # the state of each label of gold
    labels = torch.where(states.inside & good, states.labels.gather(1, path), IGNORE_INDEX)
    inside = states.inside[..., None]
    start, end = (
        torch.where(kept & good, (inside & (path[..., None] < state[:, None])).sum(1), IGNORE_INDEX)
        for state in (reads, reads + 1)
    )
    return CTCAlignment(labels, start, end, log_prob.to(upcast(scores).dtype))


# scores, gold, loss, blank, lengths, ignore_index
_Given = tuple[torch.Tensor, Gold, Loss | None, int, Lengths, int]


def _evaluated(
    kind: CTCKind,
    given: _Given,
    treatment: tuple[Reduction, Infeasible],
    options: Options | None = None,
) -> torch.Tensor:
    """Convert the arguments to a batch and evaluate the objective.

    treatment : of the values, and of infeasible items.
    """
    reduction, infeasible = treatment
    one_of("reduction", reduction, REDUCTIONS)
    check_infeasible(infeasible)
    tables, constants, is_batch = _arguments(kind, *given)
    loss, blank = given[2], int(given[3])  # NumPy's integers, too
    if computes_on_device(tables[0]):
        known = _on_device((kind, loss, blank, options), tables[0], constants, infeasible)
        if known is not None:
            known = known.to(upcast(tables[0]).dtype)
            return known[0] if not is_batch and reduction == "none" else reduced(known, reduction)
    objective = (
        persistent(CTCLikelihood, blank, infeasible=infeasible)
        if options is None
        else persistent(CTCObjective, kind, loss, blank, *options, infeasible=infeasible)
    )
    per_item = values(objective, tables, constants)
    return per_item[0] if not is_batch and reduction == "none" else reduced(per_item, reduction)


def _on_device(
    settings: tuple[CTCKind, Loss | None, int, Options | None],
    scores: torch.Tensor,
    constants: list[torch.Tensor],
    infeasible: Infeasible,
) -> torch.Tensor | None:
    """Return the values (B,) by operations of PyTorch, None if an item is sampled."""
    if not torch.compiler.is_compiling():
        refuse_transforms([scores])
    kind, loss, blank, options = settings
    states = on_device.states_of(scores, *constants, blank=blank, ignored=IGNORED)
    if options is None:
        results = on_device.nll(scores, states)
    else:
        key = persistent(CTCObjective, kind, loss, blank, *options, infeasible=infeasible)
        batch = _packed(cast(FeasibleItems, objective_of(key)), scores, constants)
        if batch is None:
            return None
        if kind == "risk":
            results = strings.risk(upcast(scores), batch)
        else:
            log_gold = on_device.log_gold(scores, states)
            results = strings.log_partition(upcast(scores), batch) - log_gold
    if infeasible == "raise":
        return results
    good = ((scores < torch.inf) | ~states.inside[..., None]).flatten(1).all(dim=1)
    return torch.where(results.isnan() & good & states.is_valid, 0.0, results)


@uncompiled
def _packed(
    objective: FeasibleItems, scores: torch.Tensor, constants: list[torch.Tensor]
) -> strings.Batch | None:
    """Return the automata of the items, on the device; gold is needed on the CPU.

    None if an item is sampled, or has no frame.
    """
    shape = tuple(scores.shape)
    arrays = [np.broadcast_to(np.zeros(()), shape)], [c.cpu().numpy() for c in constants]

    def read(own: Objective, shapes: Arrays, golds: Arrays) -> list[Item]:
        return cast(CTCObjective, own).items(*shapes, *golds)

    kept, items = objective.feasible_items(read, *arrays)
    if not items or len(kept) < len(scores) or any(item.automaton is None for item in items):
        return None
    options = cast(CTCObjective, objective.objective).options
    if options.sampling is not None:
        options.sampling.keep([])  # an estimate has the value, which is on the device
    return packed(items, shape, scores.device)


def _arguments(
    kind: CTCKind,
    scores: torch.Tensor,
    gold: Gold,
    loss: Loss | None,
    blank: int,
    lengths: Lengths,
    ignore_index: int,
) -> tuple[list[torch.Tensor], list[torch.Tensor], bool]:
    """Return scores and constants with a batch axis, and whether they were given with one."""
    arguments.floating("scores", scores)
    is_batch = scores.ndim == 3
    if scores.ndim not in (2, 3):
        raise InvalidInputError(
            f"scores have the shape {tuple(scores.shape)}; give (B, T, n), or (T, n)"
        )
    check_labels(kind, loss, scores.shape[-1], blank)
    ids = as_ids(gold, loss, ignore_index, is_batch=is_batch)
    if not is_batch:
        scores, ids = scores[None], ids[None]
    if len(ids) != len(scores):
        raise InvalidInputError(f"scores have {len(scores)} items; gold has {len(ids)}")
    constants = [ids]
    if lengths is not None:
        constants.append(checked_lengths(lengths, scores[..., 0], "frames of scores", 0))
    is_known = knows_values(ids) and not computes_on_device(scores)
    if is_known and bool((ids == blank).any()):
        raise InvalidInputError(f"gold has the blank, {blank}; targets hold no blanks")
    return [scores], constants, is_batch
