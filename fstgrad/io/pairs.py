"""Read files of pairs in TSV, CSV with a header, or FASTA; each also compressed by gzip.

The first line decides the format, so standard input may have any of them.
"""

import csv
import itertools
import pathlib
import warnings
from collections.abc import Iterator, Sequence

from fstgrad.core.errors import InvalidInputError, RowError
from fstgrad.io.arrays import Path
from fstgrad.io.text import (
    LINE,
    Pair,
    Row,
    Tokens,
    located,
    not_csv,
    quotes_are_text,
    read_rows,
    separator,
)

# accepted names of the two columns of a CSV file, besides the caller's; upper or lower case
_KNOWN = (
    ("x", "y"),
    ("hypothesis", "target"),
    ("hypothesis", "reference"),
    ("hyp", "ref"),
    ("source", "target"),
    ("input", "output"),
)
# names that are not taken for the other column where the order of columns decides
_OF_X = frozenset((*(x for x, _ in _KNOWN), "prediction", "pred"))
_OF_Y = frozenset((*(y for _, y in _KNOWN), "gold", "label"))


def read_pairs(
    path: Path, *, tokens_x: Tokens = "chars", tokens_y: Tokens = "chars"
) -> Iterator[Pair]:
    """Yield the pairs of a file, or of standard input if `path` is "-".

    The formats are those of `read_table`.

    Parameters
    ----------
    tokens_x, tokens_y : {"chars", "words"}
        Whether symbols of a column are characters, or words between white space.

    Raises
    ------
    RowError
        A row is not UTF-8, does not have two columns, or has the symbol "<eps>"; or as in
        `read_table`.
    InvalidInputError, OSError
        As in `read_table`.
    """
    for row in read_table(path):
        with located(row):
            pair = row.pair(tokens_x, tokens_y)
        yield pair


def read_table(path: Path, names: Sequence[str] = ("x", "y")) -> Iterator[Row]:
    r"""Yield the rows of a file of pairs; their columns are not checked yet.

    - TSV: each line is a row of columns separated by tabs.  There is no header; one with known
      names (below) of several letters is an error.  Quotes are characters; this warns of a field
      that has those of CSV.
    - CSV: the first line has no tab, and the file name ends in .csv or .csv.gz or the line names
      the columns: `names`, or for x and y hypothesis,target, hypothesis,reference, hyp,ref,
      source,target or input,output.  A .csv file with other names must have as many as `names`,
      in the same order; this warns, and is an error if one is a name of the other column.  If the
      header has no comma, semicolons separate the fields, or tabs in a .csv file with known names
      (if it has others, it is read as TSV, and this warns).
    - FASTA (for two names): the first line begins with >, and it or the second one has no tab.
      Consecutive records form the pairs x, y.  Blank lines and lines of comments, which begin with
      a semicolon, are left out, also before the first record.

    Raises
    ------
    RowError
        A line or a sequence has more than 2^26 bytes, CSV quotes do not end, or the number of
        sequences is odd.
    InvalidInputError
        The header of a CSV file has other columns, TSV has a header, or the gzip data are damaged.
    OSError
        The file cannot be read.
    """
    rows = read_rows(path)
    opening = list(_opening(rows))
    if not opening:
        return
    if len(names) == 2 and opening[-1].raw.startswith(b">"):
        following = list(itertools.islice(rows, 1))
        rows = itertools.chain(following, rows)
        if any(b"\t" not in row.raw for row in (opening[-1], *following)):
            yield from _fasta(opening[-1], rows)
            return
    first, *others = opening
    rows = itertools.chain(others, rows)
    is_named = pathlib.Path(first.file.lower().removesuffix(".gz")).suffix == ".csv"
    if is_named and _columns(_header(first), names) is not None:  # also with tabs
        yield from _csv(first, rows, names)
        return
    if b"\t" not in first.raw:
        if is_named or _columns(_header(first), names) is not None:
            yield from _csv(first, rows, names)
            return
    elif _names_columns(first, names):
        said = "names of columns, but TSV has neither a header nor quotes; delete them"
        raise InvalidInputError(f"{first.place}: {first.raw.decode()!r} are {said}")
    elif is_named:
        said = f"is read as a row: it does not name columns {', '.join(names)}"
        warnings.warn(f"{first.place} {said}", UserWarning, stacklevel=2)
    yield from quotes_are_text(itertools.chain([first], rows))


