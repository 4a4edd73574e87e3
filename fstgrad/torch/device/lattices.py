"""Sums over the paths of many graphs at once, one level of states at a time, in float64.

The graphs of a batch are one graph with several starts and ends.  Its states are in the order of
their heights, the greatest number of arcs to an end, and its arcs in that of their sources, so that
a level is a slice.  As in `fstgrad.strings.lattices.graph`, beta(s) is the log-sum of paths from s,
p(e | s) = exp(w(e) + beta(s') - beta(s)), and P(e) = P(passing s) p(e | s).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import NotSupportedError
from fstgrad.strings.lattices.graph import Graph
from fstgrad.torch.arrays import to_device
from fstgrad.torch.device.arcs import Arcs, recent, sum_tables
from fstgrad.torch.device.sums import finite, valid


class Paths(NamedTuple):
    """A graph, the score that each of its arcs has, their costs, and a cost of every path."""

    graph: Graph
    arc: IntArray
    cost: FloatArray
    initial: float


class Level(NamedTuple):
    """The states and the arcs from them, as slices, and sums over the arcs out of and into them."""

    states: slice
    arcs: slice
    out: Arcs
    into: Arcs


class Batch(NamedTuple):
    """B graphs: the levels above their ends, and arrays of the E arcs.

    by_score : the sums of the arcs for each score.
    starts : (B,), the first state of each graph, -1 if no path leads from there to the end.
    item : (E,), the graph of each arc; score : (E,), its place in the scores.
    """

    by_score: Arcs
    levels: tuple[Level, ...]
    starts: torch.Tensor
    is_start: torch.Tensor
    source: torch.Tensor
    target: torch.Tensor
    score: torch.Tensor
    item: torch.Tensor
    cost: torch.Tensor
    initial: torch.Tensor


def log_sums(scores: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return log of the sum of exp(score + cost) over the paths of each graph, (B,), in nats."""
    result: torch.Tensor = _Values.apply(scores, batch, False)  # type: ignore[no-untyped-call]
    return result


