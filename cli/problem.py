"""Build the rows, the weights and the objective of a pair from the options of a command."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import cast

import click

from fstgrad.cli.losses import build_loss
from fstgrad.cli.option_checks import OF_LOSSES, PARAMETERS, check_estimation, without_effect
from fstgrad.cli.options import Estimation, ProblemOptions
from fstgrad.cli.pairs import rows_and_alphabet
from fstgrad.cli.report import announce_compilation
from fstgrad.cli.weights import check_order, make_weights, read_given
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray
from fstgrad.io import Row
from fstgrad.learning.features import QGramCounts
from fstgrad.learning.objective import (
    DEFAULT_CONSTANTS,
    Method,
    ObjectiveConstants,
    ObjectiveKind,
    PairObjective,
)
from fstgrad.losses import Engine


@dataclass(frozen=True)
class Problem:
    """Rows of pairs, the n symbols of y, and an objective in the weights of q-gram counts.

    weights : (n,) * q, log-weights in nats.
    """

    rows: Iterable[Row]
    alphabet: Alphabet
    weights: FloatArray
    objective: PairObjective
    description: str


def open_problem(
    pairs: str,
    options: ProblemOptions,
    kind: ObjectiveKind = "softmax-margin",
    estimation: Estimation | None = None,
    constants: ObjectiveConstants = DEFAULT_CONSTANTS,
) -> Problem:
    """Return the problem that a file of pairs and the options describe.

    Raises
    ------
    click.UsageError
        Options exclude each other, are missing, or would have no effect.
    FstgradError
        The alphabet or the weights are invalid.  Rows are checked only when they are computed.
    """
    _check_effects(options, kind, estimation)
    announce_compilation()
    given, known = read_given(options.model)
    rows, alphabet = rows_and_alphabet(pairs, options.reading, columns=(1,), known=known)
    loss = build_loss(options.choice, alphabet)
    if kind not in ("softmax-margin", "crf") and loss is None:
        raise click.UsageError(f"--objective {kind} needs a loss; give --loss")
    check_order(options.model.order, len(alphabet))
    features = QGramCounts(alphabet, options.model.order)
    compilation = options.compilation
    objective = PairObjective(
        features,
        loss,
        kind,
        compilation.cap,
        cast(Engine, compilation.engine),
        compilation.max_states,
        tolerance=compilation.tolerance,
        **asdict(constants),
    )
    if estimation is not None:
        method = cast(Method | None, estimation.method)
        objective = replace(objective, **{**asdict(estimation), "method": method})
    weights = make_weights(options.model, given, features)
    return Problem(rows, alphabet, weights, objective, _description(options, objective))


def _check_effects(
    options: ProblemOptions, kind: ObjectiveKind, estimation: Estimation | None
) -> None:
    """Reject options that would have no effect."""
    without_effect(("posteriors", "gradients"), "without --lattices")
    cap = options.compilation.cap
    if kind == "crf":
        without_effect((*PARAMETERS, *OF_LOSSES), "with --objective crf, which uses no loss")
    elif options.choice.loss == "none":
        without_effect(OF_LOSSES, "with --loss none")
    elif estimation is not None:
        check_estimation(estimation, cap)
        if estimation.method not in ("sampled", "auto"):
            without_effect(("seed",), "without --method sampled or auto")
        if cap is not None and estimation.method != "auto":
            without_effect(("cache",), "with --cap, whose bounds are not cached")
    elif cap != "auto":
        without_effect(("tolerance",), "without --cap auto")


def _description(options: ProblemOptions, objective: PairObjective) -> str:
    """Return a text: the objective, its loss, and whether it is exact, capped or sampled."""
    if objective.loss is None or objective.kind == "crf":
        return f"{objective.kind}, no loss"
    if objective.method == "sampled":
        return (
            f"{objective.kind}, {options.choice.loss} loss, {objective.samples:,} samples per pair"
        )
    if objective.method == "auto":
        return f"{objective.kind}, {options.choice.loss} loss, auto"
    if objective.cap is None:
        exactness = "exact"
    elif isinstance(objective.cap, str):
        exactness = f"cap raised until within {objective.tolerance:g} nats"
    else:
        exactness = f"capped at {objective.cap:g}"
    return f"{objective.kind}, {options.choice.loss} loss, {exactness}"
