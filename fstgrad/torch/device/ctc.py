"""Paths with blanks that collapse to gold strings: all states of a frame of the batch at once.

The recursion is that of `fstgrad.strings.kernels.ctc`, on logarithms in float64: its cost is that
of launching the operators, and long sequences keep their digits.  Terms of the states before are
shifted copies, so nothing is scattered.
"""

from typing import Any, NamedTuple

import torch

from fstgrad.torch.device.sums import finite, is_used, log_sum, valid
from fstgrad.torch.fused.available import STATES, fused


class States(NamedTuple):
    """The 2 S + 1 states of the paths of each item, up to the longest gold string.

    labels : (B, 2 S + 1), the label that a state reads, in 0 .. n - 1
    barred : (B, 2 S + 1), 0 if the blank before the state may be skipped, otherwise -inf
    last : (B, 2 S + 1) bool, the states in which a path may end
    inside : (B, T) bool, the frames of the items
    is_valid : (B,) bool, whether all ids of gold are labels other than the blank, and the number
        of frames is at most T
    """

    labels: torch.Tensor
    barred: torch.Tensor
    last: torch.Tensor
    inside: torch.Tensor
    is_valid: torch.Tensor


def states_of(
    scores: torch.Tensor,
    ids: torch.Tensor,
    frames: torch.Tensor | None = None,
    *,
    blank: int,
    ignored: int,
) -> States:
    """Return the states of scores (B, T, n) and gold (B, S), in which `ignored` is left out."""
    items, length, n = scores.shape
    kept = ids != ignored
    gold = ids.gather(1, torch.argsort(~kept, dim=1, stable=True))
    counts = kept.sum(dim=1, keepdim=True).to(scores.device, non_blocking=True)
    gold = gold.to(scores.device, non_blocking=True)
    exists = torch.arange(gold.shape[1], device=gold.device) < counts
    is_valid = ~(exists & ((gold < 0) | (gold >= n) | (gold == blank))).any(dim=1)
    gold = torch.where(exists, gold.clamp(0, n - 1), blank)
    labels = torch.stack([torch.full_like(gold, blank), gold], dim=2).flatten(1)
    labels = torch.nn.functional.pad(labels, (0, 1), value=blank)
    place = torch.arange(labels.shape[1], device=gold.device)
    before = torch.nn.functional.pad(labels, (2, 0), value=-1)[:, : labels.shape[1]]
    barred = torch.zeros_like(labels, dtype=torch.float64)
    barred = barred.masked_fill((place % 2 == 0) | (labels == before), -torch.inf)
    last = (place == 2 * counts) | (place == 2 * counts - 1)
    inside = torch.ones(items, length, dtype=torch.bool, device=scores.device)
    if frames is not None:
        known = frames.to(scores.device, non_blocking=True)
        inside = torch.arange(length, device=scores.device) < known[:, None]
        is_valid = is_valid & (known >= 0) & (known <= length)
    return States(labels, barred, last, inside, is_valid)


def nll(scores: torch.Tensor, states: States) -> torch.Tensor:
    """Return -log p(gold) (B,) float64 in nats, NaN for an item without a path."""
    relative = _relative(scores, states)
    log_z = torch.where(states.inside, log_sum(relative), 0.0).sum(dim=1)
    return log_z - _log_gold(relative, states)


def log_gold(scores: torch.Tensor, states: States) -> torch.Tensor:
    """Return log sum exp(score) (B,) over the paths of gold, less the largest score of a frame."""
    return _log_gold(_relative(scores, states), states)


