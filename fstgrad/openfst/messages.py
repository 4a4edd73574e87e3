"""What OpenFst writes to standard error, caught: the reasons of its errors."""

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
    """Keep what is written to the process's standard error, and give it as lines at the end.

    OpenFst gives the reason of an error there and nowhere else.  The stream is put back in every
    case; what was caught is not written.
    """
    caught: list[str] = []
    sys.stderr.flush()
    try:
        before = os.dup(2)
    except OSError:  # there is none
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
    """Return a file for the messages; without a place for one they are lost."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return open(os.devnull, "r+b")
