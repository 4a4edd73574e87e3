"""Text for a person: on a terminal the control characters of data are escaped."""

import sys

import click

from fstgrad.cli.spelling import in_options

NOTES = "fstgrad.notes"  # in the context: lines for the end


def visible(text: str) -> str:
    """Return a text in which control characters but tab and newline are escaped."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\t\n" else c.encode("unicode_escape").decode() for c in text
    )


def note(text: str) -> None:
    """Write a line to standard error at the end of a command that succeeds."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta.setdefault(NOTES, []).append(in_options(text))


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Write a text; on a terminal its control characters are escaped, so that data cannot act."""
    stream = sys.stderr if err else sys.stdout
    shown = str(text)
    click.echo(visible(shown) if stream.isatty() else shown, err=err, nl=nl)
