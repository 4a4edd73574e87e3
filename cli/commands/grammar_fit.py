"""`fstgrad grammar fit` and `compare`: learn costs from pairs; compare those of two grammars."""

import dataclasses
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
import numpy as np

from fstgrad.cli.command import Command, option_group
from fstgrad.cli.commands.grammar_options import (
    MAX_ROWS,
    Words,
    alphabet_option,
    format_interval,
    loss_over_data,
    ranking_questions,
    read_dictionary,
    read_word_pairs,
    reference_argument,
    symbols_are_words,
    symbols_option,
)
from fstgrad.cli.output import echo
from fstgrad.cli.pair_options import WRITE_PAIRS
from fstgrad.cli.parameter_types import (
    FILE_OR_DASH,
    SEED,
    Input,
    Integer,
    NameOrFileEntry,
    Number,
    Output,
)
from fstgrad.core.errors import FstgradError, InvalidInputError
from fstgrad.costs import CostFit, LearnedCosts, Schedule, fit_costs, fit_ranking, pair_transducer
from fstgrad.costs.ranking import (
    Questions,
    Ranking,
    Semiring,
    bootstrap_interval,
    losses_of,
    ranking,
    ranks,
)
from fstgrad.io import Row, located


@dataclasses.dataclass(frozen=True)
class Learning:
    """The options of learning, as in `fit_costs`."""

    given: str
    tie: str
    smoothing: float
    prior: str
    held_out: float
    restarts: int
    max_iter: int
    seed: int


learning_options = option_group(
    "learning",
    Learning,
    click.option(
        "--given",
        type=click.Choice(["nothing", "hypothesis", "target"]),
        default="nothing",
        show_default=True,
        help="Learn the joint probability of both sides, or of one side given the other.",
    ),
    click.option(
        "--tie",
        type=click.Choice(["pair", "arc", "cost", "rule"]),
        default="pair",
        show_default=True,
        help="Which arcs share a cost.  pair: those with the same symbols; arc: none; cost: those "
        "of one kind and cost; rule: those of one rule.  Probabilities of the arcs that leave a "
        "state sum to 1, so a shared weight gives each state a cost of its own.",
    ),
    click.option(
        "--smoothing",
        type=Number(0.0),
        default=0.1,
        show_default=True,
        help="Pseudocount added for each cost.",
    ),
    click.option(
        "--prior",
        type=click.Choice(["uniform", "transducer"]),
        default="uniform",
        show_default=True,
        help="Spread the pseudocounts evenly, or in proportion to the grammar's own probabilities.",
    ),
    click.option(
        "--held-out",
        type=Number(0.0),
        default=0.1,
        show_default=True,
        help="Share of the pairs held out for early stopping; 0 for none.",
    ),
    click.option(
        "--restarts",
        type=Integer(1, 1000),
        default=1,
        show_default=True,
        help="Number of starts; the fit with the highest likelihood of the held-out pairs is kept "
        "(without held-out pairs, with the highest posterior probability).",
    ),
    click.option(
        "--max-iter",
        type=Integer(1, 10**6),
        default=100,
        show_default=True,
        help="Maximum number of EM iterations.",
    ),
    click.option(
        "--seed",
        type=SEED,
        default=0,
        show_default=True,
        help="Random seed of the held-out pairs and the starts.",
    ),
    heading="Learning",
)


_OPEN = 0.95  # gates from here on are not printed: less than 0.06 nats


