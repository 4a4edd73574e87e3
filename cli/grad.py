"""`fstgrad grad`: the averaged gradient of an objective over a file of pairs."""

import json
import time
from typing import cast

import click
import numpy as np

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
    skip_errors,
    weight_options,
)
from fstgrad.cli.pairs import RowLoop, rows_and_alphabet
from fstgrad.cli.report import largest, print_table, progress, qgram
from fstgrad.cli.weights import make_weights, read_given
from fstgrad.features import QGramCounts
from fstgrad.io import Row, write_arrays
from fstgrad.losses import Engine
from fstgrad.objective import KINDS, Kind, PairGradient, PairObjective


@click.command()
@pairs_argument
@click.option(
    "--objective",
    type=click.Choice(KINDS),
    default="softmax-margin",
    show_default=True,
    help="F of Eq. 1, the expected loss, or minus the log-likelihood (which takes no loss).",
)
@loss_options
@compile_options
@weight_options
@reading_options
@output_npz
@click.option("--top", type=click.IntRange(0), default=10, show_default=True, help="Entries shown.")
@skip_errors
def grad(
    pairs: str,
    objective: Kind,
    choice: LossChoice,
    compilation: Compilation,
    model: Weights,
    reading: Reading,
    output: str | None,
    top: int,
    skip_errors: bool,
) -> None:
    """Gradient of the mean objective of the pairs in the weights of q-gram counts.

    PAIRS is a TSV file of x TAB y, or - for standard input.  One JSON line for each pair goes to
    standard output as soon as it is done; the largest entries of the gradient go to standard error.
    """
    given, known = read_given(model)
    rows, alphabet = rows_and_alphabet(pairs, reading, columns=(1,), known=known)
    loss = build_loss(choice, alphabet)
    if objective == "risk" and loss is None:
        raise click.UsageError("--objective risk is the expected loss; give a --loss")
    features = QGramCounts(alphabet, model.order)
    weights = make_weights(model, given, features)
    function = PairObjective(
        features,
        loss,
        objective,
        compilation.cap,
        cast(Engine, compilation.engine),
        compilation.max_states,
    )

    def of_row(row: Row) -> tuple[PairGradient, float]:
        begin = time.perf_counter()
        part = function(weights, *row.pair(reading.tokens_x, reading.tokens_y))
        return part, time.perf_counter() - begin

    start = time.perf_counter()
    loop = RowLoop(of_row, skip_errors)
    value, gradient = 0.0, np.zeros(features.shape)
    for row, result in loop.run(progress(rows, "gradient")):
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
            weights=weights,
            symbols=alphabet.symbols,
            objective=value,
            pairs=loop.done,
        )
    print_table(
        f"{objective}, {_loss_name(choice, compilation, function)}: mean {value:.6f} nats over "
        f"{loop.done:,} pairs in {time.perf_counter() - start:.1f} s; largest of "
        f"{gradient.size:,} entries of the gradient",
        (f"{model.order}-gram", "gradient", "weight"),
        [
            (qgram(alphabet, ids), f"{entry:+.6f}", f"{weights[ids]:+.4f}")
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


def _loss_name(choice: LossChoice, compilation: Compilation, function: PairObjective) -> str:
    """Return the loss and whether it is exact or capped."""
    if function.loss is None or function.kind == "crf":
        return "no loss"
    exactness = "exact" if compilation.cap is None else f"capped at {compilation.cap:g}"
    return f"{choice.loss} loss, {exactness}"
