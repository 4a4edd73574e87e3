"""Decides if a model can be normalised: a certificate, or a direction along which it cannot.

Along x = z v the density (the radial conditional of the paper) is exp(eta_1(v) z + lower powers)
times the base.  With bases of counts, every model has a normalizer: the base outgrows every
interaction.  The other bases need eta_1(v) < 0 in every direction v, where eta_1 is the part of
degree one in T,

    Q(T) = sum_s theta_s T_s + sum_S theta_S prod_{t in S} T_t^(1/|S|).

By the inequality of arithmetic and geometric means, Q(T) <= sum_s T_s (theta_s +
sum_{S with s} max(theta_S, 0) / |S|), so a negative bracket for every s is a certificate.  (For the
Gaussian base, |theta_S| replaces the maximum for sets of even size, whose products have a sign.)
For k = 2, a negative definite matrix is also a certificate; for the Gaussian base it is also
necessary.
"""

from dataclasses import dataclass

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InfeasibleError
from fstgrad.core.short_repr import short_repr
from fstgrad.grm.parameters import Parameters

STARTS = 20  # of the search for a counterexample


@dataclass(frozen=True)
class Normalizability:
    """The result of `is_normalizable`.

    value : bool or None
        None if neither a certificate nor a counterexample was found.
    certificate : str
        The reason for the result.
    direction : (p,) float64 or None
        If value is False, a direction x along which the density does not decay.
    """

    value: bool | None
    certificate: str
    direction: FloatArray | None = None

    __repr__ = short_repr

    def __bool__(self) -> bool:
        return self.value is True


def require(parameters: Parameters, purpose: str) -> None:
    """Raise InfeasibleError if the model is known to have no normalizer.

    purpose : the computation that needs one, for the error message.
    """
    answer = is_normalizable(parameters)
    if answer.value is False:
        raise InfeasibleError(
            f"{purpose}: the model has no normalizer ({answer.certificate}); fit with a larger "
            'alpha or with symmetrize="joint" or "min", or use a base of counts; '
            "is_normalizable() gives the direction"
        )


def is_normalizable(parameters: Parameters) -> Normalizability:
    """Return whether exp(potential) has a finite sum or integral, as far as it can be decided."""
    family = parameters.family
    if family.always_normalizable:
        return Normalizability(True, f"the {family.name} base outgrows every interaction")
    brackets = _brackets(parameters)
    if (brackets < 0).all():
        return Normalizability(
            True, f"arithmetic-geometric means: Q(T) <= {brackets.max():.6g} sum(T)"
        )
    pairwise = all(term.term.size == 2 for term in parameters.interactions)
    if pairwise:
        matrix = _matrix(parameters)
        values, vectors = np.linalg.eigh(matrix)
        if values[-1] < 0:
            return Normalizability(True, f"negative definite, largest eigenvalue {values[-1]:.6g}")
        if family.allows_negative:
            return Normalizability(
                False, f"largest eigenvalue {values[-1]:.6g} >= 0", vectors[:, -1].copy()
            )
    direction, worst = _search(parameters)
    if worst >= 0:
        return Normalizability(False, f"eta_1(v) = {worst:.6g} >= 0 in this direction", direction)
    return Normalizability(
        None, f"no certificate; the largest eta_1(v) that a search found is {worst:.6g}"
    )


def _leading(parameters: Parameters) -> list[tuple[IntArray, FloatArray, int]]:
    """Return (sets, values, size) of the terms of degree one in T, those with size = root."""
    return [
        (term.sets, term.values, term.term.size)
        for term in parameters.interactions
        if term.term.size == term.term.root
    ]


def _brackets(parameters: Parameters) -> FloatArray:
    """Return theta_s + sum_{S with s} max(theta_S, 0) / |S|, (p,).

    If the product over S can have either sign, |theta_S| replaces max(theta_S, 0).
    """
    total = parameters.intercepts[:, 0].copy()
    for sets, values, size in _leading(parameters):
        signed = parameters.family.allows_negative and size % 2 == 0
        amount = np.abs(values) if signed else np.maximum(values, 0.0)
        np.add.at(total, sets.ravel(), np.repeat(amount / size, size))
    return total


def _matrix(parameters: Parameters) -> FloatArray:
    """Return the symmetric M (p, p) with Q = t_2' M t_2 of a pairwise model."""
    matrix = np.diag(parameters.intercepts[:, 0])
    for sets, values, _ in _leading(parameters):
        np.add.at(matrix, (sets[:, 0], sets[:, 1]), values / 2)
        np.add.at(matrix, (sets[:, 1], sets[:, 0]), values / 2)
    return matrix


def _search(parameters: Parameters) -> tuple[FloatArray, float]:
    """Return the direction x (p,) with the largest Q(T) / sum(T) found, and this value."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    p = parameters.features
    best, best_x = -np.inf, np.zeros(p)
    for start in range(STARTS):
        sign = (
            np.where(rng.random(p) < 0.5, -1.0, 1.0)
            if parameters.family.allows_negative and start
            else np.ones(p)
        )
        done = minimize(
            _negative_quotient, rng.normal(size=p) * (start > 0), args=(parameters, sign),
            jac=True, method="L-BFGS-B",
        )  # fmt: skip
        if -done.fun > best:
            share = np.exp(done.x - done.x.max())
            share /= share.sum()
            best, best_x = -float(done.fun), sign * share ** (1 / parameters.family.power)
    return best_x, best


def _negative_quotient(
    y: FloatArray, parameters: Parameters, sign: FloatArray
) -> tuple[float, FloatArray]:
    """Return -Q(T) / sum(T) and its gradient by y = log T, both (p,).

    sign : (p,), the signs of x.
    """
    t = np.exp(y - y.max())
    total = t.sum()
    slope = parameters.intercepts[:, 0] * t
    value = slope.sum()
    for sets, values, size in _leading(parameters):
        products = values * t[sets].prod(axis=1) ** (1 / size)
        if size % 2 == 0:
            products = products * sign[sets].prod(axis=1)
        value += products.sum()
        np.add.at(slope, sets.ravel(), np.repeat(products / size, size))
    quotient = value / total
    return -quotient, -(slope - quotient * t) / total
