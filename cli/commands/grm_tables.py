"""Options and reading of tables of numbers: counts, and what belongs to their rows."""

import dataclasses
from typing import Any, NamedTuple

import click
import numpy as np

from fstgrad.cli.command import option_group
from fstgrad.cli.output import echo, note
from fstgrad.core.checks import BoolArray, FloatArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.grm.files import TEXT, ending, read_table
from fstgrad.io import NO_COLUMN, Items, Table, listed, matched


@dataclasses.dataclass(frozen=True)
class TableLayout:
    """Options that say what the first line and a column of text tables are."""

    header: bool | None
    index_column: tuple[str, ...]


class Rows(NamedTuple):
    """Values (n, d) that belong to the rows of counts, and the names of their columns or None."""

    values: FloatArray
    names: list[str] | None


layout_options = option_group(
    "layout",
    TableLayout,
    click.option(
        "--header/--no-header", default=None,
        help="Whether the first line of each .csv or .tsv table names the columns.  "
        "[default: a line of texts does]",
    ),
    click.option(
        "--index-column", multiple=True, metavar="COLUMN",
        help="Column of .csv and .tsv tables with the names of the rows: its name, or its number "
        f"from 1; {NO_COLUMN} if there is none.  May be repeated for tables with different names.  "
        "[default: a column without a name, or a first one of different texts]",
    ),
    heading="CSV and TSV tables",
)  # fmt: skip


def read_tables(
    layout: TableLayout, counts: str, variable: str | None = None, **others: str | None
) -> tuple[Table, dict[str, Rows | None]]:
    """Return the table of counts, and for each other file its values at the rows of the counts.

    Rows are matched by name if both tables name them, otherwise by position.  A line on standard
    error says how each table was read.

    Raises
    ------
    InvalidInputError, MemoryLimitError, OSError
        As in `read_table`; or an option selects nothing, or names of rows differ.
    """
    files = [counts, *(path for path in others.values() if path is not None)]
    tables = {
        path: _read_and_report(layout, path, variable if path == counts else None) for path in files
    }
    is_text = any(ending(path) in TEXT for path in files)
    for column in layout.index_column:
        if column != NO_COLUMN and not any(
            column in table.index_names for table in tables.values()
        ):
            raise InvalidInputError(
                f"--index-column {column} is not a column of {', '.join(files)}; give its name, or "
                "its number from 1"
            )
    if not is_text and (layout.header is not None or layout.index_column):
        raise click.UsageError(
            "--header and --index-column have no effect without a .csv or .tsv table; leave them "
            "out"
        )
    main = tables[counts]
    rows = {
        name: None
        if path is None
        else Rows(_rows_in_order(path, tables[path], main, counts), tables[path].names)
        for name, path in others.items()
    }
    return main, rows


def columns_in_order(
    path: str,
    values: Any,
    names: list[str] | None,
    model: list[str] | None,
    kept: BoolArray | None = None,
) -> Any:
    """Return the columns of a table (n, d) in the order of those of a model.

    By name if both have names: the table may have more columns.  By position if one has none; the
    x0, x1, ... of a model without names count only if the table has one of them, or if its names
    are 0, 1, ... in any order.

    kept : (W,) bool, the columns of the table of the fit that the model has; by default, all.  A
        table without names has all W columns then, or only those of the model, with a note.

    Raises
    ------
    InvalidInputError
        The table lacks a name of the model, has one of them twice, or has another number of
        columns than that of the fit.
    """
    if model is None:
        return values
    kept = np.ones(len(model), dtype=bool) if kept is None else kept
    places = np.flatnonzero(kept)
    if names is None:
        return _columns_by_position(path, values, model, kept)
    positions = [str(i) for i in places]
    if model == [f"x{i}" for i in positions] and set(names) == {str(i) for i in range(len(kept))}:
        model = positions
    missing = [repr(name) for name in model if name not in names]
    if len(missing) == len(model) and model == [f"x{i}" for i in positions]:
        if kept.all():
            return values
        if len(names) == len(kept):
            return values[:, places]
    if missing:
        raise InvalidInputError(
            f"{path} has no column {listed(missing)}, which the model has; name its columns as in "
            "the fit, or give them without names in the order of the fit"
        )
    twice = [repr(name) for name in model if names.count(name) > 1]
    if twice:
        raise InvalidInputError(f"{path} has the column {listed(twice)} twice; delete one of each")
    return values[:, [names.index(name) for name in model]]


def _columns_by_position(path: str, values: Any, model: list[str], kept: BoolArray) -> Any:
    """Return the columns `kept` of a table without names, or all, if they are as many."""
    if kept.all():
        return values
    if values.shape[1] == len(kept):
        return values[:, np.flatnonzero(kept)]
    if values.shape[1] != len(model):
        raise InvalidInputError(
            f"{path} has {values.shape[1]} columns without names, and the table of the fit had "
            f"{len(kept)}, of which --features kept {listed(model)}; give a table of {len(kept)} "
            "columns, or with these names"
        )
    note(f"fstgrad: {path} has no names of columns: they count as {listed(model)}, in this order")
    return values


def single_column(option: str, rows: Rows | None) -> FloatArray | None:
    """Return the single column of a table (n, 1) as (n,); None for None.

    Raises InvalidInputError if there are several.
    """
    if rows is None:
        return None
    values = rows.values
    if values.shape[1] != 1:
        raise InvalidInputError(
            f"{option} has {values.shape[1]} columns of numbers; give a table of one"
        )
    column: FloatArray = values[:, 0]
    return column


def _read_and_report(layout: TableLayout, path: str, variable: str | None) -> Table:
    """Return a table; print how it was read."""
    if ending(path) in TEXT:
        index = layout.index_column or None
        table = read_table(path, variable, header=layout.header, index_column=index)
    else:
        table = read_table(path, variable)
    echo(table.reading, err=True)
    return table


def _rows_in_order(path: str, table: Table, main: Table, counts: str) -> FloatArray:
    """Return the rows of a table, in the order of those of `main` if both have names."""
    values: FloatArray = table.values.toarray()
    if table.rows is None or main.rows is None or table.rows == main.rows:
        return values
    partners = matched(
        Items(main.rows, counts, "row", unnamed="delete the column of names in one"),
        Items(table.rows, path, "row"),
    )
    rows: FloatArray = values[partners]
    return rows
