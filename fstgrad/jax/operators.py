"""The bridge between the array passes and JAX: values with exact gradients, by a callback.

An objective of `fstgrad.objectives` computes B values and their gradients from arrays.  Outside of
jit it is called directly, so its errors are ordinary Python errors; inside, `jax.pure_callback`
calls it.  Constants that are known while jit traces are checked at that time.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from inspect import Parameter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fstgrad.core.errors import FstgradError, NotSupportedError
from fstgrad.core.infeasible import Infeasible
from fstgrad.core.threads import cores
from fstgrad.objectives.base import Array, Objective, Team, check_objective
from fstgrad.objectives.infeasible import FeasibleItems


class _Bound:
    """An objective with its constants, if these are known before the computation."""

    def __init__(self, objective: Objective, constants: Sequence[Any]) -> None:
        self.objective = objective
        is_known = not any(isinstance(array, jax.core.Tracer) for array in constants)
        self.known = [np.asarray(array) for array in constants] if is_known else None

    def check(self, scores: Sequence[jax.Array]) -> None:
        """Raise the errors of known constants now, not when the compiled function runs."""
        if self.known is not None:
            self.objective.check([np.zeros(s.shape, s.dtype) for s in scores], self.known)


def cached(make: Callable[..., Any], *settings: Any) -> Any:
    """Return `make(*settings)`; equal settings give the same object."""
    try:
        return _cached(make, *settings)
    except TypeError:  # a setting without a hash is invalid: an error is raised where it is used
        return make(*settings)


@lru_cache(maxsize=512)
def _cached(make: Callable[..., Any], *settings: Any) -> Any:
    return make(*settings)


def values(
    objective: Objective,
    scores: Sequence[Any],
    constants: Sequence[Any] = (),
    infeasible: Infeasible = "raise",
) -> jax.Array:
    """Return the values (B,) of an objective, differentiable in the scores (B, ...).

    `infeasible` says what to do with infeasible items, as in `FeasibleItems`.
    Within `vmap`, the new axis joins the batch.  Second derivatives, in reverse mode, exist if the
    objective has a Hessian product.
    """
    tables, bound = tuple(map(upcast, scores)), _bound(objective, constants, infeasible)
    result: jax.Array = _values(bound, tables, tuple(constants))
    return result


def function_of(objective: type[Objective]) -> Callable[..., jax.Array]:
    """Return an objective as a function of arrays (B, ...) that returns values (B,).

    Its parameters are the scores and the constants and, by keyword, the settings and `infeasible`
    ("raise" or "zero").  It is differentiable in the scores.

    Parameters
    ----------
    objective : subclass of `fstgrad.objectives.base.Objective`
    """
    check_objective(objective)
    many = len(objective.score_names)

    def call(arrays: list[Any], settings: list[Any], infeasible: Infeasible) -> jax.Array:
        scores = [upcast(array) for array in arrays[:many]]
        constants = [
            array if isinstance(array, jax.core.Tracer) else np.asarray(array)
            for array in arrays[many:]
        ]
        objective.check_items([*scores, *constants])
        return values(cached(objective, *settings), scores, constants, infeasible)

    option = Parameter("infeasible", Parameter.KEYWORD_ONLY, default="raise")
    return objective.function(call, option)


def gradients(
    objective: Objective,
    scores: Sequence[Any],
    constants: Sequence[Any] = (),
    infeasible: Infeasible = "raise",
) -> list[jax.Array]:
    """Return the gradients of the values, like the scores: marginals, once differentiable."""
    tables, bound = tuple(map(upcast, scores)), _bound(objective, constants, infeasible)
    return list(_outputs(bound, tables, tuple(constants))[1])


def _bound(objective: Objective, constants: Sequence[Any], infeasible: Infeasible) -> _Bound:
    return _Bound(FeasibleItems(objective, infeasible), constants)


def measured(
    objective: Objective, scores: jax.Array, constants: Sequence[Any], infeasible: Infeasible
) -> jax.Array:
    """Return an objective's `measure` of constants and scores, a constant like the scores."""
    result, chosen = [shape_of(scores.shape, scores.dtype)], FeasibleItems(objective, infeasible)
    given = [*constants, scores]
    are_tracers = [isinstance(array, jax.core.Tracer) for array in given]
    if are_tracers[-1] and not any(are_tracers[:-1]):  # errors of constants now, not within jit
        chosen.measure([*map(np.asarray, constants), np.zeros(scores.shape)])
    fixed = [jax.lax.stop_gradient(array) for array in given]
    outputs = batched_callback(lambda *arrays: [chosen.measure(arrays)], result, fixed)
    table: jax.Array = jax.lax.stop_gradient(outputs[0])
    return table


def upcast(scores: Any) -> jax.Array:
    """Return half-precision and integer scores as float32, others unchanged."""
    array = jnp.asarray(scores)
    narrow = not jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.itemsize < 4
    wide: jax.Array = array.astype(jnp.float32) if narrow else array
    return wide


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _values(bound: _Bound, scores: Sequence[jax.Array], constants: Sequence[Any]) -> jax.Array:
    result: jax.Array = _evaluated(bound, scores, constants)[0]
    return result


def _values_forward(bound: _Bound, scores: Any, constants: Any) -> Any:
    result, tables = _outputs(bound, scores, constants)
    return result, (tables, constants)


