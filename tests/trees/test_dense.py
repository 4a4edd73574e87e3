"""Exponentials and inverses of `kernels.dense` against those of numpy."""

import numpy as np
import pytest

from fstgrad.trees.kernels import dense

EPSILON = np.finfo(np.float64).eps


def exponentials(x):
    found = np.array(x, dtype=np.float64)
    dense.exponentiate(found, np.empty(len(found)))
    return found


def test_exponentials_are_right_to_a_unit_in_the_last_place():
    x = np.concatenate([-np.logspace(-300, 2.85, 5001), np.linspace(-707.9, 0, 5001)])
    np.testing.assert_allclose(exponentials(x), np.exp(x), rtol=1.5 * EPSILON)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 31])
def test_exponentials_of_vectors_of_any_length(count):
    x = -np.arange(count) / 3
    np.testing.assert_allclose(exponentials(x), np.exp(x), rtol=1.5 * EPSILON)


def test_edges_of_the_exponential():
    assert exponentials([0.0, -0.0]).tolist() == [1.0, 1.0]
    assert exponentials([-708.5, -745.0, -1e9, -1e308, -np.inf]).tolist() == [0.0] * 5


def dominant(n, width, seed=0):
    """A matrix whose columns are diagonally dominant, padded to `width` columns."""
    rng = np.random.default_rng(seed)
    weights = np.exp(rng.normal(size=(n, n)))
    matrix = np.zeros((n, width))
    matrix[:, :n] = np.diag(weights.sum(axis=0) + rng.random(n)) - weights
    return matrix


@pytest.mark.parametrize(
    "n, width", [(4, 4), (4, 8), (8, 8), (12, 16), (20, 24), (40, 40), (100, 104)]
)
def test_inverses(n, width):
    matrix = dominant(n, width)
    inverse = matrix.copy()
    value = dense.invert(inverse)
    assert value == pytest.approx(np.linalg.slogdet(matrix[:, :n])[1], rel=1e-13)
    np.testing.assert_allclose(inverse[:, :n], np.linalg.inv(matrix[:, :n]), atol=1e-13)
    assert not inverse[:, n:].any()


@pytest.mark.parametrize("pivot", [0.0, -1.0, 1e-80, np.nan])
@pytest.mark.parametrize("row", [0, 5, 7])
def test_a_pivot_that_is_not_positive_is_told(row, pivot):
    matrix = np.eye(8)
    matrix[row, row] = pivot
    assert dense.invert(matrix) == -np.inf
