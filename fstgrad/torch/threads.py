"""Items of a batch in the threads that PyTorch uses.

PyTorch's OpenMP threads spin for milliseconds after each of its operations, and other threads
would share the cores with them.  So the items run in PyTorch's threads, where they can be reached.
"""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from fstgrad.objectives.threads import Team

_FORKED: list[int] = []  # holds a number in a process that was forked: its OpenMP has no threads
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _FORKED.append(os.getpid()))


class OpenMPTeam(Team):
    """The threads of the OpenMP that PyTorch is linked with.

    GCC's entry into a parallel region is called, which LLVM's and Intel's libraries have, too.
    """

    def slices(self, items: int, run: Callable[[int, int], None]) -> None:
        """Call run(low, high) for slices that make up 0 .. items - 1, one in each thread."""
        size = min(self.size, items)
        if size < 2:
            return super().slices(items, run)
        library, number = _openmp()
        ranges = list(pairwise(items * k // size for k in range(size + 1)))
        left, errors = set(range(size)), {}

        def member(_: int | None) -> None:
            k = number()
            left.discard(k)
            try:
                run(*ranges[k])
            except BaseException as error:
                errors[k] = error

        library.GOMP_parallel(_MEMBER(member), None, size, 0)
        if errors:
            raise errors[min(errors)]
        for k in sorted(left):  # the library may give fewer threads
            run(*ranges[k])
        return None


_MEMBER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def team() -> Team:
    """Return torch.get_num_threads() threads."""
    size = torch.get_num_threads()
    return OpenMPTeam(size) if size > 1 and not _FORKED and _openmp() is not None else Team(size)


@cache
def _openmp() -> Any:
    """Return PyTorch's OpenMP and its function for the number of a thread, None without one."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        library = ctypes.CDLL(str(path))  # a name is looked up in what it is linked with, too
        library.GOMP_parallel.argtypes = [
            _MEMBER, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint
        ]  # fmt: skip
        library.GOMP_parallel.restype = None
        return library, ctypes.PyDLL(str(path)).omp_get_thread_num
    except (OSError, AttributeError):
        return None
