"""What fstgrad uses of numba beyond its documented interface; no other module does.

Compiled kernels are kept as files (`kernel_cache`), and a signal must not interrupt the compiler.
numba has no public interface for either.
"""

import importlib
import pickle
import threading
from typing import Any, cast

import numba
from numba.core import caching, event
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.options import DefaultOptions
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps
from numba.misc.appdirs import AppDirs
from numba.np.numpy_support import as_dtype

__all__ = ["as_dtype"]

config: Any = numba.core.config  # numba sets its attributes at run time
Cache: Any = caching._Cache
INLINED: dict[str, Any] = {"forceinline": True} if hasattr(DefaultOptions, "forceinline") else {}
_COMPILER: Any = Compiler
_LIBRARY: Any = JITCodeLibrary
_LISTENER: Any = event.Listener
_LOCK: Any = global_compiler_lock


def use_cache(dispatcher: Any, cache: Any) -> None:
    """Let a compiled function read and write its machine code by a cache."""
    dispatcher._cache = cache


def can_be_kept(compiled: Any) -> bool:
    """Return whether machine code is the same in every process."""
    return not compiled.lifted and not compiled.library.has_dynamic_globals


def initialize(target_context: Any) -> None:
    """Prepare what machine code calls.

    What is needed to compile is loaded by the compiler: half a second, most of it scipy.linalg.
    """
    cast(Any, rtsys).initialize(target_context)


def to_bytes(compiled: Any) -> bytes:
    """Return the machine code of a kernel and its signature as bytes."""
    return cast(bytes, cast(Any, dumps)(compiled._reduce()))


def from_bytes(target_context: Any, data: bytes) -> Any:
    """Return the compiled kernel that `to_bytes` has written.

    What a matrix product calls is imported here.  Machine code would import it at the first
    product, where an interruption ends the process (Fatal Python error: BLAS wrapper returned).
    """
    if b"numba_xxgemm" in data:
        importlib.import_module("scipy.linalg.cython_blas")
    return cast(Any, CompileResult)._rebuild(target_context, *pickle.loads(data))


def processor(codegen: Any = None) -> tuple[str, str, str]:
    """Return the platform, the name of the processor and its features; default: this machine's."""
    host: Any = codegen or cast(Any, cpu_target).target_context.codegen()
    return cast(tuple[str, str, str], host.magic_tuple())


def user_cache_folder() -> str:
    """Return the folder for caches of this user."""
    return cast(str, cast(Any, AppDirs)(appname="fstgrad", appauthor=False).user_cache_dir)


class InlinedCode(_LIBRARY):  # type: ignore[misc]
    """The code of a part, which becomes machine code in the kernels that contain it."""

    @property
    def codegen(self) -> Any:
        """Return self, for numba's call codegen.set_env(...) after the compilation."""
        return self

    def set_env(self, name: str, env: Any) -> None:
        """Do nothing: without machine code, there is no environment to set."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class PartCode(InlinedCode):
    """The code of a part that LLVM optimizes within kernels before it decides on inlining it.

    What must be inlined is optimized before, or else some loops are a tenth slower.
    """

    def _optimize_final_module(self) -> None:
        """Leave the code as it is."""


class PartCompiler(_COMPILER):  # type: ignore[misc]
    """Compile a part: a function that only kernels call."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        is_inlined = getattr(self.state.flags, "forceinline", False)
        code = InlinedCode if is_inlined else PartCode
        self.state.library = code(self.state.targetctx.codegen(), "part")


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
        """Keep an exception if the main thread (the caller) is compiling; return whether it is.

        A thread that waits for one that compiles is not compiling.
        """
        is_compiling = self._depth > 0 and bool(_LOCK.is_locked())
        if is_compiling:
            self._held = error
        return is_compiling

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
