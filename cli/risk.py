"""`fstgrad risk`: compute the expected loss of string pairs or lattices."""

import click

from fstgrad.cli.grad import mean_gradient
from fstgrad.cli.grouping import Command
from fstgrad.cli.lattices import lattice_objective
from fstgrad.cli.options import (
    Estimation,
    Lattices,
    ProblemOptions,
    Running,
    lattice_options,
    method_options,
    output_npz,
    pairs_argument,
    problem_options,
    running_options,
    skip_errors,
)
from fstgrad.cli.problem import open_problem


@click.command(cls=Command)
@pairs_argument
@problem_options
@method_options
@lattice_options
@output_npz
@running_options
@skip_errors
def risk(
    pairs: str,
    options: ProblemOptions,
    estimation: Estimation,
    lattices: Lattices,
    output: str | None,
    running: Running,
    skip_errors: bool,
) -> None:
    """Compute the expected loss of the model against each target, and its gradient.

    PAIRS is a file of x TAB y (or CSV with a header, or FASTA), or - for standard input.  With
    --lattices, each row is the name of a lattice TAB its target.  Standard output gets one JSON
    line per row.  The lines of lattices appear one by one; the first line of pairs appears alone,
    and the others in blocks of 16.
    """
    if lattices.source is not None:
        lattice_objective(pairs, "risk", options, lattices, skip_errors)
    else:
        problem = open_problem(pairs, options, "risk", estimation)
        mean_gradient(problem, options.reading, output, 0, running, skip_errors)
