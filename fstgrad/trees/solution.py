"""log Z, its gradient and Hessian-vector products for a batch of arc tables, stable for any scores.

`kernels.matrix_tree` solves a batch by inverse Laplacians.  It trusts an item if the gradient in
the scaled weights is small (the differences B_jj - B_jh lose digits as it grows), no marginal is
negative and every column of marginals sums to one.  `kernels.stable` solves the other items: by the
inverse in a better order, by the normal form of the scores, and by eliminations without
subtractions, in floats and on logarithms.  Second-order quantities are computed from the gradient
if it is small, otherwise by differentiating the elimination.
"""

from typing import NamedTuple, Protocol

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray, writable
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.trees import kernels

# A mean number of entries into a component this close to 1 equals 1 up to rounding.
ROUNDING = 1e-13


class Solved(Protocol):
    """log Z and its derivatives on unlabeled tables (b, n+1, n+1)."""

    @property
    def log_partition(self) -> FloatArray:
        """Log Z of every item, -inf for items without an allowed tree."""

    @property
    def marginals(self) -> FloatArray:
        """The probability of every arc."""

    @property
    def infeasible(self) -> int:
        """The first item without a tree, -1 if all have one."""

    @property
    def scores(self) -> FloatArray:
        """The scores that were solved; they differ from those given by a constant of all trees."""

    def covariance_product(self, v: FloatArray) -> FloatArray:
        """Return Cov v; the table v may be overwritten."""

    def entropies(self) -> tuple[FloatArray, FloatArray]:
        """Return entropies (b,) and reduced costs: each dependent's largest score minus scores."""

    def negative_log_probability(self, marginals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return constants (b,) and tables with -E[log p(tree)] = constant + <marginals, table>.

        marginals : of trees that this distribution allows.  The tables are the reduced costs of
            `entropies`, or others with the same differences between trees.
        """


class Solution(NamedTuple):
    """First-order quantities of b tables (b, m+1, m+1), and the input of the second-order ones.

    scores : (b, m+1, m+1), the scores that were solved: those given, or their normal form, in which
        the scores of all trees that are not negligible change by the same constant
        (`kernels.normal_form`).
    gradient : (b, m+1, m+1), of log Z in the weights; 0 if it leaves the range of float64.
    marginals : (b, m+1, m+1), the weights times the gradient; read-only.
    tables : (2, b, m+1, m+1), the gradient and the marginals.
    log_partition : (b,) in nats, -inf for items without an allowed tree.
    relative : (b,) log Z of `scores` minus the sum of the largest scores of their columns.
    given : the scores as they were given.
    infeasible : the first item without a tree, -1 if all have one.
    """

    scores: FloatArray
    lengths: IntArray
    single_root: bool
    tables: FloatArray
    marginals: FloatArray
    log_partition: FloatArray
    relative: FloatArray
    given: FloatArray
    infeasible: int = -1

    @property
    def gradient(self) -> FloatArray:
        """The gradient of log Z in the weights."""
        table: FloatArray = self.tables[0]
        return table

    def ill_conditioned(self) -> BoolArray:
        """Return the items (b,) whose gradient is too large for exact products of two gradients."""
        items = empty(len(self.lengths), dtype=np.bool_)
        kernels.matrix_tree.find_ill_conditioned(self.tables, self.lengths, items)
        return items

    def covariance_product(self, v: FloatArray) -> FloatArray:
        """Replace a finite table v (b, m+1, m+1) by Cov v: O(n^3), two matrix products."""
        ill_conditioned = self.ill_conditioned()
        directions = {
            i: self.item_table(v, i).copy() for i in ill_conditioned.nonzero()[0].tolist()
        }
        kernels.matrix_tree.hessian_batch(
            self.scores, self.lengths, self.single_root, self.tables, ill_conditioned, v
        )
        for item, direction in directions.items():
            change = empty_like(direction)
            scores = np.ascontiguousarray(self.item_table(self.scores, item))
            kernels.stable.covariance_product(scores, self.single_root, direction, change)
            self.item_table(v, item)[:] = change
        return v

    def third_order(self, v: FloatArray, u: FloatArray) -> FloatArray:
        """Return the derivative of Cov v along u, (b, m+1, m+1): O(n^3) logarithms per item."""
        result = np.zeros_like(self.given)
        for item, n in enumerate(self.lengths.tolist()):
            if n > 0:
                tables = (
                    np.ascontiguousarray(self.item_table(t, item)) for t in (self.scores, v, u)
                )
                scores, first, second = tables
                out = empty((4, n + 1, n + 1))
                kernels.stable.third_order(scores, self.single_root, first, second, out)
                self.item_table(result, item)[:] = out[3]
        return result

    def log_weights(self, item: int) -> FloatArray:
        """Return the logarithms of one item's weights, (n+1, n+1), scaled as in `matrix_tree`."""
        return self.scaled_log_weights(item)[0]

    def scaled_log_weights(self, item: int) -> tuple[FloatArray, float]:
        """Return `log_weights`, and the log of the sum over trees of these weights, in nats."""
        scores = np.ascontiguousarray(self.item_table(self.scores, item))
        table = empty(scores.shape)
        taken = kernels.matrix_tree.center(scores, len(table) - 1, self.single_root, table)
        return table, float(self.relative[item]) - taken[2]

    def entropies(self) -> tuple[FloatArray, FloatArray]:
        """Return entropies (b,) and reduced costs: each dependent's largest score minus scores."""
        reduced_costs, values = empty_like(self.scores), empty(len(self.lengths))
        kernels.matrix_tree.entropies(
            self.scores, self.marginals, self.lengths, self.relative, reduced_costs, values
        )
        return values, reduced_costs

    def negative_log_probability(self, marginals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return constants (b,) and tables with -E[log p(tree)] = constant + <marginals, table>.

        marginals : of trees that this distribution allows.  The tables are the reduced costs of
            `entropies`, or others with the same differences between trees.
        """
        reduced_costs = self.entropies()[1]
        constants = self.relative.copy()
        if self.scores is not self.given:
            for item in range(len(constants)):
                if not np.array_equal(
                    self.item_table(self.scores, item), self.item_table(self.given, item)
                ):
                    constants[item], table = self._normal_negative_log_probability(
                        item, self.item_table(marginals, item)
                    )
                    self.item_table(reduced_costs, item)[:] = table
        return constants, reduced_costs

    def _normal_negative_log_probability(
        self, item: int, marginals: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return `negative_log_probability` of an item in normal form, without its limits."""
        n = len(marginals) - 1
        lifted, given = empty((n + 1, n + 1)), writable(self.item_table(self.given, item))
        has_lifted = kernels.normal_form.lift_masks(given, lifted)
        reduced, dual = empty_like(lifted), np.zeros(2 * n + 1)
        members = np.zeros((2 * n + 1, n + 1), dtype=np.bool_)
        count, dual_total = kernels.normal_form.dual_solution(
            lifted, n, self.single_root, reduced, dual, members
        )
        reduced_costs = np.where(reduced > -np.inf, -reduced, 0.0)
        normal = self.item_table(self.scores, item)[:, 1:].copy()
        np.fill_diagonal(normal[1:], -np.inf)
        value = self.relative[item] + normal.max(axis=0).sum() - dual_total
        for c in range(n + 1, count):
            inside = members[c]
            further_entries = marginals[~inside][:, inside].sum() - 1.0
            if abs(further_entries) > ROUNDING * n:  # y_c counts if trees may enter c twice
                value += dual[c]
                reduced_costs[np.ix_(~inside, inside)] -= dual[c]
        if has_lifted:
            heads = empty(n, np.int64)
            kernels.normal_form.best_checked(lifted, self.single_root, heads)
            value += lower_masks(given, lifted, heads, marginals, reduced_costs)
        return float(value), np.where(reduced > -np.inf, reduced_costs, 0.0)

    def item_table(self, tables: FloatArray, item: int) -> FloatArray:
        """Return an item's table, (n+1, n+1), without its padding."""
        n = int(self.lengths[item])
        return tables[item, : n + 1, : n + 1]


def lower_masks(
    scores: FloatArray, lifted: FloatArray, heads: IntArray, marginals: FloatArray,
    reduced_costs: FloatArray,
) -> float:  # fmt: skip
    """Undo `kernels.normal_form.lift_masks` in reduced costs; return what the constant gains.

    Masks that `marginals` uses as often as the best tree with the `heads` cancel and stay.
    """
    given = empty(lifted.shape)
    kernels.normal_form.raise_least(scores, given)
    is_arc = lifted > -np.inf
    lift = np.where(is_arc, lifted, 0.0) - np.where(is_arc, given, 0.0)
    sizes = np.round(np.log2(np.where(lift == 0.0, 1.0, np.abs(lift))))
    gained = 0.0
    for size in np.unique(sizes[lift != 0.0]):
        group = np.where(sizes == size, lift, 0.0)
        best = group[heads, np.arange(1, len(lifted))]
        entries = marginals[sizes == size].sum() - np.count_nonzero(best)
        if abs(entries) > ROUNDING * len(lifted):
            gained -= best.sum()
            reduced_costs += group
    return float(gained)


def solve(scores: FloatArray, lengths: IntArray, *, single_root: bool) -> Solution:
    """Solve a batch of tables (b, m+1, m+1) of log-weights in their first n+1 rows and columns."""
    tables, log_partition = empty((2, *scores.shape)), empty(len(scores))
    relative = empty(len(scores))
    untrusted = kernels.matrix_tree.solve_batch(
        scores, lengths, single_root, tables, log_partition, relative
    )
    effective, infeasible = scores, -1
    if untrusted:
        effective = scores.copy()
        kernels.stable.solve_batch(
            scores, lengths, single_root, effective, tables, log_partition, relative
        )
        without_tree = np.flatnonzero(log_partition == -np.inf).tolist()
        infeasible = without_tree[0] if without_tree else -1
    marginals = tables[1]
    marginals.setflags(False)  # read-only
    return Solution(
        effective, lengths, single_root, tables, marginals, log_partition, relative, scores,
        infeasible,
    )  # fmt: skip


def change_column(solution: Solution, dependent: int, scores: FloatArray) -> Solution | None:
    """Return the solution of scores (1, n+1, n+1) that differ in one column; None if unstable.

    solution : of a single item without padding.
    """
    if solution.scores is not solution.given or solution.ill_conditioned()[0]:
        return None
    tables = empty((2, *scores.shape))
    old, new = solution.scores[0], scores[0]
    ratio = kernels.matrix_tree.change_column(
        old, new, dependent, solution.single_root, solution.gradient[0], tables[:, 0]
    )
    if np.isnan(ratio):
        return None
    off = np.arange(len(old)) != dependent
    step = np.log(ratio)
    moved = old[off, dependent].max() - new[off, dependent].max()
    tables[1].setflags(write=False)
    return solution._replace(
        scores=scores,
        given=scores,
        tables=tables,
        marginals=tables[1],
        log_partition=solution.log_partition + step,
        relative=solution.relative + step + moved,
    )
