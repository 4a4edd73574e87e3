"""Random fields: estimates of log Z and pseudolikelihood on a graph, all edges at once.

Messages are logarithms (2E, B, C) with maximum 0, as in `fstgrad.mrf.reference`; rows a and a + E
are the two directions of edge a.  Tree-reweighted messages and derivatives of both are those of
`fstgrad.mrf.messages`, mean field is that of `fstgrad.mrf.mean_field`, with all nodes of a colour
at once.  An item keeps its messages once none of them changes by more than `tol`; the number of
iterations is always `max_iter`, because a test would wait for the device.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from fstgrad.core.checks import LARGEST_SCORE
from fstgrad.core.errors import NotSupportedError
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.messages.tree_cover import tree_cover
from fstgrad.mrf.objectives import UNKNOWN
from fstgrad.torch.arrays import per_item, to_device
from fstgrad.torch.device.arcs import recent, sum_tables
from fstgrad.torch.device.sums import finite, is_used, valid
from fstgrad.torch.fused.available import LABELS_OF_FIELD, fused


class Ends(NamedTuple):
    """The ends of the 2E directions of edges, and tables of the rows into each node.

    share : (2E, 1, 1), the shares rho of the spanning trees that have an edge; None if all are 1.
    degree : (I,), the sums of rho over the edges of each node.
    colour : (I,), 0 .. colours - 1, different at the ends of each edge.
    """

    source: torch.Tensor
    target: torch.Tensor
    tables: tuple[torch.Tensor, ...]
    share: torch.Tensor | None
    degree: torch.Tensor
    colour: torch.Tensor
    colours: int

    def back(self, messages: torch.Tensor) -> torch.Tensor:
        """Return the rows of the other direction."""
        return messages.roll(len(messages) // 2, dims=0)

    def sums(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the sums (I, ...) of rows (2E, ...) over those into each node."""
        total: torch.Tensor = _RowSums.apply(rows, self)  # type: ignore[no-untyped-call]
        return total

    def totals(self, messages: torch.Tensor) -> torch.Tensor:
        """Return the sums (I, B, C) of rho times the messages into each node."""
        return self.sums(messages if self.share is None else self.share.to(messages) * messages)

    def over_share(self, tables: torch.Tensor) -> torch.Tensor:
        """Return the tables (E, B, C, C) of edges over rho."""
        if self.share is None:
            return tables
        return tables / self.share[: len(tables), ..., None].to(tables)


class Beliefs(NamedTuple):
    """An estimate of log Z (B,), and marginals of nodes (B, I, C) and edges (B, E, C, C)."""

    value: torch.Tensor
    node: torch.Tensor
    edge: torch.Tensor


class Run(NamedTuple):
    """A method, "bp", "trw" or "mean-field", and its options."""

    method: str
    max_iter: int
    tol: float
    damping: float


def ends_of(graph: Graph, device: torch.device, *, by_trees: bool = False) -> Ends:
    """Return the ends of the edges of a graph on a device, with shares of spanning trees or 1."""

    def made() -> Ends:
        first, second = graph.edges[:, 0], graph.edges[:, 1]
        target = np.concatenate([second, first])
        source = to_device(np.concatenate([first, second]), device)
        tables = tuple(t[0, 0] for t in sum_tables(target, graph.num_nodes, device).tables)
        rho = np.tile(tree_cover(graph).rho, 2) if by_trees else np.ones(len(target))
        share = to_device(rho[:, None, None], device) if by_trees else None
        degree = to_device(np.bincount(target, rho, minlength=graph.num_nodes), device)
        colour, colours = to_device(graph.colour, device), int(graph.colour.max(initial=-1)) + 1
        return Ends(source, to_device(target, device), tables, share, degree, colour, colours)

    return recent([graph], (device, by_trees), made)


