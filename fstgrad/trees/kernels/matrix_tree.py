"""The matrix-tree theorem: log Z, its gradient, entropies and Hessian-vector products.

Tables have the layout of the scores, (m+1, m+1) with [head, dependent] and the root at 0; the
diagonal, column 0 and the cells beyond a sentence's length have zero weight.  The letters are

    w  weights, each column divided by its largest (single root: by its largest non-root one),
    g  the gradient of log Z in w: g_hj = B_jj - B_jh, g_0j = B_jj, B the inverse Laplacian,
    mu marginals, w * g.

If the weights into one dependent d change, g changes by a table of rank one, because Z is linear in
them.  Let D_k be the change of w_kd, R the ratio Z' / Z = sum_k w'_kd g_kd, and b_h = 1, except
b_0 = 0 with a single root.  Then

    g'_hj = g_hj - (sum_k D_k (g_kj - b_k g_dj)) (g_hd - b_h g_jd) / R.
"""

import numpy as np

from fstgrad.core.checks import LARGEST_SCORE, BoolArray, FloatArray, IntArray
from fstgrad.core.compiler import fused_kernel, kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import exponentiate
from fstgrad.trees.kernels.inverse import invert

# Above this gradient, the subtractions B_jj - B_jh lose too many digits: 1e-12 of a marginal.
CONDITION_LIMIT = 1e4
# Above this gradient, products of two gradients have an error above 1e-12.
SECOND_LIMIT = 1e4
# If root arcs are this far (nats) from the others, marginals of 1e-17 instead of 0 would matter, or
# the scores would lose digits.
ROOT_LIMIT = 1e4
# An updated gradient has lost digits if Z' / Z is below LEAST_RATIO, or if a column of marginals
# does not sum to 1 within SUM_TOLERANCE.
LEAST_RATIO, SUM_TOLERANCE = 1e-3, 1e-11
# Finite scores below this are raised to it, so that their sums stay finite.
LEAST = -1e300


@kernel
def find_invalid_score(scores: FloatArray, lengths: IntArray) -> int:
    """Return the index of the first NaN or score above LARGEST_SCORE.

    scores : a view (b, m+1, (m+1) * y); the index is that of the flat array.
    If there is none, return -2 if a finite score is below LEAST, otherwise -1.
    """
    size, width = scores.shape[1:]
    labels, finite = width // size, True
    for item in range(len(lengths)):
        count = (lengths[item] + 1) * labels
        for i in range(lengths[item] + 1):
            row = scores[item, i]
            bad, low = 0, 0
            for k in range(count):
                bad += not row[k] <= LARGEST_SCORE
                low += row[k] < LEAST
            if bad + low > 0:
                for k in range(count):
                    if not row[k] <= LARGEST_SCORE:
                        return int((item * size + i) * width + k)
                    finite &= not (-np.inf < row[k] < LEAST)
    return -1 if finite else -2


@kernel
def center(scores: FloatArray, n: int, single: bool, out: FloatArray) -> tuple[float, float, float]:
    """Write scores - c_j (single root: the root's row then also minus its maximum c_0).

    out : (n+1, n+1), -inf on the diagonal and in column 0.
    A column's constant c_j is its largest score, over non-root heads if only one arc may leave
    the root.  Return the sum of the constants with c_0, c_0 itself, and this sum minus the sum of
    the columns' largest scores over all heads, which is at most 0.
    """
    top = np.full(n + 1, -np.inf)
    for i in range(1 if single else 0, n + 1):
        row = scores[i]
        for j in range(n + 1):
            value = row[j] if j != i else -np.inf
            top[j] = value if value > top[j] else top[j]
    root = scores[0]
    child, largest = 0, -np.inf
    for j in range(1, n + 1):
        if top[j] == -np.inf:
            top[j] = root[j] if root[j] > -np.inf else 0.0
        if single and root[j] - top[j] > largest:
            child, largest = j, root[j] - top[j]
    if child == 0:
        largest = 0.0
    for i in range(n + 1):
        row, source = out[i], scores[i]
        for j in range(n + 1):
            row[j] = source[j] - top[j]
        row[0] = -np.inf
        row[i] = -np.inf
    for j in range(n + 1):
        out[0, j] -= largest
    # root[child] is the sum of the child's and the root's constants, which may have lost its digits
    shift = root[child] if child > 0 else 0.0
    below = min(root[child] - top[child], 0.0) if child > 0 else 0.0
    for j in range(1, n + 1):
        if j != child:
            shift += top[j]
            below -= max(root[j] - top[j], 0.0)
    return shift, largest, below


