"""Tensors on any device to NumPy arrays and back, and the choice where to compute."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch

from fstgrad.core.checks import FloatArray, flag
from fstgrad.core.errors import NotSupportedError
from fstgrad.objectives.base import Array
from fstgrad.torch.transforms import no_vmap

Function = TypeVar("Function", bound=Callable[..., Any])
_TORCH_DTYPE = {np.dtype(np.float64): torch.float64, np.dtype(np.float32): torch.float32}


class _Choice(NamedTuple):
    """Whether tensors on the CPU take the device paths too, and whether values are checked."""

    forced: bool
    validate: bool


_choice = _Choice(forced=False, validate=False)  # a variable of the module: torch.compile guards it


@contextmanager
def use_device_paths(enabled: bool = True, *, validate: bool = False) -> Iterator[None]:
    """Compute on tensors of the CPU as on those of a GPU, in operations of PyTorch.

    Without it, tensors of the CPU go to the compiled passes, and only those of other devices to
    PyTorch's operations (if the function has such a path).  It holds for all threads of a process.

    Parameters
    ----------
    enabled : bool
        False: as outside of any such block, for a part of one.
    validate : bool
        Values are not checked on a device, because reading them would wait for it: an item without
        a value (NaN or +inf in its scores, no structure, gold out of range) has the value NaN; its
        gradients are NaN or 0.  True: such an item raises the error that it raises on the CPU.

    Examples
    --------
    >>> import torch, fstgrad.torch as fgt
    >>> scores, steps = torch.full((1, 2, 3), torch.nan), torch.zeros(3, 3)
    >>> with fgt.use_device_paths():
    ...     fgt.CRF(scores, steps).log_partition().tolist()
    [nan]
    """
    global _choice
    before = _choice
    _choice = _Choice(flag("enabled", enabled), flag("validate", validate))
    try:
        yield
    finally:
        _choice = before


def computes_on_device(tensor: torch.Tensor) -> bool:
    """Whether to compute in PyTorch's operations; no other function makes this decision."""
    return _choice.forced or tensor.device.type != "cpu"


def device_paths_forced() -> bool:
    """Whether `use_device_paths` holds, under which tensors may have no numbers (device meta)."""
    return _choice.forced


def validated(function: Function) -> Function:
    """Let the passes on the CPU raise the error of an item whose value is NaN, if asked to."""

    @wraps(function)
    def checked(*given: Any, **named: Any) -> Any:
        result = function(*given, **named)
        tables = result if isinstance(result, tuple) else (result,)
        if _choice.validate and any(bool(table.isnan().any()) for table in tables):
            with use_device_paths(enabled=False), torch.no_grad():
                function(*map(_to_cpu, given), **{k: _to_cpu(v) for k, v in named.items()})
        return result

    return cast(Function, checked)


def _to_cpu(given: Any) -> Any:
    if isinstance(given, list | tuple) and any(isinstance(x, torch.Tensor) for x in given):
        return [_to_cpu(x) for x in given]
    if isinstance(given, torch.Tensor):
        return given.detach().cpu()
    return given._on_cpu() if hasattr(given, "_on_cpu") else given


def upcast(scores: torch.Tensor) -> torch.Tensor:
    """Return half-precision scores as `float32`, others unchanged."""
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def require_cpu(what: str, *scores: torch.Tensor) -> None:
    """Raise NotSupportedError for scores on another device: nothing moves them to the CPU."""
    for tensor in scores:
        if tensor.device.type != "cpu":
            raise NotSupportedError(
                f"{what} is computed on the CPU only, and its scores are on {tensor.device}; give "
                "their .cpu(), through which gradients go back"
            )


def per_item(values: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Return values (B,) or () in a shape that broadcasts over the items of `table` (B, ...)."""
    return values if values.ndim == 0 else values.reshape(-1, *(1,) * (table.ndim - 1))


def to_tensor(array: Array, like: torch.Tensor) -> torch.Tensor:
    """Return an array in the dtype and on the device of `like`; writable memory may be shared."""
    if like.device.type != "cpu":
        return to_device(array, like.device).to(like.dtype)
    if _TORCH_DTYPE.get(array.dtype) is like.dtype and array.flags.writeable:
        return torch.from_numpy(array if array.flags.c_contiguous else array.copy())
    copied = torch.empty(array.shape, dtype=like.dtype)
    copied.numpy()[...] = array
    return copied


def to_device(array: Array, device: torch.device) -> torch.Tensor:
    """Return a constant array on a device, through pinned memory."""
    table = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cuda":
        table = table.pin_memory()
    return table.to(device, non_blocking=True)


def to_numpy(tensor: torch.Tensor) -> Array:
    """Return a tensor on any device as a C-contiguous array; half precision as float32."""
    no_vmap([tensor])
    return np.ascontiguousarray(upcast(tensor.detach().cpu()).resolve_neg().numpy())


def to_float64(tensor: torch.Tensor) -> FloatArray:
    """Return a float64 array of a tensor on any device."""
    return np.ascontiguousarray(to_numpy(tensor), dtype=np.float64)


def to_float64_tensor(array: FloatArray | Sequence[float], tensor: torch.Tensor) -> torch.Tensor:
    """Return the array as float64 on the device of `tensor`, without a copy if possible."""
    values = np.asarray(array, dtype=np.float64)
    if tensor.device.type != "cpu" or tensor.dtype != torch.float64:
        tensor = tensor.new_empty(0, dtype=torch.float64)
    return to_tensor(values, tensor)
