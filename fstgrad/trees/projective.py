"""`ProjectiveTrees`: the distribution over dependency trees without crossing arcs."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.checks import BoolArray, FloatArray, IntArray, Seed
from fstgrad.core.distribution import Scalar
from fstgrad.core.uninitialized import empty
from fstgrad.trees import kernels, structures
from fstgrad.trees.distribution import TreeDistribution
from fstgrad.trees.kernels.matrix_tree import LEAST
from fstgrad.trees.sampling import sample_labels
from fstgrad.trees.solution import lower_masks

# Scores this far below a dependent's best are treated as masks.
MASK = -1e3
# A mean number of masked arcs this close to the minimum equals it up to rounding.
ROUNDING = 1e-13


@dataclass(frozen=True)
class ProjectiveSolution:
    """log Z (b,) and marginals (b, m+1, m+1) of a batch; covariance products rerun the passes.

    scores : (b, m+1, m+1), minus each dependent's largest.  relative : log Z of these scores.
    masks : the arcs whose scores are masks, dropped or raised.
    given : the scores that were given.  lifted : tables (n+1, n+1) of items with masks so large
        that they hide other scores, from `kernels.normal_form.lift_masks`.
    """

    scores: FloatArray
    lengths: IntArray
    single_root: bool
    log_partition: FloatArray
    relative: FloatArray
    marginals: FloatArray
    masks: "Masks"
    given: FloatArray
    lifted: dict[int, FloatArray]

    @property
    def infeasible(self) -> int:
        """The first item without a tree; -1 if all have one."""
        item = int(np.argmin(self.log_partition))
        return item if self.log_partition[item] == -np.inf else -1

    def covariance_product(self, v: FloatArray) -> FloatArray:
        """Return Cov v: the derivative along v propagated through both passes, O(n^3)."""
        return _solve(self.scores, self.lengths, self.single_root, v)[2]

    def entropies(self) -> tuple[FloatArray, FloatArray]:
        """Return entropies (b,) and reduced costs: each dependent's largest score minus scores."""
        constants, reduced_costs = self._lifted_negative_log_probability(self.marginals)
        values = constants + np.einsum("bij,bij->b", self.marginals, reduced_costs)
        return np.maximum(values, 0.0), reduced_costs

    def negative_log_probability(self, marginals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return constants (b,) and tables with -E[log p(tree)] = constant + <marginals, table>.

        marginals : of trees that this distribution allows.  The tables are the reduced costs of
            `entropies`, or others with the same differences between trees.
        """
        constants, reduced_costs = self._lifted_negative_log_probability(marginals)
        for item, table in self.lifted.items():
            cells = (item, slice(len(table)), slice(len(table)))
            best = _best_arcs(table, len(table) - 1, single_root=self.single_root)
            if best is not None:
                constants[item] += lower_masks(
                    self.given[cells], table, best[0], marginals[cells], reduced_costs[cells]
                )
        return constants, reduced_costs

    def _lifted_negative_log_probability(
        self, marginals: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return `negative_log_probability` from the lifted scores."""
        constants = self.relative.copy()
        reduced_costs = np.where(self.scores > -np.inf, -self.scores, 0.0)
        dropped, dropped_costs, raised, added, needed = self.masks
        reduced_costs = np.where(dropped & (marginals > 0), dropped_costs, reduced_costs)
        used = np.einsum("bij,bij->b", marginals, raised)
        more = np.where(np.abs(used - needed) > ROUNDING * self.scores.shape[1], added, 0.0)
        constants -= more * needed
        reduced_costs += np.where(raised, more[:, None, None], 0.0)
        return constants, reduced_costs


class Masks(NamedTuple):
    """Arcs too far below the others for sums of logarithms, (b, m+1, m+1), and what was done.

    dropped : arcs whose probability is 0 in float64; reduced_costs : their distances below the
    columns' largest scores.  raised : arcs whose scores were raised by added (b,), because every
    tree needs at least needed (b,) of them.
    """

    dropped: BoolArray
    reduced_costs: FloatArray
    raised: BoolArray
    added: FloatArray
    needed: IntArray


def lift_masks(scores: FloatArray, lengths: IntArray, *, single_root: bool) -> Masks:
    """Drop masked arcs in place if trees can avoid them; else raise them closer to the others.

    scores : (b, m+1, m+1), -inf for cells that are no arcs.  Next to a mask, a sum of logarithms
    would lose the digits of all other scores.  An arc this far below the best tree has probability
    0 in float64.  Raised masks still lie so far below the others that trees with more masks than
    needed are negligible; if such trees are not, nothing is raised.
    """
    top = largest_into(scores)
    below = scores - top
    masked = (below < MASK) & (scores > -np.inf)
    dropped, raised = np.zeros((2, *scores.shape), dtype=bool)
    added, needed = np.zeros(len(scores)), np.zeros(len(scores), dtype=np.int64)
    for item in np.flatnonzero(masked.any(axis=(1, 2))):
        table, level, n = scores[item], below[item], int(lengths[item])
        best = _best_arcs(level, n, single_root=single_root)
        if best is None:
            continue
        trees = n * np.log(n + 1)  # at least the logarithm of their number
        dropped[item] = masked[item] & (level < level[best].sum() + MASK - trees)
        table[dropped[item]] = -np.inf
        unavoidable = masked[item] & ~dropped[item]
        price = np.where(table > -np.inf, np.where(unavoidable, -1.0, 0.0), -np.inf)
        fewest = _best_arcs(price, n, single_root=single_root)
        used = unavoidable[best]
        if not used.any() or fewest is None or used.sum() > unavoidable[fewest].sum():
            continue
        largest, lowest = table[unavoidable].max(), top[item].min()
        tops = top[item, 0, 1 : n + 1]
        rest = np.where(used, table[best] - largest + lowest - tops, level[best]).sum()
        reach = trees + 60 - rest - lowest  # the masks' distance below 0
        if largest < -reach:
            table[unavoidable] = table[unavoidable] - largest - reach
            raised[item], added[item], needed[item] = unavoidable, -largest - reach, used.sum()
    return Masks(dropped, np.where(dropped, -below, 0.0), raised, added, needed)


def _best_arcs(
    scores: FloatArray, n: int, *, single_root: bool
) -> tuple[IntArray, IntArray] | None:
    """Return the heads and dependents (n,) of the best tree of a table; None without one."""
    heads = empty((1, len(scores) - 1), dtype=np.int64)
    infeasible = kernels.projective.best_batch(scores[None], np.array([n]), single_root, heads)
    return None if infeasible >= 0 else (heads[0, :n], np.arange(1, n + 1))


def lift_largest(scores: FloatArray, lengths: IntArray) -> dict[int, FloatArray]:
    """Lift masks that hide other scores by rounding, in place; return the items' new tables."""
    lifted = {}
    for item, n in enumerate(lengths.tolist()):
        given = scores[item, : n + 1, : n + 1]
        table = empty((n + 1, n + 1))
        if n > 0 and kernels.normal_form.lift_masks(checks.writable(given), table):
            given[:] = lifted[item] = table
    return lifted


def root_shift(scores: FloatArray) -> FloatArray:
    """Return the distance (b,) of the root's arcs above the other arcs, 0 if it is small.

    It is a constant of all trees with exactly one root arc.  If it were not removed, a root
    far above or below would make arcs look like masks.
    """
    top = scores[:, 1:].max(axis=1, initial=-np.inf)
    most = top.max(axis=1, keepdims=True)
    most = np.where(most > -np.inf, most, 0.0)
    others = np.where(top > most + MASK, top, most)  # not the masks of a column
    shift = (scores[:, 0] - others).max(axis=1)
    is_offset = (np.abs(shift) > -MASK / 2) & (shift > -np.inf)
    return np.where(is_offset, shift, 0.0)


def largest_into(scores: FloatArray) -> FloatArray:
    """Return each dependent's largest score (b, 1, m+1), 0 if it has none."""
    top = scores.max(axis=1, keepdims=True)
    return np.where(top > -np.inf, top, 0.0)


_SMALL = 2.0**-20  # a power of two: products with it are exact


class ProjectiveTrees(TreeDistribution):
    """Trees whose arcs do not cross when drawn above the words, the root leftmost.

    Every head and its descendants cover a contiguous span of the sentence.  Parameters, shapes and
    results are as in `SpanningTrees`; all sums run over projective trees only.  Scores are added on
    logarithms, so their range does not matter.

    Notes
    -----
    O(n^3), with the spans of Eisner (1996), "Three new probabilistic models for dependency
    parsing", COLING; marginals by the outside pass, covariance products by differentiating both
    passes.

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

    _solution: ProjectiveSolution
    projective = True

    def log_prob(self, structure: npt.ArrayLike) -> Scalar:
        """Return log p(tree) in nats; -inf for a tree that is forbidden or has crossing arcs."""
        values = super().log_prob(structure)
        heads = self._table.checked_trees(structure, "structure", single_root=self.single_root)[0]
        crosses = structures.crossing_arcs(heads)[..., 0, 0] >= 0
        values = np.where(crosses.reshape(np.shape(values)), -np.inf, values)
        return float(values) if values.ndim == 0 else values

    def sample(self, k: int, rng: Seed = None) -> IntArray:
        """Return k independent trees (k, ..., n) or (k, ..., n, 2), drawn top down."""
        count = checks.positive_integer("k", k)
        generator = checks.generator(rng)
        arcs = self._solution.scores  # raises if there is no tree, and says why
        heads = empty((count, len(arcs), arcs.shape[1] - 1), dtype=np.int64)
        kernels.projective.sample_batch(
            arcs, self._table.lengths, self.single_root, generator, heads
        )
        labels = sample_labels(self._table.shares, heads, generator) if self.labeled else None
        return self._table.trees(heads, labels)

    def _solve(self) -> ProjectiveSolution:
        arcs, lengths = self._table.arcs, self._table.lengths
        real = structures.real_arcs(lengths, arcs.shape[-1])
        scores = np.where(real, arcs, -np.inf)
        lifted = lift_largest(scores, lengths)
        shift = root_shift(scores) if self.single_root else np.zeros(len(scores))
        scores[:, 0] -= shift[:, None]
        top = largest_into(scores)
        far = np.where(np.abs(top) > -MASK / 2, top, 0.0)  # else the arcs of a column may be masks
        scores -= far
        masks = lift_masks(scores, lengths, single_root=self.single_root)
        scores -= largest_into(scores)
        relative, marginals, _ = _solve(scores, lengths, self.single_root, None)
        with np.errstate(over="ignore", invalid="ignore"):
            log_z = relative + shift + top.sum(axis=(1, 2)) - masks.added * masks.needed
        if not np.isfinite(log_z).all():  # overflow, which the shift avoids
            sums = (_SMALL * shift + (_SMALL * top).sum(axis=(1, 2))) / _SMALL
            from_sums = relative + sums - masks.added * masks.needed
            log_z = np.where(np.isfinite(log_z), log_z, from_sums)
        for item, table in lifted.items():
            best = _best_arcs(table, len(table) - 1, single_root=self.single_root)
            if best is not None:
                log_z[item] += (np.maximum(arcs[item][best], LEAST) - table[best]).sum()
        return ProjectiveSolution(
            scores, lengths, self.single_root, log_z, relative, marginals, masks, arcs, lifted
        )

    def _is_same_recentered(self, item: int, tree: IntArray) -> bool:
        masks, heads = self._solution.masks, tree[:, 0] if self.labeled else tree
        used = masks.raised[item][heads, np.arange(1, len(heads) + 1)].sum()
        return bool(masks.added[item] == 0 or used == masks.needed[item])

    def _find_best(self, arcs: FloatArray, lengths: IntArray) -> tuple[IntArray, int]:
        heads = empty((len(arcs), arcs.shape[-1] - 1), dtype=np.int64)
        arcs = arcs.copy()
        lift_largest(arcs, lengths)
        return heads, kernels.projective.best_batch(arcs, lengths, self.single_root, heads)


def _solve(
    scores: FloatArray, lengths: IntArray, single: bool, direction: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    log_z, (mu, change) = empty(len(scores)), empty((2, *scores.shape))
    v = np.zeros_like(scores) if direction is None else np.ascontiguousarray(direction)
    along = direction is not None
    kernels.projective.solve_batch(scores, v, lengths, single, along, log_z, mu, change)
    np.minimum(mu, 1.0, out=mu)  # rounding may exceed 1
    mu.setflags(write=False)
    return log_z, mu, change
