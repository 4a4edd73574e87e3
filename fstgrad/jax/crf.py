"""The linear-chain conditional random field on JAX arrays: its objective, and its distribution."""

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from fstgrad.core.checks import positive_integer
from fstgrad.core.distribution import FAR, log_probability, offsets
from fstgrad.core.errors import InfeasibleError, InvalidInputError, NotSupportedError
from fstgrad.core.infeasible import REMEDY, Infeasible, check_infeasible
from fstgrad.jax import arguments
from fstgrad.jax.arguments import IGNORE_INDEX
from fstgrad.jax.operators import host_callback, no_tangent, shape_of
from fstgrad.jax.predictions import detached, integer, key_words, undifferentiable
from fstgrad.objectives.base import Array
from fstgrad.objectives.predictions import PADDING
from fstgrad.strings.linear_chain import GOLD_FORBIDDEN, NO_STRING, MaskedChains

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
    infeasible: Infeasible = "raise",
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
    infeasible : {"raise", "zero"}
        What to do with items that have no position, no tags of finite score, or gold of score -inf:
        one error names them all, or their values and gradients are 0.

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
    inside = ~arguments.is_ignored(ids, ignore_index)
    if mask is not None:
        inside = arguments.constant("mask", mask)
        if inside.shape != ids.shape or inside.dtype != bool:
            raise InvalidInputError(f"mask is {inside.dtype} {inside.shape}; give bool {ids.shape}")
    if isinstance(inside, np.ndarray) and isinstance(ids, np.ndarray):
        _check_tags(np.where(inside, ids, 0), n)
    scores = with_ends(scores, jnp.asarray(inside), start, end)
    check_infeasible(infeasible)
    values: jax.Array = _nll(infeasible, scores, steps, jnp.where(inside, ids, UNUSED))
    return values


def with_ends(scores: jax.Array, inside: jax.Array, start: Any, end: Any) -> jax.Array:
    """Return emissions with `start` and `end` added at the first and the last position.

    Offsets of whole positions and ends, which would cost their digits, are subtracted first.
    """
    if start is not None or end is not None:
        scores = _without_offsets(scores)
    for name, given, backward in (("start", start, False), ("end", end, True)):
        if given is not None:
            weights = arguments.table(name, given, 1, axes="(n,)")
            if weights.shape != scores.shape[2:]:
                raise InvalidInputError(
                    f"{name} has the shape {weights.shape}; give {scores.shape[2:]}"
                )
            seen = inside[:, ::-1] if backward else inside
            first = seen & (jnp.cumsum(seen, axis=1) == 1)
            place = first[:, ::-1] if backward else first
            scores = scores + jnp.where(place[..., None], _without_offsets(weights), 0.0)
    return scores


def _without_offsets(scores: jax.Array) -> jax.Array:
    """Return scores less the largest of the last axis where it is beyond FAR."""
    largest = jax.lax.stop_gradient(scores).max(axis=-1, keepdims=True)
    is_offset = (jnp.abs(largest) > FAR) & jnp.isfinite(largest)
    return scores - jnp.where(is_offset, largest, 0.0)


def _check_tags(tags: Array, n: int) -> None:
    wrong = (tags < 0) | (tags >= n)
    if wrong.any():
        i = int(np.flatnonzero(wrong.any(axis=1))[0])
        raise InvalidInputError(
            f"gold[{i}] has the tag {tags[wrong][0]}; emissions are for {n} tags: give 0 to "
            f"{n - 1}, or False in the mask"
        )


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _nll(
    infeasible: Infeasible, emissions: jax.Array, transitions: jax.Array, tags: jax.Array
) -> jax.Array:
    values: jax.Array = _solved(infeasible, emissions, transitions, tags)[0]
    return values


def _forward(
    infeasible: Infeasible, emissions: jax.Array, transitions: jax.Array, tags: jax.Array
) -> Any:
    values, by_emission = _solved(infeasible, emissions, transitions, tags)
    return values, (by_emission, emissions, transitions, tags)


