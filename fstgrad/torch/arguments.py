"""Checks of what is given beside scores; each error names the argument, its value, the remedy."""

from typing import Any

import torch

from fstgrad.automata.automaton import LossAutomaton
from fstgrad.checks import instance
from fstgrad.errors import InvalidInputError
from fstgrad.losses import Loss


def tensor(name: str, given: Any, what: str = "a tensor") -> torch.Tensor:
    """Return a tensor; InvalidInputError for anything else."""
    if not isinstance(given, torch.Tensor):
        raise InvalidInputError(f"{name} is a {type(given).__name__}; give {what}")
    return given


def floating(name: str, given: Any) -> torch.Tensor:
    """Return a tensor of real floating-point numbers; InvalidInputError for anything else."""
    what = "a floating-point tensor"
    if not tensor(name, given, what).dtype.is_floating_point:
        raise InvalidInputError(f"{name} is {given.dtype}; give {what}")
    known: torch.Tensor = given
    return known


def integers(name: str, given: Any) -> torch.Tensor:
    """Return a tensor of integers; InvalidInputError for anything else."""
    dtype = tensor(name, given).dtype
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        raise InvalidInputError(f"{name} is {dtype}; give integer ids")
    known: torch.Tensor = given
    return known


def numbers(name: str, given: Any, items: int) -> torch.Tensor:
    """Return integers (B,), one for each of `items`, of a tensor or a sequence."""
    try:
        known = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(f"{name} is {given!r}; give {items} integers") from error
    if known.shape != (items,):
        raise InvalidInputError(
            f"{name} has the shape {tuple(known.shape)}; there are {items} items: give ({items},)"
        )
    return integers(name, known)


def within(name: str, known: torch.Tensor, least: int, most: int) -> torch.Tensor:
    """Return numbers; InvalidInputError for one that is not from `least` to `most`."""
    for i, number in enumerate(known.tolist()):
        if not least <= number <= most:
            raise InvalidInputError(f"{name}[{i}] is {number}; give {least} to {most}")
    return known


def losses(loss: Any) -> None:
    """Raise InvalidInputError unless there is a loss, one automaton or several, or None."""
    if isinstance(loss, list | tuple):
        for i, one in enumerate(loss):
            instance(f"loss[{i}]", one, LossAutomaton, "what loss.compile returns")
        return
    what = "a Loss, what its compile returns (one, or a sequence for a batch), or None"
    instance("loss", loss, Loss | LossAutomaton | None, what)


def shaped(name: str, given: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor; InvalidInputError unless it broadcasts to a shape."""
    try:
        return given.expand(shape)
    except RuntimeError as error:
        raise InvalidInputError(
            f"{name} has the shape {tuple(given.shape)}; give {tuple(shape)}"
        ) from error
