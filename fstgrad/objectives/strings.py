"""Objectives of a padded batch of strings."""

from collections.abc import MutableMapping, Sequence
from itertools import accumulate
from threading import Lock
from typing import Any, Literal, NamedTuple, cast
from weakref import WeakValueDictionary

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InfeasibleError, InvalidInputError, StateLimitError
from fstgrad.core.uninitialized import empty
from fstgrad.losses import Loss
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.band import Band
from fstgrad.losses.automata.target_loss import SumTargetLoss, TargetLoss
from fstgrad.losses.cache import AutomatonCache
from fstgrad.objectives.base import ALONE, Array, Arrays, Objective, Team
from fstgrad.objectives.sampling import Estimate, Options, Sampling, computed, sampled
from fstgrad.strings import StringDistribution, sampled_risk, sampled_softmax_margin
from fstgrad.strings.batches import Strings
from fstgrad.strings.budget import Budget, exact_within
from fstgrad.strings.proposals import PROPOSAL_STATES, Compiled
from fstgrad.strings.solve import no_loss

Kind = Literal["softmax-margin", "risk"]
IGNORED = -(2**31)  # the id of an ignored position, in the gold that reaches an objective

# A cache shared by all calls: a training loop compiles only in its first epoch.
_AUTOMATA = AutomatonCache()
_LOCK = Lock()
_DEFAULTS = Sampling()  # never changed: only a Sampling of the caller stores estimates
SMALL = 2**13  # scores of a batch; below this, threads cost more than they save
AUTO_STATES = 50_000  # method="auto" is exact up to this many states
REMEDY = (
    "Give method='auto', which samples an item whose automaton is large, or a lower cap (cap=), "
    "which replaces the loss L by min(L, cap)."
)


class Item(NamedTuple):
    """One string of a batch.

    Attributes
    ----------
    positions : slice or array
        Its positions in the padded scores.
    gold : (l,)
        The ids at these positions.
    automaton : LossAutomaton or None
        None if there is no loss, or if the item is sampled.
    target : array of ids
        What the loss compares with: gold, but for CTC the gold string without blanks.
    offset : float
        Added to the value, in nats.
    """

    positions: slice | IntArray
    gold: IntArray
    automaton: LossAutomaton | None
    target: IntArray
    offset: float = 0.0


