"""Read text files line by line, plain or gzip: rows, alphabets, costs; and weights from npz.

Every error names the file and, if there is one, the line.
"""

import gzip
import io
import os
import pathlib
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import IO, Any, Literal, NamedTuple

import numpy as np

from fstgrad.core.alphabet import EPSILON_SYMBOL, STANDARD, Alphabet
from fstgrad.core.axis_labels import check_no_epsilon
from fstgrad.core.checks import FloatArray, cost_array, instance, one_of, path_name
from fstgrad.core.errors import (
    AlphabetError,
    FstgradError,
    InvalidInputError,
    MemoryLimitError,
    RowError,
)
from fstgrad.core.sequences import symbol_strings
from fstgrad.io.arrays import Path, load_arrays, memory_limit, shown

Tokens = Literal["chars", "words"]
LINE = 2**26  # most bytes of a line
LONGEST_NAME = 255  # most characters of a file name
NUMBER = re.compile(
    r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|[-+]?inf(inity)?|nan", re.IGNORECASE
)
INTEGER = re.compile(r"[-+]?[0-9]+")  # int() also reads 1_000 and digits of other scripts
# the first bytes of files compressed by gzip, zip (also spreadsheets), bzip2, xz and zstd
_PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")
_QUOTED = re.compile(rb'"([^"]|"")*"')
_CONVERT = "convert the text: iconv -f LATIN1 -t UTF-8 (or -f UTF-16)"
# of the files that are not UTF-8; None: they are an error
_ENCODING: ContextVar[str | None] = ContextVar("_ENCODING", default=None)


def to_number(text: str) -> float:
    """Return the number that a text writes in the digits 0 to 9, also inf or nan.

    Raises
    ------
    ValueError
        The text is no number, or one that only Python reads: 1_000, or digits of other scripts.
    """
    if not NUMBER.fullmatch(text.strip(" \t")):
        raise ValueError(f"could not convert string to float: {text!r}")
    return float(text)


class Pair(NamedTuple):
    """The two columns of a row as tuples of symbols."""

    x: tuple[str, ...]
    y: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One line of a file: the file's name, the line number (from 1), the bytes without line end."""

    file: str
    line: int
    raw: bytes

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"

    def text(self) -> str:
        """Return the line as text.

        Raises
        ------
        InvalidInputError
            The line is not UTF-8, or has a NUL character (as ASCII text in UTF-16 does).
        """
        try:
            text = self.raw.decode("utf-8")
        except UnicodeDecodeError as error:
            is_packed = self.line == 1 and self.raw.startswith(_PACKED)
            remedy = "decompress the file, or export a text" if is_packed else _CONVERT
            raise InvalidInputError(f"not UTF-8 text ({error.reason}); {remedy}") from error
        if "\0" in text:
            if text.count("\0") < len(text) // 3:
                raise InvalidInputError("a NUL character; delete it: tr -d '\\000'")
            raise InvalidInputError(f"a NUL character, as UTF-16 has; {_CONVERT}")
        return text

    def columns(self, names: Sequence[str] = ("x", "y")) -> list[str]:
        """Return the texts of the tab-separated columns, one for each name.

        Raises
        ------
        InvalidInputError
            The number of columns is wrong, or as in `text`.
        """
        names = symbol_strings("names", [names])[0]
        text = self.text()
        columns = text.split("\t")
        if len(columns) != len(names):
            raise InvalidInputError(
                f"{len(columns)} column(s) in {text[:60]!r}; a row is {', one tab, '.join(names)}"
            )
        return columns

    def pair(self, tokens_x: Tokens = "chars", tokens_y: Tokens = "chars") -> Pair:
        """Return both columns as tuples of symbols: characters, or words between white space.

        Raises
        ------
        InvalidInputError
            A symbol is "<eps>", or as in `columns`.
        """
        x, y = self.columns()
        pair = Pair(tokenize(x, tokens_x), tokenize(y, tokens_y))
        if EPSILON_SYMBOL in pair.x or EPSILON_SYMBOL in pair.y:
            raise InvalidInputError(
                f"{EPSILON_SYMBOL!r} means the empty string in OpenFst; rename it"
            )
        return pair


@contextmanager
def located(row: Row) -> Iterator[None]:
    """Re-raise every FstgradError of the block as a RowError that names the row's place."""
    try:
        yield
    except FstgradError as error:
        raise RowError(f"{row.place}: {error}") from error


