"""The `torch.vmap` rule of operators on tensors and flags: the axis of vmap joins the batch."""

from collections.abc import Callable
from typing import Any

import torch


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
