"""How long does a user wait for the import, the help, and the first and next gradients?

The first gradient starts with an empty cache of kernels.  Every row is measured in a separate
process.  The floor is a Python process that imports numpy.  The rows by kernel have the CPU seconds
of compilation in one process, of each kernel with the functions that only it calls, and the part of
LLVM.  `first_results.py` has the first result of each kind of user with the wheel.

    python benchmarks/start.py [--quick] [--json FILE]
"""

import json
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
    """Return the wall and CPU seconds of a process, and whether it reported compilation."""
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


BY_KERNEL = """
import json, sys, time
from numba.core import event
found, depth, start, llvm = [], 0, 0.0, 0.0
class Kernels(event.Listener):
    def on_start(self, e):
        global depth, start, llvm
        if depth == 0:
            start, llvm = time.thread_time(), 0.0
        depth += 1
    def on_end(self, e):
        global depth
        depth -= 1
        if depth == 0:
            function = e.data["dispatcher"].py_func
            name = f"{function.__module__.removeprefix('fstgrad.')}.{function.__name__}"
            found.append((name, time.thread_time() - start, llvm))
class Llvm(event.Listener):
    def on_start(self, e):
        self.since = time.thread_time()
    def on_end(self, e):
        global llvm
        llvm += time.thread_time() - self.since
event.register("numba:compile", Kernels())
event.register("numba:llvm_lock", Llvm())
exec(sys.argv[1])
print(json.dumps(found))
"""
README = """
import numpy as np
import fstgrad as fg
abc = fg.Alphabet("acgt")
b = fg.EditDistance(abc).compile("gattaca")
b.loss("gatacat")
scores = np.random.default_rng(0).normal(size=(7, 5, 4))
fg.softmax_margin(scores, "gattaca", b)
d = fg.StringDistribution(scores, b)
d.log_partition(), d.expected_loss(b), d.marginals(), d.mode()
"""


def by_kernel() -> Iterator[Row]:
    """Yield the compile time of each kernel of the README's first example, longest first."""
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [sys.executable, "-c", BY_KERNEL, README],
            text=True,
            capture_output=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "NUMBA_CACHE_DIR": empty},
        )
    for name, total, llvm in sorted(json.loads(done.stdout), key=lambda row: -row[1]):
        yield {"case": f"kernel {name}", "seconds CPU": total, "of LLVM": llvm}


def rows(quick: bool) -> Iterator[Row]:
    gradient = ["grad", "-", "--tokens-y", "words"]
    cases = (
        ("import numpy (floor)", "import numpy", [], None),
        ("import fstgrad", "import fstgrad", [], 0.4),
        ("fstgrad --help", COMMAND, ["--help"], 0.5),
        ("first gradient", COMMAND, gradient, 15.0),
        ("next gradient", COMMAND, gradient, None),
        ("README's example, first", README, [], 15.0),
        ("README's example, next", README, [], None),
    )
    with tempfile.TemporaryDirectory() as kept:
        for name, code, arguments, goal in cases:
            repeats = []
            is_first = goal == 15.0
            for _ in range((1 if quick else 3) if is_first else 5):
                with tempfile.TemporaryDirectory() as empty:
                    repeats.append(seconds(code, arguments, empty if is_first else kept))
            if is_first:
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
    yield from by_kernel()


if __name__ == "__main__":
    run("Start: the first seconds of a user", rows)
