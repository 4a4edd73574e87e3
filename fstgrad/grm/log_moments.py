"""Piecewise-linear bounds of M(a) = log of the integral of T^a exp(<eta, t>) over the base measure.

Section 4.2, appendices C and D of Inouye, Ravikumar and Dhillon (2016).  Write the integrand as e^g
times a base that is exponential-linear (Poisson, exponential) or Gaussian,

    g(x) = sum_j c_j x^(e_j) + q log x        with powers 0 < e_j < 1.

The domain is divided at the zeros of g'' (the real roots of a polynomial in x^(1/lcm)), so that g
is convex or concave on each piece.  On a piece, the chord lies on one side of g and a tangent on
the other, and the mass of e^(line) times the base has a closed form.  On the last, unbounded piece
the chord is flat, because g' tends to 0.  Then the piece with the widest gap between its two masses
is split repeatedly.

A family provides a function from a to its integrands: [x > 0] or, over the whole line, [x > 0,
x < 0].  The paper prints E[T^a] = exp(M(a) - M(0)) as exp(M(a)) - M(0), which is a misprint.

A Pair is (lower, upper) bounds, arrays of one shape; logs are in nats.
"""

from collections.abc import Callable, Sequence

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.uninitialized import empty
from fstgrad.grm.measures import Integrand, Pair

MOST_DOMAINS = 4096  # no more splits from this number of pieces on
Sides = Callable[[float], Sequence[Integrand]]


def log_moment(
    sides: Sequence[Integrand], *, domains: int = 10, tolerance: float | None = None
) -> Pair:
    """Return bounds (m,) on the log of the integral of T^a exp(<eta, t> + B), for m rows of eta."""
    pieces = [_bound(side, domains, tolerance) for side in sides]
    lower = np.logaddexp.reduce([low for low, _ in pieces])
    upper = np.logaddexp.reduce([high for _, high in pieces])
    return lower, upper


def moments(sides: Sides, signed: Sequence[bool], *, domains: int, tolerance: float | None) -> Pair:
    """Return bounds (m, k) on E[t_j].

    signed : (k,), whether each t_j has the sign of x.
    """
    total = log_moment(sides(0.0), domains=domains, tolerance=tolerance)
    pairs = [
        _mean(sides(1.0 / j), total, sign, domains, tolerance)
        for j, sign in enumerate(signed, start=1)
    ]
    return np.stack([low for low, _ in pairs], axis=1), np.stack(
        [high for _, high in pairs], axis=1
    )


def covariances(
    sides: Sides, signed: Sequence[bool], *, domains: int, tolerance: float | None
) -> Pair:
    """Return bounds (m, k, k) on Cov[t_i, t_j] = E[t_i t_j] - E[t_i] E[t_j]."""
    k = len(signed)
    total = log_moment(sides(0.0), domains=domains, tolerance=tolerance)
    mean_low, mean_high = moments(sides, signed, domains=domains, tolerance=tolerance)
    low, high = empty((len(mean_low), k, k)), empty((len(mean_low), k, k))
    for i in range(k):
        for j in range(i + 1):
            power = 1.0 / (i + 1) + 1.0 / (j + 1)
            second = _mean(sides(power), total, signed[i] != signed[j], domains, tolerance)
            corners = [
                p * q
                for p in (mean_low[:, i], mean_high[:, i])
                for q in (mean_low[:, j], mean_high[:, j])
            ]
            low[:, i, j] = low[:, j, i] = second[0] - np.max(corners, axis=0)
            high[:, i, j] = high[:, j, i] = second[1] - np.min(corners, axis=0)
    return low, high


def _mean(
    sides: Sequence[Integrand], total: Pair, signed: bool, domains: int, tolerance: float | None
) -> Pair:
    """Return bounds (m,) on E[T^a], or if `signed` on E[sign(x) T^a].

    total : the bounds on the log of the normalizer, M(0).
    """
    lower, upper = total
    least, most = np.zeros(len(lower)), np.zeros(len(lower))
    for side, integrand in enumerate(sides):
        low, high = _bound(integrand, domains, tolerance)
        if signed and side == 1:
            least, most = least - np.exp(high - lower), most - np.exp(low - upper)
        else:
            least, most = least + np.exp(low - upper), most + np.exp(high - lower)
    return least, most


