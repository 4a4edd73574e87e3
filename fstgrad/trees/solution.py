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

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.trees import logdomain

# Up to here the compiled inverse is quicker than the calls of LAPACK.
COMPILED_LIMIT = 32
# A root arc with all the others together below exp(-45) of it is certain to the last digit.
CERTAIN = -45.0


@dataclass(frozen=True)
class Solution:
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
    from fstgrad.trees.kernels import matrix_tree

    items, size = scores.shape[:2]
    tables = np.empty((3, items, size, size))
    values = np.empty((2, items))
    flags = np.empty((2, items), dtype=np.bool_)
    limit = min(COMPILED_LIMIT, size - 1)
    left = matrix_tree.solve_batch(scores, lengths, single_root, limit, tables, values, flags)
    solution = Solution(
        scores, lengths, single_root, tables, tables[0], tables[1], tables[2], values[0], flags[0],
        flags[1],
    )  # fmt: skip
    if left and size - 1 > limit:
        left = _solve_long(solution, values, flags, limit)
    if left:
        for item in np.flatnonzero(~flags[0]).tolist():
            values[1, item] = _solve_stably(solution, item, values[1, item])
    values[0] += values[1]
    return solution


def _solve_long(solution: Solution, values: FloatArray, flags: BoolArray, limit: int) -> int:
    """Solve the long sentences of a batch with LAPACK; return how many items cannot be trusted.

    The memory of a Laplacian as a C array is the transpose to LAPACK, which inverts it in place.
    """
    from fstgrad.trees.kernels import matrix_tree

    lengths, tables, single = solution.lengths, solution.tables, solution.single_root
    items, size = len(lengths), solution.scores.shape[-1]
    roots, matrices = np.empty(items), np.empty((items, (size - 1) ** 2))
    matrix_tree.prepare_long(solution.scores, lengths, single, limit, tables, values, roots)
    for item, n in enumerate(lengths.tolist()):
        if n > limit:
            np.exp(tables[0, item], out=tables[0, item])
    matrix_tree.laplacian_long(tables, lengths, single, limit, matrices)
    for item, n in enumerate(lengths.tolist()):
        if n > limit:
            matrix = matrices[item, : n * n].reshape(n, n).T
            factors, pivots, singular = lapack.dgetrf(matrix, overwrite_a=True)
            values[0, item] = -np.inf
            if not singular:
                values[0, item] = np.log(np.abs(factors.diagonal())).sum()
                lapack.dgetri(factors, pivots, lwork=64 * n, overwrite_lu=True)
    left: int = matrix_tree.differentiate_long(
        matrices, lengths, single, limit, tables, values, flags, roots
    )
    return left


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
