"""Build the rows, the weights and the objective of a pair from the options of a command."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import cast

import click
import numpy as np

from fstgrad.cli.command import reject_options
from fstgrad.cli.loss_options import build_loss
from fstgrad.cli.pair_options import (
    LOSS_PARAMETERS,
    NEED_LOSS,
    Estimation,
    ProblemOptions,
    WeightOptions,
    check_method_options,
)
from fstgrad.cli.reading import rows_and_alphabet
from fstgrad.cli.rescoring import SCALES, WORD_COSTS
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray, real_array
from fstgrad.core.errors import InvalidInputError, MemoryLimitError
from fstgrad.io import Row, memory_limit, read_weights
from fstgrad.learning.features import Features, QGramCounts
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
    _check_options(options, kind, estimation)
    given_weights, weights_alphabet = read_weights_option(options.model)
    rows, alphabet = rows_and_alphabet(pairs, options.reading, columns=(1,), known=weights_alphabet)
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
        prune=compilation.prune,
        **asdict(constants),
    )
    if estimation is not None:
        method = cast(Method | None, estimation.method)
        objective = replace(objective, **{**asdict(estimation), "method": method})
    weights = make_weights(options.model, given_weights, features)
    return Problem(rows, alphabet, weights, objective, _description(options, objective))


def _check_options(
    options: ProblemOptions, kind: ObjectiveKind, estimation: Estimation | None
) -> None:
    """Reject options that would have no effect."""
    for_lattices = ("posteriors", "gradients", "symbols", *SCALES, *WORD_COSTS)
    reject_options(for_lattices, "without --lattices")
    cap = options.compilation.cap
    if kind == "crf":
        reject_options((*LOSS_PARAMETERS, *NEED_LOSS), "with --objective crf, which uses no loss")
    elif options.choice.loss == "none":
        reject_options(NEED_LOSS, "with --loss none")
    elif estimation is not None:
        check_method_options(estimation, cap)
        if estimation.method not in ("sampled", "auto"):
            reject_options(("seed",), "without --method sampled or auto")
        if cap is not None and estimation.method != "auto":
            reject_options(("cache",), "with --cap, whose bounds are not cached")
        if options.compilation.prune is not None:
            reject_options(("cache",), "with --prune, whose automata are not cached")
    elif cap != "auto":
        reject_options(("tolerance",), "without --cap auto")


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
    if objective.prune is not None:
        exactness = f"pruned at {objective.prune:g}"
    elif objective.cap is None:
        exactness = "exact"
    elif isinstance(objective.cap, str):
        exactness = f"cap raised until within {objective.tolerance:g} nats"
    else:
        exactness = f"capped at {objective.cap:g}"
    return f"{objective.kind}, {options.choice.loss} loss, {exactness}"


BOUNDARY = "^"
MAX_AXES = 32  # of an array, in all versions of numpy


def read_weights_option(model: WeightOptions) -> tuple[FloatArray | None, Alphabet | None]:
    """Return the array of `--weights` and its alphabet; None for what the options lack.

    Raises
    ------
    click.UsageError
        --random-weights is given too.
    """
    if model.weights is None:
        return None, None
    if model.random_weights is not None:
        raise click.UsageError("--weights and --random-weights exclude each other; give one")
    return read_weights(model.weights)


def check_order(order: int, symbols: int) -> None:
    """Raise MemoryLimitError if a table of `symbols` ** `order` numbers is too large."""
    most = memory_limit() / 8
    if order * math.log(max(symbols, 1)) > math.log(most) or order >= MAX_AXES:
        raise MemoryLimitError(
            f"--order is {order}, and a table of all {order}-grams of {symbols} symbols is too "
            "large; give a smaller --order"
        )


def make_weights(
    model: WeightOptions, given_weights: FloatArray | None, features: Features
) -> FloatArray:
    """Return weights of the shape (n,) * q of the features: given, standard normal, or zero.

    Raises
    ------
    InvalidInputError
        The given weights have a different shape, or are not finite.
    """
    if given_weights is not None:
        try:
            return real_array("weights", given_weights, features.shape)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{model.weights}: {error} (order {model.order}, "
                f"{len(features.alphabet)} symbols); see --order and --alphabet"
            ) from error
    if model.random_weights is not None:
        return np.random.default_rng(model.random_weights).normal(size=features.shape)
    return np.zeros(features.shape)


def largest_entries(table: FloatArray, count: int) -> list[tuple[tuple[int, ...], float]]:
    """Return (indices, entry) of the `count` entries of largest absolute value, largest first.

    Entries that are equal to 12 decimals are in the order of their indices, so that every machine
    gives the same order.
    """
    order = np.argsort(-np.round(np.abs(table).ravel(), 12), kind="stable")[:count]
    return [
        (tuple(int(i) for i in np.unravel_index(k, table.shape)), float(table.flat[k]))
        for k in order
    ]


def format_qgram(alphabet: Alphabet, ids: Sequence[int]) -> str:
    """Return a q-gram as text; "^" is the position before the start."""
    symbols = [alphabet.symbols[i] if i < len(alphabet) else BOUNDARY for i in ids]
    return " ".join(symbols)
