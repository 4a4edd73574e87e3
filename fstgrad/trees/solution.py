"""log Z, its gradient and Hessian-vector products for a batch of arc tables, stable for any scores.

Three levels, each item moving on only if the one before it cannot vouch for its digits:

1. `kernels.matrix_tree`, the inverse Laplacian; it is trusted if the gradient in the scaled weights
   is small (the differences B_jj - B_jh lose digits as it grows), no marginal is negative and every
   column of marginals sums to one;
2. `kernels.elimination`, without a subtraction and so without that limit, until a pivot nears the
   underflow threshold;
3. `logdomain`, the same on logarithms.

All three give the second-order quantities too: from the gradient at level 1, and by carrying the
derivative along the direction at levels 2 and 3.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.trees import kernels, logdomain

# A root arc with all the others together below exp(-45) of it is certain to the last digit.
CERTAIN = -45.0


class Solution(NamedTuple):
    """First-order quantities of a batch of b tables (b, m+1, m+1), and what the second needs.

    gradient : (b, m+1, m+1), of log Z in the weights; 0 where it left the range of float64.
    marginals : (b, m+1, m+1), the weights times the gradient; read-only.
    tables : (2, b, m+1, m+1), the two of them.
    log_partition : (b,) in nats, -inf where no tree is allowed.
    stable : the items that level 1 did not solve.
    certain : those whose single root arc is certain and was fixed.
    infeasible : the first item without a tree, -1 if all have one.
    """

    scores: FloatArray
    lengths: IntArray
    single_root: bool
    tables: FloatArray
    marginals: FloatArray
    log_partition: FloatArray
    stable: list[int]
    certain: set[int]
    infeasible: int = -1

    @property
    def gradient(self) -> FloatArray:
        """The gradient of log Z in the weights."""
        table: FloatArray = self.tables[0]
        return table

    def is_single(self, item: int) -> bool:
        """Whether one arc leaves the root and it is open which."""
        return self.single_root and item not in self.certain

    def covariance_product(self, v: FloatArray) -> FloatArray:
        """Replace a finite table v (b, m+1, m+1) by Cov v: O(n^3), two matrix products."""
        directions = {item: self._inner(v, item).copy() for item in self.stable}
        kernels.matrix_tree.hessian_batch(
            self.scores, self.lengths, self.single_root, self.tables, v
        )
        for item, direction in directions.items():
            v[item] = 0.0
            self._inner(v, item)[:] = self._stable_product(item, direction)
        return v

    def _stable_product(self, item: int, v: FloatArray) -> FloatArray:
        log_weights, _ = self.log_weights(item)
        single = self.is_single(item)
        gradient, marginals, change = np.zeros((3, *v.shape))
        value = kernels.elimination.solve(
            np.exp(log_weights), v, len(v) - 1, single, True, gradient, marginals, change
        )
        return change if value > -np.inf else logdomain.solve(log_weights, v, single=single).change

    def log_weights(self, item: int) -> tuple[FloatArray, float]:
        """Return the logarithms of one item's weights, (n+1, n+1), and the shift of log Z.

        Where the single root arc was fixed its rivals are gone, and it counts as any other arc.
        """
        scores = self._inner(self.scores, item).copy()
        if item in self.certain:
            scores[0, self._inner(self.marginals, item)[0] == 0] = -np.inf
        table = np.empty(scores.shape)
        shift, _ = kernels.matrix_tree.center(scores, len(table) - 1, self.is_single(item), table)
        return table, shift

    def _inner(self, tables: FloatArray, item: int) -> FloatArray:
        """Return an item's table, (n+1, n+1), without what lies beyond its length."""
        n = int(self.lengths[item])
        return tables[item, : n + 1, : n + 1]


def solve(scores: FloatArray, lengths: IntArray, *, single_root: bool) -> Solution:
    """Solve a batch of tables (b, m+1, m+1) of log-weights for their first n+1 rows and columns."""
    tables, log_partition = np.empty((2, *scores.shape)), np.empty(len(scores))
    left = kernels.matrix_tree.solve_batch(scores, lengths, single_root, tables, log_partition)
    stable = np.flatnonzero(np.isnan(log_partition)).tolist() if left else []
    marginals = tables[1]
    solution = Solution(
        scores, lengths, single_root, tables, marginals, log_partition, stable, set()
    )
    if left:
        for item in stable:
            _solve_stably(solution, item)
        without = np.flatnonzero(log_partition == -np.inf).tolist()
        solution = solution._replace(infeasible=without[0] if without else -1)
    marginals.setflags(False)  # not to be written
    return solution


def _solve_stably(solution: Solution, item: int) -> None:
    """Solve one item without subtractions, on logarithms if the weights' range asks for it.

    The root arc is fixed if it is certain: without its rivals there are no pivots that nearly
    vanish and are made good by a large root weight.
    """
    log_weights, shift = solution.log_weights(item)
    if _eliminate(solution, item, log_weights, shift):
        return
    zero = np.zeros_like(log_weights)
    result = logdomain.solve(log_weights, zero, single=solution.is_single(item))
    if solution.single_root and result.log_partition > -np.inf:
        chance = result.log_gradient[0] + log_weights[0]
        child = int(np.argmax(chance))
        if np.logaddexp.reduce(np.delete(chance, child)) < CERTAIN:
            solution.certain.add(item)
            solution.marginals[item, 0] = 0.0
            solution.marginals[item, 0, child] = 1.0
            log_weights, shift = solution.log_weights(item)
            if _eliminate(solution, item, log_weights, shift):
                return
            result = logdomain.solve(log_weights, zero, single=False)
    _keep(solution, item, shift + result.log_partition, zero, result.marginals)


def _eliminate(solution: Solution, item: int, log_weights: FloatArray, shift: float) -> bool:
    gradient, marginals, unused = np.zeros((3, *log_weights.shape))
    n, single = len(log_weights) - 1, solution.is_single(item)
    value = kernels.elimination.solve(
        np.exp(log_weights), unused, n, single, False, gradient, marginals, unused
    )
    if value > -np.inf:
        _keep(solution, item, shift + value, gradient, marginals)
    return bool(value > -np.inf)


def _keep(
    solution: Solution, item: int, value: float, gradient: FloatArray, marginals: FloatArray
) -> None:
    size = len(gradient)
    solution.log_partition[item] = value
    solution.tables[:, item] = 0.0
    solution.tables[0, item, :size, :size] = gradient
    solution.tables[1, item, :size, :size] = marginals
