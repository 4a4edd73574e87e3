"""Text on standard output and standard error, progress bars and tables."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import TextIO, TypeVar

import click

from fstgrad.cli.error_translation import with_option_names

Item = TypeVar("Item")


def progress(items: Iterable[Item], label: str) -> Iterator[Item]:
    """Yield the items; show a progress bar if standard error is a terminal.

    If standard output is a terminal too, there is no bar: the results show the progress.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    total = len(items) if isinstance(items, Sized) else None
    yield from track(items, label, total=total, console=Console(stderr=True), transient=True)


class _LogLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        echo(f"fstgrad: {record.getMessage()}", err=True)


@contextmanager
def log_lines() -> Iterator[None]:
    """Print what the library logs, such as the compilation of kernels, to standard error."""
    logger, handler = logging.getLogger("fstgrad"), _LogLines()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def report_compilation() -> None:
    """Say on standard error what kernels were compiled, and how long it took."""
    kernel_cache = sys.modules.get("fstgrad.core.kernel_cache")  # loaded if there was a kernel
    text = None if kernel_cache is None else kernel_cache.COMPILATIONS.report()
    if text is not None:
        echo(f"fstgrad: {text}", err=True)


def print_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a title line and a table to standard error; the first column is text."""
    from rich.console import Console
    from rich.table import Table

    echo(title, err=True)
    table = Table()
    for i, name in enumerate(header):
        table.add_column(name, justify="right" if i else "left")
    for row in rows:
        table.add_row(*row)
    Console(stderr=True, markup=False).print(table)


NOTES = "fstgrad.notes"  # key in ctx.meta: lines to print at the end
OUTPUTS = "fstgrad.outputs"  # key in ctx.meta: the files that the command writes


def escape_unprintable(text: str) -> str:
    """Return a text with its unprintable characters escaped, except tab and newline."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\t\n" else c.encode("unicode_escape").decode() for c in text
    )


def note(text: str) -> None:
    """Print a line to standard error at the end of the command, if it succeeds."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta.setdefault(NOTES, []).append(with_option_names(text))


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text; on a terminal, escape control characters so that data cannot control it."""
    stream = sys.stderr if err else sys.stdout
    line = str(text)
    with surviving_closed(stream):
        click.echo(escape_unprintable(line) if stream.isatty() else line, err=err, nl=nl)


@contextmanager
def surviving_closed(stream: TextIO) -> Iterator[None]:
    """Write to standard output or error; if the reader closed it, go on where a file is written.

    The rest of the stream is discarded then, and a note says so of standard output.

    Raises
    ------
    BrokenPipeError
        The stream is closed, and the command writes no file.
    """
    try:
        yield
    except BrokenPipeError:
        context = click.get_current_context(silent=True)
        files = [] if context is None else context.meta.get(OUTPUTS, [])
        if not files:
            raise
        discard_output(stream)
        if stream is sys.stderr:
            return
        verb = "is" if len(files) == 1 else "are"
        note(
            f"fstgrad: standard output was closed before its end; {' and '.join(files)} {verb} "
            "complete"
        )


def discard_output(stream: TextIO) -> None:
    """Discard the buffer of a stream and what follows, so that Python does not write it."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
