"""`SpanningTrees`: the distribution over spanning arborescences of a rooted digraph."""

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray, IntArray, Seed
from fstgrad.core.distribution import Scalar
from fstgrad.core.errors import NotSupportedError
from fstgrad.core.infeasible import Infeasible, check_infeasible
from fstgrad.core.uninitialized import empty
from fstgrad.trees import kernels
from fstgrad.trees.arc_covariances import (
    ArcCovariances,
    Covariances,
    LabelCovariances,
    expected_sign,
)
from fstgrad.trees.arcs import ArcTable, exponential
from fstgrad.trees.distribution import BOOLS, TreeDistribution
from fstgrad.trees.sampling import (
    LOWEST_DRAWN,
    sample_heads,
    sample_labels,
    sample_without_replacement,
)
from fstgrad.trees.solution import Solution, change_column, solve
from fstgrad.trees.structures import RankedTree

DOUBLE, INT64 = np.dtype(np.float64), np.dtype(np.int64)


def best_tree(
    scores: npt.ArrayLike, *, single_root: bool | np.bool_, infeasible: Infeasible = "raise"
) -> IntArray:
    """Return the heads (..., n) of the best spanning tree of tables (..., n+1, n+1), unlabeled.

    The result equals `SpanningTrees(scores, single_root=single_root).mode()` and takes a third of
    its time for short sentences: one table needs a single compiled call.  O(n^2) (Tarjan, 1977;
    single root: Gabow and Tarjan, 1984).  With infeasible="zero", the heads of a table without a
    tree are -1; by default one error names all such tables.

    Raises
    ------
    InvalidInputError, InfeasibleError
        As in `SpanningTrees`.

    Examples
    --------
    >>> import numpy as np, fstgrad as fg
    >>> scores = np.array([[0, 9, 10, 9], [0, 0, 20, 3], [0, 30, 0, 30], [0, 11, 0, 0.0]])
    >>> fg.best_tree(scores, single_root=True)
    array([2, 0, 2])
    """
    if type(scores) is not np.ndarray or scores.dtype is not DOUBLE:  # saves 0.1 us
        scores = checks.score_array("scores", scores)
    if not isinstance(single_root, bool):
        checks.instance("single_root", single_root, BOOLS, "True or False")
        single_root = bool(single_root)
    check_infeasible(infeasible)
    if scores.ndim == 2 and len(scores) == scores.shape[1] > 0:
        heads = empty(len(scores) - 1, INT64)
        if kernels.normal_form.best_checked(checks.writable(scores), single_root, heads):
            return heads
    return SpanningTrees(
        scores, single_root=single_root, labeled=False, infeasible=infeasible
    ).mode()


