"""Read tables of numbers: CSV and TSV text, plain or gzip.

What the first line and the first column are follows from their look; if it does not, an error asks
for the argument that says it.  Errors name the file, the line and the column.
"""

import csv
import re
import string
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, instance
from fstgrad.core.errors import InvalidInputError, RowError
from fstgrad.core.sequences import items
from fstgrad.io.arrays import Path, shown
from fstgrad.io.text import Row, located, not_csv, read_rows

NO_COLUMN = "none"  # as an index column: all columns are numbers
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}", re.ASCII)
_ALIKE = re.compile(r"[-+$(]?(\d[\d.,_ ']*%?|inf(inity)?|0x[\da-f]+)\)?", re.I | re.ASCII)
_MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
_INDEX = 'give index_column="1" if it names the row'
_MARKS = (*_MISSING, "missing", "#n/a", "<na>")  # of other programs, for a number
_YEARS = (1000, 2999)
_SEPARATE = "separate fields by a comma, a semicolon or a tab"
_RUN = 3  # numbers a, a + 1, a + 2: so many in a first row or column may be names
# headers of distinct numbers that may be names of rows
_IDS = re.compile(r"(.*[\s_.-])?([iI][dD]|[iI]ndex)|.*[a-z]I[dD]|[Uu]nnamed: \d+", re.DOTALL)


class Table(NamedTuple):
    """A table of numbers.

    values : (n, p) float64; tables of `fstgrad.grm.files` have a CSR matrix.
    names : the names of the columns, or None.
    rows : the names of the rows, from an index column, or None.
    index_names : what selects the index column: its name, if it has one, and its number; or ().
    reading : one line that says how the file was read.
    """

    values: Any
    names: list[str] | None
    rows: list[str] | None
    index_names: tuple[str, ...]
    reading: str


class _Record(NamedTuple):
    """The fields of a line of text, and its number in the file."""

    line: int
    cells: list[str]


def read_numbers(
    path: Path, *, header: bool | None = None, index_column: str | Sequence[str] | None = None
) -> Table:
    """Return the table of numbers in a CSV or TSV file.

    A first line of texts is the header, and so is one that begins with "#"; a first line of numbers
    is a row.  A column whose name is empty (as pandas writes it), or which the header lacks (as R
    writes it), has the names of the rows, and so has a first one of different texts below a header.

    Parameters
    ----------
    path : path
        UTF-8 text, also compressed by gzip.  Fields are separated by tabs if the name ends in .tsv,
        otherwise by a comma, semicolon or tab, whichever the first line has.
    header : bool, optional
        Whether the first line names the columns.  It must be given if this line has numbers and
        texts, or numbers that may be names: 0, 1, 2, ..., years, numbers larger than all below, or
        in another notation.
    index_column : str or sequence of str, optional
        The column with the names of the rows: its name, or its number from "1"; "none" if all
        columns are numbers.  Of a sequence, the first that the table has.  It must be given if
        the first of several columns may number the rows: 0, 1, 2, ..., or distinct ids.

    Raises
    ------
    RowError
        A field is not a finite number, a line has another number of fields than the others, the
        quotes or names are wrong, or all points between semicolons may separate thousands.
    InvalidInputError
        The file has no row of numbers, or `header` or `index_column` must be given.
    OSError
        The file cannot be read.
    """
    file, mark, records, is_quoted = _opened(path)
    first, ahead = next(records), []
    for record in records:
        ahead.append(record)
        if any(record.cells):
            break
    second = ahead[-1] if ahead and any(ahead[-1].cells) else None
    names = [cell.strip() for cell in first.cells]
    if len(names) == 1 and names[0].startswith("#") and second and len(second.cells) > 2:
        raise RowError(f"{file}:{first.line}: {shown(names[0])} is a comment; delete the line")
    is_short = second is not None and len(second.cells) == len(names) + 1
    # R leaves a name out; a number without quotes may also be the thousands of 1,000
    is_name = is_quoted or index_column == "1" or (second and not _is_number(second.cells[0]))
    is_text = not any(_is_number(name) or name.startswith("#") for name in names)
    if is_short and is_name and is_text and header is not False:
        names.insert(0, "")
    rows = _Rows(file, len(names), mark)
    place = rows.place_index(first.line, names, header, index_column)
    is_guess = place is None and index_column is None and header is not False
    is_guess = is_guess and is_text and second is not None and _begins_with_text(second.cells)
    if is_guess:
        rows.place = place = 0
    own = [name for at, name in enumerate(names) if at != place]
    if header is None:
        header = _is_header(f"{file}:{first.line}", names, own)
        if header is None and place is not None and not names[place]:
            raise InvalidInputError(_may_be(f"{file}:{first.line}", own))
    if header:
        own = rows.set_names(first.line, names)
    else:
        rows.read(first)
    for record in chain(ahead, records):
        rows.read(record)
    if is_guess:
        rows.check_labels()
    rows.check_finite()
    rows.check_points()
    if header is None and _may_be_names(own, rows):
        raise InvalidInputError(_may_be(f"{file}:{first.line}", own))
    options = _options(index_column)
    if not (options if place is not None else NO_COLUMN in options) and rows.may_be_numbered():
        remedy = f'give index_column="1" if it does, index_column="{NO_COLUMN}" if it is data'
        if place is not None:
            remedy = f'delete it if it does; give index_column="{place + 1}" if it is data'
        raise InvalidInputError(
            f"{file}: column {rows.label(rows.among_all(0))} may number the rows: "
            f"{rows.values[0, 0]:g}, {rows.values[1, 0]:g}, ...; {remedy}"
        )
    return rows.table(own if header else None)


