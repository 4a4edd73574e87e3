"""E[product of signs over the arcs of a tree], as a determinant whose digits are checked.

A sum over trees of both signs is the determinant of a Laplacian with negative weights.  In float64
its error may exceed the sum of the absolute values, because the diagonal of a Laplacian hides the
weight of the arcs into a cycle.  If an estimate of the error is too large, the determinant is
computed on integers, without rounding (Bareiss 1968).
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray

NEGLIGIBLE = 1e-18  # arcs whose probabilities add up to this are left out
GOAL = 1e-13  # the largest estimated error of a determinant in float64
_BITS = 53  # of a mantissa
_FIRST_ORDER = 1e-3  # below this, terms of second order do not matter


def expected_sign(
    log_w: FloatArray, log_z: float, marginals: FloatArray, signs: FloatArray, single_root: bool
) -> float:
    """Return E[product of the signs of the arcs], with an error of about 1e-13.

    Parameters
    ----------
    log_w : (n+1, n+1), log-weights of arcs in nats; the largest of each column is about 0.
    log_z : log of the sum over trees of their weights.
    marginals : (n+1, n+1), probabilities of the arcs.
    signs : (n+1, n+1), -1 or 1, where the marginals are above 0.
    """
    used = marginals > NEGLIGIBLE / marginals.size
    w = np.where(used, signs, 0.0) * np.exp(np.where(used, log_w, 0.0))
    if (w >= 0).all():
        return 1.0
    matrix = _laplacian(w, single_root)
    sign, log_size = np.linalg.slogdet(matrix)
    value = float(sign * np.exp(log_size - log_z)) if np.isfinite(log_size) else 0.0
    if value != 0 and abs(value) * _error(matrix, _laplacian(abs(w), single_root, 1)) <= GOAL:
        return value
    mantissas, exponents = np.frexp(w)
    least = np.where(w == 0, 0, exponents).min(axis=0)
    whole = np.ldexp(mantissas, _BITS).astype(np.int64).astype(object)
    shifts = np.where(w == 0, 0, exponents - least)
    integer = determinant(_laplacian(whole * 2 ** shifts.astype(object), single_root))
    scale = int(least[1:].sum()) - _BITS * (len(w) - 1)
    excess = max(0, integer.bit_length() - 64)
    return float(integer >> excess) * math.exp((excess + scale) * math.log(2) - log_z)


def _laplacian(w: npt.NDArray[Any], single_root: bool, side: int = -1) -> npt.NDArray[Any]:
    """Return the Laplacian of weights (n+1, n+1); with side=1, the sizes of its terms."""
    inner = w[1:, 1:] * (1 - np.eye(len(w) - 1, dtype=np.int64))
    matrix = np.diag((inner if single_root else w[:, 1:]).sum(axis=0)) + side * inner
    if single_root:
        matrix[0] = w[0, 1:]
    return matrix


def _error(matrix: FloatArray, terms: FloatArray) -> float:
    """Return an estimate of the relative error of a determinant by elimination; may be inf.

    For a rounded matrix A + E it is tr(|A^-1| |E|), if this holds to first order: if |A^-1| |E| is
    small.
    """
    from scipy.linalg import lu

    order, lower, upper = lu(matrix)
    try:
        inverse = np.abs(np.linalg.inv(matrix))
    except np.linalg.LinAlgError:
        return np.inf
    rounded = np.finfo(np.float64).eps * (order @ (np.abs(lower) @ np.abs(upper)) + terms)
    product = inverse @ rounded
    return float(np.trace(product)) if product.sum(axis=1).max() < _FIRST_ORDER else np.inf


def determinant(matrix: npt.NDArray[Any]) -> int:
    """Return the determinant of a square matrix of Python integers, exactly."""
    m, sign, before = matrix.copy(), 1, 1
    for k in range(len(m) - 1):
        rows = np.flatnonzero(m[k:, k])
        if len(rows) == 0:
            return 0
        if (row := k + int(rows[0])) > k:
            m[[k, row]], sign = m[[row, k]], -sign
        rest = m[k + 1 :, k + 1 :] * m[k, k] - np.outer(m[k + 1 :, k], m[k, k + 1 :])
        m[k + 1 :, k + 1 :], before = rest // before, m[k, k]
    return int(sign * m[-1, -1])
