"""Objectives over the paths of lattices, exact or sampled."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fstgrad.core.alphabet import SequenceLike
from fstgrad.core.checks import FloatArray, IntArray, instance
from fstgrad.core.errors import (
    InfeasibleError,
    InvalidInputError,
    StateLimitError,
    UnknownSymbolError,
)
from fstgrad.core.sequences import batch as sequences
from fstgrad.core.sequences import items as sequence
from fstgrad.core.uninitialized import empty
from fstgrad.losses import Loss
from fstgrad.losses.automata.band import Band
from fstgrad.objectives.base import ALONE, Array, Arrays, Objective, Team
from fstgrad.objectives.sampling import Estimate, Options, Sampling, computed, sampled
from fstgrad.objectives.strings import REMEDY
from fstgrad.strings import risk, sampled_risk, sampled_softmax_margin, softmax_margin
from fstgrad.strings.lattices import Lattice, LatticeLoss

Kind = Literal["softmax-margin", "risk"]
Quantity = Literal["log-partition", "entropy"]
AUTO_STATES = 50_000  # method="auto" is exact up to this many states

# Caches shared by all calls; the entries of a lattice are dropped together with it.
_Key = tuple[str, bytes, str, str]
_COMPILED: WeakKeyDictionary[Lattice, dict[_Key, LatticeLoss]] = WeakKeyDictionary()
_TOO_LARGE: WeakKeyDictionary[Lattice, set[tuple[str, bytes]]] = WeakKeyDictionary()


class Item(NamedTuple):
    """One lattice of a batch; an objective with a loss that is not compiled is sampled.

    `infeasible` says why gold has no value in the lattice, whatever the scores are; "" if it may.
    """

    lattice: Lattice
    gold: SequenceLike | None
    loss: LatticeLoss | Loss | None
    infeasible: str = ""


class LatticeObjective(Objective):
    """The softmax margin or the risk of each lattice.

    Scores are one array (B, A), arc log-weights in nats, padded; constants are one array (B,), the
    index of each item in `items`.
    """

    def __init__(self, kind: Kind, items: Sequence[Item], options: Options | None = None) -> None:
        self.kind, self.items, self.options = kind, items, options or Options()
        self.sampling = self.options.sampling or Sampling()
        self.what = f"{kind.replace('-', ' ')} of a lattice with method={self.options.method!r}"

    def evaluate(
        self, scores: Arrays, constants: Arrays, team: Team = ALONE
    ) -> tuple[Array, Arrays]:
        """Return the values (B,) and the gradient (B, A) by a forward and a backward pass."""
        (table,), (places,) = scores, constants
        values, gradient = empty(len(table)), np.zeros(table.shape)
        estimates: dict[int, Estimate] = {}

        def run(i: int) -> None:
            item = self.items[places[i]]
            if item.infeasible:
                raise InfeasibleError(item.infeasible)
            arcs = slice(item.lattice.num_arcs)
            scored = item.lattice.with_scores(table[i, arcs])
            estimates[i], gradient[i, arcs] = self._one(scored, item, i)
            values[i] = estimates[i].value

        team.each(len(table), run)
        if self.options.sampling is not None:
            self.sampling.keep([estimates[i] for i in range(len(table))])
        return values, [gradient]

    def left_out(self, kept: IntArray, items: int) -> None:
        """Give the estimates of the feasible items their places."""
        if self.options.sampling is not None:
            self.options.sampling._keep_among(kept, items)

    def check(self, scores: Arrays, constants: Arrays) -> None:
        """Evaluate with zero scores, unless an item is sampled."""
        if not any(isinstance(item.loss, Loss) for item in self.items):
            super().check(scores, constants)

    def _one(self, scored: Lattice, item: Item, i: int) -> tuple[Estimate, FloatArray]:
        is_margin = self.kind != "risk"
        if isinstance(item.loss, Loss):
            settings: dict[str, Any] = {
                "samples": self.sampling.samples,
                "rng": self.sampling.generator(i),
                "proposal": self.sampling.proposal,
                "band": self.options.band,
            }
            estimate = sampled_softmax_margin if is_margin else sampled_risk
            result = estimate(scored, item.gold, item.loss, **settings)  # type: ignore[arg-type]
            return sampled(result), result.gradient
        if is_margin:
            value, slope = softmax_margin(scored, item.gold, item.loss)  # type: ignore[arg-type]
        else:
            value, slope = risk(scored, item.loss)  # type: ignore[arg-type]
        return computed(float(value), self.options, is_margin=is_margin), slope


class LatticeQuantity(Objective):
    """Log Z, or the entropy of the paths, of each lattice; twice differentiable.

    Scores and constants as in `LatticeObjective`.
    """

    def __init__(self, kind: Quantity, lattices: Sequence[Lattice]) -> None:
        self.kind, self.lattices = kind, lattices
        self.what = f"{kind.replace('-', ' ')} of a lattice"

    def evaluate(
        self, scores: Arrays, constants: Arrays, team: Team = ALONE
    ) -> tuple[Array, Arrays]:
        """Return the values (B,) in nats and the gradient (B, A)."""
        values = empty(len(scores[0]))

        def one(scored: Lattice, i: int) -> FloatArray:
            if self.kind == "entropy":
                values[i], slope = scored.entropy_and_gradient()
                return slope
            values[i] = scored.log_partition()
            return scored.marginals()

        return values, [self._each(scores[0], constants[0], one, team)]

    def is_twice_differentiable(self) -> bool:
        """Return True."""
        return True

    def hessian_product(self, scores: Arrays, constants: Arrays, directions: Arrays) -> Arrays:
        """Return Cov[t] times the directions, or that of the entropy, (B, A)."""

        def one(scored: Lattice, i: int) -> FloatArray:
            direction = directions[0][i, : scored.num_arcs]
            if self.kind == "entropy":
                return scored.entropy_hessian_product(direction)
            return scored.covariance_product(direction)

        return [self._each(scores[0], constants[0], one, ALONE)]

    def _each(
        self, table: Array, places: Array, one: Callable[[Lattice, int], FloatArray], team: Team
    ) -> FloatArray:
        """Return (B, A): `one` of each item's lattice with its scores, 0 in the padding."""
        results = np.zeros(table.shape)

        def run(i: int) -> None:
            lattice = self.lattices[places[i]]
            arcs = slice(lattice.num_arcs)
            results[i, arcs] = one(lattice.with_scores(table[i, arcs]), i)

        team.each(len(table), run)
        return results