def tokenize(text: str, tokens: Tokens) -> tuple[str, ...]:
    """Return the symbols of a text: its characters ("chars"), or words between white space."""
    instance("text", text, str, "a str")
    one_of("tokens", tokens, ("chars", "words"))
    return tuple(text.split() if tokens == "words" else text)


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the lines of a file, or of standard input if `path` is "-"; gzip is decompressed.

    Lines are not parsed yet, so a caller can continue after a bad row.

    Raises
    ------
    RowError
        A line has more than 2^26 bytes.
    InvalidInputError
        The gzip data are damaged, or `path` is not a path.
    OSError
        The file cannot be read.
    """
    for name, number, raw in _numbered(path):
        yield Row(name, number, raw.rstrip(b"\r\n"))


def _numbered(path: Path) -> Iterator[tuple[str, int, bytes]]:
    """Yield the name of the file, the number of the line and its bytes, for each line."""
    name = "<stdin>" if str(path) == "-" else str(path)
    with _binary(path) as lines:
        if (encoding := _ENCODING.get()) is not None:
            lines = io.BytesIO(_as_utf8(lines.read(), name, encoding))
        for number, raw in enumerate(iter(lambda: lines.readline(LINE + 1), b""), start=1):
            if len(raw) > LINE:
                raise RowError(f"{name}:{number}: a line of more than {LINE:,} bytes; is it text?")
            yield name, number, raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw


@contextmanager
def fallback_encoding(encoding: str) -> Iterator[None]:
    """Read text files that are not UTF-8 in another encoding, as long as the block runs.

    Raises
    ------
    InvalidInputError
        Python has no encoding of this name.
    """
    try:
        "".encode(encoding)
    except LookupError as error:
        raise InvalidInputError(f"no encoding {encoding!r}; give latin1, utf-16, cp1252") from error
    token = _ENCODING.set(encoding)
    try:
        yield
    finally:
        _ENCODING.reset(token)


def _as_utf8(data: bytes, name: str, encoding: str) -> bytes:
    """Return the text of a file in UTF-8, from the encoding if it is not UTF-8 without NUL."""
    try:
        if b"\0" not in data:
            data.decode("utf-8")
            return data
    except UnicodeDecodeError:
        pass
    try:
        return data.decode(encoding).encode("utf-8")
    except UnicodeError as error:
        raise InvalidInputError(f"{name} is neither UTF-8 nor {encoding}: {error}") from error


def separator(header: str) -> str:
    """Return what separates the fields of a CSV header: a comma, or else a semicolon or a tab."""
    unquoted = re.sub(r'"[^"]*"', "", header)
    return next((mark for mark in ",;\t" if mark in unquoted), ",")


def quotes_are_text(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows of TSV; warn once if a field is written as in CSV, with doubled quotes inside."""
    is_said = False
    for row in rows:
        if not is_said and b'""' in row.raw:
            fields = row.raw.split(b"\t")
            quoted = [
                field for field in fields if _QUOTED.fullmatch(field) and b'""' in field[1:-1]
            ]
            if quoted:
                is_said = True
                text = shown(quoted[0].decode("utf-8", "replace"))
                warnings.warn(
                    f"{row.place}: {text} has the quotes of CSV; TSV has none, so they are "
                    "characters; write the file without them (pandas: quoting=csv.QUOTE_NONE), or "
                    "name it .csv and the columns by its first line",
                    UserWarning,
                    stacklevel=4,
                )
        yield row


def not_csv(place: str, error: Exception) -> RowError:
    """Return the error for a line of CSV text that Python's reader refuses."""
    said = str(error)
    if "new-line" in said:
        said = "a carriage return within a line; end lines with \\n or \\r\\n, or quote the field"
    return RowError(f"{place}: not CSV: {said}")


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 text file.

    Raises
    ------
    RowError
        A line is not UTF-8, has a NUL character, or has more than 2^26 bytes.
    InvalidInputError, OSError
        As in `read_rows`.
    """
    return [text_of(row) for row in read_rows(path)]


def read_text(path: Path) -> str:
    """Return a UTF-8 text file with its line ends; gzip is decompressed.

    Raises
    ------
    RowError, InvalidInputError, OSError
        As in `read_lines`.
    """
    return "".join(text_of(Row(*line)) for line in _numbered(path))


def text_of(row: Row) -> str:
    """Return a line as text; RowError, with the place, if it is not UTF-8 or has a NUL."""
    try:
        return row.text()
    except InvalidInputError as error:
        raise RowError(f"{row.place}: {error}") from error


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises
    ------
    MemoryLimitError
        The file is larger than half of the memory (`memory_limit`).
    OSError
        The file cannot be read.
    """
    limit = memory_limit()
    with pathlib.Path(path_name(path)).open("rb") as file:
        data = file.read(limit + 1) if os.fstat(file.fileno()).st_size <= limit else None
    if data is None or len(data) > limit:
        raise MemoryLimitError(f"{os.fspath(path)} is larger than half of the memory")
    return data


def read_alphabet(path: Path) -> Alphabet:
    """Return the alphabet of a file: one symbol per line, in the order of the file.

    `path` may also be a name of `Alphabet.named`, such as dna; write ./dna for a file of this name.

    Raises
    ------
    AlphabetError
        A line is empty or not UTF-8, a symbol is repeated, reserved or has white space beside other
        characters (as where an id or a comment follows), or there is no symbol.
    RowError, InvalidInputError, OSError
        As in `read_rows`.
    """
    if str(path) in STANDARD:
        return Alphabet.named(str(path))
    symbols: dict[str, int] = {}
    for row in read_rows(path):
        try:
            symbol = row.text()
        except InvalidInputError as error:
            raise AlphabetError(f"{row.place}: {error}") from error
        if not symbol:
            raise AlphabetError(f"{row.place}: an empty line; an alphabet has one symbol per line")
        if len(symbol) > 1 and (" " in symbol or "\t" in symbol):
            raise AlphabetError(
                f"{row.place}: {symbol!r} has white space; an alphabet has one symbol per line, "
                "without ids or comments"
            )
        if symbol in symbols:
            raise AlphabetError(
                f"{row.place}: {symbol!r} is already on line {symbols[symbol]}; "
                "list each symbol once"
            )
        symbols[symbol] = row.line
    try:
        return Alphabet(list(symbols))
    except AlphabetError as error:
        raise AlphabetError(f"{path}: {error}") from error


