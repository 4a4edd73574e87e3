"""Objectives of a padded batch of strings, on arrays: what the operator evaluates."""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Literal, NamedTuple

import numpy as np

from fstgrad.automata.automaton import LossAutomaton
from fstgrad.automata.band import Band
from fstgrad.checks import FloatArray, IntArray
from fstgrad.errors import InvalidInputError
from fstgrad.losses import Loss
from fstgrad.losses.cache import AutomatonCache
from fstgrad.strings import StringDistribution, sampled_risk, sampled_softmax_margin
from fstgrad.strings import risk as array_risk
from fstgrad.strings import softmax_margin as array_softmax_margin
from fstgrad.strings.budget import Budget, exact_within
from fstgrad.strings.linear_chain import one_by_one
from fstgrad.strings.proposals import PROPOSAL_STATES
from fstgrad.torch import risk_hessian
from fstgrad.torch.operators import Array, Arrays, Objective
from fstgrad.torch.sampling import Estimate, Method, Sampling, computed, sampled
from fstgrad.torch.threads import each

Kind = Literal["softmax margin", "risk"]
IGNORED = -1  # the mark of a position that is left out, in the gold that reaches an objective

# Shared by all calls: what a training loop compiles in its first epoch serves the later ones.
_AUTOMATA = AutomatonCache()
_LOCK = Lock()
SMALL = 2**17  # scores of a batch below which a thread costs more than it saves
AUTO_STATES = 50_000  # up to which method="auto" is exact


class Item(NamedTuple):
    """One string of a batch: where it lies in the padded scores, its symbols, its automaton."""

    positions: slice | IntArray
    gold: IntArray
    automaton: LossAutomaton | None


class Options(NamedTuple):
    """How a loss is made small, and what is done where it is not exact."""

    cap: float | None = None
    band: Band | None = None
    method: Method = "exact"
    sampling: Sampling | None = None


