"""Calls recorded while examples run: those of `tests.fuzz.calls` and of the docstrings.

There is one of every public callable, or more.

A tracer sees each call of a public function with its arguments; what an example calls, and what
the library calls below it, is repeated with something wrong in it.
"""

import contextlib
import copy
import dataclasses
import doctest
import importlib
import importlib.util
import inspect
import io
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any
from unittest import mock

import numpy as np

import fstgrad as fg
from tests.fuzz.calls import make
from tests.fuzz.wrong import Call, bound
from tests.helpers.docstrings import MODULES as SHOWN
from tests.helpers.docstrings import NEEDED
from tests.helpers.documents import blocks, run_python
from tests.helpers.public import MODULES as LISTED
from tests.helpers.sources import ROOT

# Called by the library alone, on arguments that it has looked through.
INNER = {
    "fstgrad.grm.families.FiniteCounts",
    "fstgrad.strings.linear_chain.LinearChains",
    "fstgrad.TemplateFeatures.coded",
}
PACKAGES = (
    "fstgrad.io",
    "fstgrad.strings.lattices",
    "fstgrad.losses",
    "fstgrad.losses.transducers",
)
KINDS = 3  # calls kept of one callable, whose arguments differ in their classes


@dataclasses.dataclass(frozen=True)
class Choice:
    """The modules below a package, without those below others."""

    package: str = "fstgrad"
    without: tuple[str, ...] = ()

    def __contains__(self, module: str) -> bool:
        return module.startswith(self.package) and not module.startswith(self.without)


ALL = Choice()
# JAX keeps threads of its own, which no fork survives: what forks leaves it out.
FORKED = Choice(without=("fstgrad.jax",))


def is_here(module: str, chosen: Choice = ALL) -> bool:
    """Whether the examples of a module run: one of the chosen, whose packages are installed."""
    needed = NEEDED.get(module.split(".")[1], []) if module != "fstgrad" else []
    return module in chosen and all(map(importlib.util.find_spec, needed))


def code_of(member: Any) -> CodeType | None:
    """Return the code that a public name runs, None where it is not the project's."""
    function = inspect.unwrap(getattr(member, "__func__", member))
    module = getattr(function, "__module__", None) or ""
    ours = inspect.isfunction(function) and module.startswith("fstgrad")
    return function.__code__ if ours else None


def public(chosen: Choice = ALL) -> dict[str, Any]:
    """Return public classes and functions by name: those listed, and those with an example."""
    found: dict[str, Any] = {}
    for name in [*LISTED, *PACKAGES, *SHOWN]:
        if not is_here(name, chosen):
            continue
        module = importlib.import_module(name)
        for key in getattr(module, "__all__", dir(module)):
            thing = getattr(module, key)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)) or key.startswith("_"):
                continue
            place = thing.__module__ or ""
            is_listed = hasattr(module, "__all__") or (
                place == name and ">>>" in str(thing.__doc__)
            )
            if place.startswith("fstgrad") and is_listed and thing not in found.values():
                found[f"{name}.{key}"] = thing
    return found


def codes(chosen: Choice = ALL) -> dict[CodeType, str]:
    """Return {code: what runs it} of all public callables that take arguments."""
    found: dict[CodeType, str] = {}
    for name, thing in public(chosen).items():
        if not inspect.isclass(thing):
            found[code_of(thing)] = name  # type: ignore[index]
        elif not issubclass(thing, BaseException) and name not in INNER:
            for key in dir(thing):
                code = code_of(inspect.getattr_static(thing, key))
                if code and (key in ("__init__", "__new__", "__call__") or not key.startswith("_")):
                    found.setdefault(code, f"{name}.{key}")
    return {
        code: name
        for code, name in found.items()
        if name not in INNER and set(arguments_of(code)) - {"self", "cls", "_cls"}
    }


def arguments_of(code: CodeType) -> tuple[str, ...]:
    """Return the names of a function's arguments."""
    starred = bool(code.co_flags & inspect.CO_VARARGS) + bool(
        code.co_flags & inspect.CO_VARKEYWORDS
    )
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + starred]


