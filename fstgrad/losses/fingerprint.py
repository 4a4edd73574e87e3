"""A digest of everything that defines a loss: equal digests mean equal losses."""

import hashlib
from functools import cached_property
from typing import Any

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.openfst import Fst, to_arrays

_FST_ARRAYS = ("final", "source", "ilabel", "olabel", "nextstate", "weight")


def fingerprint(thing: Any) -> str:
    """Return the SHA-256 digest, in hex, of the class and the attributes of an object.

    It is the same in every process.  Values of cached properties are ignored, because they follow
    from the other attributes.
    """
    digest = hashlib.sha256()
    for part in _parts(thing):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _parts(value: Any) -> list[bytes]:
    """Return the bytes of a value: its type, then its content."""
    if isinstance(value, Fst):
        arrays = to_arrays(value)
        sizes = (arrays.arc_type, arrays.start, arrays.num_states)
        tables = (arrays.input_symbols, arrays.output_symbols)
        return [
            repr((sizes, tables)).encode(),
            *(getattr(arrays, name).tobytes() for name in _FST_ARRAYS),
        ]
    if isinstance(value, np.ndarray):
        return [repr((value.dtype.str, value.shape)).encode(), value.tobytes()]
    if isinstance(value, Alphabet):
        return [repr(value.symbols).encode()]
    if isinstance(value, list | tuple):
        return [b"sequence", *(fingerprint(item).encode() for item in value)]
    if isinstance(value, set | frozenset):
        return [b"set", *sorted(fingerprint(item).encode() for item in value)]
    if isinstance(value, dict):
        return [b"mapping", *(fingerprint(pair).encode() for pair in value.items())]
    if value is None or isinstance(value, str | bytes | int | float | np.generic):
        return [repr(value).encode()]
    kind = type(value)
    attributes = {
        name: item
        for name, item in vars(value).items()
        if not isinstance(getattr(kind, name, None), cached_property)
    }
    return [f"{kind.__module__}.{kind.__qualname__}".encode(), *_parts(attributes)]
