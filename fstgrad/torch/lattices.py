"""Objectives over the paths of a lattice, in the scores of its arcs; once differentiable."""

import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch

from fstgrad.alphabet import SequenceLike
from fstgrad.checks import instance, one_of
from fstgrad.checks import items as sequence
from fstgrad.errors import InvalidInputError
from fstgrad.lattices import Lattice, LatticeLoss
from fstgrad.losses import Loss
from fstgrad.strings import risk as array_risk
from fstgrad.strings import softmax_margin as array_softmax_margin
from fstgrad.torch import arguments
from fstgrad.torch.operators import (
    Array,
    Arrays,
    Objective,
    aside,
    values,
)
from fstgrad.torch.reductions import REDUCTIONS, Reduction, reduced
from fstgrad.torch.threads import each

Scores = torch.Tensor | Sequence[torch.Tensor]
Lattices = Lattice | Sequence[Lattice]
LatticeLossLike = Loss | LatticeLoss | Sequence[LatticeLoss] | None
Kind = Literal["softmax margin", "risk"]

# Shared by all calls: what was compiled for a lattice goes when the lattice goes.
_Key = tuple[str, bytes, float | None]
_COMPILED: WeakKeyDictionary[Lattice, dict[_Key, LatticeLoss]] = WeakKeyDictionary()


class _Item(NamedTuple):
    """One lattice of a batch."""

    lattice: Lattice
    gold: SequenceLike | None
    loss: LatticeLoss | None


class _LatticeObjective(Objective):
    """The softmax margin or the risk of each lattice; scores are padded to (B, A)."""

    def __init__(self, kind: Kind, items: Sequence[_Item]) -> None:
        self.what, self.items = kind, items

    def evaluate(self, scores: Arrays, constants: Arrays) -> tuple[Array, Arrays]:
        """Run both passes for each lattice, the lattices in the threads that PyTorch uses."""
        (table,) = scores
        found, gradient = np.empty(len(self.items)), np.zeros(table.shape)

        def run(i: int) -> None:
            lattice, gold, loss = self.items[i]
            scored = lattice.with_scores(table[i, : lattice.num_arcs])
            if self.what == "risk":
                found[i], own = array_risk(scored, loss)  # type: ignore[arg-type]
            else:
                found[i], own = array_softmax_margin(scored, gold, loss)  # type: ignore[arg-type]
            gradient[i, : lattice.num_arcs] = own

        each(len(self.items), run)
        return found, [gradient]


