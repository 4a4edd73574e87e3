"""Markov random fields on tensors: training losses, log Z and marginals."""

from typing import Any, NamedTuple

import torch

from fstgrad.core.checks import instance, one_of
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.infeasible import Infeasible, check_infeasible
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.mrf.messages.belief_propagation import Settings
from fstgrad.mrf.objectives import UNKNOWN
from fstgrad.objectives.infeasible import FeasibleItems
from fstgrad.objectives.mrf import FieldLogPartition, FieldNll
from fstgrad.torch import arguments
from fstgrad.torch.arrays import computes_on_device, upcast, validated
from fstgrad.torch.device import fields
from fstgrad.torch.operators import REDUCTIONS, gradients, reduced, values
from fstgrad.torch.transforms import refuse_transforms


class Marginals(NamedTuple):
    """Marginals of nodes (..., I, C) and edges (..., E, C, C)."""

    node: torch.Tensor
    edge: torch.Tensor


@validated
def mrf_nll(
    node_scores: torch.Tensor,
    edge_scores: torch.Tensor,
    gold: torch.Tensor,
    graph: PairwiseMRF,
    *,
    method: str = "exact",
    reduction: str = "mean",
    ignore_index: int = -100,
    infeasible: Infeasible = "raise",
    **options: Any,
) -> torch.Tensor:
    """Return -log p(gold), or a surrogate of it, in nats, averaged over a batch.

    "exact", "bp" and "trw" are twice differentiable (the latter two if they converge, and "bp" not
    on a GPU).  The others are once differentiable; a second derivative is an error.

    Parameters
    ----------
    node_scores : (I, C), (B, I, C), or images (B, C, H, W) floating point
        Log-weights; -inf forbids.
    edge_scores : (C, C), (E, C, C) or (B, E, C, C)
        One table for all edges, one for each edge, or one for each edge of each item.
    gold : (I,), (B, I), or images (B, H, W) integer
        The labelings; nodes are pixels row by row.
    graph : PairwiseMRF
        A model on the graph: its edges, numbers of labels and grid are used, its scores are not.
    method : "exact", "bp", "trw", "mean-field", "pseudolikelihood", "cd" or "cd1"
        As in `PairwiseMRF.nll`, with its options.
        Contrastive divergence: `rng` is used for all items one after the other; `persistent` is
        `PersistentChains(model, chains, items=B)`.
    reduction : {"mean", "sum", "none"}
    ignore_index : int
        Marks unknown gold labels: the loss is -log p(the known labels), for "exact", "bp", "trw"
        and "mean-field".
    infeasible : {"raise", "zero"}
        What to do if items have no labeling, or a gold labeling, of finite score.  "raise": one
        error names them all.  "zero": their values and gradients are 0; "mean" divides by B.

    Examples
    --------
    >>> import numpy as np, torch, fstgrad as fg, fstgrad.torch
    >>> pair = fg.PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), np.array([[0, 1]]))
    >>> node = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    >>> edge = torch.zeros(2, 2, dtype=torch.float64)
    >>> value = fstgrad.torch.mrf_nll(node, edge, torch.tensor([0, 1]), pair)
    >>> value.backward()
    >>> round(float(value.detach().exp()), 9), node.grad.tolist()
    (4.0, [[-0.5, 0.5], [0.5, -0.5]])
    """
    one_of("reduction", reduction, REDUCTIONS)
    _check(node_scores, edge_scores, graph, method, infeasible)
    labels = arguments.integers("gold", gold)
    single = node_scores.ndim == 2
    nodes = by_node(node_scores, graph)
    golds = labels[None] if single else labels
    if golds.ndim == 3:
        graph.graph.check_image("gold", golds.shape[1:])
        golds = golds.flatten(1)
    if golds.shape != nodes.shape[:2]:
        raise InvalidInputError(
            f"node_scores has shape {tuple(node_scores.shape)}, gold {tuple(gold.shape)}; give "
            "(I, C) and (I,), (B, I, C) and (B, I), or images (B, C, H, W) and (B, H, W)"
        )
    edges = _edges_per_item(edge_scores, len(nodes))
    golds = torch.where(golds == arguments.integer("ignore_index", ignore_index), UNKNOWN, golds)
    per_item = None
    if infeasible == "raise":  # the compiled passes find infeasible items
        per_item = _on_device(nodes, edges, golds, graph, method, options)
    if per_item is None:
        objective = FeasibleItems(FieldNll(graph, method, options), infeasible)
        per_item = values(objective, [nodes, edges], [golds])
    return reduced(per_item[0] if single else per_item, reduction)


@validated
def mrf_log_partition(
    node_scores: torch.Tensor,
    edge_scores: torch.Tensor,
    graph: PairwiseMRF,
    *,
    method: str = "exact",
    infeasible: Infeasible = "raise",
    **options: Any,
) -> torch.Tensor:
    """Return log Z () or (B,) in nats, or the value of `method` for it: the Bethe estimate ("bp"),
    an upper bound ("trw"), a lower bound ("mean-field").

    The gradient is the marginals of the method.  Shapes and options as in `mrf_nll`; "exact", "bp"
    and "trw" are twice differentiable.
    """  # noqa: D205
    _check(node_scores, edge_scores, graph, method, infeasible)
    single = node_scores.ndim == 2
    nodes = by_node(node_scores, graph)
    edges, per_item = _edges_per_item(edge_scores, len(nodes)), None
    if infeasible == "raise":
        per_item = _on_device(nodes, edges, None, graph, method, options)
    if per_item is None:
        objective = FeasibleItems(FieldLogPartition(graph, method, options), infeasible)
        per_item = values(objective, [nodes, edges], [_no_labels(nodes)])
    return per_item[0] if single else per_item


