"""An option that would be ignored is an error."""

from collections.abc import Sequence
from dataclasses import fields

import click
from click.core import ParameterSource

from fstgrad.cli.loss_options import LossChoice
from fstgrad.cli.options import Estimation

# what is about a loss, and means nothing without one
OF_LOSSES = (
    "cap",
    "tolerance",
    "engine",
    "max_states",
    "method",
    "samples",
    "seed",
    "proposal",
    "seconds",
    "cache",
    "cache_memory",
)


# what makes a loss, by the fields of `LossChoice`
PARAMETERS = tuple(field.name for field in fields(LossChoice))


def was_given(name: str) -> bool:
    """Whether the option of this parameter is on the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def without_effect(names: Sequence[str], reason: str) -> None:
    """Raise for the first of these parameters that was given.

    Raises
    ------
    click.UsageError
        It has no effect, and why.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and was_given(parameter.name):
            flag = max(parameter.opts, key=len)
            raise click.UsageError(f"{flag} has no effect {reason}; leave it out")


def check_estimation(estimation: Estimation, cap: object) -> None:
    """Refuse options of a method that is not taken.

    Raises
    ------
    click.UsageError
        As said.
    """
    if estimation.method not in ("sampled", "auto"):
        without_effect(("samples", "proposal"), "without --method sampled or auto")
    if estimation.method != "auto":
        without_effect(("seconds",), "without --method auto")
    if cap != "auto" and estimation.method != "auto":
        without_effect(("tolerance",), "without --cap auto or --method auto")
    if estimation.method == "sampled":
        without_effect(("cap", "engine", "max_states", "cache"), "with --method sampled")


def check_constants(objective: str) -> None:
    """Refuse the constant of an objective that is not taken.

    Raises
    ------
    click.UsageError
        As said.
    """
    for kind, name in (("raml", "temperature"), ("direct", "epsilon")):
        if objective != kind:
            without_effect((name,), f"without --objective {kind}")