def _backward(infeasible: Infeasible, residuals: Any, upstream: jax.Array) -> Any:
    by_emission, emissions, transitions, tags = residuals
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
    sums: jax.Array = host_callback(_by_step, (shape,), given, "sequential")[0]
    return sums


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _solved(
    infeasible: Infeasible, emissions: jax.Array, transitions: jax.Array, tags: jax.Array
) -> Any:
    """Return the values (B,) and their gradients in the emissions."""
    shapes = tuple(shape_of(s, emissions.dtype) for s in (tags.shape[:1], emissions.shape))
    host = partial(_by_emission, infeasible)
    return host_callback(host, shapes, (emissions, transitions, tags), "sequential")


def _no_second_derivative(*_: Any) -> NoReturn:
    raise NotSupportedError(
        "linear_chain_nll has first derivatives only; crf_nll on scores (B, L, n+1, n) has two"
    )


_solved.defvjp(_no_second_derivative, _no_second_derivative)
_step_sums.defvjp(_no_second_derivative, _no_second_derivative)


def _by_emission(
    infeasible: Infeasible, emissions: Any, transitions: Any, tags: Any
) -> tuple[Array, Array]:
    scores, ids = np.asarray(emissions), np.asarray(tags)
    chains, values = _chains(scores, transitions, ids), np.zeros(len(scores))
    solved, reasons = chains.solve(allows_infeasible=True), {}
    gradient = chains.placed(solved.node)
    for i, row in enumerate(ids):
        path = row[row >= 0]
        score = chains.score(i, path)
        if len(path) == 0:
            reasons[i] = "no position is left by mask and ignore_index"
        elif score == -np.inf:
            reasons[i] = GOLD_FORBIDDEN
        elif solved.log_z[i] == -np.inf:
            reasons[i] = NO_STRING
        if i in reasons:
            gradient[i] = 0.0
            continue
        values[i] = solved.log_z[i] - score
        gradient[i, row >= 0, path] -= 1.0
    if reasons and infeasible == "raise":
        raise InfeasibleError.of_items(reasons, REMEDY)
    return values.astype(scores.dtype), gradient.astype(scores.dtype)


def _by_step(emissions: Any, transitions: Any, tags: Any, upstream: Any) -> tuple[Array]:
    """Return the gradient in the transitions: weighted expected minus observed steps."""
    weights = np.asarray(upstream, dtype=np.float64)
    chains = _chains(emissions, transitions, tags)
    paths = [row[row >= 0] for row in np.asarray(tags)]
    is_finite = [len(path) > 0 and chains.score(i, path) > -np.inf for i, path in enumerate(paths)]
    weights = np.where(is_finite, weights, 0.0)  # the others are infeasible
    table = chains.pair_sums(chains.solve(allows_infeasible=True), weights)
    for weight, path in zip(weights, paths, strict=True):
        np.subtract.at(table, (path[:-1], path[1:]), weight)
    return (table.astype(np.asarray(transitions).dtype),)


def _chains(emissions: Any, transitions: Any, tags: Any) -> MaskedChains:
    """Return the chains of the positions where tags are not `UNUSED`."""
    scores, ids = np.asarray(emissions), np.asarray(tags)
    _check_tags(np.where(ids == UNUSED, 0, ids), scores.shape[2])
    shifted = scores.astype(np.float64)
    shifted -= offsets(shifted.max(axis=2))[..., None]
    steps = np.asarray(transitions, dtype=np.float64)
    return MaskedChains(shifted, steps - offsets(steps.max()), ids >= 0)


