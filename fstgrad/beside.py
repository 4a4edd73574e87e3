"""Parallel work: a process that compiles the kernels needed next, and a pool of threads.

A first gradient compiles two groups of kernels (small problems run in Python instead, see
`automata/few.py`): those that determinize a loss, then those of the passes.  While this process
compiles the first group, another process compiles the second on another core.  The compiler calls
`is_coming` before it compiles a kernel itself.  The process is not started if there is only one
core, in a process that is itself a worker, or with FSTGRAD_COMPILE_BESIDE=0.
"""

import atexit
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

_SWITCH = "FSTGRAD_COMPILE_BESIDE"
_PATIENCE = 120.0  # seconds to wait for one kernel; a process that needs longer is stuck
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from fstgrad.strings.ahead import compile_kernels
compile_kernels()
"""


@dataclass
class Beside:
    """The compiling process; each Python process starts at most one.

    Parameters
    ----------
    before : tuple of str
        Kernel files, as "package/file", whose compilation starts the process.
    compiles : tuple of str
        Kernel files that the process compiles.
    process : Popen, optional
        The process, once it is started.
    owner : int
        The id of the process that created this object.
    is_used : bool
        Whether `start` has met a file of `before`; it then does nothing more.
    """

    before: tuple[str, ...] = ("automata/composition", "automata/reduction", "automata/tropical")
    compiles: tuple[str, ...] = ("strings/passes", "strings/tangents")
    process: subprocess.Popen[bytes] | None = None
    owner: int = field(default_factory=os.getpid)
    is_used: bool = False

    def start(self, source: pathlib.Path) -> None:
        """Start the process at the first kernel file `source` that is in `before`, if allowed."""
        if self.is_used or _name(source) not in self.before:
            return
        self.is_used = True
        if not _is_allowed():
            return
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, json.dumps(sys.path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, _SWITCH: "0"},
            )
        except OSError:
            return
        atexit.register(self.stop)

    def is_coming(self, source: pathlib.Path, path: pathlib.Path) -> bool:
        """Wait if the process compiles the file `source`; return whether the kernel `path` exists.

        Waiting ends when the file exists, the process ends, or 120 seconds pass.
        """
        if _name(source) not in self.compiles:
            return False
        deadline = time.monotonic() + _PATIENCE
        while self._is_running() and time.monotonic() < deadline:
            if path.is_file():
                return True
            time.sleep(0.005)
        return path.is_file()

    def stop(self) -> None:
        """Terminate the process; kernels that it has compiled remain on disk."""
        if self.process is not None and self._is_running():
            self.process.terminate()
            self.process.wait()

    def _is_running(self) -> bool:
        process = self.process
        return process is not None and self.owner == os.getpid() and process.poll() is None


def _name(source: pathlib.Path) -> str:
    return f"{source.parent.parent.name}/{source.stem}"


def _is_allowed() -> bool:
    is_worker = multiprocessing.current_process().name != "MainProcess"
    is_wanted = os.environ.get(_SWITCH, "1") != "0"
    return is_wanted and cores() > 1 and not is_worker and has_interpreter()


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has_interpreter() -> bool:
    """Return whether `sys.executable` is Python, not a program that embeds Python."""
    return pathlib.Path(sys.executable or "").name.lower().startswith("python")


BESIDE = Beside()


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
