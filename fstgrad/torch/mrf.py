"""Markov random fields on tensors: training losses, log Z and marginals."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch

from fstgrad.core.checks import instance, one_of
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.mrf.objectives import UNKNOWN
from fstgrad.objectives.mrf import FieldLogPartition, FieldNll
from fstgrad.torch import arguments, arrays
from fstgrad.torch.operators import REDUCTIONS, gradients, reduced, values


class Marginals(NamedTuple):
    """Marginals of nodes (..., I, C) and edges (..., E, C, C)."""

    node: torch.Tensor
    edge: torch.Tensor


def mrf_nll(
    node_scores: torch.Tensor,
    edge_scores: torch.Tensor,
    gold: torch.Tensor,
    graph: PairwiseMRF,
    *,
    method: str = "exact",
    reduction: str = "mean",
    ignore_index: int = -100,
    **options: Any,
) -> torch.Tensor:
    """Return -log p(gold), or a surrogate of it, in nats, averaged over a batch.

    "exact", "bp" and "trw" are twice differentiable (the latter two if they converge, and not on a
    GPU).  The others are once differentiable; a second derivative is an error.

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
    _check(node_scores, edge_scores, graph)
    instance("method", method, str, "the name of a method")
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
    if method == "bp" and _runs_on_device(nodes, edges, golds):
        known = {name: options[name] for name in ("max_iter", "tol", "damping") if name in options}
        per_item = _BetheLoss.apply(nodes, edges, golds, graph, known)  # type: ignore[no-untyped-call]
    else:
        per_item = values(FieldNll(graph, method, options), [nodes, edges], [golds])
    return reduced(per_item[0] if single else per_item, reduction)


def mrf_log_partition(
    node_scores: torch.Tensor,
    edge_scores: torch.Tensor,
    graph: PairwiseMRF,
    *,
    method: str = "exact",
    **options: Any,
) -> torch.Tensor:
    """Return log Z () or (B,) in nats, or the value of `method` for it: the Bethe estimate ("bp"),
    an upper bound ("trw"), a lower bound ("mean-field").

    The gradient is the marginals of the method.  Shapes and options as in `mrf_nll`; "exact", "bp"
    and "trw" are twice differentiable.
    """  # noqa: D205
    _check(node_scores, edge_scores, graph)
    single = node_scores.ndim == 2
    nodes = by_node(node_scores, graph)
    scores = [nodes, _edges_per_item(edge_scores, len(nodes))]
    per_item = values(FieldLogPartition(graph, method, options), scores, [_no_labels(nodes)])
    return per_item[0] if single else per_item


def mrf_marginals(
    node_scores: torch.Tensor,
    edge_scores: torch.Tensor,
    graph: PairwiseMRF,
    *,
    method: str = "exact",
    **options: Any,
) -> Marginals:
    """Return the marginals of nodes (..., I, C) and edges (..., E, C, C), as a layer of a network.

    They are differentiable with the methods "exact", "bp" and "trw".  The backward pass of "exact"
    is a product with the covariances.  The pseudo-marginals of "bp" and "trw" are differentiated
    implicitly at the fixed point (`fstgrad.mrf.messages.linear_response`).  Shapes and options as
    in `mrf_nll`.
    """
    _check(node_scores, edge_scores, graph)
    single = node_scores.ndim == 2
    nodes = by_node(node_scores, graph)
    edges = _edges_per_item(edge_scores, len(nodes))
    if edges.ndim == 3:
        edges = edges[:, None].expand(-1, graph.graph.num_edges, -1, -1)
    objective, unknown = FieldLogPartition(graph, method, options), _no_labels(nodes)
    node, edge = gradients(objective, [nodes, edges], [unknown])
    return Marginals(*((node[0], edge[0]) if single else (node, edge)))


def _check(node_scores: Any, edge_scores: Any, graph: Any) -> None:
    """Raise InvalidInputError unless scores are tensors and `graph` is a PairwiseMRF."""
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


