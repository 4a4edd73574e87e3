"""The rows of the table: kinds of input that people give instead of a plain value.

A row yields forms of a plain value.  A call with a form has to give what the call with `Form.plain`
gives, or raise one FstgradError; a form of `NUMBERS` may give any result that holds no NaN.
"""

import importlib.util
import os
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

import fstgrad as fg
from tests.tables import Column, Frame

REFUSED = object()  # no result is right
NUMBERS = object()  # any result without NaN


class Form(NamedTuple):
    """A kind of input: a value, and the plain one that has the same meaning."""

    row: str
    value: Any
    plain: Any


class Backwards(set):
    """A set whose order is not that of the list that it was made of."""

    def __init__(self, items):
        super().__init__(items)
        self._items = list(items)[::-1]

    def __iter__(self):
        return iter(self._items)


class Strange:
    """An object that is nothing that a function takes."""

    def __repr__(self):
        return "Strange()"


class Array(np.ndarray):
    """An array of a class of one's own."""


def forms(value: Any) -> Iterator[Form]:
    """Yield the forms of a plain value, by its kind."""
    yield Form("a strange object", Strange(), REFUSED)
    if isinstance(value, bool):
        yield from of_flag(value)
    elif isinstance(value, int | float | np.integer | np.floating):
        yield from of_number(value)
    elif isinstance(value, str) and not os.path.exists(value):
        yield from of_text(value)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "fiu" and value.ndim:
        yield from of_array(value)
    elif type(value) in (list, tuple) and value:
        array = _as_numbers(value)
        if array is not None:
            yield from of_array(array)
        yield from of_items(value)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "UO" and value.ndim == 1:
        yield from of_items(value.tolist())
    elif type(value).__module__.split(".")[0] == "torch" and hasattr(value, "is_floating_point"):
        yield from of_tensor(value)
    elif type(value).__module__.startswith("jaxlib"):
        yield from of_array(np.array(value)) if np.ndim(value) else ()
    elif isinstance(value, fg.losses.Loss):
        yield from of_loss(value)


def _as_numbers(value: Any) -> np.ndarray | None:
    try:
        array = np.array(value)
    except Exception:  # ragged, or of another library
        return None
    return array if array.dtype.kind in "fiu" else None


def of_number(value: Any) -> Iterator[Form]:
    """Yield other classes of a number."""
    for kind in (np.float32, np.float64, np.int8, np.uint8, np.int64, np.longdouble, np.float16):
        if np.isfinite(value) and 0 <= value < 127 and float(kind(value)) == value:
            yield Form(f"number {kind.__name__}", kind(value), value)
    yield Form("number in an array", np.array(value), value)
    yield Form("number in a list", [value], value)
    yield Form("number as text", str(value), value)
    if np.isfinite(value):
        yield Form("number Fraction", Fraction(value), value)
        yield Form("number Decimal", Decimal(value), value)
    yield Form("number complex", complex(value), value)
    yield Form("number NaN", float("nan"), REFUSED)
    yield Form("number masked", np.ma.masked, REFUSED)
    if importlib.util.find_spec("torch"):
        import torch

        yield Form("number tensor", torch.tensor(value, dtype=torch.float64), value)


def of_flag(value: bool) -> Iterator[Form]:
    """Yield other classes of a switch."""
    yield Form("flag np.bool_", np.bool_(value), value)
    yield Form("flag as a number", int(value), value)
    yield Form("flag as text", "no", REFUSED)


def of_text(value: str) -> Iterator[Form]:
    """Yield other containers of the characters of a str."""
    letters = list(value)
    yield Form("text np.str_", np.str_(value), value)
    yield Form("text in an array", np.array(value), value)
    yield Form("text bytes", value.encode(), value)
    yield Form("text in a list", [value], value)
    if len(set(letters)) > 1:
        yield from of_items(letters, value)


def _object_array(item: object) -> np.ndarray:
    """Return the parts of an item, which may be arrays, as a 1-D array of objects."""
    parts = list(item)
    array = np.empty(len(parts), dtype=object)
    for i, part in enumerate(parts):
        array[i] = part
    return array


