"""Spanning trees by elimination without subtractions, projective ones by spans; on logarithms.

Eliminating a node k replaces the weight of each arc h -> j by w_hj + w_hk w_kj / s_k, where s_k is
the sum of all w_hk; Z is the product of all s_k.  All terms are positive, so they do not cancel.
With a single root, the sums leave out its arcs, except for the last node that is left; the node
with the largest sum comes first, because those whose only head is the root have s_k = 0.

Projective trees are sums over the spans of one width after the other, with the equations of
`fstgrad.trees.kernels.projective`.

Arcs are (B, n+1, n+1) float64; `inside` (B, n) is True for the dependents that an item has; flags
are single_root and projective.
"""

import functools
from typing import Any

import torch

from fstgrad.torch.device.sums import finite, is_used, log_sum, valid
from fstgrad.torch.fused.available import WORDS, fused


def log_partition(
    arcs: torch.Tensor, inside: torch.Tensor, single_root: bool, projective: bool
) -> torch.Tensor:
    """Return log Z (B,) in nats, NaN without a tree; O(n^3), differentiable any number of times."""
    weights, offset = _relative(arcs, inside)
    if projective:
        total = _spanned(weights, inside, single_root=single_root)
    elif fused(weights) and 0 < weights.shape[2] <= WORDS:
        from fstgrad.torch.fused import trees

        definition = functools.partial(_eliminated, single_root=single_root)
        total = trees.log_partition(weights, inside, single_root=single_root, definition=definition)
    else:
        total = _eliminated(weights, inside, single_root=single_root)
    return valid(total + offset)


def _spanned(weights: torch.Tensor, inside: torch.Tensor, *, single_root: bool) -> torch.Tensor:
    """Return log Z (B,) of the projective trees of possible arcs (B, n+1, n), -inf without one."""
    arcs = torch.nn.functional.pad(weights, (1, 0), value=-torch.inf)
    if single_root:  # spans of words only
        root, arcs = arcs[:, 0, 1:], arcs[:, 1:, 1:]
    size, last = arcs.shape[1], inside.sum(dim=1, keepdim=True) - int(single_root)
    # complete spans (B, 2, starts or ends, widths): those of their first and of their last word
    by_start = by_end = arcs.new_zeros(len(arcs), 2, size, 1)
    opens_right = opens_left = arcs.new_zeros(len(arcs), size, 0)
    complete = [by_start[..., 0]]
    for width in range(1, size):
        by_start, by_end = by_start[:, :, :-1], by_end[:, :, 1:]
        opened = log_sum(by_start[:, 0] + by_end[:, 1].flip(2))
        right, left = (opened + arcs.diagonal(way * width, 1, 2) for way in (1, -1))
        opens_right = torch.cat([opens_right[:, :-1], right[..., None]], dim=2)
        opens_left = torch.cat([opens_left[:, 1:], left[..., None]], dim=2)
        both = opens_right + by_end[:, 0].flip(2), by_start[:, 1] + opens_left.flip(2)
        spans = log_sum(torch.stack(both, dim=1))
        by_start = torch.cat([by_start, spans[..., None]], dim=3)
        by_end = torch.cat([by_end, spans[..., None]], dim=3)
        complete.append(torch.nn.functional.pad(spans, (0, width)))
    if size == 0:
        return weights.new_zeros(len(weights))
    table, place = torch.stack(complete, dim=3), torch.arange(size, device=arcs.device)
    # the spans from each word to the last one of the item
    ends = place[:, None] + place == last[:, None]
    to_last = torch.where(ends, table[:, 0], 0.0).sum(dim=2)
    if not single_root:
        return to_last[:, 0]
    exists = place <= last
    # each tree has one arc of the root, which may be masked
    shift = finite(torch.where(exists, root.detach(), -torch.inf).amax(dim=1, keepdim=True))
    terms = root - shift + table[:, 1, 0] + to_last
    total = log_sum(torch.where(exists, terms, -torch.inf)) + shift[:, 0]
    return torch.where(last[:, 0] < 0, 0.0, total)


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


