"""Old names of options: accepted for one release with a warning, and not shown in the help."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from fstgrad.cli.text import echo


class Renamed(click.Option):
    """An option that is also accepted under an old name.

    Parameters
    ----------
    old : str
        The old name, such as "--jobs".
    convert : callable, optional
        From the text of a value under the old name to that under the new one, such as from MiB to
        GiB.  A text that raises ValueError stays as it is.
    """

    def __init__(
        self,
        *arguments: Any,
        old: str,
        convert: Callable[[str], str] = str,
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self.old, self.from_old = old, convert

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add the option, and its old name with a destination of its own."""
        super().add_to_parser(parser, ctx)
        action = "store_const" if self.is_flag else "store"
        parser.add_option(obj=self, opts=[self.old], dest=self.old, action=action, const=True)

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Process the value; one under the old name gives a warning."""
        if self.old in opts:
            new = max(self.opts, key=len)
            if self.name in opts:
                raise click.UsageError(f"{self.old} is the old name of {new}; give one", ctx)
            value = opts[self.old]
            opts = {**opts, str(self.name): value if self.is_flag else self._converted(value)}
            if not ctx.resilient_parsing:  # a shell asks for completions
                echo(f"fstgrad: {self.old} was renamed {new}", err=True)
        return super().handle_parse_result(ctx, opts, args)

    def _converted(self, text: str) -> str:
        try:
            return self.from_old(text)
        except ValueError:
            return text
