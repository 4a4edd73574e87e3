"""The one decorator of all kernels."""

from collections.abc import Callable
from typing import TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """Compile plain loops on arrays: cached on disk, without the interpreter lock."""
    compiled: Function = numba.njit(cache=True, nogil=True)(function)
    return compiled
