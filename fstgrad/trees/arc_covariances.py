"""Closed forms for spanning trees: covariances of arcs, and expected products of signs.

Covariances come from the gradient g of log Z in the weights w.

With g_hj = d log Z / d w_hj, b_h = 1, except b_0 = 0 with a single root, and arcs h -> j, k -> l:

    d g_hj / d w_kl = -(g_kj - b_k g_lj) (g_hl - b_h g_jl),

so all covariances cost O(n^4).  For totals <r, t> and <s, t>,

    Cov[r, s] = <mu, r s> - tr(g U_r' g U_s'),

where U_r is w r minus its column sums over the heads with b = 1 on the diagonal: one matrix product
for each r and each s, and one for all of them together.

A sum over trees of both signs is the determinant of a Laplacian with negative weights.  In float64
its error may exceed the sum of the absolute values, because the diagonal of a Laplacian hides the
weight of the arcs into a cycle.  If an estimate of the error is too large, the determinant is
computed on integers, without rounding (Bareiss 1968).
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray
from fstgrad.core.short_repr import short_repr
from fstgrad.core.uninitialized import empty
from fstgrad.trees import kernels

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NEGLIGIBLE = 1e-18  # arcs whose probabilities add up to this are left out
GOAL = 1e-13  # the largest estimated error of a determinant in float64
_BITS = 53  # of a mantissa
_FIRST_ORDER = 1e-3  # below this, terms of second order do not matter


class Covariances(Protocol):
    """Covariances of the parts of one structure."""

    def matrix(self) -> FloatArray:
        """Return the covariances of all pairs of parts."""

    def between(self, r: FloatArray, s: FloatArray) -> FloatArray:
        """Return Cov (R, S) of the totals of r and s, tables like the scores with one more axis."""

    def between_sparse(self, r: "csr_array", s: "csr_array") -> FloatArray:
        """Return Cov (R, S) of the totals of sparse r (n_parts, R) and s (n_parts, S)."""


@dataclass(frozen=True)
class ArcCovariances:
    """Weights w, gradient g and marginals mu of one unlabeled table, (n+1, n+1)."""

    w: FloatArray
    g: FloatArray
    mu: FloatArray
    single_root: bool

    __repr__ = short_repr

    @property
    def b(self) -> FloatArray:
        """Return b (n+1,)."""
        b = np.ones(len(self.w))
        b[0] = 0.0 if self.single_root else 1.0
        return b

    def matrix(self) -> FloatArray:
        """Return the covariances of all pairs of arcs, (n+1, n+1, n+1, n+1)."""
        g, b = self.g, self.b
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
        of_same_arc = (self.mu[..., None] * r).reshape(size, -1).T @ s.reshape(size, -1)
        result: FloatArray = of_same_arc - left @ right.T
        return result

    def between_sparse(self, r: "csr_array", s: "csr_array") -> FloatArray:
        """Return Cov (R, S) of totals of r ((n+1)^2, R) and s ((n+1)^2, S)."""
        first, second = (
            kernels.second_order.SparseVectors(
                x.indptr.astype(np.int64), x.indices.astype(np.int64), x.data
            )
            for x in (r, s)
        )
        total = np.zeros((r.shape[1], s.shape[1]))
        w, g, b = np.ascontiguousarray(self.w), np.ascontiguousarray(self.g), self.b
        kernels.second_order.add_covariances(w, g, b, first, second, total)
        return total

    def _spread(self, r: FloatArray) -> FloatArray:
        """Return U' for each total, (R, n+1, n+1)."""
        changed = np.ascontiguousarray((self.w[..., None] * r).transpose(2, 1, 0))
        total = changed @ self.b
        index = np.arange(len(self.w))
        changed[:, index, index] -= total
        return changed


