"""Covariances of the totals of two vectors r and s: T2 of Zmigrod, Vieira and Cotterell (2021).

T2^v takes one matrix product for each entry of r and of s; T2^h goes through the covariances of
pairs of parts, and adds only where r and s are not zero.  Each has data on which it is many times
as fast as the other, so the operations of both are counted.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.trees.arcs import Vectors
from fstgrad.trees.closed_forms import Covariances

# The time of one operation of T2^h, on single rows, and of one of its rows, in operations of T2^v,
# in products of matrices; measured with 5 to 40 dependents.
ROW_OPERATION, ROW = 10, 200_000


@dataclass(frozen=True)
class ProductCovariances:
    """Covariances of parts without a closed form: one Hessian-vector product for each row.

    product : v -> Cov v for tables of `shape`; it may overwrite v.
    """

    product: Callable[[FloatArray], FloatArray]
    shape: tuple[int, ...]

    __repr__ = short_repr

    def row(self, *part: int) -> FloatArray:
        """Return the covariances of one part, given by its indices, with all parts."""
        unit = np.zeros(self.shape)
        unit[part] = 1.0
        return self.product(unit)

    def matrix(self) -> FloatArray:
        """Return the covariances of all pairs of parts."""
        return np.array([self.row(*part) for part in np.ndindex(self.shape)]).reshape(
            2 * self.shape
        )

    def between(self, r: FloatArray, s: FloatArray) -> FloatArray:
        """Return Cov (R, S) of the totals of r and s, tables like the scores with one more axis."""
        flat = s.reshape(-1, s.shape[-1])
        columns = [self.product(np.ascontiguousarray(r[..., i])) for i in range(r.shape[-1])]
        return np.array(columns).reshape(r.shape[-1], len(flat)) @ flat


def covariance_of_totals(
    covariances: Covariances, shape: tuple[int, ...], r: Vectors, s: Vectors, method: str
) -> FloatArray:
    """Return Cov (R, S) of the totals of r and s: tables with one axis more, or (n_parts, R).

    shape : of the scores, (n+1, n+1) or (n+1, n+1, y).
    method : "vector", "hessian", or "auto" for the one with fewer operations.
    """
    first, second = _Sparsity.of(r), _Sparsity.of(s)
    has_rows = not isinstance(covariances, ProductCovariances)
    by_row = _operations_by_row(shape, first, second, has_rows)
    by_row_of_s = _operations_by_row(shape, second, first, has_rows)
    if method == "auto":
        by_product = _operations_by_product(shape, first, second, has_rows)
        method = "hessian" if min(by_row, by_row_of_s) < by_product else "vector"
    if method == "vector":
        dense = (x if isinstance(x, np.ndarray) else x.toarray() for x in (r, s))
        return covariances.between(*(x.reshape(*shape, x.shape[-1]) for x in dense))
    if by_row_of_s < by_row:
        return _sum_of_rows(covariances, shape, s, r).T
    return _sum_of_rows(covariances, shape, r, s)


def _sum_of_rows(
    covariances: Covariances, shape: tuple[int, ...], r: Vectors, s: Vectors
) -> FloatArray:
    """Return Cov (R, S) as the sum over parts of r_part (Cov[part, all parts] s)'."""
    from scipy.sparse import csr_array

    left, right = (
        csr_array(x.reshape(-1, x.shape[-1]) if isinstance(x, np.ndarray) else x, copy=True)
        for x in (r, s)
    )
    right = right.T.tocsr()
    left.sum_duplicates()
    left.eliminate_zeros()
    total = np.zeros((left.shape[1], right.shape[0]))
    for part in np.flatnonzero(np.diff(left.indptr)):
        row = right @ covariances.row(*(int(i) for i in np.unravel_index(part, shape))).ravel()
        entries = slice(left.indptr[part], left.indptr[part + 1])
        total[left.indices[entries]] += left.data[entries, None] * row
    return total


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
    shape: tuple[int, ...], r: _Sparsity, s: _Sparsity, has_rows: bool
) -> int:
    """Return the number of operations of T2^v."""
    parts = math.prod(shape)
    product = shape[0] * parts
    each = product * (r.length + s.length) if has_rows else (product + ROW) * r.length
    return each + parts * r.length * s.length


def _operations_by_row(shape: tuple[int, ...], r: _Sparsity, s: _Sparsity, has_rows: bool) -> int:
    """Return the number of operations of T2^h, in time of those of T2^v."""
    parts = math.prod(shape)
    each = ROW + ROW_OPERATION * (4 * parts + s.nonzeros) + (0 if has_rows else shape[0] * parts)
    return r.parts * each + ROW_OPERATION * r.nonzeros * s.length


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
