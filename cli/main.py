"""`fstgrad`: the entry point, and the conversion of errors to messages and exit codes.

The commands are listed in `fstgrad.cli.command_table`.
"""

import codecs
import difflib
import importlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from fstgrad._version import __version__
from fstgrad.cli.command import Group
from fstgrad.cli.command_table import COMMANDS
from fstgrad.cli.error_translation import with_option_names
from fstgrad.cli.interrupts import (
    Interrupts,
    Terminated,
    end_silently_on_sigint,
    exit_despite_threads,
)
from fstgrad.cli.output import (
    NOTES,
    discard_output,
    echo,
    escape_unprintable,
    log_lines,
    report_compilation,
)
from fstgrad.core.errors import FstgradError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# newer versions of click raise it if a group is called without a command
_NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


class _PastClick(Exception):
    """Carries an exception, as its cause, past click, which would turn it into an exit code."""


class LazyGroup(Group):
    """A group that imports a command on use, and suggests similar names for an unknown one."""

    def __init__(self, table: dict[str, tuple[str, str]], **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return one command."""
        if name not in self.table:
            return None
        module = importlib.import_module(f"fstgrad.cli.commands.{self.table[name][0]}")
        command: click.Command = getattr(module, name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Return the commands, from the table, and the options that start with `incomplete`."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.table if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self.table[name][1]) for name in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown name is a usage error that lists similar names."""
        if args[0] not in self.table and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.table) or list(self.table)
            ctx.fail(f"no command {args[0]!r}; did you mean {', '.join(near)}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command and print its notes; keep click from handling file errors and signals."""
        try:
            result = super().invoke(ctx)
            for line in tuple(ctx.meta.get(NOTES, ())):
                echo(line, err=True)
            return result
        except (OSError, EOFError, KeyboardInterrupt) as error:
            raise _PastClick from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])


@click.group(
    cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="fstgrad")
def fstgrad() -> None:
    """Exact gradients of structured losses: strings, trees, Markov random fields, counts."""


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line, and exit; an error is one line on standard error.

    The exit code is 0 after success, 1 after a failure, 2 after a usage error, 70 after a defect of
    fstgrad (FSTGRAD_TRACEBACK=1 shows where it is), 130 after SIGINT, 141 if the reader of standard
    output has closed it (but a command that writes files finishes them), and 143 after SIGTERM.
    """
    if not _open_streams():
        sys.exit(1)
    code, message = _run_command(args)
    if args is None:
        end_silently_on_sigint()
    if code == 0:
        report_compilation()
    if message:
        click.echo("fstgrad: " + escape_unprintable(" ".join(message.split())), err=True)
    try:
        sys.stdout.flush()
    except OSError as error:
        discard_output(sys.stdout)
        if code == 0 and not isinstance(error, BrokenPipeError):
            click.echo(f"fstgrad: standard output cannot be written: {error}", err=True)
        code = code or (141 if isinstance(error, BrokenPipeError) else 1)
    if args is None and code in (130, 143):
        exit_despite_threads(code)
    sys.exit(code)


def _run_command(args: Sequence[str] | None) -> tuple[int, str]:
    """Run a command; return the exit code and the error message, "" without one."""
    interrupts = Interrupts()
    is_program = args is None
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_ESCAPE_BYTES)
    with interrupts.handled(), warnings.catch_warnings(), log_lines():
        warnings.showwarning = _shown_once()
        if is_program and not sys.warnoptions:
            warnings.filterwarnings("ignore", ".* encountered in ", RuntimeWarning)  # of numpy
        try:
            status = fstgrad.main(args=args, prog_name="fstgrad", standalone_mode=False)
            return (status if isinstance(status, int) else 0), ""
        except _NO_ARGUMENTS as error:
            click.echo(error.ctx.get_help())
            return 0, ""
        except click.ClickException as error:
            return error.exit_code, error.format_message()
        except SystemExit as error:
            return (error.code if isinstance(error.code, int) else 1), ""
        except BaseException as error:
            interrupts.end()
            if os.environ.get("FSTGRAD_TRACEBACK"):
                raise
            cause = (isinstance(error, _PastClick) and error.__cause__) or error
            if interrupts.seen is None:
                return _code_and_message(_cause_in_kernel(cause))
            code, message = _code_and_message(interrupts.seen())
            # after a signal, other errors may be consequences; report only those of files and input
            if isinstance(cause, FstgradError | OSError) and not isinstance(cause, BrokenPipeError):
                message = f"{message.partition(';')[0]}; {_code_and_message(cause)[1]}"
            return code, message


def _escape_bytes(error: UnicodeError) -> tuple[str, int]:
    """Escape the bytes that are not UTF-8 in the name of a file, as JSON does."""
    if isinstance(error, UnicodeEncodeError):
        wrong = error.object[error.start : error.end]
        if all("\ud800" <= letter <= "\udfff" for letter in wrong):
            return wrong.encode("ascii", "backslashreplace").decode(), error.end
    raise error


_ESCAPE_BYTES = "fstgrad-escaped"
codecs.register_error(_ESCAPE_BYTES, _escape_bytes)


def _code_and_message(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the message of an error."""
    if isinstance(error, Terminated):
        return 143, "stopped; what was written so far is complete"
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted; what was written so far is complete"
    if isinstance(error, BrokenPipeError):
        return 141, ""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return 1, f"{error.strerror}: {str(error.filename)!r}"
    if isinstance(error, FstgradError | OSError):
        return 1, str(error)
    if isinstance(error, MemoryError):
        return (
            1,
            f"out of memory{f' ({error})' if str(error) else ''}; use a smaller input or lower "
            "limits",
        )
    if isinstance(error, UnicodeEncodeError):
        return 1, f"the output cannot hold the text ({error}); set PYTHONUTF8=1"
    cause = error.__cause__ or error if isinstance(error, click.Abort) else error
    return 70, (
        f"internal error, {type(cause).__name__}: {cause}; this is a defect of fstgrad, please "
        "report it with what FSTGRAD_TRACEBACK=1 shows"
    )


def _cause_in_kernel(error: BaseException) -> BaseException:
    """Return the signal or MemoryError that caused an error of a compiled kernel, or the error."""
    inner: BaseException | None = error
    while isinstance(inner, SystemError | click.Abort):
        inner = inner.__cause__ or inner.__context__
    return inner if isinstance(inner, KeyboardInterrupt | Terminated | MemoryError) else error


def _shown_once() -> Callable[..., None]:
    """Return a function that shows each warning once, also if a file is read twice."""
    seen: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = escape_unprintable(" ".join(with_option_names(str(message)).split()))
        if text not in seen:
            click.echo(f"fstgrad: {text}", err=True)
        seen.add(text)

    return show


def _open_streams() -> bool:
    """Replace closed standard streams; return False if standard output is closed.

    Without this, a file that is opened later would get the descriptor of the closed stream, and
    everything written to that stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
            if name == "stdout":
                click.echo("fstgrad: standard output is closed; open it", err=True)
                return False
    return True