def of_items(value: Any, plain: Any = None) -> Iterator[Form]:
    """Yield other containers of items."""
    given = list(value)
    plain = value if plain is None else plain
    objects = _object_array(given)
    yield Form("list", given, plain)
    yield Form("tuple", tuple(given), plain)
    yield Form("generator", (item for item in given), plain)
    yield Form("1-D array of objects", objects, plain)
    yield Form("column", Column(objects), plain)
    yield Form("column with an index", Column(objects, range(len(given))[::-1]), plain)
    yield Form("table of one column", Frame(objects[:, None], columns=["x"]), plain)
    yield Form("table of one row", Frame(objects[None], columns=map(str, given)), plain)
    yield Form("dict of the items", {str(i): item for i, item in enumerate(given)}, plain)
    yield Form("array of rank 2", objects[None], plain)
    if all(isinstance(item, str) for item in given):
        yield Form("array of str", np.array(given), plain)
        yield Form("bytes", "".join(given).encode(), plain)
        yield Form("items np.str_", [np.str_(item) for item in given], plain)
        yield Form("items bytes", [item.encode() for item in given], plain)
    try:
        distinct = len(set(given)) > 1
    except TypeError:
        distinct = False
    if distinct:
        yield Form("set", Backwards(given), plain)
        yield Form("dict", dict.fromkeys(given[::-1], 0.0), plain)
        yield Form("keys", dict.fromkeys(given[::-1], 0.0).keys(), plain)
    if all(type(item) in (list, tuple) and item for item in given):
        kinds = (tuple, iter, Column, _object_array)
        for name, kind in zip(("tuples", "iterators", "columns", "arrays"), kinds, strict=True):
            yield Form(f"items {name}", [kind(item) for item in given], plain)
    yield Form("one item", given[:1], NUMBERS)
    yield Form("empty", [], NUMBERS)


def of_array(value: np.ndarray) -> Iterator[Form]:
    """Yield arrays of the same numbers, or of other ones that may come in their place."""
    yield from _of_layout(value)
    yield from _of_containers(value)
    yield from _of_rank(value)
    yield from _of_floats(value) if value.dtype.kind == "f" else _of_integers(value)


def _of_layout(value: np.ndarray) -> Iterator[Form]:
    read_only = value.copy()
    read_only.flags.writeable = False
    wide = np.repeat(value, 2, axis=-1)
    yield Form("read-only", read_only, value)
    yield Form("not contiguous", wide[..., ::2], value)
    yield Form("Fortran order", np.asfortranarray(value), value)
    yield Form("reversed strides", value[::-1].copy()[::-1], value)
    yield Form("other byte order", value.astype(value.dtype.newbyteorder()), value)
    yield Form("own class", value.view(Array), value)
    shared = np.broadcast_to(value[:1], value.shape)
    yield Form("broadcast", shared, shared.copy())
    yield Form("nothing masked", np.ma.masked_array(value), value)
    hidden = np.zeros(value.shape, dtype=bool)
    hidden.flat[-1:] = True
    if value.size:
        yield Form("masked", np.ma.masked_array(value, hidden), REFUSED)
    if value.ndim == 2:
        yield Form("np.matrix", np.asmatrix(value), value)


def _of_containers(value: np.ndarray) -> Iterator[Form]:
    yield Form("list of numbers", value.tolist(), value)
    yield Form("array of objects", value.astype(object), value)
    yield Form("array of text", value.astype(str), value)
    yield Form("memoryview", memoryview(np.ascontiguousarray(value)), value)
    if value.ndim == 1 and value.size:
        yield Form("tuple of numbers", tuple(value.tolist()), value)
        yield Form("column", Column(value), value)
        yield Form("column with an index", Column(value, range(len(value))[::-1]), value)
        yield Form("table of one column", Frame(value[:, None], columns=["x"]), value)
        if len(set(value.tolist())) == len(value) > 1:
            yield Form("set", Backwards(value.tolist()), value)
        yield Form("dict of numbers", dict(enumerate(value.tolist())), value)
    if value.ndim == 2:
        yield Form("table", Frame(value), value)
        rows, columns = (list(range(n))[::-1] for n in value.shape)
        yield Form("table in another order", Frame(value[::-1, ::-1], rows, columns), value)
        yield Form("rows as tuples", [tuple(row) for row in value.tolist()], value)
        yield Form("columns", [Column(row) for row in value], value)
    if importlib.util.find_spec("torch") and value.dtype.kind in "fi":
        import torch

        yield Form("tensor", torch.tensor(value), value)
        yield Form(
            "tensor with gradient", torch.tensor(value.astype(float)).requires_grad_(), value
        )


def _of_rank(value: np.ndarray) -> Iterator[Form]:
    yield Form("axis before", value[None], value)
    yield Form("axis behind", value[..., None], value)
    if value.ndim > 1:
        yield Form("flat", value.ravel(), value if 1 in value.shape else REFUSED)
        yield Form("axes swapped", value.swapaxes(-1, -2).copy(), NUMBERS)
    yield Form("scalar", value.flat[0] if value.size else 0.0, NUMBERS)
    yield Form("empty", value[:0], NUMBERS)
    yield Form("one item", value[:1], NUMBERS)
    yield Form("one item more", np.concatenate([value, value[:1]]), NUMBERS)


