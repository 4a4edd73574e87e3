"""Linear chains as operators: compiled passes on the CPU, operations of PyTorch on a device.

All take emissions (B, T, n), transitions (n, n), and a mask (B, T) with holes.  Tags outside of the
mask are -100, and so are those of sequences that do not exist.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fstgrad.core.checks import Seed, generator
from fstgrad.core.distribution import log_probability
from fstgrad.core.errors import NotSupportedError
from fstgrad.objectives.base import Array
from fstgrad.objectives.predictions import PADDING
from fstgrad.strings.linear_chain import (
    Each,
    MaskedChains,
    one_by_one,
    step_covariances,
    step_sums,
)
from fstgrad.torch.arrays import computes_on_device, to_float64, to_numpy, to_tensor
from fstgrad.torch.device import chains as device
from fstgrad.torch.threads import team
from fstgrad.torch.transforms import refuse_transforms

SMALL = 2**21  # with fewer steps in all chains, a thread costs more than it saves

Chain = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # emissions, transitions, mask
Outputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def log_partition(chain: Chain, *, allows_infeasible: bool = False) -> torch.Tensor:
    """Return log Z (B,) float64 in nats; once differentiable.

    allows_infeasible : whether an item without a sequence has -inf instead of raising an error; on
    a device it has NaN
    """
    _refuse_transforms(chain)
    if computes_on_device(chain[0]):
        return device.log_partition(*chain)
    log_z: torch.Tensor = _passes(*chain, None, None, allows_infeasible)[0]
    return log_z


def solve(chain: Chain) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log Z (B,) float64 and the marginals (B, T, n), without derivatives."""
    emissions, transitions, mask = _detached(chain)
    if computes_on_device(emissions):
        return device.solve(emissions, transitions, mask)
    log_z, node, *_ = _passes(emissions, transitions, mask, None, None, False)
    return log_z, node


def expectation(chain: Chain, costs: torch.Tensor, step_costs: torch.Tensor) -> torch.Tensor:
    """Return the expected sum (B,) float64 of costs (B, T, n) and of costs (n, n) of steps."""
    _refuse_transforms(chain)
    if computes_on_device(chain[0]):
        return device.expectation(*chain, costs, step_costs)
    value: torch.Tensor = _passes(*chain, costs, step_costs, False)[0]
    return value


def path_scores(chain: Chain, tags: torch.Tensor) -> torch.Tensor:
    """Return the scores (B,) float64 of tags (B, T) that are 0 outside of the mask.

    On a device, NaN if one is no tag.
    """
    emissions, transitions, mask = chain
    follows, before = mask[:, 1:], tags[:, :-1]
    is_known = not (torch.compiler.is_compiling() or computes_on_device(emissions))
    if not is_known or bool((follows > mask[:, :-1]).any()):  # holes
        place = torch.arange(tags.shape[1], device=tags.device)
        latest = torch.where(mask, place, -1)[:, :-1].cummax(dim=1).values  # the position before
        follows, before = follows & (latest >= 0), tags.gather(1, latest.clamp_min(0))
    if computes_on_device(emissions):
        known, score, steps = device.scores_at(emissions, transitions, tags, before)
    else:
        score = emissions.gather(2, tags[..., None])[..., 0]
        steps, known = transitions[before, tags[:, 1:]], None
    total = torch.where(mask, score, 0.0).double().sum(dim=1)
    total = total + torch.where(follows, steps, 0.0).double().sum(dim=1)
    return total if known is None else torch.where(known, total, torch.nan)


def best(chain: Chain) -> torch.Tensor:
    """Return the best tags (B, T); ties go to smaller tags."""
    if computes_on_device(chain[0]):
        return _padded(device.kbest(*_detached(chain), 1)[0][:, 0])
    return _padded(torch.from_numpy(_chains(*chain).best()[0]))


