"""Damage: of bytes, of text, of the arrays in an npz file."""

import io
import struct
import zipfile

import numpy as np

NUMBERS = ("-1", "0", "1", "nan", "inf", "-inf", "1e308", "1e-320", "99999999999", "4294967296",
           "-9223372036854775808", "1" * 5000, "0x10", "1_0", "1,5", "", " ", "٣")  # fmt: skip
WORDS = ("\t", "\t\t", "\n", "\r\n", "\0", "\ufeff", "\x1b[31m", "<eps>", "é", "\ud7ff", "#", '"',
         "'", "..", "/", "a" * 300, "%%MatrixMarket", "PK\x03\x04", "\u2028")  # fmt: skip


def damaged(data: bytes, name: str, rng: np.random.Generator) -> bytes:
    """Return a damaged form of a file, by the kind of its name."""
    kinds = [_bytes]
    if name.endswith(".npz"):
        kinds = [_bytes, _arrays, _arrays, _arrays]
    elif name.rsplit(".")[-1] in ("tsv", "txt", "csv", "mtx", "uai", "evid", "conllu", "jsonl"):
        kinds = [_bytes, _text, _text]
    for _ in range(int(rng.integers(1, 3))):
        data = kinds[rng.integers(len(kinds))](data, rng)
    return data


def _bytes(data: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(data) + 1))
    far = int(rng.integers(len(data) + 1))
    kind = rng.integers(8)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([rng.integers(256)]) + data[at + 1 :]
    if kind == 2 and at < len(data):
        return data[:at] + bytes([data[at] ^ (1 << rng.integers(8))]) + data[at + 1 :]
    if kind == 3:
        return data[: min(at, far)] + data[max(at, far) :]
    if kind == 4:
        return data + data[min(at, far) : max(at, far)]
    if kind == 5:
        size, code = ((4, "<i"), (8, "<q"))[rng.integers(2)]
        number = (-1, 0, 2**31 - 1, -(2**31), 1, 255)[rng.integers(6)]
        return data[:at] + struct.pack(code, number) + data[at + size :]
    if kind == 6:
        return data[:at] + rng.bytes(int(rng.integers(1, 16))) + data[at:]
    return b"" if rng.integers(4) == 0 else data[:at] + data[far:] + data[at:far]


def _text(data: bytes, rng: np.random.Generator) -> bytes:
    text = data.decode("utf-8", "surrogateescape")
    pool = NUMBERS if rng.integers(2) else WORDS
    piece = pool[rng.integers(len(pool))]
    words = text.replace("\t", " \t ").replace("\n", " \n ").split(" ")
    at = int(rng.integers(len(words)))
    kind = rng.integers(4)
    if kind == 0:
        words[at] = piece
    elif kind == 1:
        words.insert(at, piece)
    elif kind == 2:
        del words[at]
    else:
        words[at : at + 1] = [words[at]] * 3
    changed = " ".join(words).replace(" \t ", "\t").replace(" \n ", "\n")
    return changed.encode("utf-8", "surrogateescape")


def _arrays(data: bytes, rng: np.random.Generator) -> bytes:
    """Change one array of an npz file and write the file anew, so that its checksums are right."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            members = dict(archive)
    except Exception:
        return _bytes(data, rng)
    arrays = {name: value for name, value in members.items() if isinstance(value, np.ndarray)}
    if not arrays:
        return data
    name = list(arrays)[rng.integers(len(arrays))]
    arrays = _changed(arrays, name, rng)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for key, value in arrays.items():
            with archive.open(f"{key}.npy", "w") as member:
                np.lib.format.write_array(member, np.asarray(value), allow_pickle=True)
    return made.getvalue()


def _changed(arrays: dict, name: str, rng: np.random.Generator) -> dict:
    value = arrays[name]
    kind = rng.integers(9)
    if kind == 0:
        return {key: array for key, array in arrays.items() if key != name}
    if kind == 1:
        return {**arrays, name: value[None]}
    if kind == 2:
        return {**arrays, name: value.ravel()[: rng.integers(value.size + 1)]}
    if kind == 3:
        types = ("f4", "f2", "i1", "u8", "c16", "U3", "S3", "?", "M8[s]", "O")
        with np.errstate(all="ignore"):
            try:
                return {**arrays, name: value.astype(types[rng.integers(len(types))])}
            except (ValueError, TypeError, RuntimeError):
                return arrays
    if kind == 4:
        return {**arrays, "other": value}
    if value.dtype.kind == "U":
        return {
            **arrays,
            name: np.array(_text(str(value).encode(), rng).decode("utf-8", "replace")),
        }
    if value.size == 0 or value.dtype.kind not in "fiu":
        return {**arrays, name: np.zeros(0)}
    flat = value.astype(np.float64 if value.dtype.kind == "f" else np.int64).ravel()
    extremes = (np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, -1.0, 1e300, 0.0)
    numbers = (-1, 2**62, -(2**62), 10**9, 2**31, 255, len(flat), 0, 7)
    pool = extremes if value.dtype.kind == "f" else numbers
    for _ in range(int(rng.integers(1, 3))):
        flat[rng.integers(len(flat))] = pool[rng.integers(len(pool))]
    return {**arrays, name: flat.reshape(value.shape)}
