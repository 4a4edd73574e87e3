"""Sweeps of belief propagation on graphs in which a node has at most four edges, such as grids.

One launch computes all messages of a sweep, with the equations of `fstgrad.torch.device.fields`;
the sum over the other edges of a node leaves the message back out, so nothing is subtracted.
Without damping, an item keeps its messages from the sweep after which none of them has changed by
more than `tol`: each sweep reads whether the one before has changed an item, and marks its own.
"""

import torch
import triton
import triton.language as tl

from fstgrad.torch.fused.logs import finite

ROWS = 16  # messages of a program


def messages_of(
    nodes: torch.Tensor,
    tables: torch.Tensor,
    source: torch.Tensor,
    incoming: torch.Tensor,
    *,
    max_iter: int,
    tol: float,
    damping: float,
) -> torch.Tensor:
    """Return the messages (2E, B, C) after belief propagation.

    nodes : (B, I, C) scores; tables : (B, E, C, C), which may be expanded; source : (2E,);
    incoming : (I, 4), the messages into each node, -1 for none
    """
    items, size, labels = nodes.shape
    rows = len(source)
    nodes = nodes.contiguous()
    old, new = (nodes.new_zeros(items, rows, labels) for _ in range(2))
    changed = torch.zeros(max_iter + 1, items, dtype=torch.int32, device=nodes.device)
    changed[0] = 1
    block = max(2, triton.next_power_of_2(labels))
    count = max(1, min(ROWS, 4096 // block**2))
    grid = (triton.cdiv(rows, count), items)
    for k in range(max_iter):
        sweep_kernel[grid](
            nodes, tables, source, incoming, old, new, changed[k], changed[k + 1],
            rows, size, labels, *tables.stride(), tol, damping, R=count, C=block, num_warps=4,
        )  # fmt: skip
        old, new = new, old
    return old.transpose(0, 1)


@triton.jit
def sweep_kernel(
    nodes, tables, source, incoming, old, new, active, changed, rows, size, labels,
    by_item, by_edge, by_first, by_second, tol: tl.constexpr, damping: tl.constexpr,
    R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write the messages (B, 2E, C) of R directions of edges of an item."""
    item = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * R + tl.arange(0, R)
    label = tl.arange(0, C)
    exists = row < rows
    known = exists[:, None] & (label < labels)[None, :]
    here = (item * rows + row)[:, None] * labels + label[None, :]
    before = tl.load(old + here, mask=known, other=0.0)
    if tl.load(active + item) == 0:
        tl.store(new + here, before, mask=known)
        return
    half = rows // 2
    edge = tl.where(row < half, row, row - half)
    back = tl.where(row < half, row + half, row - half)
    node = tl.load(source + row, mask=exists, other=0)
    own = (item * size + node)[:, None] * labels + label[None, :]
    cavity = tl.load(nodes + own, mask=known, other=-float("inf"))
    for d in tl.static_range(4):
        other = tl.load(incoming + node * 4 + d, mask=exists, other=-1)
        counted = (other >= 0) & (other != back)
        place = (item * rows + tl.maximum(other, 0))[:, None] * labels + label[None, :]
        cavity += tl.load(old + place, mask=known & counted[:, None], other=0.0)
    # entry (r, i, j) of the table: from label i of the source to label j of the target
    is_forth = (row < half)[:, None, None]
    i, j = label[None, :, None], label[None, None, :]
    first, second = tl.where(is_forth, i, j), tl.where(is_forth, j, i)
    entry = item * by_item + edge.to(tl.int64)[:, None, None] * by_edge
    entry = entry + first * by_first + second * by_second
    inside = exists[:, None, None] & (i < labels) & (j < labels)
    terms = cavity[:, :, None] + tl.load(tables + entry, mask=inside, other=-float("inf"))
    top = finite(tl.max(terms, axis=1))
    fresh = tl.log(tl.sum(tl.exp(terms - top[:, None, :]), axis=1)) + top
    fresh = scaled(fresh)
    change = tl.where(fresh == before, 0.0, tl.abs(fresh - before))
    if damping != 0.0:
        mixed = damping * finite(before) + (1 - damping) * finite(fresh)
        is_zero = (before == -float("inf")) | (fresh == -float("inf"))
        fresh = scaled(tl.where(is_zero, -float("inf"), mixed))
    tl.store(new + here, fresh, mask=known)
    is_changed = tl.max(tl.max(tl.where(known & (change > tol), 1, 0), axis=1), axis=0)
    tl.atomic_max(changed + item, is_changed)


@triton.jit
def scaled(messages):
    """Return messages less the largest of each."""
    return messages - finite(tl.max(messages, axis=1))[:, None]