class _Rows:
    """The rows of a table.

    width : fields of a line.  mark : what separates them.  place : the index column, or None.
    names : those of all columns.
    """

    def __init__(self, file: str, width: int, mark: str) -> None:
        self.file, self.width, self.mark = file, width, mark
        self.place: int | None = None
        self.names: list[str] = []
        self.lines: list[int] = []
        self.labels: list[str] = []
        self.notations: set[str] = set()  # of the rows after the first: "1", "1."
        self.numbers = array("d")
        self.thousands: tuple[int, int, str] | None = None  # line, place and text of 1.000
        self.has_fractions = False
        self.blank = 0

    def place_index(
        self, line: int, names: list[str], header: bool | None, asked: str | Sequence[str] | None
    ) -> int | None:
        """Find the index column; return its place, or None.  Raise InvalidInputError if absent."""
        options = _options(asked)
        for option in options:
            if self.place is not None or self.width == 1:
                break
            if header is not False and option in names:
                self.place = names.index(option)
            elif option.isascii() and option.isdigit() and 1 <= int(option) <= self.width:
                self.place = int(option) - 1
        if self.place is None and isinstance(asked, str) and asked != NO_COLUMN:
            raise InvalidInputError(
                f"{self.file}:{line}: no column {asked!r}; give index_column one of "
                f"{shown(', '.join(names))}, a number from 1 to {self.width}, or {NO_COLUMN}"
            )
        is_unnamed = header is not False and self.width > 1 and names[0] == ""
        if self.place is None and is_unnamed and NO_COLUMN not in options:
            self.place = 0
        return self.place

    def set_names(self, line: int, names: list[str]) -> list[str]:
        """Set the names of the columns; return those of numbers.

        Raises RowError if a name is empty or repeated.
        """
        self.names = [name.removeprefix("# ").strip() for name in names[:1]] + names[1:]
        own = {name: at for at, name in enumerate(self.names) if at != self.place}
        for at, name in enumerate(self.names):
            if at != self.place and not name:
                raise self.error(line, at, "has no name; name it, or delete the empty column")
            if at != self.place and own[name] != at:
                raise self.error(line, at, f"has the name of column {own[name] + 1}; rename one")
        return list(own)

    def read(self, record: _Record) -> None:
        """Read a row.

        Raises RowError for a wrong number of fields and for a field that is not a number.
        """
        line, cells = record
        if not any(cells) and len(cells) <= 1:
            self.blank = self.blank or line
            return
        if self.blank and self.width == 1:
            raise self.error(self.blank, 0, "is empty; fill it, or leave the row out")
        if len(cells) != self.width:
            raise RowError(
                f"{self.file}:{line}: {len(cells)} field(s), and the lines before have "
                f"{self.width}; quote a field that holds the separator, write no separator of "
                "thousands, and name the column of names of the rows"
            )
        if self.place is not None:
            self.labels.append(cells.pop(self.place).strip())
            if not self.labels[-1]:
                raise self.error(line, self.place, "is empty; name the row, or leave it out")
        text = "".join(cells)
        if self.lines and len(self.notations) < 2:
            self.notations |= {"1." if set(".eE") & set(cell) else "1" for cell in cells}
        try:
            if "_" in text or not text.isascii():  # Python reads 1_000
                raise ValueError
            self.numbers.extend(map(float, cells))
        except ValueError:
            raise self._not_a_number(line, cells) from None
        if self.mark == ";" and not self.has_fractions:
            for at, cell in enumerate(cells):
                if _THOUSANDS.fullmatch(cell.strip()):
                    self.thousands = self.thousands or (line, self.among_all(at), cell)
                elif "." in cell:
                    self.has_fractions = True
        self.lines.append(line)
        self.blank = 0

    def check_points(self) -> None:
        """Raise RowError if the points of a file may be separators of thousands."""
        if self.thousands and not self.has_fractions:
            line, place, cell = self.thousands
            raise self.error(
                line, place,
                f"is {shown(cell)}, which may be {cell.strip().replace('.', '')} where a comma is "
                "the decimal point and semicolons separate fields; write numbers without "
                "thousands, and 1.0 for 1.000",
            )  # fmt: skip

    def check_labels(self) -> None:
        """Raise RowError unless the first column has a different text in each row."""
        seen: dict[str, int] = {}
        for line, label in zip(self.lines, self.labels, strict=True):
            if not _is_text(label):
                raise self.error(line, 0, f"is {shown(label)}, and texts before; {_INDEX}")
            if label in seen:
                what = f"is {shown(label)}, as in line {seen[label]}"
                raise self.error(line, 0, f"{what}, and no number; {_INDEX}, or delete the column")
            seen[label] = line

    def check_finite(self) -> None:
        """Raise InvalidInputError without numbers, RowError if a number is not finite."""
        if not self.numbers:
            raise InvalidInputError(f"{self.file} has no row of numbers; give a table of numbers")
        values = self.values
        if not np.isfinite(values).all():
            at, column = np.argwhere(~np.isfinite(values))[0].tolist()
            raise self.error(
                self.lines[at], self.among_all(column),
                f"is {values[at, column]}; give finite numbers, or leave the row out",
            )  # fmt: skip

    @property
    def values(self) -> FloatArray:
        """The numbers, (n, p)."""
        return np.frombuffer(self.numbers).reshape(len(self.lines), -1)

    def may_be_numbered(self) -> bool:
        """Return whether the first of several columns may have numbers or ids of the rows."""
        column = self.values[:, 0]
        several = self.values.shape[1] > 1
        if not several or len(column) < _RUN or (column != np.floor(column)).any():
            return False
        is_id = bool(self.names) and _IDS.fullmatch(self.names[self.among_all(0)]) is not None
        is_run = self.place is None and (np.diff(column) == 1).all()
        return bool(is_run or (is_id and len(np.unique(column)) == len(column)))

    def label(self, place: int) -> str:
        """Return the number from 1 and the name of a column, for messages."""
        return f"{place + 1} ({self.names[place]!r})" if self.names else str(place + 1)

    def error(self, line: int, place: int, said: str) -> RowError:
        """Return the error that `said` about a field."""
        return RowError(f"{self.file}:{line}: column {self.label(place)} {said}")

    def table(self, names: list[str] | None) -> Table:
        """Return the table, with the names of the columns of numbers."""
        n, p = self.values.shape
        said = f"{self.file}: {n} row(s), {p} column(s); "
        said += "no header" if names is None else f"header {shown(names)}"
        if self.place is None:
            return Table(self.values, names, None, (), said)
        said += f"; column {self.label(self.place)} has the names of the rows"
        index = (*self.names[self.place : self.place + 1], str(self.place + 1))
        return Table(self.values, names, self.labels, index, said)

    def among_all(self, column: int) -> int:
        """Return the place of a column of numbers among all columns."""
        return column + (self.place is not None and column >= self.place)

    def _not_a_number(self, line: int, cells: list[str]) -> RowError:
        """Return the error for the first field of a line that is not a number."""
        at = next(
            i for i, cell in enumerate(cells) if not _is_number(cell.strip(string.whitespace))
        )
        cell, place = cells[at].strip(string.whitespace), self.among_all(at)
        said = f"is {shown(cell)}, not a number"
        if cell.lower() in _MARKS:
            said = f"is {shown(cell)}; " if cell else "is empty; "
            said += "fill in a number, or leave the row out"
            if cell and not self.lines and not self.names:
                said += "; give header=True if line 1 names the columns"
            elif cell and place == 0 and self.place is None and self.width > 1:
                said += f"; {_INDEX}"
        elif "," in cell:
            said += "; write a decimal point, and nothing between thousands"
        elif self.width == 1 and re.search(r"\d[ |]+\d", cell):
            said += f"; {_SEPARATE}"
        elif place == 0 and self.place is None and self.width > 1:
            said += f"; correct it, or {_INDEX}" if self.lines else f"; {_INDEX}"
        elif not self.lines and not self.names:
            said += "; give header=True if line 1 names the columns"
        return self.error(line, place, said)


