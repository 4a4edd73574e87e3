"""Quantities of the paths of a lattice as functions of its arc scores.

Log Z and the entropy are twice differentiable, the marginals and the objectives once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fstgrad.core.checks import one_of
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.infeasible import Infeasible
from fstgrad.core.sequences import items as sequence
from fstgrad.losses import Loss
from fstgrad.losses.automata.band import Band
from fstgrad.objectives.base import ALONE, Arrays, Objective
from fstgrad.objectives.infeasible import FeasibleItems
from fstgrad.objectives.lattices import (
    Item,
    Kind,
    LatticeObjective,
    LatticeQuantity,
    Quantity,
    checked_lattices,
    lattice_items,
)
from fstgrad.objectives.sampling import Method, Options, Sampling, check_settings
from fstgrad.strings.lattices import Lattice, LatticeLoss
from fstgrad.strings.lattices.search import paths_of_string, posterior_of_string
from fstgrad.torch import arguments
from fstgrad.torch.arrays import computes_on_device, upcast, validated
from fstgrad.torch.device.lattices import Batch, Paths, log_sums, means, pack
from fstgrad.torch.device.sums import finite
from fstgrad.torch.operators import REDUCTIONS, Reduction, gradients, reduced, values
from fstgrad.torch.strings import IGNORE_INDEX, Gold
from fstgrad.torch.transforms import refuse_transforms, uncompiled

Scores = torch.Tensor | Sequence[torch.Tensor]
Lattices = Lattice | Sequence[Lattice]
LatticeLossLike = Loss | LatticeLoss | Sequence[LatticeLoss] | None


@validated
def lattice_softmax_margin(
    scores: Scores,
    lattice: Lattices,
    gold: Gold,
    loss: LatticeLossLike = None,
    *,
    reduction: Reduction = "mean",
    infeasible: Infeasible = "raise",
    cap: float | None = None,
    band: Band | None = None,
    method: Method = "exact",
    sampling: Sampling | None = None,
) -> torch.Tensor:
    """Return log sum over paths of exp(L + score) - log sum over the paths of gold of exp(score).

    Parameters
    ----------
    scores : (A,) floating point, or a sequence of B such tensors
        Log-weights of the arcs; those of `lattice` are not used.  If scores are in the order in
        which the arcs were given to the lattice, or belong to the hypotheses of an n-best list,
        `lattice.scatter(scores)` converts them to scores of the arcs.
    lattice : Lattice, or a sequence of B
        A sequence means that there is a batch.
    gold : sequence or (l,) integer tensor, or B of them
        A string of the lattice.  In tensors, -100 is padding.
    loss : Loss, LatticeLoss, a sequence of B LatticeLoss, or None
        A loss is compiled by `lattice.compile(loss, gold)`, only once during the lifetime of the
        lattice.  None: L = 0, and the value is -log p(gold).
    reduction : {"mean", "sum", "none"}
        Over the items of a batch.
    infeasible : {"raise", "zero"}
        What to do if gold is not in the lattice, its symbols are not in the alphabet, or no path
        has a finite score and loss.  "raise": one error names all these items.  "zero": their
        values and gradients are 0, and "mean" divides by the number of all items.
    cap : float, optional
        Replaces L by min(L, cap), in nats.
    band : int, optional
        Replaces L by the least cost of the alignments within a band, an upper bound.
    method : {"exact", "sampled", "auto"}
        "auto" samples the items whose loss would need more than 50,000 states.
    sampling : Sampling, optional
        Settings of sampling; `sampling.last` has the interval and the reliability of every item.

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
    options, treatment = Options(cap, band, method, sampling), (reduction, infeasible)
    return _evaluated("softmax-margin", scores, lattice, (gold, loss), treatment, options)


def lattice_crf_nll(
    scores: Scores,
    lattice: Lattices,
    gold: Gold,
    *,
    reduction: Reduction = "mean",
    infeasible: Infeasible = "raise",
) -> torch.Tensor:
    """Return -log p(gold) in nats: `lattice_softmax_margin` without a loss."""
    return lattice_softmax_margin(scores, lattice, gold, reduction=reduction, infeasible=infeasible)


