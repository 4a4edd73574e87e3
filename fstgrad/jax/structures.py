"""Trees and Markov random fields on JAX arrays."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fstgrad.errors import InvalidInputError
from fstgrad.jax.operators import Array, Arrays, kept, values
from fstgrad.mrf.model import PairwiseMRF
from fstgrad.trees.spanning import SpanningTrees


def spanning_tree_nll(
    scores: Any, heads: Any, *, single_root: bool, lengths: Any = None, labeled: bool = False
) -> jax.Array:
    """Return -log p(tree) in nats of each item, (B,).

    Parameters
    ----------
    scores : (B, n+1, n+1), with labels (B, n+1, n+1, y)
        score[head, dependent]; index 0 is the root.
    heads : (B, n) integers, with labels (B, n, 2)
    single_root : bool
    lengths : (B,), optional
        Numbers of dependents.
    labeled : bool

    Examples
    --------
    >>> import jax.numpy as jnp, fstgrad.jax as fgj
    >>> value = fgj.spanning_tree_nll(
    ...     jnp.zeros((1, 4, 4)), jnp.array([[0, 1, 2]]), single_root=True
    ... )
    >>> round(float(jnp.exp(value[0])), 4)  # one of 9 trees
    9.0
    """
    table, gold = jnp.asarray(scores), jnp.asarray(heads)
    if table.ndim != (4 if labeled else 3) or gold.shape[0] != table.shape[0]:
        raise InvalidInputError(
            f"scores has the shape {table.shape}, heads {gold.shape}; give (B, n+1, n+1) and (B, n)"
        )
    sizes = jnp.full(len(table), table.shape[1] - 1) if lengths is None else jnp.asarray(lengths)
    return values(kept(_Trees, single_root, labeled), [table], [gold, sizes])


def mrf_nll(
    node_scores: Any, edge_scores: Any, gold: Any, graph: PairwiseMRF, *, method: str = "exact"
) -> jax.Array:
    """Return -log p(gold), or a surrogate of it, in nats of each item, (B,).

    Parameters
    ----------
    node_scores : (B, I, C)
    edge_scores : (C, C), (E, C, C) or (B, E, C, C)
    gold : (B, I) integers
    graph : PairwiseMRF
        Its scores are not used.
    method : str
        As in `PairwiseMRF.nll`.

    Examples
    --------
    >>> import numpy as np, jax.numpy as jnp, fstgrad as fg, fstgrad.jax as fgj
    >>> pair = fg.PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), np.array([[0, 1]]))
    >>> gold = jnp.array([[0, 1]])
    >>> value = fgj.mrf_nll(jnp.zeros((1, 2, 2)), jnp.zeros((2, 2)), gold, pair)
    >>> round(float(jnp.exp(value[0])), 4)
    4.0
    """
    nodes, edges, labels = jnp.asarray(node_scores), jnp.asarray(edge_scores), jnp.asarray(gold)
    if nodes.ndim != 3 or labels.shape != nodes.shape[:2]:
        raise InvalidInputError(
            f"node_scores has the shape {nodes.shape}, gold {labels.shape}; give (B, I, C) and "
            "(B, I)"
        )
    own = edges if edges.ndim == 4 else jnp.broadcast_to(edges, (len(nodes), *edges.shape))
    return values(kept(_Fields, graph, method), [nodes, own], [labels])


class _Trees:
    """-log p(tree) of each item."""

    def __init__(self, single_root: bool, labeled: bool) -> None:
        self.single_root, self.labeled = single_root, labeled

    def evaluate(self, scores: Arrays, constants: Arrays) -> tuple[Array, Arrays]:
        """Solve all items together."""
        gold, sizes = constants
        trees = SpanningTrees(
            scores[0].astype(np.float64),
            single_root=self.single_root,
            lengths=sizes,
            labeled=self.labeled,
        )
        found, gradient = trees.nll(gold)
        return np.asarray(found), [gradient]


class _Fields:
    """-log p(labeling) of each item."""

    def __init__(self, graph: PairwiseMRF, method: str) -> None:
        self.graph, self.method = graph, method

    def evaluate(self, scores: Arrays, constants: Arrays) -> tuple[Array, Arrays]:
        """Solve item after item."""
        nodes, edges = (array.astype(np.float64) for array in scores)
        found, by_node, by_edge = np.empty(len(nodes)), np.empty(nodes.shape), np.empty(edges.shape)
        for i, gold in enumerate(constants[0]):
            model = self.graph.with_scores(nodes[i], edges[i])
            found[i], gradient = model.nll(gold, method=self.method)
            by_node[i], by_edge[i] = gradient.node, gradient.edge
        return found, [by_node, by_edge]
