"""`ProjectiveTrees`: the distribution over dependency trees without crossing arcs."""

from dataclasses import dataclass

import numpy as np

from fstgrad import checks
from fstgrad.checks import BoolArray, FloatArray, IntArray, Seed
from fstgrad.trees import kernels
from fstgrad.trees.base import TreeDistribution


@dataclass(frozen=True)
class ProjectiveSolution:
    """log Z (b,) and marginals (b, m+1, m+1) of a batch; products solve it anew."""

    scores: FloatArray
    lengths: IntArray
    single_root: bool
    log_partition: FloatArray
    marginals: FloatArray

    @property
    def infeasible(self) -> int:
        """The first item without a tree, -1 if all have one."""
        item = int(np.argmin(self.log_partition))
        return item if self.log_partition[item] == -np.inf else -1

    def covariance_product(self, v: FloatArray) -> FloatArray:
        """Return Cov v: the derivative along v carried through both passes, O(n^3)."""
        return _solve(self.scores, self.lengths, self.single_root, v)[2]


class ProjectiveTrees(TreeDistribution):
    """Trees whose arcs do not cross when drawn above the words, the root leftmost.

    Every head and its descendants cover a stretch of the sentence.  The parameters, shapes and
    answers are those of `SpanningTrees`; all sums run over the projective trees alone.  Scores are
    added up on logarithms, so their range does not matter.

    Notes
    -----
    O(n^3) by the spans of Eisner (1996), "Three new probabilistic models for dependency parsing",
    COLING; marginals by the outside pass, covariance products by differentiating both.

    Examples
    --------
    Three words have 16 trees, of which 12 are projective; 7 have a single root arc.

    >>> import numpy as np
    >>> [
    ...     round(float(np.exp(ProjectiveTrees(np.zeros((4, 4)), single_root=s).log_partition())))
    ...     for s in (False, True)
    ... ]
    [12, 7]
    """

    def sample(self, k: int, rng: Seed = None) -> IntArray:
        """Return k independent trees (k, ..., n) or (k, ..., n, 2), drawn top down."""
        from fstgrad.trees.sampling import sample_labels

        count = checks.positive_integer("k", k)
        generator = checks.generator(rng)
        _ = self._solution  # there is a tree, or the error says why not
        items, size = self._table.arcs.shape[:2]
        heads = np.empty((count, items, size - 1), dtype=np.int64)
        kernels.projective.sample_batch(
            self._table.arcs, self._table.lengths, self.single_root, generator, heads
        )
        labels = sample_labels(self._table.shares, heads, generator) if self.labeled else None
        return self._with_labels(heads, labels)

    def _solve(self) -> ProjectiveSolution:
        arcs, lengths = self._table.arcs, self._table.lengths
        log_z, marginals, _ = _solve(arcs, lengths, self.single_root, None)
        return ProjectiveSolution(arcs, lengths, self.single_root, log_z, marginals)

    def _find_best(self, arcs: FloatArray, lengths: IntArray) -> tuple[IntArray, BoolArray]:
        heads = np.empty((len(arcs), arcs.shape[-1] - 1), dtype=np.int64)
        found = np.empty(len(arcs), dtype=np.bool_)
        kernels.projective.best_batch(arcs, lengths, self.single_root, heads, found)
        return heads, found


def _solve(
    scores: FloatArray, lengths: IntArray, single: bool, direction: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    log_z, (mu, change) = np.empty(len(scores)), np.empty((2, *scores.shape))
    v = np.zeros_like(scores) if direction is None else np.ascontiguousarray(direction)
    along = direction is not None
    kernels.projective.solve_batch(scores, v, lengths, single, along, log_z, mu, change)
    mu.setflags(write=False)
    return log_z, mu, change
