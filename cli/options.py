"""Options that commands share: a frozen dataclass for each group, filled by its decorator.

A command takes a group as one argument:

    @click.command()
    @reading_options
    def loss(reading: Reading) -> None: ...
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import click

from fstgrad.cli.border import (
    COST,
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    SEED,
    Input,
    Number,
    Output,
    whole,
)
from fstgrad.io import Tokens

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def group(name: str, record: type, *declarations: Decorator) -> Decorator:
    """Return a decorator that adds options to a command and hands them over as one `record`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def packed(**values: Any) -> Any:
            fields = {field.name: values.pop(field.name) for field in dataclasses.fields(record)}
            return command(**values, **{name: record(**fields)})

        made: Callable[..., Any] = packed
        for declaration in reversed(declarations):
            made = declaration(made)
        return made

    return decorate


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a file of pairs becomes symbols."""

    tokens_x: Tokens
    tokens_y: Tokens
    alphabet: str | None


@dataclasses.dataclass(frozen=True)
class LossChoice:
    """The name of a loss and the parameters that were given.

    `matrix` and `confusion` are paths on a command line; in a model file they are the (n, n)
    numbers.
    """

    loss: str
    insert_cost: float | None
    delete_cost: float | None
    substitute_cost: float | None
    match_cost: float | None
    transpose_cost: float | None
    matrix: str | list[list[float]] | None
    gap_open: float | None
    gap_extend: float | None
    free_ends: str | None
    confusion: str | list[list[float]] | None
    ngram_order: int | None
    decay: float | None
    mismatches: int | None
    smoothing: float | None
    log: bool | None


@dataclasses.dataclass(frozen=True)
class Compilation:
    """How a loss becomes an automaton."""

    cap: float | Literal["auto"] | None
    tolerance: float
    engine: str
    max_states: int


@dataclasses.dataclass(frozen=True)
class Estimation:
    """Exact, capped or sampled."""

    method: str | None
    samples: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Running:
    """How many processes, what is kept, where an earlier run is continued."""

    jobs: int
    cache: str | None
    resume: str | None


@dataclasses.dataclass(frozen=True)
class Weights:
    """Where the weights of the q-grams come from."""

    order: int
    weights: str | None
    random_weights: int | None


@dataclasses.dataclass(frozen=True)
class ProblemOptions:
    """All that makes an objective from a file of pairs."""

    choice: LossChoice
    compilation: Compilation
    model: Weights
    reading: Reading


@dataclasses.dataclass(frozen=True)
class Lattices:
    """Where lattices come from and what is written of them."""

    source: str | None
    posteriors: str | None
    gradients: str | None


def nats(text: str) -> float | Literal["auto"]:
    """Return a cap: a number, or "auto"."""
    if text == "auto":
        return "auto"
    number: float = NOT_NEGATIVE.convert(text, None, None)
    return number


FILE = Input(dash=True)
TOKENS = click.Choice(["chars", "words"])

pairs_argument = click.argument("pairs", type=FILE)

skip_errors = click.option(
    "--skip-errors", is_flag=True, help="Go on after a bad row, and count them."
)

output_npz = click.option(
    "-o",
    "--output",
    type=Output(),
    metavar="FILE.npz",
    help="Write the arrays and the symbol names here.",
)

reading_options = group(
    "reading",
    Reading,
    click.option(
        "--tokens-x",
        type=TOKENS,
        default="chars",
        show_default=True,
        help="Symbols of column 1: its characters, or its words.",
    ),
    click.option(
        "--tokens-y",
        type=TOKENS,
        default="chars",
        show_default=True,
        help="Symbols of column 2.",
    ),
    click.option(
        "--alphabet",
        type=FILE,
        help="One symbol a line.  [default: the symbols in the data]",
    ),
)

_parameters = (
    click.option(
        "--loss",
        default="edit",
        show_default=True,
        help="edit, edit-factored, osa, lcs, wer, cer, hamming, smith-waterman, alignment, ngram, "
        "ngram-sum, gappy, mismatch or none; a grammar (fstgrad grammar list, PATH.py:BUILDER); a "
        "transducer in a file (x.far:NAME, x.fst, x.txt).",
    ),
    click.option("--insert-cost", type=COST, help="edit*, osa, wer, cer, smith-waterman.  [1]"),
    click.option("--delete-cost", type=COST, help="edit*, osa, wer, cer, smith-waterman.  [1]"),
    click.option(
        "--substitute-cost",
        type=COST,
        help="edit*, osa, wer, cer, hamming, smith-waterman.  [1]",
    ),
    click.option("--match-cost", type=Number(), help="smith-waterman.  [default: -2]"),
    click.option(
        "--confusion",
        type=FILE,
        help="edit: rows a TAB b TAB cost, for a in the hypothesis and b in the target.",
    ),
    click.option("--transpose-cost", type=COST, help="osa.  [default: 1]"),
    click.option(
        "--matrix",
        type=Input(),
        help="smith-waterman, alignment: scores in NCBI text format, such as BLOSUM62.",
    ),
    click.option(
        "--gap-open",
        type=NOT_NEGATIVE,
        help="smith-waterman, alignment: cost of a gap's first symbol.",
    ),
    click.option(
        "--gap-extend",
        type=NOT_NEGATIVE,
        help="... and of each further one.  [default: --gap-open]",
    ),
    click.option(
        "--free-ends",
        type=click.Choice(["none", "y", "target", "both"]),
        help="alignment: whose ends may be left out for nothing.  [default: none]",
    ),
    click.option(
        "--ngram-order", type=COUNT, help="ngram, gappy: n.  [2] mismatch [3], ngram-sum [4]"
    ),
    click.option("--decay", type=POSITIVE, help="gappy: weight of a symbol of the stretch.  [0.5]"),
    click.option("--mismatches", type=whole(0), help="mismatch: symbols that may differ.  [1]"),
    click.option(
        "--smoothing",
        type=NOT_NEGATIVE,
        help="kernels: added to the count inside the logarithm.  [default: 0]",
    ),
    click.option(
        "--log/--no-log", default=None, help="kernels: -log of the count, or minus the count."
    ),
)
loss_options = group("choice", LossChoice, *_parameters)
MODEL_LOSS = "model"
model_loss_options = group(
    "choice",
    LossChoice,
    click.option(
        "--loss",
        default=MODEL_LOSS,
        show_default=True,
        help="model: what it was trained with.  A loss from a file of yours is not in the model: "
        "give it as in fstgrad train.",
    ),
    *_parameters[1:],
)

cap_options = (
    click.option(
        "--cap",
        type=nats,
        metavar="NATS|auto",
        help="Use min(loss, cap); auto: raised until --tolerance.  [default: exact]",
    ),
    click.option(
        "--tolerance",
        type=NOT_NEGATIVE,
        default=1e-3,
        show_default=True,
        help="Nats that a raised cap may leave to the value of the whole loss.",
    ),
)

compile_options = group(
    "compilation",
    Compilation,
    *cap_options,
    click.option(
        "--engine",
        type=click.Choice(["layered", "openfst"]),
        default="layered",
        show_default=True,
        help="openfst is the reference: slow, costs in float32.",
    ),
    click.option(
        "--max-states",
        type=COUNT,
        default=2_000_000,
        show_default=True,
        help="Stop a loss automaton here.",
    ),
)

method_options = group(
    "estimation",
    Estimation,
    click.option(
        "--method",
        type=click.Choice(["exact", "capped", "sampled", "auto"]),
        help="auto: the first of exact, capped (at --cap, or within --tolerance) and sampled that "
        "--max-states allows, for each pair.  [default: capped with --cap, else exact]",
    ),
    click.option(
        "--samples",
        type=whole(2),
        default=1000,
        show_default=True,
        help="sampled: strings drawn for each pair.",
    ),
    click.option("--seed", type=SEED, default=0, show_default=True, help="sampled: the draws."),
)

running_options = group(
    "running",
    Running,
    click.option(
        "--jobs",
        type=COUNT,
        default=1,
        show_default=True,
        help="Processes.  The results are the same for every number.",
    ),
    click.option(
        "--cache",
        type=click.Path(file_okay=False),
        metavar="FOLDER",
        help="Keep compiled losses here for later runs.",
    ),
    click.option(
        "--resume",
        type=Output(beside=(".npz",)),
        metavar="FILE.jsonl",
        help="Write the lines here, and go on where an earlier run on the same pairs stopped; "
        "FILE.jsonl.npz holds the sums so far.",
    ),
)

weight_options = group(
    "model",
    Weights,
    click.option(
        "--order",
        type=COUNT,
        default=2,
        show_default=True,
        help="q: the features count q-grams.",
    ),
    click.option(
        "--weights",
        type=Input(),
        metavar="FILE.npz",
        help="Array `weights`, one axis of n symbols for each symbol of a q-gram.  [default: 0]",
    ),
    click.option(
        "--random-weights",
        type=SEED,
        metavar="SEED",
        help="Independent standard normal weights.",
    ),
)

problem_options = group(
    "options", ProblemOptions, loss_options, compile_options, weight_options, reading_options
)

lattice_options = group(
    "lattices",
    Lattices,
    click.option(
        "--lattices",
        "source",
        type=Input(folders=True),
        metavar="FAR_OR_DIR",
        help="Acceptors by name, their weights costs; column 1 names one, column 2 is the target.",
    ),
    click.option(
        "--posteriors",
        type=Output(),
        metavar="FILE.far",
        help="With --lattices: write -log of the arc posteriors as FSTs.",
    ),
    click.option(
        "--gradients",
        type=Output(),
        metavar="FILE.far",
        help="With --lattices: write the gradient in the scores of the arcs as FSTs.",
    ),
)
