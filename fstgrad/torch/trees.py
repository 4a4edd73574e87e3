"""Spanning-tree quantities on tensors, with derivatives from Hessian-vector products.

log Z, the marginals mu and the product Cov v form a chain in which each is the derivative of the
one before; the first three links are the closed forms of `fstgrad.trees`.  What lies beyond, the
derivative of Cov v, and everything on a GPU, comes from dense linear algebra in PyTorch
(`native_log_partition`), which is checked and left to the CPU where determinants are not stable.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fstgrad.errors import InvalidInputError
from fstgrad.torch.functions import like, to_numpy
from fstgrad.trees.spanning import SpanningTrees

Lengths = torch.Tensor | Sequence[int] | None
_TOLERANCE = 1e-9  # of column sums of marginals on the GPU


@dataclass(frozen=True)
class _Family:
    """What the functions below share: which trees, of which lengths."""

    single_root: bool
    lengths: tuple[int, ...] | None

    def trees(self, arcs: torch.Tensor) -> SpanningTrees:
        return SpanningTrees(
            to_numpy(arcs), single_root=self.single_root, lengths=self.lengths, labeled=False
        )

    def solve(self, arcs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log Z (B,) and the marginals of float64 arcs (B, n+1, n+1)."""
        if arcs.is_cuda:
            done = self._on_device(arcs)
            if done is not None:
                return done
        trees = self.trees(arcs)
        return like(trees.log_partition(), arcs), like(trees.marginals(), arcs)

    def product(self, arcs: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """Return Cov v of float64 arcs and direction."""
        if arcs.is_cuda and self._on_device(arcs) is not None:
            return self.native_product(arcs, direction).detach()
        return like(self.trees(arcs).covariance_product(to_numpy(direction)), arcs)

    def native(self, arcs: torch.Tensor) -> torch.Tensor:
        return native_log_partition(arcs, single_root=self.single_root, lengths=self.lengths)

    def native_product(self, arcs: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """Return Cov v as an expression that autograd can differentiate."""
        with torch.enable_grad():
            point = arcs if arcs.requires_grad else arcs.detach().requires_grad_()
            (mu,) = torch.autograd.grad(self.native(point).sum(), point, create_graph=True)
            (product,) = torch.autograd.grad((mu * direction).sum(), point, create_graph=True)
        return product

    def _on_device(self, arcs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        point = arcs.detach().requires_grad_()
        with torch.enable_grad():
            log_z = self.native(point)
            (mu,) = torch.autograd.grad(log_z.sum(), point)
        sums = mu[:, :, 1:].sum(dim=1)
        wanted = _inside(arcs, self.lengths)[:, 1:].to(torch.float64)
        stable = torch.isfinite(mu).all() and (mu >= -_TOLERANCE).all()
        if stable and ((sums - wanted).abs() <= _TOLERANCE).all():
            return log_z.detach(), mu
        warnings.warn(
            "spanning trees whose determinant is not stable in float64 are computed on the CPU",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, arcs: torch.Tensor, family: _Family) -> torch.Tensor:
        log_z, mu = family.solve(arcs.detach())
        ctx.family = family
        ctx.save_for_backward(arcs, mu)
        return log_z

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None]:
        arcs, mu = ctx.saved_tensors
        return upstream[0][:, None, None] * _apply(_Marginals, arcs, ctx.family, mu), None


class _Marginals(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, arcs: torch.Tensor, family: _Family, known: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.family = family
        ctx.save_for_backward(arcs)
        return family.solve(arcs.detach())[1] if known is None else known.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (arcs,) = ctx.saved_tensors
        return _apply(_Product, arcs, upstream[0], ctx.family), None, None


class _Product(torch.autograd.Function):
    """Cov v as a function of the scores and of v, in which it is linear and symmetric."""

    @staticmethod
    def forward(
        ctx: Any, arcs: torch.Tensor, direction: torch.Tensor, family: _Family
    ) -> torch.Tensor:
        ctx.family = family
        ctx.save_for_backward(arcs, direction)
        return family.product(arcs.detach(), direction.detach())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[Any, ...]:
        arcs, direction = (tensor.detach() for tensor in ctx.saved_tensors)
        by_arcs = by_direction = None
        if ctx.needs_input_grad[0]:
            with torch.enable_grad():
                point = arcs.clone().requires_grad_()
                product = ctx.family.native_product(point, direction)
                (by_arcs,) = torch.autograd.grad((product * upstream[0]).sum(), point)
        if ctx.needs_input_grad[1]:
            by_direction = ctx.family.product(arcs, upstream[0])
        return by_arcs, by_direction, None


class _Entropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, arcs: torch.Tensor, family: _Family) -> torch.Tensor:
        ctx.family = family
        ctx.save_for_backward(arcs)
        return like(family.trees(arcs.detach()).entropy(), arcs)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None]:
        (arcs,) = ctx.saved_tensors
        product = _apply(_Product, arcs, _centered(arcs), ctx.family)
        return -upstream[0][:, None, None] * product, None


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: torch.Tensor, q: torch.Tensor, family: _Family) -> torch.Tensor:
        ctx.family = family
        ctx.save_for_backward(p, q)
        return like(family.trees(p.detach()).kl(family.trees(q.detach())), p)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        p, q = ctx.saved_tensors
        weight = upstream[0][:, None, None]
        product = _apply(_Product, p, _centered(p) - _centered(q), ctx.family)
        mu_p, mu_q = (_apply(_Marginals, x, ctx.family, None) for x in (p, q))
        return weight * product, weight * (mu_q - mu_p), None


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
    return _on_arcs(
        lambda arcs, family: _apply(_LogPartition, arcs, family),
        scores,
        single_root,
        lengths,
        labeled,
    )


