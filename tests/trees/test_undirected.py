"""Undirected trees and forests against enumeration, resistances against the pseudo-inverse."""

import itertools

import networkx
import numpy as np
import pytest

import fstgrad as fg
from fstgrad.trees.undirected import UndirectedTrees


def symmetric(n, seed, holes=0.0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, n))
    scores[rng.random((n, n)) < holes] = -np.inf
    scores = np.triu(scores, 1)
    return scores + scores.T


def subsets(scores, roots=None):
    """(edges, roots) of all spanning trees, or all rooted forests, with their scores."""
    n = len(scores)
    edges = [(i, j) for i in range(n) for j in range(i + 1, n) if scores[i, j] > -np.inf]
    for count in [n - 1] if roots is None else range(n):
        for chosen in itertools.combinations(edges, count):
            graph = networkx.Graph()
            graph.add_nodes_from(range(n))
            graph.add_edges_from(chosen)
            if not networkx.is_forest(graph):
                continue
            total = sum(scores[e] for e in chosen)
            if roots is None:
                yield chosen, (), total
                continue
            for own in itertools.product(*networkx.connected_components(graph)):
                yield chosen, own, total + sum(roots[r] for r in own)


@pytest.mark.parametrize("n, holes", [(1, 0), (2, 0), (4, 0), (5, 0.3)])
@pytest.mark.parametrize("forest", [False, True])
def test_against_enumeration(n, holes, forest):
    scores = symmetric(n, n + 1, holes)
    roots = np.random.default_rng(9).normal(size=n) if forest else None
    trees = UndirectedTrees(scores, root_scores=roots)
    found = list(subsets(scores, roots))
    totals = np.array([total for _, _, total in found])
    log_z = np.logaddexp.reduce(totals)
    p = np.exp(totals - log_z)
    edges, chances = np.zeros((n, n)), np.zeros(n)
    for x, (chosen, own, _) in zip(p, found, strict=True):
        for i, j in chosen:
            edges[i, j] += x
            edges[j, i] += x
        chances[list(own)] += x
    assert trees.log_partition() == pytest.approx(log_z, abs=1e-12)
    assert trees.entropy() == pytest.approx(-(p @ np.log(p)), abs=1e-12)
    np.testing.assert_allclose(trees.marginals(), edges, atol=1e-12)
    if forest:
        np.testing.assert_allclose(trees.root_marginals(), chances, atol=1e-12)
    draws = trees.sample(4000, 0)
    frequencies = np.zeros((n, n))
    for draw in draws:
        pairs = draw if not forest else [(h, i) for i, h in enumerate(draw) if h >= 0]
        for i, j in pairs:
            frequencies[i, j] += 1 / 4000
            frequencies[j, i] += 1 / 4000
    assert (np.abs(frequencies - edges) < 5 * np.sqrt(0.25 / 4000)).all()
    best = found[int(np.argmax(totals))]
    if not forest:
        assert {tuple(sorted(e)) for e in trees.mode().tolist()} == set(best[0])


def test_effective_resistances():
    for n, holes in ((2, 0), (6, 0), (12, 0.2)):
        scores = symmetric(n, n, holes)
        weights = np.where(scores > -np.inf, np.exp(scores), 0)
        np.fill_diagonal(weights, 0)
        inverse = np.linalg.pinv(np.diag(weights.sum(axis=0)) - weights)
        own = np.diagonal(inverse)
        expected = own[:, None] + own - 2 * inverse
        found = UndirectedTrees(scores).effective_resistances()
        np.testing.assert_allclose(found, expected, atol=1e-11)
        np.testing.assert_allclose(weights * found, UndirectedTrees(scores).marginals(), atol=1e-11)
    # two triangles joined by a wire of 1e-30 siemens: 1e30 ohms, where a pseudo-inverse has none
    scores = np.full((6, 6), -np.inf)
    scores[:3, :3] = scores[3:, 3:] = 0.0
    scores[2, 3] = scores[3, 2] = np.log(1e-30)
    assert UndirectedTrees(scores).effective_resistances()[0, 5] == pytest.approx(1e30, rel=1e-12)


@pytest.mark.parametrize(
    "call, words",
    [
        (
            lambda: UndirectedTrees([[0, 1], [2, 0]]),
            ["scores[0, 1] is 1.0", "[1, 0] is 2", "symmetric"],
        ),
        (lambda: UndirectedTrees(np.zeros((2, 3))), ["(2, 3)"]),
        (lambda: UndirectedTrees(np.full((2, 2), np.nan)), ["nan"]),
        (lambda: UndirectedTrees(np.zeros((2, 2)), root_scores=[0]), ["root_scores", "(1,)"]),
        (lambda: UndirectedTrees(np.zeros((2, 2))).root_marginals(), ["root_scores is None"]),
        (
            lambda: UndirectedTrees(np.zeros((2, 2)), root_scores=[0, 0]).effective_resistances(),
            ["no root_scores"],
        ),
    ],
)
def test_bad_graphs(call, words):
    with pytest.raises(fg.InvalidInputError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_graphs_in_parts():
    scores = np.full((4, 4), -np.inf)
    scores[0, 1] = scores[1, 0] = scores[2, 3] = scores[3, 2] = 0.0
    with pytest.raises(fg.InfeasibleError):
        UndirectedTrees(scores).log_partition()
    forests = UndirectedTrees(scores, root_scores=np.zeros(4))
    assert forests.log_partition() == pytest.approx(2 * np.log(3), abs=1e-12)


def test_a_batch_of_graphs_is_refused_by_its_shape():
    for batch in (0, 2):
        said = rf"\({batch}, 3, 3\); the shape must be \(n, n\).*; give each graph of a batch alone"
        with pytest.raises(fg.InvalidInputError, match=said):
            fg.UndirectedTrees(np.zeros((batch, 3, 3)))
    with pytest.raises(fg.InvalidInputError, match=r"\(0, 0\); .* one graph with n > 0 nodes$"):
        fg.UndirectedTrees(np.zeros((0, 0)))