def lattice_items(lattices: Any, golds: Any, losses: Any, options: Options) -> list[Item]:
    """Return the items of a batch, or of one lattice; losses are compiled if it is exact.

    Parameters
    ----------
    lattices : Lattice, or sequence of B
    golds : a string, or sequence of B strings or None, or None
    losses : Loss, LatticeLoss, a sequence of B LatticeLoss, or None

    Raises
    ------
    InvalidInputError
        There is no lattice, the numbers of items differ, gold is missing for a `Loss`, or an option
        does not fit.
    """
    if isinstance(lattices, Lattice):
        return [_feasible_item(lattices, "gold", golds, losses, options)]
    lattices = checked_lattices(lattices)
    size = len(lattices)
    golds = [None] * size if golds is None else sequences("gold", golds)
    losses = losses if isinstance(losses, list | tuple) else [losses] * size
    for name, values in (("gold", golds), ("loss", losses)):
        if len(values) != size:
            raise InvalidInputError(f"there are {size} lattices; {name} has {len(values)} items")
    return [
        _feasible_item(lattice, f"gold[{i}]", gold, loss, options)
        for i, (lattice, gold, loss) in enumerate(zip(lattices, golds, losses, strict=True))
    ]


def checked_lattices(lattices: Any) -> list[Lattice]:
    """Return one lattice, or those of a sequence, as a list; InvalidInputError if it has none."""
    if isinstance(lattices, Lattice):
        return [lattices]
    members = sequence("lattice", lattices)
    for i, member in enumerate(members):
        instance(f"lattice[{i}]", member, Lattice, "a Lattice, or a sequence of them")
    if not members:
        raise InvalidInputError("lattice has no items; give at least one")
    return members


def _feasible_item(lattice: Lattice, name: str, gold: Any, loss: Any, options: Options) -> Item:
    """Return the item, with the reason if gold is outside the alphabet, or every loss infinite."""
    try:
        return _item(lattice, name, gold, loss, options)
    except InfeasibleError as error:
        return Item(lattice, None, None, str(error))
    except UnknownSymbolError as error:
        return Item(lattice, None, None, str(error).replace(name, "gold", 1))


def _item(lattice: Lattice, name: str, gold: Any, loss: Any, options: Options) -> Item:
    cap, band, method, *_ = options
    if not isinstance(loss, Loss):
        what = "a Loss, what lattice.compile(loss, gold) gives, or None"
        instance("loss", loss, LatticeLoss | None, what)
        if not options.is_default:
            raise InvalidInputError(
                "cap, band and method need a loss; give cap and band to lattice.compile(loss, gold)"
            )
        ids = None if gold is None else lattice.alphabet.encode(gold, name=name)
        return Item(lattice, ids, loss)
    if gold is None:
        raise InvalidInputError("loss is not compiled and gold is missing; give the gold string")
    reader = loss if loss.alphabet == lattice.alphabet else lattice  # a rate reads sentences
    ids = reader.alphabet.encode(gold, name=name)
    if method == "exact":
        return Item(lattice, ids, _compiled(lattice, loss, ids, cap=cap, band=band))
    if cap is not None:
        raise InvalidInputError(
            "cap needs method='exact' on lattices; proposals of samples have bands"
        )
    small = _compiled_if_small(lattice, loss, ids) if method == "auto" else None
    return Item(lattice, ids, loss if small is None else small)


def _compiled_if_small(lattice: Lattice, loss: Loss, ids: Any) -> LatticeLoss | None:
    """Return the exact loss, or None beyond `AUTO_STATES` states, which is remembered."""
    known, key = _TOO_LARGE.setdefault(lattice, set()), (loss.fingerprint, ids.tobytes())
    if key in known:
        return None
    try:
        return _compiled(lattice, loss, ids, max_states=AUTO_STATES)
    except StateLimitError:
        known.add(key)
        return None


def _compiled(
    lattice: Lattice,
    loss: Loss,
    ids: Any,
    *,
    cap: float | None = None,
    band: Band | None = None,
    **limits: int,
) -> LatticeLoss:
    known = _COMPILED.setdefault(lattice, {})
    key = (loss.fingerprint, ids.tobytes(), repr(cap), repr(band))
    if key not in known:
        try:
            known[key] = lattice.compile(loss, ids, cap=cap, band=band, **limits)
        except StateLimitError as error:  # without arguments that the caller does not have
            raise StateLimitError(
                error.states, error.limit, where=error.where, remedy=REMEDY, nbytes=error.nbytes
            ) from None
    return known[key]
