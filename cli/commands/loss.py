"""`fstgrad loss`, `marginals` and `align`: what is printed about each pair, or about one."""

import dataclasses
import json
import math
import re
from itertools import islice

import click

from fstgrad import plot
from fstgrad.cli.command import Command, option_group, reject_options
from fstgrad.cli.loss_options import LOSSES, LossChoice, build_loss, loss_options
from fstgrad.cli.output import echo, progress
from fstgrad.cli.pair_options import (
    WRITE_PAIRS,
    WRITE_WORDS,
    ProblemOptions,
    Reading,
    pairs_argument,
    problem_options,
    reading_for_loss,
    reading_options,
    skip_errors,
)
from fstgrad.cli.parameter_types import COUNT, Output, integer_from, output_npz
from fstgrad.cli.problem import format_qgram, largest_entries, open_problem
from fstgrad.cli.reading import RowLoop, no_rows_error, rows_and_alphabet
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.io import Pair, Row, located, read_table, write_arrays
from fstgrad.learning.align import NORMALIZATIONS, Aligned, Aligner


@click.command(
    cls=Command,
    examples=(
        WRITE_PAIRS,
        "fstgrad loss pairs.tsv --align",
        r"printf 'K AE T\tK AA T S\n' | fstgrad loss - --tokens-x words --tokens-y words",
        r"printf '>a\nHEAGAWGHEE\n>b\nPAWHEAE\n' > ab.fasta",
        "fstgrad loss ab.fasta --loss smith-waterman --matrix BLOSUM62 --gap-open 11",
    ),
)
@pairs_argument
@loss_options
@reading_options
@skip_errors
@click.option(
    "--align",
    is_flag=True,
    help="Show the best alignment below each loss.",
)
def loss(pairs: str, choice: LossChoice, reading: Reading, skip_errors: bool, align: bool) -> None:
    """Print the loss of column 1 (hypothesis) against column 2 (target), one number per line.

    PAIRS is TSV, CSV with a header or FASTA, or - for standard input.  A loss is in nats; it is inf
    if the transducer has no path, and nan for a row that --skip-errors skipped.

    With --align, three lines and an empty one follow each loss: the hypothesis y, the operations
    and the target.  The operations are . match, S substitute, D delete (a symbol of y), I insert (a
    symbol of the target), T transpose, and a blank outside a local alignment.
    """
    reading = reading_for_loss(reading, choice, ("tokens_x", "tokens_y"))
    rows, alphabet = rows_and_alphabet(pairs, reading, columns=(0, 1))
    _check_tokens(choice, reading, alphabet)
    function = build_loss(choice, alphabet)

    def of_row(row: Row) -> str:
        y, target = row.pair(reading.tokens_x, reading.tokens_y)
        value = 0.0 if function is None else function(y, target)
        if not align or function is None or value == math.inf:
            return repr(value)
        return f"{value!r}\n{function.align(y, target)}\n"

    loop = RowLoop(of_row, skip_errors)
    for _, value in loop.run(progress(rows, "loss")):
        echo("nan" if value is None else value)


def _check_tokens(choice: LossChoice, reading: Reading, alphabet: Alphabet) -> None:
    """Raise UsageError if words would be compared with characters by a loss without their costs."""
    if reading.tokens_x == reading.tokens_y or choice.loss not in LOSSES:
        return
    word = next((symbol for symbol in alphabet if len(symbol) > 1), None)
    if word is not None and choice.confusion is None and choice.matrix is None:
        raise click.UsageError(
            f"--tokens-x {reading.tokens_x} and --tokens-y {reading.tokens_y} compare words such "
            f"as {word!r} with characters; give the same for both"
        )


@click.command(cls=Command, examples=(WRITE_PAIRS, "fstgrad marginals pairs.tsv --line 2 --top 5"))
@pairs_argument
@click.option(
    "--line", type=COUNT, default=1, show_default=True, help="Number of the pair, from 1."
)
@problem_options
@output_npz
@click.option(
    "--top", type=integer_from(0), default=20, show_default=True, help="Number of rows shown."
)
@click.option(
    "--plot",
    "picture",
    type=Output(),
    metavar="FILE.svg|png|pdf",
    help="Draw the table with the target marked (needs matplotlib).",
)
def marginals(
    pairs: str, line: int, options: ProblemOptions, output: str | None, top: int,
    picture: str | None,
) -> None:  # fmt: skip
    """Print the gradient terms Q(z, s) of one pair: the probability that q-gram z ends at s.

    The distribution is exp(loss + score) / Z; with --loss none it is exp(score) / Z.  Standard
    output shows the most probable entries, as position TAB q-gram TAB probability; positions count
    from 1, and ^ is the position before the start.  --output gets the whole array.
    """
    if picture is not None:
        plot.check_name(picture)
    problem = open_problem(pairs, options)
    row = next(islice(problem.rows, line - 1, None), None)
    if row is None:
        raise InvalidInputError(
            f"--line is {line}, but {pairs} has fewer pairs; give a smaller number"
        )
    with located(row):
        pair = row.pair(options.reading.tokens_x, options.reading.tokens_y)
        distribution = problem.objective.distribution(problem.weights, *pair)
        table = distribution.marginals()
        log_z = distribution.log_partition()
    if picture is not None:
        plot.save(plot.marginals(table, problem.alphabet, target=pair[1]), picture)
    if output is not None:
        write_arrays(
            output,
            marginals=table,
            log_z=log_z,
            weights=problem.weights,
            symbols=problem.alphabet.symbols,
        )
    echo("position\tqgram\tprobability")
    for (position, *ids), probability in largest_entries(table, top):
        echo(f"{position + 1}\t{format_qgram(problem.alphabet, ids)}\t{probability:.6g}")


