"""The kernels that a wheel brings compiled: which ones, for which processors, and how.

`kernels.jsonl` lists the kernels that a user's first steps need, a signature a line; `make kernels`
records it.  When a wheel is built, `build` compiles the list for some levels of processors.
`python -m fstgrad.core.precompile` compiles it for this machine, into the user's folder.
"""

import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from fstgrad.core.kernel_cache import SHIPPED, SWITCH, KernelCache, host_levels, shipped_versions
from fstgrad.core.kernel_signatures import decode
from fstgrad.core.threads import cores

MANIFEST = pathlib.Path(__file__).with_name("kernels.jsonl")
# these kernels of the list gain a tenth and more by this level; of the others, a wheel has
# the files of the level below
PARTIAL = "x86-64-v4"
FASTER_WITH_AVX512 = {
    ("fstgrad.mrf.kernels.bp_grid", "sweep"),
    ("fstgrad.strings.kernels.passes", "exponentials"),
    ("fstgrad.strings.kernels.passes", "shift_scores"),
    ("fstgrad.trees.kernels.matrix_tree", "entropies"),
    ("fstgrad.trees.kernels.matrix_tree", "solve_batch"),
    ("fstgrad.trees.kernels.normal_form", "best_batch"),
}


class Kernel(NamedTuple):
    """A kernel to compile: its module and function, and the types of its arguments as text."""

    module: str
    name: str
    arguments: list[Any]

    def compile(self) -> tuple[pathlib.Path, str]:
        """Compile it, or load it; return its file, and the name of this file in a wheel."""
        dispatcher = getattr(importlib.import_module(self.module), self.name)
        signature = tuple(map(decode, self.arguments))
        dispatcher.compile(signature)
        cache: KernelCache = dispatcher._cache
        codegen = dispatcher.targetctx.codegen()
        path = cache.path(signature, codegen)
        if path is None:
            raise OSError("no folder for compiled kernels is writable: set NUMBA_CACHE_DIR")
        return path, cache.shipped_name(signature, codegen)


def read_manifest() -> list[Kernel]:
    """Return the kernels to compile, sorted by module."""
    lines = MANIFEST.read_text(encoding="utf-8").splitlines()
    return [Kernel(*json.loads(line)) for line in lines]


def kernels_for(level: str) -> list[Kernel]:
    """Return the kernels to compile for a level of processors."""
    kernels = read_manifest()
    if level != PARTIAL:
        return kernels
    return [kernel for kernel in kernels if (kernel.module, kernel.name) in FASTER_WITH_AVX512]


def write_manifest(folder: pathlib.Path) -> None:
    """Write the list from the files of processes that ran with FSTGRAD_RECORD_KERNELS=folder."""
    texts = (path.read_text(encoding="utf-8") for path in folder.iterdir())
    lines = {line for text in texts for line in text.splitlines() if '["fstgrad.' in line[:10]}
    MANIFEST.write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")


def compile_shard(shards: int, shard: int, folder: pathlib.Path | None = None) -> None:
    """Compile a shard of the list for the processor that numba is set to; copy it to a folder."""
    for kernel in kernels_for(folder.name if folder else "")[shard::shards]:
        path, name = kernel.compile()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)


def build(package: pathlib.Path, levels: Iterable[str]) -> None:
    """Compile the list for several levels of processors, in as many processes as there are cores.

    Parameters
    ----------
    package : Path
        The folder `fstgrad` of the wheel to be; the files go into `core/compiled`.
    levels : iterable of str
        Names of LLVM ("x86-64-v2"); "host" is the best level that this processor has, with the
        level below if the best one has some of the kernels only.
    """
    best = host_levels()
    del best[1 + (PARTIAL in best) :]
    names = [name for level in levels for name in (best if level == "host" else [level])]
    if not names:
        return  # a processor of no level, so that its users compile
    target = package / "core" / SHIPPED.name
    path = os.pathsep.join((str(package.parent), *filter(None, sys.path)))
    running = []
    for name in names:  # features follow from the level; files of other levels do not serve
        own = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": "", "PYTHONPATH": path, SWITCH: "0"}
        running += _started(max(1, cores() // len(names)), own, target / name)
    _wait(running)
    text = json.dumps({**shipped_versions(), "levels": names})
    (target / "versions.json").write_text(text + "\n", encoding="utf-8")


def warm() -> None:
    """Compile the list for this processor into the user's folder, also what a wheel brings.

    Code for one processor can be faster than that for its level.

    Raises
    ------
    RuntimeError
        A process failed; the message is its last line.
    """
    path = os.pathsep.join(filter(None, sys.path))
    _wait(_started(cores(), {SWITCH: "0", "PYTHONPATH": path}))


def _started(
    shards: int, own: dict[str, str], *folder: pathlib.Path
) -> list[subprocess.Popen[str]]:
    """Start a process for each shard of the list, with environment variables of its own."""
    command = [sys.executable, "-m", "fstgrad.core.precompile", str(shards)]
    return [
        subprocess.Popen(
            [*command, str(shard), *map(str, folder)],
            env={**os.environ, **own},
            stderr=subprocess.PIPE,
            text=True,
        )
        for shard in range(shards)
    ]


def _wait(processes: list[subprocess.Popen[str]]) -> None:
    results = [(process.communicate()[1], process.returncode) for process in processes]
    for stderr, code in results:
        if code:
            last = stderr.strip().splitlines()[-1:] or [f"exit code {code}"]
            raise RuntimeError(f"kernels were not compiled: {last[0]}")


if __name__ == "__main__":
    if sys.argv[1:]:
        compile_shard(int(sys.argv[1]), int(sys.argv[2]), *map(pathlib.Path, sys.argv[3:]))
    else:
        warm()
