"""`fstgrad grammar`: list, show, build, draw, write, test and explain grammars."""

import pathlib
from collections.abc import Sequence

import click

from fstgrad.cli.command import Group, reject_options
from fstgrad.cli.commands.grammar_fit import compare, fit
from fstgrad.cli.commands.grammar_options import (
    alphabet_option,
    chosen_alphabet,
    loss_over_data,
    reference_argument,
    symbols_are_words,
    symbols_option,
)
from fstgrad.cli.output import echo
from fstgrad.cli.parameter_types import Integer, Output, nbest_option
from fstgrad.costs import pair_transducer
from fstgrad.costs.explain import explain_pair
from fstgrad.grammars import NAMES, Grammar
from fstgrad.grammars.checking import Checked, Coverage, check_examples, updated
from fstgrad.grammars.loading import RuleGrammar
from fstgrad.grammars.templates import TEMPLATES, TEST
from fstgrad.io import write_bytes, write_text
from fstgrad.losses.transducers.rules import write_rules
from fstgrad.openfst import write_archive, write_file
from fstgrad.plot import automaton_source, render

_NEW = "fstgrad grammar new spelling"

_PICTURES = (".svg", ".pdf", ".png", ".dot")


@click.group(cls=Group)
def grammar() -> None:
    """Losses written as grammars: files of rules, or Python programs that use pynini.

    A grammar is a name that `list` shows, or a file PATH.rules, PATH.py or PATH.py:BUILDER.
    """


@grammar.command("list", examples=("fstgrad grammar list",))
def list_() -> None:
    """List the grammars that come with fstgrad."""
    width = max(map(len, NAMES))
    for name in NAMES:
        echo(f"{name:<{width}}  {Grammar.load(name).summary}")


@grammar.command(examples=("fstgrad grammar show keyboard",))
@reference_argument
@alphabet_option
@symbols_option
def show(reference: str, alphabet: str | None, symbols: str | None) -> None:
    """Describe a grammar: its costs, source, size and examples."""
    loaded = Grammar.load(reference)
    abc = chosen_alphabet(loaded, alphabet, symbols)
    fst = loaded.build(abc)
    arcs = sum(fst.num_arcs(state) for state in fst.states())
    echo(f"{loaded.name}: {loaded.description}\n")
    echo(f"semiring  {loaded.semiring}")
    echo(f"alphabet  {'its own' if abc is None else ' '.join(abc)}")
    echo(f"size      {fst.num_states()} states, {arcs} arcs")
    for y, target, value in loaded.examples:
        echo(f"example   {y!r} against {target!r}: {value:g}")


@grammar.command(
    examples=(
        "fstgrad grammar build keyboard -o keyboard.far",
        r"printf 'cst\tcat\n' | fstgrad loss - --loss keyboard.far:keyboard",
    )
)
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
    loaded = Grammar.load(reference)
    _check_builder(loaded)
    abc = chosen_alphabet(loaded, alphabet, symbols)
    if isinstance(loaded, RuleGrammar) and output.endswith(".far"):
        rules = loaded.loss(abc).rule_transducer
        write_rules(output, loaded.name, rules, "standard")
        states = rules.fst.num_states
    else:
        fst = loaded.build(abc)
        states = fst.num_states()
        if output.endswith(".fst"):
            write_file(output, fst)
        else:
            write_archive(output, {loaded.name: fst})
    loss = output if output.endswith(".fst") else f"{output}:{loaded.name}"
    echo(f"wrote {states} states; use it with --loss {loss}")


@grammar.command(examples=("fstgrad grammar draw damerau --symbols ab -o damerau.dot",))
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
    loaded = Grammar.load(reference)
    _check_builder(loaded)
    fst = loaded.build(chosen_alphabet(loaded, alphabet, symbols))
    source = automaton_source(fst, title=loaded.name)
    if output is None:
        echo(source, nl=False)
    elif ending == ".dot":
        write_text(output, source)
    else:
        write_bytes(output, render(source, ending[1:]))


def _check_builder(loaded: Grammar) -> None:
    if not loaded.takes_alphabet:
        reject_options(("alphabet", "symbols"), f"on {loaded.name}, whose builder uses no alphabet")


@grammar.command(examples=(_NEW, "fstgrad grammar show spelling.rules"))
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


_MOST_NAMES = 8


