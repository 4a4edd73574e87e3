"""OpenFst's Python modules, or stand-ins whose error says how to install them; its messages.

pynini has wheels only for Linux on x86-64; conda packages exist for macOS too.  Built-in losses,
lattices and models use arrays and do not need it.  Everything else raises MissingDependencyError.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, NoReturn

from fstgrad.core.errors import MissingDependencyError

HOW_TO_INSTALL = (
    "this needs OpenFst's Python package pynini, which is not installed: pip install pynini on "
    "Linux x86-64, conda install -c conda-forge pynini elsewhere"
)


def missing() -> MissingDependencyError:
    """Return the error of an operation that needs OpenFst."""
    return MissingDependencyError(HOW_TO_INSTALL)


class _Refusing(type):
    """The metaclass of a class that works in `isinstance` tests and raises in any other use."""

    def __getattr__(cls, name: str) -> NoReturn:
        raise missing()

    def __call__(cls, *_args: object, **_settings: object) -> NoReturn:
        raise missing()


class _Absent(metaclass=_Refusing):
    """A stand-in for a pynini class if pynini is missing; no object is an instance of it."""


class _Missing:
    """A stand-in for a missing module: its classes are `_Absent`, other attributes raise."""

    Fst = SymbolTable = SymbolTableView = _Absent

    def __getattr__(self, name: str) -> NoReturn:
        raise missing()


if TYPE_CHECKING:
    import pynini
    import pywrapfst
else:
    try:
        import pynini
        import pywrapfst
    except ImportError:
        pynini = pywrapfst = _Missing()

__all__ = ["IS_INSTALLED", "missing", "pynini", "pywrapfst"]

IS_INSTALLED = not isinstance(pynini, _Missing)


_PREFIX = re.compile(r"^(?:ERROR|FATAL|WARNING)(?:\([^)]*\))?: (?:\S+\.(?:h|cc|cpp):\d+\]?:? )?")


@contextmanager
def caught_messages() -> Iterator[list[str]]:
    """Yield a list; when the block ends, fill it with the lines written to standard error.

    OpenFst writes the reason of an error only there.  The end of the block, also an error, restores
    the stream.  Caught lines are not written to it.
    """
    caught: list[str] = []
    sys.stderr.flush()
    try:
        before = os.dup(2)
    except OSError:  # the process has no standard error
        yield caught
        return
    with _file() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield caught
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            text = file.read().decode("utf-8", "replace")
            caught += [_PREFIX.sub("", line) for line in text.splitlines() if line.strip()]


def _file() -> IO[bytes]:
    """Return a temporary file for the messages, or the null device if none can be created."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return open(os.devnull, "r+b")
