"""Checks of the arguments; each error names the argument, its value and the remedy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fstgrad.core.axis_labels import check_mask
from fstgrad.core.checks import instance, is_integer
from fstgrad.core.errors import InvalidInputError
from fstgrad.losses import Loss
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.torch.arrays import computes_on_device, device_paths_forced
from fstgrad.torch.transforms import knows_values, no_vmap


def tensor(name: str, given: Any, what: str = "a tensor") -> torch.Tensor:
    """Return a dense tensor of numbers; raise InvalidInputError for anything else."""
    if not isinstance(given, torch.Tensor):
        raise InvalidInputError(f"{name} is a {type(given).__name__}; give {what}")
    if given.is_nested:
        raise InvalidInputError(
            f"{name} is a nested tensor; give a padded one, as torch.nested.to_padded_tensor makes "
            "it, and say by lengths, mask or ignore_index what is padding"
        )
    if not torch.compiler.is_compiling() and torch.masked.is_masked_tensor(given):
        raise InvalidInputError(
            f"{name} is a masked tensor; give {name}.to_tensor(fill), with -inf to forbid, and say "
            "by lengths, mask or ignore_index what is padding"
        )
    if given.layout != torch.strided:
        raise InvalidInputError(f"{name} has the layout {given.layout}; give {name}.to_dense()")
    if given.is_quantized:
        raise InvalidInputError(f"{name} is quantized; give {name}.dequantize()")
    if given.device.type == "meta" and not device_paths_forced():
        raise InvalidInputError(
            f"{name} is on the device meta, which holds no numbers; give it on a real device"
        )
    return given


def floating(name: str, given: Any) -> torch.Tensor:
    """Return a tensor of real floating-point numbers; raise InvalidInputError otherwise."""
    dtype = tensor(name, given, "a floating-point tensor").dtype
    if not dtype.is_floating_point or dtype.itemsize < 2:
        kinds = "a floating-point tensor: float64, float32, bfloat16 or float16"
        raise InvalidInputError(f"{name} is {dtype}; give {kinds}")
    known: torch.Tensor = given
    return known


def real(name: str, given: Any) -> torch.Tensor:
    """Return a tensor of real numbers or booleans; raise InvalidInputError otherwise."""
    if tensor(name, given).dtype.is_complex:
        raise InvalidInputError(f"{name} is {given.dtype}; give real numbers")
    known: torch.Tensor = given
    return known


def finite(name: str, given: Any) -> torch.Tensor:
    """Return float64 numbers; raise InvalidInputError if some are NaN or infinite."""
    known = real(name, given).to(torch.float64)
    if computes_on_device(known) or not knows_values(known):
        return known
    if not bool(known.isfinite().all()):
        raise InvalidInputError(f"{name} holds NaN or an infinity; give finite numbers")
    return known


def log_weights(name: str, given: torch.Tensor) -> None:
    """Raise InvalidInputError if known scores are NaN or +inf."""
    if computes_on_device(given) or not knows_values(given):
        return
    if not bool((given < torch.inf).all()):
        raise InvalidInputError(f"{name} holds NaN or +inf; give log-weights")


def integers(name: str, given: Any, remedy: str = "integer ids") -> torch.Tensor:
    """Return a tensor of integers as int64; raise InvalidInputError for anything else."""
    dtype = tensor(name, given).dtype
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        raise InvalidInputError(f"{name} is {dtype}; give {remedy}")
    known: torch.Tensor = given.long()  # uint8 cannot hold -1 or -100
    return known


def integer(name: str, given: Any) -> int:
    """Return one integer of 64 bits; raise InvalidInputError for anything else."""
    if not is_integer(given) or not -(2**63) <= given < 2**63:
        raise InvalidInputError(f"{name} is {given!r}; give an integer")
    return int(given)


def integer_per_item(name: str, given: Any, items: int) -> torch.Tensor:
    """Return a tensor or sequence as integers (B,), one for each of the `items` items."""
    if isinstance(given, torch.Tensor):
        tensor(name, given)
    if isinstance(given, range) and len(given) != items:  # a range may be very long
        given = given[: items + 1]
    check_mask(name, given)
    try:
        if isinstance(given, np.ndarray) or hasattr(given, "to_numpy"):
            given = np.array(given)  # PyTorch warns of read-only memory
        known = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(f"{name} is {given!r}; give {items} integers") from error
    if known.shape != (items,):
        raise InvalidInputError(
            f"{name} has the shape {tuple(known.shape)}; there are {items} items: give ({items},)"
        )
    return integers(name, known)


def in_range(name: str, known: torch.Tensor, least: int, most: int) -> torch.Tensor:
    """Return numbers; raise InvalidInputError if one is not in `least` .. `most`."""
    no_vmap([known])
    for i, number in enumerate(known.tolist()):
        if not least <= number <= most:
            raise InvalidInputError(f"{name}[{i}] is {number}; give {least} to {most}")
    return known


def check_loss(loss: Any) -> None:
    """Raise InvalidInputError unless `loss` is a loss, one automaton or several, or None."""
    if isinstance(loss, list | tuple):
        for i, one in enumerate(loss):
            instance(f"loss[{i}]", one, LossAutomaton, "what loss.compile returns")
        return
    if loss is not None:
        what = "a Loss, what its compile returns (one, or a sequence for a batch), or None"
        instance("loss", loss, (Loss, LossAutomaton), what)


def shaped(
    name: str, given: torch.Tensor, shape: Sequence[int], shared: Sequence[int] | None = None
) -> torch.Tensor:
    """Return a tensor of a shape; one of the shape `shared` serves for all items.

    Other shapes are errors, even if they could be broadcast: axes might be mistaken.
    """
    if given.shape == tuple(shape):
        return given
    if shared is None or given.shape != tuple(shared):
        also = "" if shared is None else f", or {tuple(shared)} for all items"
        raise InvalidInputError(
            f"{name} has the shape {tuple(given.shape)}; give {tuple(shape)}{also}"
        )
    return given.expand(tuple(shape))
