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
    width = scores.shape[2] * scores.shape[3]
    rows = scores.reshape(-1, width)
    for item in range(len(lengths)):
        for i in range(lengths[item] + 1):
            row = rows[item * scores.shape[1] + i, : (lengths[item] + 1) * scores.shape[3]]
            bad = 0
            for value in row:
                bad += not value < np.inf
            if bad > 0:
                for k in range(len(row)):
                    if not row[k] < np.inf:
                        return int((item * scores.shape[1] + i) * width + k)
    return -1


@kernel
def center(scores: FloatArray, n: int, single: bool, out: FloatArray) -> tuple[float, float]:
    """Write scores - c_j (single root: the root's row less its maximum c_0); return sum c and c_0.

    A column's constant c_j is its largest score, over non-root heads if only one arc may leave
    the root.
    """
    top = np.full(n + 1, -np.inf)
    for i in range(1 if single else 0, n + 1):
        for j in range(1, i):
            top[j] = scores[i, j] if scores[i, j] > top[j] else top[j]
        for j in range(i + 1, n + 1):
            top[j] = scores[i, j] if scores[i, j] > top[j] else top[j]
    for j in range(1, n + 1):
        if top[j] == -np.inf and scores[0, j] > -np.inf:
            top[j] = scores[0, j]
        if top[j] == -np.inf:
            top[j] = 0.0
    top[0] = 0.0
    for i in range(n + 1):
        for j in range(n + 1):
            out[i, j] = scores[i, j] - top[j]
        out[i, 0] = -np.inf
        out[i, i] = -np.inf
    out[n + 1 :] = -np.inf
    out[:, n + 1 :] = -np.inf
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
    own = np.zeros(n + 1)
    for j in range(n - 1 if single else n):
        own[j + 1] = b[j, j]
    for j in range(n):
        g[0, j + 1] = b[j, n - 1] if single else own[j + 1]
    for block in range(1, n + 1, 8):  # a transpose, a few rows of b a time
        end = min(block + 8, n + 1)
        for i in range(1, n + 1):
            for j in range(block, end):
                g[i, j] = own[j] - b[j - 1, i - 1]
    if single:
        g[n, 1 : n + 1] = own[1:]
    for i in range(1, n + 1):
        g[i, i] = 0.0
    g[: n + 1, 0] = 0.0
    total, least, largest = np.zeros((3, n + 1))
    for i in range(n + 1):
        for j in range(n + 1):
            value = g[i, j]
            part = w[i, j] * value
            size = abs(value)
            largest[j] = size if size > largest[j] else largest[j]
            least[j] = part if part < least[j] else least[j]
            total[j] += part
            part = part if part > 0.0 else 0.0
            mu[i, j] = part if part < 1.0 else 1.0
    for table in (g, mu):
        table[n + 1 :] = 0.0
        table[:, n + 1 :] = 0.0
    for j in range(1, n + 1):  # false for NaN too
        if not (abs(total[j] - 1.0) < 1e-11 and largest[j] < CONDITION_LIMIT):
            return False
    return bool(least.min() > -1e-12)


@kernel
def prepare(
    scores: FloatArray,
    lengths: IntArray,
    single: bool,
    start: int,
    stop: int,
    tables: FloatArray,
    values: FloatArray,
    roots: FloatArray,
) -> None:
    """Center the items start .. stop-1 into w; numpy takes the exponentials, many at once."""
    for item in range(start, stop):
        values[1, item], roots[item] = center(scores[item], lengths[item], single, tables[0, item])


@kernel
def solve_short(
    lengths: IntArray,
    single: bool,
    start: int,
    stop: int,
    limit: int,
    tables: FloatArray,
    values: FloatArray,
    roots: FloatArray,
    flags: BoolArray,
) -> int:
    """Solve the items of at most `limit` dependents; return how many of all are not trusted.

    tables : (3, b, m+1, m+1), w, g, mu.  values : (2, b), log Z of w, shift.  flags : (2, b),
    trusted, single.
    """
    work = np.empty(limit * (limit + 16))
    left = 0
    for item in range(start, stop):
        n = lengths[item]
        flags[0, item] = False
        flags[1, item] = single
        if n <= limit:
            w, g, mu = tables[0, item], tables[1, item], tables[2, item]
            width = n + (-n) % 16
            a = work[: n * width].reshape(n, width)
            a[:] = 0.0
            laplacian(w, n, single, a)
            values[0, item] = invert(a, n)
            if values[0, item] > -np.inf and roots[item] < ROOT_LIMIT:
                flags[0, item] = differentiate(a, w, n, single, g, mu)
        left += not flags[0, item]
    return left


@kernel
def laplacian_long(
    lengths: IntArray,
    single: bool,
    start: int,
    stop: int,
    limit: int,
    tables: FloatArray,
    matrices: FloatArray,
) -> None:
    """Write the Laplacians of long items for LAPACK, each n by n in front of its (m * m) row."""
    for item in range(start, stop):
        n = lengths[item]
        if n > limit:
            matrix = matrices[item - start, : n * n].reshape(n, n)
            laplacian(tables[0, item], n, single, matrix)


@kernel
def differentiate_long(
    lengths: IntArray,
    single: bool,
    start: int,
    stop: int,
    limit: int,
    tables: FloatArray,
    values: FloatArray,
    roots: FloatArray,
    flags: BoolArray,
    matrices: FloatArray,
    pivots: FloatArray,
) -> int:
    """Finish the long items from their inverses; return how many of all are not trusted."""
    left = 0
    for item in range(start, stop):
        n = lengths[item]
        if n > limit:
            for k in range(n):
                values[0, item] += np.log(abs(pivots[item - start, k]))
        if n > limit and values[0, item] > -np.inf and roots[item] < ROOT_LIMIT:
            b = matrices[item - start, : n * n].reshape(n, n)
            flags[0, item] = differentiate(
                b, tables[0, item], n, single, tables[1, item], tables[2, item]
            )
        left += not flags[0, item]
    return left


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
    first = 1 if single else 0
    gradient = g[: n + 1, : n + 1].copy()
    weighted = np.empty((n + 1, n + 1))  # U', so that A' is a product of arrays in C order
    total = np.zeros(n + 1)
    for i in range(n + 1):
        for j in range(n + 1):
            value = w[i, j] * v[i, j]
            weighted[j, i] = value
            if i >= first:
                total[j] += value
    transposed = np.dot(weighted, gradient)
    for l in range(n + 1):
        for j in range(n + 1):
            transposed[l, j] -= total[l] * gradient[l, j]
    change = np.dot(gradient, transposed)
    out[n + 1 :] = 0.0
    out[:, n + 1 :] = 0.0
    diagonal = np.empty(n + 1)
    for j in range(n + 1):
        diagonal[j] = change[j, j]
    for i in range(n + 1):
        for j in range(n + 1):
            add = diagonal[j] if i >= first else 0.0
            out[i, j] = w[i, j] * (add - change[i, j]) + mu[i, j] * v[i, j]


@kernel
def hessian_batch(
    tables: FloatArray, v: FloatArray, lengths: IntArray, single: bool, out: FloatArray
) -> None:
    """Write Cov v for every item."""
    for item in range(len(lengths)):
        w, g, mu = tables[0, item], tables[1, item], tables[2, item]
        hessian_product(w, g, mu, v[item], lengths[item], single, out[item])