def mrf_marginals(
    node_scores: torch.Tensor,
    edge_scores: torch.Tensor,
    graph: PairwiseMRF,
    *,
    method: str = "exact",
    infeasible: Infeasible = "raise",
    **options: Any,
) -> Marginals:
    """Return the marginals of nodes (..., I, C) and edges (..., E, C, C), as a layer of a network.

    They are differentiable with the methods "exact", "bp" and "trw".  The backward pass of "exact"
    is a product with the covariances.  The pseudo-marginals of "bp" and "trw" are differentiated
    implicitly at the fixed point (`fstgrad.mrf.messages.linear_response`).  Shapes and options as
    in `mrf_nll`.
    """
    _check(node_scores, edge_scores, graph, method, infeasible)
    single = node_scores.ndim == 2
    nodes = by_node(node_scores, graph)
    edges = _edges_per_item(edge_scores, len(nodes))
    if edges.ndim == 3:
        edges = edges[:, None].expand(-1, graph.graph.num_edges, -1, -1)
    objective = FeasibleItems(FieldLogPartition(graph, method, options), infeasible)
    node, edge = gradients(objective, [nodes, edges], [_no_labels(nodes)])
    return Marginals(*((node[0], edge[0]) if single else (node, edge)))


def _check(node_scores: Any, edge_scores: Any, graph: Any, method: Any, infeasible: Any) -> None:
    """Raise InvalidInputError unless the arguments that all functions share have the right type."""
    instance("method", method, str, "the name of a method")
    check_infeasible(infeasible)
    arguments.floating("node_scores", node_scores)
    arguments.floating("edge_scores", edge_scores)
    instance("graph", graph, PairwiseMRF, "a PairwiseMRF")
    if node_scores.ndim < 2:
        raise InvalidInputError(
            f"node_scores has shape {tuple(node_scores.shape)}; give (I, C) or (B, I, C)"
        )


def by_node(node_scores: torch.Tensor, graph: PairwiseMRF) -> torch.Tensor:
    """Return node scores (B, I, C) of (I, C), (B, I, C) or images (B, C, H, W)."""
    nodes = node_scores[None] if node_scores.ndim == 2 else node_scores
    if nodes.ndim == 4:
        graph.graph.check_image("node_scores", nodes.shape[2:])
        nodes = nodes.flatten(2).transpose(1, 2)
    if nodes.shape[1:] != (graph.num_nodes, graph.num_labels):
        raise InvalidInputError(
            f"node_scores has shape {tuple(node_scores.shape)}, and the graph {graph.num_nodes} "
            f"nodes with {graph.num_labels} labels; give (I, C), (B, I, C), or images (B, C, H, W)"
        )
    return nodes


def _no_labels(nodes: torch.Tensor) -> torch.Tensor:
    """Return labels (B, I), all unknown."""
    return torch.full(nodes.shape[:2], UNKNOWN)


def _edges_per_item(edge_scores: torch.Tensor, items: int) -> torch.Tensor:
    """Return edge scores (B, C, C) or (B, E, C, C), shared ones as views."""
    if edge_scores.ndim == 4:
        if len(edge_scores) != items:
            raise InvalidInputError(
                f"edge_scores has shape {tuple(edge_scores.shape)} for {items} items; give one "
                "table of edges for each item, or (E, C, C)"
            )
        return edge_scores
    if edge_scores.ndim not in (2, 3):
        raise InvalidInputError(
            f"edge_scores has shape {tuple(edge_scores.shape)}; give (C, C), (E, C, C) or "
            "(B, E, C, C)"
        )
    return edge_scores.expand(items, *edge_scores.shape)


def _on_device(
    nodes: torch.Tensor,
    edges: torch.Tensor,
    golds: torch.Tensor | None,
    graph: PairwiseMRF,
    method: str,
    options: dict[str, Any],
) -> torch.Tensor | None:
    """Return values (B,) by operations of PyTorch, None if there are none for these arguments."""
    is_pseudo = method == "pseudolikelihood" and golds is not None
    if not (is_pseudo or method == "bp") or not computes_on_device(nodes):
        return None
    if graph.factors.number or options.keys() - (
        () if is_pseudo else {"max_iter", "tol", "damping"}
    ):
        return None
    refuse_transforms([nodes, edges])
    ends, node, edge = fields.ends_of(graph.graph, nodes.device), upcast(nodes), upcast(edges)
    all_known = False
    if golds is not None and golds.device.type == "cpu":  # these can be read without waiting
        all_known = bool(((golds >= 0) & (golds < graph.num_labels)).all())
        if not all_known and (is_pseudo or bool((golds >= graph.num_labels).any())):
            return None  # the passes on the CPU say what is wrong
    if golds is not None:
        golds = golds.to(nodes.device, torch.int64, non_blocking=True)
    if is_pseudo and golds is not None:
        return fields.pseudolikelihood(node, edge, golds, ends).to(node.dtype)
    given: dict[str, Any] = {"max_iter": 200, "tol": 1e-6, "damping": 0.0} | options
    known = Settings(**given, schedule="flooding", threads=1, progress=None)
    run = fields.Run(known.max_iter, known.tol, known.damping, all_known)
    return fields.bethe_nll(node, edge, golds, ends, run).to(node.dtype)
