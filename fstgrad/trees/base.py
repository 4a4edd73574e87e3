"""`TreeDistribution`: the common base of spanning and projective trees.

A family implements `_solve`, `_find_best` and `sample`; everything else is built on these.
"""

from abc import abstractmethod
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fstgrad import plot
from fstgrad.core import checks
from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.distribution import FAR, Distribution, Scalar
from fstgrad.core.errors import InvalidInputError
from fstgrad.trees import partial, structures, support
from fstgrad.trees.arcs import ArcTable
from fstgrad.trees.moments import Covariances, MomentDistribution, times
from fstgrad.trees.solution import Solved
from fstgrad.trees.structures import Ranked

Self = TypeVar("Self", bound="TreeDistribution")
TRUTH = (bool, np.bool_)


class TreeDistribution(MomentDistribution):
    """Trees over n dependents and a root with p(tree) = exp(sum of its arcs' scores) / Z."""

    projective = False  # whether arcs may not cross

    # Computed on first use.
    _solved: Solved | None = None
    _marginals: FloatArray | None = None

    _repr_svg_ = plot.notebook(
        lambda self: plot.trees(self.marginals()),
        lambda self: not (self.labeled or self.batch_shape) and self.lengths.max() <= 40,
    )

    def __init__(
        self,
        scores: npt.ArrayLike,
        *,
        single_root: bool,
        lengths: npt.ArrayLike | None = None,
        labeled: bool | None = None,
    ) -> None:
        self._table = ArcTable.checked(scores, lengths, labeled)
        self.scores = self._table.scores
        checks.instance("single_root", single_root, TRUTH, "True or False")
        self.single_root = bool(single_root)
        self.event_ndim = 3 if self._table.labeled else 2

    @property
    def labeled(self) -> bool:
        """Whether arcs have labels."""
        return self._table.labeled

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes of the scores."""
        return self._table.batch_shape

    @property
    def lengths(self) -> IntArray:
        """The number of dependents of each item, in the batch's shape."""
        return self._table.lengths.reshape(self.batch_shape).copy()

    def with_scores(self: Self, scores: npt.ArrayLike) -> Self:
        """Return the same family with another table of the same shape."""
        return type(self)(
            scores, single_root=self.single_root, lengths=self.lengths, labeled=self.labeled
        )

    def with_arcs(
        self: Self,
        *,
        required: Any = (),
        forbidden: Any = (),
        allowed: npt.ArrayLike | None = None,
    ) -> Self:
        """Return the distribution conditioned on hard constraints.

        required, forbidden : (k, 2) of (head, dependent), or (k, 3) with a label if the trees are
        labeled, for every item of a batch; or one such array for each item.  allowed : a partial
        annotation, as in `partial_nll`.

        Examples
        --------
        >>> import numpy as np, fstgrad as fg
        >>> trees = fg.SpanningTrees(np.zeros((4, 4)), single_root=True)
        >>> trees.with_arcs(required=[(0, 2)], forbidden=[(2, 1)]).mode()
        array([3, 0, 2])
        """
        scores = partial.constrained(self._table, required, forbidden)
        if allowed is not None:
            scores = np.where(partial.allowed_by(self._table, allowed), scores, -np.inf)
        return self.with_scores(scores)

    def partial_nll(self, known: npt.ArrayLike) -> tuple[Scalar, FloatArray]:
        """Return -log of the probability of all trees that agree with `known`, and its gradient.

        known : trees (..., n) or (..., n, 2) with -1 for an unknown head or label, or a bool table
            that fits the scores and marks the arcs (and labels) that may be used.

        The marginal likelihood: log Z minus the log Z of the trees that agree; its gradient is the
        difference of their marginals.  Raises `InfeasibleError` if no tree agrees.

        Examples
        --------
        >>> import numpy as np, fstgrad as fg
        >>> trees = fg.SpanningTrees(np.zeros((4, 4)), single_root=True)
        >>> value, gradient = trees.partial_nll([-1, 1, -1])  # the head of word 2 is word 1
        >>> round(float(np.exp(-value)), 6)
        0.333333
        """
        agreeing = self.with_arcs(allowed=known)
        value = self.log_partition() - agreeing.log_partition()
        return value, self.marginals() - agreeing.marginals()

    def scaled(self: Self, factor: float) -> Self:
        """Return the distribution with scores times `factor` > 0, an inverse temperature."""
        return self.with_scores(times(self.scores, checks.positive_number("factor", factor)))

    def log_partition(self) -> Scalar:
        """Return log Z in nats, in the batch's shape: O(n^3)."""
        values, table = self._solution.log_partition, self._table
        return self._shaped(values + table.offset if table.labeled else values.copy())

    def marginals(self) -> FloatArray:
        """Return mu, the probability of every arc: a read-only table like `scores`, O(n^3)."""
        if self._marginals is None:
            self._marginals = self._table.spread(self._solution.marginals)
        return self._marginals

    def entropy(self) -> Scalar:
        """Return the entropy log Z - <mu, scores> in nats, 0 to log(number of trees): O(n^3)."""
        return self._entropy_and_regrets()[0]

    def parts(self, structure: npt.ArrayLike) -> FloatArray:
        """Return the 0/1 table of the arcs of trees (..., n) or, labeled, (..., n, 2).

        Axes before those of the batch, such as the sample axis, are kept.
        """
        return self._parts(structure, "structure")

    def nll(self, gold: npt.ArrayLike) -> tuple[Scalar, FloatArray]:
        """Return -log p(gold) in nats and its gradient in the scores, marginals - parts(gold)."""
        parts = self.gold_parts(gold)
        return self._surprise(parts), self.marginals() - parts

    def log_prob(self, structure: npt.ArrayLike) -> Scalar:
        """Return log p(tree) in nats; -inf for a tree that is forbidden."""
        return -self._surprise(self.parts(structure))

    def _surprise(self, parts: FloatArray) -> Scalar:
        """Return -log p of trees given as tables (..., like the scores)."""
        log_z = self.log_partition()
        with np.errstate(over="ignore"):  # two masks at the lowest float add up to -inf
            values = log_z - self.inner(parts, self.scores)
        if np.abs(log_z).max(initial=0.0) < FAR:
            return values
        exact = np.array(values)
        for place in np.ndindex(parts.shape[: parts.ndim - self.scores.ndim]):
            own = parts[place]
            arcs = self._table.like_flat(own)
            constants, regrets = self._solution.surprise(arcs.sum(-1) if self.labeled else arcs)
            value = self._shaped(constants) + self.inner(own, self._table.with_labels(regrets))
            exact[place] = np.where(exact[place] < np.inf, value, np.inf)
        return float(exact) if exact.ndim == 0 else exact

    def gold_parts(self, gold: npt.ArrayLike) -> FloatArray:
        """Return the 0/1 table of gold trees; raise if one is not in the family."""
        parts = self._parts(gold, "gold")
        self._check_gold(gold)
        return parts

    def mode(self) -> IntArray:
        """Return the best tree: heads (..., n) int64, or (..., n, 2) with labels."""
        heads, lost = self._find_best(self._table.best_arcs, self._table.lengths)
        if lost >= 0:
            self._raise_infeasible(lost)
        if not self.labeled:
            return self._with_labels(heads, None)
        items, dependents = np.indices(heads.shape)
        labels = self._table.flat.argmax(axis=-1)[items, np.maximum(heads, 0), dependents + 1]
        return self._with_labels(heads, np.where(heads >= 0, labels, structures.PADDING))

    def minimum_risk_tree(self) -> IntArray:
        """Return the tree with the most expected correct heads (and labels).

        This minimum-Bayes-risk tree is the best one with marginals as scores; shape as in `mode`.
        """
        mu = self.marginals()
        return self.with_scores(np.where(mu > 0, mu, -np.inf)).mode()

    def kbest(self, k: int) -> list[Any]:
        """Return the k best trees, best first, as a list of (tree, log_prob); for a batch, lists.

        Fewer than k if there are not k trees.  O(n^2) per tree; projective trees use Lawler's
        partition of the remaining trees, at n times the cost of `mode` per tree.
        """
        from fstgrad.trees.kbest import merged

        count = checks.positive_integer("k", k)
        near, lists = self._near(), self._listed_best(count)
        if near is not self:  # precise, but without the scores of masked arcs
            for item, own in enumerate(near._listed_best(count)):
                exact = [ranked for ranked in own if self._is_near(item, ranked[0])]
                lists[item] = merged(exact, lists[item], count)
        return lists if self.batch_shape else lists[0]

    def _listed_best(self, count: int) -> list[list[Ranked]]:
        return self._listed([self._find_kbest(table, count) for table in self._table.items()])

    def _is_near(self, item: int, tree: IntArray) -> bool:
        """Return whether a tree of an item has the same probability in `_near`."""
        return True

    def _find_kbest(self, table: ArcTable, count: int) -> list[Ranked]:
        """Return up to `count` (tree, score), best first, for the table of one sentence."""
        from fstgrad.trees.kbest import best_trees

        return best_trees(table, count, self._find_best)

    @abstractmethod
    def _solve(self) -> Solved:
        """Return the solution of `self._table.arcs`."""

    @abstractmethod
    def _find_best(self, arcs: FloatArray, lengths: IntArray) -> tuple[IntArray, int]:
        """Return the best heads (b, n), -1 for items without a tree, and the first such item."""

    @property
    def _solution(self) -> Solved:
        if self._solved is None:
            solved = self._solve()
            if solved.infeasible >= 0:
                self._raise_infeasible(solved.infeasible)
            self._solved = solved
        return self._solved

    def _entropy_and_regrets(self) -> tuple[Scalar, FloatArray]:
        values, regrets = self._solution.entropies()
        table = self._table.with_labels(regrets)
        if not self.labeled:
            return self._shaped(values), table
        own = table - self._table.like_scores(regrets[..., None])
        return self._shaped(values) + self.inner(self.marginals(), own), table

    def cross_entropy(self, other: Distribution[FloatArray]) -> Scalar:
        """Return -E[log q(tree)] in nats, q = `other`; +inf if q forbids a tree in the support."""
        return self.kl(other) + self.entropy()

    def kl(self, other: Distribution[FloatArray]) -> Scalar:
        """Return KL(p || q) in nats for q = `other`; +inf if q forbids a tree in the support of p.

        The support consists of trees whose arcs have marginals above zero in float64.  q may be of
        another family (spanning, projective, one root or many), but must have the labels, shape and
        lengths of p.
        """
        rival = self._rival(other)
        gaps, constants = self._divergence_gap(rival)
        values = self._shaped(constants) + self.inner(self.marginals(), gaps)
        lost = self._escapes(rival).reshape(self.batch_shape)
        values = np.where(lost, np.inf, np.maximum(values, 0.0))
        return float(values) if values.ndim == 0 else values

    def _divergence_gap(self, other: MomentDistribution) -> tuple[FloatArray, FloatArray]:
        """Return r and c (b,) with KL = c + <marginals, r>; r is scores - other scores to Cov."""
        trees = self._rival(other)
        marginals = self._solution.marginals
        own, mine = self._solution.surprise(marginals)
        rival, theirs = trees._solution.surprise(marginals)
        gaps = trees._table.with_labels(theirs) - self._table.with_labels(mine)
        used: FloatArray = np.where(self.marginals() > 0, gaps, 0.0)
        return used, rival - own

    def _rival(self, other: Distribution[FloatArray]) -> "TreeDistribution":
        """Return `other`, checked to be trees comparable with these."""
        if not isinstance(other, TreeDistribution):
            raise InvalidInputError(f"other is a {type(other).__name__}; give trees")
        if other.scores.shape != self.scores.shape or other.labeled != self.labeled:
            raise InvalidInputError(
                f"other has scores of shape {other.scores.shape}, but this {self.scores.shape}; "
                "a divergence is between distributions over the same sentences and labels"
            )
        if (other.lengths != self.lengths).any():
            item = int(np.argmax(other._table.lengths != self._table.lengths))
            raise InvalidInputError(
                f"other has length {other._table.lengths[item]}{self._table.name(item)}, but this "
                f"{self._table.lengths[item]}; a divergence is between trees of the same words"
            )
        return other

    def _escapes(self, other: "TreeDistribution") -> BoolArray:
        """Return the items (b,) that have a tree of probability above 0 that `other` forbids."""
        lengths = self._table.lengths
        mu = self._table.like_flat(self.marginals())
        forbidden = (mu > 0) & (other._table.flat == -np.inf)
        arcs = self._solution.marginals
        if self.labeled:
            forbidden = forbidden.any(axis=-1)
        wider = other.single_root <= self.single_root and other.projective <= self.projective
        if wider and not forbidden.any():
            return np.zeros(len(lengths), dtype=bool)
        return support.escapes(
            self._table.arcs, arcs, forbidden, lengths, self._family(), other._family()
        )

    def _arc_covariances(self, place: tuple[int, ...]) -> Covariances | None:
        return None

    def _log_partition_ratio(self, logs: FloatArray) -> Scalar:
        return self._shaped(self._tilted(logs)[1])

    def _tilted(self, logs: FloatArray) -> tuple[Solved, FloatArray]:
        """Return the solution of the scores + logs, and its log Z (b,) minus that of the scores."""
        own = self if self._near() is self else TreeDistribution._centered(self)
        moved = self.with_scores(own.scores + logs)
        solution = moved._solve()
        before = np.reshape(own.log_partition(), solution.log_partition.shape)
        return solution, solution.log_partition + moved._table.offset - before

    def _family(self) -> support.Family:
        def log_partition(tables: FloatArray, lengths: IntArray) -> FloatArray:
            family = type(self)(
                tables, single_root=self.single_root, lengths=lengths, labeled=False
            )
            return family._solve().log_partition

        return support.Family(self.single_root, self.projective, self._find_best, log_partition)

    def _centered(self: Self) -> Self:
        """Return the same distribution with each dependent's largest score shifted to about 0.

        This removes a constant shared by all trees, so log Z is small.
        """
        regrets = self._entropy_and_regrets()[1]
        arcs = self._solution.scores
        kept = self._table.like_scores(arcs[..., None] if self.labeled else arcs) > -np.inf
        return self.with_scores(np.where(kept & (self.scores > -np.inf), -regrets, -np.inf))

    def _near(self: Self) -> Self:
        """Return the same distribution with scores without masks and a small log Z."""
        is_far = np.abs(self.log_partition()).max(initial=0.0) >= FAR
        is_far |= (np.isfinite(self.scores) & (np.abs(self.scores) >= FAR)).any()
        return self._centered() if is_far else self

    def _check_gold(self, gold: npt.ArrayLike) -> None:
        """Raise if a gold tree is not in the family; heads and roots are already checked."""

    def _covariance_product(self, v: FloatArray) -> FloatArray:
        return self._table.covariance_product(v, self._solution)

    def _shaped(self, values: FloatArray) -> Scalar:
        """Return per-item values in the batch's shape, a float if there is no batch."""
        shape = self._table.batch_shape
        return values.reshape(shape) if shape else float(values[0])

    def _parts(self, structure: npt.ArrayLike, name: str) -> FloatArray:
        heads, labels = self._table.checked_trees(structure, name, single_root=self.single_root)
        flat = (*heads.shape[:-2], *self._table.flat.shape)
        table = structures.arc_table(heads, labels, flat)
        return table.reshape(heads.shape[:-2] + self.scores.shape)

    def _with_labels(self, heads: IntArray, labels: IntArray | None) -> IntArray:
        """Return trees in the public shape from heads and labels (..., b, n)."""
        if labels is None and not self.batch_shape and heads.ndim == 2:
            alone: IntArray = heads[0]
            return alone
        lead, n = heads.shape[:-2], heads.shape[-1]
        if labels is None:
            shape = (*lead, *self.batch_shape, n) if lead or self.batch_shape else n
            return heads.reshape(shape)
        return np.stack([heads, labels], axis=-1).reshape(*lead, *self.batch_shape, n, 2)

    def _listed(self, found: list[list[Ranked]]) -> list[list[Ranked]]:
        """Return the lists of (tree, score) of all items as (tree, log_prob)."""
        log_z = self._solution.log_partition + self._table.offset
        pairs = zip(found, log_z, strict=True)
        return [[(tree, float(score - z)) for tree, score in trees] for trees, z in pairs]

    def _table_like_scores(self, name: str, values: npt.ArrayLike) -> FloatArray:
        array = checks.direction_array(name, values)
        try:
            fits = array.shape == self.scores.shape
            return np.array(array if fits else np.broadcast_to(array, self.scores.shape), order="C")
        except ValueError as error:
            raise InvalidInputError(
                f"{name} has shape {array.shape}; it must fit the scores, {self.scores.shape}"
            ) from error

    def _raise_infeasible(self, item: int) -> None:
        n = int(self._table.lengths[item])
        raise structures.explain_infeasible(
            self._table.arcs[item, : n + 1, : n + 1],
            self._table.name(item),
            single_root=self.single_root,
        )
