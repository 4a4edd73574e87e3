"""Progress bars and tables on standard error, and the texts in them."""

import sys
from collections.abc import Iterable, Iterator, Sequence, Sized
from functools import cache
from typing import TypeVar

import numpy as np

from fstgrad.cli.text import echo
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray

Item = TypeVar("Item")
BOUNDARY = "^"


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


@cache
def announce_compilation() -> None:
    """Report once, on standard error, when kernels are compiled, which takes seconds."""
    from fstgrad.core import kernel_cache

    text = f"fstgrad: {kernel_cache.COMPILING}"
    kernel_cache.announce_compilation(lambda: echo(text, err=True))


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
    """Return (indices, entry) of the `count` entries of largest absolute value, largest first.

    Entries that are equal to 12 decimals are in the order of their indices, so that every machine
    gives the same order.
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
