"""What a call gives, as plain contents, and whether it is right for a kind of input."""

import copy
import inspect
import os
import pathlib
import re
import types
import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from scipy import sparse

import fstgrad as fg
from fstgrad.trees.arcs import ArcTable
from tests.borders.rows import NUMBERS, REFUSED, Form
from tests.fuzz.wrong import Call

# digits of a form, by a word in its row; of a result, by the size of its floats
DIGITS = {"bfloat16": 2e-2, "float16": 4e-3, "f2": 4e-3, "float32": 2e-5, "f4": 2e-5}
DIGITS_OF_SIZE = {2: 2e-2, 4: 2e-5, 8: 1e-10}
# forms that give another number of axes: an error may name the argument that they do not fit
SHAPES = ("axis before", "axis behind", "flat", "array of rank 2")
# what a result does not know; its documentation says so
UNKNOWN = ("r_hat", "effective_samples", "standard_errors", "confidence", "discrepancy",
           "stability", "dispersion.value", "dispersion.standard_error")  # fmt: skip


class Opaque(str):
    """What is compared by its class alone."""


class Outcome:
    """What a call gave: the content of its result, or an error; and whether it warned."""

    def __init__(self, call: Call, arguments: dict[str, Any], *, may_warn: bool = True) -> None:
        self.content, self.error, self.raw = None, None, None
        given = {name: _unshared_value(name, value) for name, value in arguments.items()}
        with warnings.catch_warnings(record=may_warn) as caught:
            warnings.simplefilter("always" if may_warn else "error")
            try:
                self.content = [content(_unshared(call)(given)), *_written(given)]
            except fg.FstgradError as error:
                self.error = error
            except Exception as error:
                self.raw = error
        self.warned = bool(caught)


def judged(
    form: Form, names: set[str], others: Collection[str], got: Outcome, plain: Outcome | None,
    *, is_random: bool = False,
) -> str:  # fmt: skip
    """Return what is wrong with a cell, "" if nothing is.

    names : the names of the argument, one of which an error about it has.
    others : the names of all arguments.
    plain : what the call with the plain form gave.
    is_random : whether two results of one call differ.
    """
    if got.raw is not None:
        return f"{type(got.raw).__name__}: {_short(str(got.raw))}"
    if form.plain is NUMBERS:
        found = [place for place in nans(got.content) if not place.endswith(UNKNOWN)]
        return f"NaN at {found[:3]}" if found else ""
    if got.error is not None:
        if plain is not None and plain.content is None:
            return ""
        named = names | set(others if form.row in SHAPES else ())
        is_named = any(re.search(rf"(?<!\w){re.escape(n)}(?!\w)", str(got.error)) for n in named)
        return "" if is_named else f"an error without {min(names)}: {str(got.error)[:200]}"
    if form.plain is REFUSED:
        return f"taken: {_short(got.content)}"
    assert plain is not None
    if plain.content is None:
        return f"gives {_short(got.content)}, the plain form {plain.error or plain.raw!r}"
    if is_random:
        return ""
    rtol = next((digits for word, digits in DIGITS.items() if word in form.row), 0.0)
    return difference(got.content, plain.content, rtol, is_squeezed="axis" in form.row)


