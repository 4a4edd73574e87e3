"""`fstgrad train`: train a sequence model on a file of pairs."""

import dataclasses
import pathlib
from typing import Any, Literal

import click

from fstgrad.cli.command import Command, Decorator, option_group, reject_options
from fstgrad.cli.loss_options import LossChoice, build_loss, loss_options, plain_loss_name
from fstgrad.cli.model_files import describe_training, inputs_and_targets, open_model
from fstgrad.cli.output import echo
from fstgrad.cli.pair_options import (
    NEED_LOSS,
    TRAIN_MODEL,
    WRITE_WORDS,
    Estimation,
    ModelReading,
    Reading,
    cache_gib_option,
    cap_options,
    check_constants,
    check_method_options,
    constant_options,
    method_options,
    pairs_argument,
    reading_for_loss,
    reading_options,
)
from fstgrad.cli.parameter_types import (
    COUNT,
    FILE_OR_DASH,
    JOBS,
    NOT_NEGATIVE,
    POSITIVE,
    Input,
    Number,
    Output,
    gib_to_bytes,
    integer_from,
)
from fstgrad.cli.problem import check_order
from fstgrad.cli.reading import examples, note_alphabet, note_longer_symbols
from fstgrad.core.alphabet import Alphabet
from fstgrad.io import read_alphabet
from fstgrad.learning.objective import ESTIMABLE_KINDS, ObjectiveConstants
from fstgrad.learning.recipes import OBJECTIVES
from fstgrad.learning.sequence import SequenceModel
from fstgrad.learning.storage import check_curves_name, write_curves
from fstgrad.learning.trainer import OPTIMIZERS, Epoch
from fstgrad.losses import MAX_STATES

CAP = 3.0  # nats; the default cap of the edit distance
FLAT = (
    "--objective risk starts from zero weights, where a capped risk is nearly flat (most outputs "
    "are farther than --cap from their targets); use --objective crf-then-risk"
)


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """Settings of the model, with the names that they have in `SequenceModel`."""

    objective: str
    alignment: str | None
    order: int
    window: int
    span: int
    min_count: int
    l2: float | None
    cap: float | Literal["auto"] | None
    tolerance: float
    max_states: int


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """Settings of the training, with the names that they have in `SequenceModel`."""

    optimizer: str
    epochs: int | None
    batch_size: int
    learning_rate: float | None
    patience: int | None
    held_out: float


def _number(name: str, default: float, text: str, kind: Any = None) -> Decorator:
    kind = COUNT if kind is None else kind
    return click.option(name, type=kind, default=default, show_default=True, help=text)


model_options = option_group(
    "model",
    ModelSettings,
    click.option(
        "--objective",
        type=click.Choice(OBJECTIVES),
        default="crf",
        show_default=True,
        help="Training objective.",
    ),
    click.option(
        "--alignment",
        type=click.Choice(["auto", "em", "given", "none"]),
        default="auto",
        show_default=True,
        callback=lambda _context, _option, value: None if value == "none" else value,
        help="em: learn from the pairs which string of y each symbol of x produces.  given: y_s "
        "belongs to x_s.  none: y has the median length of the targets for inputs as long as x.  "
        "auto: given if x and y have the same length in all pairs, else em.",
    ),
    _number("--order", 2, "Order q of the model: it scores the q-grams of y."),
    _number(
        "--window", 3, "Number of symbols of x on each side of the current one.", integer_from(0)
    ),
    _number("--span", 3, "Maximum number of symbols of x in a feature."),
    _number("--min-count", 1, "Leave out features of x that occur less often."),
    click.option(
        "--l2",
        type=NOT_NEGATIVE,
        help="Weight of the penalty |w|^2 / 2, added to the mean objective of the pairs.  "
        "[default: 1e-4 for risk, else 3e-4; m / 10 times that if y has m > 10 symbols on average; "
        "crf with validation pairs has as many epochs again with 0.3 times it, unless --patience "
        "is given]",
    ),
    *cap_options,
    _number("--max-states", MAX_STATES, "Maximum number of states of a loss automaton."),
    heading="Model",
)

