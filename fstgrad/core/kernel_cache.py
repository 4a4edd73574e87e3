"""The cache of compiled kernels on disk, and a notice of compilation.

All checkouts and environments of a user share one folder: the name of a file has no path, only a
digest of the kernel's source, of every fstgrad module that the source imports, and of the versions
of the compiler.  So an edited kernel or another version of fstgrad or numba never runs old machine
code.  Each signature has a file with a checksum; a damaged file is compiled again.  If no folder is
writable, every process compiles its kernels.

A wheel brings files of its own in the folder `compiled`, for a few levels of processors (see
`precompile.py`).  A kernel comes from the user's folder, else from the best level that this
processor has, else from the compiler.
"""

import functools
import hashlib
import json
import logging
import multiprocessing
import os
import pathlib
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import llvmlite
import numba

from fstgrad.core import numba_internals
from fstgrad.core.kernel_signatures import encode
from fstgrad.core.numba_internals import config, processor, user_cache_folder
from fstgrad.core.uninitialized import IS_FILLED

# what the kernels of each package are for
_FAMILIES = {
    "core": "vectors", "costs": "learned costs", "grm": "root models", "losses": "losses",
    "learning": "sequence models", "mrf": "random fields", "strings": "strings and lattices",
    "trees": "trees",
}  # fmt: skip
MAX_BYTES = 1 << 29  # of all files; a full run of the tests writes about 60 MB
_HOUR, _DAY = 3_600.0, 86_400.0
_RECORD = os.environ.get("FSTGRAD_RECORD_KERNELS", "")
_ROOT = pathlib.Path(__file__).parents[1]
_COMMENT, _NAME = re.compile(r"#.*"), re.compile(r"[\w.]+")
_IMPORT = re.compile(
    r"^(?:from (fstgrad[\w.]*) )?import (\([^)]*\)|(?:[^\\\n]|\\\n)*)", re.MULTILINE
)
# modules from which kernels import only types, so that their code is not compiled into kernels
_TYPES_ONLY = {("core", "checks"), ("core", "compiler"), ("core", "numba_internals")}
SWITCH = "FSTGRAD_SHIPPED_KERNELS"  # 0: shipped files are not used
SHIPPED = pathlib.Path(__file__).with_name("compiled")
_V2 = {"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"}
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = _V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
# levels of processors, the best first, and what a processor of the level has (System V ABI, x86-64)
LEVELS = {"x86-64-v4": _V4, "x86-64-v3": _V3, "x86-64-v2": _V2}


