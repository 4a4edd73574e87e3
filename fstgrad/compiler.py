"""The decorator of all kernels, and how a caller hears that one is being compiled."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import event
from numba.core.options import DefaultOptions

Function = TypeVar("Function", bound=Callable[..., Any])

# no entry for callers in C, which nobody uses and which costs time to compile
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True}
_INLINED = _OPTIONS | ({"forceinline": True} if hasattr(DefaultOptions, "forceinline") else {})
_NO_ENTRY: dict[str, Any] = {"no_cpython_wrapper": True}


def kernel(function: Function) -> Function:
    """Compile plain loops on arrays: cached on disk, without the interpreter lock."""
    return cast(Function, numba.njit(**_OPTIONS)(function))


def fused_kernel(function: Function) -> Function:
    """Compile as `kernel` does, but let a product and the sum it enters share one rounding."""
    return cast(Function, numba.njit(**_OPTIONS, fastmath={"contract"})(function))


def sum_kernel(function: Function) -> Function:
    """Compile sums of products: their terms may be regrouped, products fused into the sum.

    Infinities and NaN keep their meaning, and the same input gives the same result.
    """
    return cast(Function, numba.njit(**_OPTIONS, fastmath={"reassoc", "contract"})(function))


def inner_kernel(function: Function) -> Function:
    """Compile the innermost part of a kernel into the kernels that call it, its only callers."""
    return cast(Function, numba.njit(**_INLINED, **_NO_ENTRY)(function))


def shared_kernel(function: Function) -> Function:
    """Compile an inner kernel that Python calls too."""
    return cast(Function, numba.njit(**_INLINED)(function))


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
