"""The linear-chain conditional random field on emissions (B, T, n) and transitions (n, n)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fstgrad.core.checks import LARGEST_SCORE, Seed, generator, instance, one_of, positive_integer
from fstgrad.core.distribution import FAR, log_probability
from fstgrad.core.errors import InfeasibleError, InvalidInputError, NotSupportedError
from fstgrad.core.infeasible import REMEDY, Infeasible, check_infeasible
from fstgrad.losses import Loss
from fstgrad.objectives.base import Array
from fstgrad.strings.linear_chain import (
    GOLD_FORBIDDEN,
    NO_POSITION,
    NO_STRING,
    Each,
    LinearChains,
    one_by_one,
    step_covariances,
    step_sums,
)
from fstgrad.torch import arguments, strings
from fstgrad.torch.arrays import (
    computes_on_device,
    to_float64,
    to_numpy,
    to_tensor,
    upcast,
    validated,
)
from fstgrad.torch.device import chains as on_device
from fstgrad.torch.operators import REDUCTIONS, Reduction, reduced
from fstgrad.torch.strings import IGNORE_INDEX
from fstgrad.torch.threads import team
from fstgrad.torch.transforms import no_vmap, refuse_transforms, uncompiled

SMALL = 2**21  # with fewer steps in all chains, a thread costs more than it saves


class CRF:
    """p(y) = exp(sum_t emissions[t, y_t] + sum_t transitions[y_{t-1}, y_t]) / Z for each item.

    This is a distribution over the tag sequences of a batch.  One compiled forward-backward pass
    computes log Z and its gradients; decoding needs no loop in Python.  No table (B, T, n, n) is
    created.  It has no parameters of its own: `fstgrad.torch.nn.CRF` is the layer that has.

    Parameters
    ----------
    emissions : (B, T, n) floating point
        Log-weights in nats; -inf forbids a tag.
    transitions : (n, n)
        The log-weight of y after x at [x, y]; -inf or -1e4 forbids a step.
    mask : (B, T) bool, optional
        True at the positions that belong to the sequences; padding may be anywhere.
    start, end : (n,), optional
        Added to the emissions of the first and of the last position.

    Examples
    --------
    >>> import torch, fstgrad.torch as fgt
    >>> emissions = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]], requires_grad=True)
    >>> crf = fgt.CRF(emissions, torch.zeros(2, 2))
    >>> crf.decode().tolist()
    [[0, 1]]
    >>> crf.nll(torch.tensor([[0, 1]])).backward()
    >>> [round(x, 4) for x in emissions.grad[0, 0].tolist()]  # softmax([1, 0]) - [1, 0]
    [-0.2689, 0.2689]
    """

    def __init__(
        self,
        emissions: torch.Tensor,
        transitions: torch.Tensor,
        mask: torch.Tensor | None = None,
        *,
        start: torch.Tensor | None = None,
        end: torch.Tensor | None = None,
    ) -> None:
        arguments.floating("emissions", emissions)
        arguments.floating("transitions", transitions)
        if emissions.ndim != 3 or 0 in emissions.shape[1:]:
            raise InvalidInputError(
                f"emissions has the shape {tuple(emissions.shape)}; give (B, T, n)"
            )
        if transitions.shape != (emissions.shape[2],) * 2:
            raise InvalidInputError(
                f"transitions has the shape {tuple(transitions.shape)}; give (n, n), emissions are "
                f"{tuple(emissions.shape)}"
            )
        for name, ends in (("start", start), ("end", end)):
            if ends is not None:
                arguments.shaped(name, arguments.floating(name, ends), emissions.shape[2:])
        if mask is not None and (
            arguments.tensor("mask", mask).shape != emissions.shape[:2] or mask.dtype != torch.bool
        ):
            raise InvalidInputError(
                f"mask is {mask.dtype} {tuple(mask.shape)}; give a bool tensor "
                f"{tuple(emissions.shape[:2])}, True where a position belongs to its sequence"
            )
        given = (emissions, transitions, mask, start, end)
        no_vmap([tensor for tensor in given if tensor is not None])
        self.emissions, self.transitions, self.mask = emissions, transitions, mask
        self.start, self.end = start, end
        self._on_device = computes_on_device(emissions)

    @validated
    def log_partition(self) -> torch.Tensor:
        """Return log Z (B,) in nats; once differentiable."""
        chain = self._compact(self.mask)
        return (self._log_partition(chain) + chain.offset.double().sum(1)).to(self._dtype)

    @validated
    def nll(
        self,
        gold: torch.Tensor,
        *,
        reduction: Reduction = "mean",
        ignore_index: int = IGNORE_INDEX,
        infeasible: Infeasible = "raise",
    ) -> torch.Tensor:
        """Return -log p(gold) in nats; once differentiable in emissions, transitions, start, end.

        Parameters
        ----------
        gold : (B, T) integer
        reduction : {"mean", "sum", "none"}
            Over the items.
        ignore_index : int
            Without a mask, positions where gold is `ignore_index` do not belong to the sequences.
        infeasible : {"raise", "zero"}
            What to do with items that have no position, no tags of finite score, or gold of score
            -inf.  "raise": one error names them all.  "zero": their values and gradients are 0,
            and "mean" divides by B.
        """
        one_of("reduction", reduction, REDUCTIONS)
        check_infeasible(infeasible)
        chain, tags = self._gold(gold, ignore_index)
        return reduced(self._margin(chain, chain, tags, infeasible), reduction)

    @validated
    def softmax_margin(
        self,
        gold: torch.Tensor,
        loss: Loss | torch.Tensor,
        *,
        reduction: Reduction = "mean",
        ignore_index: int = IGNORE_INDEX,
        infeasible: Infeasible = "raise",
    ) -> torch.Tensor:
        """Return log sum_y exp(L(y, gold) + score(y) - score(gold)) in nats; once differentiable.

        Parameters
        ----------
        gold : (B, T) integer
        loss : Loss, or (n, n) tensor of costs [gold, predicted] in nats
            Costs are added up over the positions, O(B T n^2).  A `Loss` is one over an alphabet of
            the n tags, such as `fg.SpanHamming`; it takes a table (B, T, n+1, n) of scores, and is
            exact, as `fgt.softmax_margin`.
        reduction, ignore_index, infeasible
            As in `nll`.
        """
        one_of("reduction", reduction, REDUCTIONS)
        check_infeasible(infeasible)
        costs = self._costs(loss)
        chain, tags = self._gold(gold, ignore_index)
        if costs is None:
            given = self._pairs(chain), tags.masked_fill(~chain.inside, IGNORE_INDEX)
            choices: Any = {"reduction": reduction, "infeasible": infeasible}
            return strings.softmax_margin(*given, loss, **choices)  # type: ignore[arg-type]
        added = _costs_of(tags, chain, costs).to(chain.emissions.dtype)
        augmented = chain._replace(emissions=chain.emissions + added)
        return reduced(self._margin(augmented, chain, tags, infeasible), reduction)

    @validated
    def risk(
        self,
        gold: torch.Tensor,
        loss: Loss | torch.Tensor,
        *,
        reduction: Reduction = "mean",
        ignore_index: int = IGNORE_INDEX,
        infeasible: Infeasible = "raise",
    ) -> torch.Tensor:
        """Return E[L(y, gold)] in nats; once differentiable.  Parameters as in `softmax_margin`."""
        one_of("reduction", reduction, REDUCTIONS)
        check_infeasible(infeasible)
        costs = self._costs(loss)
        chain, tags = self._gold(gold, ignore_index)
        if costs is None:
            given = self._pairs(chain), tags.masked_fill(~chain.inside, IGNORE_INDEX)
            choices: Any = {"reduction": reduction, "infeasible": infeasible}
            return strings.risk(*given, loss, **choices)  # type: ignore[arg-type]
        added, none = _costs_of(tags, chain, costs), torch.zeros_like(costs)
        if infeasible == "raise":
            value = self._expectation(chain, added, none)
        elif self._on_device:
            scored = chain.emissions, self._steps(), tags, chain.inside
            bad = self._log_partition(chain).detach().isnan() & on_device.are_valid(*scored)
            value = self._expectation(chain.with_one_position(bad), added, none)
            value = torch.where(bad, 0.0, value)
        else:
            log_z = self._log_partition(chain, allows_infeasible=True).detach()
            kept = ((log_z != -torch.inf) & (chain.lengths > 0)).nonzero()[:, 0]
            value = torch.zeros_like(log_z)
            if len(kept) > 0:
                of_kept = self._expectation(chain.of_items(kept), added[kept], none)
                value = value.index_put((kept,), of_kept)
        return reduced(value.to(self._dtype), reduction)

    @validated
    def entropy(self) -> torch.Tensor:
        """Return the entropy -E[log p(y)] (B,) in nats; once differentiable."""
        chain = self._compact(self.mask)
        log_z, node = self._solved(chain)
        costs = torch.where(node > 0, chain.emissions.detach(), 0.0)
        # the derivatives of log Z and of the costs cancel
        value = log_z - self._expectation(chain, costs, _finite(self._steps().detach()))
        return value.clamp_min(0.0).to(self._dtype)

    @validated
    def kl(self, other: "CRF") -> torch.Tensor:
        """Return the Kullback-Leibler divergence E[log p(y) - log q(y)] (B,) in nats.

        Once differentiable, in the scores of both.  +inf, without a gradient, for an item where q
        forbids tags that p does not.

        other : CRF
            The distribution q, of emissions of the same shape and with the same mask.
        """
        instance("other", other, CRF, "an fstgrad.torch.CRF, as nn.CRF.distribution returns it")
        arguments.shaped("the emissions of other", other.emissions, self.emissions.shape)
        is_known = not (torch.compiler.is_compiling() or self._on_device)
        if is_known and not _same_mask(self.mask, other.mask):
            raise InvalidInputError("other has another mask; give both the same mask")
        p, q = self._compact(self.mask), other._compact(other.mask)
        log_z, node = self._solved(p)
        p_steps, q_steps = self._steps().detach(), other._steps()
        occurs, p_allows = node > 0, p_steps > -LARGEST_SCORE
        q_forbids = q.emissions == -torch.inf, q_steps == -torch.inf
        costs = torch.where(occurs & ~q_forbids[0], p.emissions.detach() - q.emissions, 0.0)
        steps = torch.where(p_allows & ~q_forbids[1], p_steps - q_steps, 0.0)
        value = other._log_partition(q) - log_z + self._expectation(p, costs, steps)
        infinite = [(occurs & q_forbids[0]).to(costs), (p_allows & q_forbids[1]).to(steps)]
        if not is_known or any(bool(table.any()) for table in infinite):
            forbidden = self._expectation(p, *infinite).detach() > 0
            value = value.masked_fill(forbidden, torch.inf)
        return value.clamp_min(0.0).to(self._dtype)

    def _gold(
        self, gold: torch.Tensor, ignore_index: int, name: str = "gold"
    ) -> tuple["_Chain", torch.Tensor]:
        """Return the chain of the positions inside the mask, and its tags (B, T), 0 elsewhere."""
        gold = arguments.integers(name, gold).to(self.emissions.device)
        no_vmap([gold])
        if gold.shape != self.emissions.shape[:2]:
            raise InvalidInputError(
                f"{name} has the shape {tuple(gold.shape)}; emissions are "
                f"{tuple(self.emissions.shape)}"
            )
        ignore_index = arguments.integer("ignore_index", ignore_index)
        mask = self.mask if self.mask is not None else gold != ignore_index
        chain = self._compact(mask)
        if self._on_device:
            return chain, gold.masked_fill(~chain.inside, 0)
        tags = gold.gather(1, chain.order) if chain.order is not None else gold
        if not torch.compiler.is_compiling():
            check_tags("gold", tags, chain.inside, self.emissions.shape[2])
        return chain, tags.masked_fill(~chain.inside, 0)

    def _margin(
        self,
        augmented: "_Chain",
        chain: "_Chain",
        tags: torch.Tensor,
        infeasible: Infeasible | None = None,
    ) -> torch.Tensor:
        """Return log Z of the augmented chain less the score of the tags, (B,).

        infeasible : the option of the caller, if it has one
        """
        if self._on_device:
            given = (chain.emissions, self._steps(), tags, chain.inside)
            values = self._log_partition(augmented) - on_device.path_scores(*given)
            if infeasible == "zero":
                values = torch.where(values.isnan() & on_device.are_valid(*given), 0.0, values)
            return values.to(self._dtype)
        score = _zero_outside(chain.inside, chain.emissions.gather(2, tags[..., None])[..., 0])
        steps = upcast(self.transitions)[tags[:, :-1], tags[:, 1:]]
        total = score.double().sum(1) + _zero_outside(chain.inside[:, 1:], steps).double().sum(1)
        allows = infeasible == "zero" or not torch.compiler.is_compiling()
        log_z = self._log_partition(augmented, allows_infeasible=allows)
        empty, excluded = chain.lengths == 0, total == -torch.inf
        are_bad, values = empty | excluded | (log_z == -torch.inf), log_z - total
        if infeasible == "zero":
            values = torch.where(are_bad, 0.0, values)
        elif not torch.compiler.is_compiling() and bool(are_bad.any()):
            raise self._infeasible((are_bad, excluded, empty), has_option=infeasible is not None)
        return values.to(self._dtype)

    def _infeasible(self, masks: Sequence[torch.Tensor], *, has_option: bool) -> InfeasibleError:
        """Return the error of items without a string, with forbidden gold, without a position."""
        left = NO_POSITION if self.mask is not None else "gold has only ignored positions"
        reasons: dict[int, str] = {}
        for mask, reason in zip(masks, (NO_STRING, GOLD_FORBIDDEN, left), strict=True):
            reasons |= dict.fromkeys(mask.nonzero()[:, 0].tolist(), reason)
        return InfeasibleError.of_items(reasons, *([REMEDY] if has_option else []))

    @validated
    def log_prob(self, tags: torch.Tensor) -> torch.Tensor:
        """Return log p(tags) (B,) in nats."""
        chain, known = self._gold(tags, IGNORE_INDEX, "tags")
        return -self._margin(chain, chain, known)

    @validated
    def marginals(self) -> torch.Tensor:
        """Return p(y_t = tag) (B, T, n), 0 where the mask is False; not differentiable."""
        chain = self._compact(self.mask)
        if self._on_device:
            return on_device.marginals(chain.emissions, self._steps(), chain.inside)
        _, node, *_ = _solve(chain.emissions.detach(), self._steps().detach(), chain.lengths)
        return self._placed(node, chain, 0.0).to(self._dtype)

    @uncompiled
    def decode(self) -> torch.Tensor:
        """Return the best tags (B, T), -100 where the mask is False; ties go to smaller tags."""
        chain = self._compact(self.mask)
        if self._on_device:
            return self._kbest(chain, 1)[0][:, 0]
        return self._placed(self._tensor(self._chains(chain).best()[0]), chain, IGNORE_INDEX)

    @uncompiled
    def nbest(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the k best tag sequences (B, k, T), -100 as padding, and log p (B, k) in nats.

        If an item has fewer sequences, the remaining log p are -inf and the tags are -100.
        """
        k = positive_integer("k", k)
        chain = self._compact(self.mask)
        if self._on_device:
            lists, totals = self._kbest(chain, k)
            log_z = self._log_partition(chain).detach()
            return lists, (totals - log_z[:, None]).clamp_max(0.0).to(self._dtype)
        chains = self._chains(chain)
        tags, scores = chains.kbest(k)
        log_probs = torch.from_numpy(log_probability(scores, chains.solve().log_z[:, None]))
        return self._lists(tags, chain), log_probs.to(self.emissions.device, self._dtype)

    @uncompiled
    def sample(self, k: int, rng: Seed = None) -> torch.Tensor:
        """Return k independent tag sequences of each item (B, k, T), -100 as padding."""
        chain = self._compact(self.mask)
        if self._on_device:
            k = positive_integer("k", k)
            tags = on_device.sample(chain.emissions, self._steps(), chain.inside, k, rng)
            return tags.masked_fill(tags < 0, IGNORE_INDEX)
        drawn = self._chains(chain).sample(positive_integer("k", k), generator(rng))
        return self._lists(drawn, chain)

    @uncompiled
    def mbr(self) -> torch.Tensor:
        """Return the tags with the fewest expected errors (B, T): those with largest marginals."""
        tags = self.marginals().argmax(dim=2)
        return tags if self.mask is None else tags.masked_fill(~self.mask, IGNORE_INDEX)

    def _on_cpu(self) -> "CRF":
        """Return this CRF with tensors on the CPU and without gradients."""
        given = (self.emissions, self.transitions, self.mask, self.start, self.end)
        tensors = [None if tensor is None else tensor.detach().cpu() for tensor in given]
        return CRF(*tensors[:3], start=tensors[3], end=tensors[4])  # type: ignore[arg-type]

    @property
    def _dtype(self) -> torch.dtype:
        return upcast(self.emissions).dtype

    def _steps(self) -> torch.Tensor:
        return upcast(self.transitions)

    def _compact(self, mask: torch.Tensor | None) -> "_Chain":
        """Return the emissions of the positions inside the mask, moved to the front."""
        emissions = upcast(self.emissions)
        items, length, n = emissions.shape
        place, order = torch.arange(length, device=emissions.device), None
        if mask is None:
            lengths = torch.full((items,), length, device=emissions.device)
        else:
            lengths = mask.sum(dim=1)
        inside = place < lengths[:, None]
        if self._on_device:  # where positions may be left out anywhere
            inside = inside if mask is None else mask
        # usually all padding is at the end, but a compiled graph cannot check this
        elif mask is not None and (torch.compiler.is_compiling() or not torch.equal(mask, inside)):
            order = torch.argsort(~mask, dim=1, stable=True)
            emissions = emissions.gather(1, order[..., None].expand(items, length, n))
        # differences of scores keep their digits even if a whole position is masked by finfo.min
        emissions, offset = self._recentered(emissions, inside)
        rank = inside.cumsum(dim=1)
        if self.start is not None:
            first = inside & (rank == 1)
            emissions = emissions + _zero_outside(first[..., None], upcast(self.start))
        if self.end is not None:
            last = inside & (rank == lengths[:, None])
            emissions = emissions + _zero_outside(last[..., None], upcast(self.end))
        if self.start is not None or self.end is not None:  # which may be masks too
            emissions, further = self._recentered(emissions, inside)
            offset = offset + further
        return _Chain(emissions, lengths, inside, order, offset)

    def _recentered(
        self, emissions: torch.Tensor, inside: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Subtract the largest emission of a position if it is beyond FAR; return it too, (B, T).

        On a device, which may compute in float32, it is always subtracted.
        """
        largest = emissions.detach().amax(dim=2)
        is_far = inside & (largest != -torch.inf)
        if not self._on_device:
            is_far = is_far & (largest.abs() > FAR) & largest.isfinite()
        offset = _zero_outside(is_far, largest)
        if self._on_device or torch.compiler.is_compiling() or bool(offset.any()):
            emissions = emissions - offset[..., None]
        return emissions, offset

    def _log_partition(self, chain: "_Chain", *, allows_infeasible: bool = False) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            refuse_transforms([chain.emissions, self.transitions])
        if self._on_device:
            return on_device.log_partition(chain.emissions, self._steps(), chain.inside)
        given = (chain.emissions, self._steps(), chain.lengths)
        log_z: torch.Tensor = _solve(*given, allows_infeasible)[0]
        return log_z

    def _kbest(self, chain: "_Chain", k: int) -> tuple[torch.Tensor, torch.Tensor]:
        emissions, steps = chain.emissions.detach(), self._steps().detach()
        tags, scores = on_device.kbest(emissions, steps, chain.inside, k)
        return tags.masked_fill(tags < 0, IGNORE_INDEX), scores

    def _solved(self, chain: "_Chain") -> tuple[torch.Tensor, torch.Tensor]:
        """Return log Z (B,) float64 and the marginals, without derivatives."""
        emissions, steps = chain.emissions.detach(), self._steps().detach()
        if self._on_device:
            log_z = on_device.log_partition(emissions, steps, chain.inside)
            return log_z, on_device.marginals(emissions, steps, chain.inside)
        log_z, node, *_ = _solve(emissions, steps, chain.lengths)
        return log_z, node

    def _expectation(
        self, chain: "_Chain", costs: torch.Tensor, step_costs: torch.Tensor
    ) -> torch.Tensor:
        """Return the expected sum (B,) float64 of costs (B, T, n) and of costs of steps (n, n)."""
        if not torch.compiler.is_compiling():
            refuse_transforms([chain.emissions, self.transitions])
        steps = self._steps()
        if self._on_device:
            return on_device.expectation(chain.emissions, steps, costs, step_costs, chain.inside)
        value: torch.Tensor = _expect(chain.emissions, steps, chain.lengths, costs, step_costs)[0]
        return value

    def _costs(self, loss: Any) -> torch.Tensor | None:
        """Return costs [gold, predicted] of tags, checked; None for a `Loss`."""
        n = self.emissions.shape[2]
        if isinstance(loss, Loss):
            if len(loss.alphabet) != n:
                raise InvalidInputError(
                    f"loss is for {len(loss.alphabet)} tags, emissions are for {n}"
                )
            return None
        what = f"a Loss over the {n} tags, or a tensor of costs ({n}, {n}) [gold, predicted]"
        instance("loss", loss, torch.Tensor, what)
        costs = arguments.real("loss", arguments.shaped("loss", loss, (n, n)))
        costs = costs.to(self.emissions.device)
        return costs if self._on_device else arguments.finite("loss", costs)

    def _pairs(self, chain: "_Chain") -> torch.Tensor:
        """Return the scores (B, T, n+1, n) of pairs of tags."""
        rows = torch.nn.functional.pad(self._steps(), (0, 0, 0, 1))
        return chain.emissions[:, :, None, :] + rows.to(chain.emissions.dtype)

    def _chains(self, chain: "_Chain") -> LinearChains:
        return _chains(chain.emissions, self._steps(), chain.lengths)

    def _tensor(self, tags: Any) -> torch.Tensor:
        padded = torch.from_numpy(np.where(tags < 0, IGNORE_INDEX, tags))
        return padded.to(self.emissions.device)

    def _lists(self, tags: Any, chain: "_Chain") -> torch.Tensor:
        """Return lists of compact tags (B, k, T) moved back to their positions."""
        rows = self._tensor(tags).transpose(1, 2)
        return self._placed(rows, chain, IGNORE_INDEX).transpose(1, 2)

    def _placed(self, table: torch.Tensor, chain: "_Chain", rest: float) -> torch.Tensor:
        """Return a compact table (B, T, ...) moved back to its positions, `rest` elsewhere."""
        if chain.order is None:
            return table
        order = chain.order.reshape(*chain.order.shape, *(1,) * (table.ndim - 2)).expand_as(table)
        return torch.full_like(table, rest).scatter(1, order, table)


def linear_chain_nll(
    emissions: torch.Tensor,
    transitions: torch.Tensor,
    gold: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    start: torch.Tensor | None = None,
    end: torch.Tensor | None = None,
    reduction: Reduction = "mean",
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
) -> torch.Tensor:
    """Return `CRF(emissions, transitions, mask, ...).nll(gold, ...)` in nats."""
    crf = CRF(emissions, transitions, mask, start=start, end=end)
    return crf.nll(gold, reduction=reduction, ignore_index=ignore_index, infeasible=infeasible)


def check_tags(name: str, tags: torch.Tensor, inside: torch.Tensor, n: int) -> None:
    """Raise InvalidInputError if one of the tags (B, T) is not below n where `inside` is True."""
    wrong = inside & ((tags < 0) | (tags >= n))
    if bool(wrong.any()):
        i = int(wrong.nonzero()[0, 0])
        raise InvalidInputError(
            f"{name}[{i}] has the tag {int(tags[wrong][0])}; emissions are for {n} tags: give 0 "
            f"to {n - 1}, or False in the mask"
        )


class _Chain(NamedTuple):
    """Emissions (B, T, n), of which the first `lengths` are used.

    inside : (B, T), True at the positions that are used.
    order : (B, T), the original positions; None if they are unchanged.
    offset : (B, T), the amount subtracted from all emissions of a position.
    """

    emissions: torch.Tensor
    lengths: torch.Tensor
    inside: torch.Tensor
    order: torch.Tensor | None
    offset: torch.Tensor

    def with_one_position(self, items: torch.Tensor) -> "_Chain":
        """Return the chains, of which `items` (B,) bool have one position with scores of 0."""
        first = torch.arange(self.inside.shape[1], device=items.device) == 0
        return self._replace(
            emissions=torch.where(items[:, None, None], 0.0, self.emissions),
            inside=torch.where(items[:, None], first, self.inside),
        )

    def of_items(self, places: torch.Tensor) -> "_Chain":
        """Return the chains of some items."""
        return _Chain(*(None if table is None else table[places] for table in self))  # type: ignore[arg-type]


def _chains(*given: torch.Tensor) -> LinearChains:
    """Return the chains of emissions, transitions and lengths."""
    emissions, transitions, lengths = map(to_numpy, given)
    return LinearChains(emissions, transitions, lengths, _loop_over_blocks(emissions))


def _loop_over_blocks(emissions: Array) -> Each:
    """Return a loop over the blocks of a batch: in threads, unless the batch is too small."""
    return one_by_one if emissions.size * emissions.shape[2] < SMALL else team().each


def _costs_of(tags: torch.Tensor, chain: "_Chain", costs: torch.Tensor) -> torch.Tensor:
    """Return the costs (B, T, n) of all tags where `tags` are gold, 0 outside of the mask.

    NaN where gold is no tag, which only a device does not refuse.
    """
    known = tags.clamp(0, len(costs) - 1)
    table = torch.where((tags == known)[..., None], costs[known], torch.nan)
    return _zero_outside(chain.inside[..., None], table)


def _finite(steps: torch.Tensor) -> torch.Tensor:
    """Return the scores of steps, 0 for forbidden ones, which have probability 0."""
    return torch.where(steps > -LARGEST_SCORE, steps, 0.0)


def _same_mask(mask: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if mask is None or other is None:
        return all(bool(m.all()) for m in (mask, other) if m is not None)
    return torch.equal(mask, other)


def _zero_outside(mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return values, 0 outside of the mask; in contrast to a product, -inf does not give NaN."""
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


@torch.library.custom_op(
    "fstgrad::chains",
    mutates_args=(),
    schema="(Tensor emissions, Tensor transitions, Tensor lengths, bool allows_infeasible=False) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _solve(
    emissions: torch.Tensor,
    transitions: torch.Tensor,
    lengths: torch.Tensor,
    allows_infeasible: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return log Z (B,) float64, marginals like the emissions, and factors kept on the CPU.

    allows_infeasible : whether infeasible items have log Z = -inf and marginals of 0.
    """
    chains = _chains(emissions, transitions, lengths)
    solved = chains.solve(allows_infeasible=allows_infeasible)
    log_z = to_tensor(solved.log_z, emissions.new_empty(0, dtype=torch.float64))
    factors = map(torch.from_numpy, (solved.before, solved.after, solved.is_wide))
    return (log_z, to_tensor(solved.node, emissions), *factors)  # type: ignore[return-value]


@_solve.register_fake
def _(
    emissions: torch.Tensor,
    transitions: torch.Tensor,
    lengths: torch.Tensor,
    allows_infeasible: bool = False,
) -> tuple[torch.Tensor, ...]:
    items = emissions.shape[0]
    factor = torch.empty(emissions.numel(), dtype=torch.float64)
    return (
        emissions.new_empty(items, dtype=torch.float64),
        emissions.new_empty(emissions.shape),
        factor,
        torch.empty_like(factor),
        torch.empty(items, dtype=torch.bool),
    )


@torch.library.custom_op(
    "fstgrad::chain_steps",
    mutates_args=(),
    schema="(Tensor emissions, Tensor transitions, Tensor lengths, Tensor before, Tensor after, "
    "Tensor is_wide, Tensor weights) -> Tensor",
)
def _step_sums(
    emissions: torch.Tensor,
    transitions: torch.Tensor,
    lengths: torch.Tensor,
    before: torch.Tensor,
    after: torch.Tensor,
    is_wide: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    """Return sum_i weights[i] E[number of steps from x to y in item i], like the transitions."""
    left, right, wide, weight = map(to_numpy, (before, after, is_wide, weights))
    steps = np.asarray(to_numpy(transitions), dtype=np.float64)
    total = step_sums(steps, left, right, weight, _loop_over_blocks(to_numpy(emissions)))
    if wide.any():
        total += _chains(emissions, transitions, lengths).wide_sums(wide, weight)
    return to_tensor(total, transitions)


@_step_sums.register_fake
def _(emissions: torch.Tensor, transitions: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    return transitions.new_empty(transitions.shape)


@torch.library.custom_op(
    "fstgrad::chain_expectation",
    mutates_args=(),
    schema="(Tensor emissions, Tensor transitions, Tensor lengths, Tensor costs, Tensor step_costs)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _expect(
    emissions: torch.Tensor,
    transitions: torch.Tensor,
    lengths: torch.Tensor,
    costs: torch.Tensor,
    step_costs: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return expected costs (B,) float64, covariances and marginals like the emissions.

    The factors (4, ...), as `step_covariances` takes them, and the last tensor stay on the CPU.
    """
    chains = _chains(emissions, transitions, lengths)
    solved = chains.solve()
    found = chains.expectation(solved, to_float64(costs), to_float64(step_costs))
    factors = np.stack([solved.before, solved.after, found.prefix, found.suffix])
    return (
        to_tensor(found.value, emissions.new_empty(0, dtype=torch.float64)),
        to_tensor(found.node, emissions),
        to_tensor(solved.node, emissions),
        torch.from_numpy(factors),
        torch.from_numpy(solved.is_wide),
    )


@_expect.register_fake
def _(emissions: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
    items = emissions.shape[0]
    return (
        emissions.new_empty(items, dtype=torch.float64),
        emissions.new_empty(emissions.shape),
        emissions.new_empty(emissions.shape),
        torch.empty((4, emissions.numel()), dtype=torch.float64),
        torch.empty(items, dtype=torch.bool),
    )


@torch.library.custom_op(
    "fstgrad::chain_step_covariances",
    mutates_args=(),
    schema="(Tensor emissions, Tensor transitions, Tensor lengths, Tensor costs, Tensor step_costs,"
    " Tensor factors, Tensor is_wide, Tensor weights) -> Tensor",
)
def _step_covariances(
    emissions: torch.Tensor,
    transitions: torch.Tensor,
    lengths: torch.Tensor,
    costs: torch.Tensor,
    step_costs: torch.Tensor,
    factors: torch.Tensor,
    is_wide: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:
    """Return sum_i weights[i] Cov(cost, number of steps from x to y in item i)."""
    steps, by_step, weight = map(to_float64, (transitions, step_costs, weights))
    each = _loop_over_blocks(to_numpy(emissions))
    total = step_covariances(steps, tuple(to_numpy(factors)), by_step, weight, each)
    if (wide := to_numpy(is_wide)).any():
        chains = _chains(emissions, transitions, lengths)
        total += chains.wide_covariances(wide, to_float64(costs), by_step, weight)
    return to_tensor(total, transitions)


@_step_covariances.register_fake
def _(emissions: torch.Tensor, transitions: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    return transitions.new_empty(transitions.shape)


def _backward_of_expectation(
    ctx: Any, *upstream: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    if any(direction is not None for direction in upstream[1:]):
        raise _no_second_derivative()
    weights = upstream[0]
    if weights is None:
        return (None,) * 5
    *given, covariance, node, factors, is_wide = ctx.saved_tensors
    emissions, transitions, lengths, costs, step_costs = given
    each = weights[:, None, None]
    by_emission = by_step = by_cost = by_step_cost = None
    if ctx.needs_input_grad[0]:
        by_emission = each.to(covariance.dtype) * covariance
    if ctx.needs_input_grad[1]:
        by_step = _step_covariances(*given, factors, is_wide, weights)
    if ctx.needs_input_grad[3]:
        by_cost = (each.to(node.dtype) * node).to(costs.dtype)
    if ctx.needs_input_grad[4]:
        chain = emissions, transitions, lengths
        by_step_cost = _step_sums(*chain, factors[0], factors[1], is_wide, weights)
        by_step_cost = by_step_cost.to(step_costs.dtype)
    return by_emission, by_step, None, by_cost, by_step_cost


def _remember(ctx: Any, inputs: Sequence[Any], output: Sequence[torch.Tensor]) -> None:
    tensors = [given for given in inputs if isinstance(given, torch.Tensor)]
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *upstream: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    if any(direction is not None for direction in upstream[1:]):
        raise _no_second_derivative()
    weights = upstream[0]
    if weights is None:
        return None, None, None, None
    emissions, transitions, lengths, node, *factors = ctx.saved_tensors
    by_emission = weights[:, None, None].to(node.dtype) * node
    if not ctx.needs_input_grad[1]:
        return by_emission, None, None, None
    by_step = _step_sums(emissions, transitions, lengths, *factors, weights)
    return by_emission, by_step, None, None


def _no_second_derivative(*_: Any) -> NotSupportedError:
    return NotSupportedError(
        "CRF has first derivatives only; crf_nll on scores (B, L, n+1, n) has two"
    )


def _refuse(ctx: Any, *upstream: torch.Tensor) -> None:
    raise _no_second_derivative()


_solve.register_autograd(_backward, setup_context=_remember)
_step_sums.register_autograd(_refuse)
_expect.register_autograd(_backward_of_expectation, setup_context=_remember)
_step_covariances.register_autograd(_refuse)
