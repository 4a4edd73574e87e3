"""The decorator of all kernels, and how a caller hears that one is being compiled."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import event
from numba.core.options import DefaultOptions

Function = TypeVar("Function", bound=Callable[..., Any])

_INLINE = {"forceinline": True} if hasattr(DefaultOptions, "forceinline") else {}


def kernel(function: Function) -> Function:
    """Compile plain loops on arrays: cached on disk, without the interpreter lock."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


def sum_kernel(function: Function) -> Function:
    """Compile sums of products: their terms may be regrouped, products fused into the sum.

    Infinities and NaN keep their meaning, and the same input gives the same result.
    """
    options: dict[str, Any] = {"cache": True, "nogil": True, "fastmath": {"reassoc", "contract"}}
    return cast(Function, numba.njit(**options)(function))


def inner_kernel(function: Function) -> Function:
    """Compile the innermost part of a kernel into the kernels that call it."""
    options: dict[str, Any] = {"cache": True, "nogil": True, **_INLINE}
    return cast(Function, numba.njit(**options)(function))


class _Announcement(event.Listener):
    """Calls `announce` before the first compilation that the disk cache does not save."""

    def __init__(self, announce: Callable[[], object]) -> None:
        self._announce: Callable[[], object] | None = announce

    def on_start(self, event: Any) -> None:
        if self._announce is not None:
            announce, self._announce = self._announce, None
            announce()

    def on_end(self, event: Any) -> None:
        pass


def announce_compilation(announce: Callable[[], object]) -> None:
    """Call `announce()` once, before the first kernel is compiled; never if all are cached."""
    register: Callable[[str, object], None] = event.register
    register("numba:compile", _Announcement(announce))
