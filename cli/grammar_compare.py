"""`fstgrad grammar compare`: how well the costs of two grammars rank the right word."""

from collections.abc import Sequence

import click
import numpy as np

from fstgrad.cli import report
from fstgrad.cli.grammar_options import alphabet_option, symbols_option
from fstgrad.cli.grammar_pairs import (
    SHOWN,
    Words,
    cell,
    dictionary_of,
    loss_of,
    pairs_of,
    questions_of,
    reads_words,
)
from fstgrad.cli.grouping import Command
from fstgrad.cli.parameter_types import SEED, Input, Reference
from fstgrad.cli.text import echo
from fstgrad.costs import pair_transducer
from fstgrad.costs.ranking import (
    Questions,
    Ranking,
    Semiring,
    bootstrap_interval,
    losses_of,
    ranking,
    ranks,
)


@click.command(cls=Command)
@click.argument("first", type=Reference())
@click.argument("second", type=Reference())
@click.argument("pairs", type=Input(dash=True))
@click.option(
    "--words",
    type=Input(),
    help="The dictionary, one word per line.  [default: the targets of the pairs]",
)
@click.option(
    "--candidates",
    type=click.IntRange(2, 10_000),
    default=50,
    show_default=True,
    help="Rank the right word among this many words: those that share the most bigrams with the "
    "hypothesis.",
)
@alphabet_option
@symbols_option
@click.option(
    "--seed", type=SEED, default=0, show_default=True, help="Random seed of the bootstrap."
)
def compare(
    first: str,
    second: str,
    pairs: str,
    words: str | None,
    candidates: int,
    alphabet: str | None,
    symbols: str | None,
    seed: int,
) -> None:
    """Show where two grammars differ on PAIRS, and how well each ranks the right word.

    FIRST and SECOND are grammars, `edit`, or files (x.far:NAME, x.fst, x.txt).  Words of equal cost
    get the mean of their ranks.  Brackets show 95 percent intervals of a bootstrap over the pairs.
    """
    report.announce_compilation()
    is_words = any(reads_words(name, alphabet, symbols) for name in (first, second))
    rows, _ = pairs_of(pairs, is_words)
    dictionary = dictionary_of(rows, words, is_words)
    every = [*rows, *(("", word) for word in dictionary)]
    grammars = [loss_of(name, every, alphabet, symbols) for name in (first, second)]
    known = [word for word in dictionary if all(s in a.alphabet for a in grammars for s in word)]
    if len(known) < len(dictionary):
        echo(f"left out {len(dictionary) - len(known):,} words with symbols that a grammar lacks")
    asked = questions_of(rows, known, candidates)
    found: list[tuple[Ranking, np.ndarray]] = []
    for loss in grammars:
        transducer = pair_transducer(loss)
        questions = Questions.encode(loss.alphabet, asked)
        semiring: Semiring = "tropical" if loss.semiring == "tropical" else "probability"
        losses = losses_of(transducer, questions.pairs, transducer.cost, semiring)
        found.append((ranking(ranks(questions, losses), rng=seed), losses[questions.right]))
    _compared((first, second), [measures for measures, _ in found], seed)
    _differences(rows, (first, second), found)


def _compared(names: tuple[str, str], found: Sequence[Ranking], seed: int) -> None:
    """Print the measures of two grammars, and their difference (second minus first)."""
    width = max(10, *map(len, names))
    echo(f"{'':{width}}  {'reciprocal rank':22}  {'first':22}  among five")
    for name, measures in zip(names, found, strict=True):
        cells = (cell(m) for m in (measures.reciprocal, measures.at_1, measures.at_5))
        echo(f"{name:{width}}  " + "  ".join(f"{cell:22}" for cell in cells).rstrip())
    draws = np.random.default_rng(seed).integers(
        0, len(found[0].ranks), size=(1000, len(found[0].ranks))
    )
    scores = [(1.0 / m.ranks, 1.0 * (m.ranks <= 1), 1.0 * (m.ranks <= 5)) for m in found]
    cells = (cell(bootstrap_interval(b - a, draws)) for a, b in zip(*scores, strict=True))
    echo(f"{'difference':{width}}  " + "  ".join(f"{cell:22}" for cell in cells).rstrip())


def _differences(
    rows: Words, names: tuple[str, str], found: Sequence[tuple[Ranking, np.ndarray]]
) -> None:
    """Print the pairs whose ranks differ most."""
    (first, a), (second, b) = found
    gap = np.abs(first.ranks - second.ranks)
    order = [int(n) for n in np.argsort(-gap, kind="stable") if gap[n] > 0]
    echo(f"{len(order)} of {len(rows)} pairs are ranked differently")
    for n in order[:SHOWN]:
        x, y = rows[n]
        echo(
            f"  {''.join(x)!r} against {''.join(y)!r}: "
            f"{names[0]} rank {first.ranks[n]:g} cost {a[n]:g}, "
            f"{names[1]} rank {second.ranks[n]:g} cost {b[n]:g}"
        )
