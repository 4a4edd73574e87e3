"""How long a user waits: for the import, the help, the first gradient on an empty cache, the next.

Every row is a process of its own.  The floor is a Python that imports numpy.  CPU seconds say what
a machine that is not shared would take; the first gradient compiles its kernels and says so.

    python benchmarks/start.py [--quick] [--json FILE]
"""

import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from _harness import Row, one_thread, run

one_thread()

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMAND = "from fstgrad.cli.main import main; main()"
PAIR = "cat\tK AE T\n"


def seconds(code: str, arguments: list[str], cache: str) -> tuple[float, float, bool]:
    """Return wall and CPU seconds of a process, and whether it said that it compiles."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        input=PAIR,
        text=True,
        capture_output=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return wall, cpu, "compiling kernels" in done.stderr


def rows(quick: bool) -> Iterator[Row]:
    gradient = ["grad", "-", "--tokens-y", "words"]
    cases = (
        ("import numpy (floor)", "import numpy", [], None),
        ("import fstgrad", "import fstgrad", [], 0.4),
        ("fstgrad --help", COMMAND, ["--help"], 0.5),
        ("first gradient", COMMAND, gradient, 15.0),
        ("next gradient", COMMAND, gradient, None),
    )
    with tempfile.TemporaryDirectory() as kept:
        for name, code, arguments, goal in cases:
            repeats = []
            for _ in range((1 if quick else 3) if name == "first gradient" else 5):
                with tempfile.TemporaryDirectory() as empty:
                    repeats.append(seconds(code, arguments, empty if goal == 15.0 else kept))
            if name == "first gradient":
                seconds(code, arguments, kept)
            walls, cpus, said = zip(*repeats, strict=True)
            yield {
                "case": name,
                "seconds": statistics.median(walls),
                "seconds best": min(walls),
                "seconds CPU": min(cpus),
                "seconds goal": goal,
                "compiles": "and says so" if all(said) else "no",
            }


if __name__ == "__main__":
    run("Start: the first seconds of a user", rows)
