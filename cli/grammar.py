"""`fstgrad grammar`: list, show, build and draw grammars, and commands of other modules."""

import pathlib

import click

from fstgrad.cli.grammar_compare import compare
from fstgrad.cli.grammar_fit import fit
from fstgrad.cli.grammar_new import new
from fstgrad.cli.grammar_options import (
    alphabet_option,
    named_alphabet,
    reference_argument,
    symbols_option,
)
from fstgrad.cli.grammar_test import explain, test
from fstgrad.cli.grouping import Group
from fstgrad.cli.option_checks import without_effect
from fstgrad.cli.parameter_types import Output
from fstgrad.cli.text import echo
from fstgrad.grammars import NAMES, Grammar
from fstgrad.io import write_bytes, write_text
from fstgrad.openfst import write_archive, write_file
from fstgrad.plot import automaton_source, render

_PICTURES = (".svg", ".pdf", ".png", ".dot")


@click.group(cls=Group)
def grammar() -> None:
    """Losses written as grammars: files of rules, or Python programs that use pynini.

    A grammar is a name that `list` shows, or a file PATH.rules, PATH.py or PATH.py:BUILDER.
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
    """Describe a grammar: its costs, source, size and examples."""
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
    help="Write x.far, whose entry has the name of the grammar, or x.fst.",
)
@alphabet_option
@symbols_option
def build(reference: str, output: str, alphabet: str | None, symbols: str | None) -> None:
    """Build a grammar as an OpenFst archive (x.far) or transducer (x.fst), for use with --loss."""
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
    help="Write x.svg, x.pdf or x.png (needs graphviz), or x.dot.  [default: DOT text to standard "
    "output]",
)
@alphabet_option
@symbols_option
def draw(reference: str, output: str | None, alphabet: str | None, symbols: str | None) -> None:
    """Draw a grammar: one edge per pair of states, with its symbols grouped by cost."""
    ending = ".dot" if output is None else pathlib.Path(output).suffix
    if ending not in _PICTURES:
        raise click.UsageError(
            f"--output is {output!r}; give a name that ends in {', '.join(_PICTURES)}"
        )
    found = Grammar.load(reference)
    _check_builder(found)
    fst = found.build(named_alphabet(found, alphabet, symbols))
    source = automaton_source(fst, title=found.name)
    if output is None:
        echo(source, nl=False)
    elif ending == ".dot":
        write_text(output, source)
    else:
        write_bytes(output, render(source, ending[1:]))


def _check_builder(found: Grammar) -> None:
    if not found.takes_alphabet:
        without_effect(("alphabet", "symbols"), f"on {found.name}, whose builder uses no alphabet")


for command in (test, explain, new, fit, compare):
    grammar.add_command(command)
