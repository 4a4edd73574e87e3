"""Conversions between arrays and tensors on any device, and the choice of GPU computation."""

from collections.abc import Sequence

import numpy as np
import torch

from fstgrad.core.checks import FloatArray
from fstgrad.torch.operators import from_host
from fstgrad.torch.operators import to_numpy as native

# Trees and belief propagation also have implementations in tensor operations.  None of them has
# been timed on a GPU, so none is used: scores go through pinned memory to the compiled passes.
DEVICE_PATHS = False


def on_gpu(tensor: torch.Tensor) -> bool:
    """Whether to compute on the tensor's device; no other function makes this decision."""
    return DEVICE_PATHS and tensor.is_cuda


def to_numpy(tensor: torch.Tensor) -> FloatArray:
    """Return a float64 array of a tensor on any device."""
    return np.ascontiguousarray(native(tensor), dtype=np.float64)


def like(array: FloatArray | Sequence[float], tensor: torch.Tensor) -> torch.Tensor:
    """Return the array as float64 on the device of `tensor`, without a copy if possible."""
    values = np.asarray(array, dtype=np.float64)
    if tensor.device.type != "cpu" or tensor.dtype != torch.float64:
        tensor = tensor.new_empty(0, dtype=torch.float64)
    return from_host(values, tensor)