class _BetheLoss(torch.autograd.Function):
    """Bethe losses of B items on their device, once differentiable."""

    @staticmethod
    def forward(
        ctx: Any,
        nodes: torch.Tensor,
        edges: torch.Tensor,
        golds: torch.Tensor,
        graph: PairwiseMRF,
        options: dict[str, Any],
    ) -> torch.Tensor:
        wide, table = (tensor.detach().to(torch.float64) for tensor in (nodes, edges))
        losses, by_node, by_edge = bethe_nll(wide, table, golds, graph, **options)
        ctx.save_for_backward(by_node, by_edge)
        ctx.dtypes = nodes.dtype, edges.dtype
        return losses.to(nodes.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise NotSupportedError(
                "method 'bp' of a Markov random field has no second derivative on a GPU; move the "
                "tensors to the CPU, or use first derivatives only"
            )
        by_node, by_edge = ctx.saved_tensors
        weight = upstream[0].to(torch.float64)
        node = (weight[:, None, None] * by_node).to(ctx.dtypes[0])
        edge = (weight.reshape(-1, *(1,) * (by_edge.ndim - 1)) * by_edge).to(ctx.dtypes[1])
        return node, edge, None, None, None


def _runs_on_device(nodes: torch.Tensor, edges: torch.Tensor, golds: torch.Tensor) -> bool:
    """Whether to run belief propagation on a GPU: finite scores and all labels known."""
    if not arrays.computes_on_device(nodes):
        return False
    if not (torch.isfinite(nodes).all() and torch.isfinite(edges).all()):
        warnings.warn("forbidden labels are computed on the CPU", RuntimeWarning, stacklevel=3)
        return False
    return bool((golds != UNKNOWN).all())


def bethe_nll(
    nodes: torch.Tensor,
    edge: torch.Tensor,
    golds: torch.Tensor,
    graph: PairwiseMRF,
    *,
    max_iter: int = 200,
    tol: float = 1e-6,
    damping: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return Bethe log Z - score(gold) (B,) and its gradients, by flooding in tensor operations.

    All scores must be finite; edges are (B, C, C) or (B, E, C, C).  Messages (B, 2E, C) are
    logarithms with maximum 0; arc a and arc a + E are the two directions of edge a.  O(B E C^2) per
    iteration.  Warns if messages still change by more than `tol` nats after `max_iter` iterations.
    """
    ends = torch.as_tensor(np.array(graph.graph.edges), device=nodes.device)
    size = len(ends)
    source, target = torch.cat([ends[:, 0], ends[:, 1]]), torch.cat([ends[:, 1], ends[:, 0]])
    back = torch.cat([torch.arange(size) + size, torch.arange(size)]).to(nodes.device)
    tables = _by_edge(edge, size)
    along = torch.cat([tables, tables.transpose(2, 3)], dim=1)
    messages = torch.zeros(len(nodes), 2 * size, nodes.shape[-1], dtype=nodes.dtype).to(nodes)
    for _ in range(max_iter):
        cavity = _beliefs(nodes, messages, target)[:, source] - messages[:, back]
        fresh = torch.logsumexp(cavity[..., :, None] + along, dim=-2)
        fresh = fresh - fresh.amax(dim=-1, keepdim=True)
        change = (fresh - messages).abs().max() if fresh.numel() else torch.zeros(())
        if damping:
            mixed = damping * messages + (1 - damping) * fresh
            fresh = mixed - mixed.amax(dim=-1, keepdim=True)
        messages = fresh
        if change <= tol:
            break
    else:
        warnings.warn(
            f"bp did not converge (last change {float(change):.2g}); the loss and its gradient are "
            "no estimates of the likelihood: raise max_iter or damping",
            RuntimeWarning,
            stacklevel=2,
        )
    beliefs = _beliefs(nodes, messages, target)
    node = torch.log_softmax(beliefs, dim=-1)
    cavity = beliefs[:, source] - messages[:, back]
    joint = cavity[:, :size, :, None] + tables + cavity[:, size:, None, :]
    joint = (joint - joint.flatten(2).logsumexp(-1)[..., None, None]).exp()
    return _bethe_values(nodes, edge, golds, ends, node.exp(), joint)


def _bethe_values(
    nodes: torch.Tensor,
    edge: torch.Tensor,
    golds: torch.Tensor,
    ends: torch.Tensor,
    node: torch.Tensor,
    joint: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return Bethe log Z minus the score of gold, and marginals minus the parts of gold."""
    items, pixels = torch.meshgrid(
        *(torch.arange(size, device=nodes.device) for size in golds.shape), indexing="ij"
    )
    left, right = golds[:, ends[:, 0]], golds[:, ends[:, 1]]
    edges = torch.arange(len(ends), device=nodes.device).expand_as(left)
    tables = _by_edge(edge, len(ends))
    degree = torch.bincount(ends.flatten(), minlength=nodes.shape[1])
    entropy = torch.special.entr(joint).sum(dim=(1, 2, 3))
    entropy = entropy - ((degree - 1)[:, None] * torch.special.entr(node)).sum(dim=(1, 2))
    log_z = (node * nodes).sum(dim=(1, 2)) + (joint * tables).sum(dim=(1, 2, 3)) + entropy
    which = items[:, :1].expand_as(edges)
    score = nodes[items, pixels, golds].sum(dim=1) + tables[which, edges, left, right].sum(dim=1)
    by_node, by_joint = node.clone(), joint.clone()
    by_node[items, pixels, golds] -= 1
    by_joint[items[:, :1].expand_as(edges), edges, left, right] -= 1
    by_edge = by_joint.sum(dim=1) if edge.ndim == 3 else by_joint
    return log_z - score, by_node, by_edge


def _beliefs(nodes: torch.Tensor, messages: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return node scores plus all incoming messages, (B, I, C)."""
    return nodes.index_add(1, target, messages)


def _by_edge(edge: torch.Tensor, size: int) -> torch.Tensor:
    """Return tables (B, E, C, C) of edge scores (B, C, C) or (B, E, C, C)."""
    return edge[:, None].expand(-1, size, -1, -1) if edge.ndim == 3 else edge
