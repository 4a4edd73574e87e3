"""`fstgrad grad`: the averaged gradient of an objective over a file of pairs."""

import json
import time

import click
import numpy as np

from fstgrad.cli.lattices import lattice_objective
from fstgrad.cli.options import (
    Lattices,
    ProblemOptions,
    lattice_options,
    output_npz,
    pairs_argument,
    problem_options,
    skip_errors,
)
from fstgrad.cli.pairs import RowLoop
from fstgrad.cli.problem import open_problem
from fstgrad.cli.report import largest, print_table, progress, qgram
from fstgrad.io import Row, write_arrays
from fstgrad.objective import KINDS, Kind, PairGradient


@click.command()
@pairs_argument
@click.option(
    "--objective",
    type=click.Choice(KINDS),
    default="softmax-margin",
    show_default=True,
    help="F of Eq. 1, the expected loss, or minus the log-likelihood (which takes no loss).",
)
@problem_options
@lattice_options
@output_npz
@click.option("--top", type=click.IntRange(0), default=10, show_default=True, help="Entries shown.")
@skip_errors
def grad(
    pairs: str,
    objective: Kind,
    options: ProblemOptions,
    lattices: Lattices,
    output: str | None,
    top: int,
    skip_errors: bool,
) -> None:
    """Gradient of the mean objective of the pairs in the weights of q-gram counts.

    PAIRS is a TSV file of x TAB y, or - for standard input.  One JSON line for each pair goes to
    standard output as soon as it is done; the largest entries of the gradient go to standard error.

    With --lattices column 1 is the name of a lattice and y its target; the gradient is in the
    scores of the arcs of each lattice.
    """
    if lattices.source is not None:
        lattice_objective(pairs, objective, options, lattices, skip_errors)
        return
    mean_gradient(pairs, objective, options, output, top, skip_errors)


def mean_gradient(
    pairs: str,
    objective: Kind,
    options: ProblemOptions,
    output: str | None,
    top: int,
    skip_errors: bool,
) -> None:
    """Write the objective of each pair, and the mean gradient."""
    problem = open_problem(pairs, options, objective)

    def of_row(row: Row) -> tuple[PairGradient, float]:
        begin = time.perf_counter()
        pair = row.pair(options.reading.tokens_x, options.reading.tokens_y)
        return problem.objective(problem.weights, *pair), time.perf_counter() - begin

    start = time.perf_counter()
    loop = RowLoop(of_row, skip_errors)
    value, gradient = 0.0, np.zeros_like(problem.weights)
    for row, result in loop.run(progress(problem.rows, "gradient")):
        if result is None:
            continue
        part, seconds = result
        value += part.value
        gradient += part.gradient
        click.echo(_json_line(row, part, seconds))
    value, gradient = value / loop.done, gradient / loop.done
    if output is not None:
        write_arrays(
            output,
            gradient=gradient,
            weights=problem.weights,
            symbols=problem.alphabet.symbols,
            objective=value,
            pairs=loop.done,
        )
    print_table(
        f"{problem.description}: mean {value:.6f} nats over {loop.done:,} pairs in "
        f"{time.perf_counter() - start:.1f} s; the largest of {gradient.size:,} entries",
        (f"{gradient.ndim}-gram", "gradient", "weight"),
        [
            (qgram(problem.alphabet, ids), f"{entry:+.6f}", f"{problem.weights[ids]:+.4f}")
            for ids, entry in largest(gradient, top)
        ],
    )


def _json_line(row: Row, part: PairGradient, seconds: float) -> str:
    line = {
        "line": row.line,
        "y": row.columns()[1],
        "objective": part.value,
        "log_z": part.log_partition,
        "states": part.states,
        "seconds": round(seconds, 6),
    }
    return json.dumps(line, ensure_ascii=False)
