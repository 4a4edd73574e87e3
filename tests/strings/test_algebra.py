"""The algebras of the passes: numbers with tangents, and the same as logarithms."""

import numpy as np
import pytest

from fstgrad.strings.algebra import Log, MaxPlus, Real

RNG = np.random.default_rng(0)


def pair(shape):
    """Weights and their derivatives: as they are, and as logarithms with theirs."""
    value, change = RNG.uniform(0.5, 2.0, size=shape), RNG.normal(size=shape)
    return np.stack([value, change]), np.stack([np.log(value), change / value])


def same(real, log):
    np.testing.assert_allclose(np.log(real[0]), log[0], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(real[1] / real[0], log[1], rtol=1e-12, atol=1e-13)


def differences(function, left, right, step=1e-6):
    """The derivative of function(left, right) along both tangents, by central differences."""
    ahead = function(left[0] + step * left[1], right[0] + step * right[1])
    behind = function(left[0] - step * left[1], right[0] - step * right[1])
    return (ahead - behind) / (2 * step)


def test_products():
    (a, log_a), (b, log_b) = pair((3, 4)), pair((4, 2))
    found = Real().matmul(a, b)
    np.testing.assert_allclose(found[0], a[0] @ b[0], rtol=1e-15)
    np.testing.assert_allclose(found[1], differences(np.matmul, a, b), rtol=1e-8)
    same(found, Log().matmul(log_a, log_b))
    c, log_c = pair((3, 4))
    found = Real().times(a, c)
    np.testing.assert_allclose(found[0], a[0] * c[0], rtol=1e-15)
    np.testing.assert_allclose(found[1], differences(np.multiply, a, c), rtol=1e-8)
    same(found, Log().times(log_a, log_c))
    for algebra, left, right in ((Real(), a, b), (Log(), log_a, log_b)):
        alone = algebra.matmul(left[:1], right[:1])
        np.testing.assert_array_equal(alone[0], algebra.matmul(left, right)[0])


def test_sums_of_segments():
    a, log_a = pair((5, 2))
    starts = np.array([0, 2])
    found = Real().reduce(a, starts)
    np.testing.assert_allclose(found[:, 0], a[:, :2].sum(axis=1), rtol=1e-14)
    np.testing.assert_allclose(found[:, 1], a[:, 2:].sum(axis=1), rtol=1e-14)
    same(found, Log().reduce(log_a, starts))
    best = MaxPlus().reduce(log_a[:1], starts)
    np.testing.assert_array_equal(best[0, 1], log_a[0, 2:].max(axis=0))


def test_scaling_takes_the_largest_out():
    a, log_a = pair((3, 3))
    scaled, shift = Real().scale(a)
    assert scaled[0].max() == 1.0
    np.testing.assert_allclose(scaled * np.exp(shift), a, rtol=1e-14)
    nothing, shift = Real().scale(np.zeros((2, 3, 3)))
    assert (nothing.any(), shift) == (False, 0.0)
    assert Log().scale(log_a) == (log_a, 0.0)


def test_normalizing():
    a, log_a = pair((1, 2, 2))
    found = Real().normalize(a)
    assert found[0].sum() == pytest.approx(1.0, rel=1e-15)
    assert found[1].sum() == pytest.approx(0.0, abs=1e-15)
    share = differences(lambda x, _: x / x.sum(), a, a)
    np.testing.assert_allclose(found[1], share, rtol=1e-7, atol=1e-9)
    logs = Log().normalize(log_a)
    np.testing.assert_allclose(logs, found, rtol=1e-12, atol=1e-14)


def test_max_plus_products():
    a, b = RNG.normal(size=(1, 3, 4)), RNG.normal(size=(1, 4, 2))
    expected = (a[0][:, :, None] + b[0][None]).max(axis=1)
    np.testing.assert_array_equal(MaxPlus().matmul(a, b)[0], expected)