@fused_kernel
def laplacian(w: FloatArray, n: int, single: bool, out: FloatArray) -> None:
    """Write the Laplacian of the dependents; single root: its last row is the root's weights.

    L_jj is the total weight that enters j, and L_ij = -w_ij.  With a single root, the root's weight
    is left out of the diagonal (Koo et al. 2007, Proposition 1, where it is in the first row).
    Rows past n are those of the identity; further columns are zero.
    """
    total = np.zeros(n + 1)
    for i in range(1 if single else 0, n + 1):
        row = w[i]
        for j in range(n + 1):
            total[j] += row[j]
    for i in range(n):
        row, head = out[i], w[i + 1]
        row[n:] = 0.0
        for j in range(n):
            row[j] = -head[j + 1]
        row[i] = total[i + 1]
    for i in range(n, len(out)):
        out[i] = 0.0
        out[i, i] = 1.0
    if single:
        row, head = out[n - 1], w[0]
        for j in range(n):
            row[j] = head[j + 1]


@fused_kernel
def differentiate(
    b: FloatArray, w: FloatArray, n: int, single: bool, g: FloatArray, mu: FloatArray
) -> bool:
    """Write g and mu from the inverse b of `laplacian`; return whether they can be trusted."""
    if n + 1 < len(g):
        g[:] = 0.0
        mu[:] = 0.0
    for j in range(1, n + 1):
        row = b[j - 1]
        diagonal = 0.0 if single and j == n else row[j - 1]
        for i in range(1, n + 1):
            g[i, j] = diagonal - row[i - 1]
        g[0, j] = diagonal
        if single:  # the last row of the Laplacian is the root's, not node n's
            g[0, j] = row[n - 1]
            g[n, j] = diagonal
    total = np.zeros(n + 1)
    bad = 0  # also counts NaN
    for i in range(n + 1):
        weights, slopes, out = w[i], g[i], mu[i]
        slopes[0] = 0.0
        slopes[i] = 0.0
        for j in range(n + 1):
            part = weights[j] * slopes[j]
            bad += (not part > -1e-12) | (not abs(slopes[j]) < CONDITION_LIMIT)
            total[j] += part
            part = part if part > 0.0 else 0.0
            out[j] = part if part < 1.0 else 1.0
    for j in range(1, n + 1):
        bad += not abs(total[j] - 1.0) < 1e-11
    return bad == 0


@part_kernel
def invert_laplacian(
    w: FloatArray, n: int, single: bool, buffer: FloatArray, g: FloatArray, mu: FloatArray
) -> float:
    """Write g and mu from the inverse Laplacian; return log Z, NaN if it cannot be trusted.

    buffer : room for (n + 4) (n + 8) numbers.
    """
    rows, width = n + (-n) % 4, n + (-n) % 8
    inverse = buffer[: rows * width].reshape(rows, width)
    laplacian(w, n, single, inverse)
    value = invert(inverse)
    if value > -np.inf and differentiate(inverse, w, n, single, g, mu):
        return float(value)
    return np.nan


