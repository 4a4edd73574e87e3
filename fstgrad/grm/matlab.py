"""MATLAB 5 files: dense and sparse matrices of numbers, and cells of texts.

SciPy's reader is written in C and does not check the sizes in a damaged file.  This reader supports
the few kinds of arrays in which tables of counts are stored, and compares every size with the
number of bytes in the file.  Source: MathWorks, "MAT-File Format", level 5.

file     128 bytes of header, the last four with version and byte order; then elements
element  type and size in 4 + 4 bytes, then data padded to 8 bytes; or in 2 + 2 bytes, then 4 bytes
matrix   an element that contains elements: flags, dimensions, name, and the data of the class
"""

import math
import struct
import zlib
from typing import Any

import numpy as np

from fstgrad.core.errors import InvalidInputError, MemoryLimitError
from fstgrad.io import memory_limit

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_TYPES = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
_TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_CELL, _CHAR, _SPARSE, _NUMBERS = 1, 4, 5, range(6, 16)
_COMPLEX = 0x08
_DEEPEST = 4  # levels of nested cell arrays


def read_matlab(data: bytes) -> dict[str, Any]:
    """Return the arrays of a file by name: numbers (2-D), csc matrices, and lists of texts.

    Arrays of other classes are ignored.

    Raises
    ------
    InvalidInputError
        The file is not of this format, or it is damaged.
    MemoryLimitError
        A compressed array would need more than half of the memory.
    """
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None or data[124:126] not in (b"\x00\x01", b"\x01\x00"):
        raise InvalidInputError("it is not a MATLAB 5 file; save it with -v7")
    arrays: dict[str, Any] = {}
    at = _HEADER
    while at < len(data):
        kind, content, at = _element(data, at, order)
        if kind == _COMPRESSED:
            kind, content, _ = _element(_inflated(content), 0, order)
        if kind == _MATRIX:
            name, value = _matrix(content, order, 0)
            if value is not None:
                arrays[name] = value
    return arrays


def _inflated(content: bytes) -> bytes:
    limit = memory_limit()
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(content, limit)
    except zlib.error as error:
        raise InvalidInputError(f"a compressed array is damaged ({error})") from error
    if stream.unconsumed_tail:
        raise MemoryLimitError(f"an array needs more than {limit:,} bytes, half of the memory")
    return data


def _element(data: bytes, at: int, order: str) -> tuple[int, bytes, int]:
    """Return the type, the content and the end of the element at byte `at`.

    order : "<" or ">", the byte order.
    """
    if len(data) - at < 8:
        raise InvalidInputError(f"it ends at byte {len(data):,} in the middle of an array")
    first, size = struct.unpack_from(f"{order}II", data, at)
    if first >> 16:  # the short form
        kind, size, begin, end = first & 0xFFFF, first >> 16, at + 4, at + 8
        if size > 4:
            raise InvalidInputError(f"a short element has {size} bytes, more than 4")
    else:
        kind, begin = first, at + 8
        end = begin + size
        if kind != _COMPRESSED:
            end += -size % 8
    if begin + size > len(data):
        raise InvalidInputError(f"an element of {size:,} bytes at byte {at:,} of {len(data):,}")
    return kind, data[begin : begin + size], min(end, len(data))


def _matrix(data: bytes, order: str, depth: int) -> tuple[str, Any]:
    """Return the name and the value of a matrix; the value is None for an ignored class.

    depth : how many cell arrays contain the matrix.
    """
    kind, flags, at = _element(data, 0, order)
    if kind != 6 or len(flags) != 8:
        raise InvalidInputError("an array has no flags")
    word = struct.unpack_from(f"{order}I", flags)[0]
    kind, content, at = _element(data, at, order)
    if kind != 5:
        raise InvalidInputError(f"dimensions have the unknown type {kind}")
    shape = tuple(_numbers(kind, content, order).tolist())
    _, name, at = _element(data, at, order)
    of_class = word & 0xFF
    if len(shape) != 2 or min(shape) < 0 or (word >> 8) & _COMPLEX:
        return name.decode("latin-1"), None
    value: Any = None
    if of_class in _NUMBERS:
        value = _numbers(*_element(data, at, order)[:2], order, math.prod(shape))
        value = value.reshape(shape, order="F")
    elif of_class == _SPARSE:
        value = _sparse(data, at, order, shape)
    elif of_class == _CELL and depth < _DEEPEST:
        value = _cells(data, at, order, math.prod(shape), depth)
    elif of_class == _CHAR:
        value = _text(*_element(data, at, order)[:2])
    return name.decode("latin-1"), value


def _numbers(kind: int, content: bytes, order: str, count: int | None = None) -> Any:
    if kind not in _TYPES:
        raise InvalidInputError(f"numbers have the unknown type {kind}")
    dtype = np.dtype(order + _TYPES[kind])
    if len(content) % dtype.itemsize or (
        count is not None and len(content) != count * dtype.itemsize
    ):
        raise InvalidInputError(f"an array has {len(content):,} bytes for {count} numbers")
    return np.frombuffer(content, dtype).astype(dtype.newbyteorder("="))


def _sparse(data: bytes, at: int, order: str, shape: tuple[int, ...]) -> Any:
    from scipy import sparse

    from fstgrad.core.checks import sparse_matrix

    read = []
    for _ in range(3):  # rows, pointers, values
        kind, content, at = _element(data, at, order)
        read.append(_numbers(kind, content, order))
    rows, pointers, values = read
    if rows.dtype.kind not in "iu" or pointers.dtype.kind not in "iu":
        raise InvalidInputError("the indices of a sparse matrix are not integers")
    if len(pointers) != shape[1] + 1 or len(pointers) == 0:
        raise InvalidInputError(f"a matrix has {len(pointers)} pointers for {shape[1]} columns")
    used = int(pointers[-1])
    if not 0 <= used <= min(len(rows), len(values)):
        raise InvalidInputError(f"a sparse matrix has {used:,} entries and {len(values):,} values")
    try:
        matrix = sparse.csc_matrix(
            (values[:used], rows[:used], pointers), shape=(shape[0], shape[1])
        )
    except ValueError as error:
        raise InvalidInputError(f"a sparse matrix is damaged: {error}") from error
    return sparse_matrix("a sparse matrix", matrix)


def _cells(data: bytes, at: int, order: str, count: int, depth: int) -> list[str] | None:
    """Return the texts of a cell array of `count` cells; None if a cell is not a text."""
    if count > len(data) // 8:
        raise InvalidInputError(f"a cell array of {count:,} cells in {len(data):,} bytes")
    texts = []
    for _ in range(count):
        kind, content, at = _element(data, at, order)
        value = _matrix(content, order, depth + 1)[1] if kind == _MATRIX and content else ""
        if not isinstance(value, str):
            return None
        texts.append(value)
    return texts


def _text(kind: int, content: bytes) -> str:
    if kind not in _TEXTS:
        raise InvalidInputError(f"a text has the unknown type {kind}")
    try:
        return content.decode(_TEXTS[kind])
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"a text is damaged ({error.reason})") from error
