"""Arguments with something wrong: replaced by what people pass, or damaged.

A call may raise a FstgradError, or give a result; a result with NaN where the valid call has none
is nonsense.
"""

import contextlib
import decimal
import fractions
import functools
import importlib.util
import inspect
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pynini
from scipy import sparse

import fstgrad as fg


class Call(NamedTuple):
    """A function with arguments that work; those of `*name` are called *0, *1, ..."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]

    def __call__(self, arguments: dict[str, Any]) -> Any:
        """Call the function; each argument goes where its name says."""
        named = dict(arguments)
        starred = [named.pop(name) for name in arguments if name.startswith("*")]
        positional = []
        for parameter in _parameters(getattr(self.function, "__func__", self.function)):
            by_place = starred and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            if parameter.name in named and (
                by_place or parameter.kind is parameter.POSITIONAL_ONLY
            ):
                positional.append(named.pop(parameter.name))
        return self.function(*positional, *starred, **named)


@functools.cache
def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(function).parameters.values())


def bound(
    function: Callable[..., Any], given: Sequence[Any], named: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by name, as `Call` takes them."""
    signature = inspect.signature(function)
    found: dict[str, Any] = {}
    for name, value in signature.bind(*given, **named).arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            found |= {f"*{i}": one for i, one in enumerate(value)}
        else:
            found[name] = value
    return found


class Odd:
    """An object that is nothing in particular."""

    def __repr__(self) -> str:
        return "<odd>"


class Array(np.ndarray):
    """An array of a class of one's own."""


# Two thousand million draws are no hang: the computation that the caller asked for.
# A function of the caller that fails does so with the caller's error.
CALLED = {"progress", "on_error", "callbacks", "psi", "draw", "each"}
WORK = {
    "samples", "burn_in", "thin", "chains", "sweeps", "steps", "draws", "max_iter", "k", "epochs",
    "iterations", "restarts",
}  # fmt: skip


def wrong_values(rng: np.random.Generator) -> list[Any]:
    """Return what is wrong as nearly any argument."""
    return [
        None, True, -1, 0, 1, 3, 2**31, 2**63, 10**30, -0.5, 0.5, float("nan"), float("inf"),
        -float("inf"), 1e308, 1 + 2j, "", "a", "ab", "ba", "zz", "\0", "\ud800", b"ab", [], [0], (),
        [1, 2], ["a", "b"], [None], [[0, 1], [2]], {}, {"a": 1}, {0: 1.0}, {1, 2}, Odd(), Odd, len,
        np.nan, np.zeros(0), np.zeros(3), np.zeros((2, 2)), np.zeros((3, 3, 3)), np.ones((3, 2)),
        np.full((3, 2), np.nan), np.full((3, 2), np.inf), np.full((3, 2), -np.inf),
        np.full((3, 2), 1e308), np.arange(6).reshape(3, 2), np.array(["a", "b"]), np.array("x"),
        np.array([None, 1]), np.array([1, 2], dtype=np.uint64), np.array([2**63], dtype=np.uint64),
        np.ones((2, 3), dtype=np.complex128), np.array([True, False]), np.array([-5, 99]),
        np.zeros((1, 1, 1, 1)), np.float32(0.5), np.int8(-3), np.int8(2),
        np.uint8(3), np.float16(0.5), range(2), iter([0, 1]),
        rng.normal(size=(3, 2)), rng.normal(size=(2, 2)), rng.integers(-2, 4, size=3),
        sparse.csr_matrix(np.eye(3)), pynini.accep("ab"), fg.Alphabet("xyz"), fg.Alphabet("a"),
        -0.0, 1e-320, np.True_, np.str_("ab"), np.array(1.0), np.zeros((0, 2)), np.zeros((2, 0)),
        np.array(["a", "b"], dtype=object), [("ab", "ba")], [("ab", "ba", 2.0)], [("ab", 7, ["a"])],
        ["a\tb", "c\nd", "\0"], "a" * 300, [f"s{i}" for i in range(300)], pathlib.Path("none"),
        fractions.Fraction(1, 2), decimal.Decimal("0.5"), slice(1), memoryview(b"ab"), Ellipsis,
        pynini.Fst(), pynini.accep("a", weight=-1e30), fg.EditDistance(fg.Alphabet("xyz")),
        np.ma.masked_array([1.0, 2.0], [True, False]), np.array([1, 2], dtype="M8[s]"),
        fg.EditDistance(fg.Alphabet("ab")).compile("ab"), fg.StringDistribution(np.zeros((2, 3))),
    ]  # fmt: skip


