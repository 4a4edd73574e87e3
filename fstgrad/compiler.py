"""Decorators of kernels, their cache on disk, and a notice of compilation.

A compiled kernel is cached next to its source, in one file for each signature.  The file name has a
digest of the numba version, the kernel's source and every fstgrad module that the source imports,
so an edited kernel or another version of fstgrad or numba never runs old machine code.  The file
has a checksum; a damaged file is compiled again.  If no folder is writable, every process compiles
its kernels.
"""

import ctypes
import functools
import hashlib
import logging
import multiprocessing
import os
import pathlib
import pickle
import re
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core import caching, event
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.options import DefaultOptions
from numba.core.serialize import dumps
from numba.core.typed_passes import NativeLowering
from numba.misc.appdirs import AppDirs

from fstgrad.beside import BESIDE

Function = TypeVar("Function", bound=Callable[..., Any])

# without the wrapper for callers in C, which is unused and takes time to compile
_OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}
_INLINED: dict[str, Any] = {"forceinline": True} if hasattr(DefaultOptions, "forceinline") else {}
COMPILING = (
    "compiling kernels for the first run on this machine; this takes a few seconds, and the result "
    "is kept for later runs"
)
_PART = "a part of kernels, which Python cannot call"
# Python runs this function if it calls a part: it raises TypeError and returns 0
_TYPE_ERROR = ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value
_CONFIG: Any = numba.core.config  # numba sets its attributes at run time
_LIBRARY: Any = JITCodeLibrary
_PASS: Any = LoweringPass
_COMPILER: Any = Compiler
_REBUILD: Callable[..., Any] = CompileResult._rebuild
_LISTENER: Any = event.Listener
_DUMPS: Callable[[Any], bytes] = dumps
_ROOT = pathlib.Path(__file__).parent
_COMMENT, _NAME = re.compile(r"#.*"), re.compile(r"[\w.]+")
_IMPORT = re.compile(
    r"^(?:from (fstgrad[\w.]*) )?import (\([^)]*\)|(?:[^\\\n]|\\\n)*)", re.MULTILINE
)
# modules from which kernels import only types, so that their code is not compiled into kernels
_TYPES_ONLY = {"beside", "checks", "compiler"}


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


class KernelCache(caching._Cache):
    """The cache of one compiled kernel on disk, one file for each signature."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._source = source = pathlib.Path(function.__code__.co_filename)
        self._folder = _cache_folder(source.parent) if source.is_file() else None
        self._stamp = _stamp(source) if self._folder else ""
        self._name = f"{source.stem}.{function.__qualname__}-{sys.implementation.cache_tag}-"
        self._enabled = True

    @property
    def cache_path(self) -> str | None:
        """The folder of the files; None if no folder is writable."""
        return None if self._folder is None else str(self._folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel for a signature; None if it is missing, stale or damaged."""
        target_context.refresh()
        path = self._path(sig, target_context.codegen())
        found = None if path is None else self._read(path, target_context)
        if found is None:
            _announce()
        if found is None and path is not None:
            BESIDE.start(self._source)
            if BESIDE.is_coming(self._source, path):
                found = self._read(path, target_context)
        return found

    def _read(self, path: pathlib.Path, target_context: Any) -> Any:
        try:
            digest, payload = _split(path.read_bytes())
            if hashlib.sha256(payload).digest() == digest:
                return _REBUILD(target_context, *pickle.loads(payload))
        except OSError:
            pass
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write the compiled kernel for a signature; remove the files of older sources."""
        path = self._path(sig, data.codegen)
        if path is None or data.lifted or data.library.has_dynamic_globals:
            return
        payload = _DUMPS(data._reduce())
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        try:
            for old in path.parent.glob(f"{self._name}*.nbk"):
                if not old.name.startswith(self._name + self._stamp):
                    old.unlink(missing_ok=True)
            partial.write_bytes(hashlib.sha256(payload).digest() + payload)
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            _warn(f"compiled kernels cannot be kept in {path.parent} ({error.strerror})")

    def is_there(self) -> bool:
        """Return whether the cache has a file for the current source, of any signature."""
        if self._folder is None or not self._enabled:
            return False
        return any(self._folder.glob(f"{self._name}{self._stamp}-*.nbk"))

    def enable(self) -> None:
        """Let the cache read and write files."""
        self._enabled = True

    def disable(self) -> None:
        """Stop reading and writing files."""
        self._enabled = False

    def flush(self) -> None:
        """Remove the files of all signatures."""
        if self._folder is not None:
            for path in self._folder.glob(f"{self._name}*.nbk"):
                path.unlink(missing_ok=True)

    def _path(self, sig: Any, codegen: Any) -> pathlib.Path | None:
        if self._folder is None or not self._enabled:
            return None
        machine = (repr(sig), codegen.magic_tuple(), _CONFIG.BOUNDSCHECK, _CONFIG.OPT)
        key = hashlib.sha256(repr(machine).encode()).hexdigest()[:16]
        return self._folder / f"{self._name}{self._stamp}-{key}.nbk"


def _split(data: bytes) -> tuple[bytes, bytes]:
    size = hashlib.sha256().digest_size
    return data[:size], data[size:]


@functools.cache
def _stamp(source: pathlib.Path) -> str:
    """Return a digest of a kernel file, the fstgrad modules it imports, this module and numba."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted({*kernel_sources(source), pathlib.Path(__file__)}):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def kernel_sources(source: pathlib.Path) -> set[pathlib.Path]:
    """Return a file and all fstgrad modules that it imports at top level, also indirectly."""
    found: set[pathlib.Path] = set()
    todo = [source]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += _imported(path)
    return found


