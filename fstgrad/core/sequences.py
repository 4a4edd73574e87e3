"""What a sequence of things is, and what a batch of sequences is.

Items have an order and are read by position: lists, tuples, arrays, columns (pandas, polars,
xarray) and generators have one; sets, mappings, tables and bytes are errors.

- `items` : the items of a container.
- `members` : the same, where the order does not matter and a set is valid.
- `batch` : the sequences of a batch; a str is one sequence, no batch.
- `batches` : those of several arguments; `paired_batches` : whose items belong together.
- `symbol_strings` : a batch of strings as tuples of symbols.
- `rows_of`, `row_of`, `fields` : rows of fields.
- `check_container` : the check alone, for what is read bit by bit.
"""

from collections.abc import Iterator, Mapping, MappingView, Set
from itertools import chain, combinations
from typing import Any

import numpy as np

from fstgrad.core.axis_labels import check_mask, check_same_rows
from fstgrad.core.errors import InvalidInputError


def check_container(name: str, values: Any, *, of_rows: bool = False) -> None:
    """Raise InvalidInputError if iterating `values` would not give its items in their order.

    of_rows : whether the items are rows of fields, which the advice about a table depends on.
    """
    if isinstance(values, list | tuple | str):
        return
    kind = type(values).__name__
    if isinstance(values, Mapping):
        remedy = f"of its keys list({name}) or of its values list({name}.values())"
        remedy = f"such as list({name}.items())" if of_rows else remedy
        raise InvalidInputError(
            f"{name} is a {kind}, which has no order of items; give a list, {remedy}"
        )
    if isinstance(values, Set | MappingView):
        raise InvalidInputError(f"{name} is a {kind}, which has no order of items; give a list")
    if isinstance(values, bytes | bytearray | memoryview):
        raise InvalidInputError(f"{name} is {kind}, not text; decode it")
    levels = getattr(values, "nlevels", 1)
    if isinstance(levels, int) and levels > 1 and not hasattr(values, "index"):
        remedy = "a list of its rows" if of_rows else f"one, such as {name}.get_level_values(0)"
        raise InvalidInputError(f"{name} is an index of {levels} levels; give {remedy}")
    columns = _columns(values)
    if columns is not None:
        first = [f"{name}[{column!r}]" for column in columns[:2]]
        remedy = f"its rows, such as list(zip({', '.join(first)}))"
        if not of_rows:
            remedy = f"one column, such as {first[0]}" if first else "a list"
        shown = ", ".join(map(repr, columns[:6]))
        raise InvalidInputError(
            f"{name} is a table with the columns {shown or 'none'}; give {remedy}"
        )


def _columns(values: Any) -> list[Any] | None:
    """Return the names of the columns of a table; None for anything else."""
    try:
        if isinstance(values, np.ndarray):
            return None if values.dtype.names is None else list(values.dtype.names)
        for attribute in ("column_names", "columns"):  # columns of pyarrow are their values
            if (found := getattr(values, attribute, None)) is not None and not callable(found):
                return list(found)
    except Exception:  # a foreign attribute may raise anything
        return None
    return None


def _read(name: str, values: Any) -> Any:
    """Return a container of items, a column of another library as an array."""
    check_container(name, values)
    check_mask(name, values)
    try:
        if hasattr(values, "to_numpy"):
            return _column(values)
        return values
    except Exception as error:  # a foreign attribute may raise anything
        raise InvalidInputError(f"{name} is a {type(values).__name__}; give a list") from error


def _column(values: Any) -> Any:
    """Return a column as an array, or one of pyarrow, whose texts need copies, as a list."""
    try:
        return values.to_numpy()
    except Exception:  # a foreign attribute may raise anything
        return values.to_pylist()


def items(name: str, values: Any) -> list[Any]:
    """Return the items of a container in their order.

    Raises
    ------
    InvalidInputError
        `values` is not iterable, or is a set, a mapping, a table, bytes, or an array without axis.
    """
    read = _read(name, values)
    try:
        return list(read)
    except InvalidInputError:  # from a generator of fstgrad, with a more precise message
        raise
    except Exception as error:  # a foreign __iter__ may raise anything
        raise InvalidInputError(f"{name} is {values!r}; give a sequence") from error


