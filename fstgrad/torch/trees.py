"""Spanning-tree quantities on tensors: log Z, marginals and quantities computed from them.

All functions take `single_root` and the following parameters:

lengths : (B,) integer, optional
    Numbers of dependents; default n for all items.
labeled : bool
    Whether the last axis of the scores holds labels.
projective : bool
    Whether to allow only trees without crossing arcs.  Their log Z and marginals have one
    derivative less: third derivatives of log Z do not exist.
infeasible : {"raise", "zero"}
    What to do with items of a batch that have no tree, or no gold tree, of finite score.  "raise":
    one error names them all.  "zero": their values and gradients are 0, and the mean of a module
    divides by the number of all items.  This takes one more solution of the batch.

Scores may have any floating-point dtype.  All computations are in float64, and values of
half-precision scores are float32.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fstgrad.core.checks import LARGEST_SCORE, flag
from fstgrad.core.distribution import FAR
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.infeasible import Infeasible, check_infeasible
from fstgrad.objectives.trees import TreeKind, TreeObjective, tree_distribution
from fstgrad.torch import arguments, tree_operators
from fstgrad.torch.arrays import (
    computes_on_device,
    per_item,
    to_float64,
    to_float64_tensor,
    upcast,
    validated,
)
from fstgrad.torch.device import trees as device
from fstgrad.torch.device.sums import finite, valid
from fstgrad.torch.operators import are_feasible, persistent
from fstgrad.torch.transforms import knows_values, vectorized
from fstgrad.torch.tree_operators import log_partition, on_device
from fstgrad.trees.structures import IGNORE_INDEX, PADDING

Lengths = torch.Tensor | Sequence[int] | None

_LOWEST = -1e10  # nats; beside lower scores, others have errors above 1e-6


@validated
def spanning_tree_log_partition(
    scores: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
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
    infeasible : {"raise", "zero"}
        What to do with items without a tree of finite score.

    Examples
    --------
    >>> import torch, fstgrad.torch
    >>> scores = torch.zeros(4, 4, dtype=torch.float64)
    >>> log_z = fstgrad.torch.spanning_tree_log_partition(scores, single_root=True)
    >>> round(float(log_z.exp()), 9)
    9.0
    """
    table = _Table(scores, lengths, labeled, single_root, projective, infeasible)
    return table.feasible_result(table.log_partition)


@validated
def spanning_tree_nll(
    scores: torch.Tensor,
    gold: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
) -> torch.Tensor:
    """Return -log p(gold) in nats, () or (B,); three times differentiable, projective twice.

    Parameters
    ----------
    gold : (n,) or (B, n) integer, with labels (n, 2) or (B, n, 2)
        gold[d - 1] is the head of dependent d (and its label); 0 is the root.
    scores, single_root, lengths, labeled, projective, infeasible
        As in `spanning_tree_log_partition`.

    Raises
    ------
    InvalidInputError
        If gold is not a tree.
    InfeasibleError
        If gold has several root arcs with single_root=True, crossing arcs with projective=True, or
        an arc of score -inf.

    Examples
    --------
    >>> import torch, fstgrad.torch
    >>> heads = torch.tensor([0, 1, 2])
    >>> value = fstgrad.torch.spanning_tree_nll(torch.zeros(4, 4), heads, single_root=True)
    >>> round(float(value.exp()), 4)  # one of 9 trees
    9.0
    """
    table = _Table(scores, lengths, labeled, single_root, projective, infeasible).recentered()
    arguments.integers("gold", gold)
    golds = gold if scores.ndim == table.batch.ndim else gold[None]

    def compute() -> torch.Tensor:
        if on_device(table.arcs):
            score = table.score_on_device(golds)
        else:
            known = golds
            if table.feasible is not None:
                known = table.where_feasible(golds, _chain_of(golds, labeled))
            used = gold_parts(table.batch.detach(), known, *table.family, labeled)
            score = torch.where(used, table.batch, 0.0).flatten(1).sum(dim=1)
        return table.values(_with_digits(log_partition(table.arcs, *table.family)) - score)

    return table.feasible_result(compute, "nll", golds)


