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

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.trees import logdomain

# A root arc with all the others together below exp(-45) of it is certain to the last digit.
CERTAIN = -45.0


class Solution(NamedTuple):
    """First-order quantities of a batch of b tables (b, m+1, m+1), and what the second needs.

    tables : (2, b, m+1, m+1), the weights and the gradient of log Z in them.
    marginals : (b, m+1, m+1), the product of the two, read-only.
    log_partition : (b,) in nats, -inf where no tree is allowed.
    trusted : (b,) whether level 1 solved the item; `stable`, the items that it did not.
    certain : the items whose single root arc is certain and was fixed.
    """

    scores: FloatArray
    lengths: IntArray
    single_root: bool
    tables: FloatArray
    marginals: FloatArray
    log_partition: FloatArray
    trusted: BoolArray
    stable: list[int]
    certain: set[int]

    @property
    def weights(self) -> FloatArray:
        """The exponentials of the centered scores, (b, m+1, m+1)."""
        return self.tables[0]

    @property
    def gradient(self) -> FloatArray:
        """The derivative of log Z in the weights; 0 where it left the range of float64."""
        return self.tables[1]

    @property
    def infeasible(self) -> int:
        """The first item without a tree, -1 if all have one."""
        return next((item for item in self.stable if self.log_partition[item] == -np.inf), -1)

    def is_single(self, item: int) -> bool:
        """Whether one arc leaves the root and it is open which."""
        return self.single_root and item not in self.certain

    def covariance_product(self, direction: FloatArray) -> FloatArray:
        """Return Cov v for a table v (b, m+1, m+1), finite: O(n^3), two matrix products."""
        from fstgrad.trees.kernels import matrix_tree

        v = np.ascontiguousarray(direction)
        change = np.empty(v.shape)
        matrix_tree.hessian_batch(
            self.tables, self.marginals, v, self.lengths, self.single_root, change
        )
        for item in self.stable:
            n = int(self.lengths[item])
            inner = np.s_[item, : n + 1, : n + 1]
            change[item] = 0.0
            change[inner] = self._stable_product(item, np.ascontiguousarray(v[inner]))
        return change

    def _stable_product(self, item: int, v: FloatArray) -> FloatArray:
        from fstgrad.trees.kernels import elimination

        n = len(v) - 1
        single = self.is_single(item)
        weights = np.ascontiguousarray(self.weights[item, : n + 1, : n + 1])
        change = np.zeros_like(v)
        gradient, marginals = np.zeros((2, *v.shape))
        if elimination.solve(weights, v, n, single, True, gradient, marginals, change) > -np.inf:
            return change
        log_weights, _ = self.log_weights(item)
        return logdomain.solve(log_weights, v, single=single).change

    def log_weights(self, item: int) -> tuple[FloatArray, float]:
        """Return the logarithms of one item's weights, (n+1, n+1), and the shift of log Z.

        Where the single root arc was fixed its rivals are gone, and it counts as any other arc.
        """
        from fstgrad.trees.kernels import matrix_tree

        n = int(self.lengths[item])
        scores = self.scores[item, : n + 1, : n + 1].copy()
        if item in self.certain:
            scores[0, self.marginals[item, 0, : n + 1] == 0] = -np.inf
        table = np.empty((n + 1, n + 1))
        shift, _ = matrix_tree.center(scores, n, self.is_single(item), table)
        return table, shift


def solve(scores: FloatArray, lengths: IntArray, *, single_root: bool) -> Solution:
    """Solve a batch of tables (b, m+1, m+1) of log-weights for their first n+1 rows and columns."""
    from fstgrad.trees.kernels import matrix_tree

    shape = scores.shape
    tables, marginals = np.empty((2, *shape)), np.empty(shape)
    log_partition, trusted = np.empty(shape[0]), np.empty(shape[0], np.bool_)
    left = matrix_tree.solve_batch(
        scores, lengths, single_root, tables, marginals, log_partition, trusted
    )
    stable = np.flatnonzero(~trusted).tolist() if left else []
    solution = Solution(
        scores, lengths, single_root, tables, marginals, log_partition, trusted, stable, set()
    )
    for item in stable:
        _solve_stably(solution, item)
    marginals.setflags(write=False)
    return solution


def _solve_stably(solution: Solution, item: int) -> None:
    """Solve one item without subtractions, on logarithms if the weights' range asks for it.

    Its entry of `log_partition` holds the shift, which moves if the root arc is fixed: with a
    certain root arc among the others there are no pivots that nearly vanish and are made good by a
    large root weight.
    """
    if _eliminate(solution, item):
        return
    n = int(solution.lengths[item])
    log_weights, shift = solution.log_weights(item)
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
            solution.log_partition[item] = shift
            if _eliminate(solution, item):
                return
            result = logdomain.solve(log_weights, zero, single=False)
    solution.log_partition[item] = shift + result.log_partition
    solution.gradient[item] = 0.0
    solution.marginals[item] = 0.0
    solution.marginals[item, : n + 1, : n + 1] = result.marginals


def _eliminate(solution: Solution, item: int) -> bool:
    from fstgrad.trees.kernels import elimination

    n = int(solution.lengths[item])
    inner = np.s_[item, : n + 1, : n + 1]
    gradient, marginals, unused = np.zeros((3, n + 1, n + 1))
    weights = np.ascontiguousarray(solution.weights[inner])
    value = elimination.solve(
        weights, unused, n, solution.is_single(item), False, gradient, marginals, unused
    )
    if value == -np.inf:
        return False
    solution.log_partition[item] += value
    solution.gradient[item] = 0.0
    solution.marginals[item] = 0.0
    solution.gradient[inner] = gradient
    solution.marginals[inner] = marginals
    return True
