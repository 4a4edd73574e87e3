"""log Z, its gradient and Hessian-vector products for a batch of arc tables, stable for any scores.

Three levels, each item moving on only if the one before it cannot vouch for its digits:

1. the inverse Laplacian, compiled for short sentences and by LAPACK for long ones; it is trusted
   if the gradient in the scaled weights is small (the differences B_jj - B_jh lose digits as it
   grows), no marginal is negative and every column of marginals sums to one;
2. `kernels.elimination`, without a subtraction and so without that limit, until a pivot nears the
   underflow threshold;
3. `logdomain`, the same on logarithms.

All three give the second-order quantities too: from the gradient at level 1, and by carrying the
derivative along the direction at levels 2 and 3.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.trees import logdomain

# Up to here the compiled inverse is quicker than the calls of LAPACK.
COMPILED_LIMIT = 32
# Items are taken so many numbers a time that the steps find them in the cache.
CHUNK = 120_000
# A root arc with all the others together below exp(-45) of it is certain to the last digit.
CERTAIN = -45.0


class Solution(NamedTuple):
    """First-order quantities of a batch of b tables (b, m+1, m+1), and what the second needs.

    weights : the exponentials of the centered scores; `gradient` of log Z in them; `marginals`,
        the product of the two; `tables`, the three in one array.
    log_partition : (b,) in nats, -inf where no tree is allowed.
    trusted : (b,) whether `gradient` carries second-order quantities.
    single : (b,) whether the root's single arc is open: not where it is certain and was fixed.
    """

    scores: FloatArray
    lengths: IntArray
    single_root: bool
    tables: FloatArray
    weights: FloatArray
    gradient: FloatArray
    marginals: FloatArray
    log_partition: FloatArray
    trusted: BoolArray
    single: BoolArray

    def covariance_product(self, direction: FloatArray) -> FloatArray:
        """Return Cov v for a table v (b, m+1, m+1), finite: O(n^3), two matrix products."""
        from fstgrad.trees.kernels import matrix_tree

        v = np.ascontiguousarray(direction)
        change = np.empty_like(v)
        matrix_tree.hessian_batch(self.tables, v, self.lengths, self.single_root, change)
        for item in np.flatnonzero(~self.trusted).tolist():
            n = int(self.lengths[item])
            inner = np.s_[item, : n + 1, : n + 1]
            change[item] = 0.0
            change[inner] = self._stable_product(item, np.ascontiguousarray(v[inner]))
        return change

    def _stable_product(self, item: int, v: FloatArray) -> FloatArray:
        from fstgrad.trees.kernels import elimination

        n = len(v) - 1
        single = bool(self.single[item])
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
        single = bool(self.single[item])
        scores = self.scores[item, : n + 1, : n + 1].copy()
        if self.single_root and not single:
            scores[0, self.marginals[item, 0, : n + 1] == 0] = -np.inf
        table = np.empty((n + 1, n + 1))
        shift, _ = matrix_tree.center(scores, n, single, table)
        return table, shift


def solve(scores: FloatArray, lengths: IntArray, *, single_root: bool) -> Solution:
    """Solve a batch of tables (b, m+1, m+1) of log-weights for their first n+1 rows and columns."""
    items, size = scores.shape[:2]
    tables, values = np.empty((3, items, size, size)), np.empty((2, items))
    flags = np.empty((2, items), dtype=np.bool_)
    solution = Solution(
        scores, lengths, single_root, tables, tables[0], tables[1], tables[2], values[0], flags[0],
        flags[1],
    )  # fmt: skip
    step = max(1, CHUNK // (size * size))
    for start in range(0, items, step):
        stop = min(start + step, items)
        if _invert(solution, values, flags, start, stop):
            for item in (start + np.flatnonzero(~flags[0, start:stop])).tolist():
                values[1, item] = _solve_stably(solution, item, values[1, item])
    values[0] += values[1]
    return solution


def _invert(solution: Solution, values: FloatArray, flags: BoolArray, start: int, stop: int) -> int:
    """Solve items by the inverse Laplacian; return how many cannot be trusted.

    The memory of a Laplacian as a C array is the transpose to LAPACK, which inverts it in place.
    """
    from fstgrad.trees.kernels import matrix_tree

    lengths, tables, single = solution.lengths, solution.tables, solution.single_root
    size = tables.shape[-1]
    limit = min(COMPILED_LIMIT, size - 1)
    roots = np.empty(len(lengths))
    matrix_tree.prepare(solution.scores, lengths, single, start, stop, tables, values, roots)
    weights = tables[0, start:stop]
    np.exp(weights, out=weights)
    left = matrix_tree.solve_short(
        lengths, single, start, stop, limit, tables, values, roots, flags
    )
    if not left or size - 1 == limit:
        return left
    matrices = np.empty((stop - start, (size - 1) ** 2))
    pivots = np.ones((stop - start, size - 1))
    matrix_tree.laplacian_long(lengths, single, start, stop, limit, tables, matrices)
    for item in range(start, stop):
        n = int(lengths[item])
        if n > limit:
            matrix = matrices[item - start, : n * n].reshape(n, n).T
            factors, order, singular = lapack.dgetrf(matrix, overwrite_a=True)
            values[0, item] = -np.inf if singular else 0.0
            if not singular:
                pivots[item - start, :n] = factors.diagonal()
                lapack.dgetri(factors, order, lwork=64 * n, overwrite_lu=True)
    return matrix_tree.differentiate_long(
        lengths, single, start, stop, limit, tables, values, roots, flags, matrices, pivots
    )


def _solve_stably(solution: Solution, item: int, shift: float) -> float:
    """Solve one item without subtractions, on logarithms if the weights' range asks for it.

    Return its shift, which moves if the root arc is fixed: with a certain root arc among the
    others there are no pivots that nearly vanish and are made good by a large root weight.
    """
    if _eliminate(solution, item):
        return shift
    n = int(solution.lengths[item])
    log_weights, shift = solution.log_weights(item)
    result = logdomain.solve(log_weights, np.zeros_like(log_weights), single=solution.single[item])
    if solution.single[item] and result.log_partition > -np.inf:
        chance = result.log_gradient[0] + log_weights[0]
        child = int(np.argmax(chance))
        if np.logaddexp.reduce(np.delete(chance, child)) < CERTAIN:
            solution.single[item] = False
            solution.marginals[item, 0] = 0.0
            solution.marginals[item, 0, child] = 1.0
            log_weights, shift = solution.log_weights(item)
            solution.weights[item, : n + 1, : n + 1] = np.exp(log_weights)
            if _eliminate(solution, item):
                return shift
            result = logdomain.solve(log_weights, np.zeros_like(log_weights), single=False)
    solution.log_partition[item] = result.log_partition
    solution.gradient[item] = 0.0
    solution.marginals[item] = 0.0
    solution.marginals[item, : n + 1, : n + 1] = result.marginals
    return shift


def _eliminate(solution: Solution, item: int) -> bool:
    from fstgrad.trees.kernels import elimination

    n = int(solution.lengths[item])
    inner = np.s_[item, : n + 1, : n + 1]
    gradient, marginals, unused = np.zeros((3, n + 1, n + 1))
    weights = np.ascontiguousarray(solution.weights[inner])
    value = elimination.solve(
        weights, unused, n, bool(solution.single[item]), False, gradient, marginals, unused
    )
    if value == -np.inf:
        return False
    solution.log_partition[item] = value
    solution.gradient[item] = 0.0
    solution.marginals[item] = 0.0
    solution.gradient[inner] = gradient
    solution.marginals[inner] = marginals
    return True