@dataclasses.dataclass(frozen=True)
class LinkOptions:
    """The sizes of links: the largest number of symbols of either side, and whether it may be 0."""

    max_x: int
    max_y: int
    no_empty_x: bool
    no_empty_y: bool

    def check(self, pair: Pair) -> None:
        """Raise an error if a side is empty, or if no links divide the pair."""
        m, n = map(len, pair)
        for name, other, size, links, most, needs_other in (
            ("x", "y", m, n, self.max_x, self.no_empty_y),
            ("y", "x", n, m, self.max_y, self.no_empty_x),
        ):
            if size == 0:
                raise InvalidInputError(f"{name} is empty; give at least one symbol")
            if needs_other and size > most * links > 0:
                raise InfeasibleError(
                    f"{name} has {size} symbols and {other} has {links}, but a link has at most "
                    f"{most} of {name} and at least one of {other}; raise --max-{name} to "
                    f"{math.ceil(size / links)}, or leave out --no-empty-{other}"
                )


link_options = option_group(
    "links",
    LinkOptions,
    click.option(
        "--max-x",
        type=COUNT,
        default=2,
        show_default=True,
        help="Maximum number of symbols of x on one link.",
    ),
    click.option(
        "--max-y",
        type=COUNT,
        default=2,
        show_default=True,
        help="Maximum number of symbols of y on one link.",
    ),
    click.option(
        "--no-empty-x", is_flag=True, help="Require a symbol of x on every link (no insertions)."
    ),
    click.option(
        "--no-empty-y", is_flag=True, help="Require a symbol of y on every link (no deletions)."
    ),
    heading="Links",
)


@click.command(
    cls=Command,
    examples=(WRITE_WORDS, "fstgrad align words.tsv --tokens-y words --max-x 1 --with-posteriors"),
)
@pairs_argument
@link_options
@click.option(
    "--normalization",
    type=click.Choice(NORMALIZATIONS),
    default="joint",
    show_default=True,
    help="Estimate p(u, v) over all links, or p(v | u) given the symbols u of x.  Conditional "
    "probabilities do not sum to 1 over the ways to split x, so that log_probability may exceed 0.",
)
@click.option(
    "--max-iter",
    type=COUNT,
    default=20,
    show_default=True,
    help="Maximum number of training iterations.",
)
@click.option(
    "--with-posteriors",
    is_flag=True,
    help="Append the posterior probability of each link, as in u:v:0.980.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON lines with links, their posterior, and log_probability (nats).",
)
@skip_errors
@reading_options
def align(
    pairs: str,
    links: LinkOptions,
    normalization: str,
    max_iter: int,
    with_posteriors: bool,
    as_json: bool,
    skip_errors: bool,
    reading: Reading,
) -> None:
    """Align PAIRS by expectation maximization, and print one line of links u:v per pair.

    A link u:v has the symbols of x before the colon and those of y after it, joined by "+"; "_"
    marks an empty side.  Within a symbol, the characters : + _ % and white space are written as in
    URLs (%3A %2B %5F %25 %20), which urllib.parse.unquote reverses.  With --json, a line has
    "links": [[u, v], ...], lists of symbols.  The line of a row that --skip-errors skipped is empty
    or null.  Standard error shows the mean log-likelihood (nats per pair) of each iteration.
    """
    if reading.alphabet is not None:
        raise InvalidInputError("--alphabet has no effect on align; leave it out")
    if as_json:
        reject_options(("with_posteriors",), "with --json, which has them")

    rows = list(read_table(pairs))
    if not rows:
        raise no_rows_error(pairs)

    def of_row(row: Row) -> Pair:
        pair = row.pair(reading.tokens_x, reading.tokens_y)
        links.check(pair)
        return pair

    pair_of_row = [pair for _, pair in RowLoop(of_row, skip_errors).run(rows)]
    read = [pair for pair in pair_of_row if pair is not None]
    aligner = Aligner(
        min(links.max_x, max(len(x) for x, _ in read)),
        min(links.max_y, max(len(y) for _, y in read)),
        empty_x=not links.no_empty_x,
        empty_y=not links.no_empty_y,
        normalization=normalization,
        max_iter=max_iter,
    ).fit(read)
    for i, value in enumerate(aligner.log_likelihood_, start=1):
        click.echo(f"iteration {i}: {value / len(read):.6f} nats per pair", err=True)
    alignments = iter(aligner.align_all(read))
    for pair in pair_of_row:
        aligned = None if pair is None else next(alignments)
        echo(_json_links(aligned) if as_json else _format_links(aligned, with_posteriors))


def _json_links(aligned: Aligned | None) -> str:
    return json.dumps(aligned and aligned._asdict(), ensure_ascii=False)


def _format_links(aligned: Aligned | None, posteriors: bool) -> str:
    if aligned is None:
        return ""
    links = []
    for link, posterior in zip(aligned.links, aligned.posterior, strict=True):
        text = ":".join("+".join(map(_quoted, side)) or "_" for side in link)
        links.append(f"{text}:{posterior:.3f}" if posteriors else text)
    return " ".join(links)


def _quoted(symbol: str) -> str:
    """Return a symbol with the characters that separate links, and %, as %XX of their UTF-8."""
    return re.sub(
        r"[\s:+_%]", lambda found: "".join(f"%{b:02X}" for b in found[0].encode()), symbol
    )
