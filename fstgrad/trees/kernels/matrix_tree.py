"""The matrix-tree theorem on small matrices: log Z, its gradient, and Hessian-vector products.

Tables have the layout of the scores, (M+1, M+1) with [head, dependent] and the root at 0; the
diagonal, column 0 and what lies beyond a sentence's length hold zero weight.  The letters are

    w  weights, each column divided by its largest (single root: by its largest non-root one),
    g  the gradient of log Z in w: g_hj = B_jj - B_jh, the root's row B_jj, B the inverse Laplacian,
    mu marginals, w * g.
"""

import numpy as np

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.kernels.compiler import kernel

# Above this gradient the subtractions B_jj - B_jh have lost too many digits.
CONDITION_LIMIT = 100.0
# With a root arc so far above its rivals, marginals of 1e-17 in place of 0 would count.
ROOT_LIMIT = 1e4
SMALLEST_PIVOT = 1e-280


@kernel
def find_unclean(scores: FloatArray, lengths: IntArray) -> int:
    """Return the index of the first NaN or +inf in a flat view of (b, m+1, m+1, y), or -1."""
    for item in range(scores.shape[0]):
        for i in range(lengths[item] + 1):
            for j in range(lengths[item] + 1):
                for y in range(scores.shape[3]):
                    if not scores[item, i, j, y] < np.inf:
                        row = item * scores.shape[1] + i
                        return int((row * scores.shape[2] + j) * scores.shape[3] + y)
    return -1


@kernel
def center(scores: FloatArray, n: int, single: bool, out: FloatArray) -> tuple[float, float]:
    """Write scores - c_j (single root: the root's row less its maximum c_0); return sum c and c_0.

    A column's constant c_j is its largest score, over non-root heads if only one arc may leave
    the root.
    """
    top = np.full(n + 1, -np.inf)
    for i in range(n + 1):
        for j in range(1, n + 1):
            value = scores[i, j]
            if i != j and not (single and i == 0) and value > top[j]:
                top[j] = value
    for j in range(1, n + 1):
        if top[j] == -np.inf and scores[0, j] > -np.inf:
            top[j] = scores[0, j]
        if top[j] == -np.inf:
            top[j] = 0.0
    out[:] = -np.inf
    for i in range(n + 1):
        for j in range(1, n + 1):
            out[i, j] = scores[i, j] - top[j]
        out[i, i] = -np.inf
    root = 0.0
    child = np.argmax(out[0]) if single else 0
    if single and out[0, child] > -np.inf:
        root = out[0, child]
        for j in range(1, n + 1):
            out[0, j] -= root
    else:
        child = 0
    # the constants of the child and of the root add up to one score, whose digits they may lack
    shift = scores[0, child] if child > 0 else 0.0
    for j in range(1, n + 1):
        if j != child:
            shift += top[j]
    return shift, root


@kernel
def center_batch(
    scores: FloatArray, lengths: IntArray, single: bool, out: FloatArray, shift: FloatArray
) -> None:
    """Center every item."""
    for item in range(scores.shape[0]):
        shift[item], _ = center(scores[item], lengths[item], single, out[item])


@kernel
def laplacian(w: FloatArray, n: int, single: bool, out: FloatArray) -> None:
    """Write the Laplacian of the dependents; single root: its last row is the root's weights.

    L_jj is the weight that enters j, L_ij = -w_ij.  With one root arc allowed the root's weight
    stays out of the diagonal (Koo et al. 2007, section 3.2, there in the first row).
    """
    first = 1 if single else 0
    total = np.zeros(n)
    for i in range(first, n + 1):
        for j in range(n):
            total[j] += w[i, j + 1]
    for i in range(n):
        for j in range(n):
            out[i, j] = -w[i + 1, j + 1]
        out[i, i] = total[i]
    if single:
        for j in range(n):
            out[n - 1, j] = w[0, j + 1]


@kernel
def invert(a: FloatArray, n: int) -> float:
    """Invert the leading n rows and columns in place; return the log-determinant, -inf if it fails.

    Gauss-Jordan elimination without exchanges, two pivots a pass: the columns of a Laplacian are
    diagonally dominant, and the root's row comes last.  Columns past n are padding.
    """
    width = a.shape[1]
    log_determinant = 0.0
    for k in range(0, n - 1, 2):
        one, two = a[k], a[k + 1]
        for step in range(2):
            row, other = (one, two) if step == 0 else (two, one)
            pivot = row[k + step]
            if not pivot > SMALLEST_PIVOT:
                return -np.inf
            log_determinant += np.log(pivot)
            row[k + step] = 1.0
            factor = -other[k + step]
            other[k + step] = 0.0
            scale = 1.0 / pivot
            for j in range(width):
                row[j] *= scale
                other[j] += factor * row[j]
        for i in range(n):
            if i < k or i > k + 1:
                row = a[i]
                left, right = -row[k], -row[k + 1]
                row[k] = 0.0
                row[k + 1] = 0.0
                for j in range(width):
                    row[j] += left * one[j] + right * two[j]
    if n % 2 == 1:
        row = a[n - 1]
        pivot = row[n - 1]
        if not pivot > SMALLEST_PIVOT:
            return -np.inf
        log_determinant += np.log(pivot)
        row[n - 1] = 1.0
        scale = 1.0 / pivot
        for j in range(width):
            row[j] *= scale
        for i in range(n - 1):
            other = a[i]
            factor = -other[n - 1]
            other[n - 1] = 0.0
            for j in range(width):
                other[j] += factor * row[j]
    return log_determinant


