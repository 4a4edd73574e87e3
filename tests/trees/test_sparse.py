"""Sparse graphs against dense tables, counts and sums over edges."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.trees.sparse import SparseSpanningTrees, SparseUndirectedTrees
from fstgrad.trees.undirected import UndirectedTrees


def graph(n, seed, density):
    """A random dense table with a tree in it, and its arcs."""
    rng = np.random.default_rng(seed)
    scores = 2 * rng.normal(size=(n + 1, n + 1))
    scores[rng.random(scores.shape) > density] = -np.inf
    for d in range(1, n + 1):
        scores[rng.integers(d), d] = rng.normal()
    scores[:, 0] = -np.inf
    np.fill_diagonal(scores, -np.inf)
    arcs = np.argwhere(scores > -np.inf)
    return scores, arcs, scores[scores > -np.inf]


@pytest.mark.parametrize("n, density", [(1, 0), (2, 1), (3, 0.2), (12, 0.1), (40, 0.05), (40, 0.9)])
def test_against_dense_tables(n, density):
    for seed in range(5):
        scores, arcs, values = graph(n, seed, density)
        dense = fg.SpanningTrees(scores, single_root=False)
        order = np.random.default_rng(seed).permutation(len(arcs))
        sparse = SparseSpanningTrees(arcs[order], values[order], n=n)
        assert sparse.log_partition() == pytest.approx(dense.log_partition(), abs=1e-11)
        expected = dense.marginals()[tuple(arcs[order].T)]
        np.testing.assert_allclose(sparse.marginals(), expected, atol=1e-10)
        assert sparse.entropy() == pytest.approx(dense.entropy(), abs=1e-9)
    draws = dense.parts(sparse.sample(2000, 0)).mean(axis=0)
    deviation = np.sqrt(dense.marginals() * (1 - dense.marginals()) / 2000)
    assert (np.abs(draws - dense.marginals()) <= 5 * deviation + 5 / 2000).all()


def grid(height, width):
    index = np.arange(height * width).reshape(height, width)
    right = np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], axis=1)
    down = np.stack([index[:-1].ravel(), index[1:].ravel()], axis=1)
    return np.concatenate([right, down])


def grid_count(height, width):
    """log of the number of spanning trees of a grid: a product over its eigenvalues."""
    i, j = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    values = 4 - 2 * np.cos(np.pi * i / height) - 2 * np.cos(np.pi * j / width)
    return np.log(values[values > 1e-12]).sum() - np.log(height * width)


@pytest.mark.parametrize(
    "height, width", [(2, 2), (5, 8), (60, 70), pytest.param(320, 320, marks=pytest.mark.slow)]
)
def test_trees_of_a_grid(height, width):
    """Edge marginals add up to the number of edges of a tree (Foster's theorem)."""
    edges = grid(height, width)
    n = height * width
    trees = SparseUndirectedTrees(edges, np.zeros(len(edges)), n=n)
    assert trees.log_partition() == pytest.approx(grid_count(height, width), rel=1e-12)
    assert trees.marginals().sum() == pytest.approx(n - 1, rel=1e-10)
    np.testing.assert_allclose(trees.effective_resistances(), trees.marginals())
    (tree,) = trees.sample(1, 0)
    assert tree.shape == (n - 1, 2)
    assert set(map(frozenset, tree.tolist())) <= set(map(frozenset, edges.tolist()))


def test_forests_against_dense_ones():
    rng = np.random.default_rng(1)
    edges = grid(3, 4)
    scores, roots = rng.normal(size=len(edges)), rng.normal(size=12)
    table = np.full((12, 12), -np.inf)
    table[tuple(edges.T)] = table[tuple(edges[:, ::-1].T)] = scores
    for own in (None, roots):
        dense = UndirectedTrees(table, root_scores=own)
        sparse = SparseUndirectedTrees(edges, scores, n=12, root_scores=own)
        assert sparse.log_partition() == pytest.approx(dense.log_partition(), abs=1e-11)
        assert sparse.entropy() == pytest.approx(dense.entropy(), abs=1e-10)
        np.testing.assert_allclose(
            sparse.marginals(), dense.marginals()[tuple(edges.T)], atol=1e-11
        )
    assert sparse.sample(3, 0).shape == (3, 12)
    assert (sparse.sample(50, 0).min(axis=1) == -1).all()


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: SparseSpanningTrees([(0, 0)], [0], n=1), fg.InvalidInputError, ["(0, 0)"]),
        (lambda: SparseSpanningTrees([(0, 3)], [0], n=2), fg.InvalidInputError, ["arcs[0, 1]"]),
        (
            lambda: SparseSpanningTrees([(0, 1), (0, 1)], [0, 0], n=1),
            fg.InvalidInputError,
            ["(0, 1) twice"],
        ),
        (lambda: SparseSpanningTrees([(0, 1)], [np.nan], n=1), fg.InvalidInputError, ["nan"]),
        (
            lambda: SparseSpanningTrees([(0, 1), (2, 3), (3, 2)], [0, 0, 0], n=3).log_partition(),
            fg.InfeasibleError,
            ["reached from the root"],
        ),
        (
            lambda: SparseSpanningTrees(
                [(0, 1), (0, 2), (1, 2), (2, 1)], [0, 0, 60, 60], n=2
            ).marginals(),
            fg.NotSupportedError,
            ["ill-conditioned", "dense table"],
        ),
        (
            lambda: SparseSpanningTrees(
                [(0, 1), (0, 2), (1, 2), (2, 1)], [0, 0, 60, 60], n=2
            ).sample(1, 0),
            fg.NotSupportedError,
            ["steps"],
        ),
    ],
)
def test_bad_graphs(call, error, words):
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_log_partition_keeps_its_digits_where_marginals_cannot():
    trees = SparseSpanningTrees([(0, 1), (0, 2), (1, 2), (2, 1)], [0, 0, 60, 60], n=2)
    assert trees.log_partition() == pytest.approx(60 + np.log(2), abs=1e-13)
