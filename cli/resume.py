"""Write the lines of a run over pairs to standard output, or to a file that a later run continues.

Next to a file of lines is its checkpoint, FILE.npz: the sums so far, the number of rows that they
cover, the number of bytes of the lines of these rows, and digests of the settings and of the rows.
A run that continues cuts off the lines after the checkpoint and computes their rows again.
"""

import hashlib
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import IO

from fstgrad.cli.output import surviving_closed
from fstgrad.core.errors import InvalidInputError
from fstgrad.io import Field, Row, read_arrays, write_arrays
from fstgrad.learning.outcomes import Sums

_ARRAYS = {
    "gradient": Field("float", None),
    "numbers": Field("float", (3,)),
    "counts": Field("integer", (4,), lower=0),
    "digests": Field("text", (2,)),
}


class Journal:
    """Writes lines, and keeps the sums of the rows whose lines are written.

    Parameters
    ----------
    path : str, optional
        The file of lines, locked until `close`.  None writes to standard output, without a
        checkpoint.
    settings : str
        A digest of everything that determines the results, except the rows.  A run continues only
        one with equal settings.
    sums : Sums
        The sums of no rows, to start from.

    Raises
    ------
    InvalidInputError
        The file cannot be continued: its checkpoint is absent, damaged, longer than the file, or of
        other settings; or another process writes to the file.
    """

    def __init__(self, path: str | None, settings: str, sums: Sums) -> None:
        self.path = None if path is None else pathlib.Path(path)
        self.sums = sums
        self.rows = 0
        self._settings = settings
        self._rows_digest = hashlib.sha256()
        self._expected = ""
        self._file: IO[bytes] = sys.stdout.buffer
        if self.path is not None:
            self._checkpoint = self.path.with_name(f"{self.path.name}.npz")
            self._open(self.path)

    def skip(self, rows: Iterator[Row]) -> None:
        """Skip the rows that an earlier run has covered.

        Raises
        ------
        InvalidInputError
            They differ from the rows of that run.
        """
        for _, row in zip(range(self.rows), rows, strict=False):
            self._rows_digest.update(row.raw + b"\n")
        if self.rows and self._rows_digest.hexdigest() != self._expected:
            raise InvalidInputError(
                f"{self.path}: the first {self.rows:,} rows are not those of the run to continue; "
                f"remove {self.path} and {self._checkpoint} to start over"
            )

    def write(self, lines: Sequence[str]) -> None:
        """Write lines; delay an interruption until they are complete."""
        with _uninterrupted(), surviving_closed(sys.stdout):
            self._file.write("".join(f"{line}\n" for line in lines).encode())
            self._file.flush()

    def commit(self, rows: Sequence[Row], sums: Sums) -> None:
        """Add the sums of rows whose lines are written, and save the checkpoint."""
        with _uninterrupted():
            self.sums.add(sums)
            self.rows += len(rows)
            for row in rows:
                self._rows_digest.update(row.raw + b"\n")
            if self.path is not None:
                write_arrays(
                    self._checkpoint,
                    gradient=self.sums.gradient,
                    numbers=[self.sums.value, self.sums.variance, self.sums.gap],
                    counts=[self.sums.done, self.sums.failed, self.rows, self._file.tell()],
                    digests=[self._settings, self._rows_digest.hexdigest()],
                )

    def close(self) -> None:
        """Close the file of lines; standard output stays open."""
        if self.path is not None:
            self._file.close()

    def _open(self, path: pathlib.Path) -> None:
        """Open and lock the file of lines; cut off lines that the checkpoint does not cover."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._file = os.fdopen(os.open(path, flags, 0o666), "r+b")
        try:
            _lock(self._file, path)
            size = self._covered_bytes(path)
            self._file.truncate(size)
            self._file.seek(size)
        except BaseException:
            self._file.close()
            raise

    def _covered_bytes(self, path: pathlib.Path) -> int:
        """Return the number of bytes of the lines that the checkpoint covers."""
        if not self._checkpoint.exists():
            if path.stat().st_size:
                raise InvalidInputError(
                    f"{path} has lines but no checkpoint {self._checkpoint}; give another file, "
                    "or remove this one"
                )
            return 0
        size = self._read_checkpoint()
        if path.stat().st_size < size:
            raise InvalidInputError(
                f"{path} is shorter than its checkpoint says; remove {self._checkpoint} and "
                f"{path} to start over"
            )
        return size

    def _read_checkpoint(self) -> int:
        """Load the sums of an earlier run; return the number of bytes of its lines."""
        what = f"a checkpoint; remove it and {self.path} to start over"
        arrays = read_arrays(self._checkpoint, _ARRAYS, what=what)
        settings, rows_digest = arrays["digests"].tolist()
        gradient = arrays["gradient"]
        if settings != self._settings or gradient.shape != self.sums.gradient.shape:
            raise InvalidInputError(
                f"{self._checkpoint} belongs to a run with other options or weights; use the "
                "options of that run, or give another file"
            )
        value, variance, gap = arrays["numbers"].tolist()
        done, failed, self.rows, size = arrays["counts"].tolist()
        self.sums = Sums(gradient, value, variance, done, failed, gap)
        self._expected = rows_digest
        return int(size)


def _lock(file: IO[bytes], path: pathlib.Path) -> None:
    """Lock a file for this process until it is closed.

    Raises
    ------
    InvalidInputError
        Another process holds the lock.
    """
    try:
        import fcntl
    except ImportError:  # only Unix has it
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise InvalidInputError(
            f"{path} is being written by another run; wait for it, or give another file"
        ) from error


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay a KeyboardInterrupt until the end of the block."""
    waiting: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        waiting.append(number)

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if waiting:
            raise KeyboardInterrupt
