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

Where the largest Q is 0, up to rounding, lower powers and other directions decide: exp(Q) has a
finite integral for Q = -x_2 - x_3 - 5 (x_1 x_2)^(1/2) - 5 (x_1 x_3)^(1/2), which is 0 along x_1,
and none for Q = -(x_1^(1/2) - x_2^(1/2))^2.  Such models are left undecided.

If no direction with Q > 0 is found, small models are decided by Bernstein coefficients.  With T_s
= u_s^m, m the least common multiple of the sizes, Q is a homogeneous polynomial of degree m in u.
On a simplex it is an average of its coefficients there, so it is negative if they are.  Otherwise,
the simplex is halved; the coefficients approach the values of Q (Bundfuss and Duer, Linear Algebra
and its Applications 2009, for m = 2: strict copositivity).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InfeasibleError
from fstgrad.core.short_repr import short_repr
from fstgrad.grm.parameters import Parameters

if TYPE_CHECKING:
    from scipy import sparse

STARTS = 20  # of the search for a counterexample
MOST_COEFFICIENTS = 2000  # of a simplex: p = 62 with pairs, 8 with pairs and triples, 5 with k = 4
MOST_WORK = 50_000_000  # coefficients computed for one model, in up to 15 s
OVERHEAD = 5000  # coefficients that could be computed in the time that one call takes in addition
AT_ONCE = 1_000_000  # coefficients of one part
MARGIN = 1e-12  # of the largest coefficient, against rounding
CLOSE = 1e-6  # of the largest coefficient: a maximum of Q as close to 0 is not decided


@dataclass(frozen=True, eq=False)
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
    """Return whether exp(potential) has a finite sum or integral, as far as it can be decided.

    Up to about 15 s for a model close to the boundary, whose Bernstein coefficients decide late.
    """
    family = parameters.family
    if family.always_normalizable:
        return Normalizability(True, f"the {family.name} base outgrows every interaction")
    bounds = _arithmetic_geometric_bounds(parameters)
    if (bounds < 0).all():
        return Normalizability(
            True, f"arithmetic-geometric means: Q(T) <= {bounds.max():.6g} sum(T)"
        )
    first, lower = parameters.intercepts[:, 0], parameters.intercepts[:, 1:]
    sizes = (np.abs(values).max(initial=0.0) for _, values, _ in _leading(parameters))
    scale = max(np.abs(first).max(), *sizes, 0.0)
    is_flat = (lower >= 0).all(axis=1) | family.allows_negative  # where theta is 0
    grows = (first > 0) | ((first == 0) & is_flat & (not parameters.interactions))
    if not _leading(parameters) and grows.any():
        node = int(np.where(grows, first, -np.inf).argmax())
        return Normalizability(
            False,
            f"theta = {parameters.intercepts[node, 0]:.6g} >= 0 of a variable without interactions",
            np.eye(parameters.features)[node],
        )
    pairwise = all(term.term.size == 2 for term in parameters.interactions)
    if pairwise:
        matrix = pair_matrix(parameters)
        values, vectors = np.linalg.eigh(matrix)
        if values[-1] < -MARGIN * scale:
            return Normalizability(True, f"negative definite, largest eigenvalue {values[-1]:.6g}")
        if family.allows_negative and values[-1] > MARGIN * scale:
            return Normalizability(
                False, f"largest eigenvalue {values[-1]:.6g} > 0", vectors[:, -1].copy()
            )
    direction, worst = _search(parameters)
    if worst > MARGIN * scale:
        return Normalizability(False, f"eta_1(v) = {worst:.6g} > 0 in this direction", direction)
    if worst < -CLOSE * scale and (simplices := _negative_on_simplices(parameters)):
        return Normalizability(
            True, f"negative Bernstein coefficients on {simplices} simplices of directions"
        )
    return Normalizability(
        None, f"no certificate; the largest eta_1(v) that a search found is {worst:.6g}"
    )


def _negative_on_simplices(parameters: Parameters) -> int | None:
    """Return the number of simplices on which Q is proven negative; None if undecided.

    Together they cover all directions of T, with every pattern of signs of x.
    """
    terms = _leading(parameters)
    p, m = parameters.features, math.lcm(*(size for _, _, size in terms))
    if math.comb(p + m - 1, m) > MOST_COEFFICIENTS:
        return None
    powers = np.array(
        [np.bincount(c, minlength=p) for c in combinations_with_replacement(range(p), m)]
    )
    halving = cache(partial(_halving, powers))
    proven, work = 0, 0
    for sign in _sign_patterns(parameters):
        coefs = _bernstein_coefficients(parameters, sign, powers)
        margin = MARGIN * np.abs(coefs).max()
        waiting = [(coefs[None], np.eye(p)[None])]
        while waiting:
            pieces, corners = waiting.pop()
            rest = pieces.max(axis=1) >= -margin
            proven, work = proven + int((~rest).sum()), work + pieces.size + OVERHEAD
            if work > MOST_WORK:
                return None
            if rest.any():
                waiting += _halved(pieces[rest], corners[rest], powers, halving)
    return proven


