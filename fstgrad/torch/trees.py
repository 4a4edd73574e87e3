"""Spanning-tree quantities on tensors: log Z, marginals and quantities computed from them.

All functions take `single_root` and the following parameters:

lengths : (B,) integer, optional
    Numbers of dependents; default n for all items.
labeled : bool
    Whether the last axis of the scores holds labels.
projective : bool
    Whether to allow only trees without crossing arcs.  Their log Z and marginals have one
    derivative less: third derivatives of log Z do not exist.

Scores may have any floating-point dtype.  All computations are in float64, and values of
half-precision scores are float32.
"""

from collections.abc import Sequence
from typing import Any

import torch

from fstgrad.core.checks import flag
from fstgrad.core.distribution import FAR
from fstgrad.core.errors import InvalidInputError
from fstgrad.objectives.trees import tree_distribution
from fstgrad.torch import arguments, tree_operators
from fstgrad.torch.arrays import (
    computes_on_device,
    to_float64,
    to_float64_tensor,
    upcast,
    validated,
)
from fstgrad.torch.dense_trees import finite
from fstgrad.torch.device import trees as device
from fstgrad.torch.device.sums import valid
from fstgrad.torch.transforms import knows_values, vectorized
from fstgrad.torch.tree_operators import log_partition, on_device
from fstgrad.trees.structures import IGNORE_INDEX, PADDING

Lengths = torch.Tensor | Sequence[int] | None


@validated
def spanning_tree_log_partition(
    scores: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
) -> torch.Tensor:
    """Return log Z in nats, () or (B,); three times differentiable, projective twice.

    Parameters
    ----------
    scores : (n+1, n+1) or (B, n+1, n+1), with a further axis (y,) if `labeled`
        score[head, dependent(, label)], log-weights; index 0 is the root; -inf forbids an arc.
    single_root : bool
        Whether exactly one arc leaves the root.
    lengths : (B,), optional
        Numbers of dependents.
    labeled : bool
        Whether the last axis holds labels.
    projective : bool
        Whether to allow only trees without crossing arcs.

    Examples
    --------
    >>> import torch, fstgrad.torch
    >>> scores = torch.zeros(4, 4, dtype=torch.float64)
    >>> log_z = fstgrad.torch.spanning_tree_log_partition(scores, single_root=True)
    >>> round(float(log_z.exp()), 9)
    9.0
    """
    return _Table(scores, lengths, labeled, single_root, projective).log_partition()


@validated
def spanning_tree_nll(
    scores: torch.Tensor,
    gold: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
) -> torch.Tensor:
    """Return -log p(gold) in nats, () or (B,); three times differentiable, projective twice.

    Parameters
    ----------
    gold : (n,) or (B, n) integer, with labels (n, 2) or (B, n, 2)
        gold[d - 1] is the head of dependent d (and its label); 0 is the root.
    scores, single_root, lengths, labeled, projective
        As in `spanning_tree_log_partition`.

    Raises
    ------
    InvalidInputError
        If gold is not a tree, has several root arcs with single_root=True, or has crossing arcs
        with projective=True.

    Examples
    --------
    >>> import torch, fstgrad.torch
    >>> heads = torch.tensor([0, 1, 2])
    >>> value = fstgrad.torch.spanning_tree_nll(torch.zeros(4, 4), heads, single_root=True)
    >>> round(float(value.exp()), 4)  # one of 9 trees
    9.0
    """
    table = _Table(scores, lengths, labeled, single_root, projective).recentered()
    arguments.integers("gold", gold)
    golds = gold if scores.ndim == table.batch.ndim else gold[None]
    if on_device(table.arcs, projective):
        golds = arguments.shaped(
            "gold", golds, (*table.batch[:, 0, 1:, ...].shape[:2], 2)[: 2 + labeled]
        )
        given = golds.to(scores.device, torch.int64, non_blocking=True), table.inside()
        used, is_tree = device.gold_parts(table.batch, *given, single_root=single_root)
    else:
        used, is_tree = gold_parts(table.batch.detach(), golds, *table.family, labeled), None
    score = torch.where(used, table.batch, 0.0).flatten(1).sum(dim=1)
    if is_tree is not None:
        score = torch.where(is_tree, valid(score), torch.nan)
    return table.values(log_partition(table.arcs, *table.family) - score)


