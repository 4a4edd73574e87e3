"""Tree-reweighted messages in lanes are those of the log domain, arc by arc."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.messages.linear_domain import LinearMessages
from fstgrad.mrf.messages.log_domain import LogMessages
from fstgrad.mrf.messages.tree_cover import tree_cover
from fstgrad.mrf.messages.tree_reweighted import VectorizedTreeMessages, tree_messages
from fstgrad.mrf.mini_buckets import MiniBuckets
from fstgrad.mrf.resources import Budget, SpentError
from tests.helpers.fields import assert_equal_sweeps, graph_of_hubs
from tests.mrf.models import random_grid


def assert_equal_messages(model, threads=1, rho=None):
    rho = tree_cover(model.graph).rho if rho is None else rho
    lanes, arcs = (
        VectorizedTreeMessages(model, threads, rho), LogMessages(model, 0, threads, rho),
    )  # fmt: skip
    for damping in (0.0, 0.5, 0.5, 0.3, 0.0):
        change = arcs.sweep(damping)
        assert lanes.sweep(damping) == pytest.approx(change, abs=1e-11 * max(1.0, change))
    (node, value), (other_node, other) = lanes.node_beliefs(), arcs.node_beliefs()
    np.testing.assert_allclose(lanes.messages, arcs.messages, atol=1e-10)
    np.testing.assert_allclose(node, other_node, atol=1e-12)
    assert value == pytest.approx(other, rel=1e-11)
    edges = model.graph.num_edges
    np.testing.assert_allclose(
        lanes.edge_beliefs(0, edges), arcs.edge_beliefs(0, edges), atol=1e-12
    )


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("labels", [2, 3, 4, 19])
def test_lanes_equal_the_log_domain(shared, labels):
    model = graph_of_hubs(np.random.default_rng(4), labels, shared=shared, symmetric=False)
    node, edge = model.scores.node.copy(), model.scores.edge
    node[5, 0], node[700, 1], node[12, 1:] = -np.inf, -np.inf, -np.inf  # dead labels
    assert_equal_messages(fg.PairwiseMRF(node, 20 * edge, model.graph.edges), threads=2)


def test_lanes_of_other_shares():
    """Few shares read a table each in turn; with more than 64 of them each arc has its own."""
    model = random_grid(9, 10, 3, seed=2, scale=2.0)
    rng = np.random.default_rng(5)
    edges = model.graph.num_edges
    assert_equal_messages(model, rho=rng.choice([0.3, 0.7, 1.0], size=edges))
    assert_equal_messages(model, rho=rng.uniform(0.3, 1.0, size=edges))


def test_lanes_are_for_large_graphs_whose_tables_floats_hold():
    grids = random_grid(12, 12, 2, seed=1), random_grid(3, 3, 2, seed=1)
    steep = fg.PairwiseMRF.grid(12, 12, np.zeros((144, 2)), 700 * np.eye(2))
    masked = fg.PairwiseMRF.grid(12, 12, np.zeros((144, 2)), np.where(np.eye(2), 0, -np.inf))
    single = fg.PairwiseMRF.grid(20, 20, np.zeros((400, 1)), np.zeros((1, 1)))
    kinds = [
        type(tree_messages(m, 1, tree_cover(m.graph).rho)) for m in (*grids, steep, masked, single)
    ]
    assert kinds == [VectorizedTreeMessages, LogMessages, LogMessages, LogMessages, LogMessages]
    assert single.infer("trw").log_partition == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_shuffled_graphs_are_swept_in_another_order(shared):
    """A grid whose nodes and edges are shuffled; the messages are those of its own arcs."""
    rng = np.random.default_rng(6)
    grid = random_grid(60, 61, 3, seed=2, shared=shared)
    place, edges = rng.permutation(3660), rng.permutation(grid.graph.num_edges)
    turn = rng.random(len(edges)) < 0.5
    pairs = place[grid.graph.edges[edges]]
    pairs[turn] = pairs[turn, ::-1]
    tables = grid.scores.edge if shared else grid.scores.edge[edges]
    model = fg.PairwiseMRF(grid.scores.node, tables, pairs)
    rank = model.graph.rank
    assert sorted(rank) == list(range(3660))
    assert np.abs(np.diff(rank[pairs], axis=1)).mean() < 100
    assert (grid.graph.rank == np.arange(3660)).all()
    assert_equal_messages(model, threads=2)
    assert_equal_sweeps(model, [t(model, 0, 2) for t in (LinearMessages, LogMessages)], 0.2, 1e-11)


def test_random_graphs_are_swept_in_their_own_order():
    pairs = np.unique(np.sort(np.random.default_rng(1).integers(4000, size=(8000, 2))), axis=0)
    graph = Graph(4000, pairs[pairs[:, 0] < pairs[:, 1]])
    assert (graph.rank == np.arange(4000)).all()


@pytest.mark.parametrize("labels", [2, 5])
def test_lanes_are_exact_on_a_large_tree(labels):
    rng = np.random.default_rng(labels)
    nodes = 300
    pairs = [(i, int(rng.integers(i))) if rng.random() < 0.5 else (int(rng.integers(i)), i)
             for i in range(1, nodes)]  # fmt: skip
    edge = 8 * rng.normal(size=(len(pairs), labels, labels))
    model = fg.PairwiseMRF(8 * rng.normal(size=(nodes + 2, labels)), edge, pairs)
    found = model.infer("trw", damping=0.0, tol=1e-10, max_iter=400)
    exact = model.marginals()
    assert found.converged
    assert found.log_partition == pytest.approx(model.log_partition(), rel=1e-12)
    np.testing.assert_allclose(found.node, exact.node, atol=1e-9)
    np.testing.assert_allclose(found.edge, exact.edge, atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 30.0, 400.0])
@pytest.mark.parametrize("labels", [1, 2, 5])
def test_the_bound_alone_is_that_of_the_log_domain(scale, labels):
    """At 400 products of weights leave the float range."""
    model = random_grid(6, 5, labels, seed=labels, scale=scale, shared=False)
    node, edge = (table.copy() for table in model.scores)
    edge[np.random.default_rng(3).random(edge.shape) < 0.05 * (labels > 1)] = -np.inf
    model = fg.PairwiseMRF(node, edge, model.graph.edges)
    cover = tree_cover(model.graph)
    messages = LogMessages(model, 0, 1, cover.rho)
    for _ in range(4):
        messages.sweep(0.5)
        expected = messages.tree_bound(cover).value
        assert messages.log_bound(cover) == pytest.approx(expected, rel=1e-12)
        assert expected >= model.log_partition() - 1e-9 * abs(expected)


@pytest.mark.parametrize("pieces", [1, 2])
def test_forests_of_a_dense_graph_use_its_edges_equally_often(pieces):
    nodes = 100
    some = [(i, j) for i in range(nodes // 2) for j in range(i)]
    edges = [*some, *((i + nodes // 2, j + nodes // 2) for i, j in some)] if pieces == 2 else some
    cover = tree_cover(Graph.checked(nodes, np.array(edges)))
    forests, size = len(cover.orders), pieces * (nodes // 2 - 1)
    assert 25 <= forests <= 28  # a tree of 50 nodes has a 25th of the edges between them
    assert ((cover.parent_arcs >= 0).sum(axis=1) == size).all()
    for order, arcs in zip(cover.orders, cover.parent_arcs, strict=True):
        place = np.argsort(order)
        child = np.flatnonzero(arcs >= 0)
        heads = np.array(edges).ravel()[arcs[child] ^ 1], np.array(edges).ravel()[arcs[child]]
        np.testing.assert_array_equal(heads[0], child)
        assert (place[heads[1]] < place[child]).all()  # so that it is a forest
    uses = np.bincount(cover.parent_arcs[cover.parent_arcs >= 0] >> 1, minlength=len(edges))
    np.testing.assert_allclose(cover.rho, uses / forests, rtol=1e-15)
    assert uses.min() == 1
    assert uses.max() == 2
    again = tree_cover(Graph.checked(nodes, np.array(edges)))
    np.testing.assert_array_equal(again.parent_arcs, cover.parent_arcs)


def test_the_time_is_checked_while_score_tables_are_read():
    """Reading the edges of a dense graph takes longer than a bound of trees."""
    nodes = 60
    edges = np.stack(np.triu_indices(nodes, 1), axis=1)
    model = fg.PairwiseMRF(np.zeros((nodes, 2)), np.zeros((len(edges), 2, 2)), edges)
    checks = iter(range(2 * nodes))

    class Short(Budget):
        def check(self):
            if next(checks, None) is None:
                raise SpentError

    with pytest.raises(SpentError):  # there are 60 buckets
        MiniBuckets(model, 4, budget=Short())
