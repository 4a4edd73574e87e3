"""`TreeDistribution`: the common base of spanning and projective trees.

A family implements `_solve`, `_find_best` and `sample`; everything else is built on these.
Second-order quantities rest on the Hessian-vector product Cov v or, for several directions, on
covariances in closed form; only `covariance_matrix` forms all (n+1)^4 of them.  Section and figure
numbers refer to Zmigrod, Vieira and Cotterell (2021).
"""

from abc import abstractmethod
from typing import Any, Literal, TypeVar, cast

import numpy as np
import numpy.typing as npt

from fstgrad import plot
from fstgrad.core import checks
from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.distribution import FAR, ArrayDistribution, Distribution, Scalar, log_probability
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.core.infeasible import Infeasible, check_infeasible
from fstgrad.core.uninitialized import empty
from fstgrad.trees import constraints, structures
from fstgrad.trees.arc_covariances import Covariances
from fstgrad.trees.arcs import ArcTable, Vectors, exponential, times
from fstgrad.trees.decoding import best_trees, merged
from fstgrad.trees.second_order import ProductCovariances, covariance_of_totals, unnormalized
from fstgrad.trees.solution import Solved
from fstgrad.trees.structures import RankedTree

Self = TypeVar("Self", bound="TreeDistribution")
BOOLS = (bool, np.bool_)
# Renyi entropies of orders this close to 1 are means over orders, not quotients.
NEAR_ONE = 1e-2