class SpanningTrees(TreeDistribution):
    """Trees over n dependents and a root with p(tree) = exp(sum of the scores of its arcs) / Z.

    Every dependent has one head, and the path along the heads ends at the root.  By the matrix-tree
    theorem, Z is the determinant of the Laplacian L, where L_jj is the total weight that enters j
    and L_ij = -w_ij.  The marginals are w_ij (B_jj - B_ji), where B is the inverse of L.  Leading
    axes of `scores` are a batch.

    Parameters
    ----------
    scores : (..., n+1, n+1) or (..., n+1, n+1, y) array_like
        score[head, dependent(, label)], log-weights in nats; index 0 is the root; -inf forbids an
        arc.  The diagonal and column 0 are ignored.
    single_root : bool
        Whether exactly one arc leaves the root, as in dependency trees, or at least one.
    lengths : (...) array_like of int, optional
        The number of dependents of each item of a batch that is padded to n; entries beyond it are
        not read.  Default: n for all items.
    labeled : bool, optional
        Whether the last axis holds labels.  Inferred from the shape by default, which is impossible
        if the last three axes have equal lengths.
    infeasible : {"raise", "zero"}
        "raise": one error names every item of a batch without a tree (Z = 0) or, in a loss, with a
        gold tree of probability 0.  "zero": items without a tree are sentences without words, of
        length 0: their heads are -1, and their log Z, entropy, marginals, losses and gradients are
        0, as are those of other items whose gold tree is infeasible.

    Raises
    ------
    InvalidInputError
        If a table is not square, if scores are NaN or +inf, or if the lengths do not fit.
    InfeasibleError
        On first use, if no tree is allowed (Z = 0); the message names the items and the nodes.

    Notes
    -----
    log Z and marginals cost O(n^3) and are accurate to 1e-9 for scores of any range (see
    `solution`).  Trees are arrays of heads (see `structures`).  Zmigrod, Vieira and Cotterell,
    "Efficient Computation of Expectations under Spanning Tree Distributions", TACL 2021; single
    root: Koo, Globerson, Carreras and Collins, EMNLP 2007.

    Examples
    --------
    By Cayley's formula, n dependents have (n+1)^(n-1) trees, n^(n-1) of them with one root arc.

    >>> import numpy as np
    >>> trees = SpanningTrees(np.zeros((4, 4)), single_root=False)
    >>> round(float(np.exp(trees.log_partition())), 9)
    16.0
    >>> SpanningTrees(np.zeros((4, 4)), single_root=True).marginals()[:, 1].round(6)
    array([0.333333, 0.      , 0.333333, 0.333333])
    """

    _solution: Solution

    def sample(self, k: int, rng: Seed = None, *, method: str = "auto") -> IntArray:
        """Return k independent trees (k, ..., n) or (k, ..., n, 2), drawn exactly.

        method : {"auto", "wilson", "colbourn"}
            "wilson" (1996) walks at random from every dependent to the tree built so far and
            erases loops; a single root arc is drawn first (Zmigrod, Vieira and Cotterell, EMNLP
            2021).  "colbourn" (Colbourn, Day and Nel, 1996) draws each head given the previous
            heads.  The expected number of steps of the walks is known beforehand; "auto" uses
            "colbourn" if it is too large.
        """
        count = checks.positive_integer("k", k)
        generator = checks.generator(rng)
        chosen = checks.one_of("method", method, ("auto", "wilson", "colbourn"))
        heads = sample_heads(self._solution, count, generator, chosen)
        labels = sample_labels(self._table.shares, heads, generator) if self.labeled else None
        return self._table.trees(heads, labels)

    def sample_without_replacement(self, k: int, rng: Seed = None) -> list[Any]:
        """Return up to k different trees, as if drawn one after the other without replacement.

        Returns a list of (tree, log_prob) in the order of the draws, and a list of lists for a
        batch.  It has fewer than k entries if there are fewer trees.  The method takes the first
        occurrences among independent draws; if these repeat themselves, it draws from the exact
        probabilities of the remaining trees, in O(n^3) per tree, or O(n^4 / 12) for peaked
        distributions.  Trees 10^5 nats below the best one are not drawn, and none of an infeasible
        item that is zeroed.
        """
        count = checks.positive_integer("k", k)
        generator = checks.generator(rng)
        recentered = self._recentered()
        drawn: list[list[RankedTree]] = []
        for table in recentered._table.items():
            solution = solve(table.arcs, table.lengths, single_root=self.single_root)
            draws = sample_without_replacement(table, solution, count, generator)
            lowest = -np.inf
            if recentered is not self:
                lowest = float(solution.log_partition[0]) + LOWEST_DRAWN
            drawn.append([(tree, score) for tree, score in draws if score > lowest])
        return self._lists_of_batch(recentered._with_log_probs(drawn))

    def with_column(self, dependent: int, scores: npt.ArrayLike) -> "SpanningTrees":
        """Return the distribution with new scores (n+1,) of the arcs into one dependent, in O(n^2).

        Requires one unlabeled table.  log Z and marginals get an update of rank one; if this would
        lose digits, they are recomputed in O(n^3).
        """
        if self.batch_shape or self.labeled:
            raise NotSupportedError(
                "with_column is for one unlabeled table; use with_scores on a batch or labels"
            )
        size = len(self.scores)
        column = checks.log_weights("scores", scores, (size,))
        place = checks.index("dependent", dependent, size, lower=1)
        table = self.scores.copy()
        table[:, place] = column
        table[place, place] = self.scores[place, place]
        changed = self.with_scores(table)
        if not (self._table.left_out or changed._table.left_out):
            changed._solved = change_column(self._solution, int(place), changed._table.flat)
        return changed

    def with_score(self, head: int, dependent: int, score: float) -> "SpanningTrees":
        """Return the distribution with a new score of one arc, solved as in `with_column`."""
        place = checks.index("head", head, len(self.scores))
        end = checks.index("dependent", dependent, len(self.scores), lower=1)
        column = self.scores[:, end].copy()
        column[place] = checks.log_weights("score", score, ())
        return self.with_column(int(end), column)

    def third_order(self, v: npt.ArrayLike, u: npt.ArrayLike) -> FloatArray:
        """Return the derivative of Cov v along u, the third derivative of log Z (unlabeled tables).

        v, u : finite tables like `scores`.  The computation is on logarithms and subtracts no
        weights, so it is accurate for scores of any range; it costs O(n^3) with a large constant.
        """
        if self.labeled:
            raise NotSupportedError(
                "third derivatives need scores without labels; sum the labels out first"
            )
        tables = (self._table.finite(name, x) for name, x in (("v", v), ("u", u)))
        first, second = (self._table.like_flat(table) for table in tables)
        return self._table.like_scores(self._solution.third_order(first, second))

    def _find_kbest(self, table: ArcTable, count: int) -> list[RankedTree]:
        flat = table.flat[0] if table.labeled else table.flat[0][..., None]
        n = len(flat) - 1
        trees = np.zeros((count, n, 2), dtype=np.int64)
        total = kernels.kbest.best_trees(flat, self.single_root, trees) if n else 1
        scores = flat[trees[..., 0], np.arange(1, n + 1), trees[..., 1]].sum(axis=-1)
        return [
            (tree if self.labeled else tree[:, 0], float(score))
            for tree, score in zip(trees[:total], scores, strict=False)
        ]

    def _centered(self) -> "SpanningTrees":
        """Return the same distribution in normal form, with all trees that can be drawn."""
        arcs = self._table.arcs
        normal = np.full(arcs.shape, -np.inf)
        for table, n, out in zip(arcs, self._table.lengths.tolist(), normal, strict=True):
            raised, inner = empty((2, n + 1, n + 1))
            kernels.normal_form.lift_masks(checks.writable(table[: n + 1, : n + 1]), raised)
            closed, heads = np.zeros(n + 1, dtype=bool), empty(n, np.int64)
            # 0, the default limit, if rounding hid the best tree by more than the first limit
            for limit in (LOWEST_DRAWN, 0.0):
                _, child = kernels.normal_form.write_normal_form(
                    raised, n, self.single_root, limit, inner, closed
                )
                if child > 0 and kernels.normal_form.best_checked(inner, self.single_root, heads):
                    out[: n + 1, : n + 1] = inner
                    break
            else:  # without a tree: its own scores say why
                out[: n + 1, : n + 1] = table[: n + 1, : n + 1]
        scores = -self._table.with_labels(-normal)
        return self._rescored(np.where(self.scores > -np.inf, scores, -np.inf))

    def _arc_covariances(self, place: tuple[int, ...]) -> Covariances | None:
        item = int(np.ravel_multi_index(place, self.batch_shape)) if place else 0
        solution = self._solution
        if (
            solution.lengths[item] + 1 < solution.scores.shape[1]
            or solution.ill_conditioned()[item]
        ):
            return None
        arcs = ArcCovariances(
            np.exp(solution.log_weights(item)), solution.gradient[item], solution.marginals[item],
            self.single_root,
        )  # fmt: skip
        if self.labeled:
            return LabelCovariances(arcs, self._table.shares[item])
        return arcs

    def _signed_product(self, q: FloatArray) -> Scalar:
        table = self._table.like_flat(q)
        if self.labeled:
            table = (self._table.shares * table).sum(axis=-1)
        one_root, lengths = self.single_root, self._table.lengths
        arcs = SpanningTrees(self._table.arcs, single_root=one_root, lengths=lengths, labeled=False)
        with np.errstate(divide="ignore"):
            tilted, logs = arcs._tilted(np.log(np.abs(table)))
        solution, values = cast(Solution, tilted), np.zeros(len(table))
        for item in np.flatnonzero(logs > -np.inf).tolist():
            log_w, log_z = solution.scaled_log_weights(item)
            used, signs = (
                solution.item_table(x, item) for x in (solution.marginals, np.sign(table))
            )
            sign = expected_sign(log_w, log_z, used, signs, one_root)
            values[item] = sign * exponential(logs[item]) if sign else 0.0
        return self._shaped(values)

    def _solve(self) -> Solution:
        return solve(self._table.arcs, self._table.lengths, single_root=self.single_root)

    def _find_best(self, arcs: FloatArray, lengths: IntArray) -> tuple[IntArray, int]:
        heads = empty((len(arcs), arcs.shape[-1] - 1), np.int64)
        return heads, kernels.normal_form.best_batch(arcs, lengths, self.single_root, heads)
