"""Write files completely or not at all.

A file is written under an unpredictable name in the folder of its target, flushed to disk, and then
renamed to the target in one step.  If a write fails, for example on a full disk, the old file
remains.

Index
-----
- `replacing` : a stream that becomes the file.
- `check_writable` : raise before the work starts if the file cannot be written.
- `write_arrays`, `write_npz`, `write_text`, `write_bytes` : write arrays (npz), text, bytes.
"""

import os
import pathlib
import secrets
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import flag, instance, path_name
from fstgrad.core.errors import InvalidInputError

Path = str | os.PathLike[str]


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary stream whose content replaces `path` if the block ends without an error.

    An existing file keeps its permissions.  A symbolic link is replaced, not followed.

    Raises
    ------
    InvalidInputError
        As in `check_writable`.
    OSError
        The file cannot be written; the old file remains.
    """
    check_writable(path)
    target = pathlib.Path(path_name(path))
    partial = target.with_name(f".fstgrad-{secrets.token_hex(12)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)  # Unix, Windows
    try:
        with os.fdopen(os.open(partial, flags, 0o666), "wb") as stream:
            yield stream
            stream.flush()
            if target.exists() and hasattr(os, "fchmod"):
                os.fchmod(stream.fileno(), stat.S_IMODE(target.stat().st_mode))
            os.fsync(stream.fileno())
        partial.replace(target)
        _sync_folder(target.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def check_writable(path: Path, name: str = "output") -> None:
    """Raise if `replacing` cannot write the file; call this before a long computation.

    Parameters
    ----------
    name : str
        The name of the argument in errors.

    Raises
    ------
    InvalidInputError
        The folder is missing or not writable; `path` is a folder, a device, a pipe or a read-only
        file; or the path is not valid.
    """
    target = pathlib.Path(path_name(path, name))
    folder = target.parent
    try:
        if not target.name or target.is_dir():
            raise InvalidInputError(f"{name} {os.fspath(path)!r} is a folder; give a file")
        if not folder.is_dir():
            raise InvalidInputError(
                f"the folder of {name} {os.fspath(path)!r} does not exist; create it first"
            )
        if not os.access(folder, os.W_OK | os.X_OK):
            raise InvalidInputError(
                f"the folder of {name} {os.fspath(path)!r} is not writable; choose another"
            )
        if target.exists():
            if not stat.S_ISREG(target.stat().st_mode):
                raise InvalidInputError(
                    f"{name} {os.fspath(path)!r} is a device or a pipe; give a regular file"
                )
            if not target.is_symlink() and not os.access(target, os.W_OK):
                raise InvalidInputError(
                    f"{name} {os.fspath(path)!r} exists and is read-only; choose another"
                )
    except (OSError, ValueError) as error:  # a name too long, a loop of links, a zero byte
        raise InvalidInputError(f"{name} {os.fspath(path)!r} cannot be written: {error}") from error


def write_arrays(path: Path, **arrays: npt.ArrayLike) -> None:
    """Write arrays to an uncompressed npz file, as `write_npz` does."""
    write_npz(path, arrays)


def write_npz(path: Path, arrays: Mapping[str, npt.ArrayLike], *, compressed: bool = False) -> None:
    """Write arrays by name to an npz file, completely or not at all.

    The same arrays always give the same bytes.

    Raises
    ------
    InvalidInputError
        A value is not an array, or an array holds objects; or as in `check_writable`.
    OSError
        The file cannot be written.
    """
    instance("arrays", arrays, Mapping, "arrays by name")
    method = zipfile.ZIP_DEFLATED if flag("compressed", compressed) else zipfile.ZIP_STORED
    with replacing(path) as stream, zipfile.ZipFile(stream, "w", method) as archive:
        for name, values in arrays.items():
            try:
                array = np.asanyarray(values)
            except Exception as error:  # a foreign __array__ may raise anything
                raise InvalidInputError(f"{name} is not an array: {error}") from error
            if array.dtype.hasobject:
                raise InvalidInputError(f"{name} holds objects; give numbers, flags or text")
            member = zipfile.ZipInfo(f"{name}.npy")  # with a constant date
            member.compress_type = method
            member.external_attr = 0o600 << 16
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, completely or not at all; lone surrogates become backslash escapes."""
    instance("text", text, str, "a str")
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes, completely or not at all."""
    instance("data", data, bytes | bytearray | memoryview, "bytes")
    with replacing(path) as stream:
        stream.write(data)


def _sync_folder(folder: pathlib.Path) -> None:
    """Flush the folder to disk, so that the rename persists; ignore errors."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