@validated
def spanning_tree_partial_nll(
    scores: torch.Tensor,
    allowed: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
) -> torch.Tensor:
    """Return -log of the probability of the trees that `allowed` permits, () or (B,), in nats.

    allowed : bool like the scores, or integer trees as in `spanning_tree_nll` with -1 or -100 for
        an unknown head (or label).
    """
    table = _Table(scores, lengths, labeled, single_root, projective).recentered()
    if arguments.tensor("allowed", allowed).dtype != torch.bool:
        allowed = arguments.integers("allowed", allowed)
        allowed = torch.where(allowed == IGNORE_INDEX, PADDING, allowed)
    allowed = allowed.to(scores.device, non_blocking=True)
    given = allowed if scores.ndim == table.batch.ndim else allowed[None]
    if given.dtype == torch.bool:
        mask = arguments.shaped("allowed", given, table.batch.shape, table.batch.shape[1:])
    else:
        size, nodes = table.batch.shape[:2]
        known = arguments.shaped("allowed", given, (size, nodes - 1, 2)[: 2 + labeled])
        _check_known(known, (nodes, *table.batch.shape[3:]))
        mask = _within(known, table.batch.shape, labeled)
    agreeing = _Table(
        table.batch.masked_fill(~mask, -torch.inf), table.family[0], labeled, single_root,
        projective,
    )  # fmt: skip
    log_z, partial = (log_partition(t.arcs, *table.family) for t in (table, agreeing))
    return table.values(log_z - partial)


@validated
def spanning_tree_marginals(
    scores: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
) -> torch.Tensor:
    """Return the probability of every arc (and label), like the scores; twice differentiable.

    Parameters as in `spanning_tree_log_partition`; once differentiable if projective.
    """
    table = _Table(scores, lengths, labeled, single_root, projective)
    return table.marginals().to(upcast(scores).dtype).reshape(scores.shape)


@validated
def spanning_tree_entropy(
    scores: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
) -> torch.Tensor:
    """Return the entropy in nats, () or (B,); twice differentiable, projective once."""
    table = _Table(scores, lengths, labeled, single_root, projective)
    value = tree_operators.entropy(table.arcs, *table.family)
    if labeled:
        logs = table.label_logs()
        own = -(logs.exp() * finite(logs)).sum(dim=-1)
        value = value + (tree_operators.solve(table.arcs, *table.family)[1] * own).sum(dim=(1, 2))
    return table.values(value)


@validated
def spanning_tree_kl(
    p_scores: torch.Tensor,
    q_scores: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
) -> torch.Tensor:
    """Return KL(p || q) in nats, () or (B,); twice differentiable in both, projective once."""
    p = _Table(p_scores, lengths, labeled, single_root, projective)
    q = _Table(q_scores, lengths, labeled, single_root, projective)
    if p.batch.shape != q.batch.shape:
        raise InvalidInputError(
            f"p_scores has shape {tuple(p_scores.shape)} and q_scores {tuple(q_scores.shape)}; "
            "a divergence is between distributions over the same sentences and labels"
        )
    value = tree_operators.divergence(p.arcs, q.arcs, *p.family)
    if labeled:
        first, second = p.label_logs(), q.label_logs()
        share = first.exp()
        lost = (share > 0) & (second == -torch.inf)
        gap = torch.where(lost, torch.inf, share * (finite(first) - finite(second)))
        mu = tree_operators.solve(p.arcs, *p.family)[1]
        own = torch.where(mu > 0, gap.sum(dim=-1), 0.0)
        value = value + torch.where(mu > 0, mu * own, 0.0).sum(dim=(1, 2))
    return p.values(value)


