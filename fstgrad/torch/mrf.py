"""Markov random fields on tensors: training losses, log Z and marginals."""

from typing import Any, NamedTuple

import numpy as np
import torch

from fstgrad.core.checks import instance, one_of
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.infeasible import Infeasible, check_infeasible
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.mrf.messages.belief_propagation import Settings
from fstgrad.mrf.objectives import ESTIMATES, UNKNOWN
from fstgrad.objectives.infeasible import FeasibleItems
from fstgrad.objectives.mrf import FieldLogPartition, FieldNll
from fstgrad.torch import arguments
from fstgrad.torch.arrays import (
    computes_on_device,
    per_item,
    require_cpu,
    to_device,
    upcast,
    validated,
)
from fstgrad.torch.device import fields
from fstgrad.torch.operators import REDUCTIONS, gradients, reduced, values
from fstgrad.torch.transforms import refuse_transforms

_OPTIONS = {"max_iter", "tol", "damping"}  # of the methods on a device


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

    "exact", "bp" and "trw" are twice differentiable (the latter two if they converge).  The others
    are once differentiable; a second derivative is an error.

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
        Marks unknown gold labels, as -1 does: the loss is -log p(the known labels), for "exact",
        "bp", "trw" and "mean-field".
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
    nodes, edges, single = _arguments(node_scores, edge_scores, graph, method, infeasible)
    labels = arguments.integers("gold", gold)
    golds = labels[None] if single else labels
    if golds.ndim == 3:
        graph.graph.check_image("gold", golds.shape[1:])
        golds = golds.flatten(1)
    if golds.shape != nodes.shape[:2]:
        raise InvalidInputError(
            f"node_scores has shape {tuple(node_scores.shape)}, gold {tuple(gold.shape)}; give "
            "(I, C) and (I,), (B, I, C) and (B, I), or images (B, C, H, W) and (B, H, W)"
        )
    golds = torch.where(golds == arguments.integer("ignore_index", ignore_index), UNKNOWN, golds)
    given = (nodes, edges, graph, method, options)
    if _is_on_device(*given, also=("pseudolikelihood",)):
        per_item = _nll_on_device(golds, *given)
        are_labels = (golds < graph.num_labels).all(dim=1).to(nodes.device, non_blocking=True)
        feasible = _are_finite(nodes, edges, method) & are_labels
        per_item = _zeroed(per_item, feasible, infeasible)
    else:
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
    nodes, edges, single = _arguments(node_scores, edge_scores, graph, method, infeasible)
    if _is_on_device(nodes, edges, graph, method, options):
        value = _beliefs(nodes, edges, graph, method, options).value.to(upcast(nodes).dtype)
        per_item = _zeroed(value, _are_finite(nodes, edges, method), infeasible)
    else:
        objective = FeasibleItems(FieldLogPartition(graph, method, options), infeasible)
        per_item = values(objective, [nodes, edges], [_no_labels(nodes)])
    return per_item[0] if single else per_item


@validated
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
    nodes, edges, single = _arguments(node_scores, edge_scores, graph, method, infeasible)
    if _is_on_device(nodes, edges, graph, method, options):
        value, *tables = _beliefs(nodes, edges, graph, method, options)
        bad, feasible = value.isnan(), _are_finite(nodes, edges, method)
        kept = [torch.where(per_item(bad, table), torch.nan, table) for table in tables]
        node, edge = (_zeroed(table, feasible, infeasible) for table in kept)
        return Marginals(*((node[0], edge[0]) if single else (node, edge)))
    if edges.ndim == 3:
        edges = edges[:, None].expand(-1, graph.graph.num_edges, -1, -1)
    objective = FeasibleItems(FieldLogPartition(graph, method, options), infeasible)
    node, edge = gradients(objective, [nodes, edges], [_no_labels(nodes)])
    return Marginals(*((node[0], edge[0]) if single else (node, edge)))


def _arguments(
    node_scores: Any, edge_scores: Any, graph: Any, method: Any, infeasible: Any
) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """Return the scores of nodes and of edges with an axis of items, and whether they had none.

    Raises InvalidInputError unless the arguments that all functions share are valid.
    """
    instance("method", method, str, "the name of a method")
    check_infeasible(infeasible)
    arguments.floating("node_scores", node_scores)
    arguments.floating("edge_scores", edge_scores)
    instance("graph", graph, PairwiseMRF, "a PairwiseMRF")
    if node_scores.ndim < 2:
        raise InvalidInputError(
            f"node_scores has shape {tuple(node_scores.shape)}; give (I, C) or (B, I, C)"
        )
    nodes = by_node(node_scores, graph)
    return nodes, _edges_per_item(edge_scores, len(nodes)), node_scores.ndim == 2


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


