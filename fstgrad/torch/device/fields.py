"""Random fields: belief propagation and pseudolikelihood on a graph, all edges at once.

Messages are logarithms (2E, B, C) with maximum 0, as in `fstgrad.mrf.reference`; rows a and a + E
are the two directions of edge a.  An item keeps its messages once none of them changes by more than
`tol`; the number of iterations is always `max_iter`, because a test would wait for the device.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from fstgrad.core.errors import NotSupportedError
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.objectives import UNKNOWN
from fstgrad.torch.arrays import to_device
from fstgrad.torch.device.arcs import recent, sum_tables
from fstgrad.torch.device.sums import finite, valid
from fstgrad.torch.fused.available import LABELS_OF_FIELD, fused


class Ends(NamedTuple):
    """The ends of the 2E directions of edges, tables of the rows into each node, degrees (I,)."""

    source: torch.Tensor
    target: torch.Tensor
    tables: tuple[torch.Tensor, ...]
    degree: torch.Tensor

    def back(self, messages: torch.Tensor) -> torch.Tensor:
        """Return the rows of the other direction."""
        return messages.roll(len(messages) // 2, dims=0)

    def sums(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the sums (I, ...) of rows (2E, ...) over those into each node."""
        total: torch.Tensor = _RowSums.apply(rows, self)  # type: ignore[no-untyped-call]
        return total


class Beliefs(NamedTuple):
    """Log Z or a score (B,), and marginals or indicators of nodes (B, I, C), edges (B, E, C, C)."""

    value: torch.Tensor
    node: torch.Tensor
    edge: torch.Tensor


class Run(NamedTuple):
    """The options of belief propagation, and whether all labels of gold are known."""

    max_iter: int = 200
    tol: float = 1e-6
    damping: float = 0.0
    all_known: bool = False


def ends_of(graph: Graph, device: torch.device) -> Ends:
    """Return the ends of the edges of a graph on a device."""

    def made() -> Ends:
        first, second = graph.edges[:, 0], graph.edges[:, 1]
        target = np.concatenate([second, first])
        source = to_device(np.concatenate([first, second]), device)
        degree = to_device(np.bincount(target, minlength=graph.num_nodes), device)
        tables = tuple(t[0, 0] for t in sum_tables(target, graph.num_nodes, device).tables)
        return Ends(source, to_device(target, device), tables, degree)

    return recent([graph], device, made)


def bethe_nll(
    nodes: torch.Tensor, edges: torch.Tensor, golds: torch.Tensor | None, ends: Ends, run: Run
) -> torch.Tensor:
    """Return Bethe log Z - log Z given the known labels (B,) in nats, once differentiable.

    nodes : (B, I, C); edges : (B, C, C) or (B, E, C, C); golds : (B, I), -1 for unknown labels, or
    None for log Z
    """
    result: torch.Tensor = _Bethe.apply(nodes, edges, golds, ends, run)  # type: ignore[no-untyped-call]
    return result


def pseudolikelihood(
    nodes: torch.Tensor, edges: torch.Tensor, golds: torch.Tensor, ends: Ends
) -> torch.Tensor:
    """Return -sum_i log P(gold_i | gold elsewhere) (B,) in nats, once differentiable."""
    node, first, second, wrong = _indicators(golds, nodes.shape[2], ends)
    tables = _by_edge(edges, first.shape[1])
    # the scores of the labels of either end, given the label of the other
    into_second = torch.where(first[..., None], tables, 0.0).sum(dim=2)
    into_first = torch.where(second[:, :, None], tables, 0.0).sum(dim=3)
    around = ends.sums(torch.cat([into_second, into_first], dim=1).transpose(0, 1))
    scores = _relative(nodes)[0] + around.transpose(0, 1)
    largest = scores.detach().amax(dim=2, keepdim=True)
    wrong = wrong | ~largest.isfinite().flatten(1).all(dim=1)
    scores = torch.where(wrong[:, None, None], 0.0, scores - largest)
    logs = scores - scores.exp().sum(dim=2, keepdim=True).log()
    own = valid(torch.where(node, logs, 0.0).sum(dim=2)).double()
    return torch.where(wrong, torch.nan, -own.sum(dim=1))


