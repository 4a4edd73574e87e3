"""Covariances of arcs in closed form, from the gradient g of log Z in the weights w.

With g_hj = d log Z / d w_hj, b_h = 1, except b_0 = 0 with a single root, and arcs h -> j, k -> l:

    d g_hj / d w_kl = -(g_kj - b_k g_lj) (g_hl - b_h g_jl),

so a row of the covariances costs O(n^2), and all of them O(n^4).  For totals <r, t> and <s, t>,

    Cov[r, s] = <mu, r s> - tr(g U_r' g U_s'),

where U_r is w r minus its column sums over the heads with b = 1 on the diagonal: one matrix product
for each r and each s, and one for all of them together.
"""

from dataclasses import dataclass

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.summary import short_repr
from fstgrad.core.uninitialized import empty


@dataclass(frozen=True)
class ArcCovariances:
    """Weights w, gradient g and marginals mu of one unlabeled table, (n+1, n+1)."""

    w: FloatArray
    g: FloatArray
    mu: FloatArray
    single_root: bool

    __repr__ = short_repr

    @property
    def below(self) -> FloatArray:
        """Return b (n+1,)."""
        ones = np.ones(len(self.w))
        ones[0] = 0.0 if self.single_root else 1.0
        return ones

    def row(self, head: int, dependent: int) -> FloatArray:
        """Return the covariances of one arc with all arcs, (n+1, n+1)."""
        h, j, g, b = head, dependent, self.g, self.below
        left = g[:, j, None] - b[:, None] * g[:, j]
        row: FloatArray = -self.w[h, j] * self.w * left * (g[h] - b[h] * g[j])
        row[h, j] += self.mu[h, j]
        return row

    def matrix(self) -> FloatArray:
        """Return the covariances of all pairs of arcs, (n+1, n+1, n+1, n+1)."""
        g, b = self.g, self.below
        size = len(g)
        out = empty((size,) * 4)
        for j in range(size):
            left = self.w * (g[:, j, None] - b[:, None] * g[:, j])
            right = self.w[:, j, None] * (g - b[:, None] * g[j])
            np.multiply(-right[:, None, :], left, out=out[:, j])
            out[np.arange(size), j, np.arange(size), j] += self.mu[:, j]
        return out

    def between(self, r: FloatArray, s: FloatArray) -> FloatArray:
        """Return Cov (R, S) of totals of r (n+1, n+1, R) and s (n+1, n+1, S)."""
        size = self.w.size
        left = (self.g @ self._spread(r)).reshape(-1, size)
        right = (self.g @ self._spread(s)).swapaxes(1, 2).reshape(-1, size)
        own = (self.mu[..., None] * r).reshape(size, -1).T @ s.reshape(size, -1)
        result: FloatArray = own - left @ right.T
        return result

    def _spread(self, r: FloatArray) -> FloatArray:
        """Return U' for each total, (R, n+1, n+1)."""
        changed = np.ascontiguousarray((self.w[..., None] * r).transpose(2, 1, 0))
        total = changed @ self.below
        index = np.arange(len(self.w))
        changed[:, index, index] -= total
        return changed


@dataclass(frozen=True)
class LabelCovariances:
    """Covariances of arcs with labels, from those of the arcs and the shares (n+1, n+1, y)."""

    arcs: ArcCovariances
    shares: FloatArray

    __repr__ = short_repr

    def row(self, head: int, dependent: int, label: int) -> FloatArray:
        """Return the covariances of one labeled arc with all, (n+1, n+1, y)."""
        own = self.shares[head, dependent]
        row: FloatArray = own[label] * self.arcs.row(head, dependent)[..., None] * self.shares
        row[head, dependent] -= self.arcs.mu[head, dependent] * own[label] * own
        row[head, dependent, label] += self.arcs.mu[head, dependent] * own[label]
        return row

    def matrix(self) -> FloatArray:
        """Return the covariances of all pairs, (n+1, n+1, y) twice."""
        size, labels = len(self.shares), self.shares.shape[-1]
        flat = self.shares.reshape(size * size, labels)
        pairs = self.arcs.matrix().reshape(size * size, size * size)
        out: FloatArray = flat[:, :, None, None] * pairs[:, None, :, None] * flat
        index = np.arange(size * size)
        same = np.eye(labels) * flat[:, None, :] - flat[:, :, None] * flat[:, None, :]
        out[index, :, index, :] += self.arcs.mu.reshape(-1, 1, 1) * same
        return out

    def between(self, r: FloatArray, s: FloatArray) -> FloatArray:
        """Return Cov (R, S) of totals of r (n+1, n+1, y, R) and s (n+1, n+1, y, S)."""
        first, second = (np.einsum("ijy,ijyr->ijr", self.shares, x) for x in (r, s))
        own = self.arcs.mu[..., None] * self.shares
        size = own.size
        inner = (own[..., None] * r).reshape(size, -1).T @ s.reshape(size, -1)
        flat = self.arcs.mu.size
        mean = (self.arcs.mu[..., None] * first).reshape(flat, -1).T @ second.reshape(flat, -1)
        result: FloatArray = self.arcs.between(first, second) + inner - mean
        return result
