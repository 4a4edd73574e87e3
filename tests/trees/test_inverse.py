"""Inverses of `kernels.inverse` against those of numpy."""

import numpy as np
import pytest

from fstgrad.trees.kernels.inverse import invert

MACHINE_EPSILON = np.finfo(np.float64).eps


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
    value = invert(inverse)
    assert value == pytest.approx(np.linalg.slogdet(matrix[:, :n])[1], rel=1e-13)
    np.testing.assert_allclose(inverse[:, :n], np.linalg.inv(matrix[:, :n]), atol=1e-13)
    assert not inverse[:, n:].any()


@pytest.mark.parametrize("pivot", [0.0, -1.0, 1e-80, np.nan])
@pytest.mark.parametrize("row", [0, 5, 7])
def test_a_pivot_that_is_not_positive_is_told(row, pivot):
    matrix = np.eye(8)
    matrix[row, row] = pivot
    assert invert(matrix) == -np.inf
