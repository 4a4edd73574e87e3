"""Commands, groups of options, and the rejection of options without an effect.

Index
-----
- `option_group` : a decorator that adds options to a command and passes them as one record.
- `Command`, `Group` : commands whose help has a section for each heading, and examples.
- `was_given`, `reject_options` : whether an option is on the command line, and an error if so.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import click
from click.core import ParameterSource

from fstgrad.cli.error_translation import with_option_names
from fstgrad.core.errors import FstgradError, MemoryLimitError

LARGE = 10_000  # a number that may explain a lack of memory
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def option_group(
    name: str, record: type, *options: Decorator, heading: str | None = None
) -> Decorator:
    """Return a decorator that adds options to a command and passes them as one record.

    The command receives a `record` (a dataclass) as its argument `name`.  The help of a `Command`
    shows the options under `heading`; groups with the same heading share a section.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_record(**values: Any) -> Any:
            from dataclasses import fields  # only here: `fstgrad --help` does without it

            members = {field.name: values.pop(field.name) for field in fields(record)}
            return command(**values, **{name: record(**members)})

        decorated: Any = with_record
        for option in reversed(options):
            decorated = option(decorated)
            if heading is not None:  # otherwise the option may itself be a group with a heading
                decorated.__click_params__[-1].heading = heading
        return cast(Callable[..., Any], decorated)

    return decorate


class Command(click.Command):
    """A command whose help has a section for each heading, and examples at the end.

    Options without a heading come first.  Errors of the library name options of the command instead
    of arguments of Python, and a lack of memory names the options with large numbers.

    examples : lines of a shell, which run one after another in an empty folder.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = tuple(examples)
        if examples:
            self.epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in examples)])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; of an option that is given again, check the replaced values too."""
        if not ctx.resilient_parsing:  # a shell asks for completions
            self._check_replaced(list(args), ctx)
        return super().parse_args(ctx, args)

    def _check_replaced(self, args: list[str], ctx: click.Context) -> None:
        parser = self.make_parser(ctx)
        single = [
            param
            for param in self.params
            if isinstance(param, click.Option) and not (param.is_flag or param.multiple)
        ]
        for param in single:
            parser.add_option(param, param.opts, param.name, action="append", nargs=param.nargs)
        values = parser.parse_args(args)[0]
        for param in single:
            for value in values.get(param.name, ())[:-1]:
                scratch = click.Context(self)  # a value that is replaced leaves no trace in `ctx`
                with click.core.augment_usage_errors(ctx, param):
                    param.type_cast_value(scratch, value)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; rewrite errors of the library to name its options."""
        try:
            return super().invoke(ctx)
        except FstgradError as error:
            text = with_option_names(str(error), self.params)
            if text == str(error):
                raise
            raise FstgradError(text) from error
        except MemoryError as error:
            large = _large_numbers(ctx)
            if not large:
                raise
            raise MemoryLimitError(f"out of memory; lower {' or '.join(large)}") from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each heading, in the order of the options."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                sections.setdefault(getattr(param, "heading", "Options"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def _large_numbers(ctx: click.Context) -> list[str]:
    """Return the options on the command line with values of at least `LARGE`, and the values."""
    return [
        f"{max(parameter.opts, key=len)} {ctx.params[parameter.name]}"
        for parameter in ctx.command.params
        if isinstance(parameter, click.Option)
        and parameter.name in ctx.params
        and ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        and isinstance(ctx.params[parameter.name], int)
        and ctx.params[parameter.name] >= LARGE
    ]


class Group(click.Group):
    """A group whose commands are of the class `Command`."""

    command_class = Command


def was_given(name: str) -> bool:
    """Return whether the option of this parameter is on the command line."""
    context = click.get_current_context(silent=True)
    source = None if context is None else context.get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def reject_options(names: Sequence[str], reason: str) -> None:
    """Reject options that have no effect; `reason` completes "--option has no effect ...".

    Raises
    ------
    click.UsageError
        One of the parameters `names` is on the command line.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and was_given(parameter.name):
            flag = max(parameter.opts, key=len)
            raise click.UsageError(f"{flag} has no effect {reason}; leave it out")