def _is_on_device(
    nodes: torch.Tensor,
    edges: torch.Tensor,
    graph: PairwiseMRF,
    method: str,
    options: dict[str, Any],
    also: tuple[str, ...] = (),
) -> bool:
    """Whether to compute in operations of PyTorch, which some methods and options do not have."""
    if not computes_on_device(nodes):
        return False
    refuse_transforms([nodes, edges])
    allowed = ESTIMATES[method].options if method in ESTIMATES else []
    missing = ", ".join(sorted(options.keys() - _OPTIONS & set(allowed)))
    if method in (*ESTIMATES, *also) and not missing and not graph.factors.number:
        return True
    of = " with factors over more nodes than two" if graph.factors.number else ""
    require_cpu(
        f"method {method!r}{f' with {missing}' * bool(missing)} of a Markov random field{of}",
        nodes, edges,
    )  # fmt: skip
    return False


def _beliefs(
    nodes: torch.Tensor,
    edges: torch.Tensor,
    graph: PairwiseMRF,
    method: str,
    options: dict[str, Any],
) -> fields.Beliefs:
    """Return the estimate of log Z and the marginals by operations of PyTorch."""
    ends = fields.ends_of(graph.graph, nodes.device, by_trees=method == "trw")
    run = _run(method, options, graph)
    found = fields.beliefs(_allowed(nodes, graph), upcast(edges), ends, run)
    return found._replace(value=found.value + graph.offset)


def _allowed(nodes: torch.Tensor, graph: PairwiseMRF) -> torch.Tensor:
    """Return node scores with -inf for the labels that a node does not have."""
    missing = np.arange(graph.num_labels) >= graph.labels_per_node[:, None]
    if not missing.any():
        return upcast(nodes)
    return upcast(nodes).masked_fill(to_device(missing, nodes.device), -torch.inf)


def _run(method: str, options: dict[str, Any], graph: PairwiseMRF) -> fields.Run:
    """Return a method with its checked options."""
    given = {"damping": 0.0} | (ESTIMATES[method].function.__kwdefaults__ or {}) | options
    shown: Any = {name: given[name] for name in _OPTIONS}
    known = Settings(**shown, schedule="flooding", threads=1, progress=None)
    stop = known.tol
    if method != "mean-field":
        known, stop = known.on(graph.graph)
    return fields.Run(method, known.max_iter, stop, known.damping)


def _nll_on_device(
    golds: torch.Tensor,
    nodes: torch.Tensor,
    edges: torch.Tensor,
    graph: PairwiseMRF,
    method: str,
    options: dict[str, Any],
) -> torch.Tensor:
    """Return the losses (B,) by operations of PyTorch."""
    is_pseudo, all_known = method == "pseudolikelihood", False
    if golds.device.type == "cpu":  # these can be read without waiting
        all_known = _check_labels(golds, graph, needs_all=is_pseudo)
    golds = golds.to(nodes.device, torch.int64, non_blocking=True)
    ends = fields.ends_of(graph.graph, nodes.device, by_trees=method == "trw")
    scores = _allowed(nodes, graph), upcast(edges), golds, ends
    if is_pseudo:
        return fields.pseudolikelihood(*scores).to(scores[0].dtype)
    run = _run(method, options, graph)
    return fields.nll(*scores, run, all_known=all_known).to(scores[0].dtype)


def _check_labels(golds: torch.Tensor, graph: PairwiseMRF, *, needs_all: bool) -> bool:
    """Return whether all labels are known; raise InvalidInputError if one is no label."""
    known = golds != UNKNOWN
    wrong = known & ((golds < 0) | (golds >= torch.tensor(graph.labels_per_node)))
    if needs_all:
        wrong = wrong | ~known
    if bool(wrong.any()):
        i, node = wrong.nonzero()[0].tolist()
        raise InvalidInputError(
            f"gold[{i}] has the label {int(golds[i, node])} at node {node}; give 0 to "
            f"{graph.labels_per_node[node] - 1}{'' if needs_all else ', or ignore_index'}"
        )
    return bool(known.all())


def _are_finite(nodes: torch.Tensor, edges: torch.Tensor, method: str) -> torch.Tensor:
    """Return whether scores are valid, (B,): items without a value may then be infeasible."""
    good = (edges < torch.inf) & (edges.isfinite() if method == "mean-field" else True)
    return (nodes < torch.inf).flatten(1).all(dim=1) & good.flatten(1).all(dim=1)


def _zeroed(table: torch.Tensor, feasible: torch.Tensor, infeasible: Infeasible) -> torch.Tensor:
    """Return a table (B, ...), 0 where it is NaN though scores are valid if items are left out."""
    if infeasible == "raise":
        return table
    return torch.where(table.isnan() & per_item(feasible, table), 0.0, table)
