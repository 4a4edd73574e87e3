"""`fstgrad compare`: the error rates of two models on the same pairs, with intervals."""

import json

import click

from fstgrad.cli.grouping import Command
from fstgrad.cli.models import columns, open_model
from fstgrad.cli.options import pairs_argument
from fstgrad.cli.parameter_types import COUNT, SEED, Input
from fstgrad.cli.text import echo
from fstgrad.core.errors import InvalidInputError
from fstgrad.learning.comparison import compare as compared


@click.command(cls=Command)
@click.argument("first", type=Input())
@click.argument("second", type=Input())
@pairs_argument
@click.option(
    "--resamples",
    type=COUNT,
    default=2000,
    show_default=True,
    help="Number of bootstrap resamples.",
)
@click.option(
    "--seed", type=SEED, default=0, show_default=True, help="Random seed of the bootstrap."
)
def compare(first: str, second: str, pairs: str, resamples: int, seed: int) -> None:
    """Compare two models, FIRST and SECOND, on PAIRS, and write one JSON line.

    word_error and symbol_error give [value, lower, upper] for each model, with a 95 percent
    bootstrap interval.  The differences are SECOND minus FIRST: a negative one favours SECOND.
    p_word and p_symbol are two-sided p-values of a paired bootstrap test of no difference.
    """
    models = [open_model(path) for path in (first, second)]
    if models[0][1:] != models[1][1:]:
        raise InvalidInputError(
            f"{first} and {second} read pairs in different ways (--tokens-x, --tokens-y, --tags); "
            "compare models that were trained on the same columns"
        )
    inputs, targets = columns(pairs, *models[0][1:])
    ours, theirs = ([list(y) for y in model.predict(inputs)] for model, *_ in models)
    result = compared(ours, theirs, targets, resamples=resamples, rng=seed)
    echo(json.dumps(result._asdict()))
