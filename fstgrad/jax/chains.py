"""The linear-chain conditional random field on JAX arrays."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fstgrad.errors import InfeasibleError, InvalidInputError
from fstgrad.jax.operators import Array, no_tangent, shape_of, widened
from fstgrad.jax.strings import IGNORE_INDEX, check_batch
from fstgrad.strings.linear_chain import LinearChains


def linear_chain_nll(
    emissions: Any,
    transitions: Any,
    gold: Any,
    mask: Any = None,
    *,
    ignore_index: int = IGNORE_INDEX,
) -> jax.Array:
    """Return -log p(gold) in nats of each item, (B,), without a table of pairs.

    Parameters
    ----------
    emissions : (B, T, n), log-weights; -inf forbids
    transitions : (n, n), the log-weight of y after x at [x, y]
    gold : (B, T) integers
    mask : (B, T) bool, optional
        The positions that count; where gold is not `ignore_index` if left out.
    ignore_index : int

    Examples
    --------
    >>> import jax.numpy as jnp, fstgrad.jax as fgj
    >>> gold = jnp.zeros((1, 3), int)
    >>> value = fgj.linear_chain_nll(jnp.zeros((1, 3, 2)), jnp.zeros((2, 2)), gold)
    >>> round(float(jnp.exp(value[0])), 4)
    8.0
    """
    scores, steps, ids = widened(emissions), widened(transitions), jnp.asarray(gold)
    check_batch(scores.shape, ids.shape)
    if steps.shape != (scores.shape[2],) * 2:
        raise InvalidInputError(
            f"transitions has the shape {steps.shape}; emissions are for {scores.shape[2]} symbols"
        )
    kept = ids != ignore_index if mask is None else jnp.asarray(mask, bool)
    found: jax.Array = _nll(scores, steps, jnp.where(kept, ids, -1))
    return found


@jax.custom_vjp
def _nll(emissions: jax.Array, transitions: jax.Array, tags: jax.Array) -> jax.Array:
    found: jax.Array = _solved(emissions, transitions, tags)[0]
    return found


def _forward(emissions: jax.Array, transitions: jax.Array, tags: jax.Array) -> Any:
    found, by_emission = _solved(emissions, transitions, tags)
    return found, (by_emission, emissions, transitions, tags)


def _backward(kept: Any, upstream: jax.Array) -> Any:
    by_emission, emissions, transitions, tags = kept
    shape = shape_of(transitions.shape, transitions.dtype)
    by_step = jax.pure_callback(
        _by_step, shape, emissions, transitions, tags, upstream, vmap_method="sequential"
    )
    return upstream[:, None, None] * by_emission, by_step, no_tangent(tags)


_nll.defvjp(_forward, _backward)


def _solved(emissions: jax.Array, transitions: jax.Array, tags: jax.Array) -> Any:
    """Return the values (B,) and their gradients in the emissions."""
    shapes = [shape_of(s, emissions.dtype) for s in (tags.shape[:1], emissions.shape)]
    return jax.pure_callback(
        _by_emission, shapes, emissions, transitions, tags, vmap_method="sequential"
    )


def _by_emission(emissions: Any, transitions: Any, tags: Any) -> tuple[Array, Array]:
    scores, steps = np.asarray(emissions), np.asarray(transitions)
    chains, order, own = _compacted(scores, steps, np.asarray(tags))
    solved, found = chains.solve(), np.empty(len(scores))
    gradient = np.zeros(scores.shape)
    for i, path in enumerate(own):
        places = order[i, : len(path)]
        score = scores[i, places, path].astype(np.float64).sum()
        score += steps[path[:-1], path[1:]].astype(np.float64).sum()
        if score == -np.inf:
            raise InfeasibleError(f"gold[{i}] has a score of -inf")
        found[i] = solved.log_z[i] - score
        gradient[i, places] = solved.node[i, : len(path)]
        gradient[i, places, path] -= 1.0
    return found.astype(scores.dtype), gradient.astype(scores.dtype)


def _by_step(emissions: Any, transitions: Any, tags: Any, upstream: Any) -> Array:
    """Return the gradient in the transitions: expected less observed steps, weighted."""
    weights = np.asarray(upstream, dtype=np.float64)
    chains, _, own = _compacted(*map(np.asarray, (emissions, transitions, tags)))
    table = chains.pair_sums(chains.solve(), weights)
    for weight, path in zip(weights, own, strict=True):
        np.subtract.at(table, (path[:-1], path[1:]), weight)
    narrow: Array = table.astype(np.asarray(transitions).dtype)
    return narrow


def _compacted(emissions: Array, transitions: Array, tags: Array) -> Any:
    """Return the chains of the positions that count, where these were, and the gold strings."""
    order = np.argsort(tags < 0, axis=1, kind="stable")
    own = [row[row >= 0] for row in tags]
    n = emissions.shape[2]
    for i, path in enumerate(own):
        if path.size and path.max() >= n:
            raise InvalidInputError(f"gold[{i}] has the tag {path.max()}; emissions are for {n}")
    moved = np.take_along_axis(emissions, order[..., None], axis=1)
    return LinearChains(moved, transitions, np.array([len(path) for path in own])), order, own