class StringObjective(Objective):
    """The softmax margin or the risk of each item, in nats.

    The result of an item does not depend on the other items, to the last bit.

    Scores are one array (B, L, ..., n), log-weights in nats as in `StringDistribution`; constants
    are gold (B, L') ids, with `IGNORED` for a position that is left out, and optionally the lengths
    (B,).

    Parameters
    ----------
    kind : {"softmax-margin", "risk"}
    loss : Loss, a tuple of automata (one for each item), or None
    options : the fields of `Options`
    """

    def __init__(
        self, kind: Kind, loss: Loss | tuple[LossAutomaton, ...] | None, *options: Any
    ) -> None:
        self.kind, self.loss, self.options = kind, loss, Options(*options)
        self.sampling = self.options.sampling or _DEFAULTS
        self._to_compile = loss if isinstance(loss, Loss) else None
        # the cached automata by target: a lookup without computing the key of the cache
        self._known: MutableMapping[tuple[bytes, int], LossAutomaton] = (
            {} if self._to_compile is None else WeakValueDictionary()
        )
        self.what = f"{kind.replace('-', ' ')} with method={self.options.method!r}"

    def is_twice_differentiable(self) -> bool:
        """Return whether the objective is a softmax margin that is not always sampled."""
        return self.options.method != "sampled" and self.kind != "risk"

    def evaluate(
        self, scores: Arrays, constants: Arrays, team: Team = ALONE
    ) -> tuple[Array, Arrays]:
        """Return the values (B,) and the gradient by a forward and a backward pass."""
        (table,) = scores
        items = self.items(table, *constants)
        if self._uses_every_position(items, table):
            rows = table.reshape(-1, *table.shape[2:])
            values, terms = self._solved(rows, items, team)
            if self.options.sampling is not None:
                self.sampling.keep([self._computed(value) for value in values.tolist()])
            return values, [terms.reshape(table.shape).astype(table.dtype, copy=False)]
        gradient = np.zeros(table.shape, dtype=table.dtype)
        values, estimates = empty(len(items)), dict[int, Estimate]()
        is_drawn = [bool(self._to_compile) and item.automaton is None for item in items]
        exact = [i for i, drawn in enumerate(is_drawn) if not drawn]
        if exact:
            values[exact] = self._exact(table, [items[i] for i in exact], exact, gradient, team)

        def run(i: int) -> None:
            if is_drawn[i]:
                estimates[i], gradient[i, items[i].positions] = self._sampled(
                    table[i, items[i].positions], items[i], i
                )
                values[i] = estimates[i].value

        team.each(len(items), run)
        if any(is_drawn) or self.options.sampling is not None:
            for i in exact:
                estimates[i] = self._computed(float(values[i]))
            # without settings of the caller, nothing is kept, but there are warnings
            keeper = self.options.sampling or Sampling()
            keeper.keep([estimates[i] for i in range(len(items))])
        return values, [gradient]

    def _computed(self, value: float) -> Estimate:
        return computed(value, self.options, is_margin=self.kind != "risk")

    def _uses_every_position(self, items: Sequence[Item], table: Array) -> bool:
        """Return whether all items are exact and use every position of the table."""
        if not items or (self._to_compile and any(item.automaton is None for item in items)):
            return False
        return all(len(item.gold) == table.shape[1] for item in items)

    def _exact(
        self,
        table: Array,
        chosen: Sequence[Item],
        which: Sequence[int],
        gradient: Array,
        team: Team,
    ) -> FloatArray:
        """Return the values of the chosen items, and write their gradients to `gradient`."""
        inside = np.zeros(table.shape[:2], dtype=np.bool_)
        for i, item in zip(which, chosen, strict=True):
            inside[i, item.positions] = True
        used = _as_slice(np.flatnonzero(inside))
        rows = table.reshape(-1, *table.shape[2:])
        try:
            values, gradient.reshape(rows.shape)[used] = self._solved(rows[used], chosen, team)
        except InfeasibleError as error:  # the items are numbered within `chosen`
            raise InfeasibleError.of_items(
                {which[i]: reason for i, reason in error.reasons.items()}
            ) from error
        return values

    def _solved(
        self, rows: Array, chosen: Sequence[Item], team: Team
    ) -> tuple[FloatArray, FloatArray]:
        """Return the values of items and their gradients; `rows` are the scores of all positions.

        The rows (N, ..., n) of the items follow each other, and so do those of the gradients.  The
        softmax margin is log Z - score(gold), and its gradient is Q - t(gold), with the marginals Q
        of the loss-augmented distribution.
        """
        starts = np.array([0, *accumulate(len(item.gold) for item in chosen)])
        automata = [
            no_loss(rows.shape[-1], len(item.gold)) if item.automaton is None else item.automaton
            for item in chosen
        ]
        batch = Strings(rows.astype(np.float64, copy=False), starts, automata)
        batch.check()
        batch = batch.recentered()
        share = team if batch.scores.size > SMALL else ALONE
        if self.kind == "risk":
            return batch.risks(share.slices)
        golds = [item.gold for item in chosen]
        index = batch.gold_index(golds[0] if len(golds) == 1 else np.concatenate(golds))
        score = batch.score_of(index)
        log_z, terms = batch.log_partitions(share.slices)
        terms.reshape(-1)[index] -= 1.0
        return log_z - score + np.array([item.offset for item in chosen]), terms

    def hessian_product(self, scores: Arrays, constants: Arrays, directions: Arrays) -> Arrays:
        """Return the covariance of each item, or the Hessian of its risk, times the direction.

        Raises
        ------
        NotSupportedError
            An item is sampled, or this class has no Hessian of a risk.
        """
        (table,), (direction,) = scores, directions
        product = np.zeros_like(table)
        for i, item in enumerate(self.items(table, *constants)):
            place = item.positions
            if self._to_compile is not None and item.automaton is None:
                raise self.no_second_derivative()
            item_scores = np.ascontiguousarray(table[i, place])
            if self.kind == "risk" and item.automaton is not None:
                product[i, place] = self.risk_product(
                    item_scores, item.automaton, direction[i, place]
                )
            else:
                distribution = StringDistribution(item_scores, item.automaton)
                product[i, place] = distribution.covariance_product(direction[i, place])
        return [product]

    def risk_product(
        self, scores: FloatArray, b: LossAutomaton, direction: FloatArray
    ) -> FloatArray:
        """Raise NotSupportedError; a subclass returns the Hessian of one risk times a direction."""
        raise self.no_second_derivative()

    def part(self, items: IntArray, size: int) -> "StringObjective":
        """Return the objective of some items, with their automata if it has one for each."""
        if not isinstance(self.loss, tuple):
            return self
        return type(self)(self.kind, tuple(self.loss[i] for i in items), *self.options)

    def left_out(self, kept: IntArray, items: int) -> None:
        """Give the estimates of the feasible items their places."""
        if self.options.sampling is not None:
            self.options.sampling._keep_among(kept, items)

    def check(self, scores: Arrays, constants: Arrays) -> None:
        """Check gold, and compile the automata of its items."""
        self.items(scores[0], *constants)

    def _against(self, target: IntArray) -> TargetLoss | SumTargetLoss:
        with _LOCK:
            return _AUTOMATA.target_loss(cast(Loss, self.loss), target)

    def _compiler(self, target: IntArray, length: int) -> Compiled:
        """Return a function of band=, cap= and max_states=: the automaton of a target."""
        loss = cast(Loss, self.loss)

        def compiled(
            *, band: Band | None = None, cap: float | None = None, max_states: int
        ) -> LossAutomaton:
            with _LOCK:
                return _AUTOMATA.automaton(
                    loss, target, length, band=band, cap=cap, max_states=max_states
                )

        return compiled

    def _sampled(self, scores: Array, item: Item, i: int) -> tuple[Estimate, FloatArray]:
        compiled = self._compiler(item.target, len(item.gold))
        against = self._against(item.target)
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
            result = sampled_risk(scores, item.target, against, **settings)
        else:
            settings["cap"] = self.options.cap
            result = sampled_softmax_margin(scores, item.gold, against, **settings)
        return sampled(result, item.offset), result.gradient

    def items(self, scores: Array, gold: IntArray, lengths: IntArray | None = None) -> list[Item]:
        """Return the items of a batch with their automata, or None for an item that is sampled.

        Parameters
        ----------
        gold : (B, L') ids, `IGNORED` for a position that is left out
        lengths : (B,), optional
            The number of positions of each item.

        Raises
        ------
        InvalidInputError
            The number of automata is not B, or an id is not a symbol.
        InfeasibleError
            Items have no position, or no string of finite loss.
        """
        if isinstance(self.loss, tuple) and len(self.loss) != len(gold):
            raise InvalidInputError(
                f"scores have {len(gold)} items; loss has {len(self.loss)} automata"
            )
        if lengths is None and gold.size and gold.min() >= 0 and gold.max() < scores.shape[-1]:
            return self._with_automata([slice(0, gold.shape[1])] * len(gold), gold, scores)
        place, inside = np.arange(gold.shape[1]), gold != IGNORED
        if lengths is not None:
            inside &= place < lengths[:, None]
        if ((gold[inside] < 0) | (gold[inside] >= scores.shape[-1])).any():
            check_ids(np.where(inside, gold, IGNORED), scores.shape[-1])
        counts = inside.sum(axis=1)
        if not counts.all():
            empty_items = np.flatnonzero(counts == 0).tolist()
            raise InfeasibleError.of_items(dict.fromkeys(empty_items, "gold has no position left"))
        is_front = (inside == (place < counts[:, None])).all(axis=1).tolist()
        where = [
            slice(0, count) if is_front[i] else np.flatnonzero(inside[i])
            for i, count in enumerate(counts.tolist())
        ]
        return self._with_automata(where, gold, scores)

    def _with_automata(
        self, where: Sequence[slice | IntArray], gold: IntArray, scores: Array
    ) -> list[Item]:
        """Return the items at the positions `where`."""
        items: list[Item] = []

        def add(i: int) -> None:
            target = gold[i, where[i]]
            used = scores[i, : len(target)]
            items.append(Item(where[i], target, self._automaton(target, i, used), target))

        ALONE.each(len(gold), add)
        return items

    def _automaton(self, target: IntArray, i: int, scores: Array) -> LossAutomaton | None:
        """Return the automaton of item i, of as many positions as its scores have, or None."""
        loss = self._to_compile
        if loss is None:
            return None if self.loss is None else cast(tuple[LossAutomaton, ...], self.loss)[i]
        method = self.options.method
        if method == "exact":
            key = target.tobytes(), len(scores)
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = _exact(loss, target, len(scores), self.options)
            return known
        if method == "auto":
            budget = self.sampling.samples
            limit = budget.states(scores) if isinstance(budget, Budget) else AUTO_STATES
            return exact_within(self._compiler(target, len(scores)), limit)
        return None


def _as_slice(rows: IntArray) -> slice | IntArray:
    """Return consecutive rows as a slice, which saves copies, and other rows unchanged."""
    first, last = int(rows[0]), int(rows[-1]) + 1
    return slice(first, last) if last - first == len(rows) else rows


def _exact(loss: Loss, target: IntArray, length: int, options: Options) -> LossAutomaton:
    cap, band, _, _, prune = options
    try:
        return _AUTOMATA.automaton(loss, target, length, cap=cap, band=band, prune=prune)
    except StateLimitError as error:
        if prune is not None:
            raise
        raise StateLimitError(
            error.states, error.limit, where=error.where, remedy=REMEDY, nbytes=error.nbytes
        ) from None


def check_ids(rows: IntArray | Sequence[IntArray], n: int, name: str = "gold") -> None:
    """Raise InvalidInputError if an id is neither a symbol, 0 .. n - 1, nor `IGNORED`."""
    for i, ids in enumerate(rows):
        for position, symbol in enumerate(ids.tolist()):
            if symbol != IGNORED and not 0 <= symbol < n:
                raise InvalidInputError(
                    f"{name}[{i}] has the id {symbol} at position {position}; there are "
                    f"{n} symbols, so give 0 to {n - 1}, or the ignore_index"
                )
