"""Linear chains: emissions (B, T, n), transitions (n, n), and a mask (B, T) with holes.

Sums, best paths and samples also take transitions (B, T, n, n), those into each position.

A position outside of the mask leaves its item as it is.  Scores of a position are relative to the
largest one, and so are the forward weights, so that float32 keeps the digits of long sequences.
"""

from collections.abc import Iterator
from typing import Any

import torch

from fstgrad.core.checks import Seed, generator
from fstgrad.torch.device.sums import Weights, finite, log_sum, products, totals, valid
from fstgrad.torch.fused.available import fused, labels_of_chain


def log_partition(
    emissions: torch.Tensor, transitions: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Return log Z (B,) float64 in nats, NaN for an item without a sequence."""
    if fused(emissions) and emissions.shape[2] <= labels_of_chain(emissions):
        from fstgrad.torch.fused import chains

        return chains.log_partition(emissions, transitions, mask, _log_partition)
    return _log_partition(emissions, transitions, mask)


def _log_partition(
    emissions: torch.Tensor, transitions: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    *_, ((forward,), offset) = _forward(emissions, transitions, mask)
    return valid(_where_any(mask, log_sum(forward).double() + offset))


def solve(
    emissions: torch.Tensor, transitions: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log Z (B,) float64 and the marginals (B, T, n), 0 outside of the mask; no gradient."""
    with torch.enable_grad():
        scores = emissions.detach().requires_grad_()
        log_z = log_partition(scores, transitions.detach(), mask)
        (table,) = torch.autograd.grad(log_z.sum(), scores)
    return log_z.detach(), table


def expectation(
    emissions: torch.Tensor,
    transitions: torch.Tensor,
    mask: torch.Tensor,
    costs: torch.Tensor,
    step_costs: torch.Tensor,
) -> torch.Tensor:
    """Return the expected sum (B,) float64 of costs (B, T, n) and of costs (n, n) of steps."""
    along = (table.to(emissions.dtype) for table in (costs, step_costs))
    *_, (weights, _) = _forward(emissions, transitions, mask, *along)
    log_z, mean = totals(weights)
    return _where_any(mask, torch.where(log_z == -torch.inf, torch.nan, mean.double()))


def scores_at(
    emissions: torch.Tensor, transitions: torch.Tensor, tags: torch.Tensor, before: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return whether all tags (B, T) of an item are tags, and the scores of these and of steps.

    By one-hot rows, so that nothing is scattered back.

    before : (B, T - 1), the tags from which the steps to the later ones lead
    """
    n = emissions.shape[2]
    known, rows = tags.clamp(0, n - 1), before.clamp(0, n - 1)
    is_own = known[..., None] == torch.arange(n, device=tags.device)
    scores = torch.where(is_own, emissions, 0.0).sum(dim=2)
    steps = _Entries.apply(transitions, rows, known[:, 1:])  # type: ignore[no-untyped-call]
    return (known == tags).all(dim=1), scores, steps


def are_valid(
    emissions: torch.Tensor, transitions: torch.Tensor, mask: torch.Tensor, tags: torch.Tensor
) -> torch.Tensor:
    """Return whether the numbers and the tags of an item are valid, (B,): it may be infeasible."""
    good = (emissions < torch.inf).all(dim=2) & (tags >= 0) & (tags < emissions.shape[2])
    return (good | ~mask).all(dim=1) & (transitions < torch.inf).all()


def kbest(
    emissions: torch.Tensor, transitions: torch.Tensor, mask: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k best sequences of tags (B, k, T), best first, and their scores (B, k) float64.

    Tags are -1 outside of the mask; all tags of a sequence that does not exist are -1, and its
    score is -inf.  Ties go to smaller tags.  O(B T n^2 k log(n k)), or O(B T n^2) for k = 1.
    """
    items, _, n = emissions.shape
    inside = mask[..., None].unbind(1)
    started = torch.zeros_like(inside[0])
    scores = torch.full_like(emissions[:, 0, :, None], -torch.inf).repeat(1, 1, k)
    offset, pointers = torch.zeros_like(scores[:, 0, :1], dtype=torch.float64), []
    same = torch.arange(n * k, device=mask.device).expand(items, -1)
    first = torch.where(torch.arange(k, device=mask.device) == 0, 0.0, -torch.inf)
    for t, (now, here) in enumerate(zip(emissions.unbind(1), inside, strict=True)):
        # candidates are tags and ranks before (flattened), for each tag
        steps = _into(transitions, t)[..., None, :]
        reached = (scores[..., None] + steps).flatten(1, 2).transpose(1, 2)
        reached, source = _largest(reached, k)
        pointers.append(torch.where(here & started, source.flatten(1), same))
        arrived = torch.where(started[..., None], reached, first) + now[..., None]
        shift = finite(arrived.flatten(1).amax(dim=1, keepdim=True))
        scores = torch.where(here[..., None], arrived - shift[..., None], scores)
        offset = offset + torch.where(here, shift, 0.0).double()
        started = started | here
    top, state = _largest(scores.flatten(1), k)
    exists, tags = top > -torch.inf, []
    for pointer in reversed(pointers):
        tags.append(state.div(k, rounding_mode="floor"))
        state = pointer.gather(1, state)
    table = torch.where(mask[:, None] & exists[..., None], torch.stack(tags[::-1], dim=2), -1)
    return table, top.double() + offset


def sample(
    emissions: torch.Tensor, transitions: torch.Tensor, mask: torch.Tensor, k: int, rng: Seed
) -> torch.Tensor:
    """Return k tag sequences (B, k, T), -1 where `kbest` has it: forward sums, backward draws."""
    levels = _forward(emissions.detach(), transitions.detach(), mask)
    weights = [forward for (forward,), _ in levels]
    source = _source(rng, mask.device)

    def draw(scores: torch.Tensor) -> torch.Tensor:
        # the largest of scores minus logarithms of exponential variables has their softmax
        variables = torch.empty_like(scores).exponential_(generator=source)
        return (scores - variables.clamp_min(torch.finfo(scores.dtype).tiny).log()).argmax(dim=2)

    items = torch.arange(len(mask), device=mask.device)[:, None]
    tag = draw(weights[-1][:, None].expand(-1, k, -1).contiguous())
    tags, later = [tag], mask[:, -1:]
    for t in range(len(weights) - 2, -1, -1):
        here = mask[:, t, None]
        steps = _into(transitions.detach(), t + 1).mT.expand(len(mask), -1, -1)
        drawn = draw(weights[t][:, None] + steps[items, tag])
        tag = torch.where(here & later, drawn, tag)  # the last position has been drawn already
        tags.append(tag)
        later = later | here
    good = weights[-1].amax(dim=1).isfinite() & mask.any(dim=1)
    return torch.where(mask[:, None] & good[:, None, None], torch.stack(tags[::-1], dim=2), -1)


def _forward(
    emissions: torch.Tensor,
    transitions: torch.Tensor,
    mask: torch.Tensor,
    costs: torch.Tensor | None = None,
    step_costs: torch.Tensor | None = None,
) -> Iterator[tuple[Weights, torch.Tensor]]:
    """Yield the forward weights (B, n) after each position, less an offset (B,) float64.

    With costs, their tangents are the expected costs up to the position.
    """
    inside = mask[..., None].unbind(1)
    tables = [emissions] if costs is None else [emissions, costs]
    started = torch.zeros_like(inside[0])
    weights: Weights = tuple(torch.zeros_like(emissions[:, 0]) for _ in tables)
    offset = torch.zeros_like(emissions[:, 0, 0], dtype=torch.float64)
    levels = zip(*(table.unbind(1) for table in tables), strict=True)
    for t, (level, here) in enumerate(zip(levels, inside, strict=True)):
        arrived = list(level)
        if t > 0:
            into = _advanced(weights, transitions, step_costs, t)
            arrived = [
                own + torch.where(started, before, 0.0)
                for own, before in zip(level, into, strict=True)
            ]
        shift = finite(arrived[0].detach().amax(dim=1, keepdim=True))
        arrived[0] = arrived[0] - shift
        weights = tuple(
            torch.where(here, now, before) for now, before in zip(arrived, weights, strict=True)
        )
        offset = offset + torch.where(here, shift, 0.0)[:, 0].double()
        started = started | here
        yield weights, offset


def _into(transitions: torch.Tensor, t: int) -> torch.Tensor:
    """Return the transitions (n, n) or (B, n, n) into a position."""
    return transitions if transitions.ndim == 2 else transitions[:, t]


def _advanced(
    weights: Weights, transitions: torch.Tensor, step_costs: torch.Tensor | None, t: int
) -> Weights:
    """Return the sums of weights (B, n) and of the transitions into a position."""
    if transitions.ndim == 4:
        into = products(tuple(table[:, None] for table in weights), transitions[:, t])
        return tuple(table[:, 0] for table in into)
    step = None if step_costs is None else step_costs[None]
    into = products(tuple(table[None] for table in weights), transitions[None], step)
    return tuple(table[0] for table in into)


def _where_any(mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return values of items, NaN for those without a position."""
    return torch.where(mask.any(dim=1), values, torch.nan)


def _largest(values: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k largest values of the last axis and their places, the first ones among ties."""
    if k == 1:
        top, place = values.max(dim=-1, keepdim=True)
        return top, place
    top, place = values.sort(dim=-1, descending=True, stable=True)
    return top[..., :k], place[..., :k]


def _source(rng: Seed, device: torch.device) -> torch.Generator | None:
    """Return a generator of the device; its numbers depend on the kind of device."""
    seed = int(generator(rng).integers(2**63))
    return None if device.type == "meta" else torch.Generator(device).manual_seed(seed)


class _Entries(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, table: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(rows, columns)
        ctx.sizes = table.shape
        return table[rows, columns]

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        left, right = (
            (ids.flatten()[:, None] == torch.arange(size, device=ids.device)).to(upstream[0].dtype)
            for ids, size in zip(ctx.saved_tensors, ctx.sizes, strict=True)
        )
        return (left * upstream[0].flatten()[:, None]).t() @ right, None, None