def means(scores: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the mean cost (B,) of the paths under exp(score) / Z, in nats."""
    result: torch.Tensor = _Values.apply(scores, batch, True)  # type: ignore[no-untyped-call]
    return result


class _Values(torch.autograd.Function):
    """Values of the graphs, whose gradients are computed with them."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, batch: Batch, is_mean: bool) -> torch.Tensor:
        weight = scores.double()[batch.score]
        if not is_mean:
            weight = weight + batch.cost
        beta = _beta(weight, batch)
        share, offset = _pushed(weight, beta, batch), beta
        beta = _beta(share, batch)  # near 0: digits survive if all paths pass a mask
        share = _pushed(share, beta, batch).exp()
        posterior, visit = _posterior(share, batch)
        alive = batch.starts >= 0
        log_z = torch.where(alive, (offset + beta)[batch.starts.clamp_min(0)], torch.nan)
        values = valid(log_z) + batch.initial
        if is_mean:
            mean, given = _conditional_means(share, posterior, visit, batch)
            values = mean + batch.initial + 0.0 * values  # NaN without a path
            posterior = posterior * (given - mean[batch.item])
        ctx.save_for_backward(scores, posterior, values)
        ctx.batch, ctx.dtype = batch, scores.dtype
        return values

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        scores, posterior, values = ctx.saved_tensors
        weights = torch.where(upstream[0] != 0, upstream[0] + 0.0 * values, 0.0)[ctx.batch.item]
        flow = torch.where(weights != 0, posterior * weights, 0.0)
        slope = _sum(flow, ctx.batch.by_score, is_log=False).to(ctx.dtype)
        return _NoSecondDerivative.apply(slope, scores, upstream[0]), None, None  # type: ignore[no-untyped-call]


class _NoSecondDerivative(torch.autograd.Function):
    """A gradient, which has no derivative."""

    @staticmethod
    def forward(ctx: Any, slope: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return slope

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[None, ...]:
        raise NotSupportedError(
            "lattices have no second derivative on a device; move the tensors to the CPU, or use "
            "first derivatives only"
        )


def _beta(weight: torch.Tensor, batch: Batch) -> torch.Tensor:
    beta = weight.new_zeros(len(batch.is_start))
    for level in batch.levels:
        ahead = weight[level.arcs] + beta[batch.target[level.arcs]]
        beta[level.states] = _sum(ahead, level.out, is_log=True)
    return beta


def _pushed(weight: torch.Tensor, beta: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return w(e) + beta(s') - beta(s), -inf for arcs without a path; masks cancel exactly."""
    ahead, behind = beta[batch.target], finite(beta)[batch.source]
    first = torch.where(ahead.abs() > weight.abs(), ahead, weight)
    second = torch.where(ahead.abs() > weight.abs(), weight, ahead)
    dead = (weight == -torch.inf) | (ahead == -torch.inf)
    return torch.where(dead, -torch.inf, (first - behind) + second)


def _posterior(share: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return P(e) and P(passing s)."""
    posterior, visit = torch.zeros_like(share), batch.is_start.to(share.dtype)
    for level in reversed(batch.levels):
        visit[level.states] += _sum(posterior, level.into, is_log=False)
        arcs = level.arcs
        posterior[arcs] = share[arcs] * visit[batch.source[arcs]]
    return posterior, visit


def _conditional_means(
    share: torch.Tensor, posterior: torch.Tensor, visit: torch.Tensor, batch: Batch
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean costs (B,), and those of the paths that pass each arc (E,)."""
    before, after, cost = torch.zeros_like(visit), torch.zeros_like(visit), batch.cost
    for level in batch.levels:
        ahead = share[level.arcs] * (cost[level.arcs] + after[batch.target[level.arcs]])
        after[level.states] = _sum(ahead, level.out, is_log=False)
    passed = visit[batch.target]
    # the ends, which are no level, are passed by all paths
    arriving = torch.where(passed > 0, posterior / passed, 0.0)
    behind = torch.zeros_like(share)
    for level in reversed(batch.levels):
        before[level.states] = _sum(behind, level.into, is_log=False)
        arcs = level.arcs
        behind[arcs] = arriving[arcs] * (before[batch.source[arcs]] + cost[arcs])
    given = before[batch.source] + cost + after[batch.target]
    return after[batch.starts.clamp_min(0)], torch.where(posterior > 0, given, 0.0)


def _sum(values: torch.Tensor, arcs: Arcs, *, is_log: bool) -> torch.Tensor:
    return arcs.reduced(values[None, None], is_log=is_log)[0, 0]


def pack(
    owners: Sequence[Graph],
    key: Any,
    paths: Callable[[], Sequence[Paths]],
    num_scores: int,
    device: torch.device,
) -> Batch:
    """Return the graphs of paths() on a device, made once for the same owners and key."""
    return recent(owners, (key, num_scores, device), lambda: _packed(paths(), num_scores, device))


def _packed(paths: Sequence[Paths], num_scores: int, device: torch.device) -> Batch:
    sizes = np.array([own.graph.num_states for own in paths])
    first = np.cumsum(sizes) - sizes
    joined_source, joined_target = (
        np.concatenate(
            [getattr(own.graph, name) + low for own, low in zip(paths, first, strict=True)]
        )
        for name in ("source", "nextstate")
    )
    score, cost = (
        np.concatenate([getattr(own, name) for own in paths]) for name in ("arc", "cost")
    )
    item = np.repeat(np.arange(len(paths)), [own.graph.num_arcs for own in paths])
    height = _heights(joined_source, joined_target, first + sizes - 1, int(sizes.sum()))
    states = np.flatnonzero(height >= 0)
    states = states[np.argsort(height[states], kind="stable")]
    number = np.full(len(height), -1)
    number[states] = np.arange(len(states))
    source, target = number[joined_source], number[joined_target]
    arcs = np.flatnonzero((source >= 0) & (target >= 0))
    arcs = arcs[np.argsort(source[arcs], kind="stable")]
    source, target = source[arcs], target[arcs]
    bounds = np.searchsorted(height[states], np.arange(height.max(initial=0) + 2))
    levels = []
    for low, high in zip(bounds[1:-1].tolist(), bounds[2:].tolist(), strict=True):
        begin, end = np.searchsorted(source, [low, high]).tolist()
        into = np.where((target >= low) & (target < high), target - low, -1)
        out = sum_tables(source[begin:end] - low, high - low, device)
        entering = sum_tables(into, high - low, device)
        levels.append(Level(slice(low, high), slice(begin, end), out, entering))
    starts = number[first]
    is_start = np.zeros(len(states), dtype=np.bool_)
    is_start[starts[starts >= 0]] = True
    initial = np.array([own.initial for own in paths])
    arrays = (starts, is_start, source, target, score[arcs], item[arcs], cost[arcs], initial)
    by_score = sum_tables(score[arcs], num_scores, device)
    return Batch(by_score, tuple(levels), *(to_device(array, device) for array in arrays))


def _heights(source: IntArray, target: IntArray, ends: IntArray, size: int) -> IntArray:
    """Return the greatest number of arcs from each state to an end, -1 if none is reached."""
    height = np.full(size, -1)
    height[ends] = 0
    while True:
        ahead = height[target]
        higher = (ahead >= 0) & (ahead + 1 > height[source])
        if not higher.any():
            return height
        np.maximum.at(height, source[higher], ahead[higher] + 1)
