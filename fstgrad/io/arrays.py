"""Read arrays from npz and npy files, with limits and type checks.

Files are untrusted.  Nothing in them is executed, and headers are compared with the bytes present
before memory is allocated.  A schema gives the kind of each array, its shape, the lengths that it
shares with other arrays, and its range.

Index
-----
- `Field` : the schema of one array.
- `read_arrays` : the arrays of an npz file that a schema names.
- `load_arrays`, `load_array` : all arrays of an npz file, the array of an npy file.
- `json_object` : a JSON text with known keys.
- `memory_limit` : the most bytes of the arrays of one file.
"""

import functools
import json
import math
import os
import pathlib
import re
import struct
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import instance, path_name
from fstgrad.core.errors import FstgradError, InvalidInputError, MemoryLimitError

Path = str | os.PathLike[str]
Array = npt.NDArray[Any]

_MAGIC = b"\x93NUMPY"
_UNKNOWN_MEMORY = 2**33  # bytes; assumed if the system does not tell its memory
_HEADER = 10_000  # most bytes of the header of an npy file, far more than numpy writes
_RATIO, _SLACK = 1_100, 1_024  # deflate expands one byte to at most 1,032
_DESCR = re.compile(r"['\"]descr['\"]\s*:\s*['\"]([<>|=]?[biufUS]\d{1,9})['\"]")
_ORDER = re.compile(r"['\"]fortran_order['\"]\s*:\s*(True|False)")
_SHAPE = re.compile(r"['\"]shape['\"]\s*:\s*\(((?:\s*\d{1,18}\s*,)*\s*(?:\d{1,18}\s*)?)\)")
_KINDS = {"float": "fiu", "integer": "iu", "flag": "b", "text": "U"}


@dataclass(frozen=True)
class Field:
    """The schema of one array of a file.

    Parameters
    ----------
    kind : {"float", "integer", "flag", "text"}
        The array is returned as float64, int64, bool or str.
    shape : tuple, or None
        One entry per axis: a number requires this length, None allows any length, and a str allows
        any length that all fields with the same str share.  None instead of a tuple allows any
        shape.
    lower, upper : float
        The range of the numbers, both ends included.
    finite : bool
        Whether infinities are errors.  NaN always is.
    """

    kind: Literal["float", "integer", "flag", "text"]
    shape: tuple[int | str | None, ...] | None = ()
    lower: float = -math.inf
    upper: float = math.inf
    finite: bool = True


def read_arrays(path: Path, schema: Mapping[str, Field], *, what: str) -> dict[str, Array]:
    """Return the arrays of an npz file that a schema names; the other arrays are not read.

    Parameters
    ----------
    what : str
        The kind of file in errors, such as "a model that SequenceModel.save wrote".

    Raises
    ------
    InvalidInputError
        The file is damaged or not an npz file, an array is missing, or it violates its schema.
    MemoryLimitError
        The arrays need more than half of the memory (`memory_limit`).
    OSError
        The file cannot be read.
    """
    instance("schema", schema, Mapping, "a mapping of names to Fields")
    for field in schema.values():
        instance("an item of schema", field, Field, "a Field")
    try:
        arrays = load_arrays(path, schema.keys())
        lengths: dict[str, int] = {}
        return {name: _checked(name, arrays, schema[name], lengths) for name in schema}
    except InvalidInputError as error:
        raise InvalidInputError(f"{path_name(path)} is not {what}: {error}") from error


def load_arrays(path: Path, names: Collection[str] | None = None) -> dict[str, Array]:
    """Return the named arrays of an npz file; all of them if `names` is None.

    Names that the file lacks are skipped.  The arrays hold numbers, flags or text.

    Raises
    ------
    InvalidInputError
        The file is damaged or not an npz file, or an array holds another kind of data.
    MemoryLimitError, OSError
        As in `read_arrays`.
    """
    with pathlib.Path(path_name(path)).open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = {
                    info.filename.removesuffix(".npy"): info
                    for info in archive.infolist()
                    if info.filename.endswith(".npy")
                }
                wanted = members if names is None else [name for name in names if name in members]
                _check_total(sum(members[name].file_size for name in wanted))
                return {name: _member(archive, members[name], name) for name in wanted}
        except FstgradError:
            raise
        except Exception as error:  # the parsers of zip and deflate raise many classes
            raise InvalidInputError(f"not an npz file of arrays ({_said(error)})") from error


def load_array(path: Path) -> Array:
    """Return the array of an npy file; it holds numbers, flags or text.

    Raises
    ------
    InvalidInputError
        The file is damaged or not an npy file, or the array holds another kind of data.
    MemoryLimitError, OSError
        As in `read_arrays`.
    """
    with pathlib.Path(path_name(path)).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        _check_total(size)
        return _parsed(file, size, os.path.basename(path))


