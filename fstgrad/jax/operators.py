"""The bridge between the array passes and JAX: values with their exact gradients, by a callback."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = Sequence[Array]


class Objective(Protocol):
    """B scalars; scalar i is a function of the slices scores[k][i] and constants[k][i] alone."""

    def evaluate(self, scores: Arrays, constants: Arrays) -> tuple[Array, Arrays]:
        """Return the values (B,), and for each array of scores the gradients, of its shape."""


@lru_cache(maxsize=512)
def kept(make: Callable[..., Any], *settings: Any) -> Any:
    """Return `make(*settings)`, the same object for the same settings: jit compiles once for it."""
    return make(*settings)


def values(
    objective: Objective, scores: Sequence[jax.Array], constants: Sequence[Any] = ()
) -> jax.Array:
    """Return the values (B,) of an objective, differentiable once in the scores (B, ...).

    Within `vmap` the new axis joins the batch.
    """
    fixed = tuple(jnp.asarray(array) for array in constants)
    found: jax.Array = _values(objective, tuple(map(widened, scores)), fixed)
    return found


def widened(scores: Any) -> jax.Array:
    """Return half-precision scores as float32, others as they are."""
    array = jnp.asarray(scores)
    narrow = not jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.itemsize < 4
    wide: jax.Array = array.astype(jnp.float32) if narrow else array
    return wide


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _values(
    objective: Objective, scores: tuple[jax.Array, ...], constants: tuple[jax.Array, ...]
) -> jax.Array:
    found: jax.Array = _evaluated(objective, scores, constants)[0]
    return found


def _forward(
    objective: Objective, scores: tuple[jax.Array, ...], constants: tuple[jax.Array, ...]
) -> tuple[jax.Array, Any]:
    found, *gradients = _evaluated(objective, scores, constants)
    return found, (gradients, constants)


def _backward(objective: Objective, kept: Any, upstream: jax.Array) -> tuple[Any, Any]:
    gradients, constants = kept
    scaled = [upstream.reshape(-1, *(1,) * (g.ndim - 1)).astype(g.dtype) * g for g in gradients]
    return tuple(scaled), tuple(no_tangent(array) for array in constants)


_values.defvjp(_forward, _backward)


def no_tangent(array: jax.Array) -> Any:
    """Return the cotangent of a constant."""
    if jnp.issubdtype(array.dtype, jnp.floating):
        return jnp.zeros_like(array)
    return np.zeros(array.shape, jax.dtypes.float0)


def _evaluated(
    objective: Objective, scores: tuple[jax.Array, ...], constants: tuple[jax.Array, ...]
) -> Any:
    count = len(scores)

    def host(*arrays: Array) -> tuple[Array, ...]:
        found, gradients = objective.evaluate(arrays[:count], arrays[count:])
        return found, *gradients

    shapes = [shape_of(array.shape, array.dtype) for array in scores]
    first = shape_of(scores[0].shape[:1], scores[0].dtype)
    return called(host, (first, *shapes), (*scores, *constants))


def shape_of(shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and the dtype of a result."""
    return jax.ShapeDtypeStruct(tuple(shape), dtype)  # type: ignore[no-untyped-call]


def called(
    host: Callable[..., Sequence[Array]],
    results: Sequence[jax.ShapeDtypeStruct],
    given: Sequence[jax.Array],
) -> Any:
    """Return what `host` makes of arrays (B, ...); within `vmap` the new axis joins the batch."""
    ranks = [array.ndim for array in given]

    def flat(*arrays: Any) -> tuple[Array, ...]:
        arrays = tuple(map(np.asarray, arrays))
        lead = arrays[0].shape[: arrays[0].ndim - ranks[0]]
        joined = [
            a.reshape(-1, *a.shape[a.ndim - rank + 1 :])
            for a, rank in zip(arrays, ranks, strict=True)
        ]
        found = zip(host(*joined), results, strict=True)
        return tuple(np.asarray(a, dtype=r.dtype).reshape(*lead, *r.shape) for a, r in found)

    return jax.pure_callback(flat, tuple(results), *given, vmap_method="broadcast_all")
