"""`fstgrad evaluate`: compute accuracy, mean loss and error rate of a trained model."""

import json
import math

import click

from fstgrad.cli.grouping import Command
from fstgrad.cli.loss_options import LossChoice, model_loss_options
from fstgrad.cli.models import columns, model_loss, open_model
from fstgrad.cli.options import pairs_argument
from fstgrad.cli.parameter_types import Input
from fstgrad.cli.text import echo
from fstgrad.learning import measures


@click.command(cls=Command)
@click.argument("model", type=Input())
@pairs_argument
@model_loss_options
@click.option(
    "--errors", is_flag=True, help="Print the most common symbol errors to standard error."
)
def evaluate(model: str, pairs: str, choice: LossChoice, errors: bool) -> None:
    """Write the measures of a model on PAIRS as one JSON line.

    accuracy: share of predictions equal to y; loss: mean loss, null without a loss; error_rate: sum
    of the edit distances divided by the number of symbols of y; unknown: number of pairs whose y
    has a symbol that the model never writes.  These pairs count as wrong, and the mean loss leaves
    them out.
    """
    fitted, reading, tags = open_model(model)
    if {"wer": "chars", "cer": "words"}.get(choice.loss) == reading.tokens_y:
        raise click.UsageError(
            f"--loss {choice.loss} does not count {reading.tokens_y}, which the model writes; use "
            f"--loss {'cer' if choice.loss == 'wer' else 'wer'}"
        )
    fitted.loss_ = model_loss(model, fitted, choice)
    inputs, targets = columns(pairs, reading, tags)
    result = fitted.evaluate(inputs, targets)
    if errors:
        echo(str(measures.errors(fitted.predict(inputs), targets)), err=True)
    finite = {k: v if math.isfinite(v) else None for k, v in result._asdict().items()}
    echo(json.dumps(finite))
