"""The writer of every file: whole or not at all.

A file is written under a name that nobody can predict, in the folder of its target, is forced to
the disk, and then takes the place of the target in one step.  A write that fails, a full disk
included, leaves what was there before.

Index
-----
- `replacing` : a stream that becomes the file.
- `check_writable` : say that it will not work before the work starts.
- `write_arrays`, `write_npz`, `write_text`, `write_bytes` : an npz file, text, bytes.
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

from fstgrad.checks import flag, instance, path_name
from fstgrad.errors import InvalidInputError

Path = str | os.PathLike[str]


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a stream of bytes that replaces `path` when the block ends without an error.

    A link in place is replaced, never followed.

    Raises
    ------
    InvalidInputError
        `path` is a folder, a device or a pipe, or its folder is not there.
    OSError
        The file cannot be written; what was there before still is.
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
    """Raise where `replacing` could not write, before anything is computed.

    Raises
    ------
    InvalidInputError
        The folder is not there or not writable, or `path` is no regular file.
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
    """Write arrays to an npz file, whole or not at all."""
    write_npz(path, arrays)


def write_npz(path: Path, arrays: Mapping[str, npt.ArrayLike], *, compressed: bool = False) -> None:
    """Write arrays of any names to an npz file; the same arrays give the same bytes.

    Raises
    ------
    InvalidInputError
        An array holds objects.
    """
    instance("arrays", arrays, Mapping, "arrays by name")
    method = zipfile.ZIP_DEFLATED if flag("compressed", compressed) else zipfile.ZIP_STORED
    with replacing(path) as stream, zipfile.ZipFile(stream, "w", method) as archive:
        for name, values in arrays.items():
            try:
                array = np.asanyarray(values)
            except Exception as error:  # whatever __array__ of a stranger raises
                raise InvalidInputError(f"{name} is not an array: {error}") from error
            if array.dtype.hasobject:
                raise InvalidInputError(f"{name} holds objects; give numbers, flags or text")
            member = zipfile.ZipInfo(f"{name}.npy")  # without the time of day
            member.compress_type = method
            member.external_attr = 0o600 << 16
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, whole or not at all; bytes of names that are not UTF-8 are escaped."""
    instance("text", text, str, "a str")
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes, whole or not at all."""
    instance("data", data, bytes | bytearray | memoryview, "bytes")
    with replacing(path) as stream:
        stream.write(data)


def _sync_folder(folder: pathlib.Path) -> None:
    """Make the new name last; a file system that cannot is let be."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