def _bound(integrand: Integrand, domains: int, tolerance: float | None) -> Pair:
    """Return bounds (m,) on the log mass of an integrand, split into at least `domains` pieces.

    With `tolerance`, pieces are split further until upper - lower <= tolerance.
    """
    left, right = _first_pieces(integrand)
    rows = len(left)
    every = np.arange(rows)[:, None]
    low, high = _pieces(integrand, every, left, right)
    while True:
        lower = np.logaddexp(np.logaddexp.reduce(low, axis=1), integrand.at_zero)
        upper = np.logaddexp(np.logaddexp.reduce(high, axis=1), integrand.at_zero)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            gap = np.where(high > low, high + np.log1p(-np.exp(low - high)), -np.inf)
        pieces = (right >= left).sum(axis=1)
        done = pieces >= domains
        if tolerance is not None:
            done &= upper - lower <= tolerance
        done |= np.isneginf(gap).all(axis=1)  # the bounds of every piece coincide
        if done.all() or left.shape[1] >= MOST_DOMAINS:
            break
        # beyond `domains`, split a quarter of the pieces at once: then few rounds are needed
        count = 1 if pieces.min() < domains else max(1, left.shape[1] // 4)
        widest = np.argpartition(-gap, count - 1, axis=1)[:, :count]
        left, right = _split(integrand, left, right, widest)
        new = np.hstack(
            [widest, np.tile(np.arange(left.shape[1] - count, left.shape[1]), (rows, 1))]
        )
        low, high = (np.hstack([side, np.full((rows, count), -np.inf)]) for side in (low, high))
        at = every, new
        low[at], high[at] = _pieces(integrand, every, left[at], right[at])
    rounding = 1e-14 * (1 + np.abs(upper) + integrand.magnitude())
    return lower - rounding, upper + rounding


def _first_pieces(integrand: Integrand) -> Pair:
    """Return the left and right ends (m, c) of the pieces between the zeros of g''."""
    ends = integrand.inflections()
    infinity = np.full((len(ends), 1), np.inf)
    if integrand.measure.discrete:  # counts 1, ..., floor(end)
        cuts = np.maximum(np.floor(ends), 0.0)
        return np.hstack([np.ones(infinity.shape), cuts + 1]), np.hstack([cuts, infinity])
    return np.hstack([np.zeros(infinity.shape), ends]), np.hstack([ends, infinity])


def _split(integrand: Integrand, left: FloatArray, right: FloatArray, widest: IntArray) -> Pair:
    """Return the ends of the pieces after cutting `widest` (m, s); right parts are appended."""
    every = np.arange(len(left))[:, None]
    l, r = left[every, widest], right[every, widest]
    cut = _cuts(integrand, l, r)
    step = 1.0 if integrand.measure.discrete else 0.0
    right = right.copy()
    right[every, widest] = cut
    left = np.hstack([left, np.where(cut < r, cut + step, np.inf)])
    return left, np.hstack([right, np.where(cut < r, r, -np.inf)])


def _cuts(integrand: Integrand, left: FloatArray, right: FloatArray) -> FloatArray:
    """Return where to split each piece.

    An unbounded piece beyond the center of the mass or at twice its left end, a piece over more
    than a factor of 4 at a geometric mean, others in the middle.
    """
    center = np.broadcast_to(integrand.center[:, None], left.shape)
    cut = empty(left.shape)
    tail = ~np.isfinite(right)
    far = ~tail & (right > 4 * left)
    near = ~tail & ~far
    inside = (left < center) & (center < right)
    cut[tail] = np.where(inside[tail], 1.5 * center[tail], 2 * left[tail] + 1)
    cut[far] = np.sqrt(np.maximum(left[far], right[far] / 64) * right[far])
    with np.errstate(invalid="ignore"):  # an empty piece from +inf to -inf
        cut[near] = 0.5 * (left[near] + right[near])
    if integrand.measure.discrete:
        is_bounded = np.isfinite(cut)
        last = np.maximum(np.where(tail, np.inf, right - 1), left)
        cut[is_bounded] = np.clip(np.floor(cut[is_bounded]), left[is_bounded], last[is_bounded])
    return cut


def _pieces(integrand: Integrand, row: IntArray, left: FloatArray, right: FloatArray) -> Pair:
    """Return bounds on the log mass of each piece [left, right], -inf for empty pieces.

    They are the masses of the base times e^(line) for a line below and a line above g.
    """
    low, high = np.full(left.shape, -np.inf), np.full(left.shape, -np.inf)
    rows = np.broadcast_to(row, left.shape)
    tail = (right == np.inf) & np.isfinite(left)
    single = (right == left) & integrand.measure.discrete
    inner = (right > left) & np.isfinite(right)
    for pieces, bound in ((tail, _tail), (single, _single), (inner, _inner)):
        if pieces.any():
            pair = bound(integrand, rows[pieces], left[pieces], right[pieces])
            low[pieces], high[pieces] = pair
    return low, high


def _single(integrand: Integrand, row: IntArray, left: FloatArray, right: FloatArray) -> Pair:
    """Return bounds for pieces of a single count: both are its term."""
    exact = integrand.g(row, left) + integrand.measure.log_term(row, left)
    return exact, exact


def _inner(integrand: Integrand, row: IntArray, left: FloatArray, right: FloatArray) -> Pair:
    """Return bounds for bounded pieces, from the chord and the tangent nearest to the mass."""
    touch = np.clip(integrand.center[row], left, right)
    touch = np.where(touch == 0, 1e-3 * right, touch)
    g_left, g_right = integrand.g(row, left), integrand.g(row, right)
    with np.errstate(invalid="ignore", over="ignore"):
        rise = (g_right - g_left) / (right - left)
    finite = np.isfinite(g_left) & np.isfinite(rise)  # g may be -inf at 0
    rise = np.where(finite, rise, 0.0)
    chord = np.where(finite, g_left, 0.0) - rise * left
    concave = integrand.bend(row, np.sqrt(np.maximum(left, 1e-6 * right) * right)) <= 0
    below, above = _line(integrand, row, touch)
    lines = (chord, rise), (below, above)
    under = integrand.measure.log_mass(row, left, right, np.where(concave, rise, above))
    over = integrand.measure.log_mass(row, left, right, np.where(concave, above, rise))
    low = np.where(concave, lines[0][0], lines[1][0]) + under[0]
    high = np.where(concave, lines[1][0], lines[0][0]) + over[1]
    return np.where(concave & ~finite, -np.inf, low), high


def _tail(integrand: Integrand, row: IntArray, left: FloatArray, right: FloatArray) -> Pair:
    """Return bounds for unbounded pieces, from a flat chord and a tangent with a finite mass."""
    touch = np.maximum(integrand.center[row], left)
    touch = np.where(touch == 0, 1e-3 * (left + 1.0), touch)
    for _ in range(200):
        steep = ~_leaves_mass_finite(integrand, row, touch)
        if not steep.any():
            break
        touch = np.where(steep, 2 * touch, touch)
    height, slope = _line(integrand, row, touch)
    flat = integrand.g(row, left)
    concave = integrand.bend(row, 2 * left + 1) <= 0
    chord = integrand.measure.log_mass(row, left, right, np.zeros(left.shape))
    tangent = integrand.measure.log_mass(row, left, right, slope)
    low = np.where(concave, flat + chord[0], height + tangent[0])
    high = np.where(concave, height + tangent[1], flat + chord[1])
    return low, high


def _leaves_mass_finite(integrand: Integrand, row: IntArray, touch: FloatArray) -> BoolArray:
    return integrand.measure.tail_is_finite(row, integrand.slope(row, touch))


def _line(integrand: Integrand, row: IntArray, touch: FloatArray) -> Pair:
    """Return the height at x = 0 and the slope of the tangent of g at `touch`."""
    slope = integrand.slope(row, touch)
    return integrand.g(row, touch) - slope * touch, slope
