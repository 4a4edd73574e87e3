"""Types of the files and numbers on the command line, and options that all families share.

Index
-----
- `Input`, `Output`, `NameOrFile`, `NameOrFileEntry` : types of paths.  If an output is also an
  input or is given twice, the command fails before it computes anything.
- `Number`, `Integer`, `COUNT`, `SEED`, ... : types of numbers.  NaN is always an error.
- `gib_to_bytes` : a number of GiB in bytes.
- `nbest_option`, `draws_option`, `output_npz`, `resamples_option`, `bootstrap_seed_option`,
  `encoding_option`, `normalize_option` : options of more than one family, or for all of them.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from fstgrad.cli.command import Decorator
from fstgrad.cli.output import OUTPUTS
from fstgrad.core.errors import InvalidInputError
from fstgrad.io import INTEGER, check_writable, fallback_encoding, to_number

_PATHS = "fstgrad.paths"  # key in ctx.meta: a list of (path, is it an output?)
_STANDARD_INPUT = "/dev/stdin"  # leads to the file of a redirection `< FILE`
_IN_FOLDERS = (
    ".fst",
    ".txt",
    ".att",
    ".lat",
    ".gz",
)  # endings of the files that are read from a folder


class Input(click.Path):
    """An input file, or with `folders` also a folder; with `dash`, "-" is standard input.

    Without `pipes`, a named pipe is an error: a command that reads it twice would wait forever.
    """

    def __init__(self, *, dash: bool = False, folders: bool = False, pipes: bool = True) -> None:
        super().__init__(exists=True, dir_okay=folders, readable=True, allow_dash=dash)
        self.pipes = pipes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, after checking and recording it."""
        _check_path_text(self, value, param, ctx)
        path = super().convert(value, param, ctx)
        if not self.pipes and pathlib.Path(os.fsdecode(path)).is_fifo():
            self.fail(
                f"{str(path)!r} is a pipe and is read more than once; give a file", param, ctx
            )
        _record_path(self, str(path), False, param, ctx)
        return path


class NameOrFile(Input):
    """One of `names`, or an input file.

    With `first`, a name precedes a file of that name.  Otherwise the file comes first, and a name
    may be written in any case and with periods.
    """

    def __init__(self, names: Sequence[str], *, first: bool, dash: bool = False) -> None:
        super().__init__(dash=dash)
        self.names, self.first = tuple(names), first

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name, or the path after checking and recording it."""
        known = str(value) if self.first else str(value).upper().replace(".", "")
        if known in self.names and (self.first or not os.path.exists(value)):
            return value
        if not os.path.exists(value) and value != "-":
            self.fail(f"{value!r} is neither a file nor one of {', '.join(self.names)}", param, ctx)
        return super().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the files and the names that start with `incomplete`."""
        names = [name for name in self.names if name.lower().startswith(incomplete.lower())]
        return [*super().shell_complete(ctx, param, incomplete), *map(CompletionItem, names)]


class NameOrFileEntry(click.types.StringParamType):
    """A built-in name, or a file, or FILE:NAME for one entry of a file."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text; record the file in it, if there is one, as an input."""
        text = str(value)
        for path in (text, text.rpartition(":")[0]):
            if "." in os.path.basename(path) and os.path.isfile(path):
                _record_path(self, path, False, param, ctx)
                break
        return super().convert(value, param, ctx)


class Output(click.Path):
    """A file that is written whole or not at all; `companions` are suffixes of files next to it."""

    def __init__(self, *, companions: Sequence[str] = ()) -> None:
        super().__init__()
        self.companions = tuple(companions)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; fail if this file, or one of those next to it, cannot be written."""
        _check_path_text(self, value, param, ctx)
        if os.fspath(value) == "-":
            self.fail("'-' is not a file; give a name, or ./- for a file of this name", param, ctx)
        for ending in ("", *self.companions):
            path = os.fspath(value) + ending
            try:
                check_writable(path, "the output")
            except InvalidInputError as error:
                self.fail(str(error), param, ctx)
            _record_path(self, path, True, param, ctx)
        if ctx is not None:
            ctx.meta.setdefault(OUTPUTS, []).append(os.fspath(value))
        return super().convert(value, param, ctx)


class Number(click.ParamType):  # type: ignore[type-arg]
    """A number >= `minimum`, or > it if `strict`, and < `below`; +inf is one if `infinite`."""

    name = "float"

    def __init__(
        self,
        minimum: float | None = None,
        *,
        strict: bool = False,
        infinite: bool = False,
        below: float = float("inf"),
    ) -> None:
        self.minimum, self.strict, self.infinite, self.below = minimum, strict, infinite, below

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a float."""
        try:
            number = to_number(value) if isinstance(value, str) else float(value)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a number", param, ctx)
        if number != number:
            self.fail("nan is not allowed", param, ctx)
        if abs(number) == float("inf") and not (self.infinite and number > 0):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        if self.minimum is not None and (
            number < self.minimum or (self.strict and number == self.minimum)
        ):
            bound = ">" if self.strict else ">="
            self.fail(f"{value!r} is not {bound} {self.minimum:g}", param, ctx)
        if self.below <= number < float("inf"):
            self.fail(f"{value!r} is not < {self.below:g}", param, ctx)
        return number