@validated
def lattice_risk(
    scores: Scores,
    lattice: Lattices,
    gold: Gold | None = None,
    loss: LatticeLossLike = None,
    *,
    reduction: Reduction = "mean",
    infeasible: Infeasible = "raise",
    cap: float | None = None,
    band: Band | None = None,
    method: Method = "exact",
    sampling: Sampling | None = None,
) -> torch.Tensor:
    """Return E[L] in nats over the paths of a lattice: minimum-risk training, exact unless sampled.

    Parameters as in `lattice_softmax_margin`, but a loss is required.  `gold` may be omitted if the
    loss is the result of `lattice.compile(loss, target)`.
    """
    options, treatment = Options(cap, band, method, sampling), (reduction, infeasible)
    return _evaluated("risk", scores, lattice, (gold, loss), treatment, options)


@uncompiled
@validated
def lattice_log_partition(
    scores: Scores, lattice: Lattices, *, infeasible: Infeasible = "raise"
) -> torch.Tensor:
    """Return log Z of the paths in nats, () or (B,); twice differentiable.

    The gradient is `lattice_marginals`.  A difference of two is the log-probability of a graph of
    transcripts in one of hypotheses, as in MMI, or of the alignments of an RNN-T.

    Parameters
    ----------
    scores, lattice
        As in `lattice_softmax_margin`.
    infeasible : {"raise", "zero"}
        What to do with lattices in which every path has the score -inf.

    Raises
    ------
    InfeasibleError
        Every path has the score -inf.

    Examples
    --------
    >>> import torch, fstgrad as fg, fstgrad.torch
    >>> lattice = fg.Lattice.from_nbest(["ab", "abc"], [0.0, 0.0], fg.Alphabet("abc"))
    >>> log_z = fstgrad.torch.lattice_log_partition(torch.tensor(lattice.scores), lattice)
    >>> round(float(log_z.exp()), 9)
    2.0
    """
    return _quantity("log-partition", scores, lattice, infeasible)


@uncompiled
def lattice_marginals(
    scores: Scores, lattice: Lattices, *, infeasible: Infeasible = "raise"
) -> Any:
    """Return the posteriors of the arcs, a tensor or a list of B like the scores.

    They are once differentiable.  Parameters and errors as in `lattice_log_partition`.
    """
    objective, rows, members = _checked("log-partition", scores, lattice, infeasible)
    if computes_on_device(rows[0]):
        further = torch.is_grad_enabled() and any(row.requires_grad for row in rows)
        with torch.enable_grad():
            given = [
                row if further and row.requires_grad else row.detach().requires_grad_()
                for row in rows
            ]
            log_z = _quantities_on_device("log-partition", given, members, infeasible)
            total = torch.where(log_z.isnan(), 0.0, log_z).sum()
            shares = list(torch.autograd.grad(total, given, create_graph=further))
        if infeasible == "raise":  # an item without a value has no posteriors either
            shares = [share + 0.0 * z for share, z in zip(shares, log_z.detach(), strict=True)]
    else:
        (table,) = gradients(objective, [_padded(rows)], [torch.arange(len(rows))])
        shares = [table[i, : len(row)] for i, row in enumerate(rows)]
    return shares[0] if isinstance(lattice, Lattice) else shares


@uncompiled
@validated
def lattice_entropy(
    scores: Scores, lattice: Lattices, *, infeasible: Infeasible = "raise"
) -> torch.Tensor:
    """Return the entropy of the paths in nats, () or (B,); twice differentiable.

    It is that of the strings if each has one path.  Parameters and errors as in
    `lattice_log_partition`.
    """
    return _quantity("entropy", scores, lattice, infeasible)


