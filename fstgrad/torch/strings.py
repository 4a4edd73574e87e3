"""String objectives on tensors, with batches, lengths and automata that are compiled once."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, cast

import numpy as np
import torch

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import IntArray, index_array, one_of
from fstgrad.core.errors import FstgradError, InvalidInputError
from fstgrad.core.infeasible import Infeasible, check_infeasible
from fstgrad.core.sequences import batch, items
from fstgrad.losses import Loss
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.band import Band
from fstgrad.objectives.base import Arrays, Objective
from fstgrad.objectives.infeasible import FeasibleItems
from fstgrad.objectives.sampling import Method, Options, Sampling, check_settings
from fstgrad.objectives.strings import IGNORED, Item, Kind, StringObjective
from fstgrad.strings.batches import Strings
from fstgrad.strings.solve import no_loss
from fstgrad.torch import arguments, risk_hessian
from fstgrad.torch.arrays import computes_on_device, require_cpu, to_device, upcast, validated
from fstgrad.torch.device import strings as on_device
from fstgrad.torch.operators import REDUCTIONS, Reduction, objective_of, persistent, reduced, values
from fstgrad.torch.transforms import (
    autograd_only,
    knows_values,
    refuse_transforms,
    uncompiled,
)

LossLike = Loss | LossAutomaton | Sequence[LossAutomaton] | None
Gold = torch.Tensor | SequenceLike | Sequence[SequenceLike | torch.Tensor]
Lengths = torch.Tensor | Sequence[int] | None
IGNORE_INDEX = -100
_NO_SCORES = np.zeros(())  # arrays of it have the shapes alone


@validated
def softmax_margin(
    scores: torch.Tensor,
    gold: Gold,
    loss: LossLike = None,
    *,
    lengths: Lengths = None,
    reduction: Reduction = "mean",
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
    cap: float | None = None,
    band: Band | None = None,
    prune: float | None = None,
    method: Method = "exact",
    sampling: Sampling | None = None,
) -> torch.Tensor:
    """Return log sum_y exp(L(y, gold) + w.Psi(y) - w.Psi(gold)) in nats, averaged over a batch.

    Twice differentiable; see `fstgrad.softmax_margin` for one item on arrays.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... or (B, L, n), (B, L, n+1, n), ... floating point
        Log-weights; index n of a context axis means "before the start".
    gold : (l,) or (B, L) integer tensor, or one or B sequences
        The targets; they determine whether there is a batch axis.  A list of str is one sequence if
        its items are symbols of the alphabet and the scores have no batch axis, otherwise B
        sequences; where the scores may have both forms it is an error.  Entries beyond a length
        are ignored, and so are the scores of positions beyond the gold string of an item.
    loss : Loss, LossAutomaton, a sequence of B automata, or None
        A loss is compiled against every target, only once during its lifetime.  None: L = 0.
    lengths : (B,), optional
        Lengths of the items; positions beyond them get no gradient.
    reduction : {"mean", "sum", "none"}
        Over the items.
    ignore_index : int
        Positions where a gold tensor is `ignore_index` are left out of the string: padding, or the
        pieces of a word after the first one.  Their scores get the gradient 0.
    infeasible : {"raise", "zero"}
        What to do if items of the batch have no string, or a gold string, of finite score.
        "raise": one error names them all.  "zero": their values and gradients are 0, and "mean"
        divides by the number of all items, as PyTorch does with zero_infinity.
    cap : float, optional
        Replaces L by min(L, cap), in nats.  The automaton of a long string then stays small, and
        the value is a lower bound.
    band : int, optional
        Replaces L by the least cost of the alignments within a band; the value is an upper bound.
    prune : float, optional
        Drops the alignments above a threshold, as in `Loss.compile`; the value is no bound.
    method : {"exact", "sampled", "auto"}
        "auto" samples the items whose automaton would have more than 50,000 states, or more than
        the budget of `sampling` allows; cap and band then apply to the proposal.  Sampled values
        have first derivatives only.
    sampling : Sampling, optional
        Settings of sampling; `sampling.last` has the interval and the reliability of every item.

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
    given = (scores, gold, lengths, ignore_index, infeasible)
    return _evaluated(
        "softmax-margin", given, loss, reduction, Options(cap, band, method, sampling, prune)
    )


@validated
def crf_nll(
    scores: torch.Tensor,
    gold: Gold,
    *,
    lengths: Lengths = None,
    reduction: Reduction = "mean",
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
) -> torch.Tensor:
    """Return -log p(gold) of the conditional random field: `softmax_margin` without a loss."""
    given = (scores, gold, lengths, ignore_index, infeasible)
    return _evaluated("softmax-margin", given, None, reduction, Options())