class StringObjective(Objective):
    """The softmax margin or the risk of each item; every item's bits are its own.

    Parameters
    ----------
    kind : {"softmax margin", "risk"}
    loss : Loss, a tuple of automata (one for each item), or None
    options : the fields of `Options`
    """

    def __init__(
        self, kind: Kind, loss: Loss | tuple[LossAutomaton, ...] | None, *options: Any
    ) -> None:
        self.kind, self.loss, self.options = kind, loss, Options(*options)
        self.sampling = self.options.sampling or Sampling()
        self.what = f"{kind} with method={self.options.method!r}"

    def evaluate(self, scores: Arrays, constants: Arrays) -> tuple[Array, Arrays]:
        """Run both passes for each item, the items in the threads that PyTorch uses."""
        (table,) = scores
        items = self.items(table, *constants)
        gradient = np.empty(table.shape, dtype=table.dtype)
        estimates: list[Any] = [None] * len(items)

        def run(i: int) -> None:
            place = items[i].positions
            estimates[i], own = self._one(table[i, place], items[i], i)
            if not isinstance(place, slice) or place.stop < len(gradient[i]):
                gradient[i] = 0.0
            gradient[i, place] = own

        if self.options.method == "exact" and table.size < SMALL:
            one_by_one(len(items), run)
        else:
            each(len(items), run)
        if self.options.sampling is not None:
            self.sampling.keep(estimates)
        return np.array([estimate.value for estimate in estimates]), [gradient]

    def hessian_product(self, scores: Arrays, constants: Arrays, directions: Arrays) -> Arrays:
        """Apply the covariance of each item, or the Hessian of its risk, to the direction."""
        (table,), (along,) = scores, directions
        if self.options.method != "exact":
            return super().hessian_product(scores, constants, directions)
        product = np.zeros_like(table)
        for i, item in enumerate(self.items(table, *constants)):
            own, place = np.ascontiguousarray(table[i, item.positions]), item.positions
            if self.kind == "risk" and item.automaton is not None:
                product[i, place] = risk_hessian.product(own, item.automaton, along[i, place])
            else:
                distribution = StringDistribution(own, item.automaton)
                product[i, place] = distribution.covariance_product(along[i, place])
        return [product]

    def _one(self, scores: Array, item: Item, i: int) -> tuple[Estimate, FloatArray]:
        if isinstance(self.loss, Loss) and item.automaton is None:
            return self._sampled(scores, item.gold, self.loss, i)
        is_risk = self.kind == "risk" and item.automaton is not None
        if is_risk:
            value, gradient = array_risk(scores, item.automaton)  # type: ignore[arg-type]
        else:
            value, gradient = array_softmax_margin(scores, item.gold, item.automaton)
        cap, band, *_ = self.options
        return computed(value, cap, band, is_margin=not is_risk), gradient

    def _sampled(
        self, scores: Array, gold: IntArray, loss: Loss, i: int
    ) -> tuple[Estimate, FloatArray]:
        compiled = _from_cache(loss, gold)
        with _LOCK:
            against = _AUTOMATA.target_loss(loss, gold)
        settings: dict[str, Any] = {
            "samples": self.sampling.samples,
            "rng": self.sampling.generator(i),
            "proposal": self.sampling.proposal,
            "compiled": compiled,
            "band": self.options.band,
        }
        if isinstance(self.sampling.samples, Budget):
            settings["max_states"] = min(PROPOSAL_STATES, self.sampling.samples.states(scores))
        if self.kind == "risk":
            result = sampled_risk(scores, gold, against, **settings)
        else:
            settings["cap"] = self.options.cap
            result = sampled_softmax_margin(scores, gold, against, **settings)
        return sampled(result), result.gradient

    def items(self, scores: Array, gold: IntArray, lengths: IntArray | None = None) -> list[Item]:
        """Return the items of a batch, with compiled automata; None for one that is sampled.

        gold : (B, L') ids; `IGNORED` where a position is left out; lengths : (B,)
        """
        if isinstance(self.loss, tuple) and len(self.loss) != len(gold):
            raise InvalidInputError(
                f"scores have {len(gold)} items; loss has {len(self.loss)} automata"
            )
        rows = [ids if lengths is None else ids[: lengths[i]] for i, ids in enumerate(gold)]
        if gold.size and (gold.min() < IGNORED or gold.max() >= scores.shape[-1]):
            check_ids(rows, scores.shape[-1])
        places = [kept(ids, i) for i, ids in enumerate(rows)]
        pairs = [(place, ids[place]) for place, ids in zip(places, rows, strict=True)]
        return [Item(*pair, self._automaton(pair[1], i, scores[i])) for i, pair in enumerate(pairs)]

    def _automaton(self, target: IntArray, i: int, scores: Array) -> LossAutomaton | None:
        if not isinstance(self.loss, Loss):
            return self.loss[i] if self.loss is not None else None
        cap, band, method, _ = self.options
        if method == "exact":
            return _AUTOMATA.automaton(self.loss, target, cap=cap, band=band)
        if method == "auto":
            budget = self.sampling.samples
            limit = budget.states(scores) if isinstance(budget, Budget) else AUTO_STATES
            return exact_within(_from_cache(self.loss, target), limit)
        return None


def _from_cache(loss: Loss, gold: IntArray) -> Callable[..., LossAutomaton]:
    """Return from band=, cap= and max_states= to the automaton of a target."""

    def compiled(
        *, band: Band | None = None, cap: float | None = None, max_states: int
    ) -> LossAutomaton:
        with _LOCK:
            return _AUTOMATA.automaton(loss, gold, band=band, cap=cap, max_states=max_states)

    return compiled


def kept(ids: IntArray, i: int) -> slice | IntArray:
    """Return the positions of item i that are not ignored."""
    count = int(np.count_nonzero(ids != IGNORED))
    if count == 0:
        raise InvalidInputError(
            f"gold[{i}] is empty; leave out items without a position that is not ignored"
        )
    if (ids[:count] != IGNORED).all():
        return slice(0, count)
    return np.flatnonzero(ids != IGNORED)


def check_ids(rows: Sequence[IntArray], n: int) -> None:
    """InvalidInputError for an id that is no symbol."""
    for i, ids in enumerate(rows):
        for position, symbol in enumerate(ids.tolist()):
            if not IGNORED <= symbol < n:
                raise InvalidInputError(
                    f"gold[{i}] has the id {symbol} at position {position}; the scores are for "
                    f"{n} symbols, so give 0 to {n - 1}, or the ignore_index"
                )
