"""Tables of counts in files: .npz, .npy, .mtx, .csv and .tsv (also .gz), .mat."""

import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from fstgrad.core.checks import sparse_matrix
from fstgrad.core.errors import FstgradError, InvalidInputError, MemoryLimitError
from fstgrad.core.uninitialized import empty
from fstgrad.grm.matlab import read_matlab
from fstgrad.io import (
    Table,
    listed,
    load_array,
    load_arrays,
    memory_limit,
    read_bytes,
    read_lines,
    read_numbers,
    shown,
    to_number,
)

TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
FORMATS = (".npz", ".npy", ".mtx", *TEXT, ".mat")
_FIELDS = ("real", "integer", "pattern", "unsigned-integer")


def ending(path: str | os.PathLike[str]) -> str:
    """Return the one of `FORMATS` with which the name of a file ends.

    Raises
    ------
    InvalidInputError
        It ends otherwise.
    """
    name = pathlib.Path(path).name.lower()
    for known in FORMATS:
        if name.endswith(known):
            return known
    extension = pathlib.Path(name).suffix
    raise InvalidInputError(f"{path} ends with {extension!r}; give one of {', '.join(FORMATS)}")


def read_table(
    path: str | os.PathLike[str],
    variable: str | None = None,
    *,
    header: bool | None = None,
    index_column: str | Sequence[str] | None = None,
) -> Table:
    """Return a table: `values`, CSR (n, p) of samples by columns, and the names.

    Parameters
    ----------
    path : path
        .npz: a file of `scipy.sparse.save_npz`, or an array by name.  .npy.  .mtx: Matrix Market.
        .csv, .tsv, also with .gz: as in `fstgrad.io.read_numbers`.  .mat: MATLAB 5; a cell array
        with one string per column has the names.
    variable : str, optional
        The name of the array in an .npz or .mat file; by default, the only largest matrix.
    header, index_column : optional
        As in `fstgrad.io.read_numbers`, for .csv and .tsv.

    Returns
    -------
    fstgrad.io.Table
        values, names, rows, index_names, reading.

    Raises
    ------
    InvalidInputError
        The extension is unknown, the file is damaged or does not contain this matrix, an argument
        does not apply to the format, or as in `read_numbers`.
    RowError
        As in `read_numbers`.
    MemoryLimitError
        The matrix would take more than half of the memory.
    """
    source, kind = pathlib.Path(path), ending(path)
    if not source.is_file():
        raise InvalidInputError(f"{source} is not a file; give the file of a table")
    if variable is not None and kind not in (".npz", ".mat"):
        raise InvalidInputError(
            f"{source} holds one table, without a name; leave variable={variable!r} out"
        )
    if kind in TEXT:
        table = read_numbers(source, header=header, index_column=index_column)
        return table._replace(values=sparse.csr_matrix(table.values))
    if header is not None or index_column is not None:
        raise InvalidInputError(
            f"{source} has neither a header nor an index column; leave header and index_column out"
        )
    try:
        matrix, names = _read(source, kind, variable)
        _check_dimensions(matrix.shape)
        values = sparse.csr_matrix(matrix)
    except InvalidInputError as error:
        raise InvalidInputError(f"{source} cannot be read: {error}") from error
    except (FstgradError, OSError):
        raise
    except Exception as error:  # the parsers of scipy and numpy raise a dozen kinds
        reason = str(error) or type(error).__name__
        raise InvalidInputError(f"{source} cannot be read as a {kind} table: {reason}") from error
    reading = f"{source}: {values.shape[0]} row(s), {values.shape[1]} column(s); "
    reading += "no names" if names is None else f"names {shown(names)}"
    return Table(values, names, None, (), reading)


def _read(path: pathlib.Path, kind: str, variable: str | None) -> tuple[Any, list[str] | None]:
    if kind == ".npz":
        return _npz(path, variable), None
    if kind == ".mat":
        return _mat(path, variable)
    if kind == ".mtx":
        return _matrix_market(read_lines(path)), None
    return _matrix(load_array(path), path.name), None


