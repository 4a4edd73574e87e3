"""The rows of files: how other programs write text, and files that hold something else."""

import gzip
from collections.abc import Iterator

BINARY = (".npz", ".npy", ".fst", ".far", ".png", ".mat")


def forms(name: str, data: bytes) -> Iterator[tuple[str, bytes, bool]]:
    """Yield (row, data, whether the file means the same) for a file."""
    yield "empty file", b"", False
    yield "cut off", data[: len(data) // 2] if name.endswith(BINARY) else b"\0", False
    if name.endswith(BINARY):
        return
    text = data.decode()
    yield "BOM", b"\xef\xbb\xbf" + data, True
    yield "CRLF", text.replace("\n", "\r\n").encode(), True
    yield "no last line end", text.rstrip("\n").encode(), True
    yield "blank lines at the end", data + b"\n\n", True
    yield "gzip", gzip.compress(data), True
    yield "UTF-16", text.encode("utf-16"), True
    yield "UTF-16 without a mark", text.encode("utf-16-le"), True
    yield "Latin-1", b"\xe4" + data, False
    yield "NUL", data[:1] + b"\0" + data[1:], False
    yield "spaces for tabs", text.replace("\t", " ").encode(), True
    numbered = "".join(f"{i}\t{line}\n" for i, line in enumerate(text.splitlines()))
    yield "an index column", numbered.encode(), True
    yield "white space", b" \n\t\n", False
