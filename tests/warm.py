"""Compile the kernels of every family in two processes: `python -m tests.warm`, or `make warm`.

Numba compiles under one lock in a process, and workers of pytest that start together would compile
the same kernels.  The two processes have no kernel in common.
"""

import multiprocessing
import sys

import conftest  # noqa: F401  (binds cli/ and grammars/)

STRINGS = {"strings, edit distance and alignments", "lattices"}


def compile_kernels(names: set[str]) -> None:
    from fstgrad.cli.warm import STEPS

    for name in names:
        STEPS[name]()


def main() -> None:
    from fstgrad.cli.warm import STEPS

    others = STEPS.keys() - STRINGS
    spawn = multiprocessing.get_context("spawn")
    started = [spawn.Process(target=compile_kernels, args=(part,)) for part in (STRINGS, others)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    sys.exit(any(process.exitcode for process in started))


if __name__ == "__main__":
    main()
