"""Arrays of tensors on any device, and whether a device is computed on."""

from collections.abc import Sequence

import numpy as np
import torch

from fstgrad.checks import FloatArray
from fstgrad.torch.operators import from_host
from fstgrad.torch.operators import to_numpy as native

# Paths in tensor operations exist for trees and for belief propagation.  None has been timed on a
# GPU, so that none is taken: scores go through pinned memory to the compiled passes and back.
DEVICE_PATHS = False


def on_gpu(tensor: torch.Tensor) -> bool:
    """Whether to compute on the device of the tensor; only this function decides it."""
    return DEVICE_PATHS and tensor.is_cuda


def to_numpy(tensor: torch.Tensor) -> FloatArray:
    """Return a float64 array of a tensor on any device."""
    return np.ascontiguousarray(native(tensor), dtype=np.float64)


def like(array: FloatArray | Sequence[float], tensor: torch.Tensor) -> torch.Tensor:
    """Return a float64 tensor of the array on the device of `tensor`, without a copy if it can."""
    values = np.asarray(array, dtype=np.float64)
    if tensor.device.type != "cpu" or tensor.dtype != torch.float64:
        tensor = tensor.new_empty(0, dtype=torch.float64)
    return from_host(values, tensor)