@validated
def spanning_tree_partial_nll(
    scores: torch.Tensor,
    allowed: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
) -> torch.Tensor:
    """Return -log of the probability of the trees that `allowed` permits, () or (B,), in nats.

    allowed : bool like the scores, or integer trees as in `spanning_tree_nll` with -1 or -100 for
        an unknown head (or label).
    """
    table = _Table(scores, lengths, labeled, single_root, projective, infeasible).recentered()
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

    def compute() -> torch.Tensor:
        excluded = ~table.where_feasible(mask, True)
        agreeing = table.batch.masked_fill(excluded, -torch.inf)
        arcs = _summed_labels(agreeing) if labeled else agreeing
        log_z, partial = (log_partition(t, *table.family) for t in (table.arcs, arcs))
        return table.values(_with_digits(log_z) - partial)

    return table.feasible_result(compute, "partial-nll", mask)


@validated
def spanning_tree_marginals(
    scores: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
) -> torch.Tensor:
    """Return the probability of every arc (and label), like the scores; twice differentiable.

    Parameters as in `spanning_tree_log_partition`; once differentiable if projective.
    """
    table = _Table(scores, lengths, labeled, single_root, projective, infeasible)

    def compute() -> torch.Tensor:
        return table.values(table.marginals())

    return table.feasible_result(compute)


@validated
def spanning_tree_entropy(
    scores: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
) -> torch.Tensor:
    """Return the entropy in nats, () or (B,); twice differentiable, projective once."""
    table = _Table(scores, lengths, labeled, single_root, projective, infeasible)

    def compute() -> torch.Tensor:
        value = tree_operators.entropy(table.arcs, *table.family)
        if labeled:
            logs = table.label_logs()
            own = -(logs.exp() * finite(logs)).sum(dim=-1)
            mu = tree_operators.solve(table.arcs, *table.family)[1]
            value = value + (mu * own).sum(dim=(1, 2))
        return table.values(value)

    return table.feasible_result(compute)


@validated
def spanning_tree_kl(
    p_scores: torch.Tensor,
    q_scores: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
) -> torch.Tensor:
    """Return KL(p || q) in nats, () or (B,); twice differentiable in both, projective once."""
    p, q = (
        _Table(scores, lengths, labeled, single_root, projective, infeasible, name)
        for name, scores in (("p_scores", p_scores), ("q_scores", q_scores))
    )
    p.check_values("p_scores")
    q.check_values("q_scores")
    if p.batch.shape != q.batch.shape:
        raise InvalidInputError(
            f"p_scores has shape {tuple(p_scores.shape)} and q_scores {tuple(q_scores.shape)}; "
            "a divergence is between distributions over the same sentences and labels"
        )

    def compute() -> torch.Tensor:
        value = tree_operators.divergence(p.arcs, q.arcs, *p.family)
        if labeled:
            first, second = p.label_logs(), q.label_logs()
            share = first.exp()
            lost = (share > 0) & (second == -torch.inf)
            gap = torch.where(lost, torch.inf, share * (finite(first) - finite(second)))
            mu = tree_operators.solve(p.arcs, *p.family)[1]
            own = torch.where(mu > 0, gap.sum(dim=-1), 0.0)
            value = value + torch.where(mu > 0, mu * own, 0.0).sum(dim=(1, 2))
        return p.values(q.where_feasible(value, 0.0))

    return p.feasible_result(lambda: q.feasible_result(compute, other=p), other=q)


