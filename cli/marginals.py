"""`fstgrad marginals`: the gradient terms Q of one pair."""

from itertools import islice
from typing import cast

import click

from fstgrad.cli.losses import build_loss
from fstgrad.cli.options import (
    Compilation,
    LossChoice,
    Reading,
    Weights,
    compile_options,
    loss_options,
    output_npz,
    pairs_argument,
    reading_options,
    weight_options,
)
from fstgrad.cli.pairs import rows_and_alphabet
from fstgrad.cli.report import largest, qgram
from fstgrad.cli.weights import make_weights, read_given
from fstgrad.errors import InvalidInputError
from fstgrad.features import QGramCounts
from fstgrad.io import located, write_arrays
from fstgrad.losses import Engine
from fstgrad.objective import PairObjective
from fstgrad.strings import StringDistribution


@click.command()
@pairs_argument
@click.option(
    "--line", type=click.IntRange(1), default=1, show_default=True, help="The line of the pair."
)
@loss_options
@compile_options
@weight_options
@reading_options
@output_npz
@click.option(
    "--top", type=click.IntRange(0), default=20, show_default=True, help="Rows of the table."
)
def marginals(
    pairs: str,
    line: int,
    choice: LossChoice,
    compilation: Compilation,
    model: Weights,
    reading: Reading,
    output: str | None,
    top: int,
) -> None:
    """Gradient terms Q(z, s) of one pair: the probability that the q-gram z ends at position s.

    The distribution is exp(loss + score) / Z; with --loss none it is exp(score) / Z.  The most
    probable entries go to standard output (position TAB q-gram TAB probability; positions count
    from 1, ^ stands before the start), the whole array to --output.
    """
    given, known = read_given(model)
    rows, alphabet = rows_and_alphabet(pairs, reading, columns=(1,), known=known)
    row = next(islice(rows, line - 1, None), None)
    if row is None:
        raise InvalidInputError(f"{pairs}: there is no line {line}")
    features = QGramCounts(alphabet, model.order)
    weights = make_weights(model, given, features)
    function = PairObjective(
        features,
        build_loss(choice, alphabet),
        cap=compilation.cap,
        engine=cast(Engine, compilation.engine),
        max_states=compilation.max_states,
    )
    with located(row):
        x, y = row.pair(reading.tokens_x, reading.tokens_y)
        distribution = StringDistribution(
            features.scores(weights, x, len(y)), function.automaton(alphabet.encode(y, name="y"))
        )
        table = distribution.marginals()
        log_z = distribution.log_partition()
    if output is not None:
        write_arrays(
            output, marginals=table, log_z=log_z, weights=weights, symbols=alphabet.symbols
        )
    click.echo("position\tqgram\tprobability")
    for (position, *ids), probability in largest(table, top):
        click.echo(f"{position + 1}\t{qgram(alphabet, ids)}\t{probability:.6g}")
