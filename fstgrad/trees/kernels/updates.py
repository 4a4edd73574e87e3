"""The probabilities of heads from an inverse Laplacian that is updated as heads are chosen.

B is the inverse of the Laplacian of the remaining dependents 1 .. j+1, with rows and columns as in
`matrix_tree`: the probability of head h for dependent d is w_hd (B_dd - B_dh), or w_0d B_dd for the
root.  If d is merged into the node a that holds its head, B loses a row and a column,

    B'_ki = B_ki - (B_kd - B_ka) B_di / (B_dd - B_da),

by Sherman and Morrison's formula (Stanojevic, EMNLP 2022), in O(n^2) instead of the O(n^3) of an
elimination.  The differences lose digits for improbable heads; `heads_of` and `contract` report it.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel
from fstgrad.core.uninitialized import empty
from fstgrad.trees.kernels.matrix_tree import invert_laplacian

# A difference above this fraction of the diagonal entry is trusted: it keeps half of its digits.
LEAST_SLOPE = 1e-8
# The largest difference of the probabilities of all heads from a sum of 1.
TOLERANCE = 1e-9


@kernel
def invert_weights(w: FloatArray, b: FloatArray) -> bool:
    """Write B (n, n) of weights (n+1, n+1); return whether it can be trusted."""
    n = len(b)
    g, mu = empty((n + 1, n + 1)), empty((n + 1, n + 1))
    if np.isnan(invert_laplacian(w, n, False, empty((n + 4) * (n + 8)), g, mu)):
        return False
    for d in range(n):
        for h in range(n):
            b[d, h] = g[0, d + 1] - g[h + 1, d + 1]
        b[d, d] = g[0, d + 1]
    return True


@kernel
def heads_of(
    b: FloatArray, w: FloatArray, holder: IntArray, j: int, out: FloatArray
) -> tuple[bool, bool]:
    """Write the probabilities (n+1,) of the heads of dependent j + 1, as `sampling.last_column`.

    Return whether all of them keep their digits, and whether B does: they then sum to one.
    """
    total = 0.0
    good = True
    for h in range(len(w)):
        at = holder[h]
        if at == j + 1 or w[h, j + 1] == 0.0:
            out[h] = 0.0
            continue
        slope = b[j, j] - b[j, at - 1] if at > 0 else b[j, j]
        good = good and slope > LEAST_SLOPE * b[j, j]
        out[h] = w[h, j + 1] * slope
        total += out[h]
    return good, abs(total - 1.0) < TOLERANCE


@kernel
def contract(b: FloatArray, j: int, above: int) -> bool:
    """Merge dependent j + 1 into `above` (0 is the root); return whether B keeps its digits."""
    pivot = b[j, j] if above == 0 else b[j, j] - b[j, above - 1]
    if not pivot > LEAST_SLOPE * b[j, j]:
        return False
    last = b[j]
    for k in range(j):
        row = b[k]
        factor = (row[j] if above == 0 else row[j] - row[above - 1]) / pivot
        for i in range(j):
            row[i] -= factor * last[i]
    return True