@validated
def spanning_tree_risk(
    scores: torch.Tensor,
    costs: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
    projective: bool = False,
    infeasible: Infeasible = "raise",
) -> torch.Tensor:
    """Return E[sum of the costs of the arcs], () or (B,); twice differentiable.

    costs : like the scores; their gradient is the marginals.
    With cost 1 for every arc except the gold ones, the value is n minus the expected number of
    correct attachments.
    """
    table = _Table(scores, lengths, labeled, single_root, projective, infeasible)
    wide = arguments.finite("costs", costs).to(scores.device, non_blocking=True)
    wide = arguments.shaped("costs", wide, scores.shape, table.batch.shape[1:])
    wide = wide.reshape(table.batch.shape)
    return table.feasible_result(
        lambda: table.values((table.marginals() * wide).flatten(1).sum(dim=1))
    )


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
    infeasible: Infeasible = "raise",
) -> torch.Tensor:
    """Return 1/2 |E f - target|^2, () or (B,); its gradient takes one Hessian-vector product.

    features : scores.shape + (F,); target : (F,) or (B, F).
    """
    table = _Table(scores, lengths, labeled, single_root, projective, infeasible)
    wide = arguments.finite("features", features).to(scores.device, non_blocking=True)
    if wide.ndim == 0:
        raise InvalidInputError(f"features has the shape (); give {(*scores.shape, 'F')}")
    one, count = table.batch.shape[1:], wide.shape[-1]
    wide = arguments.shaped("features", wide, (*scores.shape, count), (*one, count))
    goal = arguments.finite("target", target).to(scores.device, non_blocking=True)
    goal = arguments.shaped("target", goal, (len(table.batch), count), (count,))
    flat = wide.reshape(*table.batch.shape, features.shape[-1]).flatten(1, -2)

    def compute() -> torch.Tensor:
        expected = (table.marginals().flatten(1)[:, None] @ flat)[:, 0]
        return table.values(0.5 * (expected - goal).square().sum(dim=-1))

    return table.feasible_result(compute)


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
        infeasible: Infeasible = "raise",
        name: str = "scores",
    ) -> None:
        check_infeasible(infeasible)
        arguments.floating(name, scores)
        for switch, given in (("single_root", single_root), ("projective", projective)):
            flag(switch, given)
        event = 3 if flag("labeled", labeled) else 2
        if scores.ndim not in (event, event + 1):
            axes = "(n+1, n+1, y)" if labeled else "(n+1, n+1)"
            raise InvalidInputError(
                f"{name} has shape {tuple(scores.shape)}; give {axes} or a batch of such tables"
            )
        nodes, other = scores.shape[scores.ndim - event :][:2]
        if nodes != other or nodes == 0:
            raise InvalidInputError(
                f"{name} has shape {tuple(scores.shape)}; heads and dependents are n + 1 each"
            )
        self.given = scores
        self.wide = _with_usable_ignored(scores.to(torch.float64), labeled)
        self.batch = self.wide if scores.ndim > event else self.wide[None]
        items = len(self.batch)
        if lengths is None:
            sizes = torch.full((items,), nodes - 1, dtype=torch.int64)
        else:
            sizes = arguments.integer_per_item("lengths", lengths, items).to(torch.int64)
        self.labeled, self.lengths = labeled, None if lengths is None else sizes
        self.family = (sizes, single_root, projective)
        self.arcs = _summed_labels(self.batch) if labeled else self.batch
        self.infeasible: Infeasible = infeasible
        self.feasible: torch.Tensor | None = None  # (B,) bool, once the infeasible ones are known
        self.missing: torch.Tensor | None = None  # (B,) bool, on a device: no marginals
        self.is_valid = torch.ones((), dtype=torch.bool, device=scores.device)
        if lengths is not None and on_device(self.arcs) and sizes.device.type == "cpu":
            arguments.in_range("lengths", sizes, 0, nodes - 1)

    def inside(self) -> torch.Tensor:
        """Return a mask (B, n) of the dependents of each item."""
        return tree_operators.inside(self.arcs, self.family[0])

    def check_values(self, name: str) -> None:
        """Raise InvalidInputError if a score between the nodes of an item is NaN or +inf."""
        arguments.log_weights(name, torch.where(self._are_arcs(), self.arcs.detach(), 0.0))

    def _are_arcs(self) -> torch.Tensor:
        """Return a mask (B, n+1, n+1) of arcs: not of the diagonal, column 0 and padding."""
        heads = torch.nn.functional.pad(self.inside(), (1, 0), value=True)
        dependents = torch.nn.functional.pad(self.inside(), (1, 0), value=False)
        nodes = torch.arange(self.arcs.shape[1], device=self.arcs.device)
        return heads[:, :, None] & dependents[:, None] & (nodes[:, None] != nodes)

    def recentered(self) -> "_Table":
        """Return the table less the largest score of each dependent, if that is beyond FAR.

        With a single root, also less the largest score of the root.  Probabilities of trees do not
        change, and keep their digits beside masks.
        """
        arcs = self.batch.detach().amax(dim=3) if self.labeled else self.arcs.detach()
        arcs = torch.where(self._are_arcs(), arcs, -torch.inf)
        largest = arcs.amax(dim=1, keepdim=True)
        if self.family[1] and arcs.shape[1] > 1:  # heads but the root, which has an offset itself
            others = arcs[:, 1:].amax(dim=1, keepdim=True)
            largest = torch.where(others == -torch.inf, largest, others)
        offset = _far(largest)
        if self.family[1]:
            root = _far((arcs[:, :1] - offset).amax(dim=2, keepdim=True))
            is_root = torch.arange(arcs.shape[1], device=arcs.device)[:, None] == 0
            offset = offset + torch.where(is_root, root, 0.0)
        if not knows_values(offset) or computes_on_device(offset) or bool(offset.any()):
            self.batch = self.batch - (offset[..., None] if self.labeled else offset)
            self.arcs = _summed_labels(self.batch) if self.labeled else self.batch
        return self

    def score_on_device(self, gold: torch.Tensor) -> torch.Tensor:
        """Return the scores (B,) of gold by operations of PyTorch, NaN unless they are trees."""
        shape = (*self.batch[:, 0, 1:, ...].shape[:2], 2)[: 2 + self.labeled]
        golds = arguments.shaped("gold", gold, shape).to(
            self.given.device, torch.int64, non_blocking=True
        )
        parts = device.gold_parts(self.batch, golds, self.inside(), *self.family[1:])
        used, self.is_valid, is_allowed = parts
        score = torch.where(used, self.batch, 0.0).flatten(1).sum(dim=1)
        return torch.where(is_allowed, valid(score), torch.nan)

    def feasible_result(
        self,
        compute: Callable[[], torch.Tensor],
        kind: TreeKind = "log-partition",
        *constants: torch.Tensor,
        other: "_Table | None" = None,
    ) -> torch.Tensor:
        """Return compute(), with all infeasible items named in one error, or left out.

        kind, constants : the objective, and its constants after the lengths, that say which items
        are infeasible.  Those left out get scores of 0.
        other : another table of the objective
        """
        if on_device(self.arcs):
            return self._result_on_device(compute, other)
        sizes, single_root, projective = self.family
        flags = (single_root, self.labeled, projective)
        key = persistent(TreeObjective, kind, *flags, infeasible=self.infeasible)
        if self.infeasible == "zero":
            self.feasible = are_feasible(key, [self.batch], [sizes, *constants])
            self.batch = self.where_feasible(self.batch, 0.0)
            self.arcs = _summed_labels(self.batch) if self.labeled else self.batch
        elif not torch.compiler.is_compiling():
            try:
                return compute()
            except InfeasibleError:
                are_feasible(key, [self.batch], [sizes, *constants])  # raises it for all items
                raise
        return compute()

    def _result_on_device(
        self, compute: Callable[[], torch.Tensor], other: "_Table | None"
    ) -> torch.Tensor:
        """Return compute(), in which an infeasible item is NaN, or 0 if these are left out."""
        if self.infeasible == "raise":
            return compute()
        with torch.no_grad():
            log_z = log_partition(self.arcs.detach(), *self.family)
        self.feasible = ~(log_z.isnan() & self._has_numbers())
        given, self.batch = self.batch, self.where_feasible(self.batch, 0.0)
        self.arcs = _summed_labels(self.batch) if self.labeled else self.batch
        result = compute()
        self.batch = given
        batch = result if self.given.ndim == self.batch.ndim else result[None]
        is_bad = batch.isnan().reshape(len(batch), -1).any(dim=1) & self._has_numbers()
        if other is not None:
            is_bad = is_bad & other._has_numbers()
        batch = torch.where(per_item(is_bad, batch), 0.0, batch)
        return batch if self.given.ndim == self.batch.ndim else batch[0]

    def _has_numbers(self) -> torch.Tensor:
        """Return whether the scores and gold of an item are valid, (B,): it may be infeasible."""
        heads = torch.nn.functional.pad(self.inside(), (1, 0), value=True)
        is_arc = heads[:, :, None] & torch.nn.functional.pad(self.inside(), (1, 0))[:, None]
        good = (self.batch < torch.inf).all(dim=3) if self.labeled else self.batch < torch.inf
        return (good | ~is_arc).flatten(1).all(dim=1) & self.is_valid

    def where_feasible(self, table: torch.Tensor, rest: Any) -> torch.Tensor:
        """Return a table (B, ...), with `rest` for infeasible items."""
        if self.feasible is None:
            return table
        return torch.where(per_item(self.feasible, table), table, rest)

    def values(self, values: torch.Tensor) -> torch.Tensor:
        """Return values (B, ...) in the dtype of the scores (half: float32), without B if none.

        Those of infeasible items are 0, those of other items without marginals NaN.
        """
        if self.missing is not None:
            values = torch.where(per_item(self.missing, values), torch.nan, values)
        typed = self.where_feasible(values, 0.0).to(upcast(self.given).dtype)
        return typed if self.given.ndim == self.batch.ndim else typed[0]

    def log_partition(self) -> torch.Tensor:
        """Return log Z (B,), or () without a batch, in the dtype of the scores (half: float32)."""
        if self.labeled or self.lengths is not None or self.infeasible == "zero":
            return self.values(log_partition(self.arcs, *self.family))
        value = log_partition(self.wide, None, *self.family[1:])
        return value.to(upcast(self.given).dtype)

    def label_logs(self) -> torch.Tensor:
        """Return the log-probability of each label given its arc, -inf for forbidden labels."""
        allowed = self.batch.isfinite()  # on a device also NaN and +inf, of items that become NaN
        log_sums = torch.where(self.arcs.isfinite(), self.arcs, 0.0)  # padding may hold NaN
        logs = torch.where(allowed, self.batch, 0.0) - log_sums[..., None]
        return torch.where(allowed, logs, -torch.inf)

    def marginals(self) -> torch.Tensor:
        """Return the marginals, like the batch; on a device 0 without a tree, for `values`."""
        log_z, mu = tree_operators.solve(self.arcs, *self.family)
        if computes_on_device(mu):
            self.missing = log_z.isnan()
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


