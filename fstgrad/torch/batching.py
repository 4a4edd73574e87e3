"""The rule of an operator of flags under `torch.vmap`: one more axis of its batch."""

from collections.abc import Callable
from typing import Any

import torch


def vectorized(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule of an operator under `torch.vmap`: one more axis of the batch."""

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
