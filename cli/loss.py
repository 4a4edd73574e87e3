"""`fstgrad loss`: print the loss of column 1 against column 2."""

import math

import click

from fstgrad.cli.grouping import Command
from fstgrad.cli.loss_options import LossChoice, loss_options
from fstgrad.cli.loss_table import LOSSES
from fstgrad.cli.losses import build_loss
from fstgrad.cli.options import Reading, counted, pairs_argument, reading_options, skip_errors
from fstgrad.cli.pairs import RowLoop, rows_and_alphabet
from fstgrad.cli.report import progress
from fstgrad.cli.text import echo
from fstgrad.core.alphabet import Alphabet
from fstgrad.io import Row


@click.command(cls=Command)
@pairs_argument
@loss_options
@reading_options
@skip_errors
@click.option(
    "--align",
    is_flag=True,
    help="Show the best alignment below each loss.",
)
def loss(pairs: str, choice: LossChoice, reading: Reading, skip_errors: bool, align: bool) -> None:
    """Print the loss of column 1 (hypothesis) against column 2 (target), one number per line.

    PAIRS is TSV, CSV with a header or FASTA, or - for standard input.  A loss is in nats; it is inf
    if the transducer has no path, and nan for a row that --skip-errors skipped.

    With --align, three lines and an empty one follow each loss: the hypothesis y, the operations
    and the target.  The operations are . match, S substitute, D delete (a symbol of y), I insert (a
    symbol of the target), T transpose, and a blank outside a local alignment.
    """
    reading = counted(reading, choice, ("tokens_x", "tokens_y"))
    rows, alphabet = rows_and_alphabet(pairs, reading, columns=(0, 1))
    _check_tokens(choice, reading, alphabet)
    function = build_loss(choice, alphabet)

    def of_row(row: Row) -> str:
        y, target = row.pair(reading.tokens_x, reading.tokens_y)
        value = 0.0 if function is None else function(y, target)
        if not align or function is None or value == math.inf:
            return repr(value)
        return f"{value!r}\n{function.align(y, target)}\n"

    loop = RowLoop(of_row, skip_errors)
    for _, value in loop.run(progress(rows, "loss")):
        echo("nan" if value is None else value)


def _check_tokens(choice: LossChoice, reading: Reading, alphabet: Alphabet) -> None:
    """Raise UsageError if words would be compared with characters by a loss without their costs."""
    if reading.tokens_x == reading.tokens_y or choice.loss not in LOSSES:
        return
    word = next((symbol for symbol in alphabet if len(symbol) > 1), None)
    if word is not None and choice.confusion is None and choice.matrix is None:
        raise click.UsageError(
            f"--tokens-x {reading.tokens_x} and --tokens-y {reading.tokens_y} compare words such "
            f"as {word!r} with characters; give the same for both"
        )
