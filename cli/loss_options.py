"""The option `--loss`, the parameters of losses, and the loss that they name.

Which losses have a parameter, and its default, come from the signatures of the constructors.
"""

import dataclasses
import difflib
import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import click
from click.shell_completion import CompletionItem

from fstgrad.cli.command import Decorator, option_group
from fstgrad.cli.parameter_types import (
    COST,
    COUNT,
    FILE_OR_DASH,
    NOT_NEGATIVE,
    POSITIVE,
    NameOrFile,
    NameOrFileEntry,
    Number,
    integer_from,
)
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.errors import InvalidInputError
from fstgrad.grammars import NAMES, Grammar
from fstgrad.io import read_confusion
from fstgrad.losses import EditDistance, Loss, TransducerLoss
from fstgrad.losses.matrices import MATRICES
from fstgrad.losses.names import LOSS_NAMES, NEED_ARGUMENTS
from fstgrad.openfst import is_fst_file

LOSSES: dict[str, Callable[..., Loss] | None] = {
    "edit": EditDistance,
    "edit-factored": partial(EditDistance, factored=True, confusion=None),
    **LOSS_NAMES,
    "none": None,
}
# argument of a constructor -> option of another name
_OPTION_OF_ARGUMENT = {
    "match": "match_cost",
    "substitute": "substitute_cost",
    "insert": "insert_cost",
    "delete": "delete_cost",
    "cost": "substitute_cost",
    "order": "ngram_order",
    "max_order": "ngram_order",
}
_ONLY_IN_PYTHON = ("alphabet", "factored", "weights")


def _constructor_options(name: str) -> dict[str, inspect.Parameter]:
    """Return {option: parameter of the constructor} of a loss."""
    constructor = LOSSES[name]
    if constructor is None:
        return {}
    fixed = (*_ONLY_IN_PYTHON, *getattr(constructor, "keywords", {}))
    parameters = inspect.signature(constructor).parameters
    return {
        _OPTION_OF_ARGUMENT.get(argument, argument): parameter
        for argument, parameter in parameters.items()
        if argument not in fixed
    }


_OPTIONS_OF_LOSS = {name: _constructor_options(name) for name in LOSSES}
# name -> {option: argument of the constructor}
ARGUMENTS = {
    name: {option: parameter.name for option, parameter in parameters.items()}
    for name, parameters in _OPTIONS_OF_LOSS.items()
}
# name -> the options without a default
REQUIRED = {
    name: tuple(
        option for option, parameter in parameters.items() if parameter.default is parameter.empty
    )
    for name, parameters in _OPTIONS_OF_LOSS.items()
}
# options of transducers in files, which are arguments of the same name
FILE_OPTIONS = {"smoothing": "smoothing", "log": "log"}
_WEIGHTED_FILES = "transducers in files with arc type log or log64 (the probability semiring)"


def describe_option(option: str, text: str, default: str = "") -> str:
    """Return the help of an option: the text, the losses that have the option, and its default.

    Without `default`, it is that of the constructors, each with its losses if they differ.
    """
    names = [name for name, options in _OPTIONS_OF_LOSS.items() if option in options]
    *others, last = [*names, _WEIGHTED_FILES] if option in FILE_OPTIONS else names
    losses = f"{', '.join(others)} and {last}" if others else last
    default = default or _default_text(option, names)
    return f"{text}, for {losses}." + (f"  [default: {default}]" if default else "")


def _default_text(option: str, names: list[str]) -> str:
    """Return the default of an option as a text; "" if no loss has one."""
    losses_of_default: dict[str, list[str]] = {}
    for name in names:
        value = _OPTIONS_OF_LOSS[name][option].default
        if value is not None and value is not inspect.Parameter.empty:
            losses_of_default.setdefault(_format_default(option, value), []).append(name)
    if len(losses_of_default) == 1:
        return next(iter(losses_of_default))
    return "; ".join(f"{', '.join(losses)} {value}" for value, losses in losses_of_default.items())