@validated
def risk(
    scores: torch.Tensor,
    gold: Gold,
    loss: Loss | LossAutomaton | Sequence[LossAutomaton],
    *,
    lengths: Lengths = None,
    reduction: Reduction = "mean",
    ignore_index: int = IGNORE_INDEX,
    infeasible: Infeasible = "raise",
    cap: float | None = None,
    band: Band | None = None,
    prune: float | None = None,
    method: Method = "exact",
    sampling: Sampling | None = None,
) -> torch.Tensor:
    """Return E[L(y, gold)] under exp(w.Psi(y)) / Z in nats, exact.

    Twice differentiable for orders 1 and 2 if exp(scores) is within the range of floats, otherwise
    once.  Parameters as in `softmax_margin`, but a loss is required.
    """
    given = (scores, gold, lengths, ignore_index, infeasible)
    return _evaluated("risk", given, loss, reduction, Options(cap, band, method, sampling, prune))


class TensorObjective(StringObjective):
    """A string objective with second derivatives of risks, computed by tensor operations."""

    risk_product = staticmethod(risk_hessian.product)


# scores, gold, lengths, ignore_index, infeasible: a plain tuple, which torch.compile accepts
_Arguments = tuple[torch.Tensor, Gold, Lengths, int, Infeasible]


def _evaluated(
    kind: Kind, given: _Arguments, loss: LossLike, reduction: Reduction, options: Options
) -> torch.Tensor:
    """Convert the arguments to a batch and evaluate the objective."""
    one_of("reduction", reduction, REDUCTIONS)
    check_settings(kind, loss, options)
    scores, gold, lengths, ignore_index, infeasible = given
    check_infeasible(infeasible)
    arguments.floating("scores", scores)
    arguments.check_loss(loss)
    gold = as_list("gold", gold)
    is_batch = _is_batch(gold, loss, scores, has_axis=lengths is not None)
    ids = as_ids(gold, loss, ignore_index, is_batch=is_batch)
    axis = is_batch or lengths is not None
    if axis and not is_batch:
        scores, ids = scores[None], ids[None]
    if isinstance(loss, LossAutomaton) and axis and len(ids) > 1:
        raise InvalidInputError(
            f"loss is one automaton for {len(ids)} items; give a sequence of {len(ids)}, or the "
            "loss itself"
        )
    _check_shapes(scores, ids, axis=axis)
    constants = [ids] if lengths is None else [ids, checked_lengths(lengths, ids)]
    objective: str | Objective
    if loss is None or isinstance(loss, Loss):
        objective = persistent(TensorObjective, kind, loss, *options, infeasible=infeasible)
    else:
        if not options.is_default:
            raise InvalidInputError(
                "cap, band, prune and method need a loss, but loss is compiled; give cap, band or "
                "prune to compile()"
            )
        automata = (loss,) if isinstance(loss, LossAutomaton) else tuple(loss)
        objective = FeasibleItems(TensorObjective(kind, automata), infeasible)
    order = scores.ndim - axis - 1
    if computes_on_device(scores) and options.method != "sampled" and order <= 2:
        rows, fixed = (scores, constants) if axis else (scores[None], [t[None] for t in constants])
        per_item = _on_device(objective, rows, fixed)
        if per_item is not None:
            per_item = per_item.to(upcast(scores).dtype)
            return per_item[0] if not is_batch else reduced(per_item, reduction)
    if order > 2:
        require_cpu(f"order {order} of strings", scores)
    if not is_batch or (reduction != "none" and len(scores) == 1):
        return values(objective, [scores], constants, alone=True, axis=axis)
    return reduced(values(objective, [scores], constants), reduction)


