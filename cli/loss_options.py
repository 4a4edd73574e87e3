"""The options that name a loss and its parameters."""

import dataclasses

import click
from click.shell_completion import CompletionItem

from fstgrad.cli.border import (
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
from fstgrad.cli.grouping import group
from fstgrad.losses.matrices import MATRICES

FILE = Input(dash=True)
LOSS_NAMES = (
    "edit", "edit-factored", "osa", "lcs", "wer", "cer", "smith-waterman", "alignment", "ngram",
    "ngram-sum", "gappy", "mismatch", "hamming", "none",
)  # fmt: skip


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


_parameters = (
    click.option(
        "--loss",
        type=Reference(),
        default="edit",
        show_default=True,
        shell_complete=complete_loss,
        help=f"{', '.join(LOSS_NAMES[:-1])} or none; a grammar (fstgrad grammar list, "
        "PATH.py:BUILDER); a transducer in a file (x.far:NAME, x.fst, x.txt).",
    ),
    click.option(
        "--insert-cost",
        type=COST,
        help="Cost of an insertion, for edit*, osa, wer, cer, smith-waterman.  [default: 1]",
    ),
    click.option(
        "--delete-cost",
        type=COST,
        help="Cost of a deletion, for edit*, osa, wer, cer, smith-waterman.  [default: 1]",
    ),
    click.option(
        "--substitute-cost",
        type=COST,
        help="Cost of a substitution, for edit*, osa, wer, cer, hamming, smith-waterman.  "
        "[default: 1]",
    ),
    click.option(
        "--match-cost", type=Number(), help="Cost of a match, for smith-waterman.  [default: -2]"
    ),
    click.option(
        "--confusion",
        type=FILE,
        help="Table of substitution costs, for edit: rows a TAB b TAB cost, with a from the "
        "hypothesis and b from the target.",
    ),
    click.option(
        "--transpose-cost", type=COST, help="Cost of a transposition, for osa.  [default: 1]"
    ),
    click.option(
        "--matrix",
        type=Named(MATRICES, first=False),
        metavar="NAME|FILE",
        help=f"Substitution scores, for smith-waterman and alignment: {', '.join(MATRICES)}, or a "
        "file in the text format of NCBI.",
    ),
    click.option(
        "--gap-open",
        type=NOT_NEGATIVE,
        help="Cost of the first symbol of a gap, for smith-waterman and alignment.",
    ),
    click.option(
        "--gap-extend",
        type=NOT_NEGATIVE,
        help="Cost of each further symbol of a gap, for smith-waterman and alignment.  "
        "[default: --gap-open]",
    ),
    click.option(
        "--free-ends",
        type=click.Choice(["none", "y", "target", "both"]),
        help="Strings whose unaligned ends cost nothing, for alignment.  [default: none]",
    ),
    click.option(
        "--ngram-order",
        type=COUNT,
        help="Order n of the n-grams.  [default: ngram, gappy 2; mismatch 3; ngram-sum 4]",
    ),
    click.option(
        "--decay",
        type=POSITIVE,
        help="Weight of each symbol that an n-gram with gaps covers, for gappy.  [default: 0.5]",
    ),
    click.option(
        "--mismatches",
        type=whole(0),
        help="Number of symbols of an n-gram that may differ, for mismatch.  [default: 1]",
    ),
    click.option(
        "--smoothing",
        type=NOT_NEGATIVE,
        help="Number added to the count inside the logarithm, for n-gram kernels.  [default: 0]",
    ),
    click.option(
        "--log/--no-log",
        default=None,
        help="Whether the loss is -log of the count or minus the count, for n-gram kernels.  "
        "[default: log]",
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
