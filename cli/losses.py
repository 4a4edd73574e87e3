"""From `--loss` and its parameters to a loss."""

import dataclasses
import difflib
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from fstgrad.alphabet import Alphabet
from fstgrad.cli.options import LossChoice
from fstgrad.io import read_confusion
from fstgrad.losses import EditDistance, Hamming, NGram, SmithWaterman, TransducerLoss

_EDIT = {name: name for name in ("insert_cost", "delete_cost", "substitute_cost")}
_CONFUSION = {**_EDIT, "confusion": "confusion"}
_LOCAL = {f"{name}_cost": name for name in ("match", "substitute", "insert", "delete")}
_NGRAM = {"ngram_order": "order", "smoothing": "smoothing", "log": "log"}

# name -> (constructor, option -> its argument)
LOSSES: dict[str, tuple[Callable[..., TransducerLoss] | None, dict[str, str]]] = {
    "edit": (EditDistance, _CONFUSION),
    "edit-factored": (partial(EditDistance, factored=True), _EDIT),
    "smith-waterman": (SmithWaterman, _LOCAL),
    "ngram": (NGram, _NGRAM),
    "hamming": (Hamming, {"substitute_cost": "cost"}),
    "none": (None, {}),
}


def build_loss(choice: LossChoice, alphabet: Alphabet) -> TransducerLoss | None:
    """Return the loss over an alphabet; None for the loss "none".

    Raises
    ------
    click.UsageError
        An unknown name, or a parameter that the loss does not have.
    """
    if choice.loss not in LOSSES:
        near = difflib.get_close_matches(choice.loss, LOSSES)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(LOSSES)}"
        raise click.UsageError(f"no loss {choice.loss!r}; {hint}")
    constructor, arguments = LOSSES[choice.loss]
    given = dataclasses.asdict(choice)
    del given["loss"]
    settings: dict[str, Any] = {}
    for option, value in given.items():
        if value is None:
            continue
        if option not in arguments:
            flag = "--" + option.replace("_", "-")
            raise click.UsageError(f"the loss {choice.loss!r} has no {flag}; leave it out")
        settings[arguments[option]] = value
    if "confusion" in settings:
        settings["confusion"] = read_confusion(
            settings["confusion"],
            alphabet,
            substitute_cost=settings.pop("substitute_cost", 1.0),
        )
    return None if constructor is None else constructor(alphabet, **settings)
