"""The third derivative of the matrix-tree theorem in batched tensor operations.

g_hj is the derivative of log Z in the weight of the arc h -> j; it is B_jj - B_jh with the inverse
Laplacian B, and B_jj for the root.  The change of g along u, with dw = w u, is 1 diag(A) - A with
A = g U' g, where U is dw minus its column sums on the diagonal.  The next derivative is that of
this product.  Single root: the sums leave out the root's row of U, and the root's row of the result
leaves out the diagonal.
"""

from typing import NamedTuple

import torch

# The largest difference of a column of marginals from its sum, and of a marginal below 0.
TOLERANCE = 1e-9
# Above this gradient, products of three gradients lose too many digits.
LIMIT = 100.0


class Dense(NamedTuple):
    """Weights (B, n+1, n+1) scaled by column, the gradient of log Z in them, marginals.

    inside : (B, n+1), True for the nodes within the lengths.
    """

    weights: torch.Tensor
    gradient: torch.Tensor
    marginals: torch.Tensor
    inside: torch.Tensor
    single_root: bool

    def trusted(self) -> torch.Tensor:
        """Return a mask (B,) of the items with valid marginals and gradients up to LIMIT."""
        sums = self.marginals[:, :, 1:].sum(dim=1)
        gap = (sums - self.inside[:, 1:].to(sums.dtype)).abs().amax(dim=1)
        good = torch.isfinite(gap) & (self.marginals >= -TOLERANCE).all(dim=2).all(dim=1)
        return good & (gap <= TOLERANCE) & (self.gradient.abs().amax(dim=(1, 2)) <= LIMIT)

    def third(self, v: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        """Return the derivative of Cov v along u."""
        g, w = self.gradient, self.weights
        by_v, both = self._spread(w * v), self._spread(w * u * v)
        slope = self._gradient_change(u)
        left, right = g @ by_v.mT, by_v.mT @ g
        moved = slope @ right + g @ both.mT @ g + left @ slope
        first = self._less(left @ g)
        of_mu = w * u * g + w * slope  # Cov u
        return of_mu * v + w * u * first + w * self._less(moved)

    def _spread(self, changed: torch.Tensor) -> torch.Tensor:
        """Return changes of weights minus their column sums on the diagonal."""
        heads = changed[:, 1:] if self.single_root else changed
        return changed - torch.diag_embed(heads.sum(dim=1))

    def _less(self, a: torch.Tensor) -> torch.Tensor:
        """Return 1 diag(A) - A; single root: without the diagonal in the root's row."""
        own = torch.diagonal(a, dim1=1, dim2=2)[:, None, :].expand_as(a)
        if self.single_root:
            own = torch.cat([torch.zeros_like(own[:, :1]), own[:, 1:]], dim=1)
        return own - a

    def _gradient_change(self, v: torch.Tensor) -> torch.Tensor:
        g = self.gradient
        return self._less(g @ self._spread(self.weights * v).mT @ g)


def solve(arcs: torch.Tensor, lengths: torch.Tensor, *, single_root: bool) -> Dense:
    """Return the marginals and gradients of the float64 scores of arcs (B, n+1, n+1)."""
    nodes = torch.arange(arcs.shape[-1], device=arcs.device)
    inside = nodes <= lengths.to(arcs.device)[:, None]
    allowed = inside[:, :, None] & inside[:, None, :] & (arcs > -torch.inf)
    allowed = allowed & ~torch.eye(len(nodes), dtype=torch.bool, device=arcs.device)
    allowed[:, :, 0] = False
    masked = arcs.masked_fill(~allowed, -torch.inf)
    shift = finite(masked.amax(dim=1, keepdim=True))
    less = torch.where(allowed, arcs - shift, 0.0)
    weights = less.exp() * allowed
    root, among = weights[:, 0, 1:], weights[:, 1:, 1:]
    degree = among.sum(dim=1) + (0.0 if single_root else root)
    outside = (~inside[:, 1:]).to(arcs.dtype)
    laplacian = torch.diag_embed(degree + outside) - among
    if single_root:
        laplacian = torch.cat([root[:, None], laplacian[:, 1:]], dim=1)
        laplacian[:, 0, 0] += outside[:, 0]
    inverse = torch.linalg.inv_ex(laplacian).inverse
    own = torch.diagonal(inverse, dim1=1, dim2=2).clone()
    gradient = torch.zeros_like(weights)
    by_head = inverse.mT.clone()
    if single_root:
        own[:, 0] = 0.0
        by_head[:, 0] = 0.0
        gradient[:, 0, 1:] = inverse[:, :, 0]
    else:
        gradient[:, 0, 1:] = own
    gradient[:, 1:, 1:] = own[:, None, :] - by_head
    arc = inside[:, :, None] & inside[:, None, :]
    gradient = torch.where(arc & ~torch.eye(len(nodes), dtype=torch.bool, device=arcs.device),
                           gradient, 0.0)  # fmt: skip
    return Dense(weights, gradient, weights * gradient, inside, single_root)


def centered(arcs: torch.Tensor) -> torch.Tensor:
    """Return scores minus each dependent's largest, 0 for -inf; covariances do not change."""
    shift = finite(arcs.detach().amax(dim=-2, keepdim=True))
    return torch.where(arcs > -torch.inf, arcs - shift, 0.0)


def finite(values: torch.Tensor) -> torch.Tensor:
    """Return the values with 0 for -inf."""
    return torch.where(values > -torch.inf, values, 0.0)