def _opened(path: Path) -> tuple[str, str, Iterator[_Record], bool]:
    """Return the name of a file, the mark between fields, its lines, and whether it is quoted.

    It is if the second text begins with a quote.

    Blank lines at the beginning are left out.

    Raises
    ------
    InvalidInputError
        All lines are blank.
    """
    lines = read_rows(path)
    first = next((row for row in lines if row.raw.strip()), None)
    if first is None:
        raise InvalidInputError(f"{path} has no row of numbers; give a table of numbers")
    ahead = []
    for row in lines:
        ahead.append(row)
        if row.raw.strip():
            break
    is_quoted = bool(ahead) and ahead[-1].raw.startswith(b'"')
    with located(first):
        mark = _separator(first.file, first.text())
    return first.file, mark, _records(first, chain(ahead, lines), mark), is_quoted


def _records(first: Row, lines: Iterator[Row], mark: str) -> Iterator[_Record]:
    """Yield the fields of each line; raise RowError if it is not CSV."""
    reader = csv.reader(
        map(_text, chain([first], lines)), delimiter=mark, skipinitialspace=True, strict=True
    )
    line = first.line
    try:
        for cells in reader:
            yield _Record(line, cells)
            line = first.line + reader.line_num
    except csv.Error as error:
        raise not_csv(f"{first.file}:{line}", error) from error


