"""The linear-chain conditional random field on JAX arrays."""

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from fstgrad.core.distribution import FAR, offsets
from fstgrad.core.errors import InfeasibleError, InvalidInputError, NotSupportedError
from fstgrad.core.uninitialized import empty
from fstgrad.jax import arguments
from fstgrad.jax.arguments import IGNORE_INDEX
from fstgrad.jax.operators import no_tangent, on_host, shape_of
from fstgrad.objectives.base import Array
from fstgrad.strings.linear_chain import LinearChains

UNUSED = np.iinfo(np.int32).min  # marks a position that does not belong to its sequence


def linear_chain_nll(
    emissions: Any,
    transitions: Any,
    gold: Any,
    mask: Any = None,
    *,
    start: Any = None,
    end: Any = None,
    ignore_index: int = IGNORE_INDEX,
) -> jax.Array:
    """Return -log p(gold) in nats for each item, (B,), without a table (B, T, n, n).

    Parameters
    ----------
    emissions : (B, T, n)
        Log-weights; -inf forbids a tag.
    transitions : (n, n)
        The log-weight of y after x at [x, y].
    gold : (B, T) integers
    mask : (B, T) bool, optional
        True at the positions that belong to the sequences.  Default: the positions where gold is
        not `ignore_index`.
    start, end : (n,), optional
        Added to the emissions of the first and of the last position of each sequence.
    ignore_index : int

    Examples
    --------
    >>> import jax.numpy as jnp, fstgrad.jax as fgj
    >>> gold = jnp.zeros((1, 3), int)
    >>> value = fgj.linear_chain_nll(jnp.zeros((1, 3, 2)), jnp.zeros((2, 2)), gold)
    >>> round(float(jnp.exp(value[0])), 4)
    8.0
    """
    scores = arguments.table("emissions", emissions, 3, axes="(B, T, n)")
    steps = arguments.table("transitions", transitions, 2, axes="(n, n)")
    n = scores.shape[2]
    if steps.shape != (n, n):
        raise InvalidInputError(f"transitions has the shape {steps.shape}; give {(n, n)}")
    ids = arguments.integers("gold", gold, scores.shape[:2])
    kept = ~arguments.is_ignored(ids, ignore_index)
    if mask is not None:
        kept = arguments.constant("mask", mask)
        if kept.shape != ids.shape or kept.dtype != bool:
            raise InvalidInputError(f"mask is {kept.dtype} {kept.shape}; give bool {ids.shape}")
    if isinstance(kept, np.ndarray) and isinstance(ids, np.ndarray):
        _check_tags(np.where(kept, ids, 0), n)
    scores = with_ends(scores, jnp.asarray(kept), start, end)
    found: jax.Array = _nll(scores, steps, jnp.where(kept, ids, UNUSED))
    return found


def with_ends(scores: jax.Array, kept: jax.Array, start: Any, end: Any) -> jax.Array:
    """Return emissions with `start` and `end` added at the first and the last position.

    Offsets of whole positions, which would cost their digits, are subtracted first.
    """
    if start is not None or end is not None:
        largest = jax.lax.stop_gradient(scores).max(axis=2, keepdims=True)
        is_offset = (jnp.abs(largest) > FAR) & jnp.isfinite(largest)
        scores = scores - jnp.where(is_offset, largest, 0.0)
    for name, given, backward in (("start", start, False), ("end", end, True)):
        if given is not None:
            own = arguments.table(name, given, 1, axes="(n,)")
            if own.shape != scores.shape[2:]:
                raise InvalidInputError(
                    f"{name} has the shape {own.shape}; give {scores.shape[2:]}"
                )
            seen = kept[:, ::-1] if backward else kept
            first = seen & (jnp.cumsum(seen, axis=1) == 1)
            place = first[:, ::-1] if backward else first
            scores = scores + jnp.where(place[..., None], own, 0.0)
    return scores


def _check_tags(tags: Array, n: int) -> None:
    wrong = (tags < 0) | (tags >= n)
    if wrong.any():
        i = int(np.flatnonzero(wrong.any(axis=1))[0])
        raise InvalidInputError(
            f"gold[{i}] has the tag {tags[wrong][0]}; emissions are for {n} tags: give 0 to "
            f"{n - 1}, or False in the mask"
        )