class CRF:
    """p(y) = exp(sum_t emissions[t, y_t] + sum_t transitions[y_{t-1}, y_t]) / Z for each item.

    Parameters
    ----------
    emissions : (B, T, n)
        Log-weights in nats; -inf forbids a tag.
    transitions : (n, n)
        The log-weight of y after x at [x, y].
    mask : (B, T) bool, optional
        True at the positions that belong to the sequences; padding may be anywhere.
    start, end : (n,), optional
        Added to the emissions of the first and of the last position.

    Examples
    --------
    >>> import jax.numpy as jnp, fstgrad.jax as fgj
    >>> crf = fgj.CRF(jnp.array([[[1.0, 0.0], [0.0, 2.0]]]), jnp.zeros((2, 2)))
    >>> crf.decode().tolist()
    [[0, 1]]
    """

    def __init__(
        self, emissions: Any, transitions: Any, mask: Any = None, *, start: Any = None,
        end: Any = None,
    ) -> None:  # fmt: skip
        self.emissions = arguments.table("emissions", emissions, 3, axes="(B, T, n)")
        self.transitions = arguments.table("transitions", transitions, 2, axes="(n, n)")
        places, n = self.emissions.shape[:2], self.emissions.shape[2]
        if self.transitions.shape != (n, n):
            raise InvalidInputError(
                f"transitions has the shape {self.transitions.shape}; give {(n, n)}"
            )
        self.mask = mask
        self._kept = np.ones(places, bool) if mask is None else arguments.constant("mask", mask)
        if self._kept.shape != places or self._kept.dtype != bool:
            raise InvalidInputError(
                f"mask is {self._kept.dtype} {self._kept.shape}; give bool {places}"
            )
        self.start, self.end = start, end
        self._scores = with_ends(self.emissions, jnp.asarray(self._kept), start, end)

    def nll(
        self, gold: Any, *, ignore_index: int = IGNORE_INDEX, infeasible: Infeasible = "raise"
    ) -> jax.Array:
        """Return `linear_chain_nll` of gold (B, T) in nats, (B,)."""
        return linear_chain_nll(
            self.emissions, self.transitions, gold, self.mask,
            start=self.start, end=self.end, ignore_index=ignore_index, infeasible=infeasible,
        )  # fmt: skip

    def decode(self) -> jax.Array:
        """Return the best tags (B, T), -100 where the mask is False; ties go to smaller tags."""
        return self._tags(lambda chains, _: chains.best()[0])

    def mbr(self) -> jax.Array:
        """Return the tags with the fewest expected errors (B, T): those with largest marginals."""
        return self._tags(lambda chains, _: chains.placed(chains.solve().node).argmax(axis=2))

    def sample(self, k: int, key: Any) -> jax.Array:
        """Return k independent tag sequences of each item (B, k, T); key : a `jax.random.key`."""
        k = positive_integer("k", k)
        return self._tags(lambda chains, rng: chains.sample(k, rng), key_words(key, 1)[0], k)

    def nbest(self, k: int) -> tuple[jax.Array, jax.Array]:
        """Return the k best tag sequences (B, k, T), -100 as padding, and log p (B, k) in nats.

        If an item has fewer sequences, the remaining log p are -inf and the tags are -100.
        """
        k = positive_integer("k", k)

        def host(*arrays: Any) -> tuple[Array, Array]:
            chains = _chains(*arrays)
            tags, scores = chains.kbest(k)
            log_probs = log_probability(scores, chains.solve().log_z[:, None])
            return _padded(tags, arrays[2]), log_probs.astype(self._scores.dtype)

        items, length = self._kept.shape
        rows = shape_of((items, k), self._scores.dtype)
        shapes = (shape_of((items, k, length), integer()), rows)
        structures, log_probs = host_callback(host, shapes, self._given(), "sequential")
        return structures, undifferentiable((self._scores, self.transitions), log_probs)

    def _tags(
        self,
        choose: Callable[[MaskedChains, np.random.Generator], Array],
        words: Any = None,
        k: int | None = None,
    ) -> jax.Array:
        def host(seed: Any, *arrays: Any) -> tuple[Array]:
            tags = choose(_chains(*arrays), np.random.default_rng(np.asarray(seed).tolist()))
            return (_padded(tags, arrays[2]),)

        items, length = self._kept.shape
        shape = shape_of((items, *(() if k is None else (k,)), length), integer())
        seed = np.zeros(1, np.uint32) if words is None else detached(words)
        result: jax.Array = host_callback(host, (shape,), (seed, *self._given()), "sequential")[0]
        return result

    def _given(self) -> tuple[Any, ...]:
        marks = jnp.where(self._kept, 0, UNUSED)
        return detached(self._scores), detached(self.transitions), marks


def _padded(tags: Array, marks: Any) -> Array:
    """Return tags (B, [k,] T) with padding outside of the mask, with the integer size of JAX."""
    outside = np.asarray(marks) < 0
    outside = outside if tags.ndim == 2 else outside[:, None]
    return np.where(outside | (tags < 0), PADDING, tags).astype(integer())
