"""Types of numba as values of JSON, which a reader can check.

"float64[2C]" is a C-contiguous matrix, "readonly float64[1C]" a vector that is not written to,
{"fstgrad.module.Class": [...]} a named tuple, a list a plain tuple, and {"default": 1} an argument
that was left out.
"""

import importlib
import re
from typing import Any

import numba

types: Any = numba.types  # numba has no annotations
_ARRAY = re.compile(r"(readonly )?(\w+)\[(\d+)([ACF])\]")
_RANDOM = "numpy.random.Generator"


def encode(kind: Any) -> Any:
    """Return a type of numba as values of JSON.

    Raises
    ------
    NotImplementedError
        For a type that no kernel of a first step has.
    """
    if isinstance(kind, types.Array):
        prefix = "" if kind.mutable else "readonly "
        return f"{prefix}{kind.dtype}[{kind.ndim}{kind.layout}]"
    if isinstance(kind, types.Omitted):
        return {"default": kind.value}
    if isinstance(kind, types.BaseNamedTuple):
        of = kind.instance_class
        return {f"{of.__module__}.{of.__qualname__}": [encode(item) for item in kind]}
    if isinstance(kind, types.BaseTuple):
        return [encode(item) for item in kind]
    if isinstance(kind, types.NumPyRandomGeneratorType):
        return _RANDOM
    is_constant = isinstance(kind, types.Literal)
    if isinstance(kind, types.Number | types.Boolean | types.NoneType) and not is_constant:
        return str(kind)
    raise NotImplementedError(f"no text for the type {kind!r} of numba")


def decode(text: Any) -> Any:
    """Return the type of numba that `encode` has written."""
    if isinstance(text, list):
        return types.Tuple([decode(item) for item in text])
    if isinstance(text, dict):
        ((name, inside),) = text.items()
        if name == "default":
            return types.Omitted(inside)
        module, _, attribute = name.rpartition(".")
        of = getattr(importlib.import_module(module), attribute)
        items = [decode(item) for item in inside]
        if len(set(items)) == 1:
            return types.NamedUniTuple(items[0], len(items), of)
        return types.NamedTuple(items, of)
    if text == _RANDOM:
        return types.npy_rng
    if found := _ARRAY.fullmatch(text):
        readonly, dtype, ndim, layout = found.groups()
        return types.Array(_scalar(dtype), int(ndim), layout, readonly=bool(readonly))
    return _scalar(text)


def _scalar(name: str) -> Any:
    return types.boolean if name == "bool" else getattr(types, name)