def _more_values(rng: np.random.Generator) -> list[Any]:
    """Return arrays of other libraries and layouts, and objects of the library."""
    table = rng.normal(size=(3, 3))
    read_only = table.copy()
    read_only.flags.writeable = False
    itself: list[Any] = []
    itself.append(itself)
    knot: dict[str, Any] = {}
    knot["a"] = knot
    least = np.finfo(np.float64).min
    return [
        np.array([itself, 1], dtype=object), np.array([[0, 1], None], dtype=object),
        np.full((3, 3), least), np.array([-100, -100]), -100, least, np.full(3, -(2**63)),
        read_only, table[::-1, ::2], table.astype(">f8"), table.T, table.astype(np.float16),
        np.array(3), np.array(None), table.view(Array), np.longdouble(1), np.zeros(3, "V4"),
        np.ma.masked, np.ma.masked_array(table, table > 0), np.zeros((2, 2), dtype=[("a", "f8")]),
        sparse.coo_array(np.eye(3)), sparse.csc_matrix((0, 3)), sparse.eye(3, dtype=bool),
        itself, knot, (x for x in "ab"), (1 / 0 for _ in range(3)), map(str, [1, 2]), object(),
        [[["a", [0]]]], [0, "a", None], ["\ud800"], ("a", "\ud800b"), {"a": np.nan}, {(): []},
        [np.nan], [1e400, -1], [10**30], [2**63, -1], [True, False], [b"a"], b"", bytearray(3),
        fg.InvalidInputError, fg.Hamming, fg.Hamming(fg.Alphabet("ab")), fg.Alphabet(["ab", "é"]),
        fg.SpanningTrees(table, single_root=True), fg.Lattice.from_text("0 1 a\n1",
        fg.Alphabet("ab")),
        fg.PairwiseMRF(np.zeros((2, 2)), np.eye(2), [[0, 1]]), fg.QGramCounts(fg.Alphabet("ab")),
        fg.Budget(), fg.AutomatonCache(1000), np.random.default_rng(0), np.random.RandomState(0),
        range(10**9), range(0), lambda: None, print, type, NotImplemented, 5e-324, -1e308,
        2**64 - 1,
    ]  # fmt: skip


def _torch_values() -> list[Any]:
    if not importlib.util.find_spec("torch"):
        return []
    import torch

    return [
        torch.zeros(3, 2), torch.zeros((3, 3), dtype=torch.bfloat16), torch.ones(3,
        dtype=torch.long), torch.zeros((3, 2), requires_grad=True), torch.full((3, 2), torch.nan),
        torch.tensor(1.0), torch.zeros(2, 3, 2), torch.zeros(0), torch.zeros(3, 2).to_sparse(),
        torch.tensor([-100, 0]), torch.full((3, 2), torch.finfo(torch.float32).min), torch.zeros(2,
        3, 3, device="meta"), torch.zeros(3, 3, dtype=torch.complex64), torch.ones(3,
        dtype=torch.bool), torch.float32,
    ]  # fmt: skip


