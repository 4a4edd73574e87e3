"""Spanning-tree quantities on tensors: log Z, marginals and what is made of them."""

from collections.abc import Callable, Sequence

import torch

from fstgrad.errors import InvalidInputError
from fstgrad.torch import matrix_tree
from fstgrad.torch.functions import like, to_numpy
from fstgrad.torch.matrix_tree import Family, finite
from fstgrad.trees.spanning import SpanningTrees

Lengths = torch.Tensor | Sequence[int] | None


def spanning_tree_log_partition(
    scores: torch.Tensor, *, single_root: bool, lengths: Lengths = None, labeled: bool = False
) -> torch.Tensor:
    """Return log Z in nats, () or (B,); three times differentiable.

    Parameters
    ----------
    scores : (n+1, n+1) or (B, n+1, n+1), and (y,) more with `labeled`; float32 or float64
        score[head, dependent(, label)], log-weights; index 0 is the root; -inf forbids.
    single_root : bool
        Whether exactly one arc leaves the root.
    lengths : (B,), optional
        Numbers of dependents.
    labeled : bool
        Whether the last axis holds labels.

    Examples
    --------
    >>> import torch, fstgrad.torch
    >>> scores = torch.zeros(4, 4, dtype=torch.float64)
    >>> log_z = fstgrad.torch.spanning_tree_log_partition(scores, single_root=True)
    >>> round(float(log_z.exp()), 9)
    9.0
    """
    return _on_arcs(matrix_tree.log_partition, scores, single_root, lengths, labeled)


def spanning_tree_nll(
    scores: torch.Tensor,
    gold: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
) -> torch.Tensor:
    """Return -log p(gold) in nats, () or (B,); three times differentiable.

    Parameters
    ----------
    gold : (n,) or (B, n) integer, with labels (n, 2) or (B, n, 2)
        gold[d - 1] is the head of dependent d (and its label); 0 is the root.
    scores, single_root, lengths, labeled
        As in `spanning_tree_log_partition`.

    Raises
    ------
    InvalidInputError
        Gold is not a tree, or has several roots with single_root=True.

    Examples
    --------
    >>> import torch, fstgrad.torch
    >>> heads = torch.tensor([0, 1, 2])
    >>> value = fstgrad.torch.spanning_tree_nll(torch.zeros(4, 4), heads, single_root=True)
    >>> round(float(value.exp()), 4)  # one of 9 trees
    9.0
    """
    batch, family = _batched(scores, single_root, lengths, labeled)
    wide = batch.to(torch.float64)
    trees = SpanningTrees(
        to_numpy(wide), single_root=single_root, lengths=family.lengths, labeled=labeled
    )
    golds = gold.detach().cpu().numpy()
    parts = like(trees.parts(golds if scores.ndim == batch.ndim else golds[None]), wide)
    score = torch.where(parts > 0, wide, 0.0).flatten(1).sum(dim=1)
    log_z = matrix_tree.log_partition(_summed_labels(wide) if labeled else wide, family)
    values = (log_z - score).to(scores.dtype)
    return values if scores.ndim == batch.ndim else values[0]


def spanning_tree_marginals(
    scores: torch.Tensor, *, single_root: bool, lengths: Lengths = None, labeled: bool = False
) -> torch.Tensor:
    """Return the probability of every arc (and label), like the scores; twice differentiable.

    Parameters as in `spanning_tree_log_partition`.
    """
    batch, family = _batched(scores, single_root, lengths, labeled)
    wide = batch.to(torch.float64)
    arcs = _summed_labels(wide) if labeled else wide
    mu = matrix_tree.marginals(arcs, family)
    if labeled:
        allowed = wide > -torch.inf
        shares = torch.where(allowed, wide - finite(arcs)[..., None], 0.0).exp()
        mu = mu[..., None] * torch.where(allowed, shares, 0.0)
    return mu.to(scores.dtype).reshape(scores.shape)


def spanning_tree_entropy(
    scores: torch.Tensor, *, single_root: bool, lengths: Lengths = None
) -> torch.Tensor:
    """Return the entropy in nats, () or (B,), of unlabeled trees; twice differentiable."""
    return _on_arcs(matrix_tree.entropy, scores, single_root, lengths, False)


def spanning_tree_kl(
    p_scores: torch.Tensor,
    q_scores: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
) -> torch.Tensor:
    """Return KL(p || q) in nats, () or (B,), of unlabeled trees; twice differentiable in both."""
    q_batch, _ = _batched(q_scores, single_root, lengths, False)
    return _on_arcs(
        lambda arcs, family: matrix_tree.divergence(arcs, q_batch.to(torch.float64), family),
        p_scores,
        single_root,
        lengths,
        False,
    )


def spanning_tree_risk(
    scores: torch.Tensor,
    costs: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
    labeled: bool = False,
) -> torch.Tensor:
    """Return E[sum of the costs of the arcs], () or (B,); twice differentiable in the scores.

    costs : like the scores; a constant.
    With costs 1 for every arc but the gold ones it is n minus the expected attachments.
    """
    mu = spanning_tree_marginals(scores, single_root=single_root, lengths=lengths, labeled=labeled)
    batch = scores.ndim - (3 if labeled else 2)
    return (mu * costs.to(mu.dtype).detach()).flatten(batch).sum(dim=-1)


def spanning_tree_generalized_expectation(
    scores: torch.Tensor,
    features: torch.Tensor,
    target: torch.Tensor,
    *,
    single_root: bool,
    lengths: Lengths = None,
) -> torch.Tensor:
    """Return 1/2 |E f - target|^2, () or (B,): one Hessian-vector product to differentiate.

    features : scores.shape + (F,); target : (F,) or (B, F).
    """
    mu = spanning_tree_marginals(scores, single_root=single_root, lengths=lengths)
    expected = torch.einsum("...ij,...ijf->...f", mu, features.to(mu.dtype))
    return 0.5 * (expected - target.to(mu.dtype)).square().sum(dim=-1)


def _on_arcs(
    function: Callable[[torch.Tensor, Family], torch.Tensor],
    scores: torch.Tensor,
    single_root: bool,
    lengths: Lengths,
    labeled: bool,
) -> torch.Tensor:
    """Apply a function of float64 arcs (B, n+1, n+1) to scores with or without batch and labels."""
    batch, family = _batched(scores, single_root, lengths, labeled)
    wide = batch.to(torch.float64)
    values = function(_summed_labels(wide) if labeled else wide, family).to(scores.dtype)
    return values if scores.ndim == batch.ndim else values[0]


def _batched(
    scores: torch.Tensor, single_root: bool, lengths: Lengths, labeled: bool
) -> tuple[torch.Tensor, Family]:
    event = 3 if labeled else 2
    if scores.ndim not in (event, event + 1):
        axes = "(n+1, n+1, y)" if labeled else "(n+1, n+1)"
        raise InvalidInputError(
            f"scores has shape {tuple(scores.shape)}; give {axes} or a batch of such tables"
        )
    given = None if lengths is None else tuple(int(length) for length in lengths)
    return (scores if scores.ndim > event else scores[None]), Family(single_root, given)


def _summed_labels(scores: torch.Tensor) -> torch.Tensor:
    """Return log-sum-exp over labels, with the gradient 0 where all are -inf."""
    largest = finite(scores.detach().amax(dim=-1))
    allowed = scores > -torch.inf
    terms = torch.where(allowed, scores - largest[..., None], 0.0).exp() * allowed
    total = terms.sum(dim=-1)
    some = total > 0
    return torch.where(some, torch.where(some, total, 1.0).log() + largest, -torch.inf)
