"""`fstgrad align`: learn from pairs which symbols of x produce which symbols of y."""

import click

from fstgrad.cli.examples import no_rows
from fstgrad.cli.grouping import Command
from fstgrad.cli.options import Reading, pairs_argument, reading_options
from fstgrad.cli.parameter_types import COUNT
from fstgrad.cli.text import echo
from fstgrad.core.errors import InvalidInputError
from fstgrad.io import read_pairs
from fstgrad.learning.align import NORMALIZATIONS, Aligned, Aligner


@click.command(cls=Command)
@pairs_argument
@click.option(
    "--max-x",
    type=COUNT,
    default=2,
    show_default=True,
    help="Maximum number of symbols of x on one link.",
)
@click.option(
    "--max-y",
    type=COUNT,
    default=2,
    show_default=True,
    help="Maximum number of symbols of y on one link.",
)
@click.option(
    "--no-empty-x", is_flag=True, help="Require a symbol of x on every link (no insertions)."
)
@click.option(
    "--no-empty-y", is_flag=True, help="Require a symbol of y on every link (no deletions)."
)
@click.option(
    "--normalization",
    type=click.Choice(NORMALIZATIONS),
    default="joint",
    show_default=True,
    help="Estimate p(u, v) over all links, or p(v | u) given the symbols u of x.",
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
@reading_options
def align(
    pairs: str,
    max_x: int,
    max_y: int,
    no_empty_x: bool,
    no_empty_y: bool,
    normalization: str,
    max_iter: int,
    with_posteriors: bool,
    reading: Reading,
) -> None:
    """Align PAIRS by expectation maximization, and print one line of links u:v per pair.

    A link u:v has the symbols of x before the colon and those of y after it, joined by "+"; "_"
    marks an empty side.  Standard error shows the mean log-likelihood (nats per pair) of each
    iteration.
    """
    if reading.alphabet is not None:
        raise InvalidInputError("--alphabet has no effect on align; leave it out")
    read = list(read_pairs(pairs, tokens_x=reading.tokens_x, tokens_y=reading.tokens_y))
    if not read:
        raise no_rows(pairs)
    aligner = Aligner(
        min(max_x, max(len(x) for x, _ in read)),
        min(max_y, max(len(y) for _, y in read)),
        empty_x=not no_empty_x,
        empty_y=not no_empty_y,
        normalization=normalization,
        max_iter=max_iter,
    ).fit(read)
    for i, value in enumerate(aligner.log_likelihood_, start=1):
        click.echo(f"iteration {i}: {value / len(read):.6f} nats per pair", err=True)
    for aligned in aligner.align_all(read):
        echo(_shown(aligned, posteriors=with_posteriors))


def _shown(aligned: Aligned, *, posteriors: bool) -> str:
    links = []
    for link, posterior in zip(aligned.links, aligned.posterior, strict=True):
        text = ":".join("+".join(side) or "_" for side in link)
        links.append(f"{text}:{posterior:.3f}" if posteriors else text)
    return " ".join(links)
