"""Groups of options: one record for a command's function, one section of its help.

Index
-----
- `group` : a decorator that adds options to a command and hands them over as one record.
- `under` : the same heading for single options.
- `Command`, `Group` : commands whose help has a section for each group.
"""

import functools
from collections.abc import Callable
from typing import Any, cast

import click

from fstgrad.cli.spelling import in_options
from fstgrad.errors import FstgradError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def group(name: str, record: type, *declarations: Decorator, heading: str = "") -> Decorator:
    """Return a decorator that adds options to a command and hands them over as one `record`.

    The help of a `Command` shows them under `heading`.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def packed(**values: Any) -> Any:
            from dataclasses import fields  # the help of all commands needs none

            own = {field.name: values.pop(field.name) for field in fields(record)}
            return command(**values, **{name: record(**own)})

        made: Callable[..., Any] = packed
        for declaration in reversed(declarations):
            made = under(heading, declaration)(made) if heading else declaration(made)
        return made

    return decorate


def under(heading: str, *declarations: Decorator) -> Decorator:
    """Return a decorator that adds options which the help of a `Command` shows under `heading`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for declaration in reversed(declarations):
            command = declaration(command)
            cast(Any, command).__click_params__[-1].heading = heading
        return command

    return decorate


class Command(click.Command):
    """A command whose help lists the options by their headings, those without one first.

    Errors and warnings of the library name its options, not the arguments of Python.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except FstgradError as error:
            text = in_options(str(error), self.params)
            if text == str(error):
                raise
            raise FstgradError(text) from error

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


class Group(click.Group):
    """A group of such commands."""

    command_class = Command