@jax.custom_vjp
def _nll(emissions: jax.Array, transitions: jax.Array, tags: jax.Array) -> jax.Array:
    found: jax.Array = _solved(emissions, transitions, tags)[0]
    return found


def _forward(emissions: jax.Array, transitions: jax.Array, tags: jax.Array) -> Any:
    found, by_emission = _solved(emissions, transitions, tags)
    return found, (by_emission, emissions, transitions, tags)


def _backward(kept: Any, upstream: jax.Array) -> Any:
    by_emission, emissions, transitions, tags = kept
    by_step = _step_sums(emissions, transitions, tags, upstream)
    return upstream[:, None, None] * by_emission, by_step, no_tangent(tags)


_nll.defvjp(_forward, _backward)


@jax.custom_vjp
def _step_sums(
    emissions: jax.Array, transitions: jax.Array, tags: jax.Array, upstream: jax.Array
) -> jax.Array:
    """Return the gradient in the transitions, which is not differentiable."""
    shape = shape_of(transitions.shape, transitions.dtype)
    given = (emissions, transitions, tags, upstream)
    found: jax.Array = on_host(_by_step, (shape,), given, "sequential")[0]
    return found


@jax.custom_vjp
def _solved(emissions: jax.Array, transitions: jax.Array, tags: jax.Array) -> Any:
    """Return the values (B,) and their gradients in the emissions."""
    shapes = tuple(shape_of(s, emissions.dtype) for s in (tags.shape[:1], emissions.shape))
    return on_host(_by_emission, shapes, (emissions, transitions, tags), "sequential")


def _no_second_derivative(*_: Any) -> NoReturn:
    raise NotSupportedError(
        "linear_chain_nll has first derivatives only; crf_nll on scores (B, L, n+1, n) has two"
    )


_solved.defvjp(_no_second_derivative, _no_second_derivative)
_step_sums.defvjp(_no_second_derivative, _no_second_derivative)


def _by_emission(emissions: Any, transitions: Any, tags: Any) -> tuple[Array, Array]:
    scores, steps = np.asarray(emissions), np.asarray(transitions)
    chains, order, own = compacted(scores, steps, np.asarray(tags))
    solved, found = chains.solve(), empty(len(scores))
    gradient = np.zeros(scores.shape)
    for i, path in enumerate(own):
        places = order[i, : len(path)]
        score = chains.emissions[i, np.arange(len(path)), path].sum()
        score += steps[path[:-1], path[1:]].astype(np.float64).sum()
        if score == -np.inf:
            raise InfeasibleError(
                f"gold[{i}] has a score of -inf: emissions or transitions forbid it"
            )
        found[i] = solved.log_z[i] - score
        gradient[i, places] = solved.node[i, : len(path)]
        gradient[i, places, path] -= 1.0
    return found.astype(scores.dtype), gradient.astype(scores.dtype)


def _by_step(emissions: Any, transitions: Any, tags: Any, upstream: Any) -> tuple[Array]:
    """Return the gradient in the transitions: weighted expected minus observed steps."""
    weights = np.asarray(upstream, dtype=np.float64)
    chains, _, own = compacted(*map(np.asarray, (emissions, transitions, tags)))
    table = chains.pair_sums(chains.solve(), weights)
    for weight, path in zip(weights, own, strict=True):
        np.subtract.at(table, (path[:-1], path[1:]), weight)
    return (table.astype(np.asarray(transitions).dtype),)


def compacted(emissions: Array, transitions: Array, tags: Array) -> Any:
    """Return the chains without unused positions, the original positions, and the gold strings."""
    _check_tags(np.where(tags == UNUSED, 0, tags), emissions.shape[2])
    order = np.argsort(tags < 0, axis=1, kind="stable")
    own = [row[row >= 0] for row in tags]
    moved = np.take_along_axis(emissions, order[..., None], axis=1).astype(np.float64)
    moved -= offsets(moved.max(axis=2))[..., None]
    return LinearChains(moved, transitions, np.array([len(path) for path in own])), order, own
