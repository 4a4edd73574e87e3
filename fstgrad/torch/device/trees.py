"""Spanning trees by elimination without subtractions, on logarithms.

Eliminating a node k replaces the weight of each arc h -> j by w_hj + w_hk w_kj / s_k, where s_k is
the sum of all w_hk; Z is the product of all s_k.  All terms are positive, so they do not cancel.
With a single root, the sums leave out its arcs, except for the last node that is left; the node
with the largest sum comes first, because those whose only head is the root have s_k = 0.

Arcs are (B, n+1, n+1) float64; `inside` (B, n) is True for the dependents that an item has.
"""

import functools
from typing import Any

import torch

from fstgrad.torch.device.sums import finite, valid
from fstgrad.torch.fused.available import WORDS, fused


def log_partition(arcs: torch.Tensor, inside: torch.Tensor, *, single_root: bool) -> torch.Tensor:
    """Return log Z (B,) in nats, NaN without a tree; O(n^3), differentiable any number of times."""
    weights, offset = _relative(arcs, inside)
    if fused(weights) and 0 < weights.shape[2] <= WORDS:
        from fstgrad.torch.fused import trees

        definition = functools.partial(_eliminated, single_root=single_root)
        total = trees.log_partition(weights, inside, single_root=single_root, definition=definition)
    else:
        total = _eliminated(weights, inside, single_root=single_root)
    return valid(total + offset)


def _eliminated(weights: torch.Tensor, inside: torch.Tensor, *, single_root: bool) -> torch.Tensor:
    """Return log Z (B,) of possible arcs (B, n+1, n), -inf without a tree."""
    size, lowest = weights.shape[2], torch.finfo(weights.dtype).min
    node = torch.arange(size + 1, device=weights.device)
    left, total = inside, weights.new_zeros(len(weights))
    for _ in range(size):
        counted = (node >= 0).expand(len(weights), -1)
        if single_root:
            counted = (node > 0) | (left.sum(dim=1, keepdim=True) == 1)
        into = torch.where(counted[..., None], weights.detach(), -torch.inf).logsumexp(dim=1)
        into = torch.where(into == -torch.inf, lowest, into)  # so that a node that is left is taken
        pivot = left & (node[:-1] == torch.where(left, into, -torch.inf).argmax(dim=1)[:, None])
        weights, log_sum = _Eliminated.apply(weights, pivot, counted)  # type: ignore[no-untyped-call]
        total = total + torch.where(left.any(dim=1), log_sum, 0.0)
        left = left & ~pivot
    return total


def marginals(arcs: torch.Tensor, inside: torch.Tensor, *, single_root: bool) -> torch.Tensor:
    """Return the probability of each arc, like the arcs; differentiable as they are."""
    differentiable = arcs.requires_grad and torch.is_grad_enabled()
    with torch.enable_grad():
        scores = arcs if differentiable else arcs.detach().requires_grad_()
        log_z = log_partition(scores, inside, single_root=single_root)
        (table,) = torch.autograd.grad(log_z.sum(), scores, create_graph=differentiable)
    return table


def entropy(arcs: torch.Tensor, inside: torch.Tensor, *, single_root: bool) -> torch.Tensor:
    """Return the entropy (B,) in nats."""
    relative, log_z, shares = _solved(arcs, inside, single_root)
    return (log_z - (shares * finite(relative)).sum(dim=(1, 2))).clamp_min(0.0)


def divergence(
    p: torch.Tensor, q: torch.Tensor, inside: torch.Tensor, *, single_root: bool
) -> torch.Tensor:
    """Return KL(p || q) (B,) in nats, +inf if q forbids an arc that p allows."""
    of_p, log_z_p, shares = _solved(p, inside, single_root)
    of_q, log_z_q, _ = _solved(q, inside, single_root)
    gap = torch.where(shares > 0, finite(of_p) - finite(of_q), 0.0)
    value = (log_z_q - log_z_p + (shares * gap).sum(dim=(1, 2))).clamp_min(0.0)
    lost = ((shares > 0) & (of_q == -torch.inf)).flatten(1).any(dim=1)
    return torch.where(lost & value.isfinite(), torch.inf, value)