def _quantity(
    kind: Quantity, scores: Scores, lattice: Lattices, infeasible: Infeasible
) -> torch.Tensor:
    objective, rows, members = _checked(kind, scores, lattice, infeasible)
    if computes_on_device(rows[0]):
        per_item = _quantities_on_device(kind, rows, members, infeasible).to(upcast(rows[0]).dtype)
    else:
        per_item = values(objective, [_padded(rows)], [torch.arange(len(rows))])
    return per_item[0] if isinstance(lattice, Lattice) else per_item


def _checked(
    kind: Quantity, scores: Scores, lattice: Lattices, infeasible: Infeasible
) -> tuple[FeasibleItems, list[torch.Tensor], list[Lattice]]:
    """Return the objective of checked lattices, the scores of each, and these lattices."""
    members = checked_lattices(lattice)
    rows = _rows(scores, members, single=isinstance(lattice, Lattice))
    return FeasibleItems(LatticeQuantity(kind, members), infeasible), rows, members


def _quantities_on_device(
    kind: Quantity, rows: list[torch.Tensor], lattices: list[Lattice], infeasible: Infeasible
) -> torch.Tensor:
    """Return log Z or entropies (B,); NaN, or 0 if these items are left out, of no path."""
    scores, batch = _packed(rows, lattices, [None] * len(lattices))
    result = log_sums(scores, batch)
    if kind == "entropy":
        cost = finite(scores.detach())[batch.score]
        result = result.detach() - means(scores, batch._replace(cost=cost))
    if infeasible == "raise":
        return result
    valid = torch.stack([(row < torch.inf).all() for row in rows])
    return torch.where(result.isnan() & valid, 0.0, result)


@uncompiled
def _evaluated(
    kind: Kind,
    scores: Scores,
    lattice: Lattices,
    given: tuple[Any, Any],
    treatment: tuple[Reduction, Infeasible],
    options: Options,
) -> torch.Tensor:
    """Convert the arguments to a batch and evaluate the objective.

    given : gold and the loss; treatment : of values and of infeasible items.
    """
    reduction, infeasible = treatment
    one_of("reduction", reduction, REDUCTIONS)
    golds, losses = given
    check_settings(kind, losses, options)
    single = isinstance(lattice, Lattice)
    if single:
        golds = _as_array("gold", golds)
    elif isinstance(golds, torch.Tensor):
        golds = list(arguments.integers("gold", golds))
    if not single and isinstance(golds, list | tuple):
        golds = [_as_array(f"gold[{i}]", row) for i, row in enumerate(golds)]
    items = lattice_items(lattice, golds, losses, options)
    rows = _rows(scores, [item.lattice for item in items], single=single)
    if computes_on_device(rows[0]) and not any(isinstance(item.loss, Loss) for item in items):
        if options.sampling is not None:
            options.sampling.keep([])  # an estimate has the value, which is on the device
        per_item = _feasible_on_device(kind, rows, items, infeasible).to(upcast(rows[0]).dtype)
        return per_item[0] if single else reduced(per_item, reduction)
    places = torch.arange(len(items))
    objective = FeasibleItems(LatticeObjective(kind, items, options), infeasible)
    per_item = values(objective, [_padded(rows)], [places])
    return per_item[0] if single else reduced(per_item, reduction)


def _rows(scores: Any, lattices: Sequence[Lattice], *, single: bool) -> list[torch.Tensor]:
    """Return the scores (A_i,) of each lattice."""
    rows = [scores] if single else sequence("scores", scores)
    if len(rows) != len(lattices):
        raise InvalidInputError(f"there are {len(lattices)} lattices; scores has {len(rows)} items")
    for row, lattice in zip(rows, lattices, strict=True):
        arguments.floating("scores", row)
        if row.shape != (lattice.num_arcs,):
            raise InvalidInputError(
                f"scores has shape {tuple(row.shape)}, but the lattice has {lattice.num_arcs} "
                "arcs; lattice.scatter(scores) converts scores in the order of the input"
            )
    return rows


