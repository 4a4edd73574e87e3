"""Catch what OpenFst writes to standard error: the reasons of its errors."""

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

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