class Integer(click.IntRange):
    """An integer from `least` to `largest`; the help text does not show this range."""

    name = "integer"

    def __init__(self, least: int, largest: int) -> None:
        super().__init__(least, largest)
        self.least, self.largest = least, largest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return an integer in the range."""
        if isinstance(value, str) and not INTEGER.fullmatch(value.strip()):
            self.fail(f"{value!r} is not a valid integer.", param, ctx)
        number = click.INT.convert(value, param, ctx)
        if not self.least <= number <= self.largest:
            self.fail(f"{number} is not between {self.least} and {self.largest}", param, ctx)
        return number

    def _describe_range(self) -> str:
        return ""


class Threads(Integer):
    """A number of threads; -1 stands for all cores, -2 for all but one, and so on."""

    def __init__(self) -> None:
        super().__init__(-1024, 1024)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return an integer in the range other than 0."""
        number = super().convert(value, param, ctx)
        if number == 0:
            self.fail("0 is not a number of threads; give 1 or more, or -1 for all", param, ctx)
        return number


def integer_from(minimum: int) -> click.IntRange:
    """Return the type of integers from `minimum` to 2^31 - 1."""
    return Integer(minimum, 2**31 - 1)


FILE = Input()
FILE_OR_DASH = Input(dash=True)
COUNT = integer_from(1)
JOBS = Integer(1, 1024)  # number of processes
THREADS = Threads()
SEED = Integer(0, 2**63 - 1)
POSITIVE = Number(0, strict=True)
NOT_NEGATIVE = Number(0)
COST = Number(0, infinite=True)


def gib_to_bytes(gib: float) -> int:
    """Return a number of GiB in bytes, at most 2^62."""
    return int(min(gib * 2**30, 2**62))


def _check_path_text(
    kind: Any, value: Any, param: click.Parameter | None, ctx: click.Context | None
) -> None:
    if not str(value) or "\0" in str(value):
        kind.fail(f"{value!r} is not a path", param, ctx)


def _record_path(
    kind: Any,
    path: str,
    is_output: bool,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> None:
    """Record a path; fail if it is read and written, written twice, or a pipe read twice."""
    if ctx is None:
        return
    path = _STANDARD_INPUT if path == "-" else path
    seen: list[tuple[str, bool]] = ctx.meta.setdefault(_PATHS, [])
    for other, other_is_output in seen:
        if (is_output or other_is_output) and _is_same(path, other):
            how = "written twice" if is_output and other_is_output else "both read and written"
            kind.fail(f"{path!r} is {how}; give another name", param, ctx)
        if path == other == _STANDARD_INPUT:
            kind.fail("standard input is read twice; give a file", param, ctx)
        if pathlib.Path(path).is_fifo() and _is_same(path, other):
            kind.fail(f"{path!r} is a pipe and is read twice; give a file", param, ctx)
    seen.append((path, is_output))


def _is_same(path: str, other: str) -> bool:
    if not (os.path.exists(path) and os.path.exists(other)):
        return os.path.realpath(path) == os.path.realpath(other)
    return os.path.samefile(path, other) or _is_inside(path, other) or _is_inside(other, path)


def _is_inside(path: str, folder: str) -> bool:
    """Return whether the file `path` is read when the input is `folder`."""
    return (
        os.path.isdir(folder)
        and path.endswith(_IN_FOLDERS)
        and os.path.samefile(os.path.dirname(path) or ".", folder)
    )


def nbest_option(help: str, default: int | None, type: Any = COUNT) -> Decorator:
    """Return the option of a command that prints the K best of something."""
    return click.option(
        "-k", "--nbest", type=type, default=default, show_default=True, metavar="K", help=help
    )


def draws_option(help: str, default: int) -> Decorator:
    """Return the option of a command that draws samples."""
    return click.option("-n", "--draws", type=COUNT, default=default, show_default=True, help=help)


resamples_option = click.option(
    "--resamples",
    type=COUNT,
    default=2000,
    show_default=True,
    help="Number of bootstrap resamples.",
)
bootstrap_seed_option = click.option(
    "--seed", type=SEED, default=0, show_default=True, help="Random seed of the bootstrap."
)


def _read_as(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        try:
            ctx.with_resource(fallback_encoding(value))
        except InvalidInputError as error:
            raise click.BadParameter(str(error), ctx, param) from error


encoding_option = click.option(
    "--encoding",
    metavar="NAME",
    expose_value=False,
    callback=_read_as,
    help="Encoding of the files that are not UTF-8, such as latin1 or utf-16.",
)
normalize_option = click.option(
    "--normalize",
    type=click.Choice(["nfc", "nfd", "nfkc", "nfkd"]),
    help="Bring texts and ids into this form of Unicode.",
)
output_npz = click.option(
    "-o",
    "--output",
    type=Output(),
    metavar="FILE.npz",
    help="Write the arrays and the symbol names to this file.",
)
