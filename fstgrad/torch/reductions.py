"""The reduction over the items of a batch."""

from typing import Literal

import torch

from fstgrad.core.checks import one_of
from fstgrad.core.errors import InvalidInputError

Reduction = Literal["none", "mean", "sum"]
REDUCTIONS: tuple[Reduction, ...] = ("none", "mean", "sum")


def reduced(values: torch.Tensor, reduction: str) -> torch.Tensor:
    """Return values () or (B,) as they are, their mean or their sum.

    Raises
    ------
    InvalidInputError
        If the mean of no values is requested.
    """
    if one_of("reduction", reduction, REDUCTIONS) == "none":
        return values
    if reduction == "mean" and values.shape == (0,):
        raise InvalidInputError(
            "scores have no items, so no mean; give a batch of at least one, or reduction='sum'"
        )
    return values.mean() if reduction == "mean" else values.sum()