def content(value: Any, depth: int = 0) -> Any:
    """Return what a value holds, as dicts, lists, arrays and numbers."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return value
    if depth > 6 or isinstance(value, type | types.FunctionType | types.ModuleType):
        return Opaque(type(value).__name__)
    array = _array(value)
    if array is not None:
        return content(array.tolist(), depth + 1) if array.dtype == object else array
    if hasattr(value, "write_to_string"):
        return value.write_to_string()
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): content(part, depth + 1) for key, part in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, Iterator):
        value = [part for _, part in zip(range(50), value, strict=False)]
    if isinstance(value, list | tuple):
        return [content(part, depth + 1) for part in value]
    if isinstance(value, ArcTable):  # nothing reads its other entries
        nodes = np.arange(value.flat.shape[1])
        is_arc = (nodes > 0) & (nodes[:, None] != nodes)
        return np.where(is_arc[..., None] if value.labeled else is_arc, value.flat, -np.inf)
    if type(value).__module__.startswith("fstgrad") and hasattr(value, "__dict__"):
        parts = dict(vars(value))
        if isinstance(parts.get("_table"), ArcTable):  # which has the scores that are read
            parts.pop("scores", None)
        return {key: content(part, depth + 1) for key, part in parts.items()}
    return Opaque(type(value).__name__)


def _array(value: Any) -> Any:
    """Return a copy of an array of any library, None for anything else."""
    if isinstance(value, np.generic | np.ndarray):
        return np.array(value)
    if sparse.issparse(value):
        return value.toarray()
    library = type(value).__module__.split(".")[0]
    if library == "torch" and hasattr(value, "detach"):
        known = value.detach()
        return (known.half() if str(known.dtype) == "torch.bfloat16" else known).numpy().copy()
    if library in ("jax", "jaxlib") and not str(getattr(value, "dtype", "key")).startswith("key"):
        return np.array(value, dtype="f2" if value.dtype.name == "bfloat16" else None)
    return None


def key_of(value: Any) -> Any:
    """Return what equal arrays share, and no other values do."""
    array = _array(value)
    if array is None or array.dtype == object:
        return id(value)
    return type(value), array.dtype.str, array.shape, array.tobytes()


def difference(
    a: Any, b: Any, rtol: float = 0.0, place: str = "result", *, is_squeezed: bool = False
) -> str:
    """Return where two contents differ, "" if they are the same."""
    if isinstance(a, Opaque) or isinstance(b, Opaque):
        return ""
    if isinstance(a, dict) and isinstance(b, dict):
        pairs = [(f"{place}.{key}", a[key], b[key]) for key in a if key in b]
    elif isinstance(a, list) and isinstance(b, list):
        if is_squeezed:
            a, b = (x[0] if len(x) == 1 and isinstance(x[0], list) else x for x in (a, b))
        if len(a) != len(b):
            return f"{place} has {len(a)} parts, plain {len(b)}"
        pairs = [(f"{place}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        is_same = _is_same(a, b, rtol, is_squeezed=is_squeezed)
        return "" if is_same else f"{place} is {_short(a)}, plain {_short(b)}"
    found = (difference(x, y, rtol, where, is_squeezed=is_squeezed) for where, x, y in pairs)
    return next(filter(None, found), "")


def _is_same(a: Any, b: Any, rtol: float, *, is_squeezed: bool) -> bool:
    if isinstance(a, str) and isinstance(b, str):
        return a == b  # also of the subclass of NumPy
    numbers = (np.ndarray, bool, int, float, complex)
    if not (isinstance(a, numbers) and isinstance(b, numbers)):
        return type(a) is type(b) and not isinstance(a, np.ndarray) and bool(a == b)
    a, b = np.asarray(a), np.asarray(b)
    if is_squeezed:
        a, b = a.squeeze(), b.squeeze()
    if a.shape != b.shape or a.dtype.kind in "USV" or b.dtype.kind in "USV":
        return np.array_equal(a, b)
    for array in (a, b):
        if array.dtype.kind == "f":
            rtol = max(rtol, DIGITS_OF_SIZE.get(array.dtype.itemsize, 1e-10))
    rtol = max(rtol, 1e-10)
    return np.allclose(a, b, rtol=rtol, atol=rtol, equal_nan=True)


def nans(value: Any, place: str = "result") -> Iterator[str]:
    """Yield where contents hold NaN."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from nans(part, f"{place}.{name}")
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from nans(part, f"{place}[{i}]")
    elif (
        isinstance(value, float | np.ndarray)
        and np.asarray(value).dtype.kind in "fc"
        and np.isnan(value).any()
    ):
        yield place


def _short(value: Any) -> str:
    return " ".join(repr(value).split())[:90]


def _unshared_value(name: str, value: Any) -> Any:
    """Return an argument that an earlier call has not changed."""
    is_out = name == "out" and isinstance(value, np.ndarray)
    is_changed = isinstance(value, np.random.Generator) or is_out
    return copy.deepcopy(value) if is_changed else value


def _unshared(call: Call) -> Call:
    """Return a call of a model that no other call uses."""
    owner = getattr(call.function, "__self__", None)
    if not hasattr(owner, "get_params") or inspect.isclass(owner):
        return call
    return call._replace(function=getattr(copy.deepcopy(owner), call.function.__name__))


def _written(arguments: dict[str, Any]) -> Iterator[Any]:
    """Yield the contents of the file and of the array to which a call writes."""
    for name, value in arguments.items():
        if name in ("path", "file") and isinstance(value, str | bytes | os.PathLike):
            try:
                path = pathlib.Path(os.fsdecode(value))
                yield path.read_bytes() if path.is_file() else None
            except (OSError, ValueError):
                yield None
        if name == "out" and isinstance(value, np.ndarray):
            yield value.copy()
