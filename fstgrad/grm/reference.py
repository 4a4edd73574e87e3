"""The node regression of Inouye, Ravikumar and Dhillon (2016) in a few lines of NumPy.

    p(x_s | x_-s) = exp( sum_j eta_j t_j(x_s) + B(x_s) - A(eta) ),        t_j(x) = T(x)^(1/j),
    eta_j = sum over the sets S with s, |S| <= j, of  theta_jS prod_{r in S, r != s} t_j(x_r),
    minimise over theta:  mean_i ( A(eta_i) - <eta_i, t(x_is)> ) + lambda sum_jS |theta_jS|.

theta_j{s} is the intercept of coordinate j, whose product is empty; the intercept of T and those of
the additional statistics of a family are not penalised.  In the super-symmetric tensors of the
paper, theta_jS = l! Psi_S with l = |S|.

This module is the definition.  A fit runs `fstgrad.grm.regression`, which works on sparse columns,
a working set and Newton steps, and also has weights, offsets, covariates and a ridge;
`tests/grm/test_reference.py` compares the two.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.grm.base import Base
from fstgrad.grm.blocks import Term

Set = tuple[int, tuple[int, ...]]  # (j, S)


def sets_of_node(s: int, p: int, terms: Sequence[Term], family: Base, k: int) -> list[Set]:
    """Return the (j, S) of node s of p nodes: its intercepts, and the sets of terms with s."""
    others = [r for r in range(p) if r != s]
    free = {(j + 1, (s,)) for j in family.free_coordinates(k)}
    return sorted(
        free
        | {
            (term.root, tuple(sorted((s, *rest))))
            for term in terms
            for rest in combinations(others, term.size - 1)
        }
    )


def columns(x: FloatArray, s: int, sets: Sequence[Set], family: Base, k: int) -> FloatArray:
    """Return prod_{r in S, r != s} t_j(x_r) for each (j, S), (n, m); x is (n, p)."""
    t = family.statistics(x, k)
    return np.stack(
        [t[:, [r for r in S if r != s], j - 1].prod(axis=1) for j, S in sets],
        axis=1,
    )


def loss(
    theta: FloatArray, z: FloatArray, sets: Sequence[Set], t: FloatArray, family: Base
) -> tuple[float, FloatArray]:
    """Return mean_i (A(eta_i) - <eta_i, t_i>) in nats, and its gradient by theta (m,).

    z : (n, m), the columns.  t : (n, k + e), the statistics of the node.
    """
    eta = np.zeros(t.shape)
    for value, column, (j, _) in zip(theta, z.T, sets, strict=True):
        eta[:, j - 1] += value * column
    value, mean, _ = family.derivatives(eta)  # A and E[t]; A is infinite where none exists
    residual = mean - t
    slopes = [
        (column * residual[:, j - 1]).mean() for column, (j, _) in zip(z.T, sets, strict=True)
    ]
    return float((value - (eta * t).sum(axis=1)).mean()), np.array(slopes)


def penalties(s: int, sets: Sequence[Set], family: Base, k: int, lambda_: float) -> FloatArray:
    """Return the weight (m,) of each |theta_jS|: 0 for free intercepts, lambda for the others."""
    free = [(j + 1, (s,)) for j in family.free_coordinates(k)]
    return np.array([0.0 if each in free else lambda_ for each in sets])


def violation(theta: FloatArray, slopes: FloatArray, weights: FloatArray) -> float:
    """Return the largest violation of the optimality (Karush-Kuhn-Tucker) conditions.

    slope = -weight sign(theta) where theta != 0, and |slope| <= weight where theta = 0.
    """
    nonzero = np.abs(slopes + weights * np.sign(theta))
    zero = np.maximum(np.abs(slopes) - weights, 0.0)
    return float(np.where(theta != 0, nonzero, zero).max())


def node_regression(
    x: FloatArray,
    s: int,
    terms: Sequence[Term],
    family: Base,
    k: int,
    lambda_: float,
    *,
    tol: float = 1e-6,
    steps: int = 100_000,
) -> tuple[dict[Set, float], float]:
    """Return {(j, S): theta_jS}, and the minimum in nats, by proximal gradient steps.

    A step moves theta against the gradient and applies the soft threshold; it is halved until the
    quadratic upper bound holds.  It starts at independent variables.  O(n m) per step.
    """
    sets = sets_of_node(s, x.shape[1], terms, family, k)
    z, t = columns(x, s, sets, family, k), family.statistics(x[:, s], k)
    weights = penalties(s, sets, family, k, lambda_)
    start = family.starting_eta(t.mean(axis=0))
    theta = np.array([start[j - 1] if len(S) == 1 else 0.0 for j, S in sets])
    value, slopes = loss(theta, z, sets, t, family)
    step = 1.0
    for _ in range(steps):
        if violation(theta, slopes, weights) <= tol:
            break
        while True:
            target = theta - step * slopes
            moved = np.sign(target) * np.maximum(np.abs(target) - step * weights, 0.0)
            after, slopes_after = loss(moved, z, sets, t, family)
            change = moved - theta
            if after <= value + slopes @ change + change @ change / (2 * step) + 1e-14:
                break
            step /= 2
        theta, value, slopes, step = moved, after, slopes_after, 1.2 * step
    return dict(zip(sets, theta.tolist(), strict=True)), value + float(weights @ np.abs(theta))