training_options = option_group(
    "training",
    TrainingSettings,
    click.option(
        "--optimizer",
        type=click.Choice(OPTIMIZERS),
        default="adam",
        show_default=True,
        help="Optimization algorithm.",
    ),
    click.option(
        "--epochs",
        type=COUNT,
        help="Passes over the pairs, in each part of the training (see --l2); iterations of "
        "lbfgs.  [default: 10 for risk, else 20]",
    ),
    _number("--batch-size", 16, "Pairs in one step of adam and sgd."),
    click.option(
        "--learning-rate",
        type=POSITIVE,
        help="Initial rate of adam and sgd.  [default: 0.03 for risk, else 0.1]",
    ),
    click.option(
        "--patience",
        type=COUNT,
        help="Stop after this many epochs without a gain on the validation pairs.  By default, all "
        "epochs are run, and the best one is kept.",
    ),
    click.option(
        "--held-out",
        type=Number(0, below=1),
        default=0.1,
        show_default=True,
        help="Without --validation, the share of the pairs that is held out, if there are at least "
        "50; pairs with the same x stay together.  They select the epoch and l2; training then "
        "continues on all pairs for a quarter of --epochs.",
    ),
    heading="Training",
)


@click.command(cls=Command, examples=(WRITE_WORDS, TRAIN_MODEL))
@pairs_argument
@model_options
@training_options
@constant_options
@loss_options
@method_options
@reading_options
@click.option("--validation", type=FILE_OR_DASH, help="Validation pairs, which select the epoch.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=Output(companions=(".checkpoint",)),
    help="Write the model to this file; until then OUTPUT.checkpoint holds the state of training.",
)
@click.option(
    "--plot",
    "curves",
    type=Output(),
    metavar="FILE.png|svg|json",
    help="Draw learning curves, and write their numbers to FILE.json.",
)
@_number("--jobs", 1, "Number of processes; the weights do not depend on it.", JOBS)
@cache_gib_option(1.0)
@click.option("--resume", is_flag=True, help="Continue from OUTPUT.checkpoint if it exists.")
@click.option(
    "--tags",
    type=COUNT,
    metavar="COLUMN",
    help="Number of the column of side symbols, such as the features of an inflected form.",
)
@click.option(
    "--decompose",
    type=click.Choice(["nfd"]),
    help="Decompose texts into canonical characters, such as Korean syllables into their letters; "
    "predictions are composed again.",
)
@click.option(
    "--warm-start",
    type=Input(),
    metavar="MODEL",
    help="Start from the weights and features of a model that was trained on the same pairs.",
)
def train(
    pairs: str,
    model: ModelSettings,
    training: TrainingSettings,
    constants: ObjectiveConstants,
    choice: LossChoice,
    estimation: Estimation,
    reading: Reading,
    validation: str | None,
    output: str,
    curves: str | None,
    jobs: int,
    cache_gib: float,
    resume: bool,
    tags: int | None,
    decompose: str | None,
    warm_start: str | None,
) -> None:
    """Train a sequence model and write it to a file.

    PAIRS is a file of x and y in TSV, CSV with a header, or FASTA; with --tags it also has a column
    of side symbols.  If x and y differ in length, they are aligned first, and predictions can have
    any length.  Without --cap and --method, the edit distance is capped at 3 nats, and softmax
    margins and risks of other losses use --method auto.  Risk alone learns little from zero
    weights: use crf-then-risk.  Standard error shows one line per epoch.
    """
    model, estimation = _with_default_bounds(model, estimation, choice)
    _check_options(model, training, choice, estimation, validation)
    reading = reading_for_loss(reading, choice, ("tokens_y",))
    reading = ModelReading(**dataclasses.asdict(reading), decompose=decompose)
    if curves is not None:
        check_curves_name(curves)
    read = list(examples(pairs, reading, tags))
    if reading.alphabet is None:
        alphabet = Alphabet.from_sequences(y for _, y in read)
        note_alphabet(alphabet)
    else:
        alphabet = read_alphabet(reading.alphabet)
        note_longer_symbols(alphabet, reading.tokens_y)
    check_order(model.order, len(alphabet))
    checkpoint = pathlib.Path(f"{output}.checkpoint")
    if checkpoint.exists() and not resume:
        echo(f"{checkpoint} of an unfinished training is replaced; --resume continues it", err=True)
    fitted = SequenceModel(
        plain_loss_name(choice) or build_loss(choice, alphabet),  # a model file keeps only a name
        **dataclasses.asdict(model),
        **dataclasses.asdict(training),
        **dataclasses.asdict(estimation),
        **dataclasses.asdict(constants),
        alphabet=alphabet,
        n_jobs=jobs,
        cache_bytes=gib_to_bytes(cache_gib),
        callbacks=(_print_epoch,),
        checkpoint=str(checkpoint),
    )
    if warm_start is not None:
        _start_from_model(fitted, warm_start)
    elif model.objective == "risk" and model.cap is not None:
        echo(FLAT, err=True)
    validating = None if validation is None else inputs_and_targets(validation, reading, tags)
    fitted.fit([x for x, _ in read], [y for _, y in read], validating, resume=resume)
    if fitted.left_out_:
        echo(
            f"{fitted.left_out_} of {len(read)} pairs were left out: their alignments explain y "
            "worse than the frequencies of its symbols do",
            err=True,
        )
    fitted.about_ = describe_training(choice, reading, tags, alphabet)
    fitted.save(output)
    for path in (checkpoint, pathlib.Path(f"{checkpoint}.crf")):
        path.unlink(missing_ok=True)
    if curves is not None:
        write_curves(fitted.history_, curves)


