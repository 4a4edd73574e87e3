"""Spanning trees by enumeration, and in exact and long arithmetic, without using fstgrad."""

import itertools
from fractions import Fraction

import mpmath
import numpy as np


def trees(n, *, single_root):
    """Yield all tuples of heads of n dependents that lead every node to the root, 0."""
    for heads in itertools.product(range(n + 1), repeat=n):
        if any(head == d for d, head in enumerate(heads, start=1)):
            continue
        if single_root and heads.count(0) != 1:
            continue
        if all(leads_to_root(heads, d) for d in range(1, n + 1)):
            yield heads


def leads_to_root(heads, node):
    for _ in range(len(heads)):
        if node == 0:
            return True
        node = heads[node - 1]
    return node == 0


def is_projective(heads):
    """Return whether no two arcs cross if drawn above the words, with the root leftmost."""
    arcs = [(min(h, d), max(h, d)) for d, h in enumerate(heads, start=1)]
    return not any(a < c < b < d for a, b in arcs for c, d in arcs)


def table(heads, shape, labels=None):
    """Return the 0/1 table of a tree."""
    parts = np.zeros(shape)
    for i, head in enumerate(heads):
        parts[(head, i + 1) if labels is None else (head, i + 1, labels[i])] = 1
    return parts


def tables(shape, *, single_root, projective=False):
    """Return the lists of all trees and of their tables; shape (n+1, n+1) or (n+1, n+1, labels)."""
    n = shape[0] - 1
    structures, parts = [], []
    for heads in trees(n, single_root=single_root):
        if projective and not is_projective(heads):
            continue
        if len(shape) == 2:
            structures.append(np.array(heads))
            parts.append(table(heads, shape))
            continue
        for labels in itertools.product(range(shape[2]), repeat=n):
            structures.append(np.stack([heads, labels], axis=-1))
            parts.append(table(heads, shape, labels))
    return structures, parts


def moments(scores, *, single_root, projective=False):
    """Return log Z, means (…) and covariances (…, …) of the parts, by summing over all trees."""
    _, parts = tables(scores.shape, single_root=single_root, projective=projective)
    flat = np.array([part.ravel() for part in parts])
    totals = np.array([scores.ravel()[part > 0].sum() for part in flat])
    log_z = np.logaddexp.reduce(totals)
    probs = np.exp(totals - log_z)
    mean = probs @ flat
    centered = flat - mean
    covariance = (centered * probs[:, None]).T @ centered
    return log_z, mean.reshape(scores.shape), covariance.reshape(scores.shape * 2)


def exact_count(allowed, *, single_root):
    """Return the number of trees of a 0/1 table: the determinant of the Laplacian in fractions."""
    n = len(allowed) - 1
    first = 1 if single_root else 0
    matrix = [[Fraction(0)] * n for _ in range(n)]
    for j in range(1, n + 1):
        for i in range(first, n + 1):
            if i != j and allowed[i][j]:
                matrix[j - 1][j - 1] += 1
                if i > 0:
                    matrix[i - 1][j - 1] -= 1
    if single_root:
        matrix[0] = [Fraction(int(allowed[0][j])) for j in range(1, n + 1)]
    determinant = Fraction(1)
    for k in range(n):
        pivot = next((i for i in range(k, n) if matrix[i][k] != 0), None)
        if pivot is None:
            return 0
        if pivot != k:
            matrix[k], matrix[pivot] = matrix[pivot], matrix[k]
            determinant = -determinant
        determinant *= matrix[k][k]
        for i in range(k + 1, n):
            factor = matrix[i][k] / matrix[k][k]
            for j in range(k, n):
                matrix[i][j] -= factor * matrix[k][j]
    return int(determinant)


def long_solution(scores, *, single_root, digits):
    """Return log Z and marginals by the matrix-tree theorem, with `digits` decimal digits."""
    with mpmath.workdps(digits):
        theta = [
            [mpmath.mpf(float(s)) if np.isfinite(s) else -mpmath.inf for s in row] for row in scores
        ]
        log_z, marginals = _long(theta, single_root)
        return float(log_z), np.array(marginals.tolist(), dtype=float)


