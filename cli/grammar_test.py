"""`fstgrad grammar test` and `explain`: check the examples of a grammar, explain its costs."""

from collections.abc import Sequence

import click

from fstgrad.cli.grammar_options import (
    alphabet_option,
    named_alphabet,
    named_loss,
    reference_argument,
    symbols_option,
)
from fstgrad.cli.grouping import Command
from fstgrad.cli.options import nbest_option
from fstgrad.cli.text import echo
from fstgrad.costs import pair_transducer
from fstgrad.costs.explain import explain_pair
from fstgrad.grammars import Grammar
from fstgrad.grammars.checking import Checked, Coverage, check_examples, updated
from fstgrad.io import write_text

_MOST_NAMES = 8


@click.command(cls=Command)
@reference_argument
@alphabet_option
@symbols_option
@click.option(
    "--update",
    is_flag=True,
    help="Show the differences, then write the computed losses to the file of the grammar.",
)
@click.option(
    "--strict", is_flag=True, help="Also fail on unused rules, unreachable states and ties."
)
def test(
    reference: str, alphabet: str | None, symbols: str | None, update: bool, strict: bool
) -> None:
    """Compare a grammar with its examples, and report coverage and losses.

    The exit code is 1 if an example is wrong and not updated, or if --strict fails; otherwise 0.
    """
    found = Grammar.load(reference)
    loss, checked, coverage = check_examples(found, named_alphabet(found, alphabet, symbols))
    for example in checked:
        verdict = "ok   " if example.is_right else "WRONG"
        said = f"{example.value:g}"
        if not example.is_right:
            said += f", the example says {example.expected:g}"
        echo(f"{verdict} {example.y!r} against {example.target!r}: {said}")
    targets = sorted({example.target for example in checked})
    if targets:
        words = loss.alphabet.is_characters
        echo(str(loss.check([list(t) if words else t.split() for t in targets])))
    ambiguous = [e for e in checked if e.is_ambiguous]
    tied = [e for e in checked if e.rivals]
    _report(coverage, ambiguous, tied)
    wrong = sum(not example.is_right for example in checked)
    if wrong and update:
        text, difference = updated(found, checked)
        echo(difference)
        write_text(str(found.file), text)
        echo(f"wrote {wrong} value(s) to {found.file}")
        wrong = 0
    if wrong:
        raise click.ClickException(f"{wrong} of {len(checked)} examples are wrong")
    if strict and (coverage.unused or coverage.unreachable or tied):
        raise click.ClickException(
            f"{len(coverage.unused)} unused, {coverage.unreachable} unreachable, {len(tied)} tied"
        )


def _report(coverage: Coverage, ambiguous: Sequence[Checked], tied: Sequence[Checked]) -> None:
    """Print the coverage of the examples, their ambiguous alignments, and tied targets."""
    used = len(coverage.classes) - len(coverage.unused)
    echo(
        f"covered           {used} of {len(coverage.classes)} rules and edits, "
        f"{coverage.used_arcs} of {coverage.arcs} arcs"
    )
    if coverage.unused:
        echo(f"unused            {_listed(coverage.unused)}")
    echo(f"unreachable       {coverage.unreachable} states")
    shown = [f"{e.y!r} against {e.target!r}" for e in ambiguous]
    echo(f"ambiguous         {_listed(shown) or 'none'}: several cheapest alignments")
    rivals = [f"{e.y!r}: {e.target!r} as {e.rivals[0]!r}" for e in tied]
    echo(f"ties              {_listed(rivals) or 'none'}: targets that cost the same")


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


@click.command(cls=Command)
@reference_argument
@click.argument("hypothesis")
@click.argument("target")
@nbest_option("Number of alignments shown.", 3, click.IntRange(1, 1000))
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
    costs.  If the symbols of the grammar are words, separate them by spaces.
    """
    loss = named_loss(reference, alphabet, symbols)
    is_text = loss.alphabet.is_characters
    x, y = (list(text) if is_text else text.split() for text in (hypothesis, target))
    echo(str(explain_pair(pair_transducer(loss), x, y, nbest)))