@grammar.command(examples=(_NEW, "fstgrad grammar test spelling.rules"))
@reference_argument
@alphabet_option
@symbols_option
@click.option(
    "--update",
    is_flag=True,
    help="Show the differences, then write the computed losses to the file of the grammar.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Also fail on unused or undercut rules, unreachable states and ties.",
)
def test(
    reference: str, alphabet: str | None, symbols: str | None, update: bool, strict: bool
) -> None:
    """Compare a grammar with its examples, and report coverage and losses.

    The exit code is 1 if an example is wrong and not updated, or if --strict fails; otherwise 0.
    """
    loaded = Grammar.load(reference)
    loss, checked, coverage = check_examples(loaded, chosen_alphabet(loaded, alphabet, symbols))
    for example in checked:
        verdict = "ok   " if example.is_right else "WRONG"
        comparison = f"{example.value:g}"
        if not example.is_right:
            comparison += f", the example says {example.expected:g}"
        echo(f"{verdict} {example.y!r} against {example.target!r}: {comparison}")
    targets = sorted({example.target for example in checked})
    if targets:
        words = loss.alphabet.is_characters
        echo(str(loss.check([list(t) if words else t.split() for t in targets])))
    ambiguous = [e for e in checked if e.is_ambiguous]
    tied = [e for e in checked if e.rivals]
    _print_coverage(coverage, ambiguous, tied)
    wrong = sum(not example.is_right for example in checked)
    if wrong and update:
        text, difference = updated(loaded, checked)
        echo(difference)
        write_text(str(loaded.file), text)
        echo(f"wrote {wrong} value(s) to {loaded.file}")
        wrong = 0
    if wrong:
        raise click.ClickException(f"{wrong} of {len(checked)} examples are wrong")
    if strict and (coverage.unused or coverage.undercut or coverage.unreachable or tied):
        raise click.ClickException(
            f"{len(coverage.unused)} unused, {len(coverage.undercut)} undercut, "
            f"{coverage.unreachable} unreachable, {len(tied)} tied"
        )


def _print_coverage(
    coverage: Coverage, ambiguous: Sequence[Checked], tied: Sequence[Checked]
) -> None:
    """Print the coverage of the examples, their ambiguous alignments, and tied targets."""
    used = len(coverage.classes) - len(coverage.unused)
    echo(
        f"covered           {used} of {len(coverage.classes)} rules and edits, "
        f"{coverage.used_arcs} of {coverage.arcs} arcs"
    )
    if coverage.unused:
        echo(f"unused            {_first_few(coverage.unused)}")
    if coverage.undercut:
        named = [f"{name} (edits cost {cost:g})" for name, cost in coverage.undercut]
        echo(f"undercut          {_first_few(named)}: no effect; lower the rule or raise the edits")
    echo(f"unreachable       {coverage.unreachable} states")
    shown = [f"{e.y!r} against {e.target!r}" for e in ambiguous]
    echo(f"ambiguous         {_first_few(shown) or 'none'}: several cheapest alignments")
    rivals = [f"{e.y!r}: {e.target!r} as {e.rivals[0]!r}" for e in tied]
    echo(f"ties              {_first_few(rivals) or 'none'}: targets that cost the same")


def _first_few(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


@grammar.command(examples=("fstgrad grammar explain keyboard cst cat",))
@reference_argument
@click.argument("hypothesis")
@click.argument("target")
@nbest_option("Number of alignments shown.", 3, Integer(1, 1000))
@alphabet_option
@symbols_option
def explain(
    reference: str,
    hypothesis: str,
    target: str,
    nbest: int,
    alphabet: str | None,
    symbols: str | None,
) -> None:
    """Show the cheapest alignments of HYPOTHESIS with TARGET, and what would change them.

    FILE_OR_NAME is a grammar, or a transducer in a file (x.far:NAME, x.fst, x.txt), such as learned
    costs.  If the symbols of the grammar are words, separate them by spaces.  Symbols that are not
    in the alphabet of a grammar are added to it.
    """
    is_words = symbols_are_words(reference, alphabet, symbols)
    texts = [text.split() if is_words else list(text) for text in (hypothesis, target)]
    loss = loss_over_data(reference, [(texts[0], texts[1])], alphabet, symbols)
    x, y = (
        loss.alphabet.encode(text, name=name)
        for name, text in zip(("hypothesis", "target"), texts, strict=True)
    )
    echo(str(explain_pair(pair_transducer(loss), x, y, nbest)))


for command in (fit, compare):
    grammar.add_command(command)
