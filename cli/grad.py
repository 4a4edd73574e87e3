"""`fstgrad grad`: the averaged gradient of an objective over a file of pairs."""

import hashlib
import json
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import cast

import click
import numpy as np

from fstgrad.batch import Batch, Item, Outcome, Sums
from fstgrad.checks import FloatArray
from fstgrad.cli.journal import Journal
from fstgrad.cli.losses import build_loss
from fstgrad.cli.options import (
    Compilation,
    Estimation,
    LossChoice,
    Reading,
    Running,
    Weights,
    compile_options,
    loss_options,
    method_options,
    output_npz,
    pairs_argument,
    reading_options,
    running_options,
    skip_errors,
    weight_options,
)
from fstgrad.cli.pairs import rows_and_alphabet
from fstgrad.cli.report import largest, print_table, progress, qgram
from fstgrad.cli.weights import make_weights, read_given
from fstgrad.errors import FstgradError, RowError
from fstgrad.features import QGramCounts
from fstgrad.io import Row, write_arrays
from fstgrad.losses import Engine
from fstgrad.objective import KINDS, Kind, Method, PairObjective


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
@method_options
@weight_options
@reading_options
@output_npz
@click.option("--top", type=click.IntRange(0), default=10, show_default=True, help="Entries shown.")
@running_options
@skip_errors
def grad(
    pairs: str,
    objective: Kind,
    choice: LossChoice,
    compilation: Compilation,
    estimation: Estimation,
    model: Weights,
    reading: Reading,
    output: str | None,
    top: int,
    running: Running,
    skip_errors: bool,
) -> None:
    """Gradient of the mean objective of the pairs in the weights of q-gram counts.

    PAIRS is a TSV file of x TAB y, or - for standard input.  One JSON line for each pair goes to
    standard output as soon as its block of 16 is done; the largest entries of the gradient go to
    standard error.
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
        cast(Method | None, estimation.method),
        estimation.samples,
        estimation.seed,
    )
    start = time.perf_counter()
    journal = Journal(
        running.resume, _settings(function, weights, reading), Sums(np.zeros(features.shape))
    )
    run = _Run(journal, reading, skip_errors)
    with Batch(function, running.jobs, cache_directory=running.cache) as batch:
        run.work(batch, weights, progress(rows, "gradient"))
    sums = journal.sums
    value, gradient = sums.mean()
    if output is not None:
        write_arrays(
            output,
            gradient=gradient,
            weights=weights,
            symbols=alphabet.symbols,
            objective=value,
            pairs=sums.done,
        )
    error = f" +- {np.sqrt(sums.variance) / sums.done:.2g}" if sums.variance else ""
    print_table(
        f"{objective}, {_loss_name(choice, function, run.methods)}: mean {value:.6f}{error} nats "
        f"over {sums.done:,} pairs in {time.perf_counter() - start:.1f} s; largest of "
        f"{gradient.size:,} entries of the gradient",
        (f"{model.order}-gram", "gradient", "weight"),
        [
            (qgram(alphabet, ids), f"{entry:+.6f}", f"{weights[ids]:+.4f}")
            for ids, entry in largest(gradient, top)
        ],
    )


class _Run:
    """One pass over the rows: lines as they are done, one policy for bad rows."""

    def __init__(self, journal: Journal, reading: Reading, skip_errors: bool) -> None:
        self.methods: Counter[str] = Counter()
        self._journal, self._reading, self._skip_errors = journal, reading, skip_errors
        self._rows: deque[Row] = deque()  # those on the way to their results

    def work(self, batch: Batch, weights: FloatArray, rows: Iterable[Row]) -> None:
        """Write a line for each row and add up the sums in the journal.

        Raises
        ------
        RowError
            A row failed and errors are not skipped.
        FstgradError
            There is no row, or every row failed.
        """
        iterator = iter(rows)
        journal = self._journal
        try:
            journal.skip(iterator)
            for chunk in batch.chunks(weights, self._pairs(iterator), first=journal.rows):
                done = [self._rows.popleft() for _ in chunk.outcomes]
                self._write(done, chunk.outcomes)
                journal.commit(done, chunk.sums)
        finally:
            journal.close()
        _report_failures(journal.sums)

    def _pairs(self, rows: Iterator[Row]) -> Iterator[Item]:
        for row in rows:
            self._rows.append(row)
            try:
                yield row.pair(self._reading.tokens_x, self._reading.tokens_y)
            except FstgradError as error:
                yield error

    def _write(self, rows: list[Row], outcomes: tuple[Outcome, ...]) -> None:
        lines = []
        for row, outcome in zip(rows, outcomes, strict=True):
            if outcome.error is None:
                self.methods[outcome.method] += 1
                lines.append(_json_line(row, outcome))
            elif self._skip_errors:
                click.echo(f"fstgrad: {row.place}: {outcome.error}", err=True)
            else:
                self._journal.write(lines)
                raise RowError(f"{row.place}: {outcome.error}") from outcome.error
        self._journal.write(lines)


def _report_failures(sums: Sums) -> None:
    if not sums.done:
        raise FstgradError(f"all {sums.failed:,} rows failed" if sums.failed else "no rows")
    if sums.failed:
        total = sums.done + sums.failed
        click.echo(f"fstgrad: skipped {sums.failed:,} of {total:,} rows", err=True)


def _settings(function: PairObjective, weights: FloatArray, reading: Reading) -> str:
    """Return a digest of all that decides the results besides the rows."""
    loss = None if function.loss is None else function.loss.fingerprint
    settings = (
        function.kind, function.cap, function.engine, function.max_states, function.method,
        function.samples, function.seed, loss, function.features.alphabet.symbols, weights.shape,
        reading.tokens_x, reading.tokens_y,
    )  # fmt: skip
    return hashlib.sha256(repr(settings).encode() + weights.tobytes()).hexdigest()


def _json_line(row: Row, outcome: Outcome) -> str:
    line = {
        "line": row.line,
        "y": row.columns()[1],
        "objective": outcome.value,
        "log_z": outcome.log_partition,
        "states": outcome.states,
        "method": outcome.method,
        "seconds": round(outcome.seconds, 6),
    }
    if outcome.method == "sampled":
        line["standard_error"] = outcome.standard_error
        line["effective_samples"] = round(outcome.effective_samples, 1)
    return json.dumps(line, ensure_ascii=False)


def _loss_name(choice: LossChoice, function: PairObjective, methods: Counter[str]) -> str:
    """Return the loss and how it was computed; for `auto`, what it chose and why."""
    if function.loss is None or function.kind == "crf":
        return "no loss"
    if function.method == "auto":
        chosen = ", ".join(f"{number:,} {name}" for name, number in methods.items())
        why = "" if set(methods) <= {"exact"} else f": exact passes {function.max_states:,} states"
        return f"{choice.loss} loss, auto chose {chosen or 'nothing more'}{why}"
    if function.method == "sampled":
        return f"{choice.loss} loss, {function.samples:,} samples a pair"
    exactness = "exact" if function.cap is None else f"capped at {function.cap:g}"
    return f"{choice.loss} loss, {exactness}"