class _Bethe(torch.autograd.Function):
    """Values whose gradients are differences of pseudo-marginals, computed with them."""

    @staticmethod
    def forward(
        ctx: Any,
        nodes: torch.Tensor,
        edges: torch.Tensor,
        golds: torch.Tensor | None,
        ends: Ends,
        run: Run,
    ) -> torch.Tensor:
        scores, offset = _relative(nodes)
        free = _beliefs(scores, edges, ends, run)
        value, by_node, by_edge = free
        if golds is None:
            value = value + offset
        else:
            tied = _tied(scores, edges, golds, ends, run)
            value, by_node, by_edge = (x - y for x, y in zip(free, tied, strict=True))
        if edges.ndim == 3:
            by_edge = by_edge.sum(dim=1)
        ctx.save_for_backward(by_node, by_edge, value)
        return value

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise NotSupportedError(
                "method 'bp' of a Markov random field has no second derivative on a device; move "
                "the tensors to the CPU, or use first derivatives only"
            )
        *tables, value = ctx.saved_tensors
        weight = torch.where(upstream[0] != 0, upstream[0] + 0.0 * value, 0.0)
        return (
            *(
                torch.where(w != 0, w * table, 0.0)
                for table in tables
                for w in (weight.to(table.dtype).reshape(-1, *(1,) * (table.ndim - 1)),)
            ),
            None,
            None,
            None,
        )


class _RowSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, ends: Ends) -> torch.Tensor:
        ctx.ends = ends
        if len(rows) == 0:
            return rows.new_zeros(len(ends.degree), *rows.shape[1:])
        for table in ends.tables:
            entries = rows[table.clamp_min(0)]
            missing = (table < 0).reshape(*table.shape, *(1,) * (rows.ndim - 1))
            rows = torch.where(missing, 0.0, entries).sum(dim=1)
        return rows

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None]:
        if torch.is_grad_enabled():
            raise NotSupportedError(
                "method 'pseudolikelihood' of a Markov random field has no second derivative; use "
                "first derivatives only"
            )
        return upstream[0][ctx.ends.target], None


def _beliefs(scores: torch.Tensor, edges: torch.Tensor, ends: Ends, run: Run) -> Beliefs:
    """Return log Z and the marginals after belief propagation."""
    size = len(ends.source) // 2
    nodes = scores.transpose(0, 1)
    tables = _by_edge(edges, size).transpose(0, 1)
    if fused(scores) and 0 < scores.shape[2] <= LABELS_OF_FIELD and len(ends.tables) == 1 and size:
        from fstgrad.torch.fused import fields

        messages = fields.messages_of(
            scores, tables.transpose(0, 1), ends.source, ends.tables[0],
            max_iter=run.max_iter, tol=run.tol, damping=run.damping,
        )  # fmt: skip
    else:
        messages = _messages(nodes, tables, ends, run)
    beliefs = nodes + ends.sums(messages)
    cavity = _cavities(nodes, messages, ends)
    joint = cavity[:size, ..., :, None] + tables + cavity[size:, ..., None, :]
    log_nodes, log_edges = beliefs.logsumexp(dim=-1), joint.flatten(2).logsumexp(dim=-1)
    node = (beliefs - finite(log_nodes)[..., None]).exp().transpose(0, 1)
    edge = (joint - finite(log_edges)[..., None, None]).exp().transpose(0, 1)
    total = (valid(log_nodes).double() * (1 - ends.degree)[:, None]).sum(dim=0)
    return Beliefs(total + valid(log_edges).double().sum(dim=0), node, edge)


