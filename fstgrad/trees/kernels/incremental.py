"""The change of the gradient if the weights into one dependent change: a table of rank one.

Z is linear in the weights into a dependent d.  Let D_k be the change of w_kd, R the ratio
Z' / Z = sum_k w'_kd g_kd, and b as in `trees.quadratic`.  Then

    g'_hj = g_hj - (sum_k D_k (g_kj - b_k g_dj)) (g_hd - b_h g_jd) / R.
"""

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.compiler import kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import exponentiate
from fstgrad.trees.kernels.matrix_tree import CONDITION_LIMIT, center

# If Z' / Z is below LEAST_RATIO, or a column of marginals does not sum to 1 within TOLERANCE, the
# result has lost digits.
LEAST_RATIO, TOLERANCE = 1e-3, 1e-11


@kernel
def constant_of(scores: FloatArray, j: int, single: bool) -> float:
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
    before = constant_of(old, d, single)
    was = centered[:, d].copy()
    _, new_root, _ = center(new, size - 1, single, w)
    after = constant_of(new, d, single)
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
        own = 0.0 if single and h == 0 else 1.0
        gain = first if h == 0 else 1.0
        slopes, marginals, source, weights = tables[0, h], tables[1, h], g[h], w[h]
        for j in range(size):
            slope = (source[j] - left[j] * (row[h] - own * row[j])) * gain
            slope *= scale if j == d else 1.0
            slopes[j] = slope
            sums[j] += weights[j] * slope
            marginals[j] = min(max(weights[j] * slope, 0.0), 1.0)
        slopes[h] = 0.0
        slopes[0] = 0.0
    for j in range(1, size):
        if not abs(sums[j] - 1.0) < TOLERANCE:
            return np.nan
    for x in tables[0].reshape(-1):
        if not abs(x) < CONDITION_LIMIT:
            return np.nan
    return ratio