@click.command(
    cls=Command, examples=(WRITE_PAIRS, "fstgrad grammar fit edit pairs.tsv -o learned.far")
)
@reference_argument
@click.argument("pairs", type=FILE_OR_DASH)
@click.option(
    "-o",
    "--output",
    type=Output(),
    required=True,
    metavar="FILE",
    help="Write the learned grammar to x.far or x.fst, or a table of costs to x.tsv.",
)
@click.option(
    "--table", type=Output(), metavar="FILE.tsv", help="Also write the table of costs to this file."
)
@click.option(
    "--rank",
    type=Input(),
    metavar="WORDS",
    help="Afterwards, learn to rank the right word first among WORDS (a file, one word per line).",
)
@click.option(
    "--candidates",
    type=Integer(2, 10_000),
    default=20,
    show_default=True,
    help="With --rank: number of words compared for each pair.",
)
@alphabet_option
@symbols_option
@learning_options
def fit(
    reference: str,
    pairs: str,
    output: str,
    table: str | None,
    rank: str | None,
    candidates: int,
    alphabet: str | None,
    symbols: str | None,
    learning: Learning,
) -> None:
    """Learn the costs of a grammar from PAIRS: rows hypothesis TAB target.

    FILE_OR_NAME is a grammar, `edit`, or a file (x.far:NAME, x.fst, x.txt).  Without --alphabet
    and --symbols, a grammar that is built for an alphabet gets its own symbols and those of the
    pairs.
    """
    for path, endings in ((output, (".far", ".fst", ".tsv")), (table, (".tsv",))):
        if path is not None and pathlib.Path(path).suffix not in endings:
            raise click.UsageError(f"{path!r}: give a name that ends in {' or '.join(endings)}")
    is_words = symbols_are_words(reference, alphabet, symbols)
    rows, file_rows = read_word_pairs(pairs, is_words)
    loss = loss_over_data(reference, rows, alphabet, symbols)
    with _locating_pairs(file_rows):
        learned: LearnedCosts = fit_costs(
            loss,
            rows,
            given=learning.given,  # type: ignore[arg-type]
            tie=learning.tie,  # type: ignore[arg-type]
            smoothing=learning.smoothing,
            prior=learning.prior,  # type: ignore[arg-type]
            held_out=learning.held_out if len(rows) > 1 else 0.0,
            schedule=Schedule(
                max_iter=learning.max_iter, restarts=learning.restarts, progress=_progress
            ),
            rng=learning.seed,
        )
    if isinstance(learned, CostFit):
        _print_log_likelihoods(learned, len(rows))
    if rank is not None:
        learned = _learn_ranking(learned, rows, rank, candidates, is_words)
    name = pathlib.Path(output).stem
    learned.write(output, name)
    if table is not None:
        learned.write(table)
    _print_changes(learned)
    entry = f"{output}:{name}" if output.endswith(".far") else output
    if not output.endswith(".tsv"):
        has_lost_names = output.endswith(".fst") and learned.pair_transducer.rules
        lost = " without the names of rules, which x.far keeps" if has_lost_names else ""
        echo(f"wrote {output}{lost}; use it with --loss {entry}")


def _learn_ranking(
    learned: LearnedCosts, rows: Words, path: str, count: int, is_words: bool
) -> LearnedCosts:
    """Return the costs after learning to rank, and print the accuracy before and after."""
    dictionary = read_dictionary(rows, path, is_words)
    alphabet = learned.pair_transducer.alphabet
    dictionary = [word for word in dictionary if all(symbol in alphabet for symbol in word)]
    rank_questions = ranking_questions(rows, dictionary, count)
    ranked = fit_ranking(learned, rank_questions)
    questions = Questions.encode(alphabet, rank_questions)
    for name, cost in (("likelihood", learned.cost), ("ranking", ranked.cost)):
        losses = losses_of(learned.pair_transducer, questions.pairs, cost, "probability")
        measures = ranking(ranks(questions, losses))
        share = format_interval(measures.at_1)
        echo(f"costs by {name}: right word first {share} on the training pairs")
    return ranked


def _progress(start: int, iteration: int, value: float) -> None:
    """Show the progress of EM, if standard error is a terminal."""
    if sys.stderr.isatty():
        click.echo(
            f"\rstart {start} step {iteration}: {value:.4f} nats per pair", err=True, nl=False
        )


def _print_log_likelihoods(learned: CostFit, count: int) -> None:
    """Print the log-likelihoods per pair (nats) before and after learning."""
    if sys.stderr.isatty():
        click.echo(err=True)
    size, kept = len(learned.pairs), learned.kept
    before, after = (learned.log_likelihood[step] / size for step in (0, kept))
    gain = f"{before:.4f} -> {after:.4f} nats"
    echo(f"{_pairs(size)}, {kept} steps: log-likelihood per pair {gain}")
    if learned.held_out_log_likelihood:
        held_out = count - size
        first, best = (learned.held_out_log_likelihood[step] / held_out for step in (0, kept))
        more = len(learned.log_likelihood) - 1 - kept
        dropped = f"; {more} further steps, less likely for them, are dropped" if more else ""
        echo(f"held out, {_pairs(held_out)}: {first:.4f} -> {best:.4f} nats{dropped}")


def _pairs(count: int) -> str:
    return f"{count:,} pair{'s' * (count != 1)}"


@contextmanager
def _locating_pairs(rows: Sequence[Row]) -> Iterator[None]:
    """Put the file and line of a pair before an error that begins with its number."""
    try:
        yield
    except FstgradError as error:
        match = re.match(r"pairs\[(\d+)\]", str(error))
        if match is None:
            raise
        with located(rows[int(match[1])]):
            raise


