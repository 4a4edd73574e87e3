"""The linear-chain conditional random field on emissions (B, T, n) and transitions (n, n)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from fstgrad.core.checks import LARGEST_SCORE, Seed, instance, one_of, positive_integer
from fstgrad.core.distribution import FAR
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.infeasible import REMEDY, Infeasible, check_infeasible
from fstgrad.losses import Loss
from fstgrad.strings.linear_chain import GOLD_FORBIDDEN, NO_POSITION, NO_STRING
from fstgrad.torch import arguments, chain_operators, strings
from fstgrad.torch.arrays import computes_on_device, upcast, validated
from fstgrad.torch.device import chains as on_device
from fstgrad.torch.device.sums import valid
from fstgrad.torch.operators import REDUCTIONS, Reduction, reduced
from fstgrad.torch.strings import IGNORE_INDEX
from fstgrad.torch.transforms import no_vmap, uncompiled


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
                f"emissions has the shape {tuple(emissions.shape)}; give (B, T, n) with T, n > 0"
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
        chain = self._chain(self.mask)
        log_z = chain_operators.log_partition(chain.scored)
        return (log_z + chain.offset.double().sum(1)).to(self._dtype)

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
        if infeasible == "zero":
            log_z = chain_operators.log_partition(chain.scored, allows_infeasible=True).detach()
            bad = log_z == -torch.inf
            if self._on_device:
                bad = log_z.isnan() & on_device.are_valid(*chain.scored, tags)
            chain = chain.with_one_position(bad)
        value = chain_operators.expectation(chain.scored, added, none)
        if infeasible == "zero":
            value = torch.where(bad, 0.0, value)
        return reduced(value.to(self._dtype), reduction)

    @validated
    def entropy(self) -> torch.Tensor:
        """Return the entropy -E[log p(y)] (B,) in nats; once differentiable."""
        chain = self._chain(self.mask)
        log_z, node = chain_operators.solve(chain.scored)
        costs = torch.where(node > 0, chain.emissions.detach(), 0.0)
        steps = chain.steps.detach()
        steps = torch.where(steps > -LARGEST_SCORE, steps, 0.0)  # the others have probability 0
        # the derivatives of log Z and of the costs cancel
        value = log_z - chain_operators.expectation(chain.scored, costs, steps)
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
        p, q = self._chain(self.mask), other._chain(other.mask)
        log_z, node = chain_operators.solve(p.scored)
        p_steps, q_steps = p.steps.detach(), q.steps
        occurs, p_allows = node > 0, p_steps > -LARGEST_SCORE
        q_forbids = q.emissions == -torch.inf, q_steps == -torch.inf
        costs = torch.where(occurs & ~q_forbids[0], p.emissions.detach() - q.emissions, 0.0)
        steps = torch.where(p_allows & ~q_forbids[1], p_steps - q_steps, 0.0)
        value = chain_operators.log_partition(q.scored) - log_z
        value = value + chain_operators.expectation(p.scored, costs, steps)
        infinite = [(occurs & q_forbids[0]).to(costs), (p_allows & q_forbids[1]).to(steps)]
        if not is_known or any(bool(table.any()) for table in infinite):
            forbidden = chain_operators.expectation(p.scored, *infinite).detach() > 0
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
        if not (self._on_device or torch.compiler.is_compiling()):
            check_tags("gold", gold, mask, self.emissions.shape[2])
        return self._chain(mask), gold.masked_fill(~mask, 0)

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
        score = chain_operators.path_scores(chain.scored, tags)
        if self._on_device:
            values = chain_operators.log_partition(augmented.scored) - valid(score)
            if infeasible == "zero":
                is_bad = values.isnan() & on_device.are_valid(*chain.scored, tags)
                values = torch.where(is_bad, 0.0, values)
            return values.to(self._dtype)
        allows = infeasible == "zero" or not torch.compiler.is_compiling()
        log_z = chain_operators.log_partition(augmented.scored, allows_infeasible=allows)
        empty, excluded = ~chain.inside.any(dim=1), score == -torch.inf
        are_bad, values = empty | excluded | (log_z == -torch.inf), log_z - score
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
        return chain_operators.solve(self._chain(self.mask).scored)[1].to(self._dtype)

    @uncompiled
    def decode(self) -> torch.Tensor:
        """Return the best tags (B, T), -100 where the mask is False; ties go to smaller tags."""
        return chain_operators.best(self._chain(self.mask).scored)

    @uncompiled
    def nbest(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the k best tag sequences (B, k, T), -100 as padding, and log p (B, k) in nats.

        If an item has fewer sequences, the remaining log p are -inf and the tags are -100.
        """
        k = positive_integer("k", k)
        tags, log_probs = chain_operators.kbest(self._chain(self.mask).scored, k)
        return tags, log_probs.to(self._dtype)

    @uncompiled
    def sample(self, k: int, rng: Seed = None) -> torch.Tensor:
        """Return k independent tag sequences of each item (B, k, T), -100 as padding."""
        k = positive_integer("k", k)
        return chain_operators.sample(self._chain(self.mask).scored, k, rng)

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

    def _chain(self, mask: torch.Tensor | None) -> "_Chain":
        """Return the scores of the positions inside a mask, with those of start and end."""
        emissions = upcast(self.emissions)
        if mask is None:
            mask = torch.ones(emissions.shape[:2], dtype=torch.bool, device=emissions.device)
        rank = mask.cumsum(dim=1)
        # differences of scores keep their digits even if a whole position is masked by finfo.min,
        # or all transitions are
        emissions, offset = self._recentered(emissions, mask)
        steps = upcast(self.transitions)
        table, further = self._recentered(steps.reshape(1, 1, -1), mask.new_ones(1, 1))
        offset = offset + _zero_outside(mask & (rank > 1), further)
        if self.start is not None or self.end is not None:
            for ends, place in ((self.start, 1), (self.end, rank[:, -1:])):
                if ends is not None:
                    is_end = mask & (rank == place)
                    own, further = self._recentered(
                        upcast(ends).reshape(1, 1, -1), mask.new_ones(1, 1)
                    )
                    emissions = emissions + _zero_outside(is_end[..., None], own)
                    offset = offset + _zero_outside(is_end, further)
            emissions, further = self._recentered(emissions, mask)  # start and end may be masks too
            offset = offset + further
        return _Chain(emissions, table.reshape(steps.shape), mask, offset)

    def _recentered(
        self, emissions: torch.Tensor, inside: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Subtract the largest score of a position if it is beyond FAR; return it too, (B, T).

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
        rows = torch.nn.functional.pad(chain.steps, (0, 0, 0, 1))
        return chain.emissions[:, :, None, :] + rows.to(chain.emissions.dtype)


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
    """Emissions (B, T, n), steps (n, n), and the mask (B, T) of the positions that are used.

    offset : (B, T), the amount subtracted from all emissions of a position, and from all steps to
        it.
    """

    emissions: torch.Tensor
    steps: torch.Tensor
    inside: torch.Tensor
    offset: torch.Tensor

    @property
    def scored(self) -> chain_operators.Chain:
        """The arguments of the operators."""
        return self.emissions, self.steps, self.inside

    def with_one_position(self, items: torch.Tensor) -> "_Chain":
        """Return the chains, of which `items` (B,) bool have one position with scores of 0."""
        first = torch.arange(self.inside.shape[1], device=items.device) == 0
        return self._replace(
            emissions=torch.where(items[:, None, None], 0.0, self.emissions),
            inside=torch.where(items[:, None], first, self.inside),
        )


def _costs_of(tags: torch.Tensor, chain: "_Chain", costs: torch.Tensor) -> torch.Tensor:
    """Return the costs (B, T, n) of all tags where `tags` are gold, 0 outside of the mask.

    NaN where gold is no tag, which only a device does not refuse.
    """
    known = tags.clamp(0, len(costs) - 1)
    table = torch.where((tags == known)[..., None], costs[known], torch.nan)
    return _zero_outside(chain.inside[..., None], table)


def _same_mask(mask: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if mask is None or other is None:
        return all(bool(m.all()) for m in (mask, other) if m is not None)
    return torch.equal(mask, other)


def _zero_outside(mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return values, 0 outside of the mask; in contrast to a product, -inf does not give NaN."""
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))