def best_states(scores: torch.Tensor, states: States) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the states of the best path (B, T) and log p(path) (B,), as `GoldPaths.best`.

    Of an item without a path, log p is NaN, and the states are arbitrary.
    """
    relative = _relative(scores.detach(), states)
    emissions = relative.gather(2, _expanded(states.labels, relative))
    best, pointers = _start(emissions), []
    for emission, here in zip(emissions.unbind(1), states.inside[..., None].unbind(1), strict=True):
        score, distance = _terms(best, states.barred).max(dim=0)  # the first one among ties
        arrived = torch.nn.functional.pad(score + emission, (2, 0), value=-torch.inf)
        best = torch.where(here, arrived, best)
        pointers.append(torch.where(here, distance, 0))
    ends = torch.where(states.last, best[:, 2:], -torch.inf).flip(1)  # the blank before the label
    top, place = ends.max(dim=1, keepdim=True)
    state, path = ends.shape[1] - 1 - place, []
    for pointer in reversed(pointers):
        path.append(state)
        state = state - pointer.gather(1, state.clamp_min(0))
    table = torch.cat(path[::-1], dim=1)
    log_z = torch.where(states.inside, relative.logsumexp(dim=2), 0.0).sum(dim=1)
    log_p = (valid(top[:, 0]) - log_z).clamp_max(0.0)
    return table, torch.where(states.is_valid, log_p, torch.nan)


def _relative(scores: torch.Tensor, states: States) -> torch.Tensor:
    """Return float64 scores less the largest of their frame, 0 beyond the frames of an item."""
    known = torch.where(states.inside[..., None], scores, 0.0).double()
    return known - finite(known.detach().amax(dim=2, keepdim=True))


def _log_gold(relative: torch.Tensor, states: States) -> torch.Tensor:
    emissions = _Emissions.apply(relative, states.labels)  # type: ignore[no-untyped-call]
    given = emissions, states.barred, states.last, states.inside
    if fused(emissions) and emissions.shape[2] <= STATES:
        from fstgrad.torch.fused import ctc

        total = ctc.log_total(*given, _log_total)
    else:
        total = _log_total(*given)
    # no label in no frame is certain
    total = torch.where(states.inside.any(dim=1) | ~states.last[:, 0], total, 0.0)
    return torch.where(states.is_valid, valid(total), torch.nan)


def _log_total(
    emissions: torch.Tensor, barred: torch.Tensor, last: torch.Tensor, inside: torch.Tensor
) -> torch.Tensor:
    """Return the log of the sum over the paths (B,), -inf without one."""
    weights = _start(emissions)
    for emission, here in zip(emissions.unbind(1), inside[..., None].unbind(1), strict=True):
        arrived = _Into.apply(weights, barred)  # type: ignore[no-untyped-call]
        arrived = torch.nn.functional.pad(arrived + emission, (2, 0), value=-torch.inf)
        weights = torch.where(here, arrived, weights)
    return log_sum(torch.where(last, weights[:, 2:], -torch.inf))


def _start(emissions: torch.Tensor) -> torch.Tensor:
    """Return the log-weights (B, 2 S + 3) before the first frame, with two states in front.

    A path starts in the second one, from which it steps or skips to the first two states.
    """
    place = torch.arange(emissions.shape[2] + 2, device=emissions.device)
    start = torch.where(place == 1, 0.0, -torch.inf).to(emissions.dtype)
    return start.expand(len(emissions), -1)


def _terms(weights: torch.Tensor, barred: torch.Tensor) -> torch.Tensor:
    """Return the log-weights (3, B, 2 S + 1) of staying, of stepping and of skipping a blank."""
    return torch.stack([weights[:, 2:], weights[:, 1:-1], weights[:, :-2] + barred])


def _expanded(labels: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    return labels[:, None].expand(-1, scores.shape[1], -1)


class _Emissions(torch.autograd.Function):
    """The scores (B, T, 2 S + 1) of the states' labels; backward, a product with one-hot rows."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(labels)
        ctx.n = scores.shape[2]
        return scores.gather(2, _expanded(labels, scores))

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None]:
        (labels,) = ctx.saved_tensors
        is_read = labels[..., None] == torch.arange(ctx.n, device=labels.device)
        return upstream[0] @ is_read.to(upstream[0].dtype), None


class _Into(torch.autograd.Function):
    """The log-sum-exp of `_terms`; 0 arrives where nothing depends on the result."""

    @staticmethod
    def forward(ctx: Any, weights: torch.Tensor, barred: torch.Tensor) -> torch.Tensor:
        result = _terms(weights, barred).logsumexp(dim=0)
        ctx.save_for_backward(weights, barred, result)
        return result

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None]:
        weights, barred, result = ctx.saved_tensors
        (by_result,) = upstream
        active = is_used(by_result, result)
        terms = torch.where(active, _terms(weights, barred), -torch.inf)
        shares = (terms - torch.where(active, finite(result), 0.0)).exp()
        stay, step, skip = (shares * by_result).unbind(0)
        pad = torch.nn.functional.pad
        return pad(stay, (2, 0)) + pad(step, (1, 1)) + pad(skip, (0, 2)), None