@uncompiled
def _on_device(
    objective: str | Objective, scores: torch.Tensor, constants: Sequence[torch.Tensor]
) -> torch.Tensor | None:
    """Return the values (B,) by operations of PyTorch, None if an item is sampled.

    Gold is needed on the CPU.
    """
    refuse_transforms([scores])
    given = cast(FeasibleItems, objective_of(objective))
    known, shape = cast(TensorObjective, given.objective), tuple(scores.shape)
    arrays = [np.broadcast_to(_NO_SCORES, shape)], [c.cpu().numpy() for c in constants]

    def read(own: Objective, shapes: Arrays, golds: Arrays) -> list[Item]:
        return cast(TensorObjective, own).items(*shapes, *golds)

    kept, chosen = given.feasible_items(read, *arrays)
    if known.loss is not None and any(item.automaton is None for item in chosen or ()):
        return None
    if known.options.sampling is not None:
        known.sampling.keep([])  # an estimate has the value, which is on the device
    if not chosen:
        return torch.where(scores.new_zeros((), dtype=torch.bool), scores.flatten(1).sum(1), 0.0)
    if len(kept) < len(scores):
        scores = scores[to_device(kept, scores.device)]
    batch = packed(chosen, tuple(scores.shape), scores.device)
    value = on_device.risk if known.kind == "risk" else on_device.softmax_margin
    values = value(upcast(scores), batch)
    if given.infeasible == "raise":
        return values
    places = np.arange(shape[1])
    inside = np.array([np.isin(places, places[item.positions]) for item in chosen])
    good = (scores < torch.inf).flatten(2).all(dim=2) | ~to_device(inside, scores.device)
    values = torch.where(values.isnan() & good.all(dim=1), 0.0, values)
    place = np.full(shape[0], len(kept))
    place[kept] = np.arange(len(kept))
    return torch.cat([values, values.new_zeros(1)])[to_device(place, scores.device)]


def packed(chosen: Sequence[Item], shape: tuple[int, ...], device: torch.device) -> on_device.Batch:
    """Return the automata and the gold of items on a device, for scores of a shape (B, L, ...)."""
    automata = [item.automaton or no_loss(shape[-1], len(item.gold)) for item in chosen]
    golds, places = [item.gold for item in chosen], np.arange(shape[1])
    starts = np.array([0, *accumulate(map(len, golds))])
    rows = np.broadcast_to(_NO_SCORES, (starts[-1], *shape[2:]))
    Strings(rows, starts, automata).check_shapes()
    positions = [places[item.positions] for item in chosen]
    return on_device.pack(automata, positions, golds, shape, device)


def as_list(name: str, gold: Any) -> Any:
    """Return a tensor, an array of ids or a sequence unchanged, and other containers as a list."""
    if isinstance(gold, torch.Tensor | Sequence):
        return gold
    if isinstance(gold, np.ndarray) and gold.dtype.kind in "iuf":
        return gold
    return items(name, gold)


def as_ids(
    gold: Gold, loss: LossLike, ignore_index: int, *, is_batch: bool, name: str = "gold"
) -> torch.Tensor:
    """Return gold as ids (l,) or (B, L'), `IGNORED` at positions that are left out."""
    ignore_index = arguments.integer("ignore_index", ignore_index)
    if isinstance(gold, torch.Tensor):
        if gold.ndim != 1 + is_batch:
            wanted = "(B, L'), a row for each item" if is_batch else "(l,), one string"
            raise InvalidInputError(f"{name} has the shape {tuple(gold.shape)}; give {wanted}")
        return marked(name, gold, ignore_index)
    return _listed(name, gold, loss, ignore_index, is_batch=is_batch)


def marked(name: str, ids: torch.Tensor, ignore_index: int) -> torch.Tensor:
    """Return integer ids with `ignore_index` replaced by `IGNORED`."""
    arguments.integers(name, ids)
    if autograd_only(ids) and ids.device.type == "cpu":
        known = ids.detach().numpy()
        marked = known == ignore_index
        copied = known.astype(np.int64)  # a copy, so later changes by the caller have no effect
        if marked.any():
            copied[marked] = IGNORED
        return torch.from_numpy(copied)
    return torch.where(ids == ignore_index, IGNORED, ids.long())


