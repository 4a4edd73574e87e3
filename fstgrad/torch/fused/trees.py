"""log Z of spanning trees and its gradient: one program eliminates the nodes of one sentence.

The equations and the order of elimination are those of `fstgrad.torch.device.trees`.  Arcs from the
root are a row of their own.  The tables before each step are kept for the backward pass.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from fstgrad.torch.fused.available import Fused, Tensors
from fstgrad.torch.fused.logs import finite, log_add


def log_partition(
    weights: torch.Tensor,
    inside: torch.Tensor,
    *,
    single_root: bool,
    definition: Callable[..., torch.Tensor],
) -> torch.Tensor:
    """Return log Z (B,) in nats, -inf without a tree.

    weights : (B, n+1, n) float64, -inf where there is no arc
    """

    def forward(weights: torch.Tensor, inside: torch.Tensor) -> tuple[torch.Tensor, Tensors]:
        items, _, n = weights.shape
        steps = weights.new_empty(items, n, n + 1, n)
        pivots = torch.empty(items, n, dtype=torch.int32, device=weights.device)
        values = weights.new_empty(items)
        given = weights.contiguous(), inside.contiguous()
        forward_kernel[(items,)](*given, steps, pivots, values, **sizes(n))
        return values, (steps, pivots)

    def backward(upstream: torch.Tensor, *given: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        weights, inside, steps, pivots = given
        result = torch.empty_like(weights, memory_format=torch.contiguous_format)
        backward_kernel[(len(weights),)](
            inside.contiguous(), steps, pivots, upstream.contiguous(), result,
            **sizes(weights.shape[2]),
        )  # fmt: skip
        return result, None

    def sizes(n: int) -> dict[str, Any]:
        size = max(16, triton.next_power_of_2(n))
        return {"n": n, "single_root": single_root, "N": size, "num_warps": max(1, size // 8)}

    value: torch.Tensor = Fused.apply(forward, backward, definition, weights, inside)
    return value


@triton.jit
def forward_kernel(
    weights, inside, steps, pivots, values, n, single_root: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """Write the arcs before each step (B, n, n+1, n), the node that it eliminates, and log Z."""
    item = tl.program_id(0).to(tl.int64)
    node = tl.arange(0, N)
    known = node < n
    square = node[:, None] * n + node[None, :]
    both = known[:, None] & known[None, :]
    source = weights + item * (n + 1) * n
    root = tl.load(source + node, mask=known, other=-float("inf"))
    arcs = tl.load(source + n + square, mask=both, other=-float("inf"))
    left = tl.load(inside + item * n + node, mask=known, other=0) != 0
    words = tl.sum(left.to(tl.int32), axis=0)
    total = tl.zeros((), dtype=tl.float64)
    for k in range(words):
        place = steps + (item * n + k) * (n + 1) * n
        tl.store(place + node, root, mask=known)
        tl.store(place + n + square, arcs, mask=both)
        with_root = True
        if single_root:
            with_root = k == words - 1
        from_root = tl.where(with_root, root, -float("inf"))
        top = finite(tl.maximum(tl.max(arcs, axis=0), from_root))
        into = tl.sum(tl.exp(arcs - top[None, :]), axis=0) + tl.exp(from_root - top)
        into = tl.where(into > 0.0, tl.log(into) + top, -1e300)  # a node that is left is taken
        pivot = tl.argmax(tl.where(left, into, -float("inf")), axis=0)
        tl.store(pivots + item * n + k, pivot)
        chosen = node == pivot
        column, row, of_root, log_sum = at_pivot(arcs, root, chosen, with_root)
        total += log_sum
        base = finite(log_sum)
        root = log_add(root, of_root - base + row)
        arcs = log_add(arcs, (column - base)[:, None] + row[None, :])
        gone = chosen[:, None] | chosen[None, :] | (node[:, None] == node[None, :])
        arcs = tl.where(gone, -float("inf"), arcs)
        root = tl.where(chosen, -float("inf"), root)
        left = left & (node != pivot)
    tl.store(values + item, total)


@triton.jit
def backward_kernel(
    inside, steps, pivots, upstream, result, n, single_root: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """Write the probability of each arc (B, n+1, n), times the weight of its item."""
    item = tl.program_id(0).to(tl.int64)
    node = tl.arange(0, N)
    known = node < n
    square = node[:, None] * n + node[None, :]
    both = known[:, None] & known[None, :]
    words = tl.sum(tl.load(inside + item * n + node, mask=known, other=0).to(tl.int32), axis=0)
    flow = tl.zeros((N, N), dtype=tl.float64)
    root_flow = tl.zeros((N,), dtype=tl.float64)
    for reverse in range(words):
        k = words - 1 - reverse
        place = steps + (item * n + k) * (n + 1) * n
        root = tl.load(place + node, mask=known, other=-float("inf"))
        arcs = tl.load(place + n + square, mask=both, other=-float("inf"))
        chosen = node == tl.load(pivots + item * n + k)
        with_root = True
        if single_root:
            with_root = k == words - 1
        column, row, of_root, log_sum = at_pivot(arcs, root, chosen, with_root)
        base = finite(log_sum)
        kept, passed = parts(arcs, (column - base)[:, None] + row[None, :], flow)
        root_kept, root_passed = parts(root, of_root - base + row, root_flow)
        by_column = tl.sum(passed, axis=1)
        by_root = tl.sum(root_passed, axis=0)
        rest = 1.0 - (tl.sum(by_column, axis=0) + by_root)  # what log Z gets from the sum itself
        by_column += rest * tl.exp(column - base)
        by_root += tl.where(with_root, rest * tl.exp(of_root - base), 0.0)
        by_row = tl.sum(passed, axis=0) + root_passed
        flow = kept + tl.where(chosen[None, :], by_column[:, None], 0.0)
        flow += tl.where(chosen[:, None], by_row[None, :], 0.0)
        root_flow = root_kept + tl.where(chosen, by_root, 0.0)
    upper = tl.load(upstream + item)
    target = result + item * (n + 1) * n
    tl.store(target + node, tl.where(upper != 0.0, upper * root_flow, 0.0), mask=known)
    flow = tl.where(upper != 0.0, upper * flow, 0.0)
    tl.store(target + n + square, flow, mask=both)


@triton.jit
def at_pivot(arcs, root, chosen, with_root):
    """Return the arcs into a node, those out of it, that from the root, and log s_k."""
    column = tl.sum(tl.where(chosen[None, :], arcs, 0.0), axis=1)
    row = tl.sum(tl.where(chosen[:, None], arcs, 0.0), axis=0)
    of_root = tl.sum(tl.where(chosen, root, 0.0), axis=0)
    counted = tl.where(with_root, of_root, -float("inf"))
    top = finite(tl.maximum(tl.max(column, axis=0), counted))
    log_sum = tl.log(tl.sum(tl.exp(column - top), axis=0) + tl.exp(counted - top)) + top
    return column, row, of_root, log_sum


@triton.jit
def parts(kept, passed, flow):
    """Return the shares of the flow into log(exp(kept) + exp(passed))."""
    result = log_add(kept, passed)
    live = (flow != 0.0) & (result != -float("inf"))
    base = tl.where(live, result, 0.0)
    first = tl.where(live, tl.exp(kept - base) * flow, 0.0)
    return first, tl.where(live, tl.exp(passed - base) * flow, 0.0)
