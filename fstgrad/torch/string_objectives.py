"""Objectives of a padded batch of strings, on arrays: what the operator evaluates."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fstgrad.automata.automaton import LossAutomaton
from fstgrad.checks import FloatArray, IntArray
from fstgrad.errors import InvalidInputError
from fstgrad.losses import Loss
from fstgrad.losses.cache import AutomatonCache
from fstgrad.strings import StringDistribution
from fstgrad.strings import risk as array_risk
from fstgrad.strings import softmax_margin as array_softmax_margin
from fstgrad.torch import risk_hessian
from fstgrad.torch.operators import Array, Arrays, Objective
from fstgrad.torch.threads import each

Kind = Literal["softmax margin", "risk"]
IGNORED = -1  # the mark of a position that is left out, in the gold that reaches an objective

# Shared by all calls: what a training loop compiles in its first epoch serves the later ones.
_AUTOMATA = AutomatonCache()


class Item(NamedTuple):
    """One string of a batch: where it lies in the padded scores, its symbols, its automaton."""

    positions: slice | IntArray
    gold: IntArray
    automaton: LossAutomaton | None


class StringObjective(Objective):
    """The softmax margin or the risk of each item; every item's bits are its own.

    Parameters
    ----------
    kind : {"softmax margin", "risk"}
    loss : Loss, a tuple of automata (one for each item), or None
    cap : float or None
        As in `Loss.compile`.
    """

    def __init__(
        self, kind: Kind, loss: Loss | tuple[LossAutomaton, ...] | None, cap: float | None = None
    ) -> None:
        self.kind, self.loss, self.cap = kind, loss, cap

    def evaluate(self, scores: Arrays, constants: Arrays) -> tuple[Array, Arrays]:
        """Run both passes for each item, the items in the threads that PyTorch uses."""
        (table,) = scores
        items = self.items(table, *constants)
        values, gradient = np.empty(len(items)), np.empty(table.shape, dtype=table.dtype)

        def run(i: int) -> None:
            place = items[i].positions
            values[i], own = self._one(table[i, place], items[i])
            if not isinstance(place, slice) or place.stop < len(gradient[i]):
                gradient[i] = 0.0
            gradient[i, place] = own

        each(len(items), run)
        return values, [gradient]

    def hessian_product(self, scores: Arrays, constants: Arrays, directions: Arrays) -> Arrays:
        """Apply the covariance of each item, or the Hessian of its risk, to the direction."""
        (table,), (along,) = scores, directions
        product = np.zeros_like(table)
        for i, item in enumerate(self.items(table, *constants)):
            own, place = np.ascontiguousarray(table[i, item.positions]), item.positions
            if self.kind == "risk" and item.automaton is not None:
                product[i, place] = risk_hessian.product(own, item.automaton, along[i, place])
            else:
                distribution = StringDistribution(own, item.automaton)
                product[i, place] = distribution.covariance_product(along[i, place])
        return [product]

    def _one(self, scores: Array, item: Item) -> tuple[float, FloatArray]:
        if self.kind == "risk" and item.automaton is not None:
            return array_risk(scores, item.automaton)
        return array_softmax_margin(scores, item.gold, item.automaton)

    def items(self, scores: Array, gold: IntArray, lengths: IntArray | None = None) -> list[Item]:
        """Return the items of a batch, with compiled automata.

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
        return [Item(*pair, self._automaton(pair[1], i)) for i, pair in enumerate(pairs)]

    def _automaton(self, target: IntArray, i: int) -> LossAutomaton | None:
        if isinstance(self.loss, Loss):
            return _AUTOMATA.automaton(self.loss, target, cap=self.cap)
        return self.loss[i] if self.loss is not None else None


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
