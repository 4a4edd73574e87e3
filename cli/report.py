"""What a person reads on standard error: the progress bar and tables."""

import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from functools import cache
from typing import TypeVar

import numpy as np

from fstgrad.alphabet import Alphabet
from fstgrad.checks import FloatArray
from fstgrad.cli.text import echo

Item = TypeVar("Item")
BOUNDARY = "^"


def progress(items: Iterable[Item], label: str) -> Iterator[Item]:
    """Yield the items; on a terminal, behind a bar.

    There is no bar where results are written to the terminal too: they show the progress.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    total = len(items) if isinstance(items, Sized) else None
    yield from track(items, label, total=total, console=Console(stderr=True), transient=True)


@cache
def announce_compilation() -> None:
    """Say so on standard error if kernels must be compiled, which takes seconds, and once only."""
    from fstgrad import compiler

    compiler.announce_compilation(lambda: echo(f"fstgrad: {compiler.COMPILING}", err=True))


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


def largest(table: FloatArray, count: int) -> list[tuple[tuple[int, ...], float]]:
    """Return the entries of the largest absolute value with their indices, largest first.

    Entries that are equal to 12 decimals come in the order of their indices, on every machine.
    """
    order = np.argsort(-np.round(np.abs(table).ravel(), 12), kind="stable")[:count]
    return [
        (tuple(int(i) for i in np.unravel_index(k, table.shape)), float(table.flat[k]))
        for k in order
    ]


def qgram(alphabet: Alphabet, ids: Sequence[int]) -> str:
    """Return a q-gram as text; "^" is the position before the start."""
    symbols = [alphabet.symbols[i] if i < len(alphabet) else BOUNDARY for i in ids]
    return " ".join(symbols)