def lattice_softmax_margin(
    scores: Scores,
    lattice: Lattices,
    gold: SequenceLike | Sequence[SequenceLike],
    loss: LatticeLossLike = None,
    *,
    reduction: Reduction = "mean",
    cap: float | None = None,
) -> torch.Tensor:
    """Return log sum over paths of exp(L + score) - log sum over the paths of gold of exp(score).

    Parameters
    ----------
    scores : (A,) floating point, or a sequence of B such tensors
        Log-weights of the arcs; those of `lattice` are not used.  Scores in the order in which the
        arcs were given to the lattice, or one for each hypothesis of an n-best list, become scores
        of its arcs by `lattice.scatter(scores)`.
    lattice : Lattice, or a sequence of B
        It decides whether there is a batch.
    gold : sequence, or a sequence of B
        A string of the lattice.
    loss : Loss, LatticeLoss, a sequence of B LatticeLoss, or None
        A loss is compiled by `lattice.compile(loss, gold)`, once as long as the lattice is in use.
        None: L = 0, and the value is -log p(gold).
    reduction : {"mean", "sum", "none"}
        Over the items of a batch.
    cap : float, optional
        Replaces L by min(L, cap), in nats.

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
    return _evaluated(
        "softmax margin", scores, lattice, _compiled(lattice, gold, loss, cap), reduction
    )


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
    gold: SequenceLike | Sequence[SequenceLike] | None = None,
    loss: LatticeLossLike = None,
    *,
    reduction: Reduction = "mean",
    cap: float | None = None,
) -> torch.Tensor:
    """Return E[L] in nats over the paths of a lattice, exact: minimum-risk training.

    Parameters as in `lattice_softmax_margin`, but a loss is needed; with one that
    `lattice.compile(loss, target)` gave, `gold` may be left out.
    """
    if _holds_losses(gold):  # up to version 0.1 the loss came first
        warnings.warn(
            "lattice_risk takes scores, lattice, gold, loss in this order; name them: "
            "lattice_risk(scores, lattice, loss=loss, gold=gold)",
            DeprecationWarning,
            stacklevel=2,
        )
        gold, loss = cast(Any, loss), cast(Any, gold)
    if loss is None:
        raise InvalidInputError("loss is None; risk is the expected loss: give one")
    return _evaluated("risk", scores, lattice, _compiled(lattice, gold, loss, cap), reduction)


def _holds_losses(given: Any) -> bool:
    """Whether an argument is a loss, or a sequence of compiled ones."""
    if isinstance(given, list | tuple) and given:
        given = given[0]
    return isinstance(given, Loss | LatticeLoss)


@aside
def _compiled(lattice: Lattices, gold: Any, loss: Any, cap: float | None) -> list[_Item]:
    """Return the items of a batch, or the one item, with compiled losses."""
    single = isinstance(lattice, Lattice)
    batch: Any = [lattice] if single else lattice
    if single:
        gold = [gold]
    for i, own in enumerate(sequence("lattice", batch)):
        instance(f"lattice[{i}]", own, Lattice, "a Lattice, or a sequence of them")
    size = len(batch)
    golds = [None] * size if gold is None else gold
    losses = loss if isinstance(loss, list | tuple) else [loss] * size
    for name, given in (("gold", golds), ("loss", losses)):
        if len(sequence(name, given)) != size:
            raise InvalidInputError(f"there are {size} lattices; {name} has {len(given)} items")
    return [_item(*parts, cap) for parts in zip(batch, golds, losses, strict=True)]


def _item(lattice: Lattice, gold: Any, loss: Any, cap: float | None) -> _Item:
    if isinstance(gold, torch.Tensor):
        gold = gold.detach().cpu().numpy()
    if not isinstance(loss, Loss):
        what = "a Loss, what lattice.compile(loss, gold) gives, or None"
        instance("loss", loss, LatticeLoss | None, what)
        if cap is not None:
            raise InvalidInputError("cap goes with a loss; give it to lattice.compile(loss, gold)")
        return _Item(lattice, gold, loss)
    if gold is None:
        raise InvalidInputError("loss is not compiled and gold is missing; give the gold string")
    ids = lattice.alphabet.encode(gold, name="gold")
    known = _COMPILED.setdefault(lattice, {})
    key = (loss.fingerprint, ids.tobytes(), cap)
    if key not in known:
        known[key] = lattice.compile(loss, ids, cap=cap)
    return _Item(lattice, gold, known[key])


@aside
def _evaluated(
    kind: Kind, scores: Scores, lattice: Lattices, items: list[_Item], reduction: Reduction
) -> torch.Tensor:
    one_of("reduction", reduction, REDUCTIONS)
    rows: Any = [scores] if isinstance(lattice, Lattice) else sequence("scores", scores)
    if len(rows) != len(items):
        raise InvalidInputError(f"there are {len(items)} lattices; scores has {len(rows)} items")
    for own, item in zip(rows, items, strict=True):
        arguments.floating("scores", own)
        if own.shape != (item.lattice.num_arcs,):
            raise InvalidInputError(
                f"scores has shape {tuple(own.shape)}; the lattice has {item.lattice.num_arcs} "
                "arcs; lattice.scatter(scores) takes them in the order in which they were given"
            )
    if not items:
        raise InvalidInputError("lattice has no items; give at least one")
    padded = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    found = values(_LatticeObjective(kind, items), [padded])
    return found[0] if isinstance(lattice, Lattice) else reduced(found, reduction)