def _format_default(option: str, value: Any) -> str:
    if isinstance(value, bool):
        return option if value else f"no-{option}"
    return value if isinstance(value, str) else f"{value:g}"


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
    names = [name for name in (*LOSSES, *NAMES) if name.startswith(incomplete)]
    # the file comes first, because bash drops the items before it
    return [CompletionItem(incomplete, type="file"), *map(CompletionItem, names)]


def _loss_parameter(
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
        help=describe_option(flag.replace("-", "_"), text, default),
    )


_parameter_options = (
    click.option(
        "--loss",
        type=NameOrFileEntry(),
        default="edit",
        show_default=True,
        shell_complete=complete_loss,
        help=f"{', '.join(list(LOSSES)[:-1])} or none; a grammar (a name that fstgrad grammar list "
        "shows, PATH.rules or PATH.py:BUILDER); a transducer in a file (x.far:NAME, x.fst, x.txt).",
    ),
    _loss_parameter("insert-cost", COST, "Cost of a symbol that only the target has"),
    _loss_parameter("delete-cost", COST, "Cost of a symbol that only the hypothesis has"),
    _loss_parameter("substitute-cost", COST, "Cost of a substitution"),
    _loss_parameter("match-cost", Number(), "Cost of a match"),
    _loss_parameter(
        "confusion",
        FILE_OR_DASH,
        "Table of substitution costs (rows a TAB b TAB cost, with a from the hypothesis and b from "
        "the target)",
    ),
    _loss_parameter("transpose-cost", COST, "Cost of a transposition"),
    _loss_parameter(
        "matrix",
        NameOrFile(MATRICES, first=False),
        f"Substitution scores ({', '.join(MATRICES)}, or a file in the text format of NCBI)",
        metavar="NAME|FILE",
    ),
    _loss_parameter("gap-open", NOT_NEGATIVE, "Cost of the first symbol of a gap"),
    _loss_parameter(
        "gap-extend", NOT_NEGATIVE, "Cost of each further symbol of a gap", default="--gap-open"
    ),
    _loss_parameter("free-ends", click.Choice(ENDS), "Strings whose unaligned ends cost nothing"),
    _loss_parameter("ngram-order", COUNT, "Order n of the n-grams"),
    _loss_parameter("decay", POSITIVE, "Weight of each symbol that an n-gram with gaps covers"),
    _loss_parameter(
        "mismatches", integer_from(0), "Number of symbols of an n-gram that may differ"
    ),
    _loss_parameter("smoothing", NOT_NEGATIVE, "Number added to the count inside the logarithm"),
    click.option(
        "--log/--no-log",
        default=None,
        help=describe_option("log", "Whether the loss is -log of the count or minus the count"),
    ),
)
loss_options = option_group("choice", LossChoice, *_parameter_options, heading="Loss")
MODEL_LOSS = "model"
model_loss_options = option_group(
    "choice",
    LossChoice,
    click.option(
        "--loss",
        type=NameOrFileEntry(),
        default=MODEL_LOSS,
        show_default=True,
        shell_complete=complete_loss,
        help="model: the loss of the training.  A model contains rules (x.rules), but no other "
        "loss from a file: give such a loss again, as in fstgrad train.",
    ),
    *_parameter_options[1:],
    heading="Loss",
)
score_loss_options = option_group(
    "choice",
    LossChoice,
    click.option(
        "--loss",
        type=NameOrFileEntry(),
        default="wer",
        show_default=True,
        shell_complete=complete_loss,
        help="wer counts words and cer characters; any other loss, as in fstgrad loss, adds the "
        "mean loss per pair.",
    ),
    *_parameter_options[1:],
    heading="Loss",
)


# option -> the options that it replaces
_REPLACES = {
    "matrix": ("match_cost", "substitute_cost"),
    "gap_open": ("insert_cost", "delete_cost"),
}


