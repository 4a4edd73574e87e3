"""What comes in and goes out on the command line: files and numbers.

Index
-----
- `Input`, `Output`, `Reference` : types of paths; an output that is also an input, or twice an
  output, is an error before anything is computed.
- `Number`, `COUNT`, `SEED`, `whole`, ... : types of numbers; NaN is none.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from fstgrad.errors import InvalidInputError
from fstgrad.io import check_writable

_OPEN = "fstgrad.paths"  # in the context: the paths so far, and whether they are outputs
_STANDARD_INPUT = "/dev/stdin"  # the file that a shell has opened
_IN_FOLDERS = (".fst", ".txt")  # what is read of a folder


class Input(click.Path):
    """A file, or with `folders` also a folder, that is read; "-" is standard input if allowed.

    A pipe is refused where it would be read twice, which never ends.
    """

    def __init__(self, *, dash: bool = False, folders: bool = False, pipes: bool = True) -> None:
        super().__init__(exists=True, dir_okay=folders, readable=True, allow_dash=dash)
        self.pipes = pipes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path after a look at it."""
        _check_text(self, value, param, ctx)
        path = super().convert(value, param, ctx)
        if not self.pipes and pathlib.Path(os.fsdecode(path)).is_fifo():
            self.fail(
                f"{str(path)!r} is a pipe and is read more than once; give a file", param, ctx
            )
        _remember(self, str(path), False, param, ctx)
        return path


class Named(Input):
    """A file, or one of some names; such a name comes before a file, if `first`."""

    def __init__(self, names: Sequence[str], *, first: bool, dash: bool = False) -> None:
        super().__init__(dash=dash)
        self.names, self.first = tuple(names), first

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name, or the path after a look at it."""
        known = str(value) if self.first else str(value).upper().replace(".", "")
        if known in self.names and (self.first or not os.path.exists(value)):
            return value
        if not os.path.exists(value) and value != "-":
            self.fail(f"{value!r} is no file, and none of {', '.join(self.names)}", param, ctx)
        return super().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names and files that begin so."""
        names = [name for name in self.names if name.lower().startswith(incomplete.lower())]
        return [*super().shell_complete(ctx, param, incomplete), *map(CompletionItem, names)]


class Reference(click.types.StringParamType):
    """The name of what is built in, or a file; ":NAME" after it is a part of the file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text; a file that it names is an input."""
        text = str(value)
        for path in (text, text.rpartition(":")[0]):
            if "." in os.path.basename(path) and os.path.isfile(path):
                _remember(self, path, False, param, ctx)
                break
        return super().convert(value, param, ctx)


class Output(click.Path):
    """A file that is written whole or not at all; `beside` are the endings of files next to it."""

    def __init__(self, *, beside: Sequence[str] = ()) -> None:
        super().__init__()
        self.beside = tuple(beside)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path if it can be written."""
        _check_text(self, value, param, ctx)
        if os.fspath(value) == "-":
            self.fail("'-' is not a file; give a name, or ./- for a file of this name", param, ctx)
        for ending in ("", *self.beside):
            path = os.fspath(value) + ending
            try:
                check_writable(path, "the output")
            except InvalidInputError as error:
                self.fail(str(error), param, ctx)
            _remember(self, path, True, param, ctx)
        return super().convert(value, param, ctx)


class Number(click.ParamType):  # type: ignore[type-arg]
    """A number in a range; NaN is an error, infinity too unless it is allowed."""

    name = "float"

    def __init__(
        self, minimum: float | None = None, *, strict: bool = False, infinite: bool = False
    ) -> None:
        self.minimum, self.strict, self.infinite = minimum, strict, infinite

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a float."""
        try:
            number = float(value)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a number", param, ctx)
        if number != number:
            self.fail("nan is not a number here", param, ctx)
        if abs(number) == float("inf") and not (self.infinite and number > 0):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        if self.minimum is not None and (
            number < self.minimum or (self.strict and number == self.minimum)
        ):
            bound = ">" if self.strict else ">="
            self.fail(f"{value!r} is not {bound} {self.minimum:g}", param, ctx)
        return number


class Whole(click.IntRange):
    """Integers in a range that help does not show: what 32 or 63 bits hold."""

    name = "integer"

    def __init__(self, least: int, largest: int) -> None:
        super().__init__(least, largest)
        self.least, self.largest = least, largest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return an integer in the range."""
        number = click.INT.convert(value, param, ctx)
        if not self.least <= number <= self.largest:
            self.fail(f"{number} is not between {self.least} and {self.largest}", param, ctx)
        return number

    def _describe_range(self) -> str:
        return ""


def whole(minimum: int) -> click.IntRange:
    """Return the type of integers from `minimum` to what 32 bits hold."""
    return Whole(minimum, 2**31 - 1)


COUNT = whole(1)
INTEGER = Whole(-(2**31), 2**31 - 1)
JOBS = Whole(1, 1024)  # processes
SEED = Whole(0, 2**63 - 1)
POSITIVE = Number(0, strict=True)
NOT_NEGATIVE = Number(0)
COST = Number(0, infinite=True)


def _check_text(
    kind: Any, value: Any, param: click.Parameter | None, ctx: click.Context | None
) -> None:
    if not str(value) or "\0" in str(value):
        kind.fail(f"{value!r} is not a path", param, ctx)


def _remember(
    kind: Any,
    path: str,
    is_output: bool,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> None:
    """Raise where a path is an output and something else as well."""
    if ctx is None:
        return
    path = _STANDARD_INPUT if path == "-" else path
    seen: list[tuple[str, bool]] = ctx.meta.setdefault(_OPEN, [])
    for other, other_is_output in seen:
        if (is_output or other_is_output) and _is_same(path, other):
            how = "written twice" if is_output and other_is_output else "both read and written"
            kind.fail(f"{path!r} is {how}; give another name", param, ctx)
        if pathlib.Path(path).is_fifo() and _is_same(path, other):
            kind.fail(f"{path!r} is a pipe and is read twice; give a file", param, ctx)
    seen.append((path, is_output))


def _is_same(path: str, other: str) -> bool:
    if not (os.path.exists(path) and os.path.exists(other)):
        return os.path.realpath(path) == os.path.realpath(other)
    return os.path.samefile(path, other) or _is_in(path, other) or _is_in(other, path)


def _is_in(path: str, folder: str) -> bool:
    """Whether a file is one of those that are read of a folder."""
    return (
        os.path.isdir(folder)
        and path.endswith(_IN_FOLDERS)
        and os.path.samefile(os.path.dirname(path) or ".", folder)
    )