def rows_of(name: str, rows: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the name and the fields of each row.

    Raises
    ------
    InvalidInputError
        A row is a str, or as in `items`.
    """
    check_container(name, rows, of_rows=True)
    for i, row in enumerate(items(name, rows)):
        yield f"{name}[{i}]", row_of(f"{name}[{i}]", row)


def row_of(name: str, row: Any) -> list[Any]:
    """Return the fields of a row; InvalidInputError if it is a str, or as in `items`."""
    if isinstance(row, str):
        raise InvalidInputError(f"{name} is the str {row[:40]!r}; give a tuple of its fields")
    return items(name, row)


def members(name: str, values: Any) -> list[Any]:
    """Return the members of a collection whose order does not matter: `items`, a set, a view."""
    has_no_order = isinstance(values, Set | MappingView)
    return items(name, list(values) if has_no_order else values)


def batch(name: str, sequences: Any) -> list[Any]:
    """Return the sequences of a batch in their order, each unchanged.

    A batch is a list, a tuple, a column or a 1-dimensional array of sequences, a generator that is
    read once, or a (N, l) array of ids: N sequences of one length.

    Raises
    ------
    InvalidInputError
        It is one str, an array of another shape, or no container of items in their order.
    """
    if isinstance(sequences, str):
        raise InvalidInputError(
            f"{name} is the str {sequences[:40]!r}, which is one sequence; give a list of "
            f"sequences, such as [{name}]"
        )
    read = _read(name, sequences)
    if isinstance(read, np.ndarray) and not (
        read.ndim == 1 or (read.ndim == 2 and read.dtype.kind in "iu")
    ):
        raise InvalidInputError(
            f"{name} is an array of {read.dtype} of shape {read.shape}; give a 1-dimensional array "
            "of sequences, or (N, l) integer ids"
        )
    return items(name, read)


def paired_batches(**given: Any) -> list[list[Any]]:
    """Return the batches of arguments whose items belong together, by position.

    Raises
    ------
    InvalidInputError
        As in `batch`, or two columns have different indexes.
    """
    check_same_rows(**given)
    return batches(**given)


def batches(**given: Any) -> list[list[Any]]:
    """Return the batches of several arguments.

    Raises
    ------
    InvalidInputError
        As in `batch`, or two arguments are one iterator, which the first would leave empty.
    """
    iterators = [(name, values) for name, values in given.items() if isinstance(values, Iterator)]
    for (first, one), (second, other) in combinations(iterators, 2):
        if one is other:
            raise InvalidInputError(
                f"{first} and {second} are the same {type(one).__name__}, which is read once; give "
                "lists"
            )
    return [batch(name, values) for name, values in given.items()]


def symbol_strings(name: str, sequences: Any) -> list[tuple[str, ...]]:
    """Return a batch of strings, each a str or a sequence of symbols, as tuples of symbols.

    Raises
    ------
    InvalidInputError
        A symbol is not a str, or is empty, or as in `batch`.
    """
    found = [
        tuple(one if type(one) in (str, list, tuple) else items(f"{name}[{i}]", one))
        for i, one in enumerate(batch(name, sequences))
    ]
    flat = chain.from_iterable
    if set(map(type, flat(found))) <= {str} and "" not in flat(found):
        return found
    for i, one in enumerate(found):
        for position, symbol in enumerate(one):
            if not isinstance(symbol, str):
                raise InvalidInputError(
                    f"a symbol of {name}[{i}] is a {type(symbol).__name__}; give a str"
                )
            if not symbol:
                raise InvalidInputError(
                    f"{name}[{i}][{position}] is '', which is no symbol; leave it out, and split "
                    "sentences with .split() (.split(' ') gives '' between two spaces)"
                )
    return found


def fields(name: str, rows: Any, size: int) -> list[list[Any]]:
    """Return rows of `size` fields as lists.

    Raises
    ------
    InvalidInputError
        A row is no sequence of fields, or has another number of fields.
    """
    found: list[list[Any]] = []
    for own, row in rows_of(name, rows):
        if len(row) != size:
            raise InvalidInputError(f"{own} does not have {size} fields; give {size}")
        found.append(row)
    return found
