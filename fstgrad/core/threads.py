"""Parallel work: a pool of threads, and what this process can use."""

import os
import pathlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_interpreter() -> bool:
    """Return whether `sys.executable` is Python, not a program that embeds Python."""
    return pathlib.Path(sys.executable or "").name.lower().startswith("python")


@contextmanager
def worker_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads; an error or an interruption cancels the tasks that have not started.

    After an error, the pool waits for the running tasks.  After an interruption it does not,
    because a thread that compiles or runs a kernel cannot be stopped.

    Parameters
    ----------
    count : int
        The number of threads.
    """
    pool = ThreadPoolExecutor(count)
    wait = True
    try:
        yield pool
    except BaseException as error:
        wait = isinstance(error, Exception)
        raise
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)
