"""Exponentials and logarithms of vectors against those of numpy."""

import numpy as np
import pytest

from fstgrad.core import vectors

MACHINE_EPSILON = np.finfo(np.float64).eps


def exponentials(x):
    found = np.array(x, dtype=np.float64)
    vectors.exponentiate(found, np.empty(len(found)))
    return found


def test_exponentials_are_right_to_a_unit_in_the_last_place():
    x = np.concatenate([-np.logspace(-300, 2.85, 5001), np.linspace(-707.9, 0, 5001)])
    np.testing.assert_allclose(exponentials(x), np.exp(x), rtol=1.5 * MACHINE_EPSILON)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 31])
def test_exponentials_of_vectors_of_any_length(count):
    x = -np.arange(count) / 3
    np.testing.assert_allclose(exponentials(x), np.exp(x), rtol=1.5 * MACHINE_EPSILON)


def test_edges_of_the_exponential():
    assert exponentials([0.0, -0.0]).tolist() == [1.0, 1.0]
    assert exponentials([-708.5, -745.0, -1e9, -1e308, -np.inf]).tolist() == [0.0] * 5


def logarithms(x):
    found = np.array(x, dtype=np.float64)
    vectors.logarithms(found, np.empty(len(found)))
    return found


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 10_001])
def test_logarithms_are_right_to_a_unit_in_the_last_place(count):
    rng = np.random.default_rng(count)
    for x in (np.exp(rng.uniform(-700, 700, count)), np.exp(1e-3 * rng.normal(size=count))):
        np.testing.assert_allclose(logarithms(x), np.log(x), rtol=1.5 * MACHINE_EPSILON)


def test_edges_of_the_logarithm():
    powers = 2.0 ** np.arange(-1022, 1024)
    expected = np.arange(-1022, 1024) * np.log(2)
    np.testing.assert_allclose(logarithms(powers), expected, rtol=1.5 * MACHINE_EPSILON)
    assert logarithms([1.0]).tolist() == [0.0]
    ends = np.array([np.finfo(np.float64).tiny, np.finfo(np.float64).max])
    np.testing.assert_allclose(logarithms(ends), np.log(ends), rtol=1.5 * MACHINE_EPSILON)
