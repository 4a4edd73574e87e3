"""The kernels that a wheel brings compiled: which ones, for which processors, and how.

`kernels.jsonl` lists the kernels that a user's first steps need, a signature a line; `make kernels`
records it.  When a wheel is built, `build` compiles the list for some levels of processors.
"""

import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from fstgrad.machine_code.cache import SHIPPED, KernelCache, host_levels, shipped_versions
from fstgrad.machine_code.signatures import decode
from fstgrad.threads import cores

MANIFEST = pathlib.Path(__file__).with_name("kernels.jsonl")


def read_manifest() -> list[tuple[str, str, list[Any]]]:
    """Return (module, function, types of the arguments as text) of each kernel to compile."""
    lines = MANIFEST.read_text(encoding="utf-8").splitlines()
    return [(module, name, arguments) for module, name, arguments in map(json.loads, lines)]


def write_manifest(folder: pathlib.Path) -> None:
    """Write the list from the files of processes that ran with FSTGRAD_RECORD_KERNELS=folder."""
    texts = (path.read_text(encoding="utf-8") for path in folder.iterdir())
    lines = {line for text in texts for line in text.splitlines() if '["fstgrad.' in line[:10]}
    MANIFEST.write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")


def compile_list(folder: pathlib.Path, part: int, parts: int) -> None:
    """Compile a part of the list for the processor that numba is set to; copy the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for module, name, arguments in read_manifest()[part::parts]:
        dispatcher = getattr(importlib.import_module(module), name)
        signature = tuple(decode(text) for text in arguments)
        dispatcher.compile(signature)
        cache: KernelCache = dispatcher._cache
        codegen = dispatcher.targetctx.codegen()
        path = cache.path(signature, codegen)
        if path is None:
            raise OSError("no folder for compiled kernels is writable: set NUMBA_CACHE_DIR")
        shutil.copyfile(path, folder / cache.shipped_name(signature, codegen))


def build(package: pathlib.Path, levels: Iterable[str]) -> None:
    """Compile the list for several levels of processors, in as many processes as there are cores.

    Parameters
    ----------
    package : Path
        The folder `fstgrad` of the wheel to be; the files go into `machine_code/compiled`.
    levels : iterable of str
        Names of LLVM ("x86-64-v2"); "host" is the best level that this processor has.
    """
    names = [host_levels()[0] if level == "host" else level for level in levels]
    target = package / "machine_code" / SHIPPED.name
    parts = range(max(1, cores() // len(names)))
    split = [[str(part), str(len(parts))] for part in parts]
    running = [_start(package.parent, target / name, part) for name in names for part in split]
    failed = [process.args for process in running if process.wait()]
    if failed:
        raise RuntimeError(f"kernels were not compiled: {failed}")
    text = json.dumps({**shipped_versions(), "levels": names})
    (target / "versions.json").write_text(text + "\n", encoding="utf-8")


def _start(root: pathlib.Path, target: pathlib.Path, part: list[str]) -> subprocess.Popen[bytes]:
    """Start the compilation for a level; the features of the processor follow from its name."""
    path = os.pathsep.join((str(root), *filter(None, sys.path)))
    own = {"NUMBA_CPU_NAME": target.name, "NUMBA_CPU_FEATURES": "", "PYTHONPATH": path}
    command = [sys.executable, "-m", "fstgrad.machine_code.precompile", str(target), *part]
    return subprocess.Popen(command, env={**os.environ, **own})


if __name__ == "__main__":
    compile_list(pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:]))
