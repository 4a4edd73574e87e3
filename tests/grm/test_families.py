"""A(eta), its gradient and Hessian against closed forms, mpmath, each other and differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fstgrad.core.errors import InvalidInputError
from fstgrad.grm.base import empty_derivatives
from fstgrad.grm.families import BASES, Exponential, FiniteCounts, Gaussian, Poisson
from fstgrad.grm.kernels import count_rows, counts, integrals
from fstgrad.grm.kernels.counts import empty_moments, write_results
from tests.oracles import grm as oracle

NAMES = ["poisson", "exponential", "gaussian"]
ALL = [BASES[name] for name in NAMES]


def random_eta(rng, base, k, size):
    eta = rng.uniform(-size, size, k)
    if base != "poisson":
        eta[0] = -abs(eta[0]) - 1e-3
    return eta


@pytest.mark.parametrize(
    "base, eta, expected",
    [
        (Poisson(), [0.5], np.exp(0.5)),
        (Poisson(), [-3.0, 0.0, 0.0], np.exp(-3.0)),
        (Poisson(), [-100.0], np.exp(-100.0)),
        (Poisson(), [50.0], np.exp(50.0)),
        (Exponential(), [-2.0], -np.log(2.0)),
        (Exponential(), [-2.0, 0.0], -np.log(2.0)),
        # integral of exp(-sqrt(x)) dx = 2
        (Exponential(), [0.0, -1.0], np.log(2.0)),
        # integral of exp(-x^(1/3)) dx = 3! = 6
        (Exponential(), [0.0, 0.0, -1.0], np.log(6.0)),
        (Gaussian(), [-0.5], 0.5 * np.log(2 * np.pi)),
        (Gaussian(), [-0.5, 3.0], 0.5 * np.log(2 * np.pi) + 9 / 2),
        (Gaussian(), [-2.0, 0.0, 0.0], 0.5 * np.log(np.pi / 2)),
    ],
)
@pytest.mark.parametrize("method", ["direct", "bounds"])
def test_closed_forms(base, eta, expected, method):
    if method == "bounds" and eta[0] == 0:
        with pytest.raises(InvalidInputError, match="eta_1"):
            base.log_partition(eta, method="bounds")
        return
    lower, value, upper = base.log_partition(eta, method=method)
    assert lower <= expected <= upper
    if method == "direct":
        assert value == pytest.approx(expected, rel=1e-12, abs=1e-12)


def check_against_mpmath(count, seed):
    """Random eta of k = 1..4, sizes 0.5 to 50; returns the widths of the ten-domain bounds."""
    rng = np.random.default_rng(seed)
    widths = {name: [] for name in NAMES}
    for number in range(count):
        name = NAMES[number % 3]
        eta = random_eta(rng, name, 1 + (number // 3) % 4, 50 * 10 ** rng.uniform(-2, 0))
        exact = oracle.log_partition(name, eta)
        direct = BASES[name].log_partition(eta)
        assert direct.lower <= exact <= direct.upper, (name, eta, exact, direct)
        assert direct.upper - direct.lower <= 1e-10 * (1 + abs(direct.value))
        bounds = BASES[name].log_partition(eta, method="bounds")
        assert bounds.lower <= exact <= bounds.upper, (name, eta, exact, bounds)
        widths[name].append(bounds.upper - bounds.lower)
    return widths


def test_intervals_hold_the_value_of_mpmath():
    check_against_mpmath(24, seed=0)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 9))
def test_intervals_hold_2000_values_of_mpmath(seed):
    check_against_mpmath(250, seed)


@pytest.mark.parametrize("base", ALL, ids=repr)
def test_the_two_routes_agree_up_to_50(base):
    rng = np.random.default_rng(2)
    for k in (1, 2, 3, 4):
        eta = np.stack([random_eta(rng, base.name, k, 50) for _ in range(100)])
        direct, bounds = base.log_partition(eta), base.log_partition(eta, method="bounds")
        assert (bounds.lower <= direct.upper).all()
        assert (direct.lower <= bounds.upper).all()


@pytest.mark.parametrize("base", ALL, ids=repr)
def test_bounds_tighten_to_the_tolerance(base):
    eta = np.array([[-1.0, 2.0, -1.5], [-0.5, -2.0, 1.0]])
    if base.name == "poisson":
        eta[:, 0] += 4.0
    wide = base.log_partition(eta, method="bounds", domains=4)
    close = base.log_partition(eta, method="bounds", tolerance=1e-4)
    assert (close.upper - close.lower <= 1e-4).all()
    assert (wide.upper - wide.lower > 1e-4).any()
    assert (wide.lower <= close.lower).all()
    assert (close.upper <= wide.upper).all()


def test_one_domain_has_bounds():
    """The tangent at the mode would leave the tail an infinite mass: it moves further out."""
    eta = np.array([[-8.31149145, 45.53031493], [-0.8025757, 14.62725043]])
    wide = Exponential().log_partition(eta, method="bounds", domains=1)
    exact = Exponential().log_partition(eta).value
    assert ((wide.lower < exact) & (exact < wide.upper) & np.isfinite(wide.upper)).all()


@pytest.mark.parametrize("base", ALL, ids=repr)
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_gradient_and_hessian_are_differences(base, k):
    rng = np.random.default_rng(3)
    eta = np.stack([random_eta(rng, base.name, k, 3.0) for _ in range(6)])
    if base.name != "poisson":
        eta[:, 0] -= 0.5
    step = 1e-5
    gradient, hessian = base.gradient(eta), base.hessian(eta)
    for j in range(k):
        move = step * np.eye(k)[j]
        up, down = base.log_partition(eta + move).value, base.log_partition(eta - move).value
        np.testing.assert_allclose(gradient[:, j], (up - down) / (2 * step), rtol=1e-7, atol=1e-8)
        change = (base.gradient(eta + move) - base.gradient(eta - move)) / (2 * step)
        np.testing.assert_allclose(hessian[:, j], change, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("base", ALL, ids=repr)
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_moment_bounds_hold_gradient_and_hessian(base, k):
    rng = np.random.default_rng(4)
    eta = np.stack([random_eta(rng, base.name, k, 2.0) for _ in range(4)])
    for bounds, exact in (
        (base.gradient_bounds(eta, tolerance=1e-2), base.gradient(eta)),
        (base.hessian_bounds(eta, tolerance=1e-2), base.hessian(eta)),
    ):
        assert (bounds.lower <= exact + 1e-12).all()
        assert (exact - 1e-12 <= bounds.upper).all()
        assert np.isfinite(bounds.lower).all()


@given(st.lists(st.floats(-6, 6), min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_poisson_kernel_is_the_plain_sum(eta):
    x = np.arange(4000.0)
    t = np.stack([x ** (1 / j) for j in range(1, len(eta) + 1)], axis=1)
    height = t @ np.array(eta) + Poisson().log_base(x)
    value = np.logaddexp.reduce(height)
    p = np.exp(height - value)
    centred = t - p @ t
    assert Poisson().log_partition(eta).value == pytest.approx(value, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(Poisson().gradient(eta), p @ t, rtol=1e-10)
    np.testing.assert_allclose(
        Poisson().hessian(eta), centred.T @ (p[:, None] * centred), rtol=1e-8, atol=1e-10
    )


def test_wide_sums_join_the_series_without_a_step():
    # modes on both sides of LIMIT = 20,000 counts: log Z = e^eta_1 exactly
    for rate in (15e3, 19e3, 20e3, 21e3, 1e5, 1e6, 1e9, 1e15):
        eta = [np.log(rate), 0.0]
        assert Poisson().log_partition(eta).value == pytest.approx(rate, rel=1e-12)
        assert Poisson().gradient(eta)[0] == pytest.approx(rate, rel=1e-10)
        assert Poisson().hessian(eta)[0, 0] == pytest.approx(rate, rel=1e-7)


@pytest.mark.parametrize("k", [2, 3])
def test_sums_beyond_the_table_begin_where_it_ends(k):
    """Each count is in the table or beyond it: none is left out, and none is counted twice."""
    base = Poisson()
    end = int(base.table(k).panels[-1])
    for rate in (end - 3000, end - 30, end, end + 30, end + 3000):
        eta = [np.log(rate), *[0.0] * (k - 1)]
        found = base.log_partition(eta)
        assert found.value == pytest.approx(rate, abs=1e-6)
        assert found.lower <= rate <= found.upper
        assert base.gradient(eta)[0] == pytest.approx(rate, rel=1e-9)
        assert base.hessian(eta)[0, 0] == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("rate", [1e7, 1e11, 1e13, 1e15])
def test_moments_of_wide_counts(rate):
    """On both sides of HUGE: Var x = m, Cov(x, x^(1/j)) = m^(1/j) / j by the delta method."""
    slopes = np.array([1.0, rate ** (-1 / 2) / 2, rate ** (-2 / 3) / 3])
    found = Poisson().hessian([np.log(rate), 0.0, 0.0])
    np.testing.assert_allclose(found, rate * np.outer(slopes, slopes), rtol=1e-6)


def test_quadrature_kernel_is_the_plain_trapezoid():
    eta = np.array([-1.0, 2.0, 0.5])
    step = 68 / 200_000
    v = -60 + step * np.arange(200_001)
    h = sum(eta[j] * np.exp(v / (j + 1)) for j in range(3)) + v
    value = np.log(np.exp(h - h.max()).sum() * step) + h.max()
    assert Exponential().log_partition(eta).value == pytest.approx(value, rel=1e-12)
    assert integrals.log_integrand(1.0, eta, 1.0) == pytest.approx(
        -np.exp(1.0) + 2 * np.exp(0.5) + 0.5 * np.exp(1 / 3) + 1, rel=1e-14
    )


def test_gaussian_pair_is_the_limit_of_the_quadrature():
    pair, triple = np.array([[-0.7, 1.3]]), np.array([[-0.7, 1.3, 0.0]])
    for method in ("log_partition", "gradient", "hessian"):
        closed = np.asarray(getattr(Gaussian(), method)(pair))
        summed = np.asarray(getattr(Gaussian(), method)(triple))
        index = tuple(slice(0, n) for n in closed.shape)
        np.testing.assert_allclose(summed[index], closed, rtol=1e-11, atol=1e-11)


def test_rows_that_are_exact_do_not_hold_up_the_others(monkeypatch):
    # e^-100: all the mass is at 0 and 1, there are no ten domains to make
    eta = np.array([[-100.0, 0.0], [2.0, 1.0]])
    monkeypatch.setattr("fstgrad.grm.log_moments.MOST_DOMAINS", 10**9)
    bounds = Poisson().log_partition(eta, method="bounds")
    assert bounds.lower[0] <= np.exp(-100.0) <= bounds.upper[0]


def test_shapes_follow_eta():
    eta = np.full((2, 5, 3), -0.1)
    assert Poisson().log_partition(eta).value.shape == (2, 5)
    assert Poisson().gradient(eta).shape == (2, 5, 3)
    assert Poisson().hessian(eta).shape == (2, 5, 3, 3)


@pytest.mark.parametrize(
    "base, eta, message",
    [
        (Poisson(), [np.nan], "finite"),
        (Poisson(), 1.0, "shape"),
        (Exponential(), [0.0], "cannot be normalised"),
        (Exponential(), [1.0, -2.0], "cannot be normalised"),
        (Exponential(), [[-1.0, 0.0], [0.0, 0.0], [2.0, 1.0]], r"eta \[0.0, 0.0\] cannot"),
        (Gaussian(), [0.0, 0.5], "cannot be normalised"),
    ],
)
def test_bad_eta(base, eta, message):
    with pytest.raises(InvalidInputError, match=message):
        base.log_partition(eta)


def test_a_sum_that_is_not_log_concave_is_refused():
    with pytest.raises(InvalidInputError, match="bounds"):
        Poisson().log_partition([30.0, -5000.0])


def test_counts_beyond_the_last_have_no_mass():
    base = FiniteCounts(np.log([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(base.log_base([2.0, 3.0, 99.0]), [np.log(3.0), -np.inf, -np.inf])


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_sums_of_the_first_counts_are_those_of_the_whole_table(k, own):
    """Rows that end within the first counts, at their last one, and beyond; equal rows; no sum."""
    base = BASES["hurdle-poisson"] if own else BASES["poisson"]
    rng = np.random.default_rng(k)
    eta = np.concatenate([rng.normal(size=(300, k + own)), np.zeros((2, k + own))])
    eta[:300, 0] = np.linspace(-30.0, 5.0, 300)
    table = base.table(k)
    found, moments = empty_derivatives(eta), empty_moments(k + own)
    count_rows.derivatives(eta, table, *found)
    block, powers, first = (
        count_rows.empty_block(k + own, count_rows.FEWEST),
        count_rows.monomials(table),
        0,
    )
    for row, values in enumerate(eta):
        block.eta[:] = values[:, None]
        count_rows.sum_block(block, table, powers)
        first += block.stop[0] > 0
        whole = empty_derivatives(eta[:1])
        assert counts.sum_counts(values, table, np.empty(counts.NODES), moments)
        write_results(moments, *(part[0] for part in whole))
        for part, other in zip(found, whole, strict=True):
            np.testing.assert_allclose(part[row], other[0], rtol=1e-12, atol=1e-14)
    assert 150 < first < 302
    for rows_of_a_batch in (1, 8, 9, 65, 302):
        part = empty_derivatives(eta[:rows_of_a_batch])
        count_rows.derivatives(eta[:rows_of_a_batch], table, *part)
        for some, every in zip(part, found, strict=True):
            np.testing.assert_array_equal(some, every[:rows_of_a_batch])
    for part in found:
        np.testing.assert_array_equal(part[300], part[301])
    nothing = empty_derivatives(eta[:1])
    count_rows.derivatives(np.full((1, k + own), np.nan), table, *nothing)
    assert not np.isfinite(nothing[1]).any()


def test_derivatives_of_single_precision_are_those_of_the_same_numbers():
    """Equal rows are found by their bits, which must be those of float64."""
    eta = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    eta[:, 0] = 0.5
    eta[:, 1] = -abs(eta[:, 1])
    for found, expected in zip(
        Poisson().derivatives(eta), Poisson().derivatives(eta.astype(np.float64)), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