def spanning_tree_marginals(
    scores: torch.Tensor, *, single_root: bool, lengths: Lengths = None, labeled: bool = False
) -> torch.Tensor:
    """Return the probability of every arc (and label), like the scores; twice differentiable.

    Parameters as in `spanning_tree_log_partition`.
    """
    batch, family = _batched(scores, single_root, lengths, labeled)
    wide = batch.to(torch.float64)
    arcs = _summed_labels(wide) if labeled else wide
    mu = _apply(_Marginals, arcs, family, None)
    if labeled:
        allowed = wide > -torch.inf
        shares = torch.where(allowed, wide - _finite(arcs)[..., None], 0.0).exp()
        mu = mu[..., None] * torch.where(allowed, shares, 0.0)
    return mu.to(scores.dtype).reshape(scores.shape)


def spanning_tree_entropy(
    scores: torch.Tensor, *, single_root: bool, lengths: Lengths = None
) -> torch.Tensor:
    """Return the entropy in nats, () or (B,), of unlabeled trees; twice differentiable."""
    return _on_arcs(
        lambda arcs, family: _apply(_Entropy, arcs, family), scores, single_root, lengths, False
    )


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
        lambda arcs, family: _apply(_Divergence, arcs, q_batch.to(torch.float64), family),
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


def native_log_partition(
    arcs: torch.Tensor, *, single_root: bool, lengths: tuple[int, ...] | None = None
) -> torch.Tensor:
    """Return log Z (B,) of arcs (B, n+1, n+1) by the matrix-tree theorem, in tensor operations."""
    inside = _inside(arcs, lengths)
    nodes = arcs.shape[-1]
    allowed = inside[:, :, None] & inside[:, None, :] & (arcs > -torch.inf)
    allowed = allowed & ~torch.eye(nodes, dtype=torch.bool, device=arcs.device)
    allowed[:, :, 0] = False
    masked = arcs.masked_fill(~allowed, -torch.inf)
    shift = _finite(masked.detach().amax(dim=1, keepdim=True))
    weights = torch.where(allowed, arcs - shift, 0.0).exp() * allowed
    root, among = weights[:, 0, 1:], weights[:, 1:, 1:]
    degree = among.sum(dim=1) + (0.0 if single_root else root)
    outside = (~inside[:, 1:]).to(arcs.dtype)
    laplacian = torch.diag_embed(degree + outside) - among
    if single_root:
        laplacian = torch.cat([root[:, None], laplacian[:, 1:]], dim=1)
    determinant: torch.Tensor = torch.linalg.slogdet(laplacian).logabsdet
    return determinant + (shift[:, 0, 1:] * inside[:, 1:]).sum(dim=1)


def _on_arcs(
    function: Callable[[torch.Tensor, _Family], torch.Tensor],
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
) -> tuple[torch.Tensor, _Family]:
    event = 3 if labeled else 2
    if scores.ndim not in (event, event + 1):
        axes = "(n+1, n+1, y)" if labeled else "(n+1, n+1)"
        raise InvalidInputError(
            f"scores has shape {tuple(scores.shape)}; give {axes} or a batch of such tables"
        )
    given = None if lengths is None else tuple(int(length) for length in lengths)
    return (scores if scores.ndim > event else scores[None]), _Family(single_root, given)


def _apply(function: type[torch.autograd.Function], *arguments: object) -> torch.Tensor:
    result: torch.Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]
    return result


def _summed_labels(scores: torch.Tensor) -> torch.Tensor:
    """Return log-sum-exp over labels, with the gradient 0 where all are -inf."""
    largest = _finite(scores.detach().amax(dim=-1))
    allowed = scores > -torch.inf
    terms = torch.where(allowed, scores - largest[..., None], 0.0).exp() * allowed
    total = terms.sum(dim=-1)
    some = total > 0
    return torch.where(some, torch.where(some, total, 1.0).log() + largest, -torch.inf)


def _centered(arcs: torch.Tensor) -> torch.Tensor:
    """Return scores less a constant of each dependent, which no covariance sees; -inf as 0."""
    shift = _finite(arcs.detach().amax(dim=-2, keepdim=True))
    return torch.where(arcs > -torch.inf, arcs - shift, 0.0)


def _finite(values: torch.Tensor) -> torch.Tensor:
    return torch.where(values > -torch.inf, values, 0.0)


def _inside(arcs: torch.Tensor, lengths: tuple[int, ...] | None) -> torch.Tensor:
    """Return which nodes (B, n+1) belong to the items."""
    nodes = torch.arange(arcs.shape[-1], device=arcs.device)
    if lengths is None:
        return torch.ones(arcs.shape[0], arcs.shape[-1], dtype=torch.bool, device=arcs.device)
    inside: torch.Tensor = torch.le(nodes, torch.as_tensor(lengths, device=arcs.device)[:, None])
    return inside
