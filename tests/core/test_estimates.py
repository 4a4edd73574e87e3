"""Errors of means of Markov chains: batches, their correction, and R-hat."""

import numpy as np
import pytest

from fstgrad.core.estimates import (
    bounded_mean_interval,
    log_mean_interval,
    lugsail_variance,
    mean_interval,
    r_hat,
    variance_of_mean,
)


def test_r_hat_is_its_formula():
    means, within = np.array([[1.0], [3.0]]), np.array([4.0])
    assert r_hat(means, within, 10)[0] == pytest.approx(np.sqrt(9 / 10 + 2 / 4))


def test_r_hat_where_nothing_varies():
    means = np.array([[1.0, 1.0], [1.0, 2.0]])
    assert r_hat(means, np.zeros(2), 10).tolist() == [1.0, np.inf]
    assert np.isnan(r_hat(means[:1], np.ones(2), 10)).all()


def test_variance_of_a_mean_of_batches():
    batches = np.array([1.0, 2.0, 4.0, 5.0])
    found = variance_of_mean(batches.mean(), (batches**2).sum(), 4)
    assert found == pytest.approx(batches.var(ddof=1) / 4)


def test_lugsail_takes_out_the_bias_of_batches_that_hang_together():
    assert lugsail_variance(np.array([1.0]), np.array([1.5])).tolist() == [2.0]
    assert lugsail_variance(np.array([1.0]), np.array([0.8])).tolist() == [0.8]  # never smaller


def test_intervals_cover_where_draws_hang_together():
    """Means of an AR(1) sequence: the corrected variance comes closer to that of the mean."""
    rng, phi, size, count = np.random.default_rng(0), 0.95, 20, 40
    singles, corrected, means = [], [], []
    for _ in range(300):
        x = np.empty(size * count)
        x[0] = rng.normal() / np.sqrt(1 - phi**2)
        for t in range(1, len(x)):
            x[t] = phi * x[t - 1] + rng.normal()
        batches = x.reshape(count, size).mean(axis=1)
        pairs = x.reshape(count // 2, 2 * size).mean(axis=1)
        single = variance_of_mean(x.mean(), (batches**2).sum(), count)
        paired = variance_of_mean(x.mean(), (pairs**2).sum(), count // 2)
        singles.append(single)
        corrected.append(lugsail_variance(single, paired))
        means.append(x.mean())
    true = np.var(means)
    assert np.mean(singles) < 0.7 * true
    assert abs(np.mean(corrected) / true - 1) < abs(np.mean(singles) / true - 1) / 2


def test_intervals_of_log_means_stay_within_the_bounds_of_the_values():
    """The values are scaled by both bounds, so that a narrow range has a narrow interval."""
    values = np.random.default_rng(0).uniform(2.0, 2.5, size=40)
    low, high = log_mean_interval(values, 2.0, 2.5)
    assert 2.0 <= low < np.log(np.exp(values).mean()) < high <= 2.5
    weights = (np.exp(values) - np.exp(2.0)) / (np.exp(2.5) - np.exp(2.0))
    ends = np.exp(2.0) + (np.exp(2.5) - np.exp(2.0)) * np.array(mean_interval(weights))
    np.testing.assert_allclose([low, high], np.log(ends), rtol=1e-9)
    assert log_mean_interval(np.full(9, 2.0), 2.0, 2.0) == pytest.approx((2.0, 2.0))
    below, above = log_mean_interval(values, -np.inf, 2.5)  # no lower bound: from 0
    np.testing.assert_allclose(
        [below, above], 2.5 + np.log(mean_interval(np.exp(values - 2.5))), rtol=1e-9
    )
    below, above = log_mean_interval(values, 2.0, np.inf)
    assert (2.0 <= below < high, above) == (True, np.inf)


def test_intervals_of_bounded_means_follow_the_scale():
    values = np.random.default_rng(1).uniform(-3.0, 5.0, size=60)
    ends = bounded_mean_interval(values, -3.0, 5.0)
    np.testing.assert_allclose(ends, -3.0 + 8.0 * np.array(mean_interval((values + 3.0) / 8.0)))
    assert bounded_mean_interval(values, -np.inf, 5.0) == (-np.inf, 5.0)
    assert bounded_mean_interval(values, 1.0, 1.0) == (1.0, 1.0)
