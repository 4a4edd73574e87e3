"""The sum over the paths of gold strings and its gradient: one program for each item.

The recursion is that of `fstgrad.torch.device.ctc`, on logarithms in float64.  A program holds all
states of a frame; those before and behind them are gathered from it.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from fstgrad.torch.fused.available import Fused, Tensors
from fstgrad.torch.fused.logs import finite


def log_total(
    emissions: torch.Tensor,
    barred: torch.Tensor,
    last: torch.Tensor,
    inside: torch.Tensor,
    definition: Callable[..., torch.Tensor],
) -> torch.Tensor:
    """Return the log of the sum over paths (B,), -inf without one.

    emissions : (B, T, 2 S + 1), the scores of the labels of states; the others as in `States`
    """
    value: torch.Tensor = Fused.apply(
        _forward, _backward, definition, emissions, barred, last, inside
    )
    return value


def _forward(
    emissions: torch.Tensor, barred: torch.Tensor, last: torch.Tensor, inside: torch.Tensor
) -> tuple[torch.Tensor, Tensors]:
    given = [t.contiguous() for t in (emissions, barred, last, inside)]
    weights = torch.empty_like(given[0])
    values = emissions.new_empty(len(emissions))
    forward_kernel[(len(emissions),)](*given, weights, values, **_sizes(emissions))
    return values, (weights, values)


def _backward(
    upstream: torch.Tensor,
    emissions: torch.Tensor,
    barred: torch.Tensor,
    last: torch.Tensor,
    inside: torch.Tensor,
    weights: torch.Tensor,
    values: torch.Tensor,
) -> tuple[torch.Tensor | None, ...]:
    given = [t.contiguous() for t in (emissions, barred, last, inside)]
    shares = torch.empty_like(weights)
    backward_kernel[(len(emissions),)](
        *given, weights, values, upstream.contiguous(), shares, **_sizes(emissions)
    )
    return shares, None, None, None


def _sizes(emissions: torch.Tensor) -> dict[str, Any]:
    _, length, states = emissions.shape
    size = max(32, triton.next_power_of_2(states))
    warps = min(8, max(1, size // 128))
    return {"length": length, "states": states, "N": size, "num_warps": warps}


@triton.jit
def forward_kernel(
    emissions, barred, last, inside, weights, values, length, states, N: tl.constexpr
):  # fmt: skip
    """Write the forward weights (B, T, states) and the log of their sum (B,)."""
    item = tl.program_id(0).to(tl.int64)
    state = tl.arange(0, N)
    known = state < states
    bar = tl.load(barred + item * states + state, mask=known, other=-float("inf"))
    weight = tl.full((N,), -float("inf"), tl.float64)
    for t in range(length):
        row = (item * length + t) * states
        here = tl.load(inside + item * length + t) != 0
        score = tl.load(emissions + row + state, mask=known, other=-float("inf"))
        step = before(weight, state, 1, N)
        skip = before(weight, state, 2, N) + bar
        top = finite(tl.maximum(tl.maximum(weight, step), skip))
        into = tl.exp(weight - top) + tl.exp(step - top) + tl.exp(skip - top)
        into = tl.log(into) + top
        if t == 0:
            into = tl.where(state < 2, 0.0, -float("inf")).to(tl.float64)
        weight = tl.where(here, into + score, weight)
        tl.store(weights + row + state, weight, mask=known)
    is_last = tl.load(last + item * states + state, mask=known, other=0) != 0
    ends = tl.where(is_last, weight, -float("inf"))
    top = finite(tl.max(ends, axis=0))
    tl.store(values + item, tl.log(tl.sum(tl.exp(ends - top), axis=0)) + top)


@triton.jit
def backward_kernel(
    emissions, barred, last, inside, weights, values, upstream, shares, length, states,
    N: tl.constexpr,
):  # fmt: skip
    """Write the probability of each state (B, T, states), times the weight of its item."""
    item = tl.program_id(0).to(tl.int64)
    state = tl.arange(0, N)
    known = state < states
    bar = tl.load(barred + item * states + state, mask=known, other=-float("inf"))
    is_last = tl.load(last + item * states + state, mask=known, other=0) != 0
    total = tl.load(values + item)
    upper = tl.load(upstream + item)
    ahead = tl.full((N,), -float("inf"), tl.float64)
    follows = tl.zeros((), dtype=tl.int1)  # whether a frame follows
    for reverse in range(length):
        t = length - 1 - reverse
        row = (item * length + t) * states
        here = tl.load(inside + item * length + t) != 0
        step = behind(ahead, state, 1, N)
        skip = behind(ahead + bar, state, 2, N)
        top = finite(tl.maximum(tl.maximum(ahead, step), skip))
        back = tl.exp(ahead - top) + tl.exp(step - top) + tl.exp(skip - top)
        back = tl.log(back) + top
        back = tl.where(follows, back, tl.where(is_last, 0.0, -float("inf")))
        weight = tl.load(weights + row + state, mask=known, other=-float("inf"))
        share = tl.where(here & (upper != 0.0), upper * tl.exp(weight + back - total), 0.0)
        tl.store(shares + row + state, share, mask=known)
        score = tl.load(emissions + row + state, mask=known, other=-float("inf"))
        ahead = tl.where(here, score + back, ahead)
        follows = follows | here


@triton.jit
def before(values, state, distance: tl.constexpr, N: tl.constexpr):
    """Return the value of the state `distance` before each, -inf if there is none."""
    moved = tl.gather(values, tl.maximum(state - distance, 0), axis=0)
    return tl.where(state < distance, -float("inf"), moved)


@triton.jit
def behind(values, state, distance: tl.constexpr, N: tl.constexpr):
    """Return the value of the state `distance` behind each, -inf if there is none."""
    moved = tl.gather(values, tl.minimum(state + distance, N - 1), axis=0)
    return tl.where(state + distance >= N, -float("inf"), moved)
