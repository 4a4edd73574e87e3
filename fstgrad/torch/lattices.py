"""Objectives over the paths of a lattice, in the scores of its arcs; once differentiable."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from fstgrad.alphabet import SequenceLike
from fstgrad.checks import FloatArray
from fstgrad.errors import InvalidInputError
from fstgrad.lattices import Lattice, LatticeLoss
from fstgrad.losses import Loss
from fstgrad.strings import risk as array_risk
from fstgrad.strings import softmax_margin as array_softmax_margin
from fstgrad.torch.functions import Reduction, evaluate, like, no_hessian, reduced, to_numpy

Scores = torch.Tensor | Sequence[torch.Tensor]
Lattices = Lattice | Sequence[Lattice]

# Shared by all calls: what was compiled for a lattice goes when the lattice goes.
_COMPILED: WeakKeyDictionary[Lattice, dict[tuple[str, bytes], LatticeLoss]] = WeakKeyDictionary()


@dataclass(frozen=True)
class _LatticeObjective:
    """One function of a lattice with other scores."""

    what: str
    lattice: Lattice
    function: Callable[[Lattice], tuple[float, FloatArray]]

    def value_and_gradient(
        self, scores: torch.Tensor, weight: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (1,) and (1, A)."""
        value, gradient = self.function(self.lattice.with_scores(to_numpy(scores[0])))
        return like([value], scores), like(weight * gradient[None], scores).to(scores.dtype)

    def hessian_product(self, scores: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """NotSupportedError."""
        raise no_hessian(self.what)


def lattice_softmax_margin(
    scores: Scores,
    lattice: Lattices,
    gold: SequenceLike | Sequence[SequenceLike],
    loss: Loss | LatticeLoss | Sequence[LatticeLoss] | None = None,
    *,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """Return log sum over paths of exp(L + score) - log sum over the paths of gold of exp(score).

    Parameters
    ----------
    scores : (A,) float32 or float64, or a sequence of B such tensors
        Log-weights of the arcs; those of `lattice` are not used.
    lattice : Lattice, or a sequence of B
        It decides whether there is a batch.
    gold : sequence, or a sequence of B
        A string of the lattice.
    loss : Loss, LatticeLoss, a sequence of B LatticeLoss, or None
        A loss is compiled by `lattice.compile(loss, gold)`, once as long as the lattice is in use.
        None: L = 0, and the value is -log p(gold).
    reduction : {"mean", "sum", "none"}
        Over the items of a batch.

    Examples
    --------
    >>> import torch, fstgrad as fg, fstgrad.torch
    >>> abc = fg.Alphabet("abc")
    >>> lattice = fg.Lattice.from_nbest(["ab", "abc"], [0.0, 0.0], abc)
    >>> scores = torch.tensor(lattice.scores)
    >>> value = fstgrad.torch.lattice_softmax_margin(scores, lattice, "ab")
    >>> round(float(value.exp()), 9)
    2.0
    """
    items = _items(scores, lattice, gold, loss)
    values = [
        _value("softmax margin", item, partial(array_softmax_margin, gold=item.gold, b=item.loss))
        for item in items
    ]
    return _reduced(values, lattice, reduction)


def lattice_crf_nll(
    scores: Scores,
    lattice: Lattices,
    gold: SequenceLike | Sequence[SequenceLike],
    *,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """Return -log p(gold) in nats: `lattice_softmax_margin` without a loss."""
    return lattice_softmax_margin(scores, lattice, gold, reduction=reduction)


def lattice_risk(
    scores: Scores,
    lattice: Lattices,
    loss: Loss | LatticeLoss | Sequence[LatticeLoss],
    gold: SequenceLike | Sequence[SequenceLike] | None = None,
    *,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """Return E[L] in nats over the paths of a lattice, exact: minimum-risk training.

    loss : `lattice.compile(loss, target)`, or a loss, which is compiled against `gold`; the other
    parameters as in `lattice_softmax_margin`.
    """
    items = _items(scores, lattice, gold, loss)
    values = [_value("risk", item, partial(array_risk, b=item.loss)) for item in items]
    return _reduced(values, lattice, reduction)


class _Item(NamedTuple):
    """One lattice of a batch, with the scores of its arcs."""

    scores: torch.Tensor
    lattice: Lattice
    gold: SequenceLike | None
    loss: LatticeLoss | None


def _items(scores: Any, lattice: Lattices, gold: Any, loss: Any) -> list[_Item]:
    """Return the items of a batch, or the one item, with compiled losses."""
    if isinstance(lattice, Lattice):
        scores, lattice, gold = [scores], [lattice], [gold]
    size = len(lattice)
    golds = [None] * size if gold is None else gold
    losses = loss if isinstance(loss, Sequence) else [loss] * size
    for name, values in (("scores", scores), ("gold", golds), ("loss", losses)):
        if len(values) != size:
            raise InvalidInputError(f"there are {size} lattices; {name} has {len(values)} items")
    return [_item(*parts) for parts in zip(scores, lattice, golds, losses, strict=True)]


def _item(scores: torch.Tensor, lattice: Lattice, gold: Any, loss: Any) -> _Item:
    if scores.shape != (lattice.num_arcs,):
        raise InvalidInputError(
            f"scores has shape {tuple(scores.shape)}; the lattice has {lattice.num_arcs} arcs"
        )
    if not isinstance(loss, Loss):
        return _Item(scores, lattice, gold, loss)
    if gold is None:
        raise InvalidInputError("loss is not compiled and gold is missing; give the gold string")
    ids = lattice.alphabet.encode(gold, name="gold")
    known = _COMPILED.setdefault(lattice, {})
    key = (loss.fingerprint, ids.tobytes())
    if key not in known:
        known[key] = lattice.compile(loss, ids)
    return _Item(scores, lattice, gold, known[key])


def _value(
    what: str, item: _Item, function: Callable[[Lattice], tuple[float, FloatArray]]
) -> torch.Tensor:
    return evaluate(item.scores[None], _LatticeObjective(what, item.lattice, function), "sum")


def _reduced(values: list[torch.Tensor], lattice: Lattices, reduction: Reduction) -> torch.Tensor:
    reduced(torch.zeros(1), reduction)  # a wrong reduction is an error of one lattice too
    return values[0] if isinstance(lattice, Lattice) else reduced(torch.stack(values), reduction)
