"""Read the rows that a model trains on or predicts: x, side symbols (tags), y."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from fstgrad.cli.options import ModelReading, Reading
from fstgrad.core.alphabet import EPSILON_SYMBOL
from fstgrad.core.errors import InvalidInputError
from fstgrad.io import Row, located, read_table, tokenize
from fstgrad.learning.templates import Tagged

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
    names, row = named_columns(("x", "y"), tags), None
    for row in read_table(path, names):
        with located(row):
            texts = columns_of(row, ("x", "y"), tags)
            y = decomposed(texts["y"], reading)
            example = read_input(texts, reading), tokenize(y, reading.tokens_y)
            if not example[1] and not empty:
                raise InvalidInputError("y is empty; give at least one symbol")
        yield example
    if row is None:
        raise no_rows(path, names)


def no_rows(path: str, names: Sequence[str] = ("x", "y")) -> InvalidInputError:
    """Return the error for a file without rows; `names` are the columns that a row needs."""
    return InvalidInputError(f"{path} has no rows; a row is {', one tab, '.join(names)}")


def columns_of(row: Row, names: tuple[str, ...], tags: int | None) -> dict[str, str]:
    """Return {column name: text} of a row; `tags` is the column of the side symbols, from 1.

    Raises
    ------
    InvalidInputError
        The row has the wrong number of columns, has no column `tags`, or contains "<eps>".
    """
    order = named_columns(names, tags)
    texts = dict(zip(order, row.columns(order), strict=True))
    for name in names:
        if EPSILON_SYMBOL in texts[name].split():
            raise InvalidInputError(
                f"{EPSILON_SYMBOL!r} means the empty string in OpenFst; rename it"
            )
    return texts


def named_columns(names: tuple[str, ...], tags: int | None) -> tuple[str, ...]:
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
