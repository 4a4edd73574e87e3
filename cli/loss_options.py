"""The options that name a loss and its parameters."""

import dataclasses
from typing import Any

import click
from click.shell_completion import CompletionItem

from fstgrad.cli.grouping import Decorator, group
from fstgrad.cli.loss_table import LOSS_NAMES, describe
from fstgrad.cli.parameter_types import (
    COST,
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    Input,
    Named,
    Number,
    Reference,
    whole,
)
from fstgrad.losses.matrices import MATRICES

FILE = Input(dash=True)
ENDS = ("none", "y", "target", "both")


@dataclasses.dataclass(frozen=True)
class LossChoice:
    """The name of a loss and its parameters; None for those that were not given.

    `matrix` and `confusion` are names or paths on a command line, and (n, n) numbers in a model
    file.
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


def complete_loss(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the files, losses and grammars whose names start with `incomplete`, for a shell."""
    from fstgrad.grammars import NAMES

    names = [name for name in (*LOSS_NAMES, *NAMES) if name.startswith(incomplete)]
    # the file comes first, because bash drops the items before it
    return [CompletionItem(incomplete, type="file"), *map(CompletionItem, names)]


def _parameter(
    flag: str,
    kind: Any,
    text: str,
    *,
    default: str = "",
    metavar: str | None = None,
) -> Decorator:
    """Return an option of losses; which ones, and its default, come from their constructors."""
    return click.option(
        f"--{flag}",
        type=kind,
        metavar=metavar,
        help=describe(flag.replace("-", "_"), text, default),
    )


_parameters = (
    click.option(
        "--loss",
        type=Reference(),
        default="edit",
        show_default=True,
        shell_complete=complete_loss,
        help=f"{', '.join(LOSS_NAMES[:-1])} or none; a grammar (a name that fstgrad grammar list "
        "shows, PATH.rules or PATH.py:BUILDER); a transducer in a file (x.far:NAME, x.fst, x.txt).",
    ),
    _parameter("insert-cost", COST, "Cost of an insertion"),
    _parameter("delete-cost", COST, "Cost of a deletion"),
    _parameter("substitute-cost", COST, "Cost of a substitution"),
    _parameter("match-cost", Number(), "Cost of a match"),
    _parameter(
        "confusion",
        FILE,
        "Table of substitution costs (rows a TAB b TAB cost, with a from the hypothesis and b from "
        "the target)",
    ),
    _parameter("transpose-cost", COST, "Cost of a transposition"),
    _parameter(
        "matrix",
        Named(MATRICES, first=False),
        f"Substitution scores ({', '.join(MATRICES)}, or a file in the text format of NCBI)",
        metavar="NAME|FILE",
    ),
    _parameter("gap-open", NOT_NEGATIVE, "Cost of the first symbol of a gap"),
    _parameter(
        "gap-extend", NOT_NEGATIVE, "Cost of each further symbol of a gap", default="--gap-open"
    ),
    _parameter("free-ends", click.Choice(ENDS), "Strings whose unaligned ends cost nothing"),
    _parameter("ngram-order", COUNT, "Order n of the n-grams"),
    _parameter("decay", POSITIVE, "Weight of each symbol that an n-gram with gaps covers"),
    _parameter("mismatches", whole(0), "Number of symbols of an n-gram that may differ"),
    _parameter("smoothing", NOT_NEGATIVE, "Number added to the count inside the logarithm"),
    click.option(
        "--log/--no-log",
        default=None,
        help=describe("log", "Whether the loss is -log of the count or minus the count"),
    ),
)
loss_options = group("choice", LossChoice, *_parameters, heading="Loss")
MODEL_LOSS = "model"
model_loss_options = group(
    "choice",
    LossChoice,
    click.option(
        "--loss",
        type=Reference(),
        default=MODEL_LOSS,
        show_default=True,
        shell_complete=complete_loss,
        help="model: the loss of the training.  A model contains rules (x.rules), but no other "
        "loss from a file: give such a loss again, as in fstgrad train.",
    ),
    *_parameters[1:],
    heading="Loss",
)