def _pandas_values() -> list[Any]:
    if not importlib.util.find_spec("pandas"):
        return []
    import pandas

    return [
        pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, np.nan]}), pandas.Series(["ab", None]),
        pandas.Series([1, 2], dtype="Int64"), pandas.DataFrame(), pandas.NA, pandas.NaT,
        pandas.Series(["a", "b"], dtype="category"), pandas.Timestamp(0), pandas.Index([0, 1]),
    ]  # fmt: skip


def all_values(rng: np.random.Generator) -> list[Any]:
    """Return all wrong values, new ones: some can be used once."""
    return wrong_values(rng) + _more_values(rng) + _torch_values() + _pandas_values()


def is_work(name: str, value: Any) -> bool:
    """Whether a value is no wrong one: work or a function that the caller asked for."""
    asked = isinstance(value, int) and 100 < value < 2**63
    return (name in CALLED and callable(value)) or (name in WORK and asked)


def random_call(every: Sequence[Call], rng: np.random.Generator) -> tuple[Call, dict[str, Any]]:
    """Return a call and its arguments, some of them wrong."""
    call = every[rng.integers(len(every))]
    arguments = dict(call.arguments)
    pool = all_values(rng)
    names = list(arguments)
    for _ in range(int(rng.integers(1, 3))):
        if names:
            name = names[rng.integers(len(names))]
            value = pool[rng.integers(len(pool))]
            if rng.integers(3) == 0:
                with contextlib.suppress(Exception):  # of torch, numpy, pandas: no such form
                    value = damaged_value(arguments[name], value, rng)
            if not is_work(name, value):
                arguments[name] = value
    return call, arguments


def damaged_value(value: Any, other: Any, rng: np.random.Generator) -> Any:
    """Return a value with one part replaced, or laid out otherwise."""
    if isinstance(value, np.ndarray):
        return _damaged_array(value, rng)
    if type(value).__module__ == "torch":
        return value.new_tensor(np.ascontiguousarray(_damaged_array(value.detach().numpy(), rng)))
    if isinstance(value, dict) and value:
        keys = list(value)
        key = keys[rng.integers(len(keys))]
        return {**value, key: damaged_value(value[key], other, rng)}
    if type(value) in (list, tuple) and value:
        at = int(rng.integers(len(value)))
        part = damaged_value(value[at], other, rng) if rng.integers(2) else other
        parts = [*value[:at], part, *value[at + 1 :]]
        kind = rng.integers(4)
        parts = parts[:-1] if kind == 0 else [*parts, part] if kind == 1 else parts
        return type(value)(parts)
    if isinstance(value, str):
        return (value + "\0", value + "\ud800", value.upper(), (value * 50)[:200], value[:-1])[
            rng.integers(5)
        ]
    return other


def _damaged_array(value: np.ndarray, rng: np.random.Generator) -> Any:
    """Return an array with one odd entry, or of another shape, type, layout or class."""
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: value[None], lambda: value[..., :-1], lambda: value[:0], lambda: value.T,
        lambda: np.concatenate([value, value]), lambda: value.tolist(), lambda: value.ravel(),
        lambda: value.astype(value.dtype.newbyteorder()), lambda: value[::-1], lambda: value[...,
        0],
        lambda: value.astype(np.float32), lambda: value.astype(object), lambda: value.astype(str),
        lambda: value.view(Array), lambda: np.ma.masked_array(value), lambda: value.astype(bool),
        lambda: sparse.csr_matrix(value),
        lambda: np.asfortranarray(value), lambda: value.astype(np.int8), lambda: value.copy()[...,
        None],
    )  # fmt: skip
    odd = (np.nan, np.inf, -np.inf, -100, np.finfo(np.float64).min, 1e308, 2.0**40, -1, 5e-324, 0.5)
    if value.size and value.dtype.kind in "fiu" and rng.integers(2):
        changed = value.copy()
        place = tuple(rng.integers(size) for size in value.shape)
        changed[place] = odd[rng.integers(len(odd))] if value.dtype.kind == "f" else -100
        return changed
    return kinds[rng.integers(len(kinds))]()