def read_confusion(
    path: Path,
    alphabet: Alphabet,
    *,
    substitute_cost: float = 1.0,
    change: Callable[[str], str] = str,
) -> FloatArray:
    """Return the (n, n) float64 costs of aligning symbol a of the hypothesis with b of the target.

    The file has rows a TAB b TAB cost.  A pair that it does not list costs 0 if a = b and
    `substitute_cost` otherwise.  `change` is applied to the symbols of the file first.

    Raises
    ------
    RowError
        A row does not have three columns, a symbol is outside the alphabet or is the empty string
        (`EPSILONS`), a pair is repeated, or a cost is NaN or -inf.
    InvalidInputError
        The file has no row, or as in `read_rows`.
    """
    seen: dict[tuple[int, int], list[str]] = {}
    costs = np.full((len(alphabet), len(alphabet)), float(substitute_cost))
    np.fill_diagonal(costs, 0.0)
    for row in read_rows(path):
        with located(row):
            *texts, number = row.columns(("a", "b", "cost"))
            a, b = map(change, texts)
            check_no_epsilon("the pair", (a, b), alphabet.symbols)
            ids = alphabet.encode([a, b], name="pair")
            pair = (int(ids[0]), int(ids[1]))
            cost = cost_array("cost", _cost(number), ())
            if seen.setdefault(pair, texts) is not texts and (
                seen[pair] == texts or costs[pair] != cost
            ):
                raise InvalidInputError(f"the pair {a!r}, {b!r} has a cost before; give one")
            costs[pair] = cost
    if not seen:
        raise InvalidInputError(f"{path} has no row; a row is a TAB b TAB cost")
    return costs


def _cost(text: str) -> float:
    try:
        return to_number(text)
    except ValueError as error:
        raise InvalidInputError(f"cost is not a number: {text!r}; give nats, or inf") from error


def read_weights(path: Path) -> tuple[FloatArray, Alphabet | None]:
    """Return the array `weights` of an npz file (float64) and the alphabet of its array `symbols`.

    The alphabet is None if the file has no `symbols`.

    Raises
    ------
    InvalidInputError
        The file is not an npz file, has no array of numbers `weights`, or `symbols` is not a list
        of texts.
    AlphabetError
        `symbols` is not a valid alphabet.
    MemoryLimitError, OSError
        As in `read_arrays`.
    """
    try:
        arrays = load_arrays(path)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error
    if "weights" not in arrays:
        raise InvalidInputError(
            f"{path}: no array 'weights' among {', '.join(arrays) or 'no arrays'}; "
            "write one of this name with numpy.savez"
        )
    if arrays["weights"].dtype.kind not in "iuf":
        raise InvalidInputError(f"{path}: weights has dtype {arrays['weights'].dtype}; give floats")
    symbols = arrays.get("symbols")
    if symbols is not None and (symbols.ndim != 1 or symbols.dtype.kind != "U"):
        raise InvalidInputError(
            f"{path}: symbols has shape {symbols.shape} and dtype {symbols.dtype}; give a list of "
            "texts"
        )
    try:
        alphabet = None if symbols is None else Alphabet(symbols.tolist())
    except AlphabetError as error:
        raise AlphabetError(f"{path}: its array {error}") from error
    return arrays["weights"].astype(np.float64), alphabet


@contextmanager
def _binary(path: Path) -> Iterator[IO[bytes]]:
    """Open a file; "-" gives standard input, which stays open."""
    if isinstance(path, str | os.PathLike) and str(path) == "-":
        with _plain(sys.stdin.buffer, "<stdin>") as lines:
            yield lines
    else:
        path = path_name(path)
        if len(pathlib.Path(path).name) > LONGEST_NAME:
            raise InvalidInputError(
                f"{str(path)[:40]!r}... has {len(str(path))} characters, too many for a file"
            )
        with pathlib.Path(path).open("rb") as file, _plain(file, str(path)) as lines:
            yield lines


@contextmanager
def _plain(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """Yield a stream of the file's bytes, decompressed if they are in gzip format."""
    stream: Any = file if hasattr(file, "peek") else io.BufferedReader(file)
    try:
        if stream.peek(2)[:2] != b"\x1f\x8b":
            yield stream
            return
        with gzip.GzipFile(fileobj=stream) as lines:
            yield lines  # type: ignore[misc]
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInputError(f"{name}: the gzip data are damaged: {error}") from error
    finally:
        if stream is not file and not file.closed:
            stream.detach()
