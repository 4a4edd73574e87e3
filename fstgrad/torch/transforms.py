"""Detect what observes tensors: only autograd, or torch.compile, torch.func or forward mode."""

from collections.abc import Sequence

import torch
from torch.autograd import forward_ad

from fstgrad.core.errors import NotSupportedError


def is_plain(*tensors: torch.Tensor) -> bool:
    """Whether no compiler, transform, dispatch mode or tensor subclass observes the operators."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._get_tracing_state() is not None
        or any(type(t) not in (torch.Tensor, torch.nn.Parameter) for t in tensors)
    )


def refuse_transforms(scores: Sequence[torch.Tensor]) -> None:
    """Raise NotSupportedError within differentiating transforms of torch.func and forward mode."""
    if any(
        torch._C._functorch.is_gradtrackingtensor(tensor) or has_tangent(tensor)
        for tensor in scores
    ):
        raise NotSupportedError(
            "torch.func and forward-mode differentiation do not support this objective, which is "
            "computed outside of PyTorch; use "
            "backward(), torch.autograd.grad or torch.autograd.functional (torch.vmap works)"
        )


def has_tangent(tensor: torch.Tensor) -> bool:
    """Whether the tensor carries a forward-mode derivative."""
    tangent = forward_ad.unpack_dual(tensor).tangent  # type: ignore[no-untyped-call]
    return tangent is not None


def no_vmap(tensors: Sequence[torch.Tensor]) -> None:
    """Raise NotSupportedError within torch.vmap."""
    if not torch.compiler.is_compiling() and not knows_values(*tensors):
        raise NotSupportedError(
            "torch.vmap does not support this objective; merge its axis into the batch, as in "
            "scores.flatten(0, 1)"
        )


def knows_values(*tensors: torch.Tensor) -> bool:
    """Whether the numbers in tensors can be read: not within torch.compile or torch.vmap."""
    return not torch.compiler.is_compiling() and not any(map(_is_batched, tensors))


def _is_batched(tensor: torch.Tensor) -> bool:
    """Whether torch.vmap has wrapped a tensor, possibly below the wrappers of other transforms."""
    wrapped = torch._C._functorch
    while wrapped.is_functorch_wrapped_tensor(tensor):
        if wrapped.is_batchedtensor(tensor):
            return True
        tensor = wrapped.get_unwrapped(tensor)
    return False
