"""Tables of counts in files: .npz, .npy, .mtx, .csv / .tsv, .mat."""

import csv
import os
import pathlib
from typing import Any

import numpy as np
from scipy import sparse

from fstgrad.errors import InvalidInputError

FORMATS = (".npz", ".npy", ".mtx", ".csv", ".tsv", ".mat")
Table = tuple[sparse.csr_matrix, list[str] | None]


def read_table(path: str | os.PathLike[str], variable: str | None = None) -> Table:
    """Return a matrix, CSR (n, p), and the names of its columns or None.

    Parameters
    ----------
    path : path
        .npz: `scipy.sparse.save_npz`, or an array by name; .npy; .mtx: Matrix Market, rows are
        samples; .csv, .tsv: a first line that is not numeric gives the names; .mat: MATLAB 5, a
        cell of as many strings as columns gives the names.
    variable : str, optional
        Which array of an .npz or .mat file; the largest matrix where it is not given.

    Raises
    ------
    InvalidInputError
        The ending is unknown, or the file holds no such matrix.
    """
    source = pathlib.Path(path)
    readers = {".npz": _npz, ".mat": _mat}
    ending = source.suffix.lower()
    if ending not in FORMATS:
        raise InvalidInputError(f"{source} ends with {ending!r}; give one of {', '.join(FORMATS)}")
    if not source.is_file():
        raise InvalidInputError(f"{source} is no file")
    try:
        if ending in readers:
            return readers[ending](source, variable)
        if ending == ".mtx":
            from scipy.io import mmread

            return sparse.csr_matrix(mmread(source)), None
        if ending == ".npy":
            return sparse.csr_matrix(np.load(source, allow_pickle=False)), None
        return _text(source, "\t" if ending == ".tsv" else ",")
    except InvalidInputError:
        raise
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise InvalidInputError(f"{source} cannot be read as a {ending} table: {error}") from error


def _npz(path: pathlib.Path, variable: str | None) -> Table:
    with np.load(path, allow_pickle=False) as data:
        if variable is None and {"format", "data", "shape"} <= set(data.files):
            return sparse.csr_matrix(sparse.load_npz(path)), None
        arrays = {name: data[name] for name in data.files}
    return sparse.csr_matrix(_choose(path, arrays, variable)), None


def _mat(path: pathlib.Path, variable: str | None) -> Table:
    from scipy.io import loadmat

    arrays = {name: value for name, value in loadmat(path).items() if not name.startswith("__")}
    matrix = sparse.csr_matrix(_choose(path, arrays, variable), dtype=np.float64)
    for value in (v for v in arrays.values() if isinstance(v, np.ndarray)):
        if value.dtype.kind == "O" and value.size == matrix.shape[1]:
            return matrix, [str(cell.item() if cell.size == 1 else cell) for cell in value.ravel()]
    return matrix, None


def _choose(path: pathlib.Path, arrays: dict[str, Any], variable: str | None) -> Any:
    """Return the array `variable`, or the largest matrix of numbers."""
    if variable is not None:
        if variable not in arrays:
            raise InvalidInputError(f"{path} has no {variable!r}, only {', '.join(arrays)}")
        return arrays[variable]
    matrices = [
        value for value in arrays.values() if value.ndim == 2 and value.dtype.kind in "biuf"
    ]
    if not matrices:
        raise InvalidInputError(f"{path} holds no matrix of numbers, only {', '.join(arrays)}")
    return max(matrices, key=lambda value: int(np.prod(value.shape)))


def _text(path: pathlib.Path, delimiter: str) -> Table:
    with path.open(newline="") as stream:
        first = next(csv.reader(stream, delimiter=delimiter), [])
    try:
        [float(cell) for cell in first]
        names = None
    except ValueError:
        names = first
    values = np.loadtxt(path, delimiter=delimiter, skiprows=int(names is not None), ndmin=2)
    return sparse.csr_matrix(values), names