def beliefs(nodes: torch.Tensor, edges: torch.Tensor, ends: Ends, run: Run) -> Beliefs:
    """Return the estimate of log Z (B,) float64 in nats and the marginals, its gradient.

    Both are differentiable once more, except for mean field.

    nodes : (B, I, C); edges : (B, C, C) or (B, E, C, C)
    """
    scores, offset = _relative(nodes)
    tables, of_edges = _relative_edges(edges, len(ends.source) // 2)
    value, node, edge = _Estimate.apply(scores, tables, ends, run)  # type: ignore[no-untyped-call]
    return Beliefs(value + offset + of_edges, node, edge)


def nll(
    nodes: torch.Tensor,
    edges: torch.Tensor,
    golds: torch.Tensor,
    ends: Ends,
    run: Run,
    *,
    all_known: bool,
) -> torch.Tensor:
    """Return log Z - log Z given the known labels (B,) in nats, as `beliefs` estimates both.

    golds : (B, I), -1 for unknown labels; all_known : whether there are none
    """
    node, first, second, wrong = _indicators(golds, nodes.shape[2], ends)
    scores, edges = _relative(nodes)[0], _relative_edges(edges, first.shape[1])[0]
    if all_known:
        pairs = first[..., None] & second[:, :, None]
        tied = torch.where(node, scores, 0.0).sum(dim=2).double().sum(dim=1)
        tied = tied + torch.where(pairs, edges, 0.0).flatten(2).sum(dim=2).double().sum(dim=1)
        tied = valid(tied)
    else:
        allowed = node | (golds[..., None] == UNKNOWN)
        tied = beliefs(torch.where(allowed, scores, -torch.inf), edges, ends, run).value
        wrong = (~allowed).all(dim=2).any(dim=1)
    return beliefs(scores, edges, ends, run).value - torch.where(wrong, torch.nan, tied)


def pseudolikelihood(
    nodes: torch.Tensor, edges: torch.Tensor, golds: torch.Tensor, ends: Ends
) -> torch.Tensor:
    """Return -sum_i log P(gold_i | gold elsewhere) (B,) in nats, once differentiable."""
    node, first, second, wrong = _indicators(golds, nodes.shape[2], ends)
    tables, _ = _relative_edges(edges, first.shape[1])
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


class _Estimate(torch.autograd.Function):
    """Values whose gradients are the marginals, which are computed with them."""

    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, tables: torch.Tensor, ends: Ends, run: Run
    ) -> tuple[torch.Tensor, ...]:
        estimate = _mean_field if run.method == "mean-field" else _bethe
        value, node, edge = estimate(scores.transpose(0, 1), tables.transpose(0, 1), ends, run)
        ctx.save_for_backward(value, node, edge)
        ctx.ends, ctx.run = ends, run
        ctx.set_materialize_grads(False)
        return value, node, edge

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor | None) -> tuple[Any, ...]:
        value, *marginals = ctx.saved_tensors
        by_value, *along = upstream
        slopes: list[torch.Tensor | None] = [None, None]
        if by_value is not None:
            weight = torch.where(is_used(by_value, value), by_value + 0.0 * value.detach(), 0.0)
            slopes = [_weighted(weight, table) for table in marginals]
        if any(direction is not None for direction in along):
            directions = [
                torch.zeros_like(table) if direction is None else direction
                for table, direction in zip(marginals, along, strict=True)
            ]
            moved = _Response.apply(*marginals, *directions, ctx.ends, ctx.run)  # type: ignore[no-untyped-call]
            slopes = [m if s is None else s + m for s, m in zip(slopes, moved, strict=True)]
        return *slopes, None, None


