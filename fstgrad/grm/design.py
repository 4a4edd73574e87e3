r"""The sparse design that all node regressions share.

A set S of l variables has one coefficient theta_S in the term Psi_(j)^(l); a super-symmetric tensor
holds it l! times, Psi_S = theta_S / l!.  It gives eta_js, for every s in S, the column

    column(S \ {s})_i = prod_{t in S, t != s} x_it^(1/j),

because l <[Psi]_s, ...> counts the set l! times.  The column does not depend on s, so one sparse
matrix of pairs serves the triples of every node: there is never an n x p^2 array for each node,
and a set that never occurs together is no column at all (its column and gradient are zero).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse

from fstgrad.checks import FloatArray, IntArray
from fstgrad.errors import InvalidInputError, MemoryLimitError
from fstgrad.grm import kernels

BYTES_PER_ENTRY = 64  # key, row, value, their order and their sorted copies


class Term(NamedTuple):
    """The tensor Psi_(root)^(size): sets of `size` variables, coupled through x^(1/root)."""

    size: int
    root: int


def terms_of(k: int, interactions: str) -> list[Term]:
    """Return the terms of the model: l = j ("strongest") or every l <= j ("all")."""
    return [
        Term(size, root)
        for root in range(1, k + 1)
        for size in range(1, root + 1)
        if size == root or interactions == "all"
    ]


def intercept_coordinates(terms: Sequence[Term], free: Sequence[int]) -> IntArray:
    """Return the coordinates of eta, from 0, that have an intercept."""
    roots = {term.root - 1 for term in terms if term.size == 1}
    return np.array(sorted(roots | set(free)), dtype=np.int64)


@dataclass(frozen=True)
class Block:
    """The columns of one term of size >= 2, in CSC form.

    members : (c, size - 1) int64, the sets, each ascending, in the order of `keys`.
    keys : (c,) int64, their combinatorial numbers, ascending.
    indptr, rows, values : the columns, prod x^(1/j) where it is not zero.
    scale : (c,) float64, what the penalty of each column is multiplied with.
    """

    term: Term
    members: IntArray
    keys: IntArray
    indptr: IntArray
    rows: IntArray
    values: FloatArray
    scale: FloatArray

    def find(self, keys: IntArray) -> IntArray:
        """Return the numbers of the columns with these keys, -1 for a column that is zero."""
        if not self.keys.size:
            return np.full(keys.size, -1)
        at = np.minimum(np.searchsorted(self.keys, keys), self.keys.size - 1)
        return np.where(self.keys[at] == keys, at, -1)


@dataclass(frozen=True)
class Design:
    """Blocks of columns and, where candidates were given, the sets that may be used.

    candidates : {size: (m, size) int64}; a size that is missing has all sets.
    """

    samples: int
    features: int
    blocks: tuple[Block, ...]
    candidates: dict[int, IntArray]

    @cached_property
    def binomial(self) -> IntArray:
        """C(i, j) for the combinatorial numbers."""
        return binomials(self.features, max((b.term.size for b in self.blocks), default=1))

    def columns(self, block: Block, node: int) -> IntArray:
        """Return the numbers of the columns of a block that node `node` may use."""
        sets = self.candidates.get(block.term.size)
        if sets is None:
            return np.flatnonzero((block.members != node).all(axis=1))
        found = block.find(ranks(_without(sets, node), self.binomial))
        return np.unique(found[found >= 0])

    def keys(self, blocks: IntArray, columns: IntArray) -> IntArray:
        """Return the combinatorial numbers of columns, given with their blocks."""
        out = np.empty(columns.size, dtype=np.int64)
        for number, block in enumerate(self.blocks):
            out[blocks == number] = block.keys[columns[blocks == number]]
        return out

    def find(self, blocks: IntArray, keys: IntArray) -> IntArray:
        """Return the columns with the combinatorial numbers `keys`, -1 where there is none."""
        out = np.full(keys.size, -1)
        for number, block in enumerate(self.blocks):
            out[blocks == number] = block.find(keys[blocks == number])
        return out

    def members(self, block: Block, keys: IntArray) -> IntArray:
        """Return the ascending sets (m, size - 1) with the combinatorial numbers `keys`."""
        return _unrank(keys, block.term.size - 1, self.binomial)

    def sets(self, block: Block, keys: IntArray) -> IntArray:
        """Return the ascending sets (m, size) with the combinatorial numbers `keys`."""
        return _unrank(keys, block.term.size, self.binomial)

    def gradients(self, number: int, columns: IntArray, residual: FloatArray) -> FloatArray:
        """Return the mean of a column of block `number` times the residual (n, c), for each."""
        block, out = self.blocks[number], np.empty(columns.size)
        kernels.design.column_products(
            block.indptr, block.rows, block.values, columns,
            np.ascontiguousarray(residual[:, block.term.root - 1]), 1.0 / self.samples, out,
        )  # fmt: skip
        return out

    def candidate_count(self) -> int:
        """Return how many sets of size >= 2 are candidates, zero columns included."""
        return sum(
            len(self.candidates[size])
            if size in self.candidates
            else math.comb(self.features, size)
            for size in (block.term.size for block in self.blocks)
        )


def build(
    statistics: dict[int, sparse.csr_matrix],
    terms: Sequence[Term],
    candidates: dict[int, IntArray],
    max_memory: float,
    *,
    scale_columns: bool = False,
) -> Design:
    """Return the shared design of `terms`.

    Parameters
    ----------
    statistics : dict of root j to CSR (n, p)
        x^(1/j), the same non-zeros for every j.
    candidates : dict of size to (m, size) int64
        The sets that may be used; all sets of a size that is missing.
    max_memory : float
        Bytes; the need is counted before anything is allocated.
    scale_columns : bool
        Penalise a coefficient times the root mean square of its column.
    """
    samples, features = statistics[1].shape
    used = [term for term in terms if term.size > 1]
    counts = np.diff(statistics[1].indptr).astype(np.int64)
    entries = sum(
        sum(math.comb(int(c), term.size - 1) for c in counts)
        for term in used
        if len(candidates.get(term.size, "all"))
    )
    need = BYTES_PER_ENTRY * entries
    if need > max_memory:
        raise MemoryLimitError(
            f"the shared design has {entries:,} non-zeros and needs {need / 1e9:.1f} GB, which "
            f"passes max_memory={max_memory / 1e9:.1f} GB; use fewer features, a smaller k, "
            "candidate_sets, or raise max_memory"
        )
    blocks = [_block(statistics[term.root], term, candidates.get(term.size)) for term in used]
    if scale_columns:
        blocks = [replace(b, scale=np.sqrt(_mean_squares(b, samples))) for b in blocks]
    return Design(samples, features, tuple(blocks), candidates)


def _mean_squares(block: Block, samples: int) -> FloatArray:
    """Return the mean square of every column."""
    totals = np.add.reduceat(block.values**2, block.indptr[:-1]) if block.keys.size else 0.0
    return np.asarray(totals / samples, dtype=np.float64).reshape(block.keys.shape)


def _block(x: sparse.csr_matrix, term: Term, sets: IntArray | None) -> Block:
    """List every product, sort by column, keep the columns that a candidate needs."""
    size = term.size - 1
    binomial = binomials(x.shape[1], term.size)
    counts = np.diff(x.indptr) if sets is None or len(sets) else np.empty(0, dtype=np.int64)
    entries = sum(math.comb(int(c), size) for c in counts)
    keys, rows = np.empty(entries, dtype=np.int64), np.empty(entries, dtype=np.int64)
    values = np.empty(entries)
    if entries:
        kernels.design.subset_products(
            x.indptr.astype(np.int64), x.indices.astype(np.int64), x.data, size, binomial,
            keys, rows, values,
        )  # fmt: skip
    if sets is not None:
        smaller = np.concatenate([np.delete(sets, i, axis=1) for i in range(term.size)])
        kept = np.isin(keys, ranks(smaller, binomial))
        keys, rows, values = keys[kept], rows[kept], values[kept]
    order = np.argsort(keys, kind="stable")
    keys, rows, values = keys[order], rows[order], values[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    return Block(
        term,
        members=_unrank(keys[starts], size, binomial),
        keys=keys[starts],
        indptr=np.append(starts, keys.size).astype(np.int64),
        rows=rows,
        values=values,
        scale=np.ones(starts.size),
    )


def binomials(features: int, size: int) -> IntArray:
    """Return C(i, j) for 0 <= i <= features and 0 <= j <= size as int64."""
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


def _unrank(keys: IntArray, size: int, binomial: IntArray) -> IntArray:
    """Return the ascending sets with the combinatorial numbers `keys`."""
    members = np.empty((keys.size, size), dtype=np.int64)
    left = keys.copy()
    for j in range(size, 0, -1):
        members[:, j - 1] = np.searchsorted(binomial[:, j], left, side="right") - 1
        left -= binomial[members[:, j - 1], j]
    return members


def _without(sets: IntArray, node: int) -> IntArray:
    """Return S without `node` for the sets S that hold it, (m, size - 1)."""
    held = sets == node
    chosen = held.any(axis=1)
    left: IntArray = sets[chosen][~held[chosen]]
    return left.reshape(-1, sets.shape[1] - 1)
