"""`fstgrad grammar`: losses written as grammars: list, show, build, draw, and what others give."""

import pathlib
import shutil
import subprocess

import click

from fstgrad.cli.border import Output
from fstgrad.cli.effects import without_effect
from fstgrad.cli.grammar_fit import compare, fit
from fstgrad.cli.grammar_new import new
from fstgrad.cli.grammar_options import (
    alphabet_option,
    named_alphabet,
    reference_argument,
    symbols_option,
)
from fstgrad.cli.grammar_test import explain, test
from fstgrad.cli.grouping import Group
from fstgrad.cli.text import echo
from fstgrad.errors import FstgradError, MissingDependencyError
from fstgrad.grammars import NAMES, Grammar
from fstgrad.io import write_bytes, write_text
from fstgrad.openfst import Fst, dot_source, write_archive, write_file

_DRAWN_ARCS = 400


@click.group(cls=Group)
def grammar() -> None:
    """Losses written as grammars: rules, or programs in pynini.

    A grammar is one of those listed by `list`, or a file PATH.rules, PATH.py or PATH.py:BUILDER.
    """


@grammar.command("list")
def list_() -> None:
    """List the grammars that come with fstgrad."""
    width = max(map(len, NAMES))
    for name in NAMES:
        echo(f"{name:<{width}}  {Grammar.load(name).summary}")


@grammar.command()
@reference_argument
@alphabet_option
@symbols_option
def show(reference: str, alphabet: str | None, symbols: str | None) -> None:
    """Describe a grammar: what costs what, its source, size, examples."""
    found = Grammar.load(reference)
    abc = named_alphabet(found, alphabet, symbols)
    fst = found.build(abc)
    arcs = sum(fst.num_arcs(state) for state in fst.states())
    echo(f"{found.name}: {found.description}\n")
    echo(f"semiring  {found.semiring}")
    echo(f"alphabet  {'its own' if abc is None else ' '.join(abc)}")
    echo(f"size      {fst.num_states()} states, {arcs} arcs")
    for y, target, value in found.examples:
        echo(f"example   {y!r} against {target!r}: {value:g}")


@grammar.command()
@reference_argument
@click.option(
    "-o",
    "--output",
    required=True,
    type=Output(),
    metavar="FILE",
    help="x.far, with the grammar's name as the entry, or x.fst.",
)
@alphabet_option
@symbols_option
def build(reference: str, output: str, alphabet: str | None, symbols: str | None) -> None:
    """Build a grammar into an archive of OpenFst, for --loss x.far:NAME."""
    if pathlib.Path(output).suffix not in (".far", ".fst"):
        raise click.UsageError(f"--output is {output!r}; give a name that ends in .far or .fst")
    found = Grammar.load(reference)
    _check_builder(found)
    fst = found.build(named_alphabet(found, alphabet, symbols))
    if output.endswith(".fst"):
        write_file(output, fst)
    else:
        write_archive(output, {found.name: fst})
    loss = output if output.endswith(".fst") else f"{output}:{found.name}"
    echo(f"wrote {fst.num_states()} states; use it with --loss {loss}")


@grammar.command()
@reference_argument
@click.option(
    "-o",
    "--output",
    type=Output(),
    metavar="FILE",
    help="x.svg (by graphviz) or x.dot.  [default: DOT text to standard output]",
)
@alphabet_option
@symbols_option
def draw(reference: str, output: str | None, alphabet: str | None, symbols: str | None) -> None:
    """Draw a grammar with its symbols; choose a few of them, as grammars are large."""
    if output is not None and pathlib.Path(output).suffix not in (".svg", ".dot"):
        raise click.UsageError(f"--output is {output!r}; give a name that ends in .svg or .dot")
    found = Grammar.load(reference)
    _check_builder(found)
    fst = found.build(named_alphabet(found, alphabet, symbols))
    source = dot_source(_drawable(fst), title=found.name)
    if output is None:
        echo(source, nl=False)
    elif output.endswith(".dot"):
        write_text(output, source)
    else:
        write_bytes(output, _svg(source))


def _check_builder(found: Grammar) -> None:
    if not found.takes_alphabet:
        without_effect(("alphabet", "symbols"), f"on {found.name}, whose builder takes none")


def _drawable(fst: Fst) -> Fst:
    arcs = sum(fst.num_arcs(state) for state in fst.states())
    if arcs > _DRAWN_ARCS:
        raise click.UsageError(
            f"the grammar has {arcs} arcs, too many to read; draw it over a few symbols, as in "
            "--symbols abc"
        )
    return fst


def _svg(source: str) -> bytes:
    """Return the drawing that graphviz makes of DOT text."""
    program = shutil.which("dot")
    if program is None:
        raise MissingDependencyError(
            "SVG needs the program dot of graphviz, which is not installed (apt install graphviz); "
            "or write DOT text: -o x.dot"
        )
    done = subprocess.run([program, "-Tsvg"], input=source.encode(), capture_output=True)
    if done.returncode != 0:
        raise FstgradError(f"dot failed: {done.stderr.decode(errors='replace')}")
    return done.stdout


for command in (test, explain, new, fit, compare):
    grammar.add_command(command)