@dataclass(frozen=True)
class LabelCovariances:
    """Covariances of arcs with labels, from those of the arcs and the shares (n+1, n+1, y)."""

    arcs: ArcCovariances
    shares: FloatArray

    __repr__ = short_repr

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
        mu = self.arcs.mu[..., None] * self.shares
        size = mu.size
        of_same_label = (mu[..., None] * r).reshape(size, -1).T @ s.reshape(size, -1)
        flat = self.arcs.mu.size
        mean = (self.arcs.mu[..., None] * first).reshape(flat, -1).T @ second.reshape(flat, -1)
        result: FloatArray = self.arcs.between(first, second) + of_same_label - mean
        return result

    def between_sparse(self, r: "csr_array", s: "csr_array") -> FloatArray:
        """Return Cov (R, S) of totals of r ((n+1)^2 y, R) and s ((n+1)^2 y, S)."""
        from scipy.sparse import csr_array

        flat, labels = self.arcs.mu.size, self.shares.shape[-1]
        places = np.arange(flat * labels), np.arange(0, flat * labels + 1, labels)
        average = csr_array((self.shares.ravel(), *places), shape=(flat, flat * labels))
        first, second = average @ r, average @ s
        mu = (self.arcs.mu[..., None] * self.shares).reshape(-1, 1)
        same = r.T @ (s * mu) - first.T @ (second * self.arcs.mu.reshape(-1, 1))
        result: FloatArray = self.arcs.between_sparse(first, second) + same.toarray()
        return result


def expected_sign(
    log_w: FloatArray, log_z: float, marginals: FloatArray, signs: FloatArray, single_root: bool
) -> float:
    """Return E[product of the signs of the arcs], with an error of about 1e-13.

    Parameters
    ----------
    log_w : (n+1, n+1), log-weights of arcs in nats; the largest of each column is about 0.
    log_z : log of the sum over trees of their weights.
    marginals : (n+1, n+1), probabilities of the arcs.
    signs : (n+1, n+1), -1 or 1, where the marginals are above 0.
    """
    used = marginals > NEGLIGIBLE / marginals.size
    w = np.where(used, signs, 0.0) * np.exp(np.where(used, log_w, 0.0))
    if (w >= 0).all():
        return 1.0
    matrix = _laplacian(w, single_root)
    sign, log_size = np.linalg.slogdet(matrix)
    value = float(sign * np.exp(log_size - log_z)) if np.isfinite(log_size) else 0.0
    if value != 0 and abs(value) * _error(matrix, _laplacian(abs(w), single_root, 1)) <= GOAL:
        return value
    mantissas, exponents = np.frexp(w)
    smallest = np.where(w == 0, 0, exponents).min(axis=0)
    integers = np.ldexp(mantissas, _BITS).astype(np.int64).astype(object)
    shifts = np.where(w == 0, 0, exponents - smallest)
    exact = determinant(_laplacian(integers * 2 ** shifts.astype(object), single_root))
    scale = int(smallest[1:].sum()) - _BITS * (len(w) - 1)
    excess = max(0, exact.bit_length() - 64)
    return float(exact >> excess) * math.exp((excess + scale) * math.log(2) - log_z)


def _laplacian(w: npt.NDArray[Any], single_root: bool, side: int = -1) -> npt.NDArray[Any]:
    """Return the Laplacian of weights (n+1, n+1); with side=1, the sizes of its terms."""
    inner = w[1:, 1:] * (1 - np.eye(len(w) - 1, dtype=np.int64))
    matrix = np.diag((inner if single_root else w[:, 1:]).sum(axis=0)) + side * inner
    if single_root:
        matrix[0] = w[0, 1:]
    return matrix


def _error(matrix: FloatArray, terms: FloatArray) -> float:
    """Return an estimate of the relative error of a determinant by elimination; may be inf.

    For a rounded matrix A + E it is tr(|A^-1| |E|), if this holds to first order: if |A^-1| |E| is
    small.
    """
    from scipy.linalg import lu

    order, lower, upper = lu(matrix)
    try:
        inverse = np.abs(np.linalg.inv(matrix))
    except np.linalg.LinAlgError:
        return np.inf
    rounded = np.finfo(np.float64).eps * (order @ (np.abs(lower) @ np.abs(upper)) + terms)
    product = inverse @ rounded
    return float(np.trace(product)) if product.sum(axis=1).max() < _FIRST_ORDER else np.inf


def determinant(matrix: npt.NDArray[Any]) -> int:
    """Return the determinant of a square matrix of Python integers, exactly."""
    m, sign, before = matrix.copy(), 1, 1
    for k in range(len(m) - 1):
        rows = np.flatnonzero(m[k:, k])
        if len(rows) == 0:
            return 0
        if (row := k + int(rows[0])) > k:
            m[[k, row]], sign = m[[row, k]], -sign
        rest = m[k + 1 :, k + 1 :] * m[k, k] - np.outer(m[k + 1 :, k], m[k, k + 1 :])
        m[k + 1 :, k + 1 :], before = rest // before, m[k, k]
    return int(sign * m[-1, -1])
