"""The linear-chain conditional random field as a distribution on JAX arrays."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fstgrad.core.checks import positive_integer
from fstgrad.core.errors import InvalidInputError
from fstgrad.jax import arguments
from fstgrad.jax.arguments import IGNORE_INDEX
from fstgrad.jax.chains import UNUSED, compacted, linear_chain_nll, with_ends
from fstgrad.jax.operators import on_host, shape_of
from fstgrad.jax.predictions import constant, integer, without_derivative, words_of
from fstgrad.objectives.base import Array
from fstgrad.objectives.predictions import NOTHING
from fstgrad.strings.linear_chain import LinearChains


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

    def nll(self, gold: Any, *, ignore_index: int = IGNORE_INDEX) -> jax.Array:
        """Return `linear_chain_nll` of gold (B, T) in nats, (B,)."""
        return linear_chain_nll(
            self.emissions, self.transitions, gold, self.mask,
            start=self.start, end=self.end, ignore_index=ignore_index,
        )  # fmt: skip

    def decode(self) -> jax.Array:
        """Return the best tags (B, T), -100 where the mask is False; ties go to smaller tags."""
        return self._tags(lambda chains, _: chains.best()[0])

    def mbr(self) -> jax.Array:
        """Return the tags with the fewest expected errors (B, T): those with largest marginals."""
        return self._tags(lambda chains, _: chains.solve().node.argmax(axis=2))

    def sample(self, k: int, key: Any) -> jax.Array:
        """Return k independent tag sequences of each item (B, k, T); key : a `jax.random.key`."""
        k = positive_integer("k", k)
        return self._tags(lambda chains, rng: chains.sample(k, rng), words_of(key, 1)[0], k)

    def nbest(self, k: int) -> tuple[jax.Array, jax.Array]:
        """Return the k best tag sequences (B, k, T), -100 as padding, and log p (B, k) in nats.

        If an item has fewer sequences, the remaining log p are -inf and the tags are -100.
        """
        k = positive_integer("k", k)

        def host(*arrays: Any) -> tuple[Array, Array]:
            chains, order, own = _chains(*arrays)
            tags, scores = chains.kbest(k)
            log_probs = scores - chains.solve().log_z[:, None]
            return _placed(tags, order, own), log_probs.astype(self._scores.dtype)

        items, length = self._kept.shape
        rows = shape_of((items, k), self._scores.dtype)
        shapes = (shape_of((items, k, length), integer()), rows)
        found, log_probs = on_host(host, shapes, self._given(), "sequential")
        return found, without_derivative((self._scores, self.transitions), log_probs)

    def _tags(
        self,
        choose: Callable[[LinearChains, np.random.Generator], Array],
        words: Any = None,
        k: int | None = None,
    ) -> jax.Array:
        def host(seed: Any, *arrays: Any) -> tuple[Array]:
            chains, order, own = _chains(*arrays)
            tags = choose(chains, np.random.default_rng(np.asarray(seed).tolist()))
            return (_placed(tags, order, own),)

        items, length = self._kept.shape
        shape = shape_of((items, *(() if k is None else (k,)), length), integer())
        seed = np.zeros(1, np.uint32) if words is None else constant(words)
        found: jax.Array = on_host(host, (shape,), (seed, *self._given()), "sequential")[0]
        return found

    def _given(self) -> tuple[Any, ...]:
        marks = jnp.where(self._kept, 0, UNUSED)
        return constant(self._scores), constant(self.transitions), marks


def _chains(emissions: Any, transitions: Any, marks: Any) -> Any:
    return compacted(*map(np.asarray, (emissions, transitions, marks)))


def _placed(tags: Array, order: Array, own: list[Array]) -> Array:
    """Return tags (B, ..., T) moved back to their positions, with the integer size of JAX."""
    table = np.full(tags.shape, NOTHING, dtype=integer())
    for i, path in enumerate(own):
        rows = tags[i, ..., : len(path)]
        table[i][..., order[i, : len(path)]] = np.where(rows < 0, NOTHING, rows)
    return table