def _sign_patterns(parameters: Parameters) -> Iterator[FloatArray]:
    """Yield the signs of x, (p,), that differ in a product; that of x_0 can be positive."""
    p = parameters.features
    even = any(size % 2 == 0 for _, _, size in _leading(parameters))
    if not (parameters.family.allows_negative and even):
        yield np.ones(p)
        return
    for signs in product((1.0, -1.0), repeat=p - 1):
        yield np.array([1.0, *signs])


def _bernstein_coefficients(
    parameters: Parameters, sign: FloatArray, powers: IntArray
) -> FloatArray:
    """Return the coefficients (c,) of u^powers in Q(u^m), over their multinomial coefficients.

    sign : (p,), of x.  powers : (c, p), all exponents with sum m.
    """
    p, m = powers.shape[1], int(powers[0].sum())
    singles = np.arange(p)[:, None], parameters.intercepts[:, 0], 1
    monomials = {
        tuple(m // size * np.bincount(members, minlength=p)): (
            value * (sign[members].prod() if size % 2 == 0 else 1.0)
        )
        for sets, values, size in (singles, *_leading(parameters))
        for members, value in zip(sets, values.tolist(), strict=True)
    }
    return np.array(
        [
            monomials.get(tuple(power), 0.0)
            * math.prod(map(math.factorial, power.tolist()))
            / math.factorial(m)
            for power in powers
        ]
    )


def _halving(powers: IntArray, stays: int, moves: int) -> "sparse.csr_matrix":
    """Return the matrix (c, c) of the coefficients after a corner moved half-way to another."""
    from scipy import sparse

    number = {tuple(power): i for i, power in enumerate(powers.tolist())}
    entries = []
    for target, power in enumerate(powers.tolist()):
        n = power[moves]
        for taken in range(n + 1):
            source = list(power)
            source[moves] -= taken
            source[stays] += taken
            entries.append((number[tuple(source)], target, math.comb(n, taken) / 2**n))
    row, column, value = zip(*entries, strict=True)
    return sparse.csr_matrix((value, (row, column)), shape=(len(powers),) * 2)


def _halved(
    pieces: FloatArray,
    corners: FloatArray,
    powers: IntArray,
    halving: "Callable[[int, int], sparse.csr_matrix]",
) -> list[tuple[FloatArray, FloatArray]]:
    """Return the halves of n simplices in parts: their coefficients (., c) and corners (., p, p).

    The longest edge is cut among those of the corners to which the largest coefficient belongs.
    """
    n, p = corners.shape[:2]
    involved = powers[pieces.argmax(axis=1)] > 0
    lengths = ((corners[:, :, None] - corners[:, None]) ** 2).sum(axis=-1)
    lengths[~(involved[:, :, None] & involved[:, None])] *= 1e-9
    edge = lengths.reshape(n, -1).argmax(axis=1)
    halves = np.concatenate([pieces, pieces])
    moved = np.concatenate([corners, corners])
    for number in np.unique(edge):
        a, b = divmod(int(number), p)
        with_edge = np.flatnonzero(edge == number)
        for stays, moves, rows in ((a, b, with_edge), (b, a, n + with_edge)):
            halves[rows] = halves[rows] @ halving(stays, moves)
            moved[rows, moves] = 0.5 * (moved[rows, a] + moved[rows, b])
    parts = math.ceil(halves.size / AT_ONCE)
    return list(zip(np.array_split(halves, parts), np.array_split(moved, parts), strict=True))


def _leading(parameters: Parameters) -> list[tuple[IntArray, FloatArray, int]]:
    """Return (sets, values, size) of the terms of degree one in T, those with size = root."""
    return [
        (term.sets, term.values, term.term.size)
        for term in parameters.interactions
        if term.term.size == term.term.root
    ]


def _arithmetic_geometric_bounds(parameters: Parameters) -> FloatArray:
    """Return theta_s + sum_{S with s} max(theta_S, 0) / |S|, (p,).

    If the product over S can have either sign, |theta_S| replaces max(theta_S, 0).
    """
    total = parameters.intercepts[:, 0].copy()
    for sets, values, size in _leading(parameters):
        signed = parameters.family.allows_negative and size % 2 == 0
        amount = np.abs(values) if signed else np.maximum(values, 0.0)
        np.add.at(total, sets.ravel(), np.repeat(amount / size, size))
    return total


def pair_matrix(parameters: Parameters) -> FloatArray:
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
