"""The columns of one term of the design, stored as sparse entries or computed on demand.

A stored block has its entries twice, by column and by row.  A scan needs the product of all columns
with a residual.  Most samples, those in which no active set occurs, have the same residual; so the
product is this value times the sums of the columns, plus corrections from the other rows.

A streamed block stores only the statistics Z (n, p).  The products of all pairs of columns with a
residual r are the matrix Z' diag(r) Z; larger sets need a sequence of such matrices.

Columns = (indptr (c + 1,), rows, values): sparse columns, concatenated.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.uninitialized import empty
from fstgrad.grm import kernels

STORED_BYTES = 72  # for each entry: key, row, column, value, their order and their sorted copies
MADE_COST = 16  # cost of a column computed alone, relative to one of all columns at once
CHUNK = 4_000_000  # entries of columns that are computed at once
SAMPLE = 100  # entries of a residual from which its most frequent value is guessed
Columns = tuple[IntArray, IntArray, FloatArray]


class Term(NamedTuple):
    """The tensor Psi_(root)^(size): sets of `size` variables, coupled through x^(1/root)."""

    size: int
    root: int


@dataclass(frozen=True)
class Block(ABC):
    """The columns of one term of size >= 2.

    Column i is the product of the statistics t_root of the variables in members[i].

    members : (c, size - 1) int64, sets of variables, each ascending, in the order of `keys`.
    keys : (c,) int64, their combinatorial numbers, ascending.
    scale : (c,) float64, the factor of the penalty of each column.
    """

    term: Term
    members: IntArray
    keys: IntArray
    scale: FloatArray

    def find(self, keys: IntArray) -> IntArray:
        """Return the numbers of the columns with these keys, -1 if the block has none."""
        if not self.keys.size:
            return np.full(keys.size, -1)
        at = np.minimum(np.searchsorted(self.keys, keys), self.keys.size - 1)
        return np.where(self.keys[at] == keys, at, -1)

    @abstractmethod
    def entries(self, columns: IntArray) -> int:
        """Return the total number of entries of the columns."""

    @abstractmethod
    def gather(self, columns: IntArray) -> Columns:
        """Return (indptr, rows, values) of the columns, concatenated."""

    @abstractmethod
    def products(self, columns: IntArray, vector: FloatArray) -> FloatArray:
        """Return the inner product of each of the columns with a vector (n,)."""

    @abstractmethod
    def tables(self, vectors: FloatArray) -> FloatArray:
        """Return the inner products (m, C) of all columns with vectors (m, n)."""

    @abstractmethod
    def sums_of_squares(self, weights: FloatArray) -> FloatArray:
        """Return the sum of the squares of every column, times the weights (n,), (c,)."""


@dataclass(frozen=True)
class StoredBlock(Block):
    """Columns with stored entries, the nonzero products prod x^(1/j), twice.

    indptr (c + 1,), rows, values : by column (CSC).
    row_indptr (n + 1,), row_columns, row_values : by row (CSR); row_columns is int32.
    """

    indptr: IntArray
    rows: IntArray
    values: FloatArray
    row_indptr: IntArray
    row_columns: npt.NDArray[np.int32]
    row_values: FloatArray

    @cached_property
    def sums(self) -> FloatArray:
        """The sum of every column, (c,)."""
        sums = np.bincount(self.row_columns, self.row_values, minlength=self.keys.size)
        return sums.astype(np.float64, copy=False)

    def entries(self, columns: IntArray) -> int:
        """Return how many entries the columns have."""
        return int((self.indptr[columns + 1] - self.indptr[columns]).sum())

    def gather(self, columns: IntArray) -> Columns:
        """Return (indptr, rows, values) of the columns, one behind the other."""
        indptr, total = np.zeros(columns.size + 1, dtype=np.int64), self.entries(columns)
        rows, values = empty(total, dtype=np.int64), empty(total)
        kernels.design.gather_columns(
            self.indptr, self.rows, self.values, columns, indptr, rows, values
        )
        return indptr, rows, values

    def products(self, columns: IntArray, vector: FloatArray) -> FloatArray:
        """Return the sum of each column times a vector (n,)."""
        some = np.sort(vector[:: vector.size // SAMPLE + 1])
        common = some[some.size // 2]
        apart = np.flatnonzero(vector != common)
        by_row = int((self.row_indptr[apart + 1] - self.row_indptr[apart]).sum())
        if by_row * self.keys.size < self.rows.size * columns.size:
            out: FloatArray = common * self.sums
            kernels.design.add_rows(
                self.row_indptr, self.row_columns, self.row_values, apart, vector - common, out
            )
            if columns.size < out.size:
                out = out[columns]
            return out
        out = empty(columns.size)
        kernels.design.column_products(self.indptr, self.rows, self.values, columns, vector, out)
        return out

    def tables(self, vectors: FloatArray) -> FloatArray:
        """Return the inner products (m, C) of all columns with vectors (m, n)."""
        shape = vectors.shape[1], self.keys.size
        by_column = sparse.csc_matrix((self.values, self.rows, self.indptr), shape)
        out: FloatArray = (by_column.T @ np.ascontiguousarray(vectors.T)).T
        return out

    def sums_of_squares(self, weights: FloatArray) -> FloatArray:
        """Return the sum of the squares of every column, times the weights (n,), (c,)."""
        each = np.repeat(weights, np.diff(self.row_indptr)) * self.row_values**2
        sums = np.bincount(self.row_columns, each, minlength=self.keys.size)
        return sums.astype(np.float64, copy=False)


@dataclass(frozen=True)
class StreamedBlock(Block):
    """Columns that are computed on demand from the statistics t_root (n, p)."""

    statistics: FloatArray

    def entries(self, columns: IntArray) -> int:
        """Return how many entries the columns have."""
        return columns.size * len(self.statistics)

    def gather(self, columns: IntArray) -> Columns:
        """Return (indptr, rows, values) of the columns, one behind the other."""
        n = len(self.statistics)
        values = empty((columns.size, n))
        for part, made in self._made(columns):
            values[part] = made.T
        rows = np.tile(np.arange(n), columns.size)
        return np.arange(columns.size + 1, dtype=np.int64) * n, rows, values.ravel()

    def products(self, columns: IntArray, vector: FloatArray) -> FloatArray:
        """Return the sum of each column times a vector (n,)."""
        size, features = self.term.size - 1, self.statistics.shape[1]
        has_all_sets = self.keys.size == math.comb(features, size)
        if has_all_sets and MADE_COST * columns.size > self.keys.size:
            return _all_products(self.statistics, vector, size)[columns]
        out = empty(columns.size)
        for part, made in self._made(columns):
            out[part] = vector @ made
        return out

    def tables(self, vectors: FloatArray) -> FloatArray:
        """Return the inner products (m, C) of all columns with vectors (m, n)."""
        out = empty((len(vectors), self.keys.size))
        for part, made in self._made(np.arange(self.keys.size)):
            out[:, part] = vectors @ made
        return out

    def sums_of_squares(self, weights: FloatArray) -> FloatArray:
        """Return the sum of the squares of every column, times the weights (n,), (c,)."""
        out = empty(self.keys.size)
        for part, made in self._made(np.arange(self.keys.size)):
            out[part] = weights @ made**2
        return out

    def _made(self, columns: IntArray) -> Iterator[tuple[slice, FloatArray]]:
        """Yield slices of `columns`, each with the dense columns (n, slice)."""
        step = max(1, CHUNK // max(1, len(self.statistics)))
        for start in range(0, columns.size, step):
            part = slice(start, start + step)
            members = self.members[columns[part]]
            made = self.statistics[:, members[:, 0]]
            for place in range(1, members.shape[1]):
                made = made * self.statistics[:, members[:, place]]
            yield part, made


def _all_products(z: FloatArray, vector: FloatArray, size: int) -> FloatArray:
    """Return sum_i vector_i prod_{t in S} z_it for all sets S of `size` columns of z (n, p).

    In the order of their combinatorial numbers.
    """
    if size == 1:
        return vector @ z
    if size == 2:
        later, earlier = np.tril_indices(z.shape[1], -1)
        return np.asarray((z.T @ (z * vector[:, None]))[later, earlier])
    parts = [_all_products(z[:, :t], vector * z[:, t], size - 1) for t in range(z.shape[1])]
    return np.concatenate(parts)


def store(x: sparse.csr_matrix, term: Term, sets: IntArray | None) -> StoredBlock:
    """Return the block of a term with stored entries.

    x : CSR (n, p), the statistics t_root.  sets : (m, size), candidates; None for all.  Only the
    columns that a candidate needs, and that are not zero, are kept.
    """
    size = term.size - 1
    binomial = binomials(x.shape[1], term.size)
    counts = np.diff(x.indptr) if sets is None or len(sets) else np.zeros(0, dtype=np.int64)
    entries = sum(math.comb(int(c), size) for c in counts)
    keys, rows = empty(entries, dtype=np.int64), empty(entries, dtype=np.int64)
    values = empty(entries)
    if entries:
        kernels.design.subset_products(
            x.indptr.astype(np.int64), x.indices.astype(np.int64), x.data, size, binomial,
            keys, rows, values,
        )  # fmt: skip
    if sets is not None:
        needed = np.isin(keys, ranks(smaller(sets), binomial))
        keys, rows, values = keys[needed], rows[needed], values[needed]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    new = np.diff(keys, prepend=-1) != 0
    columns = empty(keys.size, dtype=np.int32)
    columns[order] = np.cumsum(new) - 1
    starts = np.flatnonzero(new)
    return StoredBlock(
        term,
        members=unrank(keys[starts], size, binomial),
        keys=keys[starts],
        scale=np.ones(starts.size),
        indptr=np.append(starts, keys.size).astype(np.int64),
        rows=rows[order],
        values=values[order],
        row_indptr=np.searchsorted(rows, np.arange(x.shape[0] + 1)).astype(np.int64),
        row_columns=columns,
        row_values=values,
    )


def stream(x: sparse.csr_matrix, term: Term, sets: IntArray | None) -> StreamedBlock:
    """Return the block of a term that computes its columns on demand; arguments as in `store`.

    It has the columns of all sets, zero ones included, or those that a candidate needs.
    """
    size = term.size - 1
    binomial = binomials(x.shape[1], term.size)
    if sets is None:
        keys = np.arange(math.comb(x.shape[1], size), dtype=np.int64)
    else:
        keys = np.unique(ranks(smaller(sets), binomial))
    return StreamedBlock(
        term,
        members=unrank(keys, size, binomial),
        keys=keys,
        scale=np.ones(keys.size),
        statistics=x.toarray(),
    )


def smaller(sets: IntArray) -> IntArray:
    """Return all subsets (m * size, size - 1) of the sets (m, size) that lack one member."""
    return np.concatenate([np.delete(sets, i, axis=1) for i in range(sets.shape[1])])


def binomials(features: int, size: int) -> IntArray:
    """Return C(i, j) for 0 <= i <= features and 0 <= j <= size as int64.

    Raises InvalidInputError if C(features, size) is not an int64.
    """
    if math.comb(features, size) >= 2**63:
        raise InvalidInputError(
            f"{features} features have more sets of {size} than an int64 can number; "
            "use fewer features or a smaller k"
        )
    table = np.zeros((features + 1, size + 1), dtype=np.int64)
    table[:, 0] = 1
    for j in range(1, size + 1):
        table[1:, j] = np.cumsum(table[:-1, j - 1])
    return table


def ranks(sets: IntArray, binomial: IntArray) -> IntArray:
    """Return the combinatorial numbers sum_j C(i_j, j) of ascending sets (m, size)."""
    total = np.zeros(len(sets), dtype=np.int64)
    for j in range(sets.shape[1]):
        total += binomial[sets[:, j], j + 1]
    return total


def unrank(keys: IntArray, size: int, binomial: IntArray) -> IntArray:
    """Return the ascending sets (m, size) with the combinatorial numbers keys (m,)."""
    members = empty((keys.size, size), dtype=np.int64)
    left = keys.copy()
    for j in range(size, 0, -1):
        members[:, j - 1] = np.searchsorted(binomial[:, j], left, side="right") - 1
        left -= binomial[members[:, j - 1], j]
    return members
