"""The formulas of Zmigrod, Vieira and Cotterell (2021) as they stand in the paper, in NumPy.

These functions define what the other modules compute; tests compare both.  What runs is faster and
keeps its digits for any scores: `solution` (log Z and marginals), `covariance_product` and
`arc_covariances` (T2).

Letters: w (n+1, n+1) are the weights, w[i, j] of the arc from head i to dependent j, and node 0 is
the root rho; the diagonal and column 0 are ignored.  L is the Laplacian over the dependents and B
its inverse.  d runs over the trees, with w(d) the product of the weights of its arcs.
"""

import numpy as np

from fstgrad.core.checks import FloatArray


def laplacian(w: FloatArray, *, single_root: bool) -> FloatArray:
    """Return L (n, n): L_jj = sum_i w_ij and L_ij = -w_ij (Tutte 1984).

    Single root: the root's weights are left out of the diagonal and replace the first row (Koo et
    al. 2007).
    """
    arcs = np.where(np.eye(len(w), dtype=bool), 0.0, w)
    inner = arcs[1:, 1:]
    table = np.diag(inner.sum(axis=0) if single_root else arcs[:, 1:].sum(axis=0)) - inner
    if single_root:
        table[0] = arcs[0, 1:]
    return table


def laplacian_derivatives(n: int, *, single_root: bool) -> FloatArray:
    """Return L' (n+1, n+1, n, n): L'[i, j] is the derivative of L in w_ij; L is linear in w."""
    derivatives = np.zeros((n + 1, n + 1, n, n))
    for i, j in np.ndindex(n + 1, n + 1):
        unit = np.zeros((n + 1, n + 1))
        unit[i, j] = 1.0
        derivatives[i, j] = laplacian(unit, single_root=single_root)
    return derivatives


def partition(w: FloatArray, *, single_root: bool) -> float:
    """Return Z = sum_d w(d) = |L|, the matrix-tree theorem: O(n^3)."""
    return float(np.linalg.det(laplacian(w, single_root=single_root)))


def gradient(w: FloatArray, *, single_root: bool) -> FloatArray:
    """Return dZ / dw_ij = Z tr(B L'_ij), (n+1, n+1)."""
    inverse = np.linalg.inv(laplacian(w, single_root=single_root))
    derivatives = laplacian_derivatives(len(w) - 1, single_root=single_root)
    z = partition(w, single_root=single_root)
    table: FloatArray = z * np.einsum("ba,ijab->ij", inverse, derivatives)
    return table


def hessian(w: FloatArray, *, single_root: bool) -> FloatArray:
    """Return d^2 Z / dw_ij dw_kl, (n+1, n+1, n+1, n+1).

    It is Z (tr(B L'_ij) tr(B L'_kl) - tr(B L'_ij B L'_kl)).
    """
    inverse = np.linalg.inv(laplacian(w, single_root=single_root))
    derivatives = laplacian_derivatives(len(w) - 1, single_root=single_root)
    z = partition(w, single_root=single_root)
    products = np.einsum("ca,ijab->ijcb", inverse, derivatives)  # B L'_ij
    traces = np.einsum("ijaa->ij", products)
    pairs = np.einsum("ijab,klba->ijkl", products, products)
    table: FloatArray = z * (np.multiply.outer(traces, traces) - pairs)
    return table


def marginals(w: FloatArray, *, single_root: bool) -> FloatArray:
    """Return p((i -> j) in d) = w_ij / Z dZ / dw_ij, (n+1, n+1)."""
    z = partition(w, single_root=single_root)
    table: FloatArray = w * gradient(w, single_root=single_root) / z
    return table


def first_order(w: FloatArray, r: FloatArray, *, single_root: bool) -> FloatArray:
    """Return E_d[r(d)] (R,) of r(d) = sum of r_ij over the arcs of d: T1 (Figure 2).

    r : (n+1, n+1, R).
    """
    table: FloatArray = np.einsum("ij,ijr->r", marginals(w, single_root=single_root), r)
    return table


def second_order(w: FloatArray, r: FloatArray, s: FloatArray, *, single_root: bool) -> FloatArray:
    """Return E_d[r(d) s(d)'] (R, S) of two such functions: T2 (Figure 3).

    Two different arcs contribute w_ij w_kl / Z d^2 Z / dw_ij dw_kl r_ij s_kl', which is 0 for two
    arcs into one dependent; an arc with itself contributes its marginal times r_ij s_ij'.

    r, s : (n+1, n+1, R) and (n+1, n+1, S).
    """
    z = partition(w, single_root=single_root)
    pairs = np.multiply.outer(w, w) * hessian(w, single_root=single_root) / z
    arcs = marginals(w, single_root=single_root)
    table: FloatArray = np.einsum("ijkl,ijr,kls->rs", pairs, r, s, optimize=True)
    table += np.einsum("ij,ijr,ijs->rs", arcs, r, s)
    return table


def zeroth_order(w: FloatArray, q: FloatArray, *, single_root: bool) -> float:
    """Return E_d[product of q_ij over the arcs of d] = Z(w q) / Z(w), q (n+1, n+1)."""
    return partition(w * q, single_root=single_root) / partition(w, single_root=single_root)
