"""The reduction over the items of a batch."""

from typing import Literal

import torch

from fstgrad.checks import one_of

Reduction = Literal["none", "mean", "sum"]
REDUCTIONS: tuple[Reduction, ...] = ("none", "mean", "sum")


def reduced(values: torch.Tensor, reduction: str) -> torch.Tensor:
    """Return values () or (B,) as they are, their mean or their sum."""
    if one_of("reduction", reduction, REDUCTIONS) == "none":
        return values
    return values.mean() if reduction == "mean" else values.sum()