@validated
def spanning_tree_risk(
    scores: torch.Tensor,
    costs: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
) -> torch.Tensor:
    """Return E[sum of the costs of the arcs], () or (B,); twice differentiable.

    costs : like the scores; their gradient is the marginals.
    With cost 1 for every arc except the gold ones, the value is n minus the expected number of
    correct attachments.
    """
    table = _Table(scores, lengths, labeled, single_root, projective)
    wide = arguments.finite("costs", costs).to(scores.device, non_blocking=True)
    wide = arguments.shaped("costs", wide, scores.shape, table.batch.shape[1:])
    wide = wide.reshape(table.batch.shape)
    return table.values((table.marginals() * wide).flatten(1).sum(dim=1))


@validated
def spanning_tree_generalized_expectation(
    scores: torch.Tensor,
    features: torch.Tensor,
    target: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
) -> torch.Tensor:
    """Return 1/2 |E f - target|^2, () or (B,); its gradient takes one Hessian-vector product.

    features : scores.shape + (F,); target : (F,) or (B, F).
    """
    table = _Table(scores, lengths, labeled, single_root, projective)
    wide = arguments.finite("features", features).to(scores.device, non_blocking=True)
    if wide.ndim == 0:
        raise InvalidInputError(f"features has the shape (); give {(*scores.shape, 'F')}")
    one, count = table.batch.shape[1:], wide.shape[-1]
    wide = arguments.shaped("features", wide, (*scores.shape, count), (*one, count))
    goal = arguments.finite("target", target).to(scores.device, non_blocking=True)
    goal = arguments.shaped("target", goal, (len(table.batch), count), (count,))
    flat = wide.reshape(*table.batch.shape, features.shape[-1]).flatten(1, -2)
    expected = (table.marginals().flatten(1)[:, None] @ flat)[:, 0]
    return table.values(0.5 * (expected - goal).square().sum(dim=-1))


class _Table:
    """Scores as a batch of float64, their arcs with labels summed out, and the family of trees.

    family : the lengths (B,), single_root, projective: the last arguments of the operators.
    wide : the scores as float64.
    """

    def __init__(
        self,
        scores: torch.Tensor,
        lengths: Lengths,
        labeled: bool,
        single_root: bool,
        projective: bool,
    ) -> None:
        arguments.floating("scores", scores)
        for name, given in (("single_root", single_root), ("projective", projective)):
            flag(name, given)
        event = 3 if flag("labeled", labeled) else 2
        if scores.ndim not in (event, event + 1):
            axes = "(n+1, n+1, y)" if labeled else "(n+1, n+1)"
            raise InvalidInputError(
                f"scores has shape {tuple(scores.shape)}; give {axes} or a batch of such tables"
            )
        self.given = scores
        self.wide = scores.to(torch.float64)
        self.batch = self.wide if scores.ndim > event else self.wide[None]
        items, nodes = self.batch.shape[:2]
        if lengths is None:
            sizes = torch.full((items,), nodes - 1, dtype=torch.int64)
        else:
            sizes = arguments.integer_per_item("lengths", lengths, items).to(torch.int64)
        self.labeled, self.lengths = labeled, None if lengths is None else sizes
        self.family = (sizes, single_root, projective)
        self.arcs = _summed_labels(self.batch) if labeled else self.batch
        if lengths is not None and on_device(self.arcs, projective) and sizes.device.type == "cpu":
            arguments.in_range("lengths", sizes, 1, nodes - 1)

    def inside(self) -> torch.Tensor:
        """Return a mask (B, n) of the dependents of each item."""
        return tree_operators.inside(self.arcs, self.family[0])

    def recentered(self) -> "_Table":
        """Return the table less the largest score of each dependent, if that is beyond FAR.

        Probabilities of trees do not change, and keep their digits beside masks.
        """
        nodes = torch.arange(self.arcs.shape[1], device=self.arcs.device)
        heads = torch.nn.functional.pad(self.inside(), (1, 0), value=True)
        allowed = heads[:, :, None] & (nodes[:, None] != nodes)
        arcs = self.batch.detach().amax(dim=3) if self.labeled else self.arcs.detach()
        largest = torch.where(allowed, arcs, -torch.inf).amax(dim=1, keepdim=True)
        offset = torch.where((largest.abs() > FAR) & largest.isfinite(), largest, 0.0)
        if not knows_values(offset) or computes_on_device(offset) or bool(offset.any()):
            self.batch = self.batch - (offset[..., None] if self.labeled else offset)
            self.arcs = _summed_labels(self.batch) if self.labeled else self.batch
        return self

    def values(self, values: torch.Tensor) -> torch.Tensor:
        """Return values (B,) in the dtype of the scores (half: float32), () without a batch."""
        typed = values.to(upcast(self.given).dtype)
        return typed if self.given.ndim == self.batch.ndim else typed[0]

    def log_partition(self) -> torch.Tensor:
        """Return log Z (B,), or () without a batch, in the dtype of the scores (half: float32)."""
        if self.labeled or self.lengths is not None:
            return self.values(log_partition(self.arcs, *self.family))
        value = log_partition(self.wide, None, *self.family[1:])
        return value.to(upcast(self.given).dtype)

    def label_logs(self) -> torch.Tensor:
        """Return the log-probability of each label given its arc, -inf for forbidden labels."""
        allowed = self.batch > -torch.inf
        logs = torch.where(allowed, self.batch, 0.0) - finite(self.arcs)[..., None]
        return torch.where(allowed, logs, -torch.inf)

    def marginals(self) -> torch.Tensor:
        """Return the marginals, like the batch."""
        mu = tree_operators.solve(self.arcs, *self.family)[1]
        return mu[..., None] * self.label_logs().exp() if self.labeled else mu


