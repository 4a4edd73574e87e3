"""`fstgrad risk`: the expected loss, exact, of string pairs or lattices."""

import click

from fstgrad.cli.grad import mean_gradient
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


@click.command()
@pairs_argument
@problem_options
@lattice_options
@output_npz
@skip_errors
def risk(
    pairs: str,
    options: ProblemOptions,
    lattices: Lattices,
    output: str | None,
    skip_errors: bool,
) -> None:
    """Give the expected loss of the model against each target, and its gradient.

    PAIRS is a TSV file of x TAB y, or - for standard input; with --lattices, of the name of a
    lattice TAB its target.  One JSON line for each goes to standard output as soon as it is done.
    """
    if lattices.source is not None:
        lattice_objective(pairs, "risk", options, lattices, skip_errors)
    else:
        mean_gradient(pairs, "risk", options, output, 0, skip_errors)