def _npz(path: pathlib.Path, variable: str | None) -> Any:
    arrays = load_arrays(path)
    if variable is None and {"format", "data", "shape"} <= arrays.keys():
        return _scipy(arrays)
    return _choose(arrays, variable)


def _scipy(arrays: dict[str, Any]) -> Any:
    """Return the matrix that `scipy.sparse.save_npz` wrote."""
    kind = arrays["format"].item()
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    shape = _dimensions(arrays["shape"])
    data = _numbers(arrays["data"], "data")
    if kind in ("csr", "csc"):
        parts = (data, *(_indices(arrays, name) for name in ("indices", "indptr")))
        form = sparse.csr_matrix if kind == "csr" else sparse.csc_matrix
        return sparse_matrix("the table", form(parts, shape=shape))
    if kind == "coo":
        places = tuple(_indices(arrays, name) for name in ("row", "col"))
        return sparse_matrix("the table", sparse.coo_matrix((data, places), shape=shape))
    raise InvalidInputError(f"its sparse matrix has the format {shown(kind)}; save it as csr")


def _dimensions(values: Any) -> tuple[int, int]:
    if values.shape != (2,) or values.dtype.kind not in "iu":
        raise InvalidInputError(f"shape is {shown(values.tolist())}, not two integers")
    _check_dimensions((int(values[0]), int(values[1])))
    return int(values[0]), int(values[1])


def _check_dimensions(shape: tuple[int, int]) -> None:
    """Raise if there is no row or column, or if arrays of 64 bytes per row and column do not fit.

    InvalidInputError or MemoryLimitError.
    """
    if min(shape) < 1:
        raise InvalidInputError(f"the table has {shape[0]} rows and {shape[1]} columns")
    if 64 * (shape[0] + shape[1]) > memory_limit():
        raise MemoryLimitError(
            f"a table of {shape[0]:,} rows and {shape[1]:,} columns is larger than the memory"
        )


def _indices(arrays: dict[str, Any], name: str) -> Any:
    if name not in arrays or arrays[name].ndim != 1 or arrays[name].dtype.kind not in "iu":
        raise InvalidInputError(f"it has no integer array {name!r}")
    return arrays[name].astype(np.int64)


def _numbers(values: Any, name: str) -> Any:
    if values.dtype.kind not in "biuf":
        raise InvalidInputError(f"{name} has dtype {values.dtype}; give numbers")
    return values.astype(np.float64)


def _matrix(values: Any, name: str) -> Any:
    if sparse.issparse(values):
        return sparse_matrix(name, values)
    if values.ndim != 2:
        raise InvalidInputError(f"{name} has shape {values.shape}; a table has rows and columns")
    return _numbers(values, name)


def _mat(path: pathlib.Path, variable: str | None) -> tuple[Any, list[str] | None]:
    arrays = read_matlab(read_bytes(path))
    matrix = _choose({k: v for k, v in arrays.items() if not isinstance(v, str | list)}, variable)
    for value in arrays.values():
        if isinstance(value, list) and len(value) == matrix.shape[1]:
            return matrix, value
    return matrix, None


def _choose(arrays: dict[str, Any], variable: str | None) -> Any:
    """Return the array `variable`, or the largest matrix of numbers."""
    if variable is not None:
        if variable not in arrays:
            raise InvalidInputError(f"it has no {variable!r}, only {shown(', '.join(arrays))}")
        return _matrix(arrays[variable], variable)
    matrices = {
        name: value
        for name, value in arrays.items()
        if getattr(value, "ndim", 0) == 2 and value.dtype.kind in "biuf"
    }
    if not matrices:
        raise InvalidInputError(f"it holds no matrix of numbers, only {shown(', '.join(arrays))}")
    sizes = {name: math.prod(value.shape) for name, value in matrices.items()}
    largest = [name for name, size in sizes.items() if size == max(sizes.values())]
    if len(largest) > 1:
        raise InvalidInputError(
            f"its largest matrices {listed(largest)} have one size; give variable={largest[0]!r} "
            "or another of them"
        )
    return _matrix(matrices[largest[0]], largest[0])