@uncompiled
def _listed(
    name: str, gold: Any, loss: LossLike, ignore_index: int, *, is_batch: bool
) -> torch.Tensor:
    """Return sequences as padded ids."""
    given = batch(name, gold) if is_batch else [gold]
    each = loss if isinstance(loss, Sequence) else [loss] * len(given)
    if len(each) != len(given):
        raise InvalidInputError(f"loss has {len(each)} items; {name} has {len(given)}")
    rows = [
        _encoded(item, one, f"{name}[{i}]", ignore_index)
        for i, (item, one) in enumerate(zip(given, each, strict=True))
    ]
    ids = np.full((len(rows), max(map(len, rows), default=0)), IGNORED, dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return torch.from_numpy(ids if is_batch else ids[0])


def _check_shapes(scores: torch.Tensor, ids: torch.Tensor, *, axis: bool) -> None:
    """Raise InvalidInputError unless gold fits the scores (B, L, ...), or (L, ...) without axis."""
    if scores.ndim < 2 + axis:
        raise InvalidInputError(
            f"scores have the shape {tuple(scores.shape)}; give (B, L, n), (B, L, n+1, n), ... for "
            "a batch of gold strings, and one axis less for one string"
        )
    if axis and len(ids) != len(scores):
        raise InvalidInputError(f"scores have {len(scores)} items; gold has {len(ids)}")
    if ids.shape[-1] > scores.shape[axis]:
        raise InvalidInputError(
            f"gold has {ids.shape[-1]} positions, but scores have {scores.shape[axis]}; give "
            "scores for each position"
        )


def checked_lengths(
    lengths: torch.Tensor | Sequence[int],
    table: torch.Tensor,
    what: str = "positions of gold",
    advised: int = 1,
) -> torch.Tensor:
    """Return lengths (B,) as a tensor, checked to be at most the width of a table.

    advised : the least length that an error names; items of length 0 may be infeasible.
    """
    known = arguments.integer_per_item("lengths", lengths, len(table))
    if known.device.type != "cpu" or not knows_values(known):
        return known
    for i, length in enumerate(known.tolist()):
        if not 0 <= length <= table.shape[1]:
            raise InvalidInputError(
                f"lengths[{i}] is {length}; give {advised} to {table.shape[1]}, the {what}"
            )
    return known


def _is_batch(gold: Gold, loss: LossLike, scores: torch.Tensor, *, has_axis: bool) -> bool:
    """Whether `gold` contains sequences instead of symbols or ids; see `_are_strings`.

    has_axis : whether the scores have a batch axis in any case.
    """
    if isinstance(gold, torch.Tensor | np.ndarray):
        if gold.ndim not in (1, 2):
            raise InvalidInputError(
                f"gold has the shape {tuple(gold.shape)}; give (l,), or (B, L') for a batch"
            )
        return gold.ndim == 2
    if isinstance(gold, str) or not isinstance(gold, Sequence):
        return False
    if len(gold) == 0:
        return len(scores) == 0 and scores.ndim > 2
    if isinstance(gold[0], str):
        one = next(iter(loss), None) if isinstance(loss, Sequence) else loss
        return one is not None and (
            gold[0] not in one.alphabet
            or _are_strings(gold, one.alphabet, tuple(scores.shape), has_axis=has_axis)
        )
    return not isinstance(gold[0], int | np.integer)


@uncompiled
def _are_strings(
    gold: Sequence[Any], alphabet: Alphabet, shape: tuple[int, ...], *, has_axis: bool
) -> bool:
    """Whether a list of str that begins with a symbol has strings, and not the symbols of one.

    Raises
    ------
    InvalidInputError
        It may be either: all items are symbols, and the scores have the axes of both.
    """
    if len(shape) < 3 or shape[0] != len(gold):
        return False
    try:
        for string in gold:
            alphabet.encode(string)
    except FstgradError:
        return False
    contexts = {len(alphabet) + 1}
    are_symbols = all(isinstance(symbol, str) and symbol in alphabet for symbol in gold)
    if has_axis or not are_symbols or not contexts.issuperset(shape[1:-1]):
        return True
    each = f"{[[symbol] for symbol in gold[:3]]!r}"[:40]
    raise InvalidInputError(
        f"gold has {len(gold)} symbols, which may be one string or so many, as scores of the shape "
        f"{shape} are for both; give a tensor of ids, or a list for each string, as in {each}"
    )


def _encoded(
    gold: object, one: Loss | LossAutomaton | None, name: str, ignore_index: int
) -> IntArray:
    """Return the ids of one string."""
    if isinstance(gold, torch.Tensor):
        if gold.ndim != 1:
            raise InvalidInputError(f"{name} has the shape {tuple(gold.shape)}; give (l,)")
        ids: IntArray = marked(name, gold, ignore_index).long().cpu().numpy()
        return ids
    if one is not None and not (isinstance(gold, np.ndarray) and gold.dtype.kind in "iu"):
        return one.alphabet.encode(gold, name=name)  # type: ignore[arg-type]
    try:
        ids = index_array(name, gold, 2**62, (None,), lower=-(2**62))  # type: ignore[arg-type]
    except InvalidInputError as error:
        remedy = "; without a loss give integer ids" if one is None else ""
        raise InvalidInputError(f"{error}{remedy}") from error
    return np.where(ids == ignore_index, IGNORED, ids)
