"""Read the rows of files: pairs with their alphabet, and what a model trains on or predicts.

Index
-----
- `rows_and_alphabet` : the rows of a file of pairs, and the alphabet of the options or the data.
- `RowLoop` : applies a function to rows; `skip_or_raise`, `report_failures` handle bad rows.
- `examples`, `read_input` : the x, side symbols (tags) and y of a model.
"""

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fstgrad.cli.error_translation import with_option_names
from fstgrad.cli.output import echo, note
from fstgrad.cli.pair_options import ModelReading, Reading
from fstgrad.core.alphabet import EPSILON_SYMBOL, Alphabet
from fstgrad.core.errors import AlphabetError, FstgradError, InvalidInputError, RowError
from fstgrad.io import Pair, Row, located, read_alphabet, read_table, tokenize
from fstgrad.learning.templates import Tagged

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
        note_longer_symbols(alphabet, *((reading.tokens_x, reading.tokens_y)[i] for i in columns))
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
    note_alphabet(alphabet)
    return (read_table(pairs) if again else rows), alphabet


def note_alphabet(alphabet: Alphabet) -> None:
    """Report on standard error, at the end of the command, that the alphabet is from the data.

    Also report a symbol that it has in two Unicode forms: a letter with an accent, and both apart.
    """
    count = len(alphabet)
    note(f"fstgrad: alphabet: {count:,} symbol{'s' * (count != 1)} from the data")
    for symbol in alphabet:
        apart = unicodedata.normalize("NFD", symbol)
        if apart != symbol and (apart in alphabet or all(mark in alphabet for mark in apart)):
            note(
                f"fstgrad: the data has {symbol!r} in the Unicode forms NFC and NFD, which count "
                "as different symbols; write it in one form"
            )
            return


def note_longer_symbols(alphabet: Alphabet, *tokens: str) -> None:
    """Report symbols of `--alphabet` that a text split into characters spells, but never has."""
    longer = [s for s in alphabet if len(s) > 1 and all(character in alphabet for character in s)]
    if longer and "chars" in tokens:
        note(
            f"fstgrad: texts are split into characters, and never have the symbol {longer[0]!r} of "
            "the alphabet; put spaces between symbols and give --tokens-x words --tokens-y words"
        )


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
        echo("fstgrad: " + with_option_names(str(placed)), err=True)


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


Example = tuple[Any, tuple[str, ...]]


def examples(
    path: str, reading: Reading, tags: int | None, *, empty: bool = False
) -> Iterator[Example]:
    """Yield (x, y) of each row of a file; x is `Tagged` if a column holds side symbols.

    empty : whether y may be empty.

    Raises
    ------
    RowError
        A row has the wrong number of columns, is not UTF-8, contains "<eps>", or has no y but needs
        one.
    InvalidInputError
        The file has no rows.
    """
    names, row = column_names(("x", "y"), tags), None
    for row in read_table(path, names):
        with located(row):
            texts = read_columns(row, ("x", "y"), tags)
            y = decomposed(texts["y"], reading)
            example = read_input(texts, reading), tokenize(y, reading.tokens_y)
            if not example[1] and not empty:
                raise InvalidInputError("y is empty; give at least one symbol")
        yield example
    if row is None:
        raise no_rows_error(path, names)


def no_rows_error(path: str, names: Sequence[str] = ("x", "y")) -> InvalidInputError:
    """Return the error for a file without rows; `names` are the columns that a row needs."""
    return InvalidInputError(f"{path} has no rows; a row is {', one tab, '.join(names)}")


def read_columns(row: Row, names: tuple[str, ...], tags: int | None) -> dict[str, str]:
    """Return {column name: text} of a row; `tags` is the column of the side symbols, from 1.

    Raises
    ------
    InvalidInputError
        The row has the wrong number of columns, has no column `tags`, or contains "<eps>".
    """
    order = column_names(names, tags)
    texts = dict(zip(order, row.columns(order), strict=True))
    for name in names:
        if EPSILON_SYMBOL in texts[name].split():
            raise InvalidInputError(
                f"{EPSILON_SYMBOL!r} means the empty string in OpenFst; rename it"
            )
    return texts


def column_names(names: tuple[str, ...], tags: int | None) -> tuple[str, ...]:
    """Return the column names in their order, with "tags" as column number `tags` (from 1).

    Raises
    ------
    InvalidInputError
        A row has no column `tags`.
    """
    if tags is None:
        return names
    if not 1 <= tags <= len(names) + 1:
        raise InvalidInputError(
            f"--tags is {tags}, but a row has {len(names) + 1} columns: "
            f"{', '.join(names)} and the tags; count from 1"
        )
    return (*names[: tags - 1], "tags", *names[tags - 1 :])


def read_input(texts: dict[str, str], reading: Reading) -> Any:
    """Return the input of a row: a tuple of symbols, or `Tagged` if the row has tags.

    White space and the characters ; | , separate tags.
    """
    symbols = tokenize(decomposed(texts["x"], reading), reading.tokens_x)
    if "tags" not in texts:
        return symbols
    return Tagged(symbols, tuple(tag for tag in re.split(r"[\s;|,]+", texts["tags"]) if tag))


def decomposed(text: str, reading: Reading) -> str:
    """Return a text as a model reads it: in Unicode form NFD if the model decomposes texts."""
    if isinstance(reading, ModelReading) and reading.decompose is not None:
        return unicodedata.normalize("NFD", text)
    return text


def composed(text: str, reading: ModelReading) -> str:
    """Return the output of a model, in Unicode form NFC if the model decomposes texts."""
    return text if reading.decompose is None else unicodedata.normalize("NFC", text)
