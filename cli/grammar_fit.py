"""`fstgrad grammar fit` and `compare`: costs learned from pairs, and how well costs rank."""

import dataclasses
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
import numpy as np

from fstgrad.alphabet import Alphabet
from fstgrad.cli import report
from fstgrad.cli.border import SEED, Input, Number, Output
from fstgrad.cli.grammar_options import alphabet_option, reference_argument, symbols_option
from fstgrad.cli.grouping import Command, group
from fstgrad.cli.text import echo
from fstgrad.costs import CostFit, LearnedCosts, Schedule, fit_costs, fit_ranking, pair_transducer
from fstgrad.costs.ranking import (
    Questions,
    Ranking,
    Semiring,
    interval,
    losses_of,
    nearest,
    ranking,
    ranks,
)
from fstgrad.errors import FstgradError, InvalidInputError, RowError
from fstgrad.grammars import Grammar
from fstgrad.io import located, read_alphabet, read_lines, read_table
from fstgrad.losses import EditDistance, TransducerLoss

Words = list[tuple[Sequence[str], Sequence[str]]]
_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class Learning:
    """How costs are learned."""

    given: str
    tie: str
    smoothing: float
    prior: str
    held_out: float
    restarts: int
    iterations: int
    seed: int


learning_options = group(
    "learning",
    Learning,
    click.option(
        "--given",
        type=click.Choice(["nothing", "hypothesis", "target"]),
        default="nothing",
        show_default=True,
        help="Probabilities of pairs, or of one side given the other.",
    ),
    click.option(
        "--tie",
        type=click.Choice(["pair", "arc", "cost", "rule"]),
        default="pair",
        show_default=True,
        help="Arcs that share a cost: of the same symbols, none, of one kind and cost, of one "
        "rule.",
    ),
    click.option(
        "--smoothing",
        type=Number(0.0),
        default=0.1,
        show_default=True,
        help="Counts added to each cost.",
    ),
    click.option(
        "--prior",
        type=click.Choice(["uniform", "transducer"]),
        default="uniform",
        show_default=True,
        help="Added counts that are equal, or as the grammar's own costs.",
    ),
    click.option(
        "--held-out",
        type=Number(0.0),
        default=0.1,
        show_default=True,
        help="Share of the pairs that decides when to stop; 0 for none.",
    ),
    click.option("--restarts", type=click.IntRange(1, 1000), default=1, show_default=True),
    click.option("--iterations", type=click.IntRange(1, 10**6), default=100, show_default=True),
    click.option("--seed", type=SEED, default=0, show_default=True),
    heading="Learning",
)


