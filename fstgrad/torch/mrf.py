"""Training losses of Markov random fields on tensors."""

import warnings
from typing import Any

import numpy as np
import torch

from fstgrad.checks import one_of
from fstgrad.errors import InvalidInputError
from fstgrad.mrf.model import PairwiseMRF
from fstgrad.torch import functions
from fstgrad.torch.functions import REDUCTIONS, like, reduced, to_numpy


def mrf_nll(
    node_scores: torch.Tensor,
    edge_scores: torch.Tensor,
    gold: torch.Tensor,
    graph: PairwiseMRF,
    *,
    method: str = "exact",
    reduction: str = "mean",
    **options: Any,
) -> torch.Tensor:
    """Return -log p(gold), or a surrogate of it, in nats, averaged over a batch.

    Differentiable once, in the scores of nodes and edges.

    Parameters
    ----------
    node_scores : (I, C) or (B, I, C) float32 or float64
        Log-weights; -inf forbids.
    edge_scores : (C, C) or (E, C, C)
        Shared by the edges or one table for each; the same for all items of a batch.
    gold : (I,) or (B, I) integer
        The labelings.
    graph : PairwiseMRF
        A model on the graph: its edges, label counts and grid are used, its scores are not.
    method : "exact", "bp", "trw", "mean_field", "pseudolikelihood", "cd" or "cd1"
        As in `PairwiseMRF.nll`, with its options.  On a GPU "bp" on finite scores runs there.
    reduction : {"mean", "sum", "none"}

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
    single = node_scores.ndim == 2
    nodes = node_scores[None] if single else node_scores
    golds = gold[None] if single else gold
    if nodes.ndim != 3 or golds.shape != nodes.shape[:2]:
        raise InvalidInputError(
            f"node_scores has shape {tuple(node_scores.shape)}, gold {tuple(gold.shape)}; give "
            "(I, C) and (I,), or (B, I, C) and (B, I)"
        )
    values: torch.Tensor = _Nll.apply(  # type: ignore[no-untyped-call]
        nodes, edge_scores, golds, graph, method, options
    )
    return reduced(values[0] if single else values, reduction)


class _Nll(torch.autograd.Function):
    """B losses; items share the edge scores, whose gradients add up weighted by upstream."""

    @staticmethod
    def forward(
        ctx: Any,
        nodes: torch.Tensor,
        edge: torch.Tensor,
        golds: torch.Tensor,
        graph: PairwiseMRF,
        method: str,
        options: dict[str, Any],
    ) -> torch.Tensor:
        wide, table = (tensor.detach().to(torch.float64) for tensor in (nodes, edge))
        found = _on_device(wide, table, golds, graph, options) if method == "bp" else None
        if found is None:
            found = _on_cpu(wide, table, golds, graph, method, options)
        values, by_node, by_edge = found
        ctx.save_for_backward(by_node, by_edge)
        ctx.dtypes = nodes.dtype, edge.dtype
        return values.to(nodes.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[Any, ...]:
        by_node, by_edge = ctx.saved_tensors
        weight = upstream[0].to(torch.float64)
        node = (weight[:, None, None] * by_node).to(ctx.dtypes[0])
        edge = torch.tensordot(weight, by_edge, dims=1).to(ctx.dtypes[1])
        return node, edge, None, None, None, None


def _on_cpu(
    nodes: torch.Tensor,
    edge: torch.Tensor,
    golds: torch.Tensor,
    graph: PairwiseMRF,
    method: str,
    options: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return values (B,) and gradients (B, I, C), (B, edge scores) from the arrays API."""
    table = to_numpy(edge)
    values, by_node, by_edge = [], [], []
    for own, labels in zip(to_numpy(nodes), golds.detach().cpu().numpy(), strict=True):
        value, gradient = graph.with_scores(own, table).nll(labels, method=method, **options)
        values.append(value)
        by_node.append(gradient.node)
        by_edge.append(gradient.edge)
    return like(values, nodes), like(np.stack(by_node), nodes), like(np.stack(by_edge), nodes)


def _on_device(
    nodes: torch.Tensor,
    edge: torch.Tensor,
    golds: torch.Tensor,
    graph: PairwiseMRF,
    options: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Return the same for "bp" from tensors on their GPU; None where the CPU has to do it."""
    if not functions.on_gpu(nodes):
        return None
    if not (torch.isfinite(nodes).all() and torch.isfinite(edge).all()):
        warnings.warn("forbidden labels are computed on the CPU", RuntimeWarning, stacklevel=2)
        return None
    known = {name: options[name] for name in ("max_iter", "tol", "damping") if name in options}
    return bethe_nll(nodes, edge, golds, graph, **known)


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

    All scores finite.  Messages (B, 2E, C) are logarithms with maximum 0; arc a and arc a + E are
    the two directions of edge a.  O(B E C^2) an iteration.
    """
    ends = torch.as_tensor(np.array(graph.graph.edges), device=nodes.device)
    size = len(ends)
    source, target = torch.cat([ends[:, 0], ends[:, 1]]), torch.cat([ends[:, 1], ends[:, 0]])
    back = torch.cat([torch.arange(size) + size, torch.arange(size)]).to(nodes.device)
    tables = edge.expand(size, *edge.shape[-2:])
    along = torch.cat([tables, tables.transpose(1, 2)])
    messages = torch.zeros(len(nodes), 2 * size, nodes.shape[-1], dtype=nodes.dtype).to(nodes)
    for _ in range(max_iter):
        cavity = _beliefs(nodes, messages, target)[:, source] - messages[:, back]
        fresh = torch.logsumexp(cavity[..., :, None] + along, dim=-2)
        fresh = fresh - fresh.amax(dim=-1, keepdim=True)
        change = (fresh.exp() - messages.exp()).abs().max()
        if damping:
            mixed = damping * messages.exp() + (1 - damping) * fresh.exp()
            fresh = mixed.log() - mixed.log().amax(dim=-1, keepdim=True)
        messages = fresh
        if change <= tol:
            break
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
    """Return the Bethe free energy less the score of gold, and marginals less the parts of gold."""
    items, pixels = torch.meshgrid(
        *(torch.arange(size, device=nodes.device) for size in golds.shape), indexing="ij"
    )
    left, right = golds[:, ends[:, 0]], golds[:, ends[:, 1]]
    edges = torch.arange(len(ends), device=nodes.device).expand_as(left)
    tables = edge.expand(len(ends), *edge.shape[-2:])
    degree = torch.bincount(ends.flatten(), minlength=nodes.shape[1])
    entropy = torch.special.entr(joint).sum(dim=(1, 2, 3))
    entropy = entropy - ((degree - 1)[:, None] * torch.special.entr(node)).sum(dim=(1, 2))
    log_z = (node * nodes).sum(dim=(1, 2)) + (joint * tables).sum(dim=(1, 2, 3)) + entropy
    score = nodes[items, pixels, golds].sum(dim=1) + tables[edges, left, right].sum(dim=1)
    by_node, by_joint = node.clone(), joint.clone()
    by_node[items, pixels, golds] -= 1
    by_joint[items[:, :1].expand_as(edges), edges, left, right] -= 1
    by_edge = by_joint.sum(dim=1) if edge.ndim == 2 else by_joint
    return log_z - score, by_node, by_edge


def _beliefs(nodes: torch.Tensor, messages: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return node scores plus all incoming messages, (B, I, C)."""
    return nodes.index_add(1, target, messages)
