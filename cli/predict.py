"""`fstgrad predict`: the outputs of a trained model, line by line."""

import click

from fstgrad.cli.border import COUNT, Input
from fstgrad.cli.models import open_model
from fstgrad.cli.options import FILE
from fstgrad.cli.text import echo
from fstgrad.io import located, read_rows, tokenize


@click.command()
@click.argument("model", type=Input())
@click.argument("input", type=FILE)
@click.option(
    "--nbest",
    type=COUNT,
    metavar="K",
    help="The K best outputs of every input, with log p(y | x) in nats as a third column.",
)
def predict(model: str, input: str, nbest: int | None) -> None:
    """Write x TAB y for the most probable y of every x.

    INPUT has one x a line, or is - for standard input.
    """
    fitted, reading = open_model(model)
    separator = " " if reading.tokens_y == "words" else ""
    for row in read_rows(input):
        with located(row):
            (text,) = row.columns(("x",))
            best = fitted.predict_nbest([tokenize(text, reading.tokens_x)], nbest or 1)[0]
        for y, probability in best:
            columns = [text, separator.join(y)]
            if nbest is not None:
                columns.append(f"{probability:.6f}")
            echo("\t".join(columns))
