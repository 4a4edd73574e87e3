"""String objectives on tensors: batches, lengths, and automata that are compiled once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fstgrad.alphabet import SequenceLike
from fstgrad.automata.automaton import LossAutomaton
from fstgrad.checks import IntArray
from fstgrad.errors import InvalidInputError
from fstgrad.losses import Loss
from fstgrad.losses.cache import AutomatonCache
from fstgrad.strings import StringDistribution
from fstgrad.strings import risk as array_risk
from fstgrad.strings import softmax_margin as array_softmax_margin
from fstgrad.torch import device, functions
from fstgrad.torch.device import BatchedStrings
from fstgrad.torch.functions import Reduction, evaluate, like, no_hessian, to_numpy

# Shared by all calls: what a training loop compiles in its first epoch serves the later ones.
_AUTOMATA = AutomatonCache()

LossLike = Loss | LossAutomaton | Sequence[LossAutomaton] | None
Gold = torch.Tensor | SequenceLike | Sequence[SequenceLike | torch.Tensor]


def softmax_margin(
    scores: torch.Tensor,
    gold: Gold,
    loss: LossLike = None,
    *,
    lengths: torch.Tensor | Sequence[int] | None = None,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """Return log sum_y exp(L(y, gold) + w.Psi(y) - w.Psi(gold)) in nats, averaged over a batch.

    Twice differentiable; see `fstgrad.softmax_margin` for one item on arrays.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... or (B, L, n), (B, L, n+1, n), ... float32 or float64
        Log-weights; index n of a context axis means "before the start".
    gold : (l,) or (B, L) integer tensor, or one or B sequences
        The targets; they decide whether there is a batch axis.  A list of str is one sequence if
        its first item is a symbol of the alphabet, else B sequences.  Entries beyond a length are
        ignored.
    loss : Loss, LossAutomaton, a sequence of B automata, or None
        A loss is compiled against every target, once as long as it is in use.  None: L = 0.
    lengths : (B,), optional
        Lengths of the items; positions beyond them get no gradient.
    reduction : {"mean", "sum", "none"}
        Over the items.

    Examples
    --------
    >>> import torch, fstgrad as fg, fstgrad.torch
    >>> abc = fg.Alphabet("ab")
    >>> scores = torch.zeros(3, 3, 2, dtype=torch.float64, requires_grad=True)
    >>> value = fstgrad.torch.softmax_margin(scores, "aba", fg.Hamming(abc))
    >>> value.backward()
    >>> round(float(scores.grad[0, 2, 0]), 4)  # e^0 / (e^0 + e^1) - 1
    -0.7311
    """
    return _evaluated("softmax margin", scores, gold, loss, lengths, reduction)


def crf_nll(
    scores: torch.Tensor,
    gold: Gold,
    *,
    lengths: torch.Tensor | Sequence[int] | None = None,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """Return -log p(gold) of the conditional random field: `softmax_margin` without a loss."""
    return _evaluated("softmax margin", scores, gold, None, lengths, reduction)


def risk(
    scores: torch.Tensor,
    gold: Gold,
    loss: Loss | LossAutomaton | Sequence[LossAutomaton],
    *,
    lengths: torch.Tensor | Sequence[int] | None = None,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """Return E[L(y, gold)] under exp(w.Psi(y)) / Z in nats, exact.

    Twice differentiable for orders 1 and 2 where exp(scores) lies in the range of floats, else
    once.  Parameters as in `softmax_margin`, but a loss is needed.
    """
    return _evaluated("risk", scores, gold, loss, lengths, reduction)


@dataclass(frozen=True)
class _Item:
    """One string of a batch."""

    gold: IntArray
    automaton: LossAutomaton | None


@dataclass(frozen=True)
class _StringObjective:
    """The softmax margin or the risk of each item of a padded batch."""

    what: str
    items: tuple[_Item, ...]

    def value_and_gradient(
        self, scores: torch.Tensor, weight: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run both passes for each item; on a GPU in one batch where the weights allow it."""
        batch = self._on_device(scores)
        if batch is not None:
            golds = [item.gold for item in self.items]
            done = batch.risk() if self.what == "risk" else batch.softmax_margin(golds)
            if torch.isfinite(done[0]).all():  # else the CPU finds the words for it
                return done[0], (weight * done[1]).to(scores.dtype)
        arrays = scores.cpu().numpy()
        tables = np.empty(arrays.shape, dtype=arrays.dtype)  # in large pages where there are many
        values = np.empty(len(self.items))
        for i, item in enumerate(self.items):
            own = arrays[i, : len(item.gold)]
            if self.what == "risk" and item.automaton is not None:
                values[i], table = array_risk(own, item.automaton)
            else:
                values[i], table = array_softmax_margin(own, item.gold, item.automaton)
            np.multiply(table, weight, out=tables[i, : len(item.gold)], casting="same_kind")
            tables[i, len(item.gold) :] = 0.0
        return like(values, scores), torch.from_numpy(tables).to(scores.device)

    def hessian_product(self, scores: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """Apply the covariance of each item, or the Hessian of its risk, to the direction."""
        if self.what == "risk":
            hindrance = device.what_hinders(scores, self._automata(scores), scale=0.0)
            if hindrance is not None:
                raise no_hessian(f"risk with {hindrance}")
            return BatchedStrings(scores, self._automata(scores)).risk_product(direction)
        batch = self._on_device(scores)
        if batch is not None:
            return batch.margin_product(direction)
        arrays, along = to_numpy(scores), to_numpy(direction)
        product = np.zeros_like(arrays)
        for i, item in enumerate(self.items):
            length = len(item.gold)
            distribution = StringDistribution(arrays[i, :length], item.automaton)
            product[i, :length] = distribution.covariance_product(along[i, :length])
        return like(product, scores)

    def _on_device(self, scores: torch.Tensor) -> BatchedStrings | None:
        """Return the batch on its GPU; None on the CPU, and where the CPU has to do it."""
        if not functions.on_gpu(scores):
            return None
        wide, automata = scores.to(torch.float64), self._automata(scores)
        hindrance = device.what_hinders(wide, automata, scale=float(self.what != "risk"))
        if hindrance is not None:
            device.warn_once(hindrance)
            return None
        return BatchedStrings(wide, automata)

    def _automata(self, scores: torch.Tensor) -> list[LossAutomaton]:
        return [
            device.trivial(scores.shape[-1], len(item.gold))
            if item.automaton is None
            else item.automaton
            for item in self.items
        ]


def _evaluated(
    what: str,
    scores: torch.Tensor,
    gold: Gold,
    loss: LossLike,
    lengths: torch.Tensor | Sequence[int] | None,
    reduction: str,
) -> torch.Tensor:
    """Put the arguments into the form of a batch and evaluate."""
    if isinstance(gold, torch.Tensor):
        gold = gold.detach().cpu().numpy()
    is_batch = _is_batch(gold, loss)
    if not is_batch:
        scores = scores[None]
        loss = [loss] if isinstance(loss, LossAutomaton) else loss
    golds = list(gold) if is_batch else [gold]
    items = _items(scores, golds, loss, lengths, known=_are_ids(gold, scores.shape[-1]))
    values = evaluate(scores, _StringObjective(what, items), reduction)
    return values[0] if not is_batch and reduction == "none" else values


def _is_batch(gold: Gold, loss: LossLike) -> bool:
    """Whether `gold` holds sequences rather than symbols or ids.

    A list of str is one sequence if its first item is a symbol of the alphabet.
    """
    if isinstance(gold, torch.Tensor | np.ndarray):
        return gold.ndim == 2
    if isinstance(gold, str) or len(gold) == 0:
        return False
    if isinstance(gold[0], str):
        one = loss[0] if isinstance(loss, Sequence) else loss
        return one is not None and gold[0] not in one.alphabet
    return not isinstance(gold[0], int | np.integer)


def _are_ids(gold: Gold, n: int) -> bool:
    """Whether all entries are ids of n symbols: one look at an array instead of one at each row."""
    if not isinstance(gold, np.ndarray) or gold.dtype.kind not in "iu" or gold.size == 0:
        return False
    return bool(gold.min() >= 0 and gold.max() < n)


def _items(
    scores: torch.Tensor,
    golds: Sequence[object],
    loss: LossLike,
    lengths: torch.Tensor | Sequence[int] | None,
    *,
    known: bool,
) -> tuple[_Item, ...]:
    size = scores.shape[0]
    if len(golds) != size:
        raise InvalidInputError(f"scores have {size} items; gold has {len(golds)}")
    if isinstance(loss, Sequence) and len(loss) != size:
        raise InvalidInputError(f"scores have {size} items; loss has {len(loss)} automata")
    if isinstance(loss, LossAutomaton) and size > 1:
        raise InvalidInputError(
            f"loss is one automaton for {size} items; give a sequence of {size}, or the loss itself"
        )
    items = []
    for i in range(size):
        target = _target(golds[i], None if known else loss, lengths, i)
        if len(target) > scores.shape[1]:
            raise InvalidInputError(
                f"gold[{i}] has length {len(target)}; scores have {scores.shape[1]} positions"
            )
        items.append(_Item(target, _automaton(loss, target, i)))
    return tuple(items)


def _target(
    gold: object, loss: LossLike, lengths: torch.Tensor | Sequence[int] | None, i: int
) -> IntArray:
    """Return the ids of item i, cut to its length."""
    if isinstance(gold, torch.Tensor):
        gold = gold.detach().cpu().numpy()
    one = loss[i] if isinstance(loss, Sequence) else loss
    length = len(gold) if lengths is None else int(lengths[i])  # type: ignore[arg-type]
    if not 1 <= length <= len(gold):  # type: ignore[arg-type]
        raise InvalidInputError(
            f"lengths[{i}] is {length}; gold[{i}] has length {len(gold)}"  # type: ignore[arg-type]
        )
    cut = gold[:length]  # type: ignore[index]
    if one is not None:
        return one.alphabet.encode(cut, name=f"gold[{i}]")
    if not isinstance(cut, np.ndarray):
        cut = np.asarray(cut)
    if cut.dtype.kind not in "iu":
        raise InvalidInputError(f"gold[{i}] holds symbols; without a loss give integer ids")
    return np.asarray(cut, dtype=np.int64)


def _automaton(loss: LossLike, target: IntArray, i: int) -> LossAutomaton | None:
    if isinstance(loss, Loss):
        return _AUTOMATA.automaton(loss, target)
    return loss[i] if isinstance(loss, Sequence) else loss
