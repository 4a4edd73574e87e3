"""Dense random fields: the filters against sums over all pairs."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf.dense import Kernel, PairSums, dense_mean_field


def by_pairs(node, image, kernels, iterations):
    """Mean field with every pair of pixels written out."""
    height, width, labels = node.shape
    place = np.stack(np.indices((height, width)), axis=-1).reshape(-1, 2)
    apart = ((place[:, None] - place[None]) ** 2).sum(axis=-1)
    jump = (image.ravel()[:, None] - image.ravel()[None]) ** 2
    k = np.zeros(apart.shape)
    for weight, distance, contrast in kernels:
        exponent = apart / (2 * distance**2)
        if contrast is not None:
            exponent = exponent + jump / (2 * contrast**2)
        k += weight * np.exp(-exponent)
    np.fill_diagonal(k, 0.0)
    scores = node.reshape(-1, labels)
    q = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    for _ in range(iterations):
        new = scores + k @ q
        q = np.exp(new - new.max(axis=1, keepdims=True))
        q /= q.sum(axis=1, keepdims=True)
    return q.reshape(node.shape)


RNG = np.random.default_rng(0)
NODE, IMAGE = RNG.normal(size=(9, 11, 3)), RNG.random((9, 11))


@pytest.mark.parametrize(
    "kernels, error",
    [
        ([Kernel(0.3, 1.5)], 1e-14),
        ([Kernel(0.3, 0.8)], 1e-14),
        ([Kernel(0.2, 2.0, 0.3)], 0.005),  # the grid of places and values
        ([Kernel(0.1, 1.0), Kernel(0.1, 3.0, 0.2)], 0.005),
        ([Kernel(0.1, 5.0, 10.0)], 0.01),
        ([], 1e-12),
    ],
)
def test_filters_equal_sums_over_pairs(kernels, error):
    for iterations in (1, 3):
        found = dense_mean_field(NODE, IMAGE, kernels, max_iter=iterations, tol=0)
        goal = by_pairs(NODE, IMAGE, kernels, iterations)
        assert np.abs(found.node - goal).max() < error


def test_the_grid_gives_a_pixel_nothing_of_itself():
    """Where no other pixel is near, or all are as near as the pixel itself."""
    rng = np.random.default_rng(1)
    image = rng.permutation(20).reshape(4, 5) * 100.0 + rng.random((4, 5))
    q = rng.random((4, 5, 2))
    assert np.abs(PairSums(image, Kernel(1.0, 3.0, 1.0))(q)).max() < 1e-12
    flat = PairSums(rng.random((4, 5)), Kernel(1.0, 100.0, 100.0))(q)
    np.testing.assert_allclose(flat, q.sum(axis=(0, 1)) - q, atol=0.02)


def test_convergence_is_said():
    found = dense_mean_field(NODE, IMAGE, [Kernel(0.2, 1.0)], max_iter=100)
    assert found.converged
    assert found.iterations < 100
    assert not dense_mean_field(NODE, IMAGE, [Kernel(0.2, 1.0)], max_iter=1).converged


def test_bad_input():
    with pytest.raises(fg.InvalidInputError, match="image"):
        dense_mean_field(NODE, IMAGE[1:], [])
    with pytest.raises(fg.InvalidInputError, match="distance"):
        dense_mean_field(NODE, IMAGE, [Kernel(1.0, 0.0)])


def test_a_damped_update_leads_to_the_same_marginals():
    rng = np.random.default_rng(4)
    node, image = rng.normal(size=(5, 6, 3)), rng.random((5, 6))
    kernels = [Kernel(0.4, 1.0)]
    plain = dense_mean_field(node, image, kernels, max_iter=500, tol=1e-12)
    damped = dense_mean_field(node, image, kernels, max_iter=500, tol=1e-12, damping=0.5)
    assert damped.converged
    assert damped.iterations > plain.iterations
    np.testing.assert_allclose(damped.node, plain.node, atol=1e-10)
