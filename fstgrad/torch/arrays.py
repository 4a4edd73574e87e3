"""Tensors on any device to NumPy arrays and back, and the choice of computation on a GPU."""

from collections.abc import Sequence

import numpy as np
import torch

from fstgrad.core.checks import FloatArray
from fstgrad.objectives.base import Array

# Trees and belief propagation also have implementations in tensor operations.  None of them has
# been timed on a GPU, so none is used: scores go through pinned memory to the compiled passes.
DEVICE_PATHS = False
_TORCH_DTYPE = {np.dtype(np.float64): torch.float64, np.dtype(np.float32): torch.float32}


def computes_on_gpu(tensor: torch.Tensor) -> bool:
    """Whether to compute on the tensor's device; no other function makes this decision."""
    return DEVICE_PATHS and tensor.is_cuda


def upcast(scores: torch.Tensor) -> torch.Tensor:
    """Return half-precision scores as `float32`, others unchanged."""
    return scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor itself, and a copy in pinned memory of a tensor on another device."""
    if tensor.device.type == "cpu":
        return tensor.detach() if tensor.requires_grad else tensor
    buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return buffer.copy_(tensor.detach())


def to_tensor(array: Array, like: torch.Tensor) -> torch.Tensor:
    """Return an array in the dtype and on the device of `like`; writable memory may be shared."""
    if like.device.type == "cpu":
        if _TORCH_DTYPE.get(array.dtype) is like.dtype and array.flags.writeable:
            return torch.from_numpy(array if array.flags.c_contiguous else array.copy())
        copied = torch.empty(array.shape, dtype=like.dtype)
        copied.numpy()[...] = array
        return copied
    buffer = torch.empty(array.shape, dtype=like.dtype, pin_memory=True)
    buffer.numpy()[...] = array
    return buffer.to(like.device, non_blocking=True)


def to_numpy(tensor: torch.Tensor) -> Array:
    """Return a tensor on any device as a C-contiguous array; half precision as float32."""
    return np.ascontiguousarray(upcast(on_host(tensor)).numpy())


def to_float64(tensor: torch.Tensor) -> FloatArray:
    """Return a float64 array of a tensor on any device."""
    return np.ascontiguousarray(to_numpy(tensor), dtype=np.float64)


def to_float64_tensor(array: FloatArray | Sequence[float], tensor: torch.Tensor) -> torch.Tensor:
    """Return the array as float64 on the device of `tensor`, without a copy if possible."""
    values = np.asarray(array, dtype=np.float64)
    if tensor.device.type != "cpu" or tensor.dtype != torch.float64:
        tensor = tensor.new_empty(0, dtype=torch.float64)
    return to_tensor(values, tensor)