def _chain_of(gold: torch.Tensor, labeled: bool) -> torch.Tensor:
    """Return a tree in the shape of gold: the head of each dependent is the one before it."""
    heads = torch.arange(gold.shape[1], device=gold.device)
    return torch.stack([heads, torch.zeros_like(heads)], dim=1) if labeled else heads


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
    sizes, known = lengths.cpu().numpy(), gold.cpu().numpy()
    trees = tree_distribution(to_float64(scores), sizes, single_root, projective, labeled)
    return to_float64_tensor(trees._gold(known)[0], scores) > 0


@gold_parts.register_fake
def _(
    scores: torch.Tensor, gold: Any, lengths: Any, single_root: bool, projective: bool,
    labeled: bool,
) -> Any:  # fmt: skip
    return torch.empty_like(scores, dtype=torch.bool)


gold_parts.register_vmap(vectorized(gold_parts))


def _with_usable_ignored(scores: torch.Tensor, labeled: bool) -> torch.Tensor:
    """Return scores with 0 in the diagonal and column 0 if some score may be no log-weight."""
    given = scores.detach()
    if computes_on_device(given):  # which sums over labels, but reads no other ignored score
        is_usable = not labeled
    else:
        is_usable = not knows_values(given) or bool((given <= LARGEST_SCORE).all())
    if is_usable:
        return scores
    nodes = torch.arange(scores.shape[-1 - labeled], device=scores.device)
    is_arc = (nodes > 0) & (nodes[:, None] != nodes)
    return torch.where(is_arc[..., None] if labeled else is_arc, scores, 0.0)