class Recorder:
    """Keeps the calls that it sees."""

    def __init__(self, chosen: Choice = ALL) -> None:
        self.codes = codes(chosen)
        self.ids = frozenset(map(id, self.codes))  # Python hashes all of a code at each look
        things = public(chosen).values()
        self.functions = {code_of(f): f for f in things if inspect.isfunction(f)}
        self.static = {
            member.__func__.__code__: getattr(thing, key)
            for thing in things
            for key in dir(thing)
            if key != "__new__"
            and isinstance(member := inspect.getattr_static(thing, key), staticmethod)
        }
        self.seen: dict[tuple[str, ...], Call] = {}
        self.count: dict[str, int] = {}
        self.reached: set[CodeType] = set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Keep the calls of a block."""
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(None)

    def __call__(self, frame: FrameType, _event: str, _what: Any) -> None:
        """Look at a call; no lines are traced."""
        if id(frame.f_code) in self.ids:
            self.keep(frame.f_code, dict(frame.f_locals))

    def keep(self, code: CodeType, values: dict[str, Any]) -> None:
        """Keep one call unless enough of its kind are kept."""
        given = [values[name] for name in arguments_of(code)]
        names = list(arguments_of(code)[code.co_argcount :])
        more = given.pop() if code.co_flags & inspect.CO_VARKEYWORDS else {}
        stars = given.pop() if code.co_flags & inspect.CO_VARARGS else ()
        positional = [*given[: code.co_argcount], *stars]
        named = dict(zip(names, given[code.co_argcount :], strict=False)) | more
        name, place = self.codes[code], self.codes[code].rpartition(".")[2]
        function = self.functions.get(code)
        if code in self.static:
            function, name = self.static[code], name.partition(".")[2]
        elif function is None:
            owner = positional.pop(0)
            kind = owner if inspect.isclass(owner) else type(owner)
            name = f"{kind.__qualname__}.{place}"
            is_new = place in ("__init__", "__new__")
            if is_new and code_of(inspect.getattr_static(kind, place, None)) is not code:
                return  # the constructor of a base class
            function = kind if is_new else getattr(owner, place, None)
        if not callable(function):
            return
        arguments = bound(function, positional, named)
        if any(map(_serves_once, arguments.values())):
            return
        key = (name, *(type(value).__name__ for value in arguments.values()))
        if key not in self.seen and self.count.get(name, 0) < KINDS:
            self.count[name] = self.count.get(name, 0) + 1
            self.seen[key] = Call(name, function, {k: _copied(v) for k, v in arguments.items()})
        if self.count.get(name):  # a method of a base class is reached from the one that is kept
            self.reached.add(code)


def _serves_once(value: Any) -> bool:
    """Return whether a value cannot be given again: an iterator, an array that JAX follows."""
    return isinstance(value, Iterator) or type(value).__name__.endswith("Tracer")


def _copied(value: Any) -> Any:
    """Return what a later change of the caller does not reach, where that is simple."""
    if isinstance(value, list | dict | np.ndarray):
        with contextlib.suppress(Exception):
            return copy.deepcopy(value)
    return value


@contextlib.contextmanager
def _kept_files(folder: pathlib.Path) -> Iterator[None]:
    """Keep the temporary files of the examples, below a folder."""
    here = os.getcwd()
    os.chdir(folder)
    nothing = mock.Mock(return_value=None)
    with (
        mock.patch.object(tempfile, "tempdir", str(folder)),
        mock.patch.object(tempfile.TemporaryDirectory, "__exit__", nothing),
        mock.patch.object(tempfile.TemporaryDirectory, "cleanup", nothing),
    ):
        try:
            yield
        finally:
            os.chdir(here)


@cache
def record(folder: pathlib.Path, chosen: Choice = ALL) -> Recorder:
    """Make the calls of `tests.fuzz.calls` and run all examples, whose files a folder keeps."""
    recorder = Recorder(chosen)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    with _kept_files(folder), contextlib.redirect_stdout(io.StringIO()):
        if "fstgrad" in chosen:
            with recorder.watching():
                make(lambda _name, function, *given, **named: function(*given, **named))
        for name in SHOWN:
            if is_here(name, chosen):
                module = importlib.import_module(name)
                with recorder.watching():
                    doctest.testmod(module, extraglobs={"np": np, "fg": fg}, optionflags=flags)
        for page in sorted((ROOT / "docs/api").glob("*.md")):
            code = [text for kind, text in blocks(page) if kind == "python"]
            if is_here(f"fstgrad.{page.stem}", chosen):
                namespace: dict[str, Any] = {"__name__": "__main__"}
                with recorder.watching():
                    for text in code:
                        run_python(text, namespace)
    return recorder


def recorded(folder: pathlib.Path, chosen: Choice = ALL) -> tuple[Call, ...]:
    """Return the calls of all examples, by name."""
    return tuple(sorted(record(folder, chosen).seen.values(), key=lambda call: call.name))
