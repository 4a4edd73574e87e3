"""Decorators of kernels, and a guard of signals during compilation."""

import ctypes
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core import event
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.options import DefaultOptions
from numba.core.typed_passes import NativeLowering

from fstgrad.core.kernel_cache import KernelCache

Function = TypeVar("Function", bound=Callable[..., Any])

# without the wrapper for callers in C, which is unused and takes time to compile
_OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}
_INLINED: dict[str, Any] = {"forceinline": True} if hasattr(DefaultOptions, "forceinline") else {}
_PART = "a part of kernels, which Python cannot call"
# Python runs this function if it calls a part: it raises TypeError and returns 0
_TYPE_ERROR = ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value
_CONFIG: Any = numba.core.config  # numba sets its attributes at run time
_LIBRARY: Any = JITCodeLibrary
_PASS: Any = LoweringPass
_COMPILER: Any = Compiler
_LISTENER: Any = event.Listener


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
    """Compile an innermost part, inlined into the kernels that call it; Python cannot call it."""
    return _part(function, **_INLINED)


def part_kernel(function: Function) -> Function:
    """Compile a part that only kernels call; LLVM decides whether to inline it."""
    return _part(function)


def sum_part_kernel(function: Function) -> Function:
    """Compile a part as `part_kernel` does, with sums as in `sum_kernel`."""
    return _part(function, fastmath={"reassoc", "contract"})


def shared_kernel(function: Function) -> Function:
    """Compile an inlined kernel that Python can call too."""
    return _compiled(function, **_OPTIONS, **_INLINED)


def _compiled(function: Function, **options: Any) -> Function:
    dispatcher = numba.njit(**options)(function)
    if not _CONFIG.DISABLE_JIT:
        dispatcher._cache = KernelCache(function)
    return cast(Function, dispatcher)


def _part(function: Function, **options: Any) -> Function:
    own = _OPTIONS | {"no_cpython_wrapper": True, "pipeline_class": _PartCompiler}
    return cast(Function, numba.njit(**own, **options)(function))


class _PartLibrary(_LIBRARY):  # type: ignore[misc]
    """The code of a part; LLVM optimizes it only within the kernels that it is linked to."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _Registration(_PASS):  # type: ignore[misc]
    """Register a part for the kernels that call it."""

    _name = "fstgrad_part_registration"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        made, name = state.cr, state.func_id.func_name
        entry = _dynfunc.make_function(
            made.fndesc.lookup_module(), name, _PART, _TYPE_ERROR, made.env, (state.library,)
        )
        state.targetctx.insert_user_function(entry, made.fndesc, [state.library])
        state.cr = made._replace(cfunc=entry)
        return True


class _PartCompiler(_COMPILER):  # type: ignore[misc]
    """Compile a part, which has no separate machine code and no file in the cache."""

    def __init__(self, typing: Any, target: Any, library: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(typing, target, library, *args, **kwargs)
        self.state.library = _PartLibrary(target.codegen(), "part")
        self.state.flags.no_compile = True

    def define_pipelines(self) -> list[Any]:
        (passes,) = super().define_pipelines()
        passes.add_pass_after(_Registration, NativeLowering)
        passes.finalize()
        return [passes]


class Compilation(_LISTENER):  # type: ignore[misc]
    """Delay an exception of a signal handler while the main thread compiles or loads kernels.

    Within a callback of LLVM the exception would be lost or turn into another one.  It is raised
    before the next compiler pass, or after the kernel.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._held: type[BaseException] | None = None
        for kind in ("numba:compiler_lock", "numba:run_pass"):
            event.register(kind, self)  # type: ignore[no-untyped-call]

    def hold(self, error: type[BaseException]) -> bool:
        """Keep an exception if the main thread (the caller) is compiling; return whether it is."""
        if self._depth:
            self._held = error
        return self._depth > 0

    def on_start(self, event: Any) -> None:
        """Count nested compilations; before a compiler pass, raise a delayed exception."""
        if threading.current_thread() is threading.main_thread():
            if event.kind == "numba:run_pass":
                self._let_go()
            else:
                self._depth += 1

    def on_end(self, event: Any) -> None:
        """Raise a delayed exception after the outermost compilation."""
        is_lock = event.kind == "numba:compiler_lock"
        if is_lock and threading.current_thread() is threading.main_thread():
            self._depth -= 1
            if self._depth == 0:
                self._let_go()

    def _let_go(self) -> None:
        error, self._held = self._held, None
        if error is not None:
            raise error


COMPILATION = Compilation()