def json_object(text: str, keys: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """Return the values of `keys` in the object of a JSON text; other keys are left out.

    Parameters
    ----------
    keys : mapping of key to type, or tuple of types

    Raises
    ------
    InvalidInputError
        The text is not JSON or not an object, a key is missing, or its value has another type.
    """
    instance("text", text, str, "a str of JSON")
    instance("keys", keys, Mapping, "a mapping of keys to types")
    for key, kind in keys.items():
        for one in kind if isinstance(kind, tuple) else (kind,):
            instance(f"keys[{key!r}]", one, type, "a type, or a tuple of types")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"its text is not JSON ({_said(error)})") from error
    if not isinstance(found, dict):
        raise InvalidInputError("its text is not an object of JSON")
    for key, kind in keys.items():
        if key not in found:
            raise InvalidInputError(f"its text has no {key!r}")
        value = found[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and not _allows(kind, bool)):
            raise InvalidInputError(f"{key!r} in its text is {shown(value)}")
    return {key: found[key] for key in keys}


def shown(value: object) -> str:
    """Return the `repr` of a value in at most 60 characters, for an error."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def memory_limit() -> int:
    """Return the limit of the arrays of one file: half of the process's memory, in bytes."""
    try:
        import resource

        total = _physical_memory()
        allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    except (ImportError, AttributeError, ValueError, OSError):  # not a Unix
        return _UNKNOWN_MEMORY // 2
    return (total if allowed == resource.RLIM_INFINITY else min(total, allowed)) // 2


@functools.cache
def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _check_total(size: int) -> None:
    if size > memory_limit():
        raise MemoryLimitError(
            f"the arrays need {size:,} bytes, more than half of the memory; give a smaller file"
        )


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> Array:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InvalidInputError(
            f"the array {name!r} is compressed in a way that numpy does not use"
        )
    if info.file_size > _RATIO * info.compress_size + _SLACK:
        raise InvalidInputError(
            f"the array {shown(name)} would be {info.file_size:,} bytes of {info.compress_size:,}"
        )
    with archive.open(info) as stream:
        return _parsed(stream, info.file_size, name)


def _parsed(stream: IO[bytes], size: int, name: str) -> Array:
    """Return the array of `size` bytes in npy format, without numpy's parser."""
    magic = stream.read(8)
    if magic[:6] != _MAGIC or magic[6:] not in (b"\x01\x00", b"\x02\x00"):
        raise InvalidInputError(f"the array {shown(name)} is not in the format npy")
    width = 2 if magic[6] == 1 else 4
    (length,) = struct.unpack("<H" if width == 2 else "<I", stream.read(width).rjust(width, b"\0"))
    header = stream.read(min(length, _HEADER)).decode("latin-1")
    descr, order, shape = (p.search(header) for p in (_DESCR, _ORDER, _SHAPE))
    if descr is None or order is None or shape is None:
        raise InvalidInputError(
            f"the array {shown(name)} has the header {shown(header.strip())}; give numbers or text"
        )
    dtype = np.dtype(descr[1])
    sizes = tuple(int(field) for field in shape[1].split(",") if field.strip())
    nbytes = math.prod(sizes) * dtype.itemsize
    there = size - 8 - width - length
    if nbytes != there or len(sizes) > 32 or dtype.itemsize == 0:
        raise InvalidInputError(
            f"the array {shown(name)} of shape {sizes} and type {descr[1]} needs {nbytes:,} bytes "
            f"and has {max(there, 0):,}; the file is damaged"
        )
    data = stream.read(nbytes)
    if len(data) < nbytes or stream.read(1):  # reading to the end verifies the checksum
        raise InvalidInputError(f"the array {shown(name)} is cut off; the file is damaged")
    flat = np.frombuffer(bytearray(data), dtype)
    array: Array = flat.reshape(sizes, order="F" if order[1] == "True" else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)


def _checked(name: str, arrays: dict[str, Array], field: Field, lengths: dict[str, int]) -> Array:
    if name not in arrays:
        raise InvalidInputError(f"it has no array {name!r}")
    array = arrays[name]
    if array.dtype.kind not in _KINDS[field.kind] and not (
        array.size == 0 and field.kind != "text"
    ):
        raise InvalidInputError(f"{name} has dtype {array.dtype}, not {field.kind}")
    shape = array.shape if field.shape is None else field.shape
    wanted = [lengths.get(n) if isinstance(n, str) else n for n in shape]
    if array.ndim != len(wanted) or any(
        want not in (None, have) for want, have in zip(wanted, array.shape, strict=True)
    ):
        text = ", ".join("any" if n is None else str(n) for n in wanted)
        raise InvalidInputError(f"{name} has shape {array.shape}, not ({text})")
    for length, have in zip(shape, array.shape, strict=True):
        if isinstance(length, str):
            lengths[length] = have
    if field.kind in ("flag", "text"):
        return array
    if array.size == 0:  # its dtype does not matter
        return np.zeros(array.shape, dtype=np.float64 if field.kind == "float" else np.int64)
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise InvalidInputError(f"{name} has NaN")
    if field.finite and not np.isfinite(array).all():
        raise InvalidInputError(f"{name} has infinities")
    if array.min() < field.lower or array.max() > field.upper:
        raise InvalidInputError(
            f"{name} runs from {array.min()} to {array.max()}, "
            f"outside {field.lower:g} .. {field.upper:g}"
        )
    if field.kind == "integer" and int(array.max()) >= 2**63:
        raise InvalidInputError(f"{name} has {array.max()}, which does not fit an int64")
    return array.astype(np.float64 if field.kind == "float" else np.int64)


def _allows(kind: type | tuple[type, ...], wanted: type) -> bool:
    return wanted in (kind if isinstance(kind, tuple) else (kind,))


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
