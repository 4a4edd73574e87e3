"""Losses of many pairs at once, by a dynamic program for each kind of loss.

======================================== ==================================================
loss                                     programme
======================================== ==================================================
edit distance with unit costs            bit-parallel, 64 symbols of the target per step
one state: costs of single symbols       one row of the matrix at a time
affine gaps, opening at least extending  matches and gaps of a row together, then a scan
any other tropical transducer            all its arcs in every cell
======================================== ==================================================
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import FstError, MemoryLimitError
from fstgrad.core.threads import worker_threads
from fstgrad.losses.automata import kernels
from fstgrad.losses.automata.kernels.arguments import FREE_ENDS, PairArcs, Strings
from fstgrad.openfst import FstArrays

_MOST_LABELS = 2**22  # largest number of pairs of labels in a table
ALIGNMENT_MEMORY = 4 * 2**30  # bytes that the tables of one alignment may use
_BLOCK = 4096  # most pairs that a thread processes at a time


class PairLoss(Protocol):
    """A loss of pairs of strings from two collections."""

    def __call__(self, y: Strings, z: Strings, pairs: IntArray) -> FloatArray:
        """Return the losses (N,) in nats of the pairs (N, 2): row i is (number in y, in z)."""


@dataclass(frozen=True, eq=False)
class SymbolCosts:
    """The same cost, in nats, for all substitutions, for all deletions, for all insertions.

    With d[i, j] for the first i symbols of y and the first j of z,
    d[i, j] = min(d[i-1, j] + delete, d[i, j-1] + insert,
    d[i-1, j-1] + substitute (0 if the symbols are equal)).  The alphabet has n symbols.
    """

    substitute: float
    delete: float
    insert: float
    n: int

    def __call__(self, y: Strings, z: Strings, pairs: IntArray) -> FloatArray:
        """Return the losses (N,) in nats of pairs (N, 2)."""
        costs = np.array([self.substitute, self.delete, self.insert])
        if (costs == 1).all():
            return kernels.pairs.unit_distances(y, z, pairs, self.n)
        return kernels.pairs.symbol_distances(y, z, pairs, costs)


@dataclass(frozen=True, eq=False)
class LinearCosts:
    """Costs in nats: `align` (n, n) of aligned pairs, `delete` (n,) and `insert` (n,) of symbols.

    d[i, j] = min(d[i-1, j] + delete[y_i], d[i, j-1] + insert[z_j], d[i-1, j-1] + align[y_i, z_j]).
    """

    align: FloatArray
    delete: FloatArray
    insert: FloatArray

    def __call__(self, y: Strings, z: Strings, pairs: IntArray) -> FloatArray:
        """Return the losses (N,) in nats of pairs (N, 2)."""
        return kernels.pairs.linear_distances(y, z, pairs, self.align, self.delete, self.insert)


@dataclass(frozen=True, eq=False)
class AffineScores:
    """Scores (n, n) of aligned pairs; a gap of k symbols costs opening + (k - 1) extending.

    free_ends : "none", "y", "target" or "local", as in `transducers.alignment_transducer`.
    """

    scores: FloatArray
    opening: float
    extending: float
    free_ends: str

    def __call__(self, y: Strings, z: Strings, pairs: IntArray) -> FloatArray:
        """Return the losses (N,) in nats: minus the scores of the best alignments."""
        free = np.array([self.free_ends == end for end in FREE_ENDS], dtype=np.int64)
        longest = int(max(np.diff(y.first).max(initial=0), np.diff(z.first).max(initial=0)))
        kind = np.float32 if self._fits(longest) else np.float64
        gaps = np.array([self.opening, self.extending, -np.inf], dtype=kind)
        scores = self.scores.astype(kind)
        return 0.0 - kernels.pairs.affine_scores(y, z, pairs, scores, gaps, free)

    def _fits(self, longest: int) -> bool:
        """Return whether float32 sums are exact: below 2^23 units of 2^-b, for some b <= 8."""
        values = np.append(self.scores.ravel(), [self.opening, self.extending])
        largest = float(np.abs(values).max()) * 4 * (longest + 2)
        return any(
            largest * 2.0**bits < 2**23
            and np.array_equal(values * 2.0**bits, np.rint(values * 2.0**bits))
            for bits in range(9)
        )


@dataclass(frozen=True, eq=False)
class ArcCosts:
    """The arcs of a tropical transducer, sorted by labels; `order` (A,) has their old numbers."""

    arcs: PairArcs
    order: IntArray
    n: int

    @classmethod
    def of(cls, fst: FstArrays, n: int) -> "ArcCosts":
        """Return the arcs of a transducer over n symbols; its start becomes state 0."""
        label = fst.ilabel * (n + 1) + fst.olabel
        order = np.argsort(label, kind="stable")
        first = np.searchsorted(label[order], np.arange((n + 1) ** 2 + 1))
        states = np.arange(fst.num_states)
        states[[0, fst.start]] = states[[fst.start, 0]]  # the start is state 0
        arcs = PairArcs(
            first,
            states[fst.source[order]],
            states[fst.nextstate[order]],
            fst.weight[order],
            fst.final[states],
        )
        return cls(arcs, order, n)

    def best_path(self, y: IntArray, target: IntArray) -> tuple[float, IntArray]:
        """Return the least cost in nats, and the numbers of the arcs of a path with this cost.

        `y` (l,) and `target` (m,) are ids.  The cost is +inf if there is no path.

        Raises
        ------
        FstError
            Arcs that neither read nor write form a cycle of negative cost.
        MemoryLimitError
            The table of the path needs more than 4 GiB.
        """
        needed = 8 * (len(y) + 1) * (len(target) + 1) * len(self.arcs.final)
        if needed > ALIGNMENT_MEMORY:
            raise _alignment_limit(len(y), len(target), needed)
        cost, path = kernels.pairs.best_path(y, target, self.arcs, self.n)
        if np.isnan(cost):
            raise negative_cycle()
        return float(cost), self.order[path]

    def __call__(self, y: Strings, z: Strings, pairs: IntArray) -> FloatArray:
        """Return the losses (N,) in nats of pairs (N, 2)."""
        return kernels.pairs.arc_costs(y, z, pairs, self.arcs, self.n)


def negative_cycle() -> FstError:
    """Return the error for a transducer whose alignments have no least cost."""
    return FstError(
        "the transducer has a cycle of arcs that neither read nor write with negative cost; make "
        "their total cost >= 0"
    )


def affine_scores(
    scores: FloatArray, opening: float, extending: float, free_ends: str
) -> AffineScores | None:
    """Return the programme of an alignment.

    Return None unless opening >= extending >= 0 (otherwise splitting a gap may pay), or if
    free_ends is "both".
    """
    if not opening >= extending >= 0 or free_ends == "both":
        return None
    return AffineScores(
        np.ascontiguousarray(scores, dtype=np.float64), float(opening), float(extending), free_ends
    )


def pair_loss(fst: FstArrays, n: int) -> LinearCosts | ArcCosts | None:
    """Return the programme of a tropical transducer over n symbols.

    Return None if its table would be too large, or if an arc that neither reads nor writes has a
    negative cost: only the machine checks whether such arcs form a cycle.
    """
    silent = fst.weight[(fst.ilabel == 0) & (fst.olabel == 0)]
    if (n + 1) ** 2 > _MOST_LABELS or fst.start < 0 or (silent < 0).any():
        return None
    return _linear(fst, n) or ArcCosts.of(fst, n)


def _linear(fst: FstArrays, n: int) -> LinearCosts | None:
    """Return the costs of a one-state transducer that deletes and inserts all symbols, or None."""
    if fst.num_states != 1 or fst.final[0] != 0 or ((fst.ilabel == 0) & (fst.olabel == 0)).any():
        return None
    table = np.full((n + 1, n + 1), np.inf)
    np.minimum.at(table, (fst.ilabel, fst.olabel), fst.weight)
    costs = LinearCosts(
        np.ascontiguousarray(table[1:, 1:]), table[1:, 0].copy(), table[0, 1:].copy()
    )
    return costs if np.isfinite(costs.delete).all() and np.isfinite(costs.insert).all() else None


def edit_paths(
    y: Strings, z: Strings, substitute: float, delete: float, insert: float
) -> tuple[npt.NDArray[np.int8], IntArray]:
    """Return the steps of cheapest alignments of N strings with N others, and (N + 1,) the first.

    See `kernels.pairs.symbol_paths`; costs as in `SymbolCosts`.

    Raises
    ------
    MemoryLimitError
        The table of an alignment needs more than 4 GiB.
    """
    sizes = [int(np.diff(strings.first).max(initial=0)) for strings in (y, z)]
    if (needed := (sizes[0] + 1) * (sizes[1] + 1)) > ALIGNMENT_MEMORY:
        raise _alignment_limit(sizes[0], sizes[1], needed)
    pairs = np.repeat(np.arange(len(y.first) - 1)[:, None], 2, axis=1)
    costs = np.array([substitute, delete, insert], dtype=np.float64)
    steps, first = kernels.pairs.symbol_paths(y, z, pairs, costs)
    return steps, first


def _alignment_limit(y: int, target: int, needed: int) -> MemoryLimitError:
    return MemoryLimitError(
        f"an alignment of {y:,} with {target:,} symbols needs {needed:,} bytes; align shorter "
        "strings"
    )


def joined(alphabet: Alphabet, sequences: Sequence[SequenceLike], name: str) -> Strings:
    """Return the concatenated ids of sequences; `name` is their name in errors."""
    first = np.zeros(len(sequences) + 1, dtype=np.int64)
    if alphabet.is_characters and all(isinstance(sequence, str) for sequence in sequences):
        np.cumsum([len(sequence) for sequence in sequences], out=first[1:])
        ids = alphabet.encode_characters("".join(sequences))  # type: ignore[arg-type]
        if ids is not None:
            return Strings(ids, first)
    parts = [alphabet.encode(s, name=f"{name}[{i}]") for i, s in enumerate(sequences)]
    np.cumsum([len(part) for part in parts], out=first[1:])
    return Strings(np.concatenate([np.zeros(0, dtype=np.int64), *parts]), first)


def losses_of_pairs(
    loss: PairLoss, y: Strings, z: Strings, pairs: IntArray, threads: int = 1
) -> FloatArray:
    """Return the losses (N,) of pairs (N, 2), in blocks by threads; kernels release the lock."""
    if threads == 1 or len(pairs) <= _BLOCK // 16:
        return loss(y, z, pairs)
    block = min(_BLOCK, max(1, len(pairs) // (4 * threads)))
    blocks = [pairs[i : i + block] for i in range(0, len(pairs), block)]
    with worker_threads(threads) as pool:
        parts = list(pool.map(lambda block: loss(y, z, block), blocks))
    return np.concatenate(parts)
