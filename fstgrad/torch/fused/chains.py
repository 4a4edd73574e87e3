"""log Z of linear chains and its gradient: one program for each item.

The equations are those of `fstgrad.torch.device.chains`.  Forward and backward weights are relative
to the largest one of their position.  The probability of tags i, j at two positions that follow
each other is exp(forward_i + step_ij + ahead_j), divided by its sum, where `ahead` is the score of
the later position and its backward weight.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from fstgrad.torch.fused.available import Fused, Tensors
from fstgrad.torch.fused.logs import finite


def log_partition(
    emissions: torch.Tensor,
    transitions: torch.Tensor,
    mask: torch.Tensor,
    definition: Callable[..., torch.Tensor],
) -> torch.Tensor:
    """Return log Z (B,) float64 in nats, NaN for an item without a sequence."""
    value: torch.Tensor = Fused.apply(_forward, _backward, definition, emissions, transitions, mask)
    return value


def _forward(
    emissions: torch.Tensor, transitions: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, Tensors]:
    given = [t.contiguous() for t in (emissions, transitions, mask)]
    items, length, n = emissions.shape
    weights = torch.empty_like(given[0])
    values = emissions.new_empty(items, dtype=torch.float64)
    forward_kernel[(items,)](*given, weights, values, length, n, **_sizes(n))
    return values, (weights,)


def _backward(
    upstream: torch.Tensor,
    emissions: torch.Tensor,
    transitions: torch.Tensor,
    mask: torch.Tensor,
    weights: torch.Tensor,
) -> tuple[torch.Tensor | None, ...]:
    given = [t.contiguous() for t in (emissions, transitions.t(), mask)]
    items, length, n = emissions.shape
    by_emission = torch.empty_like(given[0])
    by_step = transitions.new_empty(items, n, n)
    backward_kernel[(items,)](
        *given, weights, upstream.contiguous(), by_emission, by_step, length, n, **_sizes(n)
    )
    return by_emission, by_step.sum(dim=0).t(), None


def _sizes(n: int) -> dict[str, Any]:
    size = max(16, triton.next_power_of_2(n))
    return {"N": size, "num_warps": max(1, size // 8)}


@triton.jit
def forward_kernel(
    emissions, transitions, mask, weights, values, length, n, N: tl.constexpr
):  # fmt: skip
    """Write the forward weights (B, T, n) and log Z (B,)."""
    item = tl.program_id(0).to(tl.int64)
    tag = tl.arange(0, N)
    known = tag < n
    steps = tl.load(
        transitions + tag[:, None] * n + tag[None, :],
        mask=known[:, None] & known[None, :],
        other=-float("inf"),
    )
    weight = tl.where(known, 0.0, -float("inf")).to(steps.dtype)
    offset = tl.zeros((), dtype=tl.float64)
    started = tl.zeros((), dtype=tl.int1)
    for t in range(length):
        row = item * length + t
        here = tl.load(mask + row) != 0
        arrived = tl.load(emissions + row * n + tag, mask=known, other=-float("inf"))
        terms = weight[:, None] + steps
        shift = finite(tl.max(terms, axis=0))
        into = tl.log(tl.sum(tl.exp(terms - shift[None, :]), axis=0)) + shift
        arrived = arrived + tl.where(started, into, 0.0)
        shift = finite(tl.max(arrived, axis=0))
        weight = tl.where(here, arrived - shift, weight)
        offset += tl.where(here, shift, 0.0).to(tl.float64)
        started = started | here
        tl.store(weights + row * n + tag, weight, mask=known)
    total = tl.log(tl.sum(tl.exp(weight.to(tl.float64)), axis=0)) + offset
    tl.store(values + item, tl.where(started & (total != -float("inf")), total, float("nan")))


@triton.jit
def backward_kernel(
    emissions, transitions, mask, weights, upstream, by_emission, by_step, length, n,
    N: tl.constexpr,
):  # fmt: skip
    """Write the gradients in emissions (B, T, n) and, of each item, in transitions (B, n, n).

    Transitions and their gradients are transposed: rows are the later tags.  As in the forward
    kernel, all vectors lie along the rows of the tables, so that a thread holds few entries.
    """
    item = tl.program_id(0).to(tl.int64)
    tag = tl.arange(0, N)
    known = tag < n
    square = tag[:, None] * n + tag[None, :]
    both = known[:, None] & known[None, :]
    steps = tl.load(transitions + square, mask=both, other=-float("inf"))
    upper = tl.load(upstream + item).to(steps.dtype)
    ahead = tl.where(known, 0.0, -float("inf")).to(steps.dtype)
    pairs = tl.zeros((N, N), dtype=steps.dtype)
    follows = tl.zeros((), dtype=tl.int1)  # whether a position follows
    for reverse in range(length):
        row = item * length + (length - 1 - reverse)
        here = tl.load(mask + row) != 0
        weight = tl.load(weights + row * n + tag, mask=known, other=-float("inf"))
        later = steps + ahead[:, None]
        shift = finite(tl.max(later, axis=0))
        terms = tl.exp(later - shift[None, :])
        back = tl.log(tl.sum(terms, axis=0)) + shift
        back = tl.where(follows, back, 0.0)
        joint = weight + back
        top = finite(tl.max(joint, axis=0))
        total = tl.log(tl.sum(tl.exp(joint - top), axis=0)) + top
        share = tl.where(here & (upper != 0.0), upper * tl.exp(joint - total), 0.0)
        tl.store(by_emission + row * n + tag, share, mask=known)
        factor = tl.where(back > -float("inf"), tl.exp(weight + shift - total), 0.0)
        pairs += terms * tl.where(here & follows & (upper != 0.0), factor, 0.0)[None, :]
        score = tl.load(emissions + row * n + tag, mask=known, other=-float("inf"))
        reached = score + back
        reached = reached - finite(tl.max(reached, axis=0))
        ahead = tl.where(here, reached, ahead)
        follows = follows | here
    pairs = tl.where(upper != 0.0, upper * pairs, 0.0)
    tl.store(by_step + item * n * n + square, pairs, mask=both)
