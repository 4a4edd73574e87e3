"""Print text; control characters in data are escaped on a terminal."""

import sys

import click

from fstgrad.cli.error_translation import in_options

NOTES = "fstgrad.notes"  # key in ctx.meta: lines to print at the end


def visible(text: str) -> str:
    """Return a text with its unprintable characters escaped, except tab and newline."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\t\n" else c.encode("unicode_escape").decode() for c in text
    )


def note(text: str) -> None:
    """Print a line to standard error at the end of the command, if it succeeds."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta.setdefault(NOTES, []).append(in_options(text))


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text; on a terminal, escape control characters so that data cannot control it."""
    stream = sys.stderr if err else sys.stdout
    shown = str(text)
    click.echo(visible(shown) if stream.isatty() else shown, err=err, nl=nl)