@kernel
def solve_batch(
    scores: FloatArray,
    lengths: IntArray,
    single: bool,
    tables: FloatArray,
    log_partition: FloatArray,
    relative: FloatArray,
) -> int:
    """Solve every item by the inverse of its Laplacian; return the number that cannot be trusted.

    tables : (2, b, m+1, m+1), g and mu.  log_partition : NaN for items that are not trusted.
    relative : log Z minus the sum of the dependents' largest scores.
    """
    size = scores.shape[1]
    buffer, weights = empty((size + 4) * (size + 8)), empty(size * size)
    left = 0
    for item in range(len(lengths)):
        n = lengths[item]
        if n == 0:
            tables[:, item] = 0.0
            log_partition[item] = 0.0
            relative[item] = 0.0
            continue
        w = weights[: (n + 1) * (n + 1)].reshape(n + 1, n + 1)
        shift, root, below = center(scores[item], n, single, w)
        exponentiate(w.reshape(-1), buffer)
        value = np.nan
        if abs(root) < ROOT_LIMIT:
            value = invert_laplacian(w, n, single, buffer, tables[0, item], tables[1, item])
        log_partition[item] = value + shift
        relative[item] = value + below
        left += np.isnan(value)
    return left


@fused_kernel
def entropies(
    scores: FloatArray,
    marginals: FloatArray,
    lengths: IntArray,
    relative: FloatArray,
    reduced_costs: FloatArray,
    out: FloatArray,
) -> None:
    """Write entropies and reduced costs: each dependent's largest score minus scores, 0 for -inf.

    scores, marginals, reduced_costs : (b, m+1, m+1).  relative : as in `solve_batch`.  The entropy
    log Z - <mu, scores> is computed as relative + <mu, reduced_costs>, without the constant shared
    by all trees, and so keeps its digits.
    """
    size = scores.shape[1]
    for item in range(len(lengths)):
        n = lengths[item]
        top, expected = np.full(n + 1, -np.inf), np.zeros(n + 1)
        for i in range(n + 1):
            row, source = reduced_costs[item, i], scores[item, i]
            for k in range(n + 1):
                row[k] = source[k]
            row[0] = -np.inf
            row[i] = -np.inf
            for k in range(n + 1):
                top[k] = row[k] if row[k] > top[k] else top[k]
        for i in range(n + 1):
            row, mu = reduced_costs[item, i], marginals[item, i]
            for k in range(n + 1):
                row[k] = top[k] - row[k] if row[k] > -np.inf else 0.0
                expected[k] += mu[k] * row[k]
            for k in range(n + 1, size):
                row[k] = 0.0
        for i in range(n + 1, size):
            for k in range(size):
                reduced_costs[item, i, k] = 0.0
        entropy = relative[item]
        for k in range(n + 1):
            entropy += expected[k]
        out[item] = entropy if entropy > 0.0 else 0.0


@fused_kernel
def hessian_product(
    w: FloatArray,
    g: FloatArray,
    mu: FloatArray,
    v: FloatArray,
    n: int,
    single: bool,
    work: FloatArray,
) -> None:
    """Replace v by Cov v for one item: O(n^3), two matrix products.

    With U = w v minus its column sums on the diagonal, and A = g U' g, Cov v is
    mu v + w (1 diag(A) - A).  Single root: the sums leave out the root's row of U, and the root's
    row of the result leaves out the diagonal.
    """
    gradient, weighted, product = work[0], work[1], work[2]
    total, diagonal = np.zeros((2, n + 1))
    for i in range(n + 1):
        for j in range(n + 1):
            gradient[i, j] = g[i, j]
            weighted[i, j] = w[i, j] * v[i, j]
        if i > 0 or not single:
            for j in range(n + 1):
                total[j] += weighted[i, j]
    for j in range(n + 1):
        weighted[j, j] = -total[j]
    np.dot(weighted.T, gradient, product)
    np.dot(gradient, product, weighted)
    for j in range(n + 1):
        diagonal[j] = weighted[j, j]
    for i in range(n + 1):
        b = 0.0 if i == 0 and single else 1.0
        for j in range(n + 1):
            change = w[i, j] * (b * diagonal[j] - weighted[i, j])
            v[i, j] = mu[i, j] * v[i, j] + change