def kbest(chain: Chain, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k best sequences of tags (B, k, T), and log p (B, k) float64 in nats."""
    if computes_on_device(chain[0]):
        tags, totals = device.kbest(*_detached(chain), k)
        log_z = device.log_partition(*_detached(chain))
        return _padded(tags), (totals - log_z[:, None]).clamp_max(0.0)
    chains = _chains(*chain)
    strings, scores = chains.kbest(k)
    log_probs = log_probability(scores, chains.solve().log_z[:, None])
    return _padded(torch.from_numpy(strings)), torch.from_numpy(log_probs)


def sample(chain: Chain, k: int, rng: Seed) -> torch.Tensor:
    """Return k independent sequences of tags of each item (B, k, T)."""
    if computes_on_device(chain[0]):
        return _padded(device.sample(*_detached(chain), k, rng))
    return _padded(torch.from_numpy(_chains(*chain).sample(k, generator(rng))))


def _refuse_transforms(chain: Chain) -> None:
    if not torch.compiler.is_compiling():
        refuse_transforms(chain[:2])


def _detached(chain: Chain) -> Chain:
    emissions, transitions, mask = chain
    return emissions.detach(), transitions.detach(), mask


def _padded(tags: torch.Tensor) -> torch.Tensor:
    return tags.masked_fill(tags < 0, PADDING)


def _chains(*chain: torch.Tensor) -> MaskedChains:
    emissions, transitions, mask = map(to_numpy, chain)
    return MaskedChains(emissions, transitions, mask, _loop_over_blocks(emissions))


def _loop_over_blocks(emissions: Array) -> Each:
    """Return a loop over the blocks of a batch: in threads, unless the batch is too small."""
    return one_by_one if emissions.size * emissions.shape[2] < SMALL else team().each


@torch.library.custom_op(
    "fstgrad::chains",
    mutates_args=(),
    schema="(Tensor emissions, Tensor transitions, Tensor mask, Tensor? costs, Tensor? step_costs, "
    "bool allows_infeasible) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _passes(
    emissions: torch.Tensor,
    transitions: torch.Tensor,
    mask: torch.Tensor,
    costs: torch.Tensor | None,
    step_costs: torch.Tensor | None,
    allows_infeasible: bool,
) -> Outputs:
    """Return log Z (B,) float64, the marginals like the emissions, and what a derivative needs.

    With costs, the values are expected costs, and the last table has their gradients in the
    emissions; without, it is empty.  The factors (2, ...) or, with costs, (4, ...), and the mask of
    wide items are kept on the CPU.

    allows_infeasible : whether infeasible items have log Z = -inf and marginals of 0
    """
    chains = _chains(emissions, transitions, mask)
    solved = chains.solve(allows_infeasible=allows_infeasible)
    value, factors, covariances = solved.log_z, solved.factors, emissions.new_empty(0)
    if costs is not None and step_costs is not None:
        mean = chains.expectation(solved, chains.taken(to_float64(costs)), to_float64(step_costs))
        value, factors = mean.value, np.concatenate([factors, mean.factors])
        covariances = to_tensor(chains.placed(mean.node), emissions)
    return (
        to_tensor(value, emissions.new_empty(0, dtype=torch.float64)),
        to_tensor(chains.placed(solved.node), emissions),
        torch.from_numpy(factors),
        torch.from_numpy(solved.is_wide),
        covariances,
    )


@_passes.register_fake
def _(
    emissions: torch.Tensor, transitions: torch.Tensor, mask: torch.Tensor,
    costs: torch.Tensor | None, *rest: Any,
) -> Outputs:  # fmt: skip
    items, like = emissions.shape[0], emissions.new_empty(emissions.shape)
    return (
        emissions.new_empty(items, dtype=torch.float64),
        like,
        torch.empty((2 if costs is None else 4, emissions.numel()), dtype=torch.float64),
        torch.empty(items, dtype=torch.bool),
        emissions.new_empty(0) if costs is None else torch.empty_like(like),
    )


@torch.library.custom_op(
    "fstgrad::chain_steps",
    mutates_args=(),
    schema="(Tensor emissions, Tensor transitions, Tensor mask, Tensor factors, Tensor is_wide, "
    "Tensor weights, Tensor? costs=None, Tensor? step_costs=None) -> Tensor",
)
def _step_sums(
    emissions: torch.Tensor,
    transitions: torch.Tensor,
    mask: torch.Tensor,
    factors: torch.Tensor,
    is_wide: torch.Tensor,
    weights: torch.Tensor,
    costs: torch.Tensor | None = None,
    step_costs: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return sum_i weights[i] E[number of steps from x to y in item i], like the transitions.

    With costs, covariances of the cost and these numbers instead of expectations.
    """
    steps, weight, tables = to_float64(transitions), to_numpy(weights), to_numpy(factors)
    each, wide = _loop_over_blocks(to_numpy(emissions)), to_numpy(is_wide)
    chains = _chains(emissions, transitions, mask) if wide.any() else None
    if costs is None or step_costs is None:
        total = step_sums(steps, tables[:2], weight, each)
        total += 0.0 if chains is None else chains.wide_sums(wide, weight)
    else:
        by_step = to_float64(step_costs)
        total = step_covariances(steps, tables, by_step, weight, each)
        if chains is not None:
            moved = chains.taken(to_float64(costs))
            total += chains.wide_covariances(wide, moved, by_step, weight)
    return to_tensor(total, transitions)


@_step_sums.register_fake
def _(emissions: torch.Tensor, transitions: torch.Tensor, *rest: Any) -> torch.Tensor:
    return transitions.new_empty(transitions.shape)


def _remember(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:
    ctx.save_for_backward(*inputs[:5], *output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *upstream: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    if any(direction is not None for direction in upstream[1:]):
        raise _no_second_derivative()
    weights = upstream[0]
    *chain, costs, step_costs, node, factors, is_wide, covariances = ctx.saved_tensors
    slopes: list[torch.Tensor | None] = [None] * 6
    if weights is None:
        return tuple(slopes)
    each, given = weights[:, None, None], (*chain, factors, is_wide, weights)
    slope = node if costs is None else covariances
    if ctx.needs_input_grad[0]:
        slopes[0] = each.to(slope.dtype) * slope
    if ctx.needs_input_grad[1]:
        slopes[1] = _step_sums(*given, costs, step_costs)
    if ctx.needs_input_grad[3]:
        slopes[3] = (each.to(node.dtype) * node).to(costs.dtype)
    if ctx.needs_input_grad[4]:
        slopes[4] = _step_sums(*given).to(step_costs.dtype)
    return tuple(slopes)


def _no_second_derivative(*_: Any) -> NotSupportedError:
    return NotSupportedError(
        "CRF has first derivatives only; crf_nll on scores (B, L, n+1, n) has two"
    )


def _refuse(ctx: Any, *upstream: torch.Tensor) -> None:
    raise _no_second_derivative()


_passes.register_autograd(_backward, setup_context=_remember)
_step_sums.register_autograd(_refuse)
