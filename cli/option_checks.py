"""Reject options that would have no effect."""

from collections.abc import Sequence
from dataclasses import fields

import click
from click.core import ParameterSource

from fstgrad.cli.loss_options import LossChoice
from fstgrad.cli.options import Estimation

# options that have no effect without a loss
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
    "cache_gib",
)


# options that define a loss: the fields of `LossChoice`
PARAMETERS = tuple(field.name for field in fields(LossChoice))


def was_given(name: str) -> bool:
    """Return whether the option of this parameter is on the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def without_effect(names: Sequence[str], reason: str) -> None:
    """Reject options that have no effect; `reason` completes "--option has no effect ...".

    Raises
    ------
    click.UsageError
        One of the parameters `names` is on the command line.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and was_given(parameter.name):
            flag = max(parameter.opts, key=len)
            raise click.UsageError(f"{flag} has no effect {reason}; leave it out")


def check_estimation(estimation: Estimation, cap: object) -> None:
    """Reject options of methods other than the chosen one.

    Raises
    ------
    click.UsageError
        An option has no effect with this `estimation.method` and `cap`.
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
    """Reject constants of objectives other than the chosen one.

    Raises
    ------
    click.UsageError
        --temperature without the objective raml, or --epsilon without direct.
    """
    for kind, name in (("raml", "temperature"), ("direct", "epsilon")):
        if objective != kind:
            without_effect((name,), f"without --objective {kind}")
