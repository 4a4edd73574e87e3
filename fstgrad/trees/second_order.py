"""Covariances of the totals of two vectors r and s: T2 of Zmigrod, Vieira and Cotterell (2021).

T2^v takes one matrix product for each entry of r and of s; T2^h goes through the covariances of
pairs of parts, and adds only where r and s are not zero (`kernels.second_order`).  Each has data on
which it is many times as fast as the other, so the operations of both are counted.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.trees.arc_covariances import Covariances
from fstgrad.trees.arcs import Vectors

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# The time of one operation of T2^h, which adds single numbers, in operations of T2^v, which
# multiplies matrices; and that of a call of a product without a closed form.  Measured.
SINGLE, CALL = 8, 200_000


@dataclass(frozen=True)
class ProductCovariances:
    """Covariances of parts without a closed form: one Hessian-vector product for each row.

    product : v -> Cov v for tables of `shape`; it may overwrite v.
    """

    product: Callable[[FloatArray], FloatArray]
    shape: tuple[int, ...]

    __repr__ = short_repr

    def matrix(self) -> FloatArray:
        """Return the covariances of all pairs of parts."""
        rows = [self._row(part) for part in range(math.prod(self.shape))]
        return np.array(rows).reshape(2 * self.shape)

    def between(self, r: FloatArray, s: FloatArray) -> FloatArray:
        """Return Cov (R, S) of the totals of r and s, tables like the scores with one more axis."""
        flat = s.reshape(-1, s.shape[-1])
        columns = [self.product(np.array(r[..., i], order="C")) for i in range(r.shape[-1])]
        return np.array(columns).reshape(r.shape[-1], len(flat)) @ flat

    def between_sparse(self, r: "csr_array", s: "csr_array") -> FloatArray:
        """Return Cov (R, S) of the totals of sparse r (n_parts, R) and s (n_parts, S)."""
        total = np.zeros((r.shape[1], s.shape[1]))
        for part in np.flatnonzero(np.diff(r.indptr)).tolist():
            row = np.asarray(s.T @ self._row(part))
            entries = slice(r.indptr[part], r.indptr[part + 1])
            total[r.indices[entries]] += r.data[entries, None] * row
        return total

    def _row(self, part: int) -> FloatArray:
        """Return the covariances of one part with all parts, flat."""
        unit = np.zeros(self.shape)
        unit.flat[part] = 1.0
        return self.product(unit).ravel()


def covariance_of_totals(
    covariances: Covariances, shape: tuple[int, ...], r: Vectors, s: Vectors, method: str
) -> FloatArray:
    """Return Cov (R, S) of the totals of r and s: tables with one axis more, or (n_parts, R).

    shape : of the scores, (n+1, n+1) or (n+1, n+1, y).
    method : "vector", "hessian", or "auto" for the one with fewer operations.
    """
    first, second = _Sparsity.of(r), _Sparsity.of(s)
    is_closed = not isinstance(covariances, ProductCovariances)
    by_row = _operations_by_row(shape, first, second, is_closed)
    by_row_of_s = _operations_by_row(shape, second, first, is_closed)
    if method == "auto":
        by_product = _operations_by_product(shape, first, second, is_closed)
        method = "hessian" if min(by_row, by_row_of_s) < by_product else "vector"
    if method == "vector":
        dense = (x if isinstance(x, np.ndarray) else x.toarray() for x in (r, s))
        return covariances.between(*(x.reshape(*shape, x.shape[-1]) for x in dense))
    left, right = _sparse(r), _sparse(s)
    if by_row_of_s < by_row:
        return covariances.between_sparse(right, left).T
    return covariances.between_sparse(left, right)


def _sparse(r: Vectors) -> "csr_array":
    """Return a copy as (n_parts, R), each entry given once and none of them 0."""
    from scipy.sparse import csr_array

    copy = csr_array(
        r.reshape(math.prod(r.shape[:-1]), r.shape[-1]) if isinstance(r, np.ndarray) else r,
        copy=True,
    )
    copy.data = copy.data.astype(np.float64)
    copy.sum_duplicates()
    copy.eliminate_zeros()
    return copy


class _Sparsity(NamedTuple):
    """Length of the vectors of all parts, number of parts with non-zeros, and of non-zeros."""

    length: int
    parts: int
    nonzeros: int

    @classmethod
    def of(cls, r: Vectors) -> "_Sparsity":
        if isinstance(r, np.ndarray):
            used = r != 0
            return cls(r.shape[-1], int(used.any(axis=-1).sum()), int(used.sum()))
        return cls(r.shape[1], int((np.diff(r.indptr) > 0).sum()), r.nnz)


def _operations_by_product(
    shape: tuple[int, ...], r: _Sparsity, s: _Sparsity, is_closed: bool
) -> int:
    """Return the number of operations of T2^v."""
    parts = math.prod(shape)
    product = shape[0] * parts
    each = product * (r.length + s.length) if is_closed else (product + CALL) * r.length
    return each + parts * r.length * s.length


def _operations_by_row(shape: tuple[int, ...], r: _Sparsity, s: _Sparsity, is_closed: bool) -> int:
    """Return the number of operations of T2^h, in time of those of T2^v."""
    parts = math.prod(shape)
    row = SINGLE * parts if is_closed else shape[0] * parts + CALL
    each = row + SINGLE * (s.nonzeros + s.length)
    return r.parts * each + SINGLE * r.nonzeros * s.length


def unnormalized(means: FloatArray, log_z: FloatArray) -> FloatArray:
    """Return exp(log_z) times `means`; raise InvalidInputError if float64 has no such number."""
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        sizes = np.exp(log_z + np.log(np.abs(means)))
    if ((sizes == np.inf) | ((sizes < np.finfo(np.float64).tiny) & (means != 0))).any():
        worst = float(log_z.flat[np.abs(log_z).argmax()])
        raise InvalidInputError(
            f"totals are outside the range of float64: log Z is {worst:g}; take expectations(r) "
            "or second_moments(r, s), which are totals divided by Z, and log_partition()"
        )
    totals: FloatArray = np.sign(means) * sizes
    return totals
