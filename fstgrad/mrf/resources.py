"""What a computation may use: a time limit, checked between sweeps, and threads.

Kernels release the interpreter lock, so threads run them at the same time.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from fstgrad.core.checks import positive_integer

Result = TypeVar("Result")


class SpentError(Exception):
    """The time is over before there is a result; this error never leaves the package."""


@dataclass(frozen=True)
class Budget:
    """The time `end` at which to stop, in seconds of `time.perf_counter`; inf for no limit."""

    end: float = float("inf")

    @classmethod
    def of(cls, seconds: float) -> "Budget":
        """Return a budget that ends `seconds` from now."""
        return cls(time.perf_counter() + seconds)

    @property
    def left(self) -> float:
        """The remaining seconds; negative when the time is over."""
        return self.end - time.perf_counter()

    @property
    def is_spent(self) -> bool:
        """Whether the time is over."""
        return self.end < float("inf") and time.perf_counter() >= self.end

    def check(self) -> None:
        """Raise SpentError if the time is over."""
        if self.is_spent:
            raise SpentError


NO_LIMIT = Budget()


class ThreadRanges:
    """0 .. size - 1 divided into one contiguous range per thread.

    `ranges(task)` runs the task on all ranges.  As a context manager, it shuts the threads down at
    the end.  The caller's results must not depend on the division.  With one thread, or fewer than
    `least` items, everything runs in the calling thread.
    """

    def __init__(self, size: int, threads: int, least: int = 2) -> None:
        count = positive_integer("threads", threads) if size >= least else 1
        count = max(1, min(count, size))
        cuts = [size * k // count for k in range(count + 1)]
        self.ranges = list(pairwise(cuts))
        self._pool = ThreadPoolExecutor(count - 1) if count > 1 else None

    def __enter__(self) -> "ThreadRanges":
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