@kernel
def differentiate(
    b: FloatArray, w: FloatArray, n: int, single: bool, g: FloatArray, mu: FloatArray
) -> bool:
    """Write g and mu from the inverse b of `laplacian`; return whether they can be trusted."""
    g[:] = 0.0
    mu[:] = 0.0
    largest = 0.0
    smallest = 0.0
    for j in range(n):
        own = b[j, j] if not (single and j == n - 1) else 0.0
        g[0, j + 1] = b[j, n - 1] if single else own
        for i in range(n):
            g[i + 1, j + 1] = own - b[j, i]
        if single:
            g[n, j + 1] = own
        g[j + 1, j + 1] = 0.0
    total = np.zeros(n + 1)
    for i in range(n + 1):
        for j in range(1, n + 1):
            value = g[i, j]
            largest = max(largest, abs(value))
            part = w[i, j] * value
            smallest = min(smallest, part)
            total[j] += part
            mu[i, j] = min(max(part, 0.0), 1.0)
    error = 0.0
    for j in range(1, n + 1):
        error = max(error, abs(total[j] - 1.0))
    return largest < CONDITION_LIMIT and smallest > -1e-12 and error < 1e-11


@kernel
def solve_batch(
    scores: FloatArray,
    lengths: IntArray,
    single: bool,
    limit: int,
    shift: FloatArray,
    log_partition: FloatArray,
    w: FloatArray,
    g: FloatArray,
    mu: FloatArray,
    trusted: BoolArray,
) -> None:
    """Solve every item of at most `limit` dependents; the others get their shift alone."""
    pad = limit + (-limit) % 16
    work = np.empty((limit, pad))
    for item in range(scores.shape[0]):
        n = lengths[item]
        trusted[item] = False
        if n > limit:
            continue
        shift[item], root = center(scores[item], n, single, w[item])
        for i in range(n + 1):
            for j in range(1, n + 1):
                w[item, i, j] = np.exp(w[item, i, j])
        for i in range(n + 1):
            w[item, i, 0] = 0.0
        w[item, n + 1 :] = 0.0
        w[item, :, n + 1 :] = 0.0
        width = n + (-n) % 16
        a = work.reshape(-1)[: n * width].reshape(n, width)
        a[:] = 0.0
        laplacian(w[item], n, single, a)
        value = invert(a, n)
        log_partition[item] = value
        if value > -np.inf:
            good = differentiate(a, w[item], n, single, g[item], mu[item])
            trusted[item] = good and root < ROOT_LIMIT


@kernel
def hessian_product(
    w: FloatArray,
    g: FloatArray,
    mu: FloatArray,
    v: FloatArray,
    n: int,
    single: bool,
    out: FloatArray,
) -> None:
    """Write Cov v for one item.

    With U = w v and A = g'U - (g' scaled by U's column sums), Cov v is
    mu v + w (-g A' + 1 diag(g A')).  Single root: the root's row of U stays out of the sums
    and the root's row of the result takes no diagonal.
    """
    a = np.zeros((n + 1, n + 1))  # A transposed: rows are walked along
    u = np.empty((n + 1, n + 1))
    first = 1 if single else 0
    total = np.zeros(n + 1)
    for i in range(n + 1):
        for j in range(n + 1):
            u[i, j] = w[i, j] * v[i, j]
            if i >= first:
                total[j] += u[i, j]
    for l in range(1, n + 1):
        for h in range(n + 1):
            factor = u[h, l]
            if h == l:
                factor = -total[l]
            if factor != 0.0:
                for j in range(1, n + 1):
                    a[l, j] += factor * g[h, j]
    diagonal = np.zeros(n + 1)
    for l in range(1, n + 1):
        for j in range(1, n + 1):
            diagonal[j] += a[l, j] * g[j, l]
    out[:] = 0.0
    for h in range(n + 1):
        row = out[h]
        for l in range(1, n + 1):
            factor = g[h, l]
            for j in range(1, n + 1):
                row[j] -= factor * a[l, j]
        for j in range(1, n + 1):
            add = diagonal[j] if h >= first else 0.0
            row[j] = w[h, j] * (row[j] + add) + mu[h, j] * v[h, j]


@kernel
def hessian_batch(
    w: FloatArray,
    g: FloatArray,
    mu: FloatArray,
    v: FloatArray,
    lengths: IntArray,
    single: bool,
    out: FloatArray,
) -> None:
    """Write Cov v for every item."""
    for item in range(w.shape[0]):
        hessian_product(w[item], g[item], mu[item], v[item], lengths[item], single, out[item])