def _with_default_bounds(
    model: ModelSettings, estimation: Estimation, choice: LossChoice
) -> tuple[ModelSettings, Estimation]:
    """Return settings with a default cap or method, so that losses of long y need little memory."""
    has_loss = model.objective != "crf" and choice.loss != "none"
    if has_loss and model.cap is None and estimation.method is None:
        if choice.loss == "edit":
            return dataclasses.replace(model, cap=CAP), estimation
        if model.objective in (*ESTIMABLE_KINDS, "crf-then-risk"):
            return model, dataclasses.replace(estimation, method="auto")
    return model, estimation


def _start_from_model(fitted: SequenceModel, path: str) -> None:
    """Start `fitted` from the weights, features and alphabet of a trained model in a file."""
    reject_options(("order", "window", "span", "min_count", "alignment"), "with --warm-start")
    start, *_ = open_model(path)
    settings = {name: getattr(start, name) for name in ("order", "window", "span", "features")}
    fitted.set_params(warm_start=True, alignment=start.alignment, **settings)
    fitted.start_from(start)


def _check_options(
    model: ModelSettings,
    training: TrainingSettings,
    choice: LossChoice,
    estimation: Estimation,
    validation: str | None,
) -> None:
    """Reject options that would have no effect."""
    check_constants(model.objective)
    if validation is not None:
        reject_options(("held_out",), "with --validation")
    elif training.held_out == 0:
        reject_options(("patience",), "without validation pairs")
    if training.optimizer == "lbfgs":
        reject_options(("batch_size", "learning_rate"), "with --optimizer lbfgs")
    about_losses = tuple(name for name in NEED_LOSS if name != "seed")  # which also shuffles
    if model.objective == "crf":
        reject_options(about_losses, "with --objective crf, which uses no loss")
    elif choice.loss == "none":
        reject_options(about_losses, "with --loss none")
    else:
        check_method_options(estimation, model.cap)


def _print_epoch(epoch: Epoch) -> None:
    validation = "" if epoch.validation is None else f", validation {epoch.validation:.4f}"
    doubt = f", {epoch.unreliable} estimates not reliable" if epoch.unreliable else ""
    unit = "" if epoch.stage.startswith("risk") else " nats"  # a risk has the unit of the loss
    echo(
        f"epoch {epoch.epoch} ({epoch.stage}): objective {epoch.objective:.6f}{unit}, "
        f"gradient norm {epoch.gradient_norm:.3g}{validation}{doubt}, {epoch.seconds:.1f} s",
        err=True,
    )