@click.command(cls=Command)
@reference_argument
@click.argument("pairs", type=Input(dash=True))
@click.option(
    "-o",
    "--output",
    type=Output(),
    required=True,
    metavar="FILE",
    help="x.far or x.fst, a grammar again, or x.tsv, a table of costs.",
)
@click.option("--table", type=Output(), metavar="FILE.tsv", help="The table of costs, too.")
@click.option(
    "--rank",
    type=Input(),
    metavar="WORDS",
    help="Then learn to rank the right one of WORDS, one a line, first.",
)
@click.option("--candidates", type=click.IntRange(2, 10_000), default=20, show_default=True)
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

    FILE_OR_NAME is a grammar, or `edit`.  Its alphabet is widened by the symbols of the pairs.
    """
    for path, endings in ((output, (".far", ".fst", ".tsv")), (table, (".tsv",))):
        if path is not None and pathlib.Path(path).suffix not in endings:
            raise click.UsageError(f"{path!r}: give a name that ends in {' or '.join(endings)}")
    report.announce_compilation()
    is_words = _reads_words(reference, alphabet, symbols)
    rows = _pairs(pairs, is_words)
    loss = _loss(reference, rows, alphabet, symbols, is_words)
    with _in_lines(pairs):
        found: LearnedCosts = fit_costs(
            loss,
            rows,
            given=learning.given,  # type: ignore[arg-type]
            tie=learning.tie,  # type: ignore[arg-type]
            smoothing=learning.smoothing,
            prior=learning.prior,  # type: ignore[arg-type]
            held_out=learning.held_out if len(rows) > 1 else 0.0,
            schedule=Schedule(
                max_iterations=learning.iterations, restarts=learning.restarts, progress=_progress
            ),
            rng=learning.seed,
        )
    if isinstance(found, CostFit):
        _report(found, len(rows))
    if rank is not None:
        found = _ranked(found, rows, rank, candidates, is_words)
    name = pathlib.Path(output).stem
    found.write(output, name)
    if table is not None:
        found.write(table)
    _changes(found)
    entry = f"{output}:{name}" if output.endswith(".far") else output
    if not output.endswith(".tsv"):
        echo(f"wrote {output}; use it with --loss {entry}")


@click.command(cls=Command)
@click.argument("first")
@click.argument("second")
@click.argument("pairs", type=Input(dash=True))
@click.option(
    "--words",
    type=Input(),
    help="The dictionary, one word a line.  [default: the targets of the pairs]",
)
@click.option(
    "--candidates",
    type=click.IntRange(2, 10_000),
    default=50,
    show_default=True,
    help="The right word among so many that share most bigrams with the hypothesis.",
)
@alphabet_option
@symbols_option
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of the intervals.")
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

    FIRST and SECOND are grammars, `edit`, or files x.far:NAME, x.fst.  Ranks of words that cost the
    same are shared; intervals are of 95 %, bootstrapped over the pairs.
    """
    report.announce_compilation()
    is_words = any(_reads_words(name, alphabet, symbols) for name in (first, second))
    rows = _pairs(pairs, is_words)
    dictionary = _dictionary(rows, words, is_words)
    every = [*rows, *(("", word) for word in dictionary)]
    grammars = [_loss(name, every, alphabet, symbols, is_words) for name in (first, second)]
    known = [word for word in dictionary if all(s in a.alphabet for a in grammars for s in word)]
    if len(known) < len(dictionary):
        echo(f"left out {len(dictionary) - len(known):,} words with symbols that a grammar lacks")
    asked = _questions(rows, known, candidates)
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
    """Write the measures of two grammars, and their difference."""
    width = max(10, *map(len, names))
    echo(f"{'':{width}}  {'reciprocal rank':22}  {'first':22}  among five")
    for name, measures in zip(names, found, strict=True):
        cells = (_cell(m) for m in (measures.reciprocal, measures.at_1, measures.at_5))
        echo(f"{name:{width}}  " + "  ".join(f"{cell:22}" for cell in cells).rstrip())
    draws = np.random.default_rng(seed).integers(
        0, len(found[0].ranks), size=(1000, len(found[0].ranks))
    )
    scores = [(1.0 / m.ranks, 1.0 * (m.ranks <= 1), 1.0 * (m.ranks <= 5)) for m in found]
    cells = (_cell(interval(b - a, draws)) for a, b in zip(*scores, strict=True))
    echo(f"{'difference':{width}}  " + "  ".join(f"{cell:22}" for cell in cells).rstrip())


def _cell(measure: tuple[float, float, float]) -> str:
    value, lower, upper = measure
    return f"{value:.3f} [{lower:.3f}, {upper:.3f}]"


def _differences(
    rows: Words, names: tuple[str, str], found: Sequence[tuple[Ranking, np.ndarray]]
) -> None:
    """Write the pairs whose ranks differ most."""
    (first, a), (second, b) = found
    gap = np.abs(first.ranks - second.ranks)
    order = [int(n) for n in np.argsort(-gap, kind="stable") if gap[n] > 0]
    echo(f"{len(order)} of {len(rows)} pairs are ranked differently")
    for n in order[:_SHOWN]:
        x, y = rows[n]
        echo(
            f"  {''.join(x)!r} against {''.join(y)!r}: "
            f"{names[0]} rank {first.ranks[n]:g} cost {a[n]:g}, "
            f"{names[1]} rank {second.ranks[n]:g} cost {b[n]:g}"
        )


def _reads_words(reference: str, alphabet: str | None, symbols: str | None) -> bool:
    """Whether the symbols of a grammar are words."""
    if alphabet is not None:
        return not read_alphabet(alphabet).is_characters
    if symbols is not None:
        return " " in symbols.strip()
    if reference == "edit" or _is_file(reference):
        return False
    own = Grammar.load(reference).alphabet
    return own is not None and not own.is_characters


def _is_file(reference: str) -> bool:
    return ".far" in pathlib.Path(reference).name or reference.endswith((".fst", ".txt"))


def _pairs(path: str, is_words: bool) -> list[tuple[Sequence[str], Sequence[str]]]:
    """Return the rows of a file of pairs as symbols."""
    tokens = "words" if is_words else "chars"
    rows: list[tuple[Sequence[str], Sequence[str]]] = []
    for row in read_table(path):
        with located(row):
            pair = row.pair(tokens, tokens)  # type: ignore[arg-type]
        rows.append((pair.x, pair.y))
    if not rows:
        raise InvalidInputError(f"{path} is empty; give rows hypothesis, one tab, target")
    return rows


