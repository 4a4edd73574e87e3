"""Spanning trees as autograd functions, with derivatives from Hessian-vector products.

log Z, the marginals mu and the product Cov v form a chain in which each is the derivative of the
one before; the first three links are the closed forms of `fstgrad.trees`.  What lies beyond, the
derivative of Cov v, and everything on a GPU, comes from dense linear algebra in PyTorch
(`native_log_partition`), which is checked and left to the CPU where determinants are not stable.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import torch

from fstgrad.torch import functions
from fstgrad.torch.functions import like, to_numpy
from fstgrad.trees.spanning import SpanningTrees

_TOLERANCE = 1e-9  # of column sums of marginals on the GPU


@dataclass(frozen=True)
class Family:
    """What the functions below share: which trees, of which lengths."""

    single_root: bool
    lengths: tuple[int, ...] | None

    def trees(self, arcs: torch.Tensor) -> SpanningTrees:
        """Return the trees of unlabeled arcs (B, n+1, n+1) as arrays."""
        return SpanningTrees(
            to_numpy(arcs), single_root=self.single_root, lengths=self.lengths, labeled=False
        )

    def solve(self, arcs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log Z (B,) and the marginals of float64 arcs (B, n+1, n+1)."""
        done = self._on_device(arcs)
        if done is not None:
            return done
        trees = self.trees(arcs)
        return like(trees.log_partition(), arcs), like(trees.marginals(), arcs)

    def product(self, arcs: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """Return Cov v of float64 arcs and direction."""
        if self._on_device(arcs) is not None:
            return self.native_product(arcs, direction).detach()
        return like(self.trees(arcs).covariance_product(to_numpy(direction)), arcs)

    def entropy(self, arcs: torch.Tensor) -> torch.Tensor:
        """Return the entropy (B,) in nats of float64 arcs."""
        done = self._on_device(arcs)
        if done is None:
            return like(self.trees(arcs).entropy(), arcs)
        log_z, mu = done
        return (self._centered_log_z(arcs, log_z) - _inner(mu, _centered(arcs))).clamp_min(0.0)

    def divergence(self, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        """Return KL(p || q) (B,) in nats, +inf where q forbids an arc that p takes."""
        of_p, of_q = self._on_device(p), self._on_device(q)
        if of_p is None or of_q is None:
            return like(self.trees(p).kl(self.trees(q)), p)
        log_ratio = self._centered_log_z(q, of_q[0]) - self._centered_log_z(p, of_p[0])
        value = log_ratio + _inner(of_p[1], _centered(p) - _centered(q))
        forbidden = ((of_p[1] > 0) & (q == -torch.inf)).any(dim=2).any(dim=1)
        return torch.where(forbidden, torch.inf, value.clamp_min(0.0))

    def native_product(self, arcs: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """Return Cov v as an expression that autograd can differentiate."""
        with torch.enable_grad():
            point = arcs if arcs.requires_grad else arcs.detach().requires_grad_()
            (mu,) = torch.autograd.grad(self._native(point).sum(), point, create_graph=True)
            (product,) = torch.autograd.grad((mu * direction).sum(), point, create_graph=True)
        return product

    def _native(self, arcs: torch.Tensor) -> torch.Tensor:
        return native_log_partition(arcs, single_root=self.single_root, lengths=self.lengths)

    def _centered_log_z(self, arcs: torch.Tensor, log_z: torch.Tensor) -> torch.Tensor:
        """Return log Z of the centered scores: less one constant for each dependent."""
        return log_z - (_shift(arcs)[:, 0] * inside_of(arcs, self.lengths))[:, 1:].sum(dim=1)

    def _on_device(self, arcs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return log Z and marginals from a GPU, None where the CPU has to find them."""
        if not functions.on_gpu(arcs):
            return None
        point = arcs.detach().requires_grad_()
        with torch.enable_grad():
            log_z = self._native(point)
            (mu,) = torch.autograd.grad(log_z.sum(), point)
        sums = mu[:, :, 1:].sum(dim=1)
        wanted = inside_of(arcs, self.lengths)[:, 1:].to(torch.float64)
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
    def forward(ctx: Any, arcs: torch.Tensor, family: Family) -> torch.Tensor:
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
        ctx: Any, arcs: torch.Tensor, family: Family, known: torch.Tensor | None
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
        ctx: Any, arcs: torch.Tensor, direction: torch.Tensor, family: Family
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
    def forward(ctx: Any, arcs: torch.Tensor, family: Family) -> torch.Tensor:
        ctx.family = family
        ctx.save_for_backward(arcs)
        return family.entropy(arcs.detach())

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None]:
        (arcs,) = ctx.saved_tensors
        product = _apply(_Product, arcs, _centered(arcs), ctx.family)
        return -upstream[0][:, None, None] * product, None


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, p: torch.Tensor, q: torch.Tensor, family: Family) -> torch.Tensor:
        ctx.family = family
        ctx.save_for_backward(p, q)
        return family.divergence(p.detach(), q.detach())

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        p, q = ctx.saved_tensors
        weight = upstream[0][:, None, None]
        product = _apply(_Product, p, _centered(p) - _centered(q), ctx.family)
        mu_p, mu_q = (_apply(_Marginals, x, ctx.family, None) for x in (p, q))
        return weight * product, weight * (mu_q - mu_p), None


def log_partition(arcs: torch.Tensor, family: Family) -> torch.Tensor:
    """Return log Z (B,); three times differentiable."""
    return _apply(_LogPartition, arcs, family)


def marginals(arcs: torch.Tensor, family: Family) -> torch.Tensor:
    """Return the probability of every arc, like the arcs; twice differentiable."""
    return _apply(_Marginals, arcs, family, None)


def entropy(arcs: torch.Tensor, family: Family) -> torch.Tensor:
    """Return the entropy (B,) in nats; twice differentiable."""
    return _apply(_Entropy, arcs, family)


def divergence(p: torch.Tensor, q: torch.Tensor, family: Family) -> torch.Tensor:
    """Return KL(p || q) (B,) in nats; twice differentiable in both."""
    return _apply(_Divergence, p, q, family)


def native_log_partition(
    arcs: torch.Tensor, *, single_root: bool, lengths: tuple[int, ...] | None = None
) -> torch.Tensor:
    """Return log Z (B,) of arcs (B, n+1, n+1) by the matrix-tree theorem, in tensor operations."""
    inside = inside_of(arcs, lengths)
    nodes = arcs.shape[-1]
    allowed = inside[:, :, None] & inside[:, None, :] & (arcs > -torch.inf)
    allowed = allowed & ~torch.eye(nodes, dtype=torch.bool, device=arcs.device)
    allowed[:, :, 0] = False
    masked = arcs.masked_fill(~allowed, -torch.inf)
    shift = finite(masked.detach().amax(dim=1, keepdim=True))
    weights = torch.where(allowed, arcs - shift, 0.0).exp() * allowed
    root, among = weights[:, 0, 1:], weights[:, 1:, 1:]
    degree = among.sum(dim=1) + (0.0 if single_root else root)
    outside = (~inside[:, 1:]).to(arcs.dtype)
    laplacian = torch.diag_embed(degree + outside) - among
    if single_root:
        laplacian = torch.cat([root[:, None], laplacian[:, 1:]], dim=1)
    determinant: torch.Tensor = torch.linalg.slogdet(laplacian).logabsdet
    return determinant + (shift[:, 0, 1:] * inside[:, 1:]).sum(dim=1)


def _apply(function: type[torch.autograd.Function], *arguments: object) -> torch.Tensor:
    result: torch.Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]
    return result


def _centered(arcs: torch.Tensor) -> torch.Tensor:
    """Return scores less a constant of each dependent, which no covariance sees; -inf as 0."""
    return torch.where(arcs > -torch.inf, arcs - _shift(arcs), 0.0)


def _shift(arcs: torch.Tensor) -> torch.Tensor:
    """Return the largest score of each dependent (B, 1, n+1), 0 where all are -inf."""
    return finite(arcs.detach().amax(dim=-2, keepdim=True))


def _inner(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return (left * right).sum(dim=(1, 2))


def finite(values: torch.Tensor) -> torch.Tensor:
    """Return the values with 0 for -inf."""
    return torch.where(values > -torch.inf, values, 0.0)


def inside_of(arcs: torch.Tensor, lengths: tuple[int, ...] | None) -> torch.Tensor:
    """Return which nodes (B, n+1) belong to the items."""
    nodes = torch.arange(arcs.shape[-1], device=arcs.device)
    if lengths is None:
        return torch.ones(arcs.shape[0], arcs.shape[-1], dtype=torch.bool, device=arcs.device)
    inside: torch.Tensor = torch.le(nodes, torch.as_tensor(lengths, device=arcs.device)[:, None])
    return inside
