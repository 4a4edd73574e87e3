"""`fstgrad evaluate`: accuracy, mean loss and error rate of a trained model."""

import json
import math

import click

from fstgrad.cli.options import pairs_argument
from fstgrad.cli.train import columns, open_model


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@pairs_argument
def evaluate(model: str, pairs: str) -> None:
    """Write the measures of a model on PAIRS as one JSON line.

    accuracy: share of predictions equal to y; loss: the mean of the loss it was trained with, null
    without one; error_rate: edit distances over symbols of y.
    """
    fitted, reading = open_model(model)
    result = fitted.evaluate(*columns(pairs, reading))
    finite = {k: v if math.isfinite(v) else None for k, v in result._asdict().items()}
    click.echo(json.dumps(finite))
