"""Decorators of kernels.

A part, which only kernels call, has no machine code and no file of its own; in Python it is the
function itself.
"""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import numba
from numba.extending import overload, register_jitable

from fstgrad.core.kernel_cache import KernelCache
from fstgrad.core.numba_internals import INLINED, PartCompiler, config, use_cache

Function = TypeVar("Function", bound=Callable[..., Any])
First = TypeVar("First")
Others = ParamSpec("Others")
Result = TypeVar("Result")

# without the wrapper for callers in C, which is unused and takes time to compile
_OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}
_PART = _OPTIONS | {"no_cpython_wrapper": True, "pipeline_class": PartCompiler}


def kernel(function: Function) -> Function:
    """Compile loops over arrays; the result is cached on disk and releases the interpreter lock."""
    return _compiled(function, **_OPTIONS)


def fused_kernel(function: Function) -> Function:
    """Compile as `kernel` does, but allow a product and a sum to be fused, with one rounding."""
    return _compiled(function, **_OPTIONS, fastmath={"contract"})


def sum_kernel(function: Function) -> Function:
    """Compile sums of products; terms may be reordered, and products fused into the sum.

    Infinities and NaN keep their meaning.  The same input gives the same result, unless a loop both
    sums and stores: if two of its arrays are too close in memory, LLVM's scalar version of the loop
    runs, which sums in another order.
    """
    return _compiled(function, **_OPTIONS, fastmath={"reassoc", "contract"})


def inner_kernel(function: Function) -> Function:
    """Compile an innermost part, inlined into the kernels that call it."""
    return _part(function, **INLINED)


def part_kernel(function: Function) -> Function:
    """Compile a part that only kernels call; LLVM decides whether to inline it."""
    return _part(function)


def sum_part_kernel(function: Function) -> Function:
    """Compile a part as `part_kernel` does, with sums as in `sum_kernel`."""
    return _part(function, fastmath={"reassoc", "contract"})


def optional_part(
    function: Callable[Concatenate[First, Others], Result],
) -> Callable[Concatenate[First | None, Others], Result | None]:
    """Compile an inlined part that is None where its first argument is None.

    Of `f(None) if x is None else f(part(x))` numba would compile both calls for every x.
    """

    @functools.wraps(function)
    def part(first: First | None, /, *others: Others.args, **named: Others.kwargs) -> Result | None:
        return None if first is None else function(first, *others, **named)

    def nothing(*arguments: Any) -> None:
        return None

    def compiled(first: Any, *others: Any) -> Any:
        return nothing if isinstance(first, numba.types.NoneType) else function

    cast(Any, overload)(part, jit_options=_PART | INLINED, strict=False)(compiled)
    return part


def shared_kernel(function: Function) -> Function:
    """Compile an inlined kernel that Python can call too."""
    return _compiled(function, **_OPTIONS, **INLINED)


def _compiled(function: Function, **options: Any) -> Function:
    dispatcher = numba.njit(**options)(function)
    if not config.DISABLE_JIT:
        use_cache(dispatcher, KernelCache(function))
    return cast(Function, dispatcher)


def _part(function: Function, **options: Any) -> Function:
    return cast(Function, cast(Any, register_jitable)(**_PART, **options)(function))
