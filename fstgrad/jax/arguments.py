"""Checks of the arguments: shapes and dtypes always, values if they are known."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fstgrad.core.axis_labels import check_mask, check_positions
from fstgrad.core.checks import is_integer
from fstgrad.core.errors import InvalidInputError
from fstgrad.jax.operators import upcast
from fstgrad.objectives.strings import IGNORED

IGNORE_INDEX = -100


def table(name: str, given: Any, *ranks: int, axes: str) -> jax.Array:
    """Return scores as an array of floating-point numbers with one of the ranks."""
    check_mask(name, given)
    check_positions(name, given)
    try:
        known = jnp.asarray(given)
    except Exception as error:  # a foreign __array__ may raise anything
        raise InvalidInputError(f"{name} is a {type(given).__name__}; give {axes}") from error
    if jnp.issubdtype(known.dtype, jnp.complexfloating) or known.dtype == bool:
        raise InvalidInputError(f"{name} is {known.dtype}; give floating-point numbers {axes}")
    if known.ndim not in ranks:
        raise InvalidInputError(f"{name} has the shape {known.shape}; give {axes}")
    return upcast(known)


def constant(name: str, given: Any) -> Any:
    """Return known values as a numpy array, and a tracer unchanged.

    A column of lists of one length is a table.
    """
    if isinstance(given, jax.core.Tracer):
        return given
    check_mask(name, given)
    check_positions(name, given)
    try:
        known = np.asarray(given)
        if known.dtype == object:
            return np.array(known.tolist())
        return known.astype(known.dtype.newbyteorder("="), copy=False)
    except ValueError as error:
        raise InvalidInputError(
            f"{name} has rows of different lengths; give an array, padded with ignore_index"
        ) from error
    except Exception as error:  # a foreign __array__ may raise anything
        raise InvalidInputError(f"{name} is a {type(given).__name__}; give an array") from error


def real(name: str, given: Any) -> Any:
    """Return a constant of real numbers or booleans."""
    known = constant(name, given)
    if not (jnp.issubdtype(known.dtype, jnp.number) or known.dtype == bool) or (
        jnp.issubdtype(known.dtype, jnp.complexfloating)
    ):
        raise InvalidInputError(f"{name} holds {known.dtype}; give real numbers")
    return known


def finite(name: str, given: Any) -> Any:
    """Return a constant of real numbers, finite in the dtype of JAX's floats if they are known."""
    known = real(name, given)
    most = float(np.finfo(np.dtype(jnp.result_type(float))).max)
    if isinstance(known, np.ndarray) and not (abs(known.astype(np.float64)) <= most).all():
        raise InvalidInputError(
            f"{name} holds NaN or an infinity, or a number beyond {most:.3g}; give finite numbers"
        )
    return known


def log_weights(name: str, given: jax.Array) -> None:
    """Raise InvalidInputError if known scores are NaN or +inf."""
    if not isinstance(given, jax.core.Tracer) and not bool((given < jnp.inf).all()):
        raise InvalidInputError(f"{name} holds NaN or +inf; give log-weights")


def integers(name: str, given: Any, shape: Sequence[int | None]) -> Any:
    """Return integers of a given shape, in which None means any size.

    Small and unsigned dtypes are widened, because they cannot hold the marks of ignored positions.
    """
    known = constant(name, given)
    fits = known.ndim == len(shape) and all(
        own in (None, size) for own, size in zip(shape, known.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise InvalidInputError(f"{name} has the shape {known.shape}; give ({wanted})")
    if not jnp.issubdtype(known.dtype, jnp.integer):
        raise InvalidInputError(f"{name} is {known.dtype}; give integers")
    return known if known.dtype.kind == "i" and known.dtype.itemsize > 2 else known.astype(int)


def ids(name: str, given: Any, shape: Sequence[int | None], ignore_index: int) -> Any:
    """Return ids of a given shape, `IGNORED` at positions without a symbol."""
    known = integers(name, given, shape)
    where = np.where if isinstance(known, np.ndarray) else jnp.where
    return where(is_ignored(known, ignore_index), IGNORED, known)


def is_ignored(known: Any, ignore_index: int) -> Any:
    """Return a mask of the ids that equal `ignore_index`."""
    if not is_integer(ignore_index):
        raise InvalidInputError(f"ignore_index is {ignore_index!r}; give an integer")
    return known == int(ignore_index)


def lengths(given: Any, items: int, least: int, most: int) -> Any:
    """Return lengths (B,), checked if they are known; `most` for all items if None is given."""
    if given is None:
        return np.full(items, most)
    known = integers("lengths", given, (items,))
    if isinstance(known, np.ndarray):
        for i, size in enumerate(known.tolist()):
            if not least <= size <= most:
                raise InvalidInputError(f"lengths[{i}] is {size}; give {least} to {most}")
    return known
