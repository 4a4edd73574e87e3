"""The one bridge to autograd: a scalar with its exact gradient and Hessian-vector product."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from fstgrad.checks import FloatArray, one_of
from fstgrad.errors import NotSupportedError

REDUCTIONS = ("none", "mean", "sum")


class Objective(Protocol):
    """B scalars, item i a function of the slice scores[i] alone, on numpy arrays or tensors."""

    def value_and_gradient(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return values (B,) and gradients shaped like the float64 scores, on their device."""

    def hessian_product(self, scores: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """Return for each item its Hessian times the direction, shaped like the scores."""


class _Value(torch.autograd.Function):
    """B values; the backward pass scales the gradients."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, objective: Objective) -> torch.Tensor:
        value, gradient = objective.value_and_gradient(scores.detach().to(torch.float64))
        ctx.objective = objective
        ctx.save_for_backward(scores, gradient)
        return value.to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None]:
        scores, gradient = ctx.saved_tensors
        table = _Gradient.apply(scores, ctx.objective, gradient)  # type: ignore[no-untyped-call]
        return _per_item(upstream[0], table) * table, None


class _Gradient(torch.autograd.Function):
    """The gradients as a function of the scores; the backward pass is the Hessian product."""

    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, objective: Objective, gradient: torch.Tensor
    ) -> torch.Tensor:
        ctx.objective = objective
        ctx.save_for_backward(scores)
        return gradient.to(scores.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (scores,) = ctx.saved_tensors
        wide = [tensor.detach().to(torch.float64) for tensor in (scores, upstream[0])]
        product = ctx.objective.hessian_product(*wide)
        return product.to(scores.dtype), None, None


def evaluate(scores: torch.Tensor, objective: Objective, reduction: str) -> torch.Tensor:
    """Return the values of B items as a tensor that autograd can differentiate.

    scores : (B, ...) float32 or float64; reduction : "none" (B,), "mean" or "sum" ().
    """
    one_of("reduction", reduction, REDUCTIONS)
    values: torch.Tensor = _Value.apply(scores, objective)  # type: ignore[no-untyped-call]
    if reduction == "none":
        return values
    return values.mean() if reduction == "mean" else values.sum()


def no_hessian(what: str) -> NotSupportedError:
    """Return the error of an objective without a Hessian product."""
    return NotSupportedError(
        f"{what} has no second derivative here; differentiate softmax_margin or crf_nll twice, "
        "or take first derivatives only"
    )


def to_numpy(tensor: torch.Tensor) -> FloatArray:
    """Return a float64 array of a tensor on any device."""
    return np.ascontiguousarray(tensor.detach().cpu().numpy(), dtype=np.float64)


def like(array: FloatArray | Sequence[float], tensor: torch.Tensor) -> torch.Tensor:
    """Return a float64 tensor of the array on the device of `tensor`, without a copy if it can."""
    values = np.asarray(array, dtype=np.float64)
    if not values.flags.writeable:
        values = values.copy()
    return torch.as_tensor(values, device=tensor.device)


def _per_item(values: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Return values (B,) in a shape that broadcasts over the items of `table` (B, ...)."""
    return values.reshape(-1, *(1,) * (table.ndim - 1))
