"""The losses that `--loss` names, and their options, from the signatures of their constructors."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from fstgrad.losses import (
    CharacterErrorRate,
    EditDistance,
    GappyNGram,
    GlobalAlignment,
    Hamming,
    LongestCommonSubsequence,
    Loss,
    MismatchNGram,
    NGram,
    NGramSum,
    OptimalStringAlignment,
    SmithWaterman,
    WordErrorRate,
)

LOSSES: dict[str, Callable[..., Loss] | None] = {
    "edit": EditDistance,
    "edit-factored": partial(EditDistance, factored=True, confusion=None),
    "osa": OptimalStringAlignment,
    "lcs": LongestCommonSubsequence,
    "wer": WordErrorRate,
    "cer": CharacterErrorRate,
    "smith-waterman": SmithWaterman,
    "alignment": GlobalAlignment,
    "ngram": NGram,
    "ngram-sum": NGramSum,
    "gappy": GappyNGram,
    "mismatch": MismatchNGram,
    "hamming": Hamming,
    "none": None,
}
# argument of a constructor -> option of another name
_RENAMED = {
    "match": "match_cost",
    "substitute": "substitute_cost",
    "insert": "insert_cost",
    "delete": "delete_cost",
    "cost": "substitute_cost",
    "order": "ngram_order",
    "max_order": "ngram_order",
}
_ONLY_IN_PYTHON = ("alphabet", "factored", "weights")


def _parameters(name: str) -> dict[str, inspect.Parameter]:
    """Return {option: parameter of the constructor} of a loss."""
    constructor = LOSSES[name]
    if constructor is None:
        return {}
    fixed = (*_ONLY_IN_PYTHON, *getattr(constructor, "keywords", {}))
    found = inspect.signature(constructor).parameters
    return {
        _RENAMED.get(argument, argument): parameter
        for argument, parameter in found.items()
        if argument not in fixed
    }


_TABLE = {name: _parameters(name) for name in LOSSES}
LOSS_NAMES = tuple(LOSSES)
# name -> {option: argument of the constructor}
ARGUMENTS = {
    name: {option: parameter.name for option, parameter in found.items()}
    for name, found in _TABLE.items()
}
# name -> the options without a default
REQUIRED = {
    name: tuple(
        option for option, parameter in found.items() if parameter.default is parameter.empty
    )
    for name, found in _TABLE.items()
}
# options of transducers in files, which are arguments of the same name
OF_FILES = {"smoothing": "smoothing", "log": "log"}
_FILES = "transducers in files with arc type log or log64 (the probability semiring)"


def describe(option: str, text: str, default: str = "") -> str:
    """Return the help of an option: the text, the losses that have the option, and its default.

    Without `default`, it is that of the constructors, each with its losses if they differ.
    """
    names = [name for name, found in _TABLE.items() if option in found]
    owners = [*names, _FILES] if option in OF_FILES else names
    shown = " and ".join([", ".join(owners[:-1]), owners[-1]] if len(owners) > 1 else owners)
    default = default or _default(option, names)
    return f"{text}, for {shown}." + (f"  [default: {default}]" if default else "")


def _default(option: str, names: list[str]) -> str:
    """Return the default of an option as a text; "" if no loss has one."""
    owners: dict[str, list[str]] = {}
    for name in names:
        value = _TABLE[name][option].default
        if value is not None and value is not inspect.Parameter.empty:
            owners.setdefault(_shown(option, value), []).append(name)
    if len(owners) == 1:
        return next(iter(owners))
    return "; ".join(f"{', '.join(found)} {value}" for value, found in owners.items())


def _shown(option: str, value: Any) -> str:
    if isinstance(value, bool):
        return option if value else f"no-{option}"
    return value if isinstance(value, str) else f"{value:g}"