def _matrix_market(lines: list[str]) -> Any:
    """Return the matrix in the lines of a Matrix Market file (NIST, 1996).

    scipy's reader is not used, because for damaged files it writes outside its arrays.
    """
    head = lines[0].lower().split() if lines else []
    if len(head) != 5 or head[:2] != ["%%matrixmarket", "matrix"]:
        raise InvalidInputError("its first line is not '%%MatrixMarket matrix ...'")
    layout, field, symmetry = head[2:]
    if (
        layout not in ("coordinate", "array")
        or field not in _FIELDS
        or (symmetry not in ("general", "symmetric"))
    ):
        raise InvalidInputError(
            f"its matrix is {' '.join(head[2:])}; give a general or symmetric one of real numbers"
        )
    rows = [
        (number, line.split())
        for number, line in enumerate(lines[1:], start=2)
        if line.strip() and not line.startswith("%")
    ]
    if not rows:
        raise InvalidInputError("it has no line of sizes")
    number, fields = rows[0]
    sizes = [_whole(text, number) for text in fields]
    if len(sizes) != (3 if layout == "coordinate" else 2):
        raise InvalidInputError(f"line {number}: {shown(' '.join(fields))} are not its sizes")
    shape = (sizes[0], sizes[1])
    _check_dimensions(shape)
    if symmetry == "symmetric" and shape[0] != shape[1]:
        raise InvalidInputError(f"line {number}: a symmetric matrix is not {shape[0]} x {shape[1]}")
    if layout == "array":
        return _dense_entries(rows[1:], shape, symmetry)
    return _sparse_entries(rows[1:], shape, sizes[2], field == "pattern", symmetry)


def _sparse_entries(
    rows: list[tuple[int, list[str]]],
    shape: tuple[int, int],
    count: int,
    is_pattern: bool,
    symmetry: str,
) -> Any:
    if count != len(rows):
        raise InvalidInputError(f"it has {len(rows):,} entries, but announces {count:,}")
    places = empty((2, count), dtype=np.int64)
    values = np.ones(count)
    for at, (number, fields) in enumerate(rows):
        if len(fields) != (2 if is_pattern else 3):
            raise InvalidInputError(
                f"line {number}: {len(fields)} fields; an entry is a row, a column and a value "
                "(no value in a pattern)"
            )
        for axis in (0, 1):
            index = _whole(fields[axis], number)
            if not 1 <= index <= shape[axis]:
                raise InvalidInputError(f"line {number}: index {index} not in 1 .. {shape[axis]}")
            places[axis, at] = index - 1
        if not is_pattern:
            values[at] = _real(fields[2], number)
    if symmetry == "symmetric":
        other = places[0] != places[1]
        places = np.concatenate([places, places[::-1, other]], axis=1)
        values = np.concatenate([values, values[other]])
    return sparse.coo_matrix((values, (places[0], places[1])), shape=shape)


def _dense_entries(rows: list[tuple[int, list[str]]], shape: tuple[int, int], symmetry: str) -> Any:
    """Return the matrix from one number per line, column by column."""
    if symmetry == "symmetric" or math.prod(shape) != len(rows):
        raise InvalidInputError(
            f"it has {len(rows):,} entries; an array must be general, with all {shape[0]} x "
            f"{shape[1]} entries"
        )
    values = [_real(" ".join(fields), number) for number, fields in rows]
    return np.array(values).reshape(shape, order="F")


def _whole(text: str, line: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidInputError(f"line {line}: {shown(text)} is not a whole number")
    return int(text)


def _real(text: str, line: int) -> float:
    try:
        return to_number(text)
    except ValueError as error:
        raise InvalidInputError(f"line {line}: {shown(text)} is not a number") from error
