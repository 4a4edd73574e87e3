"""How long does each kind of user wait for a first result, with the wheel and no kernels on disk?

Every row is a process of its own with an empty cache of kernels.  It imports what it needs and does
what `tests/first_steps.py` lists.  "imports" is a process that only imports numba, scipy.linalg
and the framework of the row.  The wheel is the one that `make dist-test` has installed; frameworks
come from the environment that runs this program.  Each is the least of several runs in turn, as the
work of other programs only adds to it.

The second table has the steps of `make bench-readme` with the kernels of the wheel, and with those
that `fstgrad doctor --warm` compiles for this processor.  Two processes are timed in turn; "times"
is above 1 where the kernels of the wheel are slower.

    make dist-test
    python benchmarks/first_results.py [--quick] [--json FILE]
"""

import os
import pathlib
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator

from _harness import Row, run

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHEEL = ROOT / "build/dist-venv/bin/python"
STEP = """
import runpy, sys
sys.path.append(sys.argv[1])
from numba.core import event
compiled = []
class Compilations(event.Listener):
    def on_start(self, event):
        compiled.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event):
        pass
event.register("numba:compile", Compilations())
steps = runpy.run_path(sys.argv[2])
(steps["STEPS"] | steps["FIRST_COMMANDS"])[sys.argv[3]]()
print(len(compiled))
"""
NAMES = """
import runpy, sys
steps = runpy.run_path(sys.argv[2])
del steps["STEPS"]["tasks of the command line"]  # many results
print(*steps["STEPS"], *steps["FIRST_COMMANDS"], sep="\\t")
"""
IMPORTS = "import sys; sys.path.append(sys.argv[1]); import numba, scipy.linalg"
SWITCH = "FSTGRAD_SHIPPED_KERNELS"
FRAMEWORK = {
    "root models": ", sklearn.base",
    "tensors": ", torch",
    "fstgrad, counts": ", sklearn.base",
    "fstgrad, images": ", PIL.Image, matplotlib.pyplot",  # it writes pictures
}


def process(code: str, *arguments: str) -> tuple[float, float, str]:
    """Return the wall and CPU seconds of a process with an empty cache, and its last line."""
    with tempfile.TemporaryDirectory() as empty:
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            [WHEEL, "-I", "-c", code, sysconfig.get_path("purelib"), *arguments],
            text=True,
            capture_output=True,
            check=True,
            cwd=empty,
            env={**os.environ, "NUMBA_CACHE_DIR": empty},
        )
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return wall, cpu, (done.stdout.splitlines() or [""])[-1]


def shipped_and_own(quick: bool) -> Iterator[Row]:
    """Yield the CPU seconds of warm steps with the kernels of the wheel and of this processor."""
    program = [WHEEL, str(ROOT / "benchmarks/_warm_steps.py"), sysconfig.get_path("purelib")]
    with tempfile.TemporaryDirectory() as empty:
        both = [
            subprocess.Popen(
                program, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={**os.environ, **own},
            )
            for own in ({"NUMBA_CACHE_DIR": empty}, {SWITCH: "0"})
        ]  # fmt: skip
        names, _ = [process.stdout.readline().rstrip("\n").split("\t") for process in both]
        for name in names:
            found: list[list[float]] = [[], []]
            for _ in range(3 if quick else 9):
                for process, seconds in zip(both, found, strict=True):
                    print(name, file=process.stdin, flush=True)
                    seconds.append(float(process.stdout.readline()))
            shipped, own = map(min, found)
            yield {
                "step": name,
                "seconds CPU shipped": shipped,
                "seconds CPU own": own,
                "times": shipped / own,
            }
        for process in both:
            process.communicate()


def rows(quick: bool) -> Iterator[Row]:
    if not WHEEL.exists():
        sys.exit("run make dist-test first; it builds the wheel and installs it")
    steps = ROOT / "tests/first_steps.py"
    names = process(NAMES, str(steps))[2].split("\t")
    process(IMPORTS)  # files of the system are in memory from here on
    for name in names:
        imports, results = [], []
        for _ in range(1 if quick else 5):
            imports.append(process(IMPORTS + FRAMEWORK.get(name, "")))
            results.append(process(STEP, str(steps), name))
        (imported, imported_cpu, _), (wall, cpu, _) = (
            map(min, zip(*found, strict=True)) for found in (imports, results)
        )
        yield {
            "case": name,
            "seconds": wall,
            "seconds of imports": imported,
            "times the imports": wall / imported,
            "times in CPU seconds": cpu / imported_cpu,
            "functions compiled": int(results[0][2]),
        }
    yield from shipped_and_own(quick)


if __name__ == "__main__":
    run("First results with the wheel", rows)
