"""log Z of trees: a fast path if only autograd observes the tensors, otherwise an operator."""

from typing import Any

import torch

from fstgrad.torch import functions
from fstgrad.torch.functions import like, to_numpy
from fstgrad.torch.matrix_tree import solve, solved
from fstgrad.torch.operators import scaled_in_place
from fstgrad.torch.transforms import has_tangent, is_plain
from fstgrad.torch.tree_arrays import family_of, is_large


def log_partition(arcs: torch.Tensor, lengths: torch.Tensor | None, *which: bool) -> torch.Tensor:
    """Return log Z (B,) of arcs, or () of one table.

    Without lengths, all tables have n dependents.  which : single_root, projective.
    """
    if is_plain(arcs) and not has_tangent(arcs) and not functions.on_gpu(arcs):
        value: torch.Tensor = _LogPartition.apply(arcs, lengths, *which)  # type: ignore[no-untyped-call]
        return value
    log_z = _batched(arcs, lengths, *which)[0]
    return log_z if arcs.ndim == 3 else log_z[0]


class _LogPartition(torch.autograd.Function):
    """log Z if only autograd observes it; marginals are solved again for a second derivative.

    Arcs are (B, n+1, n+1), or one table (n+1, n+1); without lengths, all have n dependents.
    """

    @staticmethod
    def forward(ctx: Any, arcs: torch.Tensor, lengths: torch.Tensor | None, *which: bool) -> Any:
        if is_large(arcs) or len(arcs) == 0:
            log_z, mu = solved(arcs, _lengths(arcs) if lengths is None else lengths, *which)
        else:
            sizes = None if lengths is None else lengths.cpu().numpy()
            trees = family_of(to_numpy(arcs), sizes, *which)
            log_z, mu = like(trees.log_partition(), arcs), like(trees.marginals(), arcs)
        ctx.which = which
        ctx.save_for_backward(arcs, lengths, mu)
        return log_z

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[Any, ...]:
        arcs, lengths, mu = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True requires differentiable marginals
            mu = _batched(arcs, lengths, *ctx.which)[1].reshape(arcs.shape)
        return *scaled_in_place(upstream[0], [mu]), *[None] * (1 + len(ctx.which))


def _batched(
    arcs: torch.Tensor, lengths: torch.Tensor | None, *which: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `solve` of a batch, or of one table as a batch of one."""
    batch = arcs if arcs.ndim == 3 else arcs[None]
    return solve(batch, _lengths(batch) if lengths is None else lengths, *which)


def _lengths(batch: torch.Tensor) -> torch.Tensor:
    """Return n for each table of a batch."""
    return torch.full((len(batch),), batch.shape[1] - 1, dtype=torch.int64)
