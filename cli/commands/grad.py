"""`fstgrad grad` and `risk`: the mean objective over a file of pairs, and its gradient."""

import hashlib
import json
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator

import click
import numpy as np

from fstgrad.cli.command import Command
from fstgrad.cli.commands.lattices import lattice_objective
from fstgrad.cli.output import echo, print_table, progress
from fstgrad.cli.pair_options import (
    WRITE_PAIRS,
    Estimation,
    LatticeOptions,
    ProblemOptions,
    Reading,
    RunOptions,
    check_constants,
    constant_options,
    lattice_options,
    method_options,
    pairs_argument,
    problem_options,
    running_options,
    skip_errors,
    unit_of,
)
from fstgrad.cli.parameter_types import gib_to_bytes, integer_from, output_npz
from fstgrad.cli.problem import Problem, format_qgram, largest_entries, open_problem
from fstgrad.cli.reading import report_failures, skip_or_raise
from fstgrad.cli.resume import Journal
from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import FstgradError
from fstgrad.core.estimates import RELIABLE
from fstgrad.io import Row, write_arrays
from fstgrad.learning.batch import Batch
from fstgrad.learning.objective import OBJECTIVE_KINDS, ObjectiveConstants, ObjectiveKind
from fstgrad.learning.outcomes import Item, Outcome, Sums


@click.command(
    cls=Command,
    examples=(
        WRITE_PAIRS,
        "fstgrad grad pairs.tsv --loss edit --order 2 -o gradient.npz",
        "fstgrad grad pairs.tsv --weights gradient.npz --objective risk --cap 3",
    ),
)
@pairs_argument
@click.option(
    "--objective",
    type=click.Choice(OBJECTIVE_KINDS),
    default="softmax-margin",
    show_default=True,
    help="softmax-margin; risk: the expected loss; crf: minus the log-likelihood, without a loss; "
    "hinge: the structured hinge; raml: reward-augmented maximum likelihood; direct: direct loss "
    "minimization.",
)
@constant_options
@problem_options
@method_options
@lattice_options
@output_npz
@click.option(
    "--top", type=integer_from(0), default=10, show_default=True, help="Number of entries shown."
)
@running_options
@skip_errors
def grad(
    pairs: str,
    objective: ObjectiveKind,
    constants: ObjectiveConstants,
    options: ProblemOptions,
    estimation: Estimation,
    lattices: LatticeOptions,
    output: str | None,
    top: int,
    running: RunOptions,
    skip_errors: bool,
) -> None:
    """Compute the mean objective over pairs, and its gradient with respect to the q-gram weights.

    PAIRS is a file of x TAB y (or CSV with a header, or FASTA), or - for standard input.  Standard
    output gets one JSON line per pair: the first as soon as it is done, the others in blocks of 16.
    Standard error shows the largest entries of the gradient.

    With --lattices, column 1 names a lattice, y is its target, and the gradient is with respect to
    the scores of the arcs of each lattice.
    """
    check_constants(objective)
    if lattices.source is not None:
        lattice_objective(pairs, objective, options, lattices, skip_errors, constants)
        return
    problem = open_problem(pairs, options, objective, estimation, constants)
    mean_gradient(problem, options.reading, output, top, running, skip_errors)


def mean_gradient(
    problem: Problem,
    reading: Reading,
    output: str | None,
    top: int,
    running: RunOptions,
    skip_errors: bool,
) -> None:
    """Write a line per pair, the mean gradient to `output`, and its `top` largest entries."""
    weights = problem.weights
    start = time.perf_counter()
    none = Sums(np.zeros_like(weights))
    journal = Journal(running.journal, _settings_digest(problem, reading), none)
    run = _RowsOfRun(journal, reading, skip_errors)
    memory = gib_to_bytes(running.cache_gib)
    with Batch(problem.objective, running.jobs, memory, running.cache) as batch:
        run.work(batch, weights, progress(problem.rows, "gradient"))
    sums = journal.sums
    value, gradient = sums.mean()
    if output is not None:
        write_arrays(
            output,
            gradient=gradient,
            weights=weights,
            symbols=problem.alphabet.symbols,
            objective=value,
            pairs=sums.done,
        )
    error = f" +- {np.sqrt(sums.variance) / sums.done:.2g}" if sums.variance else ""
    if sums.gap:
        error += f" (under the uncapped loss, up to {sums.gap / sums.done:.2g} more)"
    print_table(
        f"{problem.description}{_methods_used(problem, run)}: mean {value:.6f}{error}"
        f"{unit_of(problem.objective.kind)} over "
        f"{sums.done:,} pairs in {time.perf_counter() - start:.1f} s; the largest of "
        f"{gradient.size:,} entries",
        (f"{gradient.ndim}-gram", "gradient", "weight"),
        [
            (format_qgram(problem.alphabet, ids), f"{entry:+.6f}", f"{weights[ids]:+.4f}")
            for ids, entry in largest_entries(gradient, top)
        ],
    )