def _with_digits(log_z: torch.Tensor) -> torch.Tensor:
    """Return log Z (B,) of a recentered table; if all trees have masks, NaN on a device.

    Raises
    ------
    InfeasibleError
        All trees of an item have masks, and the scores are on the CPU.
    """
    known = log_z.detach()
    lost = (known < _LOWEST) & known.isfinite()
    if not knows_values(lost) or computes_on_device(lost):
        return torch.where(lost, torch.nan, log_z)
    if lost.any():
        raise InfeasibleError(
            f"scores: log Z of item {int(lost.nonzero()[0])} is {float(known[lost][0]):.3g}: every "
            "tree has a mask such as -1e9, beside which other scores keep no digits; allow a tree "
            "without masks, or give -inf for what is impossible"
        )
    return log_z


def _far(largest: torch.Tensor) -> torch.Tensor:
    """Return the entries that cost digits as offsets, and 0 for the others."""
    return torch.where((largest.abs() > FAR) & largest.isfinite(), largest, 0.0)


def _summed_labels(scores: torch.Tensor) -> torch.Tensor:
    """Return log-sum-exp over labels, NaN or +inf if a label is; 0 is the gradient of -inf."""
    allowed, known = scores.isfinite(), scores.detach()
    largest = finite(torch.where(allowed, known, -torch.inf).amax(dim=-1))
    terms = torch.where(allowed, scores - largest[..., None], 0.0).exp() * allowed
    total = terms.sum(dim=-1)
    some = total > 0
    logs = torch.where(some, torch.where(some, total, 1.0).log() + largest, -torch.inf)
    return torch.where((known < torch.inf).all(dim=-1), logs, known.amax(dim=-1))