def _values_backward(bound: _Bound, residuals: Any, upstream: jax.Array) -> Any:
    tables, constants = residuals
    return tuple(_scaled(upstream, tables)), tuple(map(no_tangent, constants))


_values.defvjp(_values_forward, _values_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _outputs(bound: _Bound, scores: Any, constants: Any) -> tuple[jax.Array, tuple[Any, ...]]:
    """Return the values and their gradients; the Hessian product differentiates the latter."""
    result, *tables = _evaluated(bound, scores, constants)
    return result, tuple(tables)


def _outputs_forward(bound: _Bound, scores: Any, constants: Any) -> Any:
    if not bound.objective.is_twice_differentiable():
        raise bound.objective.no_second_derivative()
    result, tables = _outputs(bound, scores, constants)
    return (result, tables), (tables, scores, constants)


def _outputs_backward(bound: _Bound, residuals: Any, upstream: Any) -> Any:
    tables, scores, constants = residuals
    by_value, directions = upstream
    products = _products(bound, scores, constants, directions)
    total = [a + b for a, b in zip(_scaled(by_value, tables), products, strict=True)]
    return tuple(total), tuple(map(no_tangent, constants))


_outputs.defvjp(_outputs_forward, _outputs_backward)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _products(bound: _Bound, scores: Any, constants: Any, directions: Any) -> tuple[Any, ...]:
    """Return the Hessian products, which are not differentiable."""
    many, fixed = len(scores), len(constants)

    def host(*arrays: Array) -> Sequence[Array]:
        wide = [a.astype(np.float64) for a in (*arrays[:many], *arrays[many + fixed :])]
        return bound.objective.hessian_product(
            wide[:many], arrays[many : many + fixed], wide[many:]
        )

    shapes = [shape_of(table.shape, table.dtype) for table in scores]
    products: tuple[Any, ...] = tuple(
        batched_callback(host, shapes, (*scores, *constants, *directions))
    )
    return products


def _no_further_derivative(bound: _Bound, *_: Any) -> Any:
    raise NotSupportedError(f"{bound.objective.what} has no further derivative here")


_products.defvjp(_no_further_derivative, _no_further_derivative)


def _scaled(upstream: jax.Array, tables: Sequence[jax.Array]) -> list[jax.Array]:
    """Return tables (B, ...) multiplied by the upstream gradient (B,)."""
    return [upstream.reshape(-1, *(1,) * (t.ndim - 1)).astype(t.dtype) * t for t in tables]


def no_tangent(constant: Any) -> Any:
    """Return the cotangent of a constant, which is zero."""
    if jnp.issubdtype(constant.dtype, jnp.floating):
        return jnp.zeros(constant.shape, constant.dtype)
    return np.zeros(constant.shape, jax.dtypes.float0)


def _evaluated(bound: _Bound, scores: Sequence[jax.Array], constants: Sequence[Any]) -> Any:
    if any(isinstance(table, jax.core.Tracer) for table in scores):
        bound.check(scores)
    count = len(scores)

    def host(*arrays: Array) -> Sequence[Array]:
        result, tables = bound.objective.evaluate(arrays[:count], arrays[count:], Team(cores()))
        return result, *tables

    shapes = [shape_of(array.shape, array.dtype) for array in scores]
    first = shape_of(scores[0].shape[:1], scores[0].dtype)
    return batched_callback(host, (first, *shapes), (*scores, *constants))


def shape_of(shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and the dtype of a result."""
    return jax.ShapeDtypeStruct(tuple(shape), dtype)  # type: ignore[no-untyped-call]


def batched_callback(
    host: Callable[..., Sequence[Array]],
    results: Sequence[jax.ShapeDtypeStruct],
    given: Sequence[Any],
) -> Any:
    """Return `host` of arrays (B, ...); within `vmap`, the new axis joins the batch."""
    ranks = [array.ndim for array in given]

    def flat(*arrays: Any) -> tuple[Array, ...]:
        arrays = tuple(map(np.asarray, arrays))
        lead = arrays[0].shape[: arrays[0].ndim - ranks[0]]
        size = math.prod(arrays[0].shape[: len(lead) + 1])
        joined = [
            a.reshape(size, *a.shape[a.ndim - rank + 1 :])
            for a, rank in zip(arrays, ranks, strict=True)
        ]
        outputs = zip(host(*joined), results, strict=True)
        return tuple(np.asarray(a, dtype=r.dtype).reshape(*lead, *r.shape) for a, r in outputs)

    return host_callback(flat, tuple(results), given, "broadcast_all")


def host_callback(
    host: Callable[..., tuple[Array, ...]],
    results: tuple[jax.ShapeDtypeStruct, ...],
    given: Sequence[Any],
    vmap_method: str,
) -> Any:
    """Call `host` with arrays: now if they are known, otherwise when the compiled function runs."""

    def quiet(*arrays: Any) -> tuple[Array, ...]:
        try:
            return host(*arrays)
        except FstgradError as error:  # JAX prints every frame: omit those of fstgrad
            raise error.with_traceback(None) from None

    if not any(isinstance(array, jax.core.Tracer) for array in given):
        return tuple(map(jnp.asarray, host(*given)))
    return jax.pure_callback(quiet, results, *given, vmap_method=vmap_method)
