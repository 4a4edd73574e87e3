"""The formulas of `fstgrad.trees.reference` against sums over trees, and against what runs."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.trees import reference
from tests.oracles import trees as oracle

cases = pytest.mark.parametrize("single_root", [True, False])
sizes = pytest.mark.parametrize("n", [1, 2, 3, 5])


def table(n):
    """Scores and weights (n+1, n+1)."""
    scores = np.random.default_rng(n).normal(size=(n + 1, n + 1))
    return scores, np.exp(scores)


@cases
@sizes
def test_partition_and_marginals(n, single_root):
    scores, w = table(n)
    trees = fg.SpanningTrees(scores, single_root=single_root)
    log_z, mean, _ = oracle.moments(scores, single_root=single_root)
    z = reference.partition(w, single_root=single_root)
    arcs = reference.marginals(w, single_root=single_root)
    assert np.log(z) == pytest.approx(log_z, abs=1e-12)
    assert np.log(z) == pytest.approx(trees.log_partition(), abs=1e-12)
    np.testing.assert_allclose(arcs, mean, atol=1e-12)
    np.testing.assert_allclose(arcs, trees.marginals(), atol=1e-12)


@cases
@sizes
def test_first_and_second_order(n, single_root):
    scores, w = table(n)
    rng = np.random.default_rng(10 + n)
    r, s = rng.normal(size=(n + 1, n + 1, 3)), rng.normal(size=(n + 1, n + 1, 2))
    trees = fg.SpanningTrees(scores, single_root=single_root)
    first = reference.first_order(w, r, single_root=single_root)
    second = reference.second_order(w, r, s, single_root=single_root)
    tables = np.array(oracle.tables(scores.shape, single_root=single_root)[1])
    weights = np.exp((tables * scores).sum(axis=(1, 2)))
    weights /= weights.sum()
    totals_r, totals_s = (np.einsum("tij,ijr->tr", tables, x) for x in (r, s))
    np.testing.assert_allclose(first, weights @ totals_r, atol=1e-11)
    np.testing.assert_allclose(second, (weights[:, None] * totals_r).T @ totals_s, atol=1e-11)
    np.testing.assert_allclose(trees.expectations(r), first, atol=1e-11)
    for method in ("vector", "hessian"):
        np.testing.assert_allclose(trees.second_moments(r, s, method=method), second, atol=1e-11)


@cases
@sizes
def test_covariances_are_second_derivatives(n, single_root):
    scores, w = table(n)
    z = reference.partition(w, single_root=single_root)
    arcs = reference.marginals(w, single_root=single_root)
    pairs = np.multiply.outer(w, w) * reference.hessian(w, single_root=single_root) / z
    size = (n + 1) ** 2
    covariance = (pairs - np.multiply.outer(arcs, arcs)).reshape(size, size) + np.diag(arcs.ravel())
    runs = fg.SpanningTrees(scores, single_root=single_root).covariance_matrix()
    np.testing.assert_allclose(runs.reshape(size, size), covariance, atol=1e-11)


@cases
def test_zeroth_order(single_root):
    scores, w = table(4)
    q = np.random.default_rng(3).normal(size=w.shape)
    value = fg.SpanningTrees(scores, single_root=single_root).expected_product(q)
    expected = reference.zeroth_order(w, q, single_root=single_root)
    assert value == pytest.approx(expected, rel=1e-10)
