"""The columns of the table: the arguments of public functions and methods, from their signatures.

The plain values are those of the calls that the examples of the docstrings make: of several calls,
those with the least content.
"""

import dataclasses
import inspect
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.borders.judging import Outcome, content, difference
from tests.fuzz.examples import ALL, Choice, code_of
from tests.fuzz.wrong import Call
from tests.helpers.public import MODULES, public


class Column(NamedTuple):
    """An argument of a call that works, the names of all in errors, and what the call gives."""

    call: Call
    name: str
    shown: str
    others: frozenset[str]
    plain: Outcome
    is_random: bool

    def __str__(self) -> str:
        return f"{self.call.name}({self.shown})"


def is_record(kind: type) -> bool:
    """Return whether a class keeps what it is given: results, and settings that `fit` checks."""
    is_plain = dataclasses.is_dataclass(kind) and not hasattr(kind, "__post_init__")
    return is_plain or issubclass(kind, tuple | BaseException) or hasattr(kind, "get_params")


def callables(chosen: Choice = ALL) -> Iterator[tuple[str, Any]]:
    """Yield what is public and takes arguments, with its name."""
    for module in filter(chosen.__contains__, MODULES):
        for name, thing in public(module).items():
            if not inspect.isclass(thing):
                yield f"{module}.{name}", thing
                continue
            for key in dir(thing):
                is_made = key in ("__init__", "__new__")
                if code_of(inspect.getattr_static(thing, key)) and (
                    (is_made and not is_record(thing)) or key == "__call__" or key[0] != "_"
                ):
                    yield f"{module}.{name}.{key}", getattr(thing, key)


def name_in_errors(call: Call, name: str) -> str:
    """Return the name by which errors call an argument."""
    if not name.startswith("*"):
        return name
    # a module of PyTorch passes what it is given on to its function
    function = getattr(getattr(call.function, "__self__", None), "function", None)
    return list(inspect.signature(function).parameters)[int(name[1:])] if function else name


def filled(call: Call) -> Call:
    """Return a call with full lengths, if lengths are an argument that is left out."""
    scores = next((v for k, v in call.arguments.items() if k.endswith("scores")), None)
    if call.arguments.get("lengths", 0) is not None or len(getattr(scores, "shape", ())) < 3:
        return call
    items, size = scores.shape[:2]  # type: ignore[union-attr]
    more = call._replace(
        arguments=call.arguments | {"lengths": [size - ("tree" in call.name.lower())] * items}
    )
    return more if Outcome(more, more.arguments).content is not None else call


def columns(calls: Iterable[Call], chosen: Choice = ALL) -> list[Column]:
    """Return the columns: of each argument and kind of value, that of the smallest call."""
    listed = {code_of(function) for _, function in callables(chosen)}
    made: dict[tuple[Any, ...], Column] = {}
    for call in sorted((call for call in calls if code_of_call(call) in listed), key=size):
        call = filled(call)
        keys = {name: (call.name, name, type(v).__name__) for name, v in call.arguments.items()}
        if all(key in made for key in keys.values()):
            continue
        plain = Outcome(call, call.arguments)
        if plain.content is None:  # it works only beside calls that came before it
            continue
        again = Outcome(call, call.arguments)
        is_random = difference(again.content, plain.content) != ""
        shown = {name: name_in_errors(call, name) for name in keys}
        for name, key in keys.items():
            made.setdefault(
                key, Column(call, name, shown[name], frozenset(shown.values()), plain, is_random)
            )
    return list(made.values())


def size(call: Call) -> int:
    """Return the length of the text of a call's arguments and of its object."""
    return len(repr(content([getattr(call.function, "__self__", None), call.arguments])))


def code_of_call(call: Call) -> Any:
    """Return the code that a call runs first."""
    if not inspect.isclass(call.function):
        return code_of(call.function)
    made = (code_of(inspect.getattr_static(call.function, k)) for k in ("__init__", "__new__"))
    return next(filter(None, made), None)
