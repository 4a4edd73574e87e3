"""Strings of order 1 and 2 along their loss automata, one position at a time.

The forward weights of a level are (B, S, X): items, states of B, last symbols (X = 1 at order 1).
For a risk, the weights of B are 1, and the loss is the tangent, whose mean is the risk.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.torch.arrays import to_device
from fstgrad.torch.device.arcs import Arcs, log_sums, packed, recent
from fstgrad.torch.device.sums import Weights, finite, products, totals, valid


class Level(NamedTuple):
    """The arcs of one position, their costs (B, C, S), and the items that end there.

    ends : (B,), True for the items whose last position it is; None if there are none.
    final : (B, S'), the final costs of these, -inf elsewhere.
    """

    arcs: Arcs
    cost: torch.Tensor
    ends: torch.Tensor | None
    final: torch.Tensor | None


class Batch(NamedTuple):
    """Loss automata on a device, and the entries of the scores that gold uses.

    positions : (B, L'), the positions of each item in the scores; None if they are 0, 1, ...
    places : (B, L), their inverse, -1 for a position that is left out.
    used : (B, L', X n) bool, the entries of gold.
    """

    initial: torch.Tensor
    levels: tuple[Level, ...]
    positions: torch.Tensor | None
    places: torch.Tensor | None
    used: torch.Tensor


def softmax_margin(scores: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return log Z - score(gold) (B,) in nats; scores (B, L, n) or (B, L, n+1, n)."""
    rows = _rows(scores, batch)
    own = torch.where(batch.used, rows.flatten(2), 0.0).sum(dim=2).double().sum(dim=1)
    return _solved(rows, batch, is_risk=False)[0] - valid(own)


def log_partition(scores: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return log Z (B,) in nats of scores (B, L, n), less the largest of each position."""
    return _solved(_rows(scores, batch), batch, is_risk=False)[0]


def risk(scores: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return E[L] (B,) in nats; scores as in `softmax_margin`."""
    log_z, mean = _solved(_rows(scores, batch), batch, is_risk=True)
    return torch.where(log_z.isfinite(), mean, torch.nan)


def _rows(scores: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return scores (B, L', X, n) of the positions in use, less the largest of a position."""
    rows = scores[:, :, None] if scores.ndim == 3 else scores
    if batch.positions is not None:
        rows = _Moved.apply(rows, batch.positions, batch.places)  # type: ignore[no-untyped-call]
    rows = rows[:, : batch.used.shape[1]]
    largest = rows.detach().amax(dim=3)
    if scores.ndim == 4:  # the first position has the context "before the start", others have not
        first, others = largest[:, :1, -1:], largest[:, 1:, :-1].amax(dim=2, keepdim=True)
        largest = torch.cat([first, others], dim=1)
    return rows - finite(largest)[..., None]


def _solved(
    rows: torch.Tensor, batch: Batch, *, is_risk: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log Z (B,), NaN for an item without a string, and the mean loss if it is a risk."""
    weights: Weights = (torch.zeros_like(rows[:, 0, :1, :1]),)
    offset, total = batch.initial, torch.zeros_like(batch.initial)
    if is_risk:
        weights, offset = (*weights, weights[0] + offset.to(rows.dtype)[:, None, None]), total
    mean = total
    for t, (scores, level) in enumerate(zip(rows.unbind(1), batch.levels, strict=True)):
        contexts = scores
        if scores.shape[1] > 1:
            contexts = scores[:, :-1] if t > 0 else scores[:, -1:]
        logs, *tangent = _advanced(weights, contexts, level)
        shift = finite(logs.detach().amax(dim=(1, 2), keepdim=True))
        weights, offset = (logs - shift, *tangent), offset + shift[:, 0, 0].double()
        if level.ends is not None and level.final is not None:
            final = level.final.to(rows.dtype)[..., None]
            ended: Weights = (weights[0] + final,)
            if is_risk:
                exists = torch.where(final > -torch.inf, 0.0, -torch.inf)
                ended = weights[0] + exists, weights[1] + finite(final)
            value, *loss = totals(tuple(table.flatten(1) for table in ended))
            total = torch.where(level.ends, value.double() + offset, total)
            mean = torch.where(level.ends, loss[0].double(), mean) if loss else mean
        if rows.shape[2] == 1:
            weights = tuple(table[..., None] for table in totals(weights))
    return valid(total), mean


def _advanced(weights: Weights, scores: torch.Tensor, level: Level) -> Weights:
    """Return the weights (B, S', n) after a position; costs add to logarithms or to the tangent."""
    cost = level.arcs.by_symbol(level.cost).to(scores.dtype)  # (B, n, S)
    *others, last = (table.transpose(1, 2) for table in products(weights, scores))
    arrived = log_sums((*others, last + cost), level.arcs)
    return tuple(table.transpose(1, 2) for table in arrived)


class _Moved(torch.autograd.Function):
    """values[b, index[b, j]], 0 where the index is -1; `inverse` is the index of the adjoint."""

    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, index: torch.Tensor, inverse: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(index, inverse)
        items = torch.arange(len(values), device=values.device)
        exists = (index >= 0).reshape(*index.shape, *(1,) * (values.ndim - 2))
        return torch.where(exists, values[items[:, None], index.clamp_min(0)], 0.0)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[Any, None, None]:
        index, inverse = ctx.saved_tensors
        return _Moved.apply(upstream[0], inverse, index), None, None  # type: ignore[no-untyped-call]


def pack(
    automata: Sequence[LossAutomaton],
    positions: Sequence[IntArray],
    golds: Sequence[IntArray],
    shape: Sequence[int],
    device: torch.device,
) -> Batch:
    """Return the automata of B items on a device; shape : of the scores (B, L, [n+1,] n)."""
    key = (*shape, device, *(ids.tobytes() for ids in (*positions, *golds)))
    return recent(automata, key, lambda: _packed(automata, positions, golds, shape, device))


def _packed(
    automata: Sequence[LossAutomaton],
    positions: Sequence[IntArray],
    golds: Sequence[IntArray],
    shape: Sequence[int],
    device: torch.device,
) -> Batch:
    n, longest = shape[-1], max(map(len, golds))
    classes = to_device(np.stack([b.class_of for b in automata]), device)
    levels, states = [], 1
    for t in range(longest):
        level, states = _level(automata, classes, t, states)
        levels.append(level)
    contexts = 1 if len(shape) == 3 else n + 1
    used = np.zeros((len(golds), longest, contexts * n), dtype=np.bool_)
    index = np.full((len(golds), longest), -1)
    for i, (gold, where) in enumerate(zip(golds, positions, strict=True)):
        before = np.concatenate([[n], gold[:-1]]) if contexts > 1 else 0
        used[i, np.arange(len(gold)), before * n + gold] = True
        index[i, : len(gold)] = where
    moved: list[torch.Tensor | None] = [None, None]
    if not (index == np.arange(longest)).all():
        places = np.full(shape[:2], -1)
        item, place = np.nonzero(index >= 0)
        places[item, index[item, place]] = place
        moved = [to_device(index, device), to_device(places, device)]
    initial = to_device(np.array([b.initial for b in automata]), device)
    return Batch(initial, tuple(levels), moved[0], moved[1], to_device(used, device))


def _level(
    automata: Sequence[LossAutomaton], classes: torch.Tensor, t: int, size: int
) -> tuple[Level, int]:
    """Return level t of automata, with `size` states each, and the size of the next level."""
    device = classes.device
    many = max(b.levels[t].nextstate.shape[1] for b in automata if t < len(b.levels))
    states = max(b.level_sizes[t + 1] for b in automata if t < len(b.levels))
    nextstate, cost = (
        np.full((len(automata), many, size), -1),
        np.zeros((len(automata), many, size)),
    )
    for i, b in enumerate(automata):
        if t < len(b.levels):
            rows, columns = b.levels[t].nextstate.shape
            nextstate[i, :columns, :rows] = b.levels[t].nextstate.T
            cost[i, :columns, :rows] = b.levels[t].cost.T
    arcs, costs = packed(nextstate, classes, states), to_device(cost, device)
    ends = np.array([len(b.levels) == t + 1 for b in automata])
    if not ends.any():
        return Level(arcs, costs, None, None), states
    final: FloatArray = np.full((len(automata), states), -np.inf)
    for i in np.flatnonzero(ends).tolist():
        final[i, : len(automata[i].final)] = automata[i].final
    return Level(arcs, costs, to_device(ends, device), to_device(final, device)), states