def _text(row: Row) -> str:
    with located(row):
        return row.text() + "\n"


def _separator(file: str, line: str) -> str:
    """Return the character between fields; raise InvalidInputError if it is not clear."""
    if file.lower().removesuffix(".gz").endswith(".tsv"):
        return "\t"
    if line.lower().startswith("sep="):
        raise InvalidInputError(f"{shown(line)} is for Excel; delete the line")
    unquoted = re.sub(r'"[^"]*"', "", line)
    if re.fullmatch(r"[ |]+", unquoted.strip("\r\n")):
        raise InvalidInputError(f"blanks or bars separate the fields; {_SEPARATE}")
    found = [mark for mark in ",;\t" if mark in unquoted]
    if len(found) > 1:
        raise InvalidInputError(
            f"the line has {' and '.join(map(repr, found))}, and one of them separates fields; "
            "quote names that hold the other, and write numbers with a decimal point"
        )
    return found[0] if found else ","


def _options(asked: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns of which one is asked for as the index column, checked."""
    options = (asked,) if isinstance(asked, str) else items("index_column", asked or ())
    for option in options:
        instance("index_column", option, str, "a name, or a number from 1 as text")
    return tuple(options)


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def _is_text(cell: str) -> bool:
    """Return whether a field looks neither like a number nor like a missing one."""
    return _ALIKE.fullmatch(cell) is None and not _is_number(cell) and cell.lower() not in _MISSING


def _begins_with_text(cells: list[str]) -> bool:
    """Return whether the first of several fields is a text, and the second a number."""
    return len(cells) > 1 and _is_text(cells[0].strip()) and _is_number(cells[1].strip())


def _is_header(place: str, names: list[str], own: list[str]) -> bool | None:
    """Return whether a first line names the columns; None if it has numbers only.

    own : the fields of the columns of numbers.  Raises InvalidInputError if it has both.
    """
    if names[0].startswith("#"):
        return True
    is_number = [_is_number(name) for name in own]
    if all(is_number):
        return None
    is_missing = [name.lower() in _MISSING for name in own]
    if all(_ALIKE.fullmatch(name) for name in own):
        raise InvalidInputError(_may_be(place, own))
    if not any(is_number):
        return not all(is_missing)
    if all(a or b for a, b in zip(is_number, is_missing, strict=True)):
        return False
    number, text = own[is_number.index(True)], own[is_number.index(False)]
    raise InvalidInputError(
        f"{place}: {shown(text)} is a text and {shown(number)} a number; give header=True if the "
        'line names the columns; if it is a row, give header=False, and index_column="1" if its '
        "first field is a name"
    )


def _may_be(place: str, own: list[str]) -> str:
    """Return the message for a first line of numbers that may be names."""
    return (
        f"{place}: the numbers {shown(', '.join(own))} may be names of columns; give header=True "
        "if they are, header=False if they are a row"
    )


def _may_be_names(first: list[str], rows: _Rows) -> bool:
    """Return whether a first row of numbers may name the columns: it differs from those below."""
    values = rows.values
    row, rest = values[0], values[1:]
    if not rest.size or len(set(first)) < len(first) or len(np.unique(row)) < len(row):
        return False
    notation = {"1." if set(".eE") & set(cell) else "1" for cell in first}
    if len(row) == 1:
        return first == ["0"] and rows.notations == {"1."}
    is_whole = notation == {"1"}
    low, high = _YEARS
    return bool(
        not notation & rows.notations
        or (is_whole and (row == np.arange(len(row))).all())
        or (is_whole and len(row) >= _RUN and (np.diff(row) == 1).all())
        or (is_whole and row.min() >= low and row.max() <= high and rest.min() < low)
        or (is_whole and row.min() > rest.max())
    )
