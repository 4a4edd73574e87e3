"""A short `repr`: the class and its fields; arrays by dtype and shape, without their entries."""

import dataclasses
from typing import Any

import numpy as np

_LONGEST = 200  # most characters of a repr
_PART = 48  # most characters of one field


def short_repr(self: Any) -> str:
    """Return the class and its public fields on one line of at most 200 characters.

    Use it in the body of a class, dataclass or named tuple: `__repr__ = short_repr`.
    """
    return summary(type(self).__name__, fields_of(self))


def summary(name: str, parts: dict[str, Any]) -> str:
    """Return `name(part=..., ...)`; parts that do not fit become "... k more"."""
    shown: list[str] = []
    length = len(name) + 2
    for key, value in parts.items():
        text = f"{key}={described(value)}"
        if length + len(text) + 2 > _LONGEST - 12:
            shown.append(f"... {len(parts) - len(shown)} more")
            break
        shown.append(text)
        length += len(text) + 2
    return f"{name}({', '.join(shown)})"


def fields_of(self: Any) -> dict[str, Any]:
    """Return the public fields of a dataclass, a named tuple or any object."""
    names = getattr(self, "_fields", None)
    if names is None and dataclasses.is_dataclass(self):
        names = [field.name for field in dataclasses.fields(self) if field.repr]
    if names is None:
        names = list(vars(self))
    return {name: getattr(self, name) for name in names if not name.startswith("_")}


def described(value: Any) -> str:
    """Return a short text of a value: its `repr` if that has at most 48 characters."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return f"{value:.6g}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        kind = "" if isinstance(value, np.ndarray) else f"{type(value).__name__} of "
        return f"{kind}{value.dtype} {tuple(value.shape)}"
    text = repr(value)
    if len(text) <= _PART and "\n" not in text and " at 0x" not in text:
        return text
    if isinstance(value, str):
        return repr(value[: _PART - 10] + "...")
    if isinstance(value, list | tuple | dict | set | frozenset) and not hasattr(value, "_fields"):
        return f"{type(value).__name__} of {len(value):,}"
    return getattr(value, "__name__", None) or type(value).__name__
