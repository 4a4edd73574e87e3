"""The matrix-tree theorem: log Z, its gradient, entropies and Hessian-vector products.

Tables have the layout of the scores, (m+1, m+1) with [head, dependent] and the root at 0; the
diagonal, column 0 and what lies beyond a sentence's length hold zero weight.  The letters are

    w  weights, each column divided by its largest (single root: by its largest non-root one),
    g  the gradient of log Z in w: g_hj = B_jj - B_jh, the root's row B_jj, B the inverse Laplacian,
    mu marginals, w * g.
"""

import numpy as np

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.kernels.compiler import fused_kernel, kernel
from fstgrad.trees.kernels.dense import exponentiate, invert

# Above this gradient the subtractions B_jj - B_jh have lost too many digits.
CONDITION_LIMIT = 100.0
# With a root arc so far above its rivals, marginals of 1e-17 in place of 0 would count.
ROOT_LIMIT = 1e4


@kernel
def find_unclean(scores: FloatArray, lengths: IntArray) -> int:
    """Return the index of the first NaN or +inf in a flat view of (b, m+1, (m+1) * y), or -1."""
    size, width = scores.shape[1:]
    labels = width // size
    for item in range(len(lengths)):
        count = (lengths[item] + 1) * labels
        for i in range(lengths[item] + 1):
            row = scores[item, i]
            bad = 0
            for k in range(count):
                bad += not row[k] < np.inf
            if bad > 0:
                for k in range(count):
                    if not row[k] < np.inf:
                        return int((item * size + i) * width + k)
    return -1


@kernel
def center(scores: FloatArray, n: int, single: bool, out: FloatArray) -> tuple[float, float]:
    """Write scores - c_j (single root: the root's row less its maximum c_0); return sum c and c_0.

    A column's constant c_j is its largest score, over non-root heads if only one arc may leave
    the root.
    """
    top = np.full(n + 1, -np.inf)
    for i in range(len(out)):
        row = out[i]
        for j in range(len(row)):
            row[j] = scores[i, j] if i <= n and 0 < j <= n and i != j else -np.inf
        if 0 < i <= n or not single:
            for j in range(n + 1):
                top[j] = row[j] if row[j] > top[j] else top[j]
    root = out[0]
    for j in range(n + 1):
        if top[j] == -np.inf:
            top[j] = root[j] if root[j] > -np.inf else 0.0
    for i in range(n + 1):
        row = out[i]
        for j in range(n + 1):
            row[j] -= top[j]
    largest = 0.0
    child = np.argmax(root) if single else 0
    if single and root[child] > -np.inf:
        largest = root[child]
        for j in range(n + 1):
            root[j] -= largest
    else:
        child = 0
    # the constants of the child and of the root add up to one score, whose digits they may lack
    shift = scores[0, child] if child > 0 else 0.0
    for j in range(1, n + 1):
        if j != child:
            shift += top[j]
    return shift, largest


@fused_kernel
def laplacian(w: FloatArray, n: int, single: bool, out: FloatArray) -> None:
    """Write the Laplacian of the dependents; single root: its last row is the root's weights.

    L_jj is the weight that enters j, L_ij = -w_ij.  With one root arc allowed the root's weight
    stays out of the diagonal (Koo et al. 2007, section 3.2, there in the first row).  Rows past n
    are those of the identity, columns past them zero.
    """
    total = np.zeros(n + 1)
    for i in range(1 if single else 0, n + 1):
        row = w[i]
        for j in range(n + 1):
            total[j] += row[j]
    for i in range(len(out)):
        row = out[i]
        if i < n:
            row[n:] = 0.0
            head = w[i + 1]
            for j in range(n):
                row[j] = -head[j + 1]
            row[i] = total[i + 1]
        else:
            row[:] = 0.0
            row[i] = 1.0
    if single:
        row, head = out[n - 1], w[0]
        for j in range(n):
            row[j] = head[j + 1]


@fused_kernel
def differentiate(
    b: FloatArray, w: FloatArray, n: int, single: bool, g: FloatArray, mu: FloatArray
) -> bool:
    """Write g and mu from the inverse b of `laplacian`; return whether they can be trusted."""
    g[:] = 0.0
    mu[:] = 0.0
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
    total, least, largest = np.zeros((3, n + 1))
    for i in range(n + 1):
        weights, slopes, out = w[i], g[i], mu[i]
        slopes[i] = 0.0
        for j in range(n + 1):
            part = weights[j] * slopes[j]
            size = abs(slopes[j])
            largest[j] = size if size > largest[j] else largest[j]
            least[j] = part if part < least[j] else least[j]
            total[j] += part
            part = part if part > 0.0 else 0.0
            out[j] = part if part < 1.0 else 1.0
    for j in range(1, n + 1):  # false for NaN too
        if not (abs(total[j] - 1.0) < 1e-11 and largest[j] < CONDITION_LIMIT):
            return False
    return bool(least.min() > -1e-12)