def _print_changes(learned: LearnedCosts) -> None:
    """Print the largest changes of costs, and what moved them."""
    is_fit = isinstance(learned, CostFit)
    echo(f"largest changes (cost before -> after, times {'seen' if is_fit else 'used'})")
    for row in learned.changes(MAX_ROWS):
        reason = f"used {row.times:.1f}"
        if is_fit:
            reason = f"seen {row.times:.1f} + prior {row.prior:.3g} of {row.total:.1f} alternatives"
            reason += f", {row.size:.3g} arcs" if row.size > 1 else ""
            reason += f", gate {row.gate:.3g}" if row.gate < _OPEN else ""
        echo(f"  {row.name}: {row.was:.3f} -> {row.cost:.3f}, {reason}")


@click.command(
    cls=Command, examples=(WRITE_PAIRS, "fstgrad grammar compare edit keyboard pairs.tsv")
)
@click.argument("first", type=NameOrFileEntry())
@click.argument("second", type=NameOrFileEntry())
@click.argument("pairs", type=FILE_OR_DASH)
@click.option(
    "--words",
    type=Input(),
    help="The dictionary, one word per line.  [default: the targets of the pairs]",
)
@click.option(
    "--candidates",
    type=Integer(2, 10_000),
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
    is_words = any(symbols_are_words(name, alphabet, symbols) for name in (first, second))
    rows, _ = read_word_pairs(pairs, is_words)
    dictionary = read_dictionary(rows, words, is_words)
    all_pairs = [*rows, *(("", word) for word in dictionary)]
    grammars = [loss_over_data(name, all_pairs, alphabet, symbols) for name in (first, second)]
    for name, loss in zip((first, second), grammars, strict=True):
        lacks = [s for x, y in rows for s in (*x, *y) if s not in loss.alphabet]
        if lacks:
            raise InvalidInputError(
                f"{pairs} has the symbol {lacks[0]!r}, which the alphabet of {name} lacks; add it "
                "to --symbols or --alphabet, or leave its rows out"
            )
    known = [word for word in dictionary if all(s in a.alphabet for a in grammars for s in word)]
    if len(known) < len(dictionary):
        echo(f"left out {len(dictionary) - len(known):,} words with symbols that a grammar lacks")
    rank_questions = ranking_questions(rows, known, candidates)
    rankings: list[tuple[Ranking, np.ndarray]] = []
    for loss in grammars:
        transducer = pair_transducer(loss)
        questions = Questions.encode(loss.alphabet, rank_questions)
        semiring: Semiring = "tropical" if loss.semiring == "tropical" else "probability"
        losses = losses_of(transducer, questions.pairs, transducer.cost, semiring)
        rankings.append((ranking(ranks(questions, losses), rng=seed), losses[questions.right]))
    _print_measures((first, second), [measures for measures, _ in rankings], seed)
    _print_differences(rows, (first, second), rankings)


def _print_measures(names: tuple[str, str], rankings: Sequence[Ranking], seed: int) -> None:
    """Print the measures of two grammars, and their difference (second minus first)."""
    width = max(10, *map(len, names))
    echo(f"{'':{width}}  {'reciprocal rank':22}  {'first':22}  among five")
    for name, measures in zip(names, rankings, strict=True):
        cells = (format_interval(m) for m in (measures.reciprocal, measures.at_1, measures.at_5))
        echo(f"{name:{width}}  " + "  ".join(f"{cell:22}" for cell in cells).rstrip())
    draws = np.random.default_rng(seed).integers(
        0, len(rankings[0].ranks), size=(1000, len(rankings[0].ranks))
    )
    scores = [(1.0 / m.ranks, 1.0 * (m.ranks <= 1), 1.0 * (m.ranks <= 5)) for m in rankings]
    cells = (
        format_interval(bootstrap_interval(b - a, draws)) for a, b in zip(*scores, strict=True)
    )
    echo(f"{'difference':{width}}  " + "  ".join(f"{cell:22}" for cell in cells).rstrip())


def _print_differences(
    rows: Words, names: tuple[str, str], rankings: Sequence[tuple[Ranking, np.ndarray]]
) -> None:
    """Print the pairs whose ranks differ most."""
    (first, a), (second, b) = rankings
    gap = np.abs(first.ranks - second.ranks)
    order = [int(n) for n in np.argsort(-gap, kind="stable") if gap[n] > 0]
    echo(f"{len(order)} of {len(rows)} pairs are ranked differently")
    for n in order[:MAX_ROWS]:
        x, y = rows[n]
        echo(
            f"  {''.join(x)!r} against {''.join(y)!r}: "
            f"{names[0]} rank {first.ranks[n]:g} cost {a[n]:g}, "
            f"{names[1]} rank {second.ranks[n]:g} cost {b[n]:g}"
        )
