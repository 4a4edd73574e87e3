"""`fstgrad grammar new`: create a grammar to start from, and its test."""

import pathlib

import click

from fstgrad.cli.grouping import Command
from fstgrad.cli.text import echo
from fstgrad.grammars.templates import TEMPLATES, TEST
from fstgrad.io import write_text


@click.command(cls=Command)
@click.argument("name")
@click.option(
    "--template",
    type=click.Choice(list(TEMPLATES)),
    default="context",
    show_default=True,
    help="edit, words, dna: Python programs that use pynini; context, normalize: rule files.",
)
def new(name: str, template: str) -> None:
    """Create a grammar NAME with comments and examples, and a pytest file for it.

    The files are created in the current folder, or in that of NAME, as in FOLDER/NAME.
    """
    ending, text = TEMPLATES[template]
    path = pathlib.Path(name)
    if not path.name.isidentifier():
        raise click.UsageError(
            f"the name is {path.name!r}; give letters, digits and _, as in my_spelling"
        )
    file, test = path.with_suffix(ending), path.with_name(f"test_{path.name}.py")
    for output in (file, test):
        if output.exists():
            raise click.UsageError(f"{output} exists already; choose another name")
    write_text(str(file), text.replace("NAME", path.name, 1))
    write_text(str(test), TEST.format(name=path.name, file=file.name))
    echo(f"wrote {file} and {test}")
    echo(f"next: fstgrad grammar test {file}")
    echo(f"      fstgrad grammar explain {file} HYPOTHESIS TARGET")
    echo(f"      fstgrad grammar fit {file} PAIRS.tsv -o {path.name}.far")
