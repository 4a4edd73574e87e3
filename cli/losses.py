"""Build a loss from `--loss` and its parameters."""

import dataclasses
import difflib
import re
from collections.abc import Callable
from typing import Any

import click

from fstgrad.cli.loss_options import LossChoice
from fstgrad.cli.loss_table import ARGUMENTS, LOSSES, OF_FILES, REQUIRED
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.errors import InvalidInputError
from fstgrad.grammars import NAMES, Grammar
from fstgrad.io import read_confusion
from fstgrad.learning.data import NAMED
from fstgrad.losses import Loss, TransducerLoss
from fstgrad.openfst import is_fst_file

# option -> the options that it replaces
_REPLACED = {
    "matrix": ("match_cost", "substitute_cost"),
    "gap_open": ("insert_cost", "delete_cost"),
}


def build_loss(choice: LossChoice, alphabet: Alphabet) -> Loss | None:
    """Return the loss over an alphabet; None for the loss "none".

    Besides a name of `LOSSES`, the choice may be a grammar (its name, `PATH.rules`, `PATH.py` or
    `PATH.py:BUILDER`) or a transducer in a file (`x.far:NAME`, `x.fst`, or AT&T text in `x.txt`).

    Raises
    ------
    click.UsageError
        The name is unknown, a required parameter is missing, or a parameter has no effect.
    """
    name = choice.loss
    given = {
        option: value for option, value in dataclasses.asdict(choice).items() if value is not None
    }
    given.pop("loss")
    if name in LOSSES:
        constructor, arguments = LOSSES[name], ARGUMENTS[name]
        settings = _settings(name, given, arguments)
        lacking = [option for option in REQUIRED[name] if option not in given]
        if lacking:
            raise click.UsageError(f"the loss {name!r} needs {' and '.join(map(_flag, lacking))}")
        _check_replaced(given)
        if isinstance(settings.get("confusion"), str):
            settings["confusion"] = read_confusion(
                settings["confusion"],
                alphabet,
                substitute_cost=settings.pop("substitute_cost", 1.0),
            )
        return None if constructor is None else _made(constructor, alphabet, settings, arguments)
    if name in NAMES or name.endswith((".py", ".rules")) or ".py:" in name:
        _settings(name, given, {})
        return Grammar.load(name).loss(alphabet)
    if is_fst_file(name):
        loss = TransducerLoss.from_file(name, alphabet, **_settings(name, given, OF_FILES))
        if loss.semiring == "tropical":
            _settings(name, given, {})
        return loss
    names = [*LOSSES, *NAMES]
    near = difflib.get_close_matches(name, names) or names
    raise click.UsageError(
        f"no loss {name!r}; did you mean {', '.join(near)}? "
        "A file is x.far:NAME, x.fst, x.txt, x.rules or PATH.py:BUILDER"
    )


def named_loss(choice: LossChoice) -> str | None:
    """Return the name that `SequenceModel` has for a loss without parameters, or None."""
    name = choice.loss
    has_parameters = any(value is not None for value in dataclasses.astuple(choice)[1:])
    is_known = name in NAMED and NAMED[name] is LOSSES.get(name)
    return name if is_known and not has_parameters else None


def _settings(name: str, given: dict[str, Any], arguments: dict[str, str]) -> dict[str, Any]:
    """Return {argument of the loss: value} for the given options; reject other options."""
    for option in given:
        if option not in arguments:
            raise click.UsageError(f"the loss {name!r} has no {_flag(option)}; leave it out")
    return {arguments[option]: value for option, value in given.items()}


def _check_replaced(given: dict[str, Any]) -> None:
    """Reject costs that a matrix or gap costs replace."""
    for option, others in _REPLACED.items():
        for other in others:
            if option in given and other in given:
                raise click.UsageError(
                    f"{_flag(other)} has no effect with {_flag(option)}; leave it out"
                )


def _made(
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
