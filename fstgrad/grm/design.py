r"""The sparse design that all node regressions share.

A set S of l variables has one coefficient theta_S in the term Psi_(j)^(l); the super-symmetric
tensor contains it l! times, Psi_S = theta_S / l!.  For every s in S, it adds to coordinate j of eta
of node s theta_S times the column

    column(S \ {s})_i = prod_{t in S, t != s} t_j(x_it).

The column depends on S \ {s} only, so the triples of all nodes share one sparse matrix of pairs:
no node has an n x p^2 array of its own.  A set of variables that never occur together needs no
column, since its column and gradient are zero.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import MemoryLimitError
from fstgrad.core.uninitialized import empty
from fstgrad.grm.blocks import STORED_BYTES, Block, Term, binomials, ranks, store, stream, unrank

MAX_MEMORY = 4e9  # bytes; the default limit of a fit
ACTIVE_BYTES = 32  # for each entry of an active column: its row, its value, and their copies
MOST_SETS = 1 << 62  # no limit
AT_ONCE = 10_000_000  # products of entries and nodes that are computed in one table
LEAST_SETS = 100  # sets that may always become active at once if columns are computed on demand


def terms_of(k: int, interactions: str) -> list[Term]:
    """Return the terms of the model: l = j ("strongest") or every l <= j ("all")."""
    return [
        Term(size, root)
        for root in range(1, k + 1)
        for size in range(1, root + 1)
        if size == root or interactions == "all"
    ]


def intercept_coordinates(terms: Sequence[Term], free: Sequence[int]) -> IntArray:
    """Return the coordinates of eta, counted from 0 and ascending, that have an intercept.

    They are the unpenalised coordinates `free` and the roots of terms of size 1.
    """
    roots = {term.root - 1 for term in terms if term.size == 1}
    return np.array(sorted(roots | set(free)), dtype=np.int64)


@dataclass(frozen=True)
class Design:
    """The blocks of columns, one for each term of size >= 2, and the candidate sets.

    samples, features : n and p.
    candidates : {size: (m, size) int64}; if a size is missing, all sets are candidates.
    most : how many sets may become active at once, to limit memory.
    most_entries : how many entries all active columns may have, to limit memory.
    scaled : whether the scales of the columns differ.
    """

    samples: int
    features: int
    blocks: tuple[Block, ...]
    candidates: dict[int, IntArray]
    most: int = MOST_SETS
    most_entries: int = MOST_SETS
    scaled: bool = False

    @cached_property
    def binomial(self) -> IntArray:
        """The table of C(i, j) for combinatorial numbers."""
        return binomials(self.features, max((b.term.size for b in self.blocks), default=1))

    @cached_property
    def table_cost(self) -> int:
        """The columns and entries of all blocks, times p."""
        every = (
            block.keys.size + block.entries(np.arange(block.keys.size)) for block in self.blocks
        )
        return self.features * sum(every)

    def columns(self, block: Block, node: int) -> IntArray:
        """Return the numbers, ascending, of the columns of a block that node `node` may use."""
        sets = self.candidates.get(block.term.size)
        if sets is None:
            other = np.ones(len(block.keys), dtype=bool)
            for place in range(block.term.size - 1):
                other &= block.members[:, place] != node
            return np.flatnonzero(other)
        numbers = block.find(ranks(_without(sets, node), self.binomial))
        return np.unique(numbers[numbers >= 0])

    def keys(self, blocks: IntArray, columns: IntArray) -> IntArray:
        """Return the combinatorial numbers (m,) of columns (m,) of the blocks (m,)."""
        out = empty(columns.size, dtype=np.int64)
        for number, block in enumerate(self.blocks):
            out[blocks == number] = block.keys[columns[blocks == number]]
        return out

    def find(self, blocks: IntArray, keys: IntArray) -> IntArray:
        """Return the columns (m,) of the blocks (m,) with the keys (m,), -1 if there is none."""
        out = np.full(keys.size, -1)
        for number, block in enumerate(self.blocks):
            out[blocks == number] = block.find(keys[blocks == number])
        return out

    def members(self, block: Block, keys: IntArray) -> IntArray:
        """Return the ascending sets S without s, (m, size - 1), with the keys (m,) of columns."""
        return unrank(keys, block.term.size - 1, self.binomial)

    def sets(self, block: Block, keys: IntArray) -> IntArray:
        """Return the ascending sets S, (m, size), with the keys (m,) of sets."""
        return unrank(keys, block.term.size, self.binomial)

    def gradients(self, number: int, columns: IntArray, residual: FloatArray) -> FloatArray:
        """Return the mean over samples of each column of block `number` times the residual.

        columns : (m,).  residual : (n, c), of which coordinate root - 1 is used.  Result (m,).
        """
        block = self.blocks[number]
        vector = np.ascontiguousarray(residual[:, block.term.root - 1])
        return block.products(columns, vector) / self.samples

    def gradient_tables(self, residual: FloatArray) -> list[FloatArray] | None:
        """Return the gradients (p, C) of all columns of each block for each node.

        None if they would take more memory or time than `gradients` for one node after another.
        residual : (p, n, c).
        """
        if self.table_cost > AT_ONCE:
            return None
        return [
            block.tables(residual[:, :, block.term.root - 1]) / self.samples
            for block in self.blocks
        ]

    def strongest(self, sizes: FloatArray) -> IntArray:
        """Return the indices of the `most` largest sizes (m,), ascending."""
        if sizes.size <= self.most:
            return np.arange(sizes.size)
        return np.sort(np.argpartition(sizes, -self.most)[-self.most :])

    def check_entries(self, entries: int) -> None:
        """Raise MemoryLimitError if active columns with so many entries exceed the limit."""
        if entries > self.most_entries:
            raise MemoryLimitError(
                f"the active columns have {entries:,} entries, more than the {self.most_entries:,} "
                "that fit into max_memory; raise alpha or max_memory"
            )

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
    scale_weights: FloatArray | None = None,
) -> Design:
    """Return the shared design of `terms`, stored if it fits in memory, else streamed.

    Parameters
    ----------
    statistics : dict of root j to CSR (n, p)
        t_j(x), with the same non-zeros for every j.
    candidates : dict of size to (m, size) int64
        The sets that may be used; all sets of a size that is missing.
    max_memory : float
        Limit in bytes, checked before anything is allocated.
    scale_weights : (n,), optional
        Penalise a coefficient in proportion to the root mean square of its column, with these
        weights (mean 1) of the rows.

    Raises
    ------
    MemoryLimitError
        Even a design without stored products needs more than `max_memory`.
    """
    samples, features = statistics[1].shape
    used = [term for term in terms if term.size > 1]
    counts = np.diff(statistics[1].indptr).astype(np.int64)
    entries = sum(
        sum(math.comb(int(c), term.size - 1) for c in counts)
        for term in used
        if len(candidates.get(term.size, "all"))
    )
    stored = STORED_BYTES * entries <= max_memory
    if not stored:
        _check_streamed(statistics[1].shape, used, entries, max_memory)
    make = store if stored else stream
    blocks: list[Block] = [
        make(statistics[term.root], term, candidates.get(term.size)) for term in used
    ]
    scaled = scale_weights is not None
    if scale_weights is not None:
        blocks = [
            replace(b, scale=np.sqrt(b.sums_of_squares(scale_weights) / samples)) for b in blocks
        ]
    limits = (MOST_SETS, MOST_SETS)
    if not stored:
        entries = int(max_memory / ACTIVE_BYTES)
        limits = max(LEAST_SETS, entries // (8 * samples * max(1, len(terms)))), entries
    return Design(samples, features, tuple(blocks), candidates, *limits, scaled)


def _check_streamed(
    shape: tuple[int, int], used: Sequence[Term], entries: int, max_memory: float
) -> None:
    """Raise MemoryLimitError if even a design without stored products does not fit in memory."""
    n, p = shape
    need = 8 * sum(n * p + (term.size + 5) * math.comb(p, term.size - 1) for term in used)
    if need > max_memory:
        raise MemoryLimitError(
            f"the shared design has {entries:,} non-zeros, and needs {need / 2**30:.3g} GiB even "
            f"if they are not stored, more than max_memory = {max_memory / 2**30:.3g} GiB; use "
            "fewer features or a smaller k, or raise max_memory"
        )


def _without(sets: IntArray, node: int) -> IntArray:
    """Return S without `node` for the sets S that contain it, (m, size - 1)."""
    held = sets == node
    chosen = held.any(axis=1)
    left: IntArray = sets[chosen][~held[chosen]]
    return left.reshape(-1, sets.shape[1] - 1)
