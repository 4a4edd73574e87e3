"""Distributions over trees from tensors; a large batch is sliced, one slice per thread."""

from collections.abc import Callable

import torch

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import FstgradError
from fstgrad.torch.functions import to_numpy
from fstgrad.torch.threads import team
from fstgrad.trees.distribution import TreeDistribution
from fstgrad.trees.projective import ProjectiveTrees
from fstgrad.trees.spanning import SpanningTrees

LARGE = 2**25  # with about fewer operations in a batch, a thread costs more than it saves


def array_trees(
    arcs: torch.Tensor, lengths: torch.Tensor, single_root: bool, projective: bool
) -> TreeDistribution:
    """Return the distribution over trees of unlabeled arcs, given as tensors."""
    return family_of(to_numpy(arcs), lengths.cpu().numpy(), single_root, projective)


def family_of(
    arcs: FloatArray, lengths: IntArray | None, single_root: bool, projective: bool
) -> TreeDistribution:
    """Return the distribution over trees of unlabeled arcs, given as arrays."""
    family = ProjectiveTrees if projective else SpanningTrees
    return family(arcs, single_root=single_root, lengths=lengths, labeled=False)


def is_large(arcs: torch.Tensor) -> bool:
    """Whether a batch (B, n+1, n+1) is worth several threads; False for one table."""
    return arcs.ndim == 3 and arcs.numel() * arcs.shape[1] > LARGE


def fill_slices(
    fill: Callable[[TreeDistribution, slice], None],
    arcs: torch.Tensor,
    lengths: torch.Tensor,
    *family: bool,
) -> None:
    """Call fill(trees, place) for slices of the batch, in threads if the batch is large."""
    table, sizes = to_numpy(arcs), lengths.cpu().numpy()

    def run(low: int, high: int) -> None:
        own = slice(low, high)
        fill(family_of(table[own], sizes[own], *family), own)

    if is_large(arcs):
        try:
            team().slices(len(table), run)
        except FstgradError:
            pass  # run the whole batch, so that the error names the item by its number
        else:
            return
    run(0, len(table))
