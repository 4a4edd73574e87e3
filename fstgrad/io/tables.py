"""Files of pairs in their formats: TSV, CSV with a header, FASTA; each also compressed by gzip.

The format is that of the first line, so that standard input may have any of them.
"""

import csv
import pathlib
import warnings
from collections.abc import Iterator, Sequence

from fstgrad.errors import InvalidInputError, RowError
from fstgrad.io.arrays import Path
from fstgrad.io.pairs import LINE, Pair, Row, Tokens, located, read_rows

# names of the two columns of a CSV file that are understood, in any case, besides the caller's own
_KNOWN = (
    ("x", "y"),
    ("hypothesis", "target"),
    ("source", "target"),
    ("input", "output"),
)


def read_pairs(
    path: Path, *, tokens_x: Tokens = "chars", tokens_y: Tokens = "chars"
) -> Iterator[Pair]:
    """Yield the pairs of a file, or of standard input where `path` is "-".

    Formats are those of `read_table`.

    Raises
    ------
    RowError
        A row is not UTF-8 or does not have two columns.
    """
    for row in read_table(path):
        with located(row):
            pair = row.pair(tokens_x, tokens_y)
        yield pair


def read_table(path: Path, names: Sequence[str] = ("x", "y")) -> Iterator[Row]:
    r"""Yield the rows of a file of pairs; their columns are not checked yet.

    - TSV: a line is a row, its columns separated by tabs.  There is no header.
    - CSV: a name that ends in .csv or .csv.gz, or a first line without a tab that names columns by
      `names`, or as hypothesis,target or source,target or input,output.  Of other columns the file
      has as many as there are names, in their order.
    - FASTA: the first line begins with > and has no tab.  Records are read two by two, x and y.

    Raises
    ------
    RowError
        A line of more than 2^26 bytes, quotes of CSV that do not end, an odd number of sequences.
    InvalidInputError
        The header of a CSV file has other columns; damaged gzip data.
    """
    rows = read_rows(path)
    first = next(rows, None)
    if first is None:
        return
    if b"\t" not in first.raw:
        if first.raw.startswith(b">") and len(names) == 2:
            yield from _fasta(first, rows)
            return
        is_named = pathlib.Path(first.file.lower().removesuffix(".gz")).suffix == ".csv"
        if is_named or _columns(_header(first), names) is not None:
            yield from _csv(first, rows, names)
            return
    yield first
    yield from rows


def _fasta(first: Row, rows: Iterator[Row]) -> Iterator[Row]:
    """Yield pairs of records, at the line of the first one's header."""
    records = _records(first, rows)
    for x in records:
        y = next(records, None)
        if y is None:
            raise RowError(
                f"{x.place}: a sequence without a partner; records are read two by two, x and y"
            )
        yield Row(x.file, x.line, x.raw + b"\t" + y.raw)


def _records(header: Row, rows: Iterator[Row]) -> Iterator[Row]:
    """Yield the sequence of each record."""
    parts: list[bytes] = []
    size = 0
    for row in rows:
        if row.raw.startswith(b">"):
            yield Row(header.file, header.line, b"".join(parts))
            header, parts, size = row, [], 0
            continue
        parts.append(b"".join(row.raw.split()))
        size += len(parts[-1])
        if size > LINE:
            raise RowError(f"{header.place}: a sequence of more than {LINE:,} symbols")
    yield Row(header.file, header.line, b"".join(parts))


def _header(first: Row) -> list[str]:
    """Return the fields of a first line; none where it is no CSV."""
    try:
        return next(csv.reader([first.raw.decode("utf-8")], strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        return []


def _columns(header: Sequence[str], names: Sequence[str]) -> list[int] | None:
    """Return where the named columns are in a header; None where it does not name them."""
    plain = [field.strip().lower() for field in header]
    for known in (tuple(names), *(_KNOWN if len(names) == 2 else ())):
        if all(plain.count(name) == 1 for name in known):
            return [plain.index(name) for name in known]
    return None


def _csv(first: Row, rows: Iterator[Row], names: Sequence[str]) -> Iterator[Row]:
    """Yield the rows below a header, their columns joined by tabs."""
    header = _header(first)
    chosen = _columns(header, names)
    if chosen is None and len(header) == len(names):
        chosen = list(range(len(names)))
        said = ", ".join(f"{n} is {field!r}" for n, field in zip(names, header, strict=True))
        warnings.warn(f"{first.place} is taken as the header: {said}", UserWarning, stacklevel=4)
    if chosen is None:
        raise InvalidInputError(
            f"{first.place}: the header has the columns {', '.join(map(repr, header)) or 'none'}; "
            f"name {len(names)} of them {', '.join(names)}"
        )
    reader = csv.reader((_text(row) for row in rows), strict=True)
    line = first.line + 1
    try:
        for fields in reader:
            if fields:
                kept = [fields[i] for i in chosen] if len(fields) == len(header) else fields
                raw = "\t".join(kept).encode("utf-8", "surrogateescape")
                yield Row(first.file, line, raw)
            line = first.line + 1 + reader.line_num
    except csv.Error as error:
        raise RowError(f"{first.file}:{line}: not CSV: {error}") from error


def _text(row: Row) -> str:
    """Return a line as text; what is not UTF-8 comes out as it was when it is encoded again."""
    return row.raw.decode("utf-8", "surrogateescape") + "\n"