class _Response(torch.autograd.Function):
    """The derivatives of the marginals along tables like them, as in `linear_response`."""

    @staticmethod
    def forward(
        ctx: Any,
        node: torch.Tensor,
        edge: torch.Tensor,
        by_node: torch.Tensor,
        by_edge: torch.Tensor,
        ends: Ends,
        run: Run,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if run.method == "mean-field":
            raise NotSupportedError(
                "the marginals of method 'mean-field' of a Markov random field have no derivative; "
                "use method 'bp' or 'trw'"
            )
        belief, direction = edge.transpose(0, 1), by_node.transpose(0, 1)
        along, size = ends.over_share(by_edge.transpose(0, 1)), len(ends.source) // 2
        at_second, at_first = belief.sum(dim=-2), belief.sum(dim=-1)
        given_second = _ratio(belief, at_second[..., None, :])
        given_first = _ratio(belief, at_first[..., None])
        at_target = torch.cat([at_second, at_first])

        def sides(messages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            cavity = (direction + ends.totals(messages))[ends.source] - ends.back(messages)
            return cavity[:size, ..., None], cavity[size:, ..., None, :]

        def update(messages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            forth, back = (along + side for side in sides(messages))
            fresh = torch.cat([(given_second * forth).sum(dim=-2), (given_first * back).sum(-1)])
            # adding a constant to a message changes no belief, but constants grow along loops
            fresh = fresh - (at_target * fresh).sum(dim=-1, keepdim=True)
            largest = _most(fresh.abs()).clamp_min(1.0)
            step = _most((fresh - messages).abs())
            mixed = run.damping * messages + (1 - run.damping) * fresh
            return mixed, step > run.tol * largest

        messages = _settled(torch.zeros_like(at_target), update, run)
        total = direction + ends.totals(messages)
        forth, back = sides(messages)
        moved = [
            table * (change - (table * change).flatten(2).sum(dim=2).reshape(shape))
            for table, change, shape in (
                (node.transpose(0, 1), total, (*total.shape[:2], 1)),
                (belief, along + forth + back, (*belief.shape[:2], 1, 1)),
            )
        ]
        return moved[0].transpose(0, 1), moved[1].transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[None, ...]:
        raise NotSupportedError(
            "methods 'bp' and 'trw' of a Markov random field have two derivatives; differentiate "
            "once less"
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


def _bethe(nodes: torch.Tensor, tables: torch.Tensor, ends: Ends, run: Run) -> Beliefs:
    """Return log Z and the marginals after message passing; nodes (I, B, C), tables (E, B, ...)."""
    size, labels = len(ends.source) // 2, nodes.shape[2]
    tables = ends.over_share(tables)
    is_grid = ends.share is None and len(ends.tables) == 1 and size > 0
    if is_grid and fused(nodes) and 0 < labels <= LABELS_OF_FIELD:
        from fstgrad.torch.fused import fields

        messages = fields.messages_of(
            nodes.transpose(0, 1), tables.transpose(0, 1), ends.source, ends.tables[0],
            max_iter=run.max_iter, tol=run.tol, damping=run.damping,
        )  # fmt: skip
    else:
        messages = _messages(nodes, tables, ends, run)
    beliefs = nodes + ends.totals(messages)
    cavity = _cavities(nodes, messages, ends)
    joint = cavity[:size, ..., :, None] + tables + cavity[size:, ..., None, :]
    log_nodes, log_edges = beliefs.logsumexp(dim=-1), joint.flatten(2).logsumexp(dim=-1)
    node = (beliefs - finite(log_nodes)[..., None]).exp().transpose(0, 1)
    edge = (joint - finite(log_edges)[..., None, None]).exp().transpose(0, 1)
    total = (valid(log_nodes).double() * (1 - ends.degree)[:, None]).sum(dim=0)
    log_edges = valid(log_edges).double()
    if ends.share is not None:
        log_edges = log_edges * ends.share[:size, :, 0]
    return Beliefs(total + log_edges.sum(dim=0), node, edge)


def _mean_field(nodes: torch.Tensor, tables: torch.Tensor, ends: Ends, run: Run) -> Beliefs:
    """Return E_q[s] + H(q) and q after coordinate ascent; NaN if a pair of labels is forbidden."""
    size = len(ends.source) // 2

    def arriving(q: torch.Tensor) -> torch.Tensor:
        forth = (q[ends.source[:size], ..., None] * tables).sum(dim=-2)
        back = (q[ends.source[size:], ..., None, :] * tables).sum(dim=-1)
        return ends.sums(torch.cat([forth, back]))

    def update(before: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q = before
        for colour in range(ends.colours):
            chosen = (ends.colour == colour)[:, None, None]
            q = torch.where(chosen, (nodes + arriving(q)).softmax(dim=-1), q)
        return q, _most((q - before).abs()) > run.tol

    q = _settled(nodes.softmax(dim=-1), update, run)
    pairs = q[ends.source[:size], ..., None] * q[ends.source[size:], ..., None, :]
    parts = q * finite(nodes), torch.special.entr(q), pairs * tables
    value = sum(part.flatten(2).sum(dim=2).double().sum(dim=0) for part in parts)
    forbidden = (tables == -torch.inf).flatten(2).any(dim=2).any(dim=0)
    return Beliefs(
        torch.where(forbidden, torch.nan, value), q.transpose(0, 1), pairs.transpose(0, 1)
    )


def _messages(nodes: torch.Tensor, tables: torch.Tensor, ends: Ends, run: Run) -> torch.Tensor:
    """Return the messages (2E, B, C) after belief propagation."""
    size = len(ends.source) // 2

    def update(messages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cavity = _cavities(nodes, messages, ends)
        forth = (cavity[:size, ..., None] + tables).logsumexp(dim=-2)
        back = (cavity[size:, ..., None, :] + tables).logsumexp(dim=-1)
        fresh = _scaled(torch.cat([forth, back]))
        changes = torch.where(fresh == messages, 0.0, fresh - messages).abs()
        if run.damping:
            fresh = _scaled(_mixed(messages, fresh, run.damping))
        return fresh, _most(changes) > run.tol

    return _settled(nodes.new_zeros(2 * size, *nodes.shape[1:]), update, run)


def _settled(
    rows: torch.Tensor,
    update: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
    run: Run,
) -> torch.Tensor:
    """Return rows (N, B, ...) after all updates; an item keeps its rows once they are not moving.

    update : returns new rows, and whether the rows of an item are moving, (B, 1).
    """
    moving = torch.ones(rows.shape[1], 1, dtype=torch.bool, device=rows.device)
    for _ in range(run.max_iter):
        fresh, still = update(rows)
        rows, moving = torch.where(moving, fresh, rows), moving & still
    return rows


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
    return nodes - largest, _total(largest)


def _relative_edges(edges: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return edge scores (B, E, C, C) less the largest of each edge, and their sums (B,) float64.

    So a table that is masked as a whole costs no digits, and all methods agree with the CPU.
    """
    largest = finite(edges.detach().amax(dim=(-2, -1), keepdim=True))
    return _by_edge(edges - largest, size), _total(_by_edge(largest, size))


def _total(largest: torch.Tensor) -> torch.Tensor:
    """Return the sums (B,) float64, finite as on the CPU."""
    return largest.double().clamp_min(-LARGEST_SCORE).flatten(1).sum(dim=1)


def _cavities(nodes: torch.Tensor, messages: torch.Tensor, ends: Ends) -> torch.Tensor:
    """Return for each direction the belief of its source without the message back.

    Messages of -inf are counted, since they cannot be subtracted.  With shares, of which less than
    the whole message back is in the sum, a label that this message forbids stays forbidden.
    """
    zero = messages == -torch.inf
    size = ends.sums(zero.to(messages.dtype))[ends.source]
    if ends.share is None:
        size = size - ends.back(zero.to(messages.dtype))
    kept = torch.where(zero, 0.0, messages)
    total = (nodes + ends.totals(kept))[ends.source] - ends.back(kept)
    return torch.where(size > 0.5, -torch.inf, total)


def _mixed(old: torch.Tensor, new: torch.Tensor, damping: float) -> torch.Tensor:
    """Return damped messages; -inf stays."""
    mixed = damping * finite(old) + (1 - damping) * finite(new)
    return torch.where((old == -torch.inf) | (new == -torch.inf), -torch.inf, mixed)


def _scaled(messages: torch.Tensor) -> torch.Tensor:
    return messages - finite(messages.amax(dim=-1, keepdim=True))


def _ratio(table: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    return torch.where(total > 0, table / total, 0.0)


def _weighted(weights: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Return a table (B, ...) times weights (B,); 0 times NaN is 0."""
    weight = per_item(weights, table).to(table.dtype)
    return torch.where(is_used(weight, table), weight * table, 0.0)


def _most(rows: torch.Tensor) -> torch.Tensor:
    """Return the largest entry (B, 1) of each item of rows (N, B, ...), 0 without rows."""
    if len(rows) == 0:
        return rows.new_zeros(rows.shape[1], 1)
    return rows.flatten(2).amax(dim=2).amax(dim=0)[:, None]


def _by_edge(edges: torch.Tensor, size: int) -> torch.Tensor:
    """Return tables (B, E, C, C) of edge scores (B, C, C) or (B, E, C, C)."""
    return edges[:, None].expand(-1, size, -1, -1) if edges.ndim == 3 else edges