def _check_known(known: torch.Tensor, sizes: tuple[int, ...]) -> None:
    """Raise InvalidInputError unless heads (and labels) are below `sizes`, or -1."""
    limits = torch.tensor(sizes, device=known.device)
    wrong = (known < PADDING) | (known >= limits)
    if knows_values(known) and not computes_on_device(known) and bool(wrong.any()):
        bounds = " and labels 0 .. ".join(str(size - 1) for size in sizes)
        raise InvalidInputError(
            f"allowed has {int(known[wrong][0])}; give heads 0 .. {bounds}, or -1 if unknown"
        )


def _within(gold: torch.Tensor, shape: tuple[int, ...], labeled: bool) -> torch.Tensor:
    """Return a mask of the arcs (and labels) that partial trees allow; -1 allows all."""
    heads = gold[..., 0] if labeled else gold
    nodes = torch.arange(shape[1], device=gold.device)
    known = torch.nn.functional.pad(heads, (1, 0), value=PADDING)[:, None, :]
    mask = (known == PADDING) | (known == nodes[:, None])
    if not labeled:
        return mask
    names = torch.nn.functional.pad(gold[..., 1], (1, 0), value=PADDING)[:, None, :, None]
    labels = torch.arange(shape[-1], device=gold.device)
    return mask[..., None] & ((names == PADDING) | (names == labels))


@torch.library.custom_op("fstgrad::tree_parts", mutates_args=())
def gold_parts(
    scores: torch.Tensor,
    gold: torch.Tensor,
    lengths: torch.Tensor,
    single_root: bool,
    projective: bool,
    labeled: bool,
) -> torch.Tensor:
    """Return a mask of the scores that the gold trees use; raise if gold is not a tree."""
    if len(scores) == 0:
        return torch.empty_like(scores, dtype=torch.bool)
    sizes = lengths.cpu().numpy()
    trees = tree_distribution(to_float64(scores), sizes, single_root, projective, labeled)
    return to_float64_tensor(trees.gold_parts(gold.cpu().numpy()), scores) > 0


@gold_parts.register_fake
def _(
    scores: torch.Tensor, gold: Any, lengths: Any, single_root: bool, projective: bool,
    labeled: bool,
) -> Any:  # fmt: skip
    return torch.empty_like(scores, dtype=torch.bool)


gold_parts.register_vmap(vectorized(gold_parts))


def _summed_labels(scores: torch.Tensor) -> torch.Tensor:
    """Return log-sum-exp over labels; the gradient is 0 if all labels of an arc are -inf."""
    largest = finite(scores.detach().amax(dim=-1))
    allowed = scores > -torch.inf
    terms = torch.where(allowed, scores - largest[..., None], 0.0).exp() * allowed
    total = terms.sum(dim=-1)
    some = total > 0
    return torch.where(some, torch.where(some, total, 1.0).log() + largest, -torch.inf)
