"""`fstgrad marginals`: print the gradient terms Q of one pair."""

from itertools import islice

import click

from fstgrad import plot
from fstgrad.cli.grouping import Command
from fstgrad.cli.options import ProblemOptions, output_npz, pairs_argument, problem_options
from fstgrad.cli.parameter_types import COUNT, Output, whole
from fstgrad.cli.problem import open_problem
from fstgrad.cli.report import largest, qgram
from fstgrad.cli.text import echo
from fstgrad.core.errors import InvalidInputError
from fstgrad.io import located, write_arrays


@click.command(cls=Command)
@pairs_argument
@click.option(
    "--line", type=COUNT, default=1, show_default=True, help="Number of the pair, from 1."
)
@problem_options
@output_npz
@click.option("--top", type=whole(0), default=20, show_default=True, help="Number of rows shown.")
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
    for (position, *ids), probability in largest(table, top):
        echo(f"{position + 1}\t{qgram(problem.alphabet, ids)}\t{probability:.6g}")
