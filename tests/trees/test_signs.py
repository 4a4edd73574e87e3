"""Expected products with negative entries against sums over trees without rounding."""

from fractions import Fraction

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.trees.arc_covariances import determinant
from tests.oracles import trees as oracle


def exact_product(scores, q, single_root):
    """Return E[product of q] and E[product of |q|] from rational sums over all trees."""
    w = [[Fraction(float(x)) for x in row] for row in np.exp(scores)]
    sums = [Fraction(0)] * 3
    for table in oracle.tables(scores.shape, single_root=single_root)[1]:
        arcs = np.argwhere(table > 0).tolist()
        weight = product = Fraction(1)
        for h, d in arcs:
            weight *= w[h][d]
            product *= Fraction(float(q[h, d]))
        for i, value in enumerate((1, product, abs(product))):
            sums[i] += weight * value
    return float(sums[1] / sums[0]), float(sums[2] / sums[0])


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("nats", [0, 20, 40, 300])
def test_products_of_mutual_heads_keep_their_digits(nats, single_root):
    rng = np.random.default_rng(nats)
    scores = rng.normal(size=(5, 5))
    scores[[1, 2], [2, 1]] += nats
    scores[[3, 4], [4, 3]] += nats / 2
    for q in (rng.normal(size=(5, 5)), rng.choice([-1.0, 0.5, 1.0], (5, 5)), -np.ones((5, 5))):
        expected, size = exact_product(scores, q, single_root)
        found = fg.SpanningTrees(scores, single_root=single_root).expected_product(q)
        assert found == pytest.approx(expected, abs=1e-11 * size)


def test_products_over_labels_and_batches():
    rng = np.random.default_rng(0)
    scores, q = rng.normal(size=(2, 2, 4, 4, 3))
    scores[:, 1, 2] += 30
    scores[:, 2, 1] += 30
    found = fg.SpanningTrees(scores, single_root=False, labeled=True).expected_product(q)
    arcs = np.logaddexp.reduce(scores, axis=-1)
    means = (np.exp(scores - arcs[..., None]) * q).sum(axis=-1)
    expected = [exact_product(*item, False)[0] for item in zip(arcs, means, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-11)


def test_determinants_of_integers_are_exact():
    matrix = np.array([[0, 2, 1], [3, 0, 5], [7, 10**30, 0]], dtype=object)
    assert determinant(matrix) == 2 * 5 * 7 + 3 * 10**30
    assert determinant(np.array([[1, 2], [2, 4]], dtype=object)) == 0
    assert determinant(np.zeros((2, 2), dtype=object)) == 0