def _padded(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return scores (B, A), padded by 0."""
    width = max(map(len, rows))
    return torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in rows])


def _feasible_on_device(
    kind: Kind, rows: list[torch.Tensor], items: Sequence[Item], infeasible: Infeasible
) -> torch.Tensor:
    """Return the values (B,), 0 for infeasible items if these are left out."""

    def run(_: Objective, scores: Arrays, constants: Arrays) -> torch.Tensor:
        places = constants[0].tolist()
        return _on_device(kind, [rows[i] for i in places], [items[i] for i in places])

    objective = FeasibleItems(LatticeObjective(kind, items), infeasible)
    kept, values = objective.feasible_items(run, (), [np.arange(len(items))])
    if infeasible == "raise" and values is not None:
        return values
    table = [torch.where(row.new_zeros((), dtype=torch.bool), row.sum(), 0.0) for row in rows]
    for i, value in zip(kept.tolist(), () if values is None else values.unbind(), strict=True):
        is_infeasible = value.isnan() & (rows[i] < torch.inf).all()
        table[i] = torch.where(is_infeasible, 0.0, value)
    return torch.stack([value.double() for value in table])


def _on_device(kind: Kind, rows: list[torch.Tensor], items: Sequence[Item]) -> torch.Tensor:
    """Return the values (B,) by operations of PyTorch."""
    reasons = {i: item.infeasible for i, item in enumerate(items) if item.infeasible}
    if reasons:
        raise InfeasibleError.of_items(reasons)
    lattices = [item.lattice for item in items]
    scores, batch = _packed(rows, lattices, [item.loss for item in items])
    if kind == "risk":
        return means(scores, batch)
    golds: list[Any] = [item.gold for item in items]
    strings = [
        lattice.alphabet.encode(gold, name="gold")
        for lattice, gold in zip(lattices, golds, strict=True)
    ]

    def of_gold() -> list[Paths]:
        paths, low = [], 0

        def check(i: int) -> None:
            graph, label = lattices[i].graph, lattices[i].label
            posterior_of_string(graph, label, np.zeros(len(label)), strings[i])  # raises if none

        ALONE.each(len(items), check)
        for lattice, ids in zip(lattices, strings, strict=True):
            of_string, arc = paths_of_string(lattice.graph, lattice.label, ids)
            paths.append(Paths(of_string, arc + low, np.zeros(len(arc)), 0.0))
            low += lattice.num_arcs
        return paths

    owners, key = [lattice.graph for lattice in lattices], tuple(ids.tobytes() for ids in strings)
    only_gold = pack(owners, key, of_gold, len(scores), scores.device)
    return log_sums(scores, batch) - log_sums(scores, only_gold)


def _packed(
    rows: list[torch.Tensor], lattices: Sequence[Lattice], losses: Sequence[Any]
) -> tuple[torch.Tensor, Batch]:
    """Return the scores of all arcs, and the paths of lattices, or of their losses, on a device."""
    refuse_transforms(rows)
    paths, low = [], 0
    for lattice, loss in zip(lattices, losses, strict=True):
        if isinstance(loss, LatticeLoss):
            loss._check_lattice(lattice.graph)
            paths.append(Paths(loss.graph, loss.arc + low, loss.cost, loss.initial))
        else:
            arcs = np.arange(low, low + lattice.num_arcs)
            paths.append(Paths(lattice.graph, arcs, np.zeros(len(arcs)), 0.0))
        low += lattice.num_arcs
    scores = torch.cat([row.double() for row in rows])
    key = tuple(map(len, rows))
    return scores, pack([own.graph for own in paths], key, lambda: paths, low, scores.device)


def _as_array(name: str, gold: Any) -> Any:
    """Return a string unchanged, and a tensor of ids as an array without padding."""
    if not isinstance(gold, torch.Tensor):
        return gold
    ids = arguments.integers(name, gold).detach().cpu().numpy()
    return ids[ids != IGNORE_INDEX]