def gold_parts(
    scores: torch.Tensor, gold: torch.Tensor, inside: torch.Tensor, *, single_root: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a mask of the scores (B, n+1, n+1[, y]) that gold uses, and whether it is a tree.

    gold : (B, n), or (B, n, 2) with labels
    """
    nodes = torch.arange(scores.shape[1], device=scores.device)
    heads = gold[..., 0] if scores.ndim == 4 else gold
    known = torch.where(inside, heads, 0)
    good = (known >= 0) & (known <= inside.sum(dim=1, keepdim=True))
    parents = torch.nn.functional.pad(torch.where(good, known, 0), (1, 0))
    used = (parents[:, None] == nodes[:, None]) & torch.nn.functional.pad(inside, (1, 0))[:, None]
    if scores.ndim == 4:
        labels = torch.arange(scores.shape[3], device=scores.device)
        names = torch.where(inside, gold[..., 1], 0)
        good = good & (names >= 0) & (names < len(labels))
        named = torch.nn.functional.pad(names, (1, 0))[..., None] == labels
        used = used[..., None] & named[:, None]
    is_tree = good.all(dim=1)
    if single_root:
        is_tree = is_tree & ((inside & (known == 0)).sum(dim=1) == 1)
    for _ in range(scores.shape[1].bit_length()):  # all ancestors of a tree end at the root
        parents = parents.gather(1, parents)
    return used, is_tree & (parents == 0).all(dim=1)


def _solved(
    arcs: torch.Tensor, inside: torch.Tensor, single_root: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return arcs relative to the largest of each dependent, their log Z, and marginals."""
    relative = torch.nn.functional.pad(_relative(arcs, inside)[0], (1, 0), value=-torch.inf)
    log_z = log_partition(relative, inside, single_root=single_root)
    return relative, log_z, marginals(relative, inside, single_root=single_root)


def _relative(arcs: torch.Tensor, inside: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the possible arcs (B, n+1, n), each dependent's less its largest; the sum of these."""
    nodes = torch.arange(arcs.shape[1], device=arcs.device)
    heads = torch.nn.functional.pad(inside, (1, 0), value=True)
    allowed = heads[:, :, None] & inside[:, None] & (nodes[:, None] != nodes[1:])
    weights = torch.where(allowed, arcs[:, :, 1:], -torch.inf)
    largest = finite(weights.detach().amax(dim=1, keepdim=True))
    return weights - largest, largest.sum(dim=(1, 2))


class _Eliminated(torch.autograd.Function):
    """Arcs without the node of `pivot` (B, n), and its log s_k (B,) over the heads `counted`."""

    @staticmethod
    def forward(
        ctx: Any, weights: torch.Tensor, pivot: torch.Tensor, counted: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        into, row, log_sum = _at_pivot(weights, pivot, counted)
        result = torch.logaddexp(weights, into[..., None] - finite(log_sum) + row[:, None])
        nodes = torch.arange(weights.shape[1], device=weights.device)
        gone = pivot[:, None] | torch.nn.functional.pad(pivot, (1, 0))[..., None]
        result = torch.where(gone | (nodes[:, None] == nodes[1:]), -torch.inf, result)
        ctx.save_for_backward(weights, pivot, counted, result)
        return result, log_sum[:, 0, 0]

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        weights, pivot, counted, result = ctx.saved_tensors
        flow, by_sum = upstream
        into, row, log_sum = _at_pivot(weights, pivot, counted)
        live = (flow != 0) & (result != -torch.inf)
        base = torch.where(live, result, 0.0)
        kept = torch.where(live, weights - base, -torch.inf).exp() * flow
        through = into[..., None] - finite(log_sum) + row[:, None]
        passed = torch.where(live, through - base, -torch.inf).exp() * flow
        by_into = passed.sum(dim=2)
        rest = (by_sum - by_into.sum(dim=1))[:, None]
        share = torch.where(counted & (rest != 0), into - finite(log_sum)[..., 0], -torch.inf).exp()
        by_into = by_into + rest * share
        kept = kept + torch.where(pivot[:, None], by_into[..., None], 0.0)
        is_head = torch.nn.functional.pad(pivot, (1, 0))[..., None]
        return kept + torch.where(is_head, passed.sum(dim=1, keepdim=True), 0.0), None, None


def _at_pivot(
    weights: torch.Tensor, pivot: torch.Tensor, counted: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the arcs into a node (B, n+1), those out of it (B, n), and log s_k (B, 1, 1)."""
    into = torch.where(pivot[:, None], weights, 0.0).sum(dim=2)
    is_head = torch.nn.functional.pad(pivot, (1, 0))[..., None]
    row = torch.where(is_head, weights, 0.0).sum(dim=1)
    log_sum = torch.where(counted, into, -torch.inf)
    largest = finite(log_sum.amax(dim=1, keepdim=True))
    total = (log_sum - largest).exp().sum(dim=1, keepdim=True).log() + largest
    return into, row, total[..., None]
