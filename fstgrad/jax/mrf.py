"""Markov random fields on JAX arrays."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fstgrad.core.checks import instance
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.infeasible import Infeasible
from fstgrad.jax import arguments
from fstgrad.jax.arguments import IGNORE_INDEX
from fstgrad.jax.operators import gradients, values
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.mrf.objectives import UNKNOWN
from fstgrad.objectives.mrf import FieldLogPartition, FieldNll


class Marginals(NamedTuple):
    """Marginals of nodes (B, I, C) and edges (B, E, C, C)."""

    node: jax.Array
    edge: jax.Array


def mrf_nll(
    node_scores: Any,
    edge_scores: Any,
    gold: Any,
    graph: PairwiseMRF,
    *,
    method: str = "exact",
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
    **options: Any,
) -> jax.Array:
    """Return -log p(gold), or a surrogate of it, in nats for each item, (B,).

    Parameters
    ----------
    node_scores : (B, I, C), or images (B, C, H, W)
    edge_scores : (C, C), (E, C, C) or (B, E, C, C)
    gold : (B, I), or images (B, H, W), integers; `ignore_index` and -1 mark unknown labels
    graph : PairwiseMRF
        Its scores are not used.
    method : str
        As in `PairwiseMRF.nll`, with its options.
    ignore_index : int
    infeasible : {"raise", "zero"}
        What to do with items that have no labeling, or no gold labeling, of finite score.

    Examples
    --------
    >>> import numpy as np, jax.numpy as jnp, fstgrad as fg, fstgrad.jax as fgj
    >>> pair = fg.PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), np.array([[0, 1]]))
    >>> gold = jnp.array([[0, 1]])
    >>> value = fgj.mrf_nll(jnp.zeros((1, 2, 2)), jnp.zeros((2, 2)), gold, pair)
    >>> round(float(jnp.exp(value[0])), 4)
    4.0
    """
    nodes, edges = tables(node_scores, edge_scores, graph)
    known = arguments.constant("gold", gold)
    if known.ndim == 3:
        graph.graph.check_image("gold", known.shape[1:])
        known = known.reshape(len(known), graph.num_nodes)
    known = arguments.integers("gold", known, nodes.shape[:2])
    where = np.where if isinstance(known, np.ndarray) else jnp.where
    labels = where(arguments.is_ignored(known, ignore_index), UNKNOWN, known)
    return values(FieldNll(graph, method, options), [nodes, edges], [labels], infeasible)


def mrf_log_partition(
    node_scores: Any,
    edge_scores: Any,
    graph: PairwiseMRF,
    *,
    method: str = "exact",
    infeasible: Infeasible = "raise",
    **options: Any,
) -> jax.Array:
    """Return log Z (B,) in nats, or the value of `method` for it; its gradient is the marginals.

    Parameters as in `mrf_nll`.
    """
    nodes, edges = tables(node_scores, edge_scores, graph)
    objective = FieldLogPartition(graph, method, options)
    return values(objective, [nodes, edges], [_no_labels(nodes)], infeasible)


def mrf_marginals(
    node_scores: Any,
    edge_scores: Any,
    graph: PairwiseMRF,
    *,
    method: str = "exact",
    infeasible: Infeasible = "raise",
    **options: Any,
) -> Marginals:
    """Return the marginals of nodes (B, I, C) and edges (B, E, C, C).

    They are differentiable with the methods "exact", "bp" and "trw".  Parameters as in `mrf_nll`.
    """
    nodes, edges = tables(node_scores, edge_scores, graph)
    if edges.ndim == 3:
        shape = (len(nodes), graph.graph.num_edges, *edges.shape[1:])
        edges = jnp.broadcast_to(edges[:, None], shape)
    objective = FieldLogPartition(graph, method, options)
    return Marginals(*gradients(objective, [nodes, edges], [_no_labels(nodes)], infeasible))


def tables(node_scores: Any, edge_scores: Any, graph: Any) -> tuple[jax.Array, jax.Array]:
    """Return scores of nodes (B, I, C) and of edges (B, C, C) or (B, E, C, C)."""
    instance("graph", graph, PairwiseMRF, "a PairwiseMRF")
    axes = "(B, I, C), or images (B, C, H, W)"
    nodes = arguments.table("node_scores", node_scores, 3, 4, axes=axes)
    if nodes.ndim == 4:
        graph.graph.check_image("node_scores", nodes.shape[2:])
        nodes = nodes.reshape(*nodes.shape[:2], graph.num_nodes).transpose(0, 2, 1)
    edges = arguments.table("edge_scores", edge_scores, 2, 3, 4, axes="(C, C) or (E, C, C)")
    if edges.ndim < 4:
        edges = jnp.broadcast_to(edges, (len(nodes), *edges.shape))
    plain_graph = graph.graph
    wanted = ((nodes.shape[0], plain_graph.num_nodes), (nodes.shape[2],) * 2)
    is_other = edges.ndim == 4 and edges.shape[1] != plain_graph.num_edges
    is_other |= nodes.shape[2] != graph.num_labels
    if (edges.shape[0], nodes.shape[1]) != wanted[0] or edges.shape[-2:] != wanted[1] or is_other:
        raise InvalidInputError(
            f"node_scores has the shape {np.shape(node_scores)}, edge_scores "
            f"{np.shape(edge_scores)}; the graph has {plain_graph.num_nodes} nodes with "
            f"{graph.num_labels} labels, and {plain_graph.num_edges} edges"
        )
    return nodes, edges


def _no_labels(nodes: jax.Array) -> np.ndarray[Any, Any]:
    """Return labels (B, I), all unknown."""
    return np.full(nodes.shape[:2], UNKNOWN)