@kernel
def solve_batch(
    scores: FloatArray,
    lengths: IntArray,
    single: bool,
    tables: FloatArray,
    marginals: FloatArray,
    log_partition: FloatArray,
    trusted: BoolArray,
) -> int:
    """Solve every item by the inverse of its Laplacian; return how many cannot be trusted.

    tables : (2, b, m+1, m+1), w and g.  log_partition : where an item is not trusted, the constant
    that its centering took out.
    """
    size = scores.shape[1]
    work = np.empty((size + 2) * (size + 6))
    left = 0
    for item in range(len(lengths)):
        n = lengths[item]
        w, g, mu = tables[0, item], tables[1, item], marginals[item]
        shift, root = center(scores[item], n, single, w)
        flat = w.reshape(-1)
        exponentiate(flat, work[: flat.size])
        rows, width = n + (-n) % 4, n + (-n) % 8
        inverse = work[: rows * width].reshape(rows, width)
        laplacian(w, n, single, inverse)
        value = invert(inverse)
        trusted[item] = False
        if value > -np.inf and root < ROOT_LIMIT:
            trusted[item] = differentiate(inverse, w, n, single, g, mu)
        log_partition[item] = value + shift if trusted[item] else shift
        left += not trusted[item]
    return left


@fused_kernel
def entropies(
    scores: FloatArray,
    marginals: FloatArray,
    lengths: IntArray,
    log_partition: FloatArray,
    centered: FloatArray,
    out: FloatArray,
) -> None:
    """Write entropies, and the scores less each dependent's largest, -inf as 0.

    scores, marginals, centered : (b, m+1, (m+1) * y).  What every tree shares is taken out of
    log Z - <mu, scores> before its digits are lost.
    """
    size, width = scores.shape[1:]
    labels = width // size
    for item in range(len(lengths)):
        n = lengths[item]
        top, expected = np.full(width, -np.inf), np.zeros(width)
        centered[item] = -np.inf
        for i in range(n + 1):
            row, source = centered[item, i], scores[item, i]
            for k in range(labels, (n + 1) * labels):
                row[k] = source[k]
            for k in range(i * labels, (i + 1) * labels):
                row[k] = -np.inf
            for k in range(width):
                top[k] = row[k] if row[k] > top[k] else top[k]
        entropy = log_partition[item]
        for j in range(n + 1):
            column = top[j * labels : (j + 1) * labels]
            largest = column.max()
            column[:] = largest if largest > -np.inf else 0.0
            entropy -= column[0]
        for i in range(size):
            row, mu = centered[item, i], marginals[item, i]
            for k in range(width):
                value = row[k] - top[k]
                row[k] = value if row[k] > -np.inf else 0.0
                expected[k] += mu[k] * row[k]
        entropy -= expected.sum()
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
    out: FloatArray,
) -> None:
    """Write Cov v for one item: O(n^3), two matrix products.

    With U = w v, less its column sums on the diagonal, and A = g U' g, Cov v is
    mu v + w (1 diag(A) - A).  Single root: the root's row of U stays out of the sums and the root's
    row of the result takes no diagonal.
    """
    area = (n + 1) * (n + 1)
    gradient = work[:area].reshape(n + 1, n + 1)
    weighted = work[area : 2 * area].reshape(n + 1, n + 1)
    product = work[2 * area : 3 * area].reshape(n + 1, n + 1)
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
    out[:] = 0.0
    for i in range(n + 1):
        if i > 0 or not single:
            for j in range(n + 1):
                out[i, j] = w[i, j] * diagonal[j]
        for j in range(n + 1):
            out[i, j] += mu[i, j] * v[i, j] - w[i, j] * weighted[i, j]


@kernel
def hessian_batch(
    tables: FloatArray,
    marginals: FloatArray,
    v: FloatArray,
    lengths: IntArray,
    single: bool,
    out: FloatArray,
) -> None:
    """Write Cov v for every item."""
    work = np.empty(3 * v.shape[1] * v.shape[1])
    for item in range(len(lengths)):
        hessian_product(
            tables[0, item], tables[1, item], marginals[item], v[item], lengths[item], single, work,
            out[item],
        )  # fmt: skip