@kernel
def hessian_batch(
    scores: FloatArray,
    lengths: IntArray,
    single: bool,
    tables: FloatArray,
    done: BoolArray,
    v: FloatArray,
) -> None:
    """Replace v by Cov v for every item that is not `done`, with g and mu of `solve_batch`.

    Cells beyond an item's length are set to 0 in all items.
    """
    size = scores.shape[1]
    buffer, weights = empty(3 * size * size), empty(size * size)
    for item in range(len(lengths)):
        n = lengths[item]
        v[item, :, n + 1 :] = 0.0
        v[item, n + 1 :] = 0.0
        if done[item]:
            continue
        area = (n + 1) * (n + 1)
        w = weights[:area].reshape(n + 1, n + 1)
        center(scores[item], n, single, w)
        exponentiate(w.reshape(-1), buffer)
        work = buffer[: 3 * area].reshape(3, n + 1, n + 1)
        hessian_product(w, tables[0, item], tables[1, item], v[item], n, single, work)


@kernel
def find_ill_conditioned(tables: FloatArray, lengths: IntArray, ill_conditioned: BoolArray) -> None:
    """Set the mask of items whose gradient is too large for `hessian_batch`, or all 0."""
    for item in range(len(lengths)):
        n = lengths[item]
        used, large = 0, 0
        for i in range(n + 1):
            row = tables[0, item, i]
            for j in range(n + 1):
                used += row[j] != 0.0
                large += not abs(row[j]) <= SECOND_LIMIT
        ill_conditioned[item] = n > 0 and (used == 0 or large > 0)


@part_kernel
def column_constant(scores: FloatArray, j: int, single: bool) -> float:
    """Return the constant that `center` subtracts from column j; 0 if no arc enters j."""
    top = -np.inf
    for i in range(1 if single else 0, len(scores)):
        top = max(top, scores[i, j]) if i != j else top
    top = scores[0, j] if top == -np.inf else top
    return float(top) if top > -np.inf else 0.0


@kernel
def change_column(
    old: FloatArray, new: FloatArray, d: int, single: bool, g: FloatArray, tables: FloatArray
) -> float:
    """Write the new gradient and marginals (2, n+1, n+1); return R, NaN if digits are lost.

    old, new : scores that differ in column d.  g : the gradient at the old scores.
    """
    size = len(old)
    centered, w = empty((size, size)), empty((size, size))
    _, root, _ = center(old, size - 1, single, centered)
    before = column_constant(old, d, single)
    was = centered[:, d].copy()
    _, new_root, _ = center(new, size - 1, single, w)
    after = column_constant(new, d, single)
    first = np.exp(new_root - root)  # from the scale of the old root and column to the new
    scale = np.exp(after - before)
    change = empty(size)
    ratio = 0.0
    for k in range(size):
        # the new weight in the old scale
        weight = np.exp(w[k, d] + (after - before) + (new_root - root if k == 0 else 0.0))
        ratio += weight * g[k, d]
        change[k] = weight - np.exp(was[k])
    if not (ratio > LEAST_RATIO and np.isfinite(scale) and np.isfinite(first)):
        return np.nan
    left = np.zeros(size)
    total = 0.0
    for k in range(size):
        total += 0.0 if single and k == 0 else change[k]
        for j in range(size):
            left[j] += change[k] * g[k, j]
    row = g[:, d].copy()
    for j in range(size):
        left[j] = (left[j] - total * g[d, j]) / ratio
    exponentiate(w.reshape(-1), centered.reshape(-1))
    sums = np.zeros(size)
    for h in range(size):
        b = 0.0 if single and h == 0 else 1.0
        gain = first if h == 0 else 1.0
        slopes, marginals, source, weights = tables[0, h], tables[1, h], g[h], w[h]
        for j in range(size):
            slope = (source[j] - left[j] * (row[h] - b * row[j])) * gain
            slope *= scale if j == d else 1.0
            slopes[j] = slope
            sums[j] += weights[j] * slope
            marginals[j] = min(max(weights[j] * slope, 0.0), 1.0)
        slopes[h] = 0.0
        slopes[0] = 0.0
    for j in range(1, size):
        if not abs(sums[j] - 1.0) < SUM_TOLERANCE:
            return np.nan
    for x in tables[0].reshape(-1):
        if not abs(x) < CONDITION_LIMIT:
            return np.nan
    return ratio