def _messages(nodes: torch.Tensor, tables: torch.Tensor, ends: Ends, run: Run) -> torch.Tensor:
    """Return the messages (2E, B, C) after belief propagation."""
    size = len(ends.source) // 2
    messages = nodes.new_zeros(2 * size, *nodes.shape[1:])
    active = torch.ones(nodes.shape[1], 1, dtype=torch.bool, device=nodes.device)
    for _ in range(run.max_iter):
        cavity = _cavities(nodes, messages, ends)
        forth = (cavity[:size, ..., None] + tables).logsumexp(dim=-2)
        back = (cavity[size:, ..., None, :] + tables).logsumexp(dim=-1)
        fresh = _scaled(torch.cat([forth, back]))
        changes = torch.where(fresh == messages, 0.0, fresh - messages).abs()
        if run.damping:
            fresh = _scaled(_mixed(messages, fresh, run.damping))
        messages = torch.where(active, fresh, messages)
        active = active & (changes > run.tol).flatten(2).any(dim=2).any(dim=0)[:, None]
    return messages


def _tied(
    scores: torch.Tensor, edges: torch.Tensor, golds: torch.Tensor, ends: Ends, run: Run
) -> Beliefs:
    """Return log Z given the known labels and the marginals, or the score of gold and its parts."""
    node, first, second, wrong = _indicators(golds, scores.shape[2], ends)
    if run.all_known:
        pairs = first[..., None] & second[:, :, None]
        tables = _by_edge(edges, first.shape[1])
        value = torch.where(node, scores, 0.0).sum(dim=2).double().sum(dim=1)
        value = value + torch.where(pairs, tables, 0.0).flatten(2).sum(dim=2).double().sum(dim=1)
        parts = Beliefs(valid(value), node.to(scores.dtype), pairs.to(scores.dtype))
    else:
        allowed = node | (golds[..., None] == UNKNOWN)
        parts = _beliefs(torch.where(allowed, scores, -torch.inf), edges, ends, run)
        wrong = (~allowed).all(dim=2).any(dim=1)
    return parts._replace(value=torch.where(wrong, torch.nan, parts.value))


def _indicators(
    golds: torch.Tensor, size: int, ends: Ends
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return one-hot labels of nodes and of the first and second ends; items with a wrong one."""
    node = golds[..., None] == torch.arange(size, device=golds.device)
    half = len(ends.source) // 2
    first, second = node[:, ends.source[:half]], node[:, ends.target[:half]]
    return node, first, second, ~node.any(dim=2).all(dim=1)


def _relative(nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return node scores less the largest of each node, and the sum of these, (B,) float64."""
    largest = finite(nodes.detach().amax(dim=2, keepdim=True))
    return nodes - largest, largest.double().sum(dim=(1, 2))


def _cavities(nodes: torch.Tensor, messages: torch.Tensor, ends: Ends) -> torch.Tensor:
    """Return for each direction the belief of its source without the message back.

    Messages of -inf are counted, since they cannot be subtracted.
    """
    zero = messages == -torch.inf
    size = ends.sums(zero.to(messages.dtype))[ends.source] - ends.back(zero.to(messages.dtype))
    kept = torch.where(zero, 0.0, messages)
    total = (nodes + ends.sums(kept))[ends.source] - ends.back(kept)
    return torch.where(size > 0.5, -torch.inf, total)


def _mixed(old: torch.Tensor, new: torch.Tensor, damping: float) -> torch.Tensor:
    """Return damped messages; -inf stays."""
    mixed = damping * finite(old) + (1 - damping) * finite(new)
    return torch.where((old == -torch.inf) | (new == -torch.inf), -torch.inf, mixed)


def _scaled(messages: torch.Tensor) -> torch.Tensor:
    return messages - finite(messages.amax(dim=-1, keepdim=True))


def _by_edge(edges: torch.Tensor, size: int) -> torch.Tensor:
    """Return tables (B, E, C, C) of edge scores (B, C, C) or (B, E, C, C)."""
    return edges[:, None].expand(-1, size, -1, -1) if edges.ndim == 3 else edges