class _RowsOfRun:
    """One pass over the rows: writes their lines, and handles bad rows."""

    def __init__(self, journal: Journal, reading: Reading, skip_errors: bool) -> None:
        self.methods: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()  # why caps were not raised further
        self.unreliable, self.why = 0, ""
        self.effective: list[float] = []  # effective sample sizes below `RELIABLE`
        self._journal, self._reading, self._skip_errors = journal, reading, skip_errors
        self._rows: deque[Row] = deque()  # rows whose results are pending

    def work(self, batch: Batch, weights: FloatArray, rows: Iterable[Row]) -> None:
        """Write a line for each row, and add its sums to the journal.

        Raises
        ------
        RowError
            A row fails and errors are not skipped.
        FstgradError
            There is no row, or every row fails.
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
        report_failures(journal.sums.done, journal.sums.failed)
        if self.unreliable:
            few = (
                f"; {len(self.effective):,} have fewer than {RELIABLE:g} effective samples, the "
                f"least {min(self.effective):.1f}"
                if self.effective
                else ""
            )
            echo(
                f"fstgrad: {self.unreliable:,} estimates are not reliable{few} (too few effective "
                'samples, or a wide interval: "reliable" is false); raise --samples or shorten '
                "the strings, or use --method auto and raise --max-states or give --cap",
                err=True,
            )

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
                if outcome.method == "capped":
                    self.reasons.update([outcome.reason] if outcome.reason else [])
                if outcome.method == "sampled" and not self.why:
                    self.why = outcome.reason
                self.unreliable += not outcome.is_reliable
                if outcome.effective_samples < RELIABLE:
                    self.effective.append(outcome.effective_samples)
                lines.append(_json_line(row, outcome))
                continue
            if not self._skip_errors:
                self._journal.write(lines)
            skip_or_raise(row, outcome.error, self._skip_errors)
        self._journal.write(lines)


def _settings_digest(problem: Problem, reading: Reading) -> str:
    """Return a SHA-256 digest of everything that determines the results, except the rows."""
    function = problem.objective
    settings = (
        function.kind, function.cap, function.engine, function.max_states, function.method,
        function.samples, function.seed, function.tolerance, function.proposal, function.seconds,
        function.temperature, function.epsilon, function.prune, problem.alphabet.symbols,
        problem.weights.shape, function.loss and function.loss.fingerprint,
        reading.tokens_x, reading.tokens_y,
    )  # fmt: skip
    return hashlib.sha256(repr(settings).encode() + problem.weights.tobytes()).hexdigest()


def _json_line(row: Row, outcome: Outcome) -> str:
    line = {
        "line": row.line,
        "y": row.columns()[1],
        "objective": outcome.value,
        "log_z": _finite_or_none(outcome.log_partition),
        "states": outcome.states,
        "method": outcome.method,
        "seconds": round(outcome.seconds, 6),
    }
    if outcome.method == "sampled":
        line["standard_error"] = outcome.standard_error
        line["effective_samples"] = round(outcome.effective_samples, 1)
        line |= {"lower": _finite_or_none(outcome.lower), "upper": _finite_or_none(outcome.upper)}
        line |= {"proposal": outcome.proposal, "reliable": outcome.is_reliable}
    if outcome.method == "capped":
        line["cap"] = outcome.cap
    if outcome.method == "sampled" and outcome.reason:
        line["reason"] = outcome.reason
    elif outcome.reason:
        line |= {"lower": outcome.lower, "upper": outcome.upper, "reason": outcome.reason}
    return json.dumps(line, ensure_ascii=False)


def _finite_or_none(value: float) -> float | None:
    """Return a finite number; None for inf and NaN, which JSON lacks."""
    return value if np.isfinite(value) else None


def _methods_used(problem: Problem, run: _RowsOfRun) -> str:
    """Return a text: the methods that `auto` chose, and why; why caps were not raised further."""
    function, text = problem.objective, ""
    if function.method == "auto" and run.methods:
        why = f" ({run.why or f'exact exceeds {function.max_states:,} states'})"
        text = f" chose {_counts(run.methods)}{'' if set(run.methods) == {'exact'} else why}"
    return text + (f" (caps stopped by {_counts(run.reasons)})" if run.reasons else "")


def _counts(numbers: Counter[str]) -> str:
    return ", ".join(f"{name} for {number:,}" for name, number in numbers.items())


@click.command(
    cls=Command, examples=(WRITE_PAIRS, "fstgrad risk pairs.tsv --loss edit --random-weights 0")
)
@pairs_argument
@problem_options
@method_options
@lattice_options
@output_npz
@running_options
@skip_errors
def risk(
    pairs: str,
    options: ProblemOptions,
    estimation: Estimation,
    lattices: LatticeOptions,
    output: str | None,
    running: RunOptions,
    skip_errors: bool,
) -> None:
    """Compute the expected loss of the model against each target, and its gradient.

    PAIRS is a file of x TAB y (or CSV with a header, or FASTA), or - for standard input.  With
    --lattices, each row is the name of a lattice TAB its target.  Standard output gets one JSON
    line per row.  The lines of lattices appear one by one; the first line of pairs appears alone,
    and the others in blocks of 16.
    """
    if lattices.source is not None:
        lattice_objective(pairs, "risk", options, lattices, skip_errors)
    else:
        problem = open_problem(pairs, options, "risk", estimation)
        mean_gradient(problem, options.reading, output, 0, running, skip_errors)
