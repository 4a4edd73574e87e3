"""Shared code of the benchmarks: arguments, timings, tables on stdout, JSON, and versions.

A program is a function that yields rows; `run` does the rest::

    def rows(quick):
        yield {"case": "chain", "seconds": median_seconds(call), ...}

    if __name__ == "__main__":
        run("title", rows)

Rows are dictionaries; a row with new keys begins a new table.  Numbers in columns whose names begin
with "seconds" are printed with a unit, and those that begin with "ratio" or "times" as factors.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

Row = dict[str, Any]

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
PACKAGES = (
    "fstgrad", "numpy", "scipy", "numba", "pynini", "jax", "torch", "torch-struct", "networkx",
    "scikit-learn",
)  # fmt: skip


def one_thread() -> None:
    """Limit every library to one thread; call this before numpy is imported."""
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, "1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault(
        "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    )


def openfst_in_process() -> None:
    """Run every operation of OpenFst in this process.

    fstgrad runs long operations in a separate process, which an interruption can end.  This costs
    0.1 seconds that are not due to OpenFst.
    """
    import pynini

    from fstgrad.openfst import operations

    def run_here(name: str, *fsts: Any, **options: float) -> Any:
        return getattr(pynini, name)(*fsts, **options)

    operations.run_in_subprocess = run_here


def seconds_of(call: Callable[[], Any]) -> float:
    """Return the wall seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def median_seconds(call: Callable[[], Any], repeat: int = 5, *, least: float = 0.02) -> float:
    """Return the median of at least five timings of a call, in seconds, after a warm-up.

    A timing repeats a short call so that it lasts about `least` seconds.
    """
    call()
    once = seconds_of(call)
    inner = max(1, int(least / max(once, 1e-9)))
    timings = []
    for _ in range(max(5, repeat)):
        start = time.perf_counter()
        for _ in range(inner):
            call()
        timings.append((time.perf_counter() - start) / inner)
    return statistics.median(timings)


def interleaved_medians(calls: dict[str, Callable[[], Any]], repeat: int = 5) -> dict[str, float]:
    """Return the median seconds of several calls, timed in turn so that noise affects all."""
    timings: dict[str, list[float]] = {name: [] for name in calls}
    inner = {}
    for name, call in calls.items():
        call()
        inner[name] = max(1, int(0.02 / max(seconds_of(call), 1e-9)))
    for _ in range(max(5, repeat)):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(inner[name]):
                call()
            timings[name].append((time.perf_counter() - start) / inner[name])
    return {name: statistics.median(values) for name, values in timings.items()}


def peak_megabytes() -> float:
    """Return the peak resident memory of this process so far, in MiB (on Linux)."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def environment() -> dict[str, Any]:
    """Return the machine, the number of threads and the versions of installed packages."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "machine": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS", "library default"),
        "system": platform.platform(),
        "versions": versions,
    }


def report(title: str, rows: Iterable[Row], json_path: str | None = None) -> list[Row]:
    """Print each row of a table as soon as it is measured; then write all rows as JSON."""
    about = environment()
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    print(f"{title}\n{about['machine']}, {about['cores']} cores, threads: {about['threads']}")
    print(versions)
    done: list[Row] = []
    widths: list[int] = []
    for row in rows:
        cells = [shown(name, value) for name, value in row.items()]
        if not done or list(row) != list(done[-1]):
            widths = [max(len(n), len(c), 9) for n, c in zip(row, cells, strict=True)]
            print("\n" + "  ".join(n.rjust(w) for n, w in zip(row, widths, strict=True)))
        print("  ".join(c.rjust(w) for c, w in zip(cells, widths, strict=True)), flush=True)
        done.append(row)
    if json_path is not None:
        with open(json_path, "w", encoding="utf-8") as file:
            json.dump({"title": title, **about, "rows": done}, file, indent=1)
            file.write("\n")
    return done


def arguments(title: str, choices: tuple[str, ...] = ()) -> argparse.Namespace:
    """Return the arguments that every program accepts: `--quick` and `--json FILE`.

    With `choices`, the result also has `names`: the choices on the command line.
    """
    parser = argparse.ArgumentParser(description=title)
    if choices:
        parser.add_argument("names", nargs="*", metavar="|".join(choices), help="all if left out")
    parser.add_argument("--quick", action="store_true", help="small sizes, a few seconds in all")
    parser.add_argument("--json", metavar="FILE", help="write the rows, machine and versions here")
    given = parser.parse_args()
    for name in given.names if choices else ():
        if name not in choices:
            parser.error(f"no experiment {name!r}; give {' or '.join(choices)}")
    return given


def run(title: str, rows: Callable[[bool], Iterable[Row]]) -> None:
    """Read the arguments, run the program, and print and write its rows."""
    given = arguments(title)
    report(title, rows(given.quick), given.json)
    sys.stdout.flush()


def shown(name: str, value: Any, digits: int = 4) -> str:
    """Return a cell of a table; the name of its column tells its unit."""
    if value is None:
        return "-"
    if isinstance(value, float) and name.startswith("seconds"):
        for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
            if value >= size:
                return f"{value / size:.3g} {unit}"
        return f"{value * 1e9:.3g} ns"
    if isinstance(value, float) and name.startswith(("ratio", "times")):
        return f"{value:,.1f} x" if value >= 10 else f"{value:.2f} x"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":")[1].strip() for line in file if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
