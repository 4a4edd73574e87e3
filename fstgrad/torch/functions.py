"""The one bridge to autograd: a scalar with its exact gradient and Hessian-vector product."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
import torch

from fstgrad.checks import FloatArray, one_of
from fstgrad.errors import NotSupportedError

Reduction = Literal["none", "mean", "sum"]
REDUCTIONS: tuple[Reduction, ...] = ("none", "mean", "sum")


class Objective(Protocol):
    """B scalars, item i a function of the slice scores[i] alone, on numpy arrays or tensors."""

    def value_and_gradient(
        self, scores: torch.Tensor, weight: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return float64 values (B,), and `weight` times the gradients in a new tensor.

        The gradients have the shape, dtype and device of the scores.
        """

    def hessian_product(self, scores: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """Return for each item its Hessian times the direction; all float64, like the scores."""


class _Value(torch.autograd.Function):
    """The reduced values; the backward pass scales the gradient of the forward pass.

    Where there is nothing to scale, as in `value.backward()`, it hands over the gradient itself,
    which the engine may make the `.grad` of a leaf; a second backward pass computes it anew.
    """

    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, objective: Objective, reduction: str
    ) -> torch.Tensor:
        ctx.objective = objective
        ctx.weight = 1 / len(scores) if reduction == "mean" else 1.0
        ctx.save_for_backward(scores)
        values, ctx.gradient = objective.value_and_gradient(scores.detach(), ctx.weight)
        return (values if reduction == "none" else values.sum() * ctx.weight).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (scores,) = ctx.saved_tensors
        if ctx.gradient is None:
            _, ctx.gradient = ctx.objective.value_and_gradient(scores.detach(), ctx.weight)
        table = ctx.gradient
        if torch.is_grad_enabled():  # create_graph=True: the result will be differentiated
            table = _Gradient.apply(  # type: ignore[no-untyped-call]
                scores, ctx.objective, table, ctx.weight
            )
        elif _is_one(upstream[0]):
            ctx.gradient = None
            return table, None, None
        return _per_item(upstream[0], table) * table, None, None


class _Gradient(torch.autograd.Function):
    """The gradients as a function of the scores; the backward pass is the Hessian product."""

    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, objective: Objective, known: torch.Tensor, weight: float
    ) -> torch.Tensor:
        ctx.objective, ctx.weight = objective, weight
        ctx.save_for_backward(scores)
        return known.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (scores,) = ctx.saved_tensors
        wide = [tensor.detach().to(torch.float64) for tensor in (scores, upstream[0])]
        product = ctx.weight * ctx.objective.hessian_product(*wide)
        return product.to(scores.dtype), None, None, None


def evaluate(scores: torch.Tensor, objective: Objective, reduction: str) -> torch.Tensor:
    """Return the values of B items as a tensor that autograd can differentiate.

    scores : (B, ...) float32 or float64; reduction : "none" (B,), "mean" or "sum" ().
    """
    one_of("reduction", reduction, REDUCTIONS)
    values: torch.Tensor = _Value.apply(  # type: ignore[no-untyped-call]
        scores, objective, reduction
    )
    return values


def reduced(values: torch.Tensor, reduction: str) -> torch.Tensor:
    """Return values () or (B,) as they are, their mean or their sum."""
    if one_of("reduction", reduction, REDUCTIONS) == "none":
        return values
    return values.mean() if reduction == "mean" else values.sum()


def no_hessian(what: str) -> NotSupportedError:
    """Return the error of an objective without a Hessian product."""
    return NotSupportedError(
        f"{what} has no second derivative here; differentiate softmax_margin or crf_nll twice, "
        "or take first derivatives only"
    )


def on_gpu(tensor: torch.Tensor) -> bool:
    """Whether the tensor lies on a GPU; the one place where this is asked."""
    return tensor.is_cuda


def to_numpy(tensor: torch.Tensor) -> FloatArray:
    """Return a float64 array of a tensor on any device."""
    return np.ascontiguousarray(tensor.detach().cpu().numpy(), dtype=np.float64)


def like(array: FloatArray | Sequence[float], tensor: torch.Tensor) -> torch.Tensor:
    """Return a float64 tensor of the array on the device of `tensor`, without a copy if it can."""
    values = np.asarray(array, dtype=np.float64)
    if not values.flags.writeable:
        values = values.copy()
    return torch.as_tensor(values, device=tensor.device)


def _is_one(upstream: torch.Tensor) -> bool:
    """Whether this is the scalar 1; the upstream of a vectorized Jacobian has no one value."""
    try:
        return upstream.ndim == 0 and upstream.item() == 1.0
    except RuntimeError:
        return False


def _per_item(values: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Return values (B,) in a shape that broadcasts over the items of `table` (B, ...)."""
    return values.reshape(-1, *(1,) * (table.ndim - 1))
