"""Predictions of a trained network on JAX arrays, also under jit and vmap.

Each family has one class, named as in `fstgrad.torch`.  Results are integers, padded with -100 so
that they can be compared with padded gold, and log-probabilities in nats.  Structures have no
derivative; a derivative of log-probabilities is an error.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import jax
import numpy as np

from fstgrad.core.checks import flag, instance, positive_integer
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.core.sequences import items
from fstgrad.jax import arguments
from fstgrad.jax.lattices import arc_scores
from fstgrad.jax.mrf import tables
from fstgrad.jax.operators import batched_callback, shape_of
from fstgrad.losses import Loss
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.objectives.base import Array
from fstgrad.objectives.predictions import (
    labels_of_least_risk,
    lattice_string_of_least_risk,
    padded,
    string_of_least_risk,
    tree_of_least_risk,
)
from fstgrad.strings import StringDistribution
from fstgrad.strings.lattices import Lattice
from fstgrad.trees.spanning import SpanningTrees


class Predictions:
    """Structures of B items, each from its distribution."""

    def __init__(self, given: Sequence[Any], shape: tuple[int, ...]) -> None:
        """Store arrays (B, ...), scores first, and the shape of a padded structure."""
        if len(given[0]) == 0:
            raise InvalidInputError("scores have no items; give a batch of at least one")
        self.given, self.shape = tuple(given), shape

    def _distribution(self, *parts: Array) -> Any:
        """Return the distribution of one item, with the methods mode, kbest and sample."""
        raise NotImplementedError

    def decode(self) -> jax.Array:
        """Return the most probable structure of each item (B, ...)."""
        return self._chosen(lambda own, _: own.mode())

    def nbest(self, k: int) -> tuple[jax.Array, jax.Array]:
        """Return the k best structures (B, k, ...) and log p (B, k), best first.

        If an item has fewer, the remaining log p are -inf and the structures are -100.
        """
        k = positive_integer("k", k)

        def host(*arrays: Array) -> tuple[Array, Array]:
            lists = [self._distribution(*parts).kbest(k) for parts in zip(*arrays, strict=True)]
            log_probs = np.full((len(lists), k), -np.inf)
            for i, ranked in enumerate(lists):
                log_probs[i, : len(ranked)] = [log_prob for _, log_prob in ranked]
            return padded([[y for y, _ in ranked] for ranked in lists], k, self.shape), log_probs

        scores, *others = self.given
        rows = (len(scores), k)
        shapes = (shape_of((*rows, *self.shape), integer()), shape_of(rows, scores.dtype))
        structures, log_probs = batched_callback(
            host, shapes, (detached(scores), *map(detached, others))
        )
        return structures, undifferentiable(scores, log_probs)

    def sample(self, k: int, key: Any) -> jax.Array:
        """Return k independent structures of each item (B, k, ...); `key` is a `jax.random.key`."""
        k = positive_integer("k", k)
        return self._chosen(lambda own, rng: list(own.sample(k, rng)), key=key, k=k)

    def _chosen(
        self,
        choose: Callable[[Any, np.random.Generator], Any],
        *,
        key: Any = None,
        k: int | None = None,
    ) -> jax.Array:
        """Return the result of `choose` for each distribution: one structure, or k structures."""
        items = len(self.given[0])
        words = np.zeros((items, 1), np.uint32) if key is None else key_words(key, items)

        def host(seeds: Array, *arrays: Array) -> tuple[Array]:
            lists = []
            for seed, *parts in zip(seeds, *arrays, strict=True):
                chosen = choose(self._distribution(*parts), np.random.default_rng(seed.tolist()))
                lists.append([chosen] if k is None else chosen)
            table = padded(lists, k or 1, self.shape)
            return (table[:, 0] if k is None else table,)

        shape = (items, *(() if k is None else (k,)), *self.shape)
        given = (detached(words), *map(detached, self.given))
        result: jax.Array = batched_callback(host, (shape_of(shape, integer()),), given)[0]
        return result


def integer() -> Any:
    """Return the integer dtype: 64 bits if JAX has them enabled, otherwise 32."""
    return jax.dtypes.canonicalize_dtype(np.int64)


def detached(given: Any) -> Any:
    """Return an array without a derivative."""
    return given if isinstance(given, np.ndarray) else jax.lax.stop_gradient(given)


def key_words(key: Any, items: int) -> Any:
    """Return the data (B, w) of one random key per item, split from `key`."""
    try:
        return jax.random.key_data(jax.random.split(key, items))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"key is a {type(key).__name__}; give what jax.random.key returns"
        ) from error


@jax.custom_vjp
def undifferentiable(_: Any, log_probs: jax.Array) -> jax.Array:
    """Return log-probabilities; a loss that uses them cannot be differentiated in scores."""
    return log_probs


def _forward(_: Any, log_probs: jax.Array) -> tuple[jax.Array, None]:
    return log_probs, None


def _no_derivative(*_: Any) -> NoReturn:
    raise NotSupportedError(
        "log-probabilities of nbest have no derivative; score the structures, which are constants, "
        "by the objective of the family (crf_nll, linear_chain_nll, spanning_tree_nll, mrf_nll)"
    )


undifferentiable.defvjp(_forward, _no_derivative)


class Strings(Predictions):
    """Predictions from scores (B, L, n), (B, L, n+1, n), ...: see `softmax_margin`.

    Parameters
    ----------
    scores : log-weights
    lengths : (B,), optional

    Examples
    --------
    >>> import jax.numpy as jnp, fstgrad.jax as fgj
    >>> fgj.Strings(jnp.array([[[0.0, 1.0], [2.0, 0.0]]])).decode().tolist()
    [[1, 0]]
    """

    def __init__(self, scores: Any, lengths: Any = None) -> None:
        axes = "(B, L, n), (B, L, n+1, n), ..."
        table = arguments.table("scores", scores, *range(3, 12), axes=axes)
        sizes = arguments.lengths(lengths, len(table), 1, table.shape[1])
        super().__init__([table, sizes], table.shape[1:2])

    def _distribution(self, *parts: Array) -> StringDistribution:
        table, size = parts
        return StringDistribution(table[: checked_length(size, 1, len(table))])

    def mbr(self, loss: Loss, key: Any, *, candidates: int = 10, samples: int = 200) -> jax.Array:
        """Return the string y with the least E[L(y, Y)] among the k best of each item (B, L).

        The expectation, over Y ~ p, is estimated by the mean over `samples` strings drawn with
        `key`.
        """
        candidates = positive_integer("candidates", candidates)
        samples = positive_integer("samples", samples)
        instance("loss", loss, Loss, "a Loss")

        def chosen(own: StringDistribution, rng: np.random.Generator) -> Array:
            return string_of_least_risk(own, loss, candidates, samples, rng)

        return self._chosen(chosen, key=key)


class LatticeStrings(Predictions):
    """Predictions from scores of the arcs of lattices: see `lattice_softmax_margin`.

    Parameters
    ----------
    scores : (B, A) padded, or a sequence of B arrays (A_i,)
    lattices : sequence of B Lattice
        A compiled function keeps the lattices with which it was traced.

    Examples
    --------
    >>> import numpy as np, jax.numpy as jnp, fstgrad as fg, fstgrad.jax as fgj
    >>> lattice = fg.Lattice.from_nbest(["ab", "b"], np.zeros(2), fg.Alphabet("ab"))
    >>> scores = lattice.scatter(jnp.array([0.0, 1.0]))
    >>> fgj.LatticeStrings([scores], [lattice]).decode().tolist()
    [[1, -100]]
    """

    def __init__(self, scores: Any, lattices: Sequence[Lattice]) -> None:
        lattices = items("lattices", lattices)
        for i, lattice in enumerate(lattices):
            instance(f"lattices[{i}]", lattice, Lattice, "a Lattice")
        table = arc_scores(scores, lattices)
        width = max((int(own.graph.depths(own.label >= 0)[-1, 1]) for own in lattices), default=0)
        super().__init__([table, np.arange(len(lattices))], (width,))
        self._lattices: tuple[Lattice, ...] = tuple(lattices)

    def _distribution(self, *parts: Array) -> Lattice:
        table, i = parts
        lattice = self._lattices[int(i)]
        return lattice.with_scores(table[: lattice.num_arcs])

    def mbr(self, loss: Loss, *, candidates: int = 10) -> jax.Array:
        """Return the string y with the least E[L(y, Y)] among the k best of each item, Y ~ p.

        The expected loss is exact where `fg.mbr` can compute it, else over 1,000 drawn strings.
        """
        candidates = positive_integer("candidates", candidates)
        instance("loss", loss, Loss, "a Loss")
        return self._chosen(lambda own, _: lattice_string_of_least_risk(own, loss, candidates))


class Trees(Predictions):
    """Predictions from scores (B, n+1, n+1[, y]): heads (B, n), or heads and labels (B, n, 2).

    Parameters as in `spanning_tree_nll`.

    Examples
    --------
    >>> import jax.numpy as jnp, fstgrad.jax as fgj
    >>> scores = jnp.array([[[0.0, 2.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
    >>> fgj.Trees(scores, single_root=True).decode().tolist()
    [[0, 1]]
    """

    def __init__(
        self, scores: Any, *, single_root: bool, lengths: Any = None, labeled: bool = False
    ) -> None:
        axes = "(B, n+1, n+1, y)" if flag("labeled", labeled) else "(B, n+1, n+1)"
        table = arguments.table("scores", scores, 4 if labeled else 3, axes=axes)
        if table.shape[1] != table.shape[2] or table.shape[1] == 0:
            raise InvalidInputError(f"scores has the shape {table.shape}; give {axes}")
        flag("single_root", single_root)
        words = table.shape[1] - 1
        sizes = arguments.lengths(lengths, len(table), 0, words)
        super().__init__([table, sizes], (words, *([2] if labeled else [])))
        self._family = partial(SpanningTrees, single_root=single_root, labeled=labeled)

    def _distribution(self, *parts: Array) -> SpanningTrees:
        table, size = parts
        nodes = checked_length(size, 0, len(table) - 1) + 1
        return self._family(table[:nodes, :nodes])

    def mbr(self) -> jax.Array:
        """Return the trees with the largest expected number of correct arcs (and labels)."""
        return self._chosen(lambda trees, _: tree_of_least_risk(trees))


class RandomFields(Predictions):
    """Predictions (B, I) from node scores and edge scores, (B, H, W) for images: see `mrf_nll`.

    Parameters
    ----------
    node_scores : (B, I, C), or images (B, C, H, W)
    edge_scores : (C, C), (E, C, C) or (B, E, C, C)
    graph : PairwiseMRF
        Its scores are not used.
    """

    def __init__(self, node_scores: Any, edge_scores: Any, graph: PairwiseMRF) -> None:
        super().__init__(tables(node_scores, edge_scores, graph), (graph.graph.num_nodes,))
        self._graph = graph
        axes = np.shape(node_scores)
        self._pixels = axes[2:] if len(axes) == 4 else axes[1:2]

    def _distribution(self, *parts: Array) -> PairwiseMRF:
        nodes, edges = (np.asarray(part, dtype=np.float64) for part in parts)
        return self._graph.with_scores(nodes, edges)

    def decode(self, method: str = "exact", **options: Any) -> jax.Array:
        """Return the best labeling of each item; methods as in `PairwiseMRF.decode`."""
        return self._chosen(lambda own, _: own.decode(method, **options).labels)

    def mbr(self, method: str = "exact", **options: Any) -> jax.Array:
        """Return the labels with the fewest expected errors: those with largest marginals."""
        return self._chosen(lambda model, _: labels_of_least_risk(model, method, options))

    def nbest(self, k: int) -> tuple[jax.Array, jax.Array]:
        """Return the k best labelings (B, k, ...) and log p (B, k), best first."""
        structures, log_probs = super().nbest(k)
        return structures.reshape(*structures.shape[:2], *self._pixels), log_probs

    def _chosen(self, *given: Any, **named: Any) -> jax.Array:
        structures = super()._chosen(*given, **named)
        return structures.reshape(*structures.shape[:-1], *self._pixels)


def checked_length(size: Any, least: int, most: int) -> int:
    """Return a length; raise InvalidInputError if it is not in `least` .. `most`."""
    if not least <= size <= most:
        raise InvalidInputError(f"a length is {size}; give {least} to {most}")
    return int(size)