def _opening(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield the first lines, to the one that may be the first of FASTA."""
    for row in rows:
        yield row
        if row.raw.strip() and not (row.raw.startswith(b";") and b"\t" not in row.raw):
            return


def _names_columns(first: Row, names: Sequence[str]) -> bool:
    """Return whether the fields of a TSV line are known names of columns, not single letters."""
    fields = [field.strip('"') for field in first.raw.decode("utf-8", "replace").split("\t")]
    return min(map(len, fields)) > 1 and _columns(fields, names) is not None


def _fasta(first: Row, rows: Iterator[Row]) -> Iterator[Row]:
    """Yield pairs of records; the line of a pair is that of its first header."""
    records = _records(first, rows)
    for x in records:
        y = next(records, None)
        if y is None:
            raise RowError(
                f"{x.place}: a sequence without a partner; records are read two by two, x and y"
            )
        yield Row(x.file, x.line, x.raw + b"\t" + y.raw)


def _records(header: Row, rows: Iterator[Row]) -> Iterator[Row]:
    """Yield the sequence of each record, without white space."""
    parts: list[bytes] = []
    size = 0
    for row in rows:
        if row.raw.startswith(b">"):
            yield Row(header.file, header.line, b"".join(parts))
            header, parts, size = row, [], 0
            continue
        if row.raw.startswith(b";"):
            continue
        parts.append(b"".join(row.raw.split()))
        size += len(parts[-1])
        if size > LINE:
            raise RowError(f"{header.place}: a sequence of more than {LINE:,} symbols")
    yield Row(header.file, header.line, b"".join(parts))


def _header(first: Row) -> list[str]:
    """Return the fields of a first line; [] if it is not CSV."""
    try:
        text = first.raw.decode("utf-8")
        return next(csv.reader([text], strict=True, delimiter=separator(text)), [])
    except (UnicodeDecodeError, csv.Error):
        return []


def _columns(header: Sequence[str], names: Sequence[str]) -> list[int] | None:
    """Return the indices of the named columns in a header; None if it does not name them."""
    plain = [field.strip().lower() for field in header]
    for x, y in _KNOWN if "x" in names else (("x", "y"),):
        known = [{"x": x, "y": y}.get(name, name) for name in names]
        if all(plain.count(name) == 1 for name in known):
            return [plain.index(name) for name in known]
    return None


def _are_swapped(header: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether a column that would be x has a name of y, or the reverse."""
    plain = [field.strip().lower() for field in header]
    others = {"x": _OF_Y, "y": _OF_X}
    return any(field in others.get(name, ()) for field, name in zip(plain, names, strict=True))


def _csv(first: Row, rows: Iterator[Row], names: Sequence[str]) -> Iterator[Row]:
    """Yield the rows below a header, with the chosen columns joined by tabs."""
    with located(first):
        text = first.text()
    try:
        mark = separator(text)
        header = next(csv.reader([text], strict=True, delimiter=mark))
    except csv.Error as error:
        raise not_csv(first.place, error) from error
    chosen = _columns(header, names)
    if chosen is None and len(header) == len(names) and not _are_swapped(header, names):
        chosen = list(range(len(names)))
        said = ", ".join(f"{n} is {field!r}" for n, field in zip(names, header, strict=True))
        warnings.warn(f"{first.place} is taken as the header: {said}", UserWarning, stacklevel=4)
    if chosen is None:
        raise InvalidInputError(
            f"{first.place}: the header has the columns {', '.join(map(repr, header)) or 'none'}; "
            f"name {len(names)} of them {', '.join(names)}"
        )
    is_spaced = any(field.startswith(" ") for field in header)  # "x, y": spaces after commas
    lines = map(_text, rows)
    reader = csv.reader(lines, strict=True, skipinitialspace=is_spaced, delimiter=mark)
    line = first.line + 1
    try:
        for fields in reader:
            if fields:
                kept = [fields[i] for i in chosen] if len(fields) == len(header) else fields
                raw = "\t".join(kept).encode("utf-8", "surrogateescape")
                yield Row(first.file, line, raw)
            line = first.line + 1 + reader.line_num
    except csv.Error as error:
        raise not_csv(f"{first.file}:{line}", error) from error


def _text(row: Row) -> str:
    """Return a line as text in which bytes that are not UTF-8 survive encoding it again."""
    return row.raw.decode("utf-8", "surrogateescape") + "\n"
