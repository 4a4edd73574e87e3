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

    tables : (2, b, m+1, m+1), the weights and the gradient of log Z in them.
    marginals : (b, m+1, m+1), the product of the two, read-only.
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
    def weights(self) -> FloatArray:
        """The exponentials of the centered scores, (b, m+1, m+1)."""
        return self.tables[0]

    @property
    def gradient(self) -> FloatArray:
        """The derivative of log Z in the weights; 0 where it left the range of float64."""
        return self.tables[1]

    def is_single(self, item: int) -> bool:
        """Whether one arc leaves the root and it is open which."""
        return self.single_root and item not in self.certain

    def covariance_product(self, direction: FloatArray) -> FloatArray:
        """Return Cov v for a table v (b, m+1, m+1), finite: O(n^3), two matrix products."""
        v = np.ascontiguousarray(direction)
        change = np.empty(v.shape)
        kernels.matrix_tree.hessian_batch(
            self.tables, self.marginals, v, self.lengths, self.single_root, change
        )
        for item in self.stable:
            n = int(self.lengths[item])
            inner = np.s_[item, : n + 1, : n + 1]
            change[item] = 0.0
            change[inner] = self._stable_product(item, np.ascontiguousarray(v[inner]))
        return change

    def _stable_product(self, item: int, v: FloatArray) -> FloatArray:
        n = len(v) - 1
        single = self.is_single(item)
        weights = np.ascontiguousarray(self.weights[item, : n + 1, : n + 1])
        change = np.zeros_like(v)
        gradient, marginals = np.zeros((2, *v.shape))
        solve_along = kernels.elimination.solve
        if solve_along(weights, v, n, single, True, gradient, marginals, change) > -np.inf:
            return change
        log_weights, _ = self.log_weights(item)
        return logdomain.solve(log_weights, v, single=single).change

    def log_weights(self, item: int) -> tuple[FloatArray, float]:
        """Return the logarithms of one item's weights, (n+1, n+1), and the shift of log Z.

        Where the single root arc was fixed its rivals are gone, and it counts as any other arc.
        """
        n = int(self.lengths[item])
        scores = self.scores[item, : n + 1, : n + 1].copy()
        if item in self.certain:
            scores[0, self.marginals[item, 0, : n + 1] == 0] = -np.inf
        table = np.empty((n + 1, n + 1))
        shift, _ = kernels.matrix_tree.center(scores, n, self.is_single(item), table)
        return table, shift


def solve(scores: FloatArray, lengths: IntArray, *, single_root: bool) -> Solution:
    """Solve a batch of tables (b, m+1, m+1) of log-weights for their first n+1 rows and columns."""
    shape = scores.shape
    tables, marginals, log_partition = np.empty((2, *shape)), np.empty(shape), np.empty(shape[0])
    solve_batch = kernels.matrix_tree.solve_batch
    left = solve_batch(scores, lengths, single_root, tables, marginals, log_partition)
    stable = np.flatnonzero(np.isnan(log_partition)).tolist() if left else []
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
    n = int(solution.lengths[item])
    log_weights, shift = solution.log_weights(item)
    if _eliminate(solution, item, shift):
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
            solution.weights[item, : n + 1, : n + 1] = np.exp(log_weights)
            if _eliminate(solution, item, shift):
                return
            result = logdomain.solve(log_weights, zero, single=False)
    solution.log_partition[item] = shift + result.log_partition
    solution.gradient[item] = 0.0
    solution.marginals[item] = 0.0
    solution.marginals[item, : n + 1, : n + 1] = result.marginals


def _eliminate(solution: Solution, item: int, shift: float) -> bool:
    n = int(solution.lengths[item])
    inner = np.s_[item, : n + 1, : n + 1]
    gradient, marginals, unused = np.zeros((3, n + 1, n + 1))
    weights = np.ascontiguousarray(solution.weights[inner])
    value = kernels.elimination.solve(
        weights, unused, n, solution.is_single(item), False, gradient, marginals, unused
    )
    if value == -np.inf:
        return False
    solution.log_partition[item] = shift + value
    solution.gradient[item] = 0.0
    solution.marginals[item] = 0.0
    solution.gradient[inner] = gradient
    solution.marginals[inner] = marginals
    return True