@functools.cache
def _imported(source: pathlib.Path) -> list[pathlib.Path]:
    found = []
    code = _COMMENT.sub("", source.read_text(encoding="utf-8"))
    for module, text in _IMPORT.findall(code):  # ten times faster than `ast`, at every start
        names = _NAME.findall(text)
        for name in [module, *(f"{module}.{n}" for n in names)] if module else names:
            package, *parts = name.split(".")
            if package == "fstgrad" and parts and parts[0] not in _TYPES_ONLY:
                inside = _ROOT.joinpath(*parts)
                paths = inside.with_suffix(".py"), inside / "__init__.py"
                found += [path for path in paths if path.is_file()]
    return found


@functools.cache
def _cache_folder(beside: pathlib.Path) -> pathlib.Path | None:
    """Return the first writable cache folder, or None.

    Candidates are NUMBA_CACHE_DIR if set, otherwise `__pycache__` next to the source and the user's
    cache folder; then a private folder in the temporary one (private, as its files are executed).
    """
    own = f"{beside.name}_{hashlib.sha256(str(beside).encode()).hexdigest()[:16]}"
    if _CONFIG.CACHE_DIR:
        candidates = [pathlib.Path(_CONFIG.CACHE_DIR) / own]
    else:
        user: str = cast(Any, AppDirs)(appname="numba", appauthor=False).user_cache_dir
        candidates = [beside / "__pycache__", pathlib.Path(user) / own]
    for folder in candidates:
        if _is_writable(folder):
            return folder
    owner = os.getuid() if hasattr(os, "getuid") else 0
    shared = pathlib.Path(tempfile.gettempdir()) / f"fstgrad-kernels-{owner}"
    if _is_private(shared) and _is_writable(shared / own):
        _warn(f"{candidates[0]} is not writable; compiled kernels are kept in {shared}")
        return shared / own
    _warn("no folder is writable; kernels are compiled in every process (set NUMBA_CACHE_DIR)")
    return None


def _is_writable(folder: pathlib.Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _is_private(folder: pathlib.Path) -> bool:
    """Create a private folder; return whether it is a folder that only its owner can write."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    is_own = not hasattr(os, "getuid") or (status.st_uid == os.getuid())
    return folder.is_dir() and not folder.is_symlink() and is_own and status.st_mode & 0o022 == 0


@functools.cache
def _warn(message: str) -> None:
    """Warn once per process and message."""
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def announce_compilation(announce: Callable[[], object]) -> None:
    """Set the function to call once, before the first compilation; never if all is cached.

    The default function logs a warning to the logger "fstgrad".
    """
    _PENDING[:] = [announce]


def _log_compilation() -> None:
    if multiprocessing.current_process().name == "MainProcess":
        logging.getLogger("fstgrad").warning(COMPILING)


_PENDING: list[Callable[[], object]] = [_log_compilation]


def _announce() -> None:
    if _PENDING:
        _PENDING.pop()()


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