class TreeDistribution(ArrayDistribution):
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
        infeasible: Infeasible = "raise",
    ) -> None:
        self._table = ArcTable.checked(scores, lengths, labeled)
        self.scores = self._table.scores
        checks.instance("single_root", single_root, BOOLS, "True or False")
        self.single_root = bool(single_root)
        self.event_ndim = 3 if self._table.labeled else 2
        self.infeasible = check_infeasible(infeasible)
        if infeasible == "zero":
            best, first = self._find_best(self._table.best_arcs, self._table.lengths)
            if first >= 0:
                self._table = self._table.without(self._has_none(best))

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
        """The number of dependents of each item, in the batch's shape; 0 if it is left out."""
        return self._table.lengths.reshape(self.batch_shape).copy()

    # What a family implements, and what it may replace.

    @abstractmethod
    def _solve(self) -> Solved:
        """Return the solution of `self._table.arcs`."""

    @abstractmethod
    def _find_best(self, arcs: FloatArray, lengths: IntArray) -> tuple[IntArray, int]:
        """Return the best heads (b, n), -1 for items without a tree, and the first such item."""

    def _find_kbest(self, table: ArcTable, count: int) -> list[RankedTree]:
        """Return up to `count` (tree, score), best first, for the table of one sentence."""
        return best_trees(table, count, self._find_best)

    def _is_same_recentered(self, item: int, tree: IntArray) -> bool:
        """Return whether a tree of an item has the same probability in `_recentered`."""
        return True

    def _arc_covariances(self, place: tuple[int, ...]) -> Covariances | None:
        """Return the covariances of one item in closed form, None if it has none."""
        return None

    def _signed_product(self, q: FloatArray) -> Scalar:
        """Return E[product of q] for q of any sign."""
        raise NotSupportedError(
            "q has entries below zero, which only SpanningTrees accepts; give q >= 0"
        )

    # The same family with other scores.

    def with_scores(self: Self, scores: npt.ArrayLike) -> Self:
        """Return the same family with another table of the same shape."""
        scores = checks.score_array("scores", scores, self.scores.shape)
        return type(self)(
            scores, single_root=self.single_root, labeled=self.labeled, infeasible=self.infeasible,
            lengths=self._table.given_lengths.reshape(self.batch_shape),
        )  # fmt: skip

    def _rescored(self: Self, scores: FloatArray) -> Self:
        """Return the same family with other scores of the items that are not left out."""
        return type(self)(
            scores, single_root=self.single_root, labeled=self.labeled, lengths=self.lengths
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
        scores = constraints.constrained(self._table, required, forbidden)
        if allowed is not None:
            agrees = constraints.allowed_by(self._table, "allowed", allowed)
            scores = np.where(agrees, scores, -np.inf)
        return self.with_scores(scores)

    def scaled(self: Self, factor: float) -> Self:
        """Return the distribution with scores times `factor` > 0, an inverse temperature."""
        return self.with_scores(times(self.scores, checks.positive_number("factor", factor)))

    def _centered(self: Self) -> Self:
        """Return the same distribution with each dependent's largest score shifted to about 0.

        This removes a constant shared by all trees, so log Z is small.
        """
        reduced_costs = self._entropy_and_reduced_costs()[1]
        arcs = self._solution.scores
        solved = self._table.like_scores(arcs[..., None] if self.labeled else arcs)
        allowed = (solved > -np.inf) & (self.scores > -np.inf)
        return self._rescored(np.where(allowed, -reduced_costs, -np.inf))

    def _recentered(self: Self) -> Self:
        """Return this distribution; with large scores, `_centered`, whose scores have no masks."""
        has_offsets = np.abs(self.log_partition()).max(initial=0.0) >= FAR
        has_offsets |= (np.isfinite(self.scores) & (np.abs(self.scores) >= FAR)).any()
        return self._centered() if has_offsets else self

    def _without_offsets(self) -> "TreeDistribution":
        """Return the same distribution, to whose scores small numbers can be added."""
        return self if self._recentered() is self else TreeDistribution._centered(self)

    # First-order quantities, from one solution that is computed on first use.

    @property
    def _solution(self) -> Solved:
        if self._solved is None and (reasons := self._reasons()):
            raise self._table.infeasible_error(reasons)
        return cast(Solved, self._solved)

    def _reasons(self) -> dict[tuple[int, ...], str]:
        """Solve all items, and return why some have no tree, by their places."""
        solved = self._solve() if self._solved is None else self._solved
        if solved.infeasible >= 0:
            return self._table.explain(np.isneginf(solved.log_partition), self.single_root)
        self._solved = solved
        return {}

    def log_partition(self) -> Scalar:
        """Return log Z in nats, in the batch's shape: O(n^3)."""
        values, table = self._solution.log_partition, self._table
        return self._shaped(values + table.offset if table.labeled else values.copy())

    def marginals(self) -> FloatArray:
        """Return mu, the probability of every arc: a read-only table like `scores`, O(n^3)."""
        if self._marginals is None:
            self._marginals = self._table.marginals_like_scores(self._solution.marginals)
        return self._marginals

    def entropy(self) -> Scalar:
        """Return the entropy log Z - <mu, scores> in nats, 0 to log(number of trees): O(n^3)."""
        return self._entropy_and_reduced_costs()[0]

    def _entropy_and_reduced_costs(self) -> tuple[Scalar, FloatArray]:
        """Return the entropy and a new table like the scores that equals -scores for covariances.

        The table is the negative scores up to a constant over structures, with 0 for -inf.
        """
        values, reduced_costs = self._solution.entropies()
        table = self._table.with_labels(reduced_costs)
        if not self.labeled:
            return self._shaped(values), table
        of_labels = table - self._table.like_scores(reduced_costs[..., None])
        return self._shaped(values) + self.inner(self.marginals(), of_labels), table

    def parts(self, structure: npt.ArrayLike) -> FloatArray:
        """Return the 0/1 table of the arcs of trees (..., n) or, labeled, (..., n, 2).

        Axes before those of the batch, such as the sample axis, are kept.
        """
        trees = self._table.checked_trees(structure, "structure", single_root=self.single_root)
        return self._table.parts(*trees)

    def gold_parts(self, gold: npt.ArrayLike) -> FloatArray:
        """Return the 0/1 table of gold trees; raise if one is not in the family."""
        return self._gold(gold, scored=False)[0]

    def _gold(self, gold: npt.ArrayLike, *, scored: bool = True) -> tuple[FloatArray, BoolArray]:
        """Return the table of gold trees, and which items of a batch are infeasible, (..., batch).

        scored : whether a tree with a forbidden arc is infeasible too.
        """
        alone = not self.batch_shape and self.infeasible == "raise"
        trees = self._table.checked_trees(gold, "gold", single_root=self.single_root and alone)
        parts = self._table.parts(*trees)
        forbidden = self._table.forbidden(parts) & (scored and not alone)
        reasons = structures.explain_excluded(
            trees[0].reshape(*forbidden.shape, -1), forbidden,
            single_root=self.single_root, projective=self.projective,
        )  # fmt: skip
        if alone and reasons:
            why = next(iter(reasons.values()))
            raise InvalidInputError(f"{why}; leave the tree out, or use SpanningTrees")
        if self.infeasible == "raise":
            lead = np.ndindex(forbidden.shape[: forbidden.ndim - len(self.batch_shape)])
            no_tree = self._reasons().items() if scored else ()
            reasons |= {(*i, *place): why for i in lead for place, why in no_tree}
            if reasons:
                raise self._table.infeasible_error(reasons)
        are_bad = np.zeros(forbidden.shape, dtype=bool)
        for place in reasons:
            are_bad[place] = True
        return parts, are_bad

    def nll(self, gold: npt.ArrayLike) -> tuple[Scalar, FloatArray]:
        """Return -log p(gold) in nats and its gradient in the scores, marginals - parts(gold).

        For gold of probability 0, the value is +inf; in a batch, the item is infeasible.
        """
        parts, are_bad = self._gold(gold)
        values, gradient = self._negative_log_probability(parts), self.marginals() - parts
        return self._table.zeroed(are_bad, values, gradient)

    def log_prob(self, structure: npt.ArrayLike) -> Scalar:
        """Return log p(tree) in nats; -inf for a tree that is forbidden."""
        return log_probability(0.0, self._negative_log_probability(self.parts(structure)))

    def _negative_log_probability(self, parts: FloatArray) -> Scalar:
        """Return -log p of trees given as tables (..., like the scores)."""
        log_z = self.log_partition()
        with np.errstate(over="ignore"):  # two masks at the lowest float add up to -inf
            values = log_z - self.inner(parts, self.scores)
        if np.abs(log_z).max(initial=0.0) < FAR:
            return values
        exact = np.array(values)
        for place in np.ndindex(parts.shape[: parts.ndim - self.scores.ndim]):
            tree = parts[place]
            arcs = self._table.like_flat(tree)
            constants, reduced_costs = self._solution.negative_log_probability(
                arcs.sum(-1) if self.labeled else arcs
            )
            value = self._shaped(constants) + self.inner(
                tree, self._table.with_labels(reduced_costs)
            )
            exact[place] = np.where(exact[place] < np.inf, value, np.inf)
        return float(exact) if exact.ndim == 0 else exact

    def partial_nll(self, known: npt.ArrayLike) -> tuple[Scalar, FloatArray]:
        """Return -log of the probability of all trees that agree with `known`, and its gradient.

        known : trees (..., n) or (..., n, 2) with -1 or -100 for an unknown head or label, or a
            bool table that fits the scores and marks the arcs (and labels) that may be used.

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
        return self._partial_nll("known", known)

    def _partial_nll(self, name: str, known: npt.ArrayLike) -> tuple[Scalar, FloatArray]:
        """Return `partial_nll`; errors call the argument `name`."""
        agreeing = self.with_arcs(allowed=constraints.allowed_by(self._table, name, known))
        if self.batch_shape and (reasons := agreeing._reasons()):
            no_tree, why = self._reasons(), f"{name} excludes every tree of finite score"
            named = {place: no_tree.get(place, why) for place in reasons}
            raise self._table.infeasible_error(named)
        value = self.log_partition() - agreeing.log_partition()
        gradient = self.marginals() - agreeing.marginals()
        return self._table.zeroed(agreeing._table.left_out, value, gradient)

    # Best trees.

    def mode(self) -> IntArray:
        """Return the best tree: heads (..., n) int64, or (..., n, 2) with labels."""
        heads, infeasible = self._find_best(self._table.best_arcs, self._table.lengths)
        if infeasible >= 0:
            reasons = self._table.explain(self._has_none(heads), self.single_root)
            raise self._table.infeasible_error(reasons)
        if not self.labeled:
            return self._table.trees(heads, None)
        items, dependents = np.indices(heads.shape)
        labels = self._table.flat.argmax(axis=-1)[items, np.maximum(heads, 0), dependents + 1]
        return self._table.trees(heads, np.where(heads >= 0, labels, structures.PADDING))

    def _has_none(self, heads: IntArray) -> BoolArray:
        """Return which items (b,) have no tree: those with best heads (b, n) of -1."""
        return np.asarray((heads < 0).all(axis=1) & (self._table.lengths > 0))

    def minimum_risk_tree(self) -> IntArray:
        """Return the tree with the most expected correct heads (and labels).

        This minimum-Bayes-risk tree is the best one with marginals as scores; shape as in `mode`.
        """
        mu = self.marginals()
        return self._rescored(np.where(mu > 0, mu, -np.inf)).mode()

    def kbest(self, k: int) -> list[Any]:
        """Return the k best trees, best first, as a list of (tree, log_prob); for a batch, lists.

        Fewer than k if there are not k trees, and none for an infeasible item that is zeroed.
        O(n^2) per tree; projective trees use Lawler's partition of the remaining trees, at n times
        the cost of `mode` per tree.
        """
        count = checks.positive_integer("k", k)
        recentered, lists = self._recentered(), self._ranked(count)
        if recentered is not self:  # precise, but without the scores of masked arcs
            for item, ranked in enumerate(recentered._ranked(count)):
                exact = [pair for pair in ranked if self._is_same_recentered(item, pair[0])]
                lists[item] = merged(exact, lists[item], count)
        return self._lists_of_batch(lists)

    def _lists_of_batch(self, lists: list[list[RankedTree]]) -> list[Any]:
        """Return the lists of all items, without trees if the item is left out."""
        left_out = self._table.left_out.ravel()
        kept = [[] if out else own for out, own in zip(left_out, lists, strict=True)]
        return kept if self.batch_shape else kept[0]

    def _ranked(self, count: int) -> list[list[RankedTree]]:
        """Return up to `count` (tree, log_prob) of each item, best first."""
        return self._with_log_probs(
            [self._find_kbest(table, count) for table in self._table.items()]
        )

    def _with_log_probs(self, lists: list[list[RankedTree]]) -> list[list[RankedTree]]:
        """Return the lists of (tree, score) of all items as (tree, log_prob)."""
        log_z = self._solution.log_partition + self._table.offset
        pairs = zip(lists, log_z, strict=True)
        return [[(tree, log_probability(score, z)) for tree, score in trees] for trees, z in pairs]

    # Second-order quantities, from Cov v or covariances in closed form.

    def covariance_product(self, direction: npt.ArrayLike) -> FloatArray:
        """Return Cov v, the derivative of the marginals along a finite table v like `scores`.

        The Hessian of log Z times a vector in O(n^3): for spanning trees one inverse and two
        matrix products.
        """
        return self._covariance_product(self._table.finite("direction", direction))

    def _covariance_product(self, v: FloatArray) -> FloatArray:
        """Return Cov v for a finite C-contiguous table v like the scores; v may be overwritten."""
        return self._table.covariance_product(v, self._solution)

    def covariance(self, r: npt.ArrayLike, s: npt.ArrayLike) -> Scalar:
        """Return Cov[<r, t>, <s, t>] for tables r and s like `scores`: O(n^3)."""
        r, s = self._table.finite("r", r), self._table.finite("s", s)
        return self.inner(self.covariance_product(s), r)

    def covariance_matrix(self) -> FloatArray:
        """Return the covariances of all pairs of parts: the event axes of `scores` twice.

        Closed form for spanning trees, O(n^4).  For projective trees, and if the gradient of log Z
        is too large for the closed form, one Hessian-vector product per part, O(n^5).
        """
        event = self.scores.shape[-self.event_ndim :]
        batch = self.scores.shape[: -self.event_ndim]
        size = int(np.prod(event))
        matrix = empty((*batch, size, size))
        for place in np.ndindex(batch):
            closed = self._arc_covariances(place)
            if closed is None:
                return self._covariance_columns(matrix).reshape(*batch, *event, *event)
            matrix[place] = closed.matrix().reshape(size, size)
        return matrix.reshape(*batch, *event, *event)

    def _covariance_columns(self, matrix: FloatArray) -> FloatArray:
        event = self.scores.shape[-self.event_ndim :]
        for column in range(matrix.shape[-1]):
            unit = np.zeros(matrix.shape[-1])
            unit[column] = 1.0
            v = np.array(np.broadcast_to(unit.reshape(event), self.scores.shape), order="C")
            matrix[..., column] = self._covariance_product(v).reshape(matrix.shape[:-1])
        return matrix

    def expectations(self, r: Any) -> FloatArray:
        """Return E[sum of r over the parts] for a vector-valued r: T1 (Figure 2), O(n^3 + n^2 R').

        r : scores.shape + (R,), or, without a batch, a sparse (n_parts, R) array, of which only the
        non-zeros are read.
        """
        return self._expectations(self._table.vectors("r", r))

    def _expectations(self, table: Vectors) -> FloatArray:
        """Return E of the totals of a checked table like the scores with one axis more."""
        mu = self.marginals()
        if not isinstance(table, np.ndarray):
            return np.asarray(table.T @ mu.reshape(-1))
        batch = mu.ndim - self.event_ndim
        size = mu.shape[:batch]
        weights = mu.reshape(*size, 1, mu[(0,) * batch].size)
        flat = table.reshape(*size, weights.shape[-1], table.shape[-1])
        totals: FloatArray = np.matmul(weights, flat)[..., 0, :]
        return totals

    def second_moments(
        self, r: Any, s: Any, *, method: Literal["auto", "vector", "hessian"] = "auto"
    ) -> FloatArray:
        """Return E[r s'] for the totals r (R) and s (S) of a structure: T2 (Figure 3), (..., R, S).

        r, s : scores.shape + (R,) and (S,), or, without a batch, sparse (n_parts, R) and
            (n_parts, S) arrays.
        method : {"auto", "vector", "hessian"}
            "vector" (T2^v) costs one matrix product per entry of r and of s and one for all of
            them, O(n^3 (R + S) + n^2 R S).  "hessian" (T2^h) computes a row of the covariances for
            each part with a non-zero r, and adds non-zeros only, O(n^4 (1 + S') + n^2 R' S), with
            R' and S' non-zeros in a part: it wins if r and s are sparse and R and S large.  "auto"
            takes the one with fewer operations.  Without a closed form (see `covariance_matrix`),
            T2^v needs a Hessian-vector product per entry of r, and T2^h one per part.
        """
        checks.one_of("method", method, ("auto", "vector", "hessian"))
        first, second = (self._table.vectors(name, x) for name, x in (("r", r), ("s", s)))
        if self.batch_shape:
            return self._second_moments_of_items(first, second, method)
        shape = self.scores.shape
        covariances = self._arc_covariances(()) or ProductCovariances(
            self._covariance_product, shape
        )
        covariance = covariance_of_totals(covariances, shape, first, second, method)
        return covariance + np.outer(self._expectations(first), self._expectations(second))

    def _second_moments_of_items(self, r: Vectors, s: Vectors, method: Any) -> FloatArray:
        """Return the second moments of a batch (..., R, S), whose items are solved one by one."""
        self.log_partition()  # its error names an item without a tree
        moments = empty((*self.batch_shape, r.shape[-1], s.shape[-1]))
        for place, table in zip(np.ndindex(self.batch_shape), self._table.items(), strict=True):
            item = type(self)(table.scores, single_root=self.single_root, labeled=self.labeled)
            inner = (*place, *2 * (slice(len(table.scores)),))
            moments[place] = item.second_moments(r[inner], s[inner], method=method)
        return moments

    def totals(self, r: Any, s: Any = None) -> FloatArray:
        """Return the sum over structures of exp(score) r, or exp(score) r s': Z E[r], Z E[r s'].

        r, s and the shape of the result are as in `expectations` and `second_moments`.

        Raises
        ------
        InvalidInputError
            A total is outside the range of float64.

        Examples
        --------
        >>> import numpy as np, fstgrad as fg
        >>> trees = fg.SpanningTrees(np.zeros((4, 4)), single_root=True)
        >>> trees.totals(np.ones((4, 4, 1))).round(6)  # 9 trees of 3 arcs each
        array([27.])
        """
        means = self.expectations(r) if s is None else self.second_moments(r, s)
        log_z = np.reshape(self.log_partition(), self.batch_shape + (1,) * (1 if s is None else 2))
        return unnormalized(means, log_z)

    # Functions of expectations, and their gradients.

    def expected_product(self, q: npt.ArrayLike) -> Scalar:
        """Return E[product of q over the parts], q a finite table like `scores`: O(n^3).

        The zeroth-order expectation: Z with weights multiplied by q, divided by Z.  With q = exp(t
        r) it is the moment-generating function of the total r.  With entries below zero, which only
        `SpanningTrees` accepts, the error is about 1e-12 E[product of |q|].
        """
        table = self._table.finite("q", q)
        if (table >= 0).all():
            with np.errstate(divide="ignore"):
                logs = np.log(table)
            return exponential(self._log_partition_ratio(logs))
        return self._signed_product(table)

    def _log_partition_ratio(self, logs: FloatArray) -> Scalar:
        """Return log Z of the scores + logs, minus log Z; -inf if no structure is left."""
        return self._shaped(self._tilted(logs)[1])

    def _tilted(self, logs: FloatArray) -> tuple[Solved, FloatArray]:
        """Return the solution of the scores + logs, and its log Z (b,) minus that of the scores."""
        centered = self._without_offsets()
        moved = self._rescored(centered.scores + logs)
        solution = moved._solve()
        before = np.reshape(centered.log_partition(), solution.log_partition.shape)
        return solution, solution.log_partition + moved._table.offset - before

    def risk(self, costs: npt.ArrayLike) -> tuple[Scalar, FloatArray]:
        """Return E[<costs, t>] and its gradient in the scores, Cov costs.

        costs : a finite table that fits the scores.  With `hamming_costs(gold)`, (n - value) / n is
        the expected attachment score.
        """
        table = self._table.finite("costs", costs)
        value = self.inner(self.marginals(), table)
        return value, self._covariance_product(table)

    def hamming_costs(self, gold: npt.ArrayLike) -> FloatArray:
        """Return costs like the scores: 1 for each arc (and label) that is not in the gold tree.

        The cost of a tree is its number of wrong heads (or of wrong pairs of head and label).

        Examples
        --------
        >>> import numpy as np, fstgrad as fg
        >>> trees = fg.SpanningTrees(np.zeros((3, 3)), single_root=True)
        >>> value, gradient = trees.risk(trees.hamming_costs([0, 1]))  # of two trees, one is right
        >>> round(value, 12)
        1.0
        """
        return 1.0 - self.gold_parts(gold)

    def softmax_margin(
        self, gold: npt.ArrayLike, costs: npt.ArrayLike | None = None
    ) -> tuple[Scalar, FloatArray]:
        """Return log sum_d exp(<costs, t(d)> + score(d) - score(gold)) in nats, and its gradient.

        The gradient in the scores is marginals - parts(gold) under the scores plus costs.  The
        value is +inf if a gold arc is forbidden.

        costs : a finite table that fits the scores, such as `hamming_costs(gold)`; by default 0,
        for which the result is `nll`.

        Examples
        --------
        >>> import numpy as np, fstgrad as fg
        >>> trees = fg.SpanningTrees(np.zeros((3, 3)), single_root=True)
        >>> value, gradient = trees.softmax_margin([0, 1], trees.hamming_costs([0, 1]))
        >>> bool(np.isclose(value, np.log(1 + np.exp(2))))  # the other tree has two wrong heads
        True
        """
        if costs is None:
            return self.nll(gold)
        table = self._table.finite("costs", costs)
        parts, are_bad = self._gold(gold)
        moved = self._rescored(self._without_offsets().scores + table)
        value = moved._negative_log_probability(parts) + self.inner(parts, table)
        return self._table.zeroed(are_bad, value, moved.marginals() - parts)

    def generalized_expectation(
        self, features: Any, target: npt.ArrayLike
    ) -> tuple[Scalar, FloatArray]:
        """Return 1/2 |E f - target|^2 and its gradient in the scores: O(n^3 + n^2 F').

        features : scores.shape + (F,), or, without a batch, a sparse (n_parts, F) array.
        target : (F,) or the batch's shape + (F,).
        The gradient is one Hessian-vector product, Cov (F (E f - target)); Druck and Smith (2009)
        form all covariances instead.
        """
        features = self._table.vectors("features", features, checks.direction_array)
        expected = self._expectations(features)
        wanted = checks.direction_array("target", target)
        if wanted.shape not in (expected.shape, expected.shape[-1:]):
            raise InvalidInputError(
                f"target has shape {wanted.shape}; it must fit the expectations, {expected.shape}"
            )
        gap = np.where(self._table.left_out[..., None], 0.0, expected - wanted)
        if not isinstance(features, np.ndarray):
            direction = (features @ gap).reshape(self.scores.shape)
        else:
            spread = (..., *(None,) * self.event_ndim, slice(None), None)
            direction = np.matmul(features[..., None, :], gap[spread])[..., 0, 0]
        value = 0.5 * (gap * gap).sum(axis=-1)
        return float(value) if value.ndim == 0 else value, self._covariance_product(direction)

    def entropy_and_gradient(self) -> tuple[Scalar, FloatArray]:
        """Return the entropy in nats and its gradient in the scores, -Cov scores."""
        value, reduced_costs = self._entropy_and_reduced_costs()
        return value, self._covariance_product(reduced_costs)

    def renyi(self, order: float) -> Scalar:
        """Return the Renyi entropy in nats, (log Z(a scores) - a log Z) / (1 - a), of order a >= 0.

        The limit at order 1 is `entropy`.  Near 1 the quotient equals the mean of log Z -
        E_t[scores] over the orders t between 1 and a, computed by Gauss-Legendre quadrature.  Order
        0 is the log of the number of allowed structures, and order +inf is -log p of the best one.
        """
        a = checks.cost("order", order)
        if a == 1:
            return self.entropy()
        if a == 0:
            allowed = np.where(self.scores > -np.inf, 0.0, -np.inf)
            return self._rescored(allowed).log_partition()
        if a == np.inf:
            return -self.log_prob(self.mode())
        centered = self._centered()
        log_z = centered.log_partition()
        if abs(a - 1) < NEAR_ONE:
            return log_z - sum(
                weight * p.inner(p.marginals(), centered.scores)
                for p, weight in _between(centered, a)
            )
        tempered = centered._rescored(times(centered.scores, a))
        return (tempered.log_partition() - a * log_z) / (1 - a)

    def renyi_and_gradient(self, order: float) -> tuple[Scalar, FloatArray]:
        """Return the Renyi entropy and its gradient, a (mu(a scores) - mu) / (1 - a).

        At order +inf with several best structures, the gradient is that of one of them.
        """
        a = checks.cost("order", order)
        if a == 1:
            return self.entropy_and_gradient()
        if a == 0:
            return self.renyi(0), np.zeros(self.scores.shape)
        if a == np.inf:
            return self.nll(self.mode())
        centered = self._centered()
        if abs(a - 1) < NEAR_ONE:
            reduced_costs = np.where(centered.scores > -np.inf, -centered.scores, 0.0)
            products = (
                weight * p.covariance_product(reduced_costs) for p, weight in _between(centered, a)
            )
            return self.renyi(a), a * np.sum(list(products), axis=0)
        tempered = centered._rescored(times(centered.scores, a))
        return self.renyi(a), a / (1 - a) * (tempered.marginals() - self.marginals())

    def norm(self, order: float) -> Scalar:
        """Return the l_k norm (sum of p(structure)^k)^(1/k), k = `order`, 0 < k <= +inf: O(n^3).

        Order 1 gives 1, and +inf the largest probability.  It is exp(-(1 - 1/k) renyi(k)).
        """
        k = checks.divisor("order", order, or_inf=True)
        return exponential(-(1 - 1 / k) * self.renyi(k))

    # Divergences from another distribution over the same trees.

    def cross_entropy(self, other: Distribution[FloatArray]) -> Scalar:
        """Return -E[log q(tree)] in nats, q = `other`; +inf if q forbids a tree in the support."""
        value = self.kl(other) + self.entropy()
        return self._table.zeroed(self._left_out_of_either(other), value)[0]

    def kl(self, other: Distribution[FloatArray]) -> Scalar:
        """Return KL(p || q) in nats for q = `other`; +inf if q forbids a tree in the support of p.

        The support consists of trees whose arcs have marginals above zero in float64.  q may be of
        another family (spanning, projective, one root or many), but must have the labels, shape and
        lengths of p.
        """
        q = self._comparable(other)
        gaps, constants = self._divergence_gap(q)
        values = self._shaped(constants) + self.inner(self.marginals(), gaps)
        infinite = self._allows_beyond(q).reshape(self.batch_shape)
        values = np.where(infinite, np.inf, np.maximum(values, 0.0))
        return self._table.zeroed(self._left_out_of_either(q), values)[0]

    def _divergence_gap(self, other: "TreeDistribution") -> tuple[FloatArray, FloatArray]:
        """Return r and c (b,) with KL(p || other) = c + <marginals, r>.

        For covariances, r is the scores minus those of `other`; it is 0 where the marginals are 0.
        """
        q = self._comparable(other)
        marginals = self._solution.marginals
        p_constants, p_costs = self._solution.negative_log_probability(marginals)
        q_constants, q_costs = q._solution.negative_log_probability(marginals)
        gaps = q._table.with_labels(q_costs) - self._table.with_labels(p_costs)
        used: FloatArray = np.where(self.marginals() > 0, gaps, 0.0)
        return used, q_constants - p_constants

    def _comparable(self, other: Distribution[FloatArray]) -> "TreeDistribution":
        """Return `other`, checked to be trees comparable with these."""
        if not isinstance(other, TreeDistribution):
            raise InvalidInputError(f"other is a {type(other).__name__}; give trees")
        if other.scores.shape != self.scores.shape or other.labeled != self.labeled:
            raise InvalidInputError(
                f"other has scores of shape {other.scores.shape}, but this {self.scores.shape}; "
                "a divergence is between distributions over the same sentences and labels"
            )
        given, mine = other._table.given_lengths, self._table.given_lengths
        if (given != mine).any():
            item = int(np.argmax(given != mine))
            raise InvalidInputError(
                f"other has length {given[item]}{self._table.name(item)}, but this {mine[item]}; a "
                "divergence is between trees of the same words"
            )
        return other

    def _left_out_of_either(self, other: Distribution[FloatArray]) -> BoolArray:
        """Return the items, in the batch's shape, that are left out here or in `other`."""
        return self._table.left_out | self._comparable(other)._table.left_out

    def _allows_beyond(self, other: "TreeDistribution") -> BoolArray:
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
        return structures.allows_beyond(
            self._table.arcs, arcs, forbidden, lengths, self._algorithms(), other._algorithms()
        )

    def _algorithms(self) -> structures.TreeAlgorithms:
        def log_partition(tables: FloatArray, lengths: IntArray) -> FloatArray:
            family = type(self)(
                tables, single_root=self.single_root, lengths=lengths, labeled=False
            )
            return family._solve().log_partition

        return structures.TreeAlgorithms(
            self.single_root, self.projective, self._find_best, log_partition
        )

    def cross_entropy_and_gradients(
        self, other: "TreeDistribution"
    ) -> tuple[Scalar, FloatArray, FloatArray]:
        """Return -E[log q], q = `other`, and its gradients in the scores of p and of q.

        The gradients are -Cov_p(scores of q) and mu_q - mu_p.  If p forbids an arc, its gradient is
        0, whatever its score in q.
        """
        value = self._finite_divergence(other, self.cross_entropy(other))
        table = self._divergence_gap(other)[0] + self._entropy_and_reduced_costs()[1]
        slopes = self._covariance_product(table), other.marginals() - self.marginals()
        return self._table.zeroed(self._left_out_of_either(other), value, *slopes)

    def kl_and_gradients(self, other: "TreeDistribution") -> tuple[Scalar, FloatArray, FloatArray]:
        """Return KL(p || q), q = `other`, and its gradients in the scores of p and of q.

        The gradients are Cov_p(scores of p - scores of q) and mu_q - mu_p.
        """
        value = self._finite_divergence(other, self.kl(other))
        gap = self._divergence_gap(other)[0]
        slopes = self._covariance_product(gap), other.marginals() - self.marginals()
        return self._table.zeroed(self._left_out_of_either(other), value, *slopes)

    def _finite_divergence(self, other: "TreeDistribution", value: Scalar) -> Scalar:
        if np.isposinf(value).any():
            forbidden = np.argwhere((self.marginals() > 0) & (other.scores == -np.inf))
            where = f" the part {forbidden[0].tolist()}" if len(forbidden) else " a structure"
            raise InvalidInputError(
                f"other forbids{where}, which this distribution allows, so that the divergence is "
                "+inf and has no gradient; allow it in other"
            )
        return value

    # Shapes.

    def _shaped(self, values: FloatArray) -> Scalar:
        """Return per-item values in the batch's shape, a float if there is no batch."""
        shape = self._table.batch_shape
        return values.reshape(shape) if shape else float(values[0])


def _between(p: TreeDistribution, order: float) -> list[tuple[TreeDistribution, float]]:
    """Return p at orders between 1 and `order`, with quadrature weights of the mean over them."""
    nodes, weights = np.polynomial.legendre.leggauss(4)
    orders = 1 + (order - 1) * (nodes + 1) / 2
    return [(p._rescored(times(p.scores, t)), w / 2) for t, w in zip(orders, weights, strict=True)]