def solve(
    arcs: torch.Tensor, inside: torch.Tensor, *flags: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log Z (B,), NaN without a tree, and the probability of each arc, like the arcs.

    Both are differentiable as the arcs are.  The probabilities are 0 without a tree, and the arcs
    of such an item get gradients of 0.
    """
    differentiable = arcs.requires_grad and torch.is_grad_enabled()
    if differentiable:
        with torch.no_grad():
            missing = log_partition(arcs, inside, *flags).isnan()[:, None, None]
        arcs = torch.where(missing, arcs.detach(), arcs)
    with torch.enable_grad():
        scores = arcs if differentiable else arcs.detach().requires_grad_()
        log_z = log_partition(scores, inside, *flags)
        (table,) = torch.autograd.grad(log_z.sum(), scores, create_graph=differentiable)
    table = torch.where(log_z.isnan()[:, None, None], 0.0, table)
    return (log_z, table) if differentiable else (log_z.detach(), table.detach())


def entropy(arcs: torch.Tensor, inside: torch.Tensor, *flags: bool) -> torch.Tensor:
    """Return the entropy (B,) in nats."""
    relative, log_z, shares = _solved(arcs, inside, *flags)
    return (log_z - (shares * finite(relative)).sum(dim=(1, 2))).clamp_min(0.0)


def divergence(
    p: torch.Tensor, q: torch.Tensor, inside: torch.Tensor, *flags: bool
) -> torch.Tensor:
    """Return KL(p || q) (B,) in nats, +inf if q forbids an arc that p allows."""
    of_p, log_z_p, shares = _solved(p, inside, *flags)
    of_q, log_z_q, _ = _solved(q, inside, *flags)
    gap = torch.where(shares > 0, finite(of_p) - finite(of_q), 0.0)
    value = (log_z_q - log_z_p + (shares * gap).sum(dim=(1, 2))).clamp_min(0.0)
    lost = ((shares > 0) & (of_q == -torch.inf)).flatten(1).any(dim=1)
    return torch.where(lost & value.isfinite(), torch.inf, value)


def gold_parts(
    scores: torch.Tensor, gold: torch.Tensor, inside: torch.Tensor, *flags: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a mask of the scores (B, n+1, n+1[, y]) that gold uses, and (B,) masks of items.

    These say whether gold is a tree, and whether it is one that the flags allow.

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
    allowed = _are_allowed(parents[:, 1:], inside, *flags)
    for _ in range(scores.shape[1].bit_length()):  # all ancestors of a tree end at the root
        parents = parents.gather(1, parents)
    is_tree = good.all(dim=1) & (parents == 0).all(dim=1)
    return used, is_tree, is_tree & allowed


def _are_allowed(
    heads: torch.Tensor, inside: torch.Tensor, single_root: bool, projective: bool
) -> torch.Tensor:
    """Return whether trees (B, n) have one root arc, and no crossing arcs, if these are rules."""
    allowed = inside.new_ones(len(inside))
    if single_root:
        allowed = (inside & (heads == 0)).sum(dim=1) == inside.any(dim=1)
    if projective:
        nodes = torch.arange(1, inside.shape[1] + 1, device=inside.device)
        low = torch.where(inside, torch.minimum(heads, nodes), 0)
        high = torch.where(inside, torch.maximum(heads, nodes), 0)
        begins = (low[:, :, None] < low[:, None]) & (low[:, None] < high[:, :, None])
        crosses = begins & (high[:, :, None] < high[:, None])
        allowed = allowed & ~crosses.flatten(1).any(dim=1)
    return allowed


def _solved(
    arcs: torch.Tensor, inside: torch.Tensor, *flags: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return arcs relative to the largest of each dependent, their log Z, and marginals."""
    relative = torch.nn.functional.pad(_relative(arcs, inside)[0], (1, 0), value=-torch.inf)
    return relative, *solve(relative, inside, *flags)


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
        live = is_used(flow, result) & (result != -torch.inf)
        base = torch.where(live, result, 0.0)
        kept = torch.where(live, weights - base, -torch.inf).exp() * flow
        through = into[..., None] - finite(log_sum) + row[:, None]
        passed = torch.where(live, through - base, -torch.inf).exp() * flow
        by_into = passed.sum(dim=2)
        rest = (by_sum - by_into.sum(dim=1))[:, None]
        among = counted & is_used(rest, log_sum[..., 0])
        share = torch.where(among, into - finite(log_sum)[..., 0], -torch.inf).exp()
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
