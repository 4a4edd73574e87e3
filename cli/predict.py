"""`fstgrad predict`: print the outputs of a trained model."""

from typing import Any

import click

from fstgrad.cli.examples import columns_of, composed, read_input
from fstgrad.cli.grouping import Command
from fstgrad.cli.loss_options import FILE
from fstgrad.cli.models import open_model
from fstgrad.cli.options import nbest_option
from fstgrad.cli.parameter_types import Input
from fstgrad.cli.text import echo
from fstgrad.io import located, read_rows
from fstgrad.learning.sequence import SequenceModel


@click.command(cls=Command)
@click.argument("model", type=Input())
@click.argument("input", type=FILE)
@nbest_option(
    "Write the K best outputs of every input, with log p(y | x) in nats as a third column.", None
)
def predict(model: str, input: str, nbest: int | None) -> None:
    """Write x TAB y for the most probable y of every x.

    INPUT is a file with one x per line, or - for standard input.  If the model was trained with
    tags, give them in a column on the same side of x as in training.  For an empty x, the output is
    an empty line.
    """
    fitted, reading, tags = open_model(model)
    separator = " " if reading.tokens_y == "words" else ""
    for row in read_rows(input):
        with located(row):
            texts = columns_of(row, ("x",), tags and min(tags, 2))  # the rows have no column y
            x = read_input(texts, reading)
            best = _best(fitted, x, nbest) if len(x) else []
        if not best:
            echo("")
        for y, probability in best:
            columns = [*texts.values(), composed(separator.join(y), reading)]
            if nbest is not None:
                columns.append(f"{probability:.6f}")
            echo("\t".join(columns))


def _best(fitted: SequenceModel, x: Any, nbest: int | None) -> list[tuple[Any, float]]:
    """Return the `nbest` best outputs with log p (nats); without `nbest`, the best one with 0."""
    return [(fitted.predict([x])[0], 0.0)] if nbest is None else fitted.predict_nbest([x], nbest)[0]