def _dictionary(rows: Words, path: str | None, is_words: bool) -> list[tuple[str, ...]]:
    """Return the words that may be meant, each once."""
    if path is None:
        return sorted({tuple(y) for _, y in rows})
    lines = [line for line in read_lines(path) if line]
    if not lines:
        raise InvalidInputError(f"{path} is empty; give one word a line")
    words = [tuple(line.split()) if is_words else tuple(line) for line in lines]
    return sorted({*words, *(tuple(y) for _, y in rows)})


def _questions(
    rows: Words, dictionary: Sequence[tuple[str, ...]], count: int
) -> list[tuple[Sequence[str], int, list[Sequence[str]]]]:
    """Return each hypothesis with the right word among the nearest ones of the dictionary."""
    asked = []
    for (x, y), near in zip(rows, nearest([x for x, _ in rows], dictionary, count), strict=True):
        others = [dictionary[k] for k in near if dictionary[k] != tuple(y)][: count - 1]
        asked.append((x, 0, [y, *others]))
    return asked


def _loss(
    reference: str, rows: Words, alphabet: str | None, symbols: str | None, is_words: bool
) -> TransducerLoss:
    """Return the loss of a reference over its alphabet, widened by the symbols of the rows."""
    data = sorted({symbol for pair in rows for side in pair for symbol in side})
    if alphabet is not None or symbols is not None:
        text = symbols or ""
        abc = read_alphabet(alphabet) if alphabet else Alphabet(text.split() if is_words else text)
        return EditDistance(abc) if reference == "edit" else _found(reference, abc)
    if reference == "edit":
        return EditDistance(Alphabet(data))
    if _is_file(reference):
        return TransducerLoss.from_file(reference)
    grammar = Grammar.load(reference)
    own = list(grammar.alphabet or ())
    wide = Alphabet([*own, *(symbol for symbol in data if symbol not in set(own))])
    return grammar.loss(wide if grammar.takes_alphabet else grammar.alphabet)


def _found(reference: str, abc: Alphabet) -> TransducerLoss:
    if _is_file(reference):
        return TransducerLoss.from_file(reference, abc)
    return Grammar.load(reference).loss(abc)


def _ranked(
    found: LearnedCosts, rows: Words, path: str, count: int, is_words: bool
) -> LearnedCosts:
    """Return the costs after learning to rank, and say how much that helped."""
    dictionary = _dictionary(rows, path, is_words)
    known = found.pair_transducer.alphabet
    dictionary = [word for word in dictionary if all(symbol in known for symbol in word)]
    asked = _questions(rows, dictionary, count)
    better = fit_ranking(found, asked)
    questions = Questions.encode(known, asked)
    for name, cost in (("likelihood", found.cost), ("ranking", better.cost)):
        losses = losses_of(found.pair_transducer, questions.pairs, cost, "probability")
        measures = ranking(ranks(questions, losses))
        echo(f"costs by {name}: right word first {_cell(measures.at_1)} on the pairs learned from")
    return better


def _progress(start: int, iteration: int, value: float) -> None:
    """Show the steps on a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\rstart {start} step {iteration}: {value:.4f} nats a pair", err=True, nl=False)


def _report(found: CostFit, count: int) -> None:
    """Write the likelihoods before and after."""
    if sys.stderr.isatty():
        click.echo(err=True)
    mass = float(found.pairs.mass.sum())
    before, after = found.log_likelihood[0] / mass, found.log_likelihood[-1] / mass
    echo(
        f"{count:,} pairs, {len(found.log_likelihood) - 1} steps: log-likelihood of a pair "
        f"{before:.4f} -> {after:.4f} nats"
    )
    if found.held_out_log_likelihood:
        first, best = found.held_out_log_likelihood[0], max(found.held_out_log_likelihood)
        held = count - len(found.pairs)
        echo(f"held out, {held:,} pairs: {first / held:.4f} -> {best / held:.4f} nats")


@contextmanager
def _in_lines(path: str) -> Iterator[None]:
    """Turn the number of a pair in an error into the line of its file."""
    try:
        yield
    except FstgradError as error:
        found = re.match(r"pairs\[(\d+)\]", str(error))
        if found is None:
            raise
        raise RowError(f"{path}:{int(found[1]) + 1}: {error}") from error


def _changes(found: LearnedCosts) -> None:
    """Write the largest changes of costs."""
    echo("largest changes (cost before -> after, times seen)")
    for row in found.changes(_SHOWN):
        echo(f"  {row.name}: {row.was:.3f} -> {row.cost:.3f}, {row.times:.1f}")
