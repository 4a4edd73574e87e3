"""The one decorator of all kernels."""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """Compile plain loops on arrays: cached on disk, without the interpreter lock."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))
