"""Runs tasks on index ranges in threads; kernels release the interpreter lock."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

from fstgrad.core.checks import positive_integer

Result = TypeVar("Result")


class Bands:
    """0 .. size - 1 divided into one contiguous range per thread.

    `bands(task)` runs the task on all ranges.  As a context manager, it shuts the threads down at
    the end.  The caller's results must not depend on the division.  With one thread, or fewer than
    `least` items, everything runs in the calling thread.
    """

    def __init__(self, size: int, threads: int, least: int = 2) -> None:
        count = positive_integer("threads", threads) if size >= least else 1
        count = max(1, min(count, size))
        cuts = [size * k // count for k in range(count + 1)]
        self.ranges = list(pairwise(cuts))
        self._pool = ThreadPoolExecutor(count - 1) if count > 1 else None

    def __enter__(self) -> "Bands":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:  # after KeyboardInterrupt, do not wait for the threads
            self._pool.shutdown(wait=kind is None or issubclass(kind, Exception))

    def __call__(self, task: Callable[[int, int], Result]) -> list[Result]:
        """Return task(low, high) for each range, in order."""
        if self._pool is None:
            return [task(low, high) for low, high in self.ranges]
        others = [self._pool.submit(task, low, high) for low, high in self.ranges[1:]]
        return [task(*self.ranges[0]), *(other.result() for other in others)]
