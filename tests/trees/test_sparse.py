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


def test_masked_arcs_reach_nobody_in_a_large_graph():
    n = 2001  # dense tables replace smaller ones
    arcs = np.stack([np.arange(n), np.arange(1, n + 1)], axis=1)
    scores = np.where(np.arange(n) == 1990, -np.inf, 0.0)
    with pytest.raises(fg.InfeasibleError, match="from the root to 11 of the dependents"):
        SparseSpanningTrees(arcs, scores, n=n).log_partition()


def chain(n, height):
    """Arcs and scores of a chain whose last two dependents prefer each other by `height`."""
    heads = np.arange(n)
    arcs = np.concatenate([np.stack([heads, heads + 1], axis=1), [(n, n - 1)]])
    return arcs, np.append(np.zeros(n - 1), [height, height])


@pytest.mark.parametrize("sd", [10, 20, 50, 200])
def test_ill_conditioned_graphs(sd):
    """Wide scores: marginals lose their digits in the selected inverse of many of these graphs."""
    for seed in range(15):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 40))
        scores, arcs, values = graph(n, seed, float(rng.choice([0.05, 0.3, 0.9])))
        dense = fg.SpanningTrees(sd / 2 * scores, single_root=False)
        sparse = SparseSpanningTrees(arcs, sd / 2 * values, n=n)
        assert sparse.log_partition() == pytest.approx(dense.log_partition(), rel=1e-12)
        expected = dense.marginals()[tuple(arcs.T)]
        np.testing.assert_allclose(sparse.marginals(), expected, atol=1e-8)
        assert sparse.entropy() == pytest.approx(dense.entropy(), abs=1e-7)


@pytest.mark.parametrize("seed", [199, 294, 573, 765, 1236, 1249])
@pytest.mark.parametrize("mask", [-1e30, float(np.finfo(np.float32).min)])
def test_marginals_whose_sums_are_right_but_not_their_digits(mask, seed):
    """Differences of numbers of 1e7: what is lost at one arc is gained at another."""
    edges = np.argwhere(np.triu(np.ones((5, 5)), 1))
    rng = np.random.default_rng(seed)
    scores = 30.0 * rng.normal(size=10)
    scores[rng.random(10) < 0.2] = mask
    table = np.full((5, 5), -np.inf)
    table[tuple(edges.T)] = table.T[tuple(edges.T)] = scores
    dense, sparse = fg.UndirectedTrees(table), fg.SparseUndirectedTrees(edges, scores, n=5)
    expected = dense.marginals()[tuple(edges.T)]
    np.testing.assert_allclose(sparse.marginals(), expected, rtol=0, atol=1e-10)
    assert sparse.entropy() == pytest.approx(dense.entropy(), abs=1e-9)


@pytest.mark.parametrize("height", [60, 800])
def test_mutual_heads_of_a_small_graph(height):
    """Too strong for the inverse; at 800 the root arcs leave the range of float64 too."""
    arcs, scores = [(0, 1), (0, 2), (1, 2), (2, 1)], [0, 0, height, height]
    trees = SparseSpanningTrees(arcs, scores, n=2)
    assert trees.log_partition() == pytest.approx(height + np.log(2), abs=1e-12)
    np.testing.assert_allclose(trees.marginals(), 0.5, atol=1e-12)
    assert trees.entropy() == pytest.approx(np.log(2), abs=1e-12)
    assert {tuple(tree) for tree in trees.sample(50, 0).tolist()} == {(0, 1), (2, 0)}


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
    "height, width", [(2, 2), (5, 8), (60, 70), pytest.param(320, 320, marks=pytest.mark.nightly)]
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
            ["from the root to 2", "[2, 3]"],
        ),
        (
            lambda: SparseSpanningTrees(*chain(2001, 60), n=2001).marginals(),
            fg.NotSupportedError,
            ["ill-conditioned", "dense tables", "2000", "2001"],
        ),
        (
            lambda: SparseSpanningTrees(*chain(2001, 800), n=2001).log_partition(),
            fg.NotSupportedError,
            ["range of float64", "2000", "2001"],
        ),
        (
            lambda: SparseSpanningTrees(*chain(101, 60), n=101).sample(1, 0),
            fg.NotSupportedError,
            ["steps", "100", "101"],
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
