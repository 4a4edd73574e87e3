"""Peak memory and time of commands on long files: `python benchmarks/load.py 200000`.

The program runs `fstgrad loss`, `fstgrad grad`, and `fstgrad grad` with a small --cache-gib on
the given number of rows, whose strings have 2 to 4 of 20 letters.  Each command also runs in an
address space limited to 4,000,000 KiB.
"""

import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

ADDRESSES = 4_000_000 * 1024  # bytes, as with `ulimit -v 4000000`
PROGRAM = [sys.executable, "-c", "from fstgrad.cli.main import main; main()"]
RUNS = (["loss"], ["grad"], ["grad", "--cache-gib", "0.016"])


def write_rows(path: pathlib.Path, count: int) -> None:
    """Write `count` pairs of random strings."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrst"))
    with path.open("w") as file:
        for _ in range(count):
            y, z = ("".join(rng.choice(letters, rng.integers(2, 5))) for _ in range(2))
            file.write(f"{y}\t{z}\n")


def measured(command: list[str], limit: int | None) -> tuple[int, float, float]:
    """Return the exit code of a command, its peak resident memory in MiB, and wall seconds."""

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=limited)
    _, status, usage = os.wait4(process.pid, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss / 1024, time.monotonic() - begun


def main() -> None:
    """Measure and print a table."""
    given = ["2000"] if sys.argv[1:] == ["--quick"] else sys.argv[1:]
    for count in map(int, given or ["200000"]):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "pairs.tsv"
            write_rows(path, count)
            for run in RUNS:
                for limit in (None, ADDRESSES):
                    program = [*PROGRAM, run[0], str(path), *run[1:]]
                    code, peak, seconds = measured(program, limit)
                    where = "ulimit -v 4000000" if limit else ""
                    print(f"| {count:,} | `fstgrad {' '.join(run)}` | {where} | {peak:.0f} MB "
                          f"| {seconds:.0f} s | exit {code}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
