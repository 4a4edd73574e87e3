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

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
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
        """Return entropies (b,) and regrets: each dependent's largest score minus the scores."""

    def surprise(self, marginals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return constants (b,) and regrets with -E[log p(tree)] = constant + <marginals, regrets>.

        marginals : of trees that this distribution allows.
        """


class Solution(NamedTuple):
    """First-order quantities of b tables (b, m+1, m+1), and the input of the second-order ones.

    scores : (b, m+1, m+1), the scores that were solved: those given, or their normal form, in which
        the scores of all trees that are not negligible change by the same constant
        (`kernels.normal`).
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

    def delicate(self) -> BoolArray:
        """Return the items (b,) whose gradient is too large for exact products of two gradients."""
        items = empty(len(self.lengths), dtype=np.bool_)
        kernels.matrix_tree.find_delicate(self.tables, self.lengths, items)
        return items

    def covariance_product(self, v: FloatArray) -> FloatArray:
        """Replace a finite table v (b, m+1, m+1) by Cov v: O(n^3), two matrix products."""
        delicate = self.delicate()
        directions = {i: self.inner(v, i).copy() for i in delicate.nonzero()[0].tolist()}
        kernels.matrix_tree.hessian_batch(
            self.scores, self.lengths, self.single_root, self.tables, delicate, v
        )
        for item, direction in directions.items():
            change = empty_like(direction)
            scores = np.ascontiguousarray(self.inner(self.scores, item))
            kernels.stable.second_order(scores, self.single_root, direction, change)
            self.inner(v, item)[:] = change
        return v

    def third_order(self, v: FloatArray, u: FloatArray) -> FloatArray:
        """Return the derivative of Cov v along u, (b, m+1, m+1): O(n^3) logarithms per item."""
        result = np.zeros_like(self.given)
        for item, n in enumerate(self.lengths.tolist()):
            if n > 0:
                tables = (np.ascontiguousarray(self.inner(t, item)) for t in (self.scores, v, u))
                scores, first, second = tables
                out = empty((4, n + 1, n + 1))
                kernels.stable.third_order(scores, self.single_root, first, second, out)
                self.inner(result, item)[:] = out[3]
        return result

    def log_weights(self, item: int) -> FloatArray:
        """Return the logarithms of one item's weights, (n+1, n+1), scaled as in `matrix_tree`."""
        return self.scaled(item)[0]

    def scaled(self, item: int) -> tuple[FloatArray, float]:
        """Return `log_weights`, and the log of the sum over trees of these weights, in nats."""
        scores = self.inner(self.scores, item)
        table = empty(scores.shape)
        taken = kernels.matrix_tree.center(scores, len(table) - 1, self.single_root, table)
        return table, float(self.relative[item]) - taken[2]

    def entropies(self) -> tuple[FloatArray, FloatArray]:
        """Return entropies (b,) and regrets: each dependent's largest score minus the scores."""
        regrets, values = empty_like(self.scores), empty(len(self.lengths))
        kernels.matrix_tree.entropies(
            self.scores, self.marginals, self.lengths, self.relative, regrets, values
        )
        return values, regrets

    def surprise(self, marginals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return constants (b,) and regrets with -E[log p(tree)] = constant + <marginals, regrets>.

        marginals : of trees that this distribution allows.
        """
        regrets = self.entropies()[1]
        constants = self.relative.copy()
        if self.scores is not self.given:
            for item in range(len(constants)):
                if not np.array_equal(self.inner(self.scores, item), self.inner(self.given, item)):
                    own = self.inner(marginals, item)
                    constants[item], table = self._reduced_surprise(item, own)
                    self.inner(regrets, item)[:] = table
        return constants, regrets

    def _reduced_surprise(self, item: int, marginals: FloatArray) -> tuple[float, FloatArray]:
        """Return `surprise` of an item in normal form, from reduced scores without limits."""
        n = len(marginals) - 1
        given = empty((n + 1, n + 1))
        lifted = kernels.normal.lift_masks(self.inner(self.given, item), given)
        reduced, dual = empty_like(given), np.zeros(2 * n + 1)
        entered = np.zeros((2 * n + 1, n + 1), dtype=np.bool_)
        count, kept = kernels.normal.laminar(given, n, self.single_root, reduced, dual, entered)
        regrets = np.where(reduced > -np.inf, -reduced, 0.0)
        normal = self.inner(self.scores, item)[:, 1:].copy()
        np.fill_diagonal(normal[1:], -np.inf)
        value = self.relative[item] + normal.max(axis=0).sum() - kept
        for c in range(n + 1, count):
            entries = marginals[~entered[c]][:, entered[c]].sum() - 1.0
            if abs(entries) > ROUNDING * n:
                value += dual[c]
                regrets[np.ix_(~entered[c], entered[c])] -= dual[c]
        if lifted:
            heads = empty(n, np.int64)
            kernels.normal.best_checked(given, self.single_root, heads)
            value += lower_masks(self.inner(self.given, item), given, heads, marginals, regrets)
        return float(value), np.where(reduced > -np.inf, regrets, 0.0)

    def inner(self, tables: FloatArray, item: int) -> FloatArray:
        """Return an item's table, (n+1, n+1), without its padding."""
        n = int(self.lengths[item])
        return tables[item, : n + 1, : n + 1]


def lower_masks(
    scores: FloatArray, lifted: FloatArray, heads: IntArray, marginals: FloatArray,
    regrets: FloatArray,
) -> float:  # fmt: skip
    """Undo `kernels.normal.lift_masks`: add to the regrets, and return what the constant gains.

    Masks that `marginals` uses as often as the best tree with the `heads` cancel and stay.
    """
    given = empty(lifted.shape)
    kernels.normal.raise_least(scores, given)
    lift = np.where(lifted > -np.inf, lifted, 0.0) - np.where(lifted > -np.inf, given, 0.0)
    sizes = np.round(np.log2(np.where(lift == 0.0, 1.0, np.abs(lift))))
    gained = 0.0
    for size in np.unique(sizes[lift != 0.0]):
        group = np.where(sizes == size, lift, 0.0)
        best = group[heads, np.arange(1, len(lifted))]
        entries = marginals[sizes == size].sum() - np.count_nonzero(best)
        if abs(entries) > ROUNDING * len(lifted):
            gained -= best.sum()
            regrets += group
    return float(gained)


def solve(scores: FloatArray, lengths: IntArray, *, single_root: bool) -> Solution:
    """Solve a batch of tables (b, m+1, m+1) of log-weights in their first n+1 rows and columns."""
    tables, log_partition = empty((2, *scores.shape)), empty(len(scores))
    relative = empty(len(scores))
    left = kernels.matrix_tree.solve_batch(
        scores, lengths, single_root, tables, log_partition, relative
    )
    effective, infeasible = scores, -1
    if left:
        effective = scores.copy()
        kernels.stable.solve_batch(
            scores, lengths, single_root, effective, tables, log_partition, relative
        )
        without = np.flatnonzero(log_partition == -np.inf).tolist()
        infeasible = without[0] if without else -1
    marginals = tables[1]
    marginals.setflags(False)  # read-only
    return Solution(
        effective, lengths, single_root, tables, marginals, log_partition, relative, scores,
        infeasible,
    )  # fmt: skip