class KernelCache(numba_internals.Cache):  # type: ignore[misc]
    """The files of one compiled kernel, one for each signature."""

    def __init__(self, function: Callable[..., Any]) -> None:
        source = pathlib.Path(function.__code__.co_filename)
        is_file = source.is_file()
        self._package = _package(source)
        self._folder = _package_folder(self._package) if is_file else None
        self._stamp = _stamp(source) if is_file else ""
        self._name = f"{source.stem}.{function.__qualname__}-{sys.implementation.cache_tag}-"
        self._enabled = True
        self._function = function.__module__, function.__qualname__

    @property
    def cache_path(self) -> str | None:
        """The folder of the files; None if no folder is writable."""
        return None if self._folder is None else str(self._folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel for a signature; None if it is missing or damaged."""
        numba_internals.initialize(target_context)
        codegen = target_context.codegen()
        if _RECORD:
            _record(*self._function, sig)
        own, shipped = self.path(sig, codegen), self.shipped_name(sig, codegen)
        paths = [SHIPPED / level / shipped for level in shipped_levels(processor(codegen))]
        for path in [own, *paths] if own else paths:
            found = _read(path, target_context)
            if found is not None:
                return found
        COMPILATIONS.begin(self._function[0])
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write the compiled kernel for a signature; the first time, make room for it."""
        COMPILATIONS.end()
        path = self.path(sig, data.codegen)
        if path is None or not numba_internals.can_be_kept(data):
            return
        payload = numba_internals.to_bytes(data)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        try:
            _trim_once(path.parents[1])
            partial.write_bytes(hashlib.sha256(payload).digest() + payload)
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            _warn(f"compiled kernels cannot be kept in {path.parent} ({error.strerror})")

    def enable(self) -> None:
        """Let the cache read and write files."""
        self._enabled = True

    def disable(self) -> None:
        """Stop reading and writing files."""
        self._enabled = False

    def flush(self) -> None:
        """Remove the files of the current source, of all signatures."""
        if self._folder is not None:
            for path in self._folder.glob(f"{self._name}{self._stamp}-*.nbk"):
                path.unlink(missing_ok=True)

    def path(self, sig: Any, codegen: Any) -> pathlib.Path | None:
        """Return the file of this user for a signature; None if no folder is writable."""
        if self._folder is None or not self._enabled:
            return None
        return self._folder / self._file(sig, processor(codegen))

    def shipped_name(self, sig: Any, codegen: Any) -> str:
        """Return the name of the file that a wheel may bring in the folder of each level."""
        return f"{self._package}.{self._file(sig, platform_of(processor(codegen)[0]))}"

    def _file(self, sig: Any, target: object) -> str:
        machine = (repr(sig), target, config.BOUNDSCHECK, config.OPT, IS_FILLED)
        key = hashlib.sha256(repr(machine).encode()).hexdigest()[:16]
        return f"{self._name}{self._stamp}-{key}.nbk"


def _read(path: pathlib.Path, target_context: Any) -> Any:
    try:
        data = path.read_bytes()
        digest, payload = data[:32], data[32:]
        if hashlib.sha256(payload).digest() != digest:
            return None
        if time.time() - path.stat().st_mtime > _HOUR:
            os.utime(path)  # what is used is removed last
    except OSError:
        return None
    return numba_internals.from_bytes(target_context, payload)


@functools.cache
def shipped_levels(machine: tuple[str, str, str]) -> tuple[str, ...]:
    """Return the levels of shipped files that a processor can run, the best first.

    Parameters
    ----------
    machine : tuple of str
        The platform, the name of the processor and its features, as the compiler has them.
    """
    if os.environ.get(SWITCH) == "0" or not SHIPPED.is_dir():
        return ()
    return tuple(level for level in levels_of(*machine) if (SHIPPED / level).is_dir())


def levels_of(platform: str, name: str, features: str) -> list[str]:
    """Return the levels of a processor, the best first.

    Parameters
    ----------
    platform : str
        The target triple of LLVM.
    name : str
        The processor: the name of a level, or a model, whose features decide.
    features : str
        "+avx2,-sse4a,...".
    """
    if platform.startswith(("aarch64", "arm64")):
        return ["generic"]
    names = list(LEVELS)
    if name in LEVELS:
        return names[names.index(name) :]
    has = {feature[1:] for feature in features.split(",") if feature.startswith("+")}
    return [level for level, needs in LEVELS.items() if needs <= has]


def platform_of(triple: str) -> str:
    """Return a target triple of LLVM without the release of macOS, which kernels do not depend on.

    LLVM names the release of the machine that compiles: "arm64-apple-darwin23.6.0".
    """
    return re.sub(r"(?<=-darwin)[\d.]+$", "", triple)


def host_levels() -> list[str]:
    """Return the levels of this processor, the best first."""
    return levels_of(*processor())


def shipped_versions() -> dict[str, str]:
    """Return the versions and settings on which the machine code of a kernel depends."""
    return {
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "python": str(sys.implementation.cache_tag),
        "platform": platform_of(processor()[0]),
        "NUMBA_BOUNDSCHECK": str(config.BOUNDSCHECK),
        "NUMBA_OPT": str(int(config.OPT)),
        "FSTGRAD_DEBUG_EMPTY": str(IS_FILLED),
    }


def describe_shipped() -> str:
    """Say which shipped kernels this process uses, or why it uses none."""
    try:
        text = (SHIPPED / "versions.json").read_text(encoding="utf-8")
    except OSError:
        return "none (built without them, or an editable installation)"
    if os.environ.get(SWITCH) == "0":
        return f"unused: {SWITCH} is 0"
    built = json.loads(text)
    levels = built.pop("levels")
    differing = [
        f"{name} {built.get(name)}, here {value}"
        for name, value in shipped_versions().items()
        if built.get(name) != value
    ]
    if differing:
        return f"unused: built for {'; '.join(differing)}"
    usable = [level for level in host_levels() if level in levels]
    if not usable:
        return f"unused: built for {', '.join(levels)}, which this processor is not"
    parts, better = [], set[str]()
    for level in usable:
        names = {path.name for path in (SHIPPED / level).glob("*.nbk")} - better
        better |= names
        if names:
            parts.append(f"{len(names)} for {level}")
    return ", ".join(parts) or f"none for {usable[0]}"


def _record(module: str, name: str, sig: Any) -> None:
    """Append a kernel that this process needs to its file in the folder FSTGRAD_RECORD_KERNELS."""
    try:
        line = json.dumps([module, name, [encode(kind) for kind in sig]])
    except NotImplementedError:
        return  # a kernel within another one, for a constant
    with (pathlib.Path(_RECORD) / str(os.getpid())).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def usage(folder: pathlib.Path) -> tuple[int, int]:
    """Return the number of kernel files below a folder, and their bytes."""
    sizes = [size for _, size, _ in _files(folder)]
    return len(sizes), sum(sizes)


def trim(folder: pathlib.Path, max_bytes: int = MAX_BYTES) -> int:
    """Remove kernel files until at most `max_bytes` are left; return the number of removed files.

    The least recently used files are removed first, to the hour, and with them what interrupted
    processes left a day ago.
    """
    files = sorted(_files(folder), reverse=True)
    removed, total = 0, 0
    for used, size, path in files:
        total += size
        if total > max_bytes or (path.suffix == ".partial" and used < time.time() - _DAY):
            path.unlink(missing_ok=True)
            removed += 1
    return removed


@functools.cache
def _trim_once(folder: pathlib.Path) -> None:
    trim(folder)


def _files(folder: pathlib.Path) -> list[tuple[float, int, pathlib.Path]]:
    """Return (time of last use, bytes, path) of each file of kernels, also of unfinished ones."""
    found = []
    for path in (*folder.glob("*/*.nbk"), *folder.glob("*/*.nbk.*.partial")):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue  # another process has just renamed or removed it
        found.append((status.st_mtime, status.st_size, path))
    return found


@functools.cache
def _stamp(source: pathlib.Path) -> str:
    """Return a digest of a kernel file, the fstgrad modules it imports and the compilers."""
    versions = f"{numba.__version__} {llvmlite.__version__}"
    digest = hashlib.sha256(versions.encode())
    compilers = (_ROOT / "core/compiler.py", _ROOT / "core/numba_internals.py")
    for path in sorted({*kernel_sources(source), *compilers}):
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
            if package == "fstgrad" and parts and tuple(parts[:2]) not in _TYPES_ONLY:
                inside = _ROOT.joinpath(*parts)
                paths = inside.with_suffix(".py"), inside / "__init__.py"
                found += [path for path in paths if path.is_file()]
    return found


def _package(source: pathlib.Path) -> str:
    if source.is_relative_to(_ROOT):
        return ".".join(("fstgrad", *source.parent.relative_to(_ROOT).parts))
    digest = hashlib.sha256(str(source.parent).encode()).hexdigest()[:16]
    return f"{source.parent.name}_{digest}"  # the names of others may repeat


@functools.cache
def _package_folder(package: str) -> pathlib.Path | None:
    """Return the folder for the kernels of a package; None if no folder is writable."""
    folder = cache_folder()
    return folder / package if folder and _is_writable(folder / package) else None


@functools.cache
def cache_folder() -> pathlib.Path | None:
    """Return the folder of compiled kernels of this user; None if no folder is writable.

    This is NUMBA_CACHE_DIR if it is set, otherwise a folder in the user's cache.  If it cannot be
    written, it is a private folder in the temporary one (private, as its files are executed).
    """
    if config.CACHE_DIR:
        first = pathlib.Path(config.CACHE_DIR)
        is_usable = _is_writable(first)
    else:
        first = pathlib.Path(user_cache_folder()) / "kernels"
        is_usable = _is_private(first) and _is_writable(first)
    if is_usable:
        return first
    owner = os.getuid() if hasattr(os, "getuid") else 0
    shared = pathlib.Path(tempfile.gettempdir()) / f"fstgrad-kernels-{owner}"
    if _is_private(shared) and _is_writable(shared):
        _warn(f"{first} is not writable for you alone; compiled kernels are kept in {shared}")
        return shared
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
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    is_own = not hasattr(os, "getuid") or (status.st_uid == os.getuid())
    return folder.is_dir() and not folder.is_symlink() and is_own and status.st_mode & 0o022 == 0


@functools.cache
def _warn(message: str) -> None:
    """Warn once per process and message."""
    warnings.warn(message, RuntimeWarning, stacklevel=2)


class Compilations:
    """The kernels that this process compiles: how many, of which families, for how long.

    The first one of a family is announced as a warning of the logger "fstgrad".
    """

    def __init__(self) -> None:
        self._depth, self._start = 0, 0.0
        self._clear()

    def _clear(self) -> None:
        self.count, self.seconds = 0, 0.0
        self.families: list[str] = []

    def begin(self, module: str) -> None:
        """Note that a kernel of a module is compiled until `end`, with those that it calls."""
        package = module.removeprefix("fstgrad.").partition(".")[0]
        family = _FAMILIES.get(package, module)
        if family not in self.families:
            self.families.append(family)
            if multiprocessing.current_process().name == "MainProcess":
                logging.getLogger("fstgrad").warning(
                    "compiling kernels of %s for this processor; that may take more than a minute, "
                    "once",
                    family,
                )
        if not self._depth:
            self._start = time.perf_counter()
        self._depth += 1
        self.count += 1

    def end(self) -> None:
        """Note that the kernel begun last is compiled."""
        self._depth -= 1
        if not self._depth:
            self.seconds += time.perf_counter() - self._start

    def report(self) -> str | None:
        """Return what was compiled since the last report, as text; None if nothing was."""
        if not self.count:
            return None
        text = (
            f"compiled {self.count} kernels of {', '.join(self.families)} in {self.seconds:.1f} s"
        )
        kept = "" if cache_folder() is None else "; they are kept for later runs"
        self._clear()
        return text + kept


COMPILATIONS = Compilations()
