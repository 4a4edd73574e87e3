"""Read the rows of a file of pairs, find their alphabet, and handle bad rows."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fstgrad.cli.error_translation import in_options
from fstgrad.cli.options import Reading
from fstgrad.cli.text import echo, note
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.errors import AlphabetError, FstgradError, InvalidInputError, RowError
from fstgrad.io import Pair, Row, located, read_alphabet, read_table

Result = TypeVar("Result")


def rows_and_alphabet(
    pairs: str, reading: Reading, *, columns: Sequence[int], known: Alphabet | None = None
) -> tuple[Iterable[Row], Alphabet]:
    """Return the rows and the alphabet: that of `--alphabet`, `known`, or the data.

    If the alphabet comes from the data (the symbols of `columns`, from 0, in all well-formed rows),
    a file is read twice, and a pipe is kept in memory.  Otherwise rows are read one by one.

    Raises
    ------
    AlphabetError
        `--alphabet` and `known`, the alphabet of the weights, differ.
    InvalidInputError
        The data has no symbols.
    """
    if reading.alphabet is not None:
        alphabet = read_alphabet(reading.alphabet)
        if known is not None and known != alphabet:
            raise AlphabetError(
                f"{reading.alphabet}: {alphabet!r} is not the alphabet of the weights, {known!r}; "
                "leave --alphabet out"
            )
        return read_table(pairs), alphabet
    if known is not None:
        return read_table(pairs), known
    again = os.path.isfile(pairs)
    rows: Iterable[Row] = read_table(pairs) if again else list(read_table(pairs))
    symbols = sorted(
        {symbol for pair in _well_formed(rows, reading) for i in columns for symbol in pair[i]}
    )
    if not symbols:
        for row in read_table(pairs) if again else rows:  # raise the parsing error
            with located(row):
                row.pair(reading.tokens_x, reading.tokens_y)
        raise InvalidInputError(f"{pairs}: no row has a symbol; a row is x, one tab, y")
    alphabet = Alphabet(symbols)
    tell_alphabet(alphabet)
    return (read_table(pairs) if again else rows), alphabet


def tell_alphabet(alphabet: Alphabet) -> None:
    """Report on standard error, at the end of the command, that the alphabet is from the data."""
    count = len(alphabet)
    note(f"fstgrad: alphabet: {count:,} symbol{'s' * (count != 1)} from the data")


def _well_formed(rows: Iterable[Row], reading: Reading) -> Iterator[Pair]:
    """Yield the pairs of the rows that parse; other rows are reported when they are computed."""
    for row in rows:
        try:
            yield row.pair(reading.tokens_x, reading.tokens_y)
        except InvalidInputError:
            continue


def skip_or_raise(row: Row, error: FstgradError, skip_errors: bool) -> None:
    """Print the error of a skipped row, with its file and line.

    Raises
    ------
    RowError
        `skip_errors` is false.
    """
    try:
        with located(row):
            raise error
    except RowError as placed:
        if not skip_errors:
            raise
        echo("fstgrad: " + in_options(str(placed)), err=True)


def report_failures(done: int, failed: int) -> None:
    """Print how many rows were skipped, if any.

    Raises
    ------
    FstgradError
        There is no row, or every row failed.
    """
    if not done:
        raise FstgradError(
            f"all {failed:,} rows failed" if failed else "no rows; give at least one pair"
        )
    if failed:
        echo(f"fstgrad: skipped {failed:,} of {done + failed:,} rows", err=True)


@dataclass
class RowLoop(Generic[Result]):
    """Applies `work` to rows; a bad row ends the loop, or is printed and counted if `skip_errors`.

    Attributes
    ----------
    done, failed : int
        Number of rows that succeeded, and that failed, so far.
    """

    work: Callable[[Row], Result]
    skip_errors: bool = False
    done: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)

    def run(self, rows: Iterable[Row]) -> Iterator[tuple[Row, Result | None]]:
        """Yield each row with its result; None for a row that failed.

        Raises
        ------
        RowError
            A row fails and `skip_errors` is false.
        FstgradError
            There is no row, or every row fails.
        """
        for row in rows:
            try:
                result = self.work(row)
            except FstgradError as error:
                skip_or_raise(row, error, self.skip_errors)
                self.failed += 1
                yield row, None
            else:
                self.done += 1
                yield row, result
        report_failures(self.done, self.failed)
