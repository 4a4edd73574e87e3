"""Errors of means of Markov chains: batches, their correction, and R-hat."""

import numpy as np
import pytest

from fstgrad.core.estimates import lugsail_variance, r_hat, variance_of_mean


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