def _of_floats(value: np.ndarray) -> Iterator[Form]:
    for kind in ("f4", "f2", "g"):
        low = value.astype(kind)
        yield Form(f"dtype {kind}", low, low.astype(np.float64))
    rounded = np.round(np.where(np.isfinite(value), value, 0.0))
    for kind in ("i8", "i4", "i1", "u1"):
        whole = (rounded if kind[0] == "i" else abs(rounded)).astype(kind)
        yield Form(f"dtype {kind}", whole, whole.astype(np.float64))
    yield Form("dtype bool", rounded > 0, (rounded > 0).astype(np.float64))
    yield Form("complex", value.astype(complex), value)
    if not value.size:
        return
    yield Form("complex numbers", value + 1j, REFUSED)
    for row, at, odd in (
        ("first is NaN", 0, np.nan), ("last is NaN", -1, np.nan), ("inf", -1, np.inf),
        ("-inf", -1, -np.inf), ("-1e9", -1, -1e9), ("1e308", -1, 1e308),
        ("finfo.min", -1, np.finfo(float).min),
    ):  # fmt: skip
        changed = value.astype(np.float64)
        changed.flat[at] = odd
        yield Form(row, changed, value if np.isnan(odd) else NUMBERS)
    half = np.arange(value.size).reshape(value.shape) % 2
    yield Form("zero weights", np.where(half, -np.inf, value), NUMBERS)
    yield Form("underflowing weights", value - 800.0 * half, NUMBERS)
    yield Form("all underflow", value - 1e5, NUMBERS)
    yield Form("zeros", np.zeros(value.shape), NUMBERS)
    yield Form("large", value + 1e5 * half, NUMBERS)


def _of_integers(value: np.ndarray) -> Iterator[Form]:
    for kind in ("i4", "i2", "i1", "u1", "u8"):
        if (value.astype(kind) == value).all():
            yield Form(f"dtype {kind}", value.astype(kind), value)
    yield Form("dtype f8", value.astype(np.float64), value)
    if abs(value).max(initial=0) < 2048:
        yield Form("dtype f2", value.astype(np.float16), value)
    yield Form("dtype bool", value > 0, (value > 0).astype(np.int64))
    if value.size:
        yield Form("complex", value.astype(complex), value)
        for odd in (-1, -100, 2**40, 255):
            changed = value.astype(np.int64)
            changed.flat[-1] = odd
            yield Form(f"last is {odd}", changed, NUMBERS)
        yield Form("fractions", value + 0.5, NUMBERS)
        padded = value.astype(np.float64)
        padded.flat[-1] = np.nan
        yield Form("last is NaN", padded, value)


def of_tensor(value: Any) -> Iterator[Form]:
    """Yield other dtypes, layouts and containers of a tensor."""
    import torch

    detached = value.detach()
    if value.is_floating_point():
        for kind in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            low = detached.to(kind)
            yield Form(f"tensor {kind}", low, low.to(torch.float64))
    else:
        for kind in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
            if bool((detached.to(kind) == detached).all()):
                yield Form(f"tensor {kind}", detached.to(kind), value)
        yield Form("tensor float", detached.to(torch.float64), value)
    if detached.ndim:
        wide = detached.repeat_interleave(2, dim=-1)
        yield Form("tensor not contiguous", wide[..., ::2], value)
        yield Form("tensor expanded", detached[:1].expand_as(detached), detached[:1].repeat(
            len(detached), *(1,) * (detached.ndim - 1)))  # fmt: skip
    array = detached.numpy() if detached.dtype != torch.bfloat16 else detached.float().numpy()
    yield Form("array for a tensor", array, value)
    yield Form("list for a tensor", array.tolist(), value)
    if array.dtype.kind in "fi" and array.ndim:
        for form in (*_of_rank(array), *(_of_floats(array) if array.dtype.kind == "f"
                                         else _of_integers(array))):  # fmt: skip
            if form.row.startswith("dtype") or form.row in ("scalar", "complex numbers"):
                continue
            changed = torch.tensor(np.ascontiguousarray(form.value))
            same = torch.tensor(form.plain) if isinstance(form.plain, np.ndarray) else form.plain
            yield Form(form.row, changed, same)


def of_loss(value: Any) -> Iterator[Form]:
    """Yield losses that forbid operations."""
    if len(value.alphabet) < 12:
        yield Form("infinite losses", fg.EditDistance(value.alphabet, np.inf, 1.0, 0.0), NUMBERS)
        yield Form("all losses infinite",
                   fg.EditDistance(value.alphabet, np.inf, np.inf, np.inf), NUMBERS)  # fmt: skip
