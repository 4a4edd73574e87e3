"""What observes tensors: only autograd, or torch.compile, torch.func, forward mode or vmap."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch.autograd import forward_ad

from fstgrad.core.errors import NotSupportedError

Function = TypeVar("Function", bound=Callable[..., Any])


def uncompiled(function: Function) -> Function:
    """Exclude a function from torch.compile: it breaks the graph, and its body is not traced."""
    return cast(Function, torch.compiler.disable(function))  # type: ignore[no-untyped-call]


def autograd_only(*tensors: torch.Tensor) -> bool:
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


def vectorized(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Return the `torch.vmap` rule of an operator: the axis of vmap joins the batch axis."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        size = info.batch_size
        flat = []
        for argument, dim in zip(arguments, in_dims, strict=True):
            if isinstance(argument, torch.Tensor):
                rows = (
                    argument.expand(size, *argument.shape)
                    if dim is None
                    else argument.movedim(dim, 0)
                )
                flat.append(rows.reshape(-1, *rows.shape[2:]))
            else:
                flat.append(argument)
        result = operator(*flat)
        if isinstance(result, tuple):
            return tuple(x.reshape(size, -1, *x.shape[1:]) for x in result), (0,) * len(result)
        return result.reshape(size, -1, *result.shape[1:]), 0

    return rule
