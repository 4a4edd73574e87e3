"""When a fused kernel is used, and its place in automatic differentiation."""

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import torch

WORDS = 64  # of a sentence: its table of arcs fits into the registers of a block
STATES = 2048  # of the paths of a gold string
LABELS_OF_FIELD = 32

Tensors = tuple[torch.Tensor, ...]


def labels_of_chain(scores: torch.Tensor) -> int:
    """Return the largest number of labels whose table of steps fits into the registers."""
    return 64 if scores.dtype == torch.float64 else 128


def fused(tensor: torch.Tensor) -> bool:
    """Whether kernels of Triton can take a tensor: on a GPU, or interpreted on the CPU.

    The variable FSTGRAD_FUSED=0 turns them off.
    """
    if torch.compiler.is_compiling() or os.environ.get("FSTGRAD_FUSED") == "0":
        return False
    interpreted = tensor.device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"
    return (tensor.is_cuda or interpreted) and importlib.util.find_spec("triton") is not None


class Fused(torch.autograd.Function):
    """Values (B,) of float64 whose gradient a kernel computes; the definition gives further ones.

    forward : the tensors to the values, and what the backward kernel needs
    backward : weights (B,), tensors, and these to the gradients; 0 where a weight is 0
    definition : the tensors to the same values, in operations of PyTorch
    """

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any,
        forward: Callable[..., tuple[torch.Tensor, Tensors]],
        backward: Callable[..., Tensors],
        definition: Callable[..., torch.Tensor],
        *tensors: torch.Tensor,
    ) -> torch.Tensor:
        given = tuple(t.detach() for t in tensors)
        values, kept = forward(*given)
        ctx.save_for_backward(*tensors, *kept)
        ctx.kernels = backward, definition, len(tensors)
        return values

    @staticmethod
    def backward(  # noqa: D102
        ctx: Any, *upstream: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        backward, definition, count = ctx.kernels
        tensors, kept = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        if torch.is_grad_enabled():  # for a further derivative
            needed = [t for t in tensors if t.requires_grad]
            found = iter(
                torch.autograd.grad(definition(*tensors), needed, upstream[0], create_graph=True)
            )
            return (None, None, None, *(next(found) if t.requires_grad else None for t in tensors))
        return (None, None, None, *backward(upstream[0], *tensors, *kept))
