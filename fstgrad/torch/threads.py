"""Run the items of a batch in the threads of PyTorch.

PyTorch's OpenMP threads spin for milliseconds after each of its operations, and other threads would
share the cores with them.  So the items run in PyTorch's own threads if these can be used.
"""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from fstgrad.objectives.base import Team

_FORKED: list[int] = []  # not empty in a forked process, whose OpenMP has no threads
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _FORKED.append(os.getpid()))


class OpenMPTeam(Team):
    """The threads of the OpenMP library to which PyTorch is linked.

    A parallel region is started by GCC's function, which LLVM's and Intel's libraries also have.
    """

    def slices(self, items: int, run: Callable[[int, int], None]) -> None:
        """Call run(low, high) for slices that cover 0 .. items - 1, one slice per thread."""
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
        for k in sorted(left):  # the library may start fewer threads
            run(*ranges[k])
        return None


_MEMBER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def team() -> Team:
    """Return a team of torch.get_num_threads() threads."""
    size = torch.get_num_threads()
    return OpenMPTeam(size) if size > 1 and not _FORKED and _openmp() is not None else Team(size)


@cache
def _openmp() -> Any:
    """Return PyTorch's OpenMP library and its function omp_get_thread_num, None without OpenMP."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        library = ctypes.CDLL(str(path))  # names are also looked up in its linked libraries
        library.GOMP_parallel.argtypes = [
            _MEMBER, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint
        ]  # fmt: skip
        library.GOMP_parallel.restype = None
        return library, ctypes.PyDLL(str(path)).omp_get_thread_num
    except (OSError, AttributeError):
        return None