def long_third(scores, v, u, *, single_root):
    """Return the derivative of Cov v along u, by central differences with 160 or 900 digits."""
    with mpmath.workdps(900 if np.ptp(scores) > 500 else 160):
        h = mpmath.mpf(10) ** -25
        total = 0
        for a in (1, -1):
            for b in (1, -1):
                theta = [
                    [
                        mpmath.mpf(float(x)) + h * (a * float(y) + b * float(z))
                        for x, y, z in zip(*rows, strict=True)
                    ]
                    for rows in zip(scores, v, u, strict=True)
                ]
                total = total + a * b * _long(theta, single_root)[1]
        total /= 4 * h * h
        return np.array(total.tolist(), dtype=float)


def _long(theta, single_root):
    """Return log Z and marginals of a table of mpmath scores.

    The Laplacian consists of mpmath numbers; for a single root, its first row is replaced by the
    weights of the root (Koo et al. 2007).
    """
    n = len(theta) - 1
    w = [[mpmath.exp(s) for s in row] for row in theta]
    matrix = mpmath.zeros(n, n)
    first = 1 if single_root else 0
    for j in range(1, n + 1):
        for i in range(first, n + 1):
            if i != j:
                matrix[j - 1, j - 1] += w[i][j]
                if i > 0:
                    matrix[i - 1, j - 1] -= w[i][j]
    if single_root:
        for j in range(n):
            matrix[0, j] = w[0][j + 1]
    inverse = matrix**-1
    marginals = mpmath.zeros(n + 1, n + 1)
    for j in range(1, n + 1):
        for i in range(n + 1):
            if i == j:
                continue
            own = inverse[j - 1, j - 1] if j > first else 0
            other = inverse[j - 1, i - 1] if i > first else 0
            gradient = inverse[j - 1, 0] if i == 0 and single_root else own - other
            marginals[i, j] = w[i][j] * gradient
    return mpmath.log(abs(mpmath.det(matrix))), marginals


def smith_eisner_entropy(scores):
    """Return the entropy with a single root by Smith and Eisner (2007), in O(n^4).

    There is one determinant per dependent j: E[score] = sum_j Z_j / Z, where the weights in Z_j of
    arcs into j are multiplied by their scores.
    """
    centered = scores - scores[:, 1:].max()
    weights = np.where(_arcs(scores), np.exp(centered), 0.0)
    _, log_z = np.linalg.slogdet(_laplacian(weights))
    value = log_z
    for j in range(1, len(scores)):
        changed = weights.copy()
        changed[:, j] *= np.where(weights[:, j] > 0, centered[:, j], 0.0)
        sign, log_part = np.linalg.slogdet(_laplacian(changed))
        value -= sign * np.exp(log_part - log_z)
    return value


def druck_smith_gradient(scores, features, target):
    """Return the generalized-expectation gradient with a single root by all covariances, O(n^4).

    Druck and Smith (2009) compute the covariances of all pairs of arcs; this function uses their
    closed form and whole arrays, one dependent at a time.
    """
    weights = np.where(_arcs(scores), np.exp(scores - scores[:, 1:].max()), 0.0)
    inverse = np.linalg.inv(_laplacian(weights))
    n = len(inverse)
    gradient = np.zeros_like(weights)
    own = np.append(0.0, np.diagonal(inverse)[1:])
    gradient[0, 1:] = inverse[:, 0]
    gradient[1:, 1:] = own - np.column_stack([np.zeros(n), inverse[:, 1:]]).T
    np.fill_diagonal(gradient, 0.0)
    marginals = weights * gradient
    weighted = features @ (np.tensordot(marginals, features, axes=2) - target)
    result = np.empty_like(weights)
    below = np.ones(n + 1)
    below[0] = 0.0
    for j in range(n + 1):
        # covariance[h, k, l] of the arcs (h, j) and (k, l)
        left = gradient[:, j, None] - below[:, None] * gradient[:, j]
        right = gradient - below[:, None] * gradient[j]
        covariance = -weights[:, j, None, None] * weights * left * right[:, None, :]
        covariance[np.arange(n + 1), np.arange(n + 1), j] += marginals[:, j]
        result[:, j] = np.tensordot(covariance, weighted, axes=2)
    return result


def _arcs(scores):
    """Return which cells are arcs: all but the diagonal and those into the root."""
    arcs = ~np.eye(len(scores), dtype=bool)
    arcs[:, 0] = False
    return arcs


def _laplacian(weights):
    """Return the Laplacian of Koo et al. (2007): its first row has the weights of the root."""
    inner = weights[1:, 1:]
    matrix = np.diag(inner.sum(axis=0)) - inner
    matrix[0] = weights[0, 1:]
    return matrix