def build_loss(
    choice: LossChoice, alphabet: Alphabet, change: Callable[[str], str] = str
) -> Loss | None:
    """Return the loss over an alphabet; None for the loss "none".

    `change` is applied to the symbols of a confusion table.

    Besides a name of `LOSSES`, the choice may be a grammar (its name, `PATH.rules`, `PATH.py` or
    `PATH.py:BUILDER`) or a transducer in a file (`x.far:NAME`, `x.fst`, or AT&T text in `x.txt`).

    Raises
    ------
    click.UsageError
        The name is unknown, a required parameter is missing, or a parameter has no effect.
    """
    name = choice.loss
    parameters = {
        option: value for option, value in dataclasses.asdict(choice).items() if value is not None
    }
    parameters.pop("loss")
    if name in LOSSES:
        constructor, arguments = LOSSES[name], ARGUMENTS[name]
        settings = _constructor_arguments(name, parameters, arguments)
        missing = [option for option in REQUIRED[name] if option not in parameters]
        if missing:
            raise click.UsageError(f"the loss {name!r} needs {' and '.join(map(_flag, missing))}")
        _check_replaced(parameters)
        if isinstance(settings.get("confusion"), str):
            settings["confusion"] = read_confusion(
                settings["confusion"],
                alphabet,
                substitute_cost=settings.pop("substitute_cost", 1.0),
                change=change,
            )
        return (
            None if constructor is None else _construct(constructor, alphabet, settings, arguments)
        )
    if name in NAMES or name.endswith((".py", ".rules")) or ".py:" in name:
        _constructor_arguments(name, parameters, {})
        return Grammar.load(name).loss(alphabet)
    if is_fst_file(name):
        loss = TransducerLoss.from_file(
            name, alphabet, **_constructor_arguments(name, parameters, FILE_OPTIONS)
        )
        if loss.semiring == "tropical":
            _constructor_arguments(name, parameters, {})
        return loss
    if name.endswith(".tsv"):
        raise click.UsageError(
            f"no loss {name!r}; a table of learned costs is for fstgrad.costs.with_costs in "
            "Python, and the command line takes x.far or x.fst, which fstgrad grammar fit writes"
        )
    names = [*LOSSES, *NAMES]
    near = difflib.get_close_matches(name, names) or names
    raise click.UsageError(
        f"no loss {name!r}; did you mean {', '.join(near)}? "
        "A file is x.far:NAME, x.fst, x.txt, x.rules or PATH.py:BUILDER"
    )


def plain_loss_name(choice: LossChoice) -> str | None:
    """Return the name that `SequenceModel` has for a loss without parameters, or None."""
    name = choice.loss
    has_parameters = any(value is not None for value in dataclasses.astuple(choice)[1:])
    is_known = name in LOSS_NAMES and name not in NEED_ARGUMENTS
    return name if is_known and not has_parameters else None


def _constructor_arguments(
    name: str, parameters: dict[str, Any], arguments: dict[str, str]
) -> dict[str, Any]:
    """Return {argument of the loss: value} for the given options; reject other options."""
    for option in parameters:
        if option not in arguments:
            raise click.UsageError(f"the loss {name!r} has no {_flag(option)}; leave it out")
    return {arguments[option]: value for option, value in parameters.items()}


def _check_replaced(parameters: dict[str, Any]) -> None:
    """Reject costs that a matrix or gap costs replace."""
    for option, replaced in _REPLACES.items():
        for other in replaced:
            if option in parameters and other in parameters:
                raise click.UsageError(
                    f"{_flag(other)} has no effect with {_flag(option)}; leave it out"
                )


def _construct(
    constructor: Callable[..., Loss],
    alphabet: Alphabet,
    settings: dict[str, Any],
    arguments: dict[str, str],
) -> Loss:
    """Return the loss; errors name the option instead of the argument."""
    try:
        return constructor(alphabet, **settings)
    except InvalidInputError as error:
        text = str(error)
        for option, argument in arguments.items():
            text = re.sub(rf"^{argument}(?= is )", _flag(option), text)
        raise InvalidInputError(text) from error


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")
