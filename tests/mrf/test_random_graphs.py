"""Any small graph: exact answers by enumeration, and what must hold between the methods."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fstgrad as fg
from fstgrad.mrf.exact.elimination import Elimination
from fstgrad.mrf.exact.plan import any_order, make_plan
from fstgrad.mrf.graph import Graph, grid_edges
from fstgrad.mrf.resources import Budget, SpentError
from tests.mrf.models import random_grid
from tests.oracles import mrf as oracle


@st.composite
def models(draw):
    """Up to five nodes of one to three labels, any graph, finite scores or hard zeros."""
    nodes = draw(st.integers(1, 5))
    pairs = list(itertools.combinations(range(nodes), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    edges = [pair if draw(st.booleans()) else pair[::-1] for pair in chosen]
    sizes = draw(st.lists(st.integers(1, 3), min_size=nodes, max_size=nodes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.5, 5.0, 60.0]))
    node, edge = (scale * rng.normal(size=s) for s in ((nodes, 3), (len(edges), 3, 3)))
    if draw(st.booleans()):
        edge[rng.random(edge.shape) < 0.2] = -np.inf
    return fg.PairwiseMRF(node, edge, edges, sizes)


@settings(max_examples=60, deadline=None)
@given(models())
def test_exact_equals_enumeration(model):
    edges = model.graph.edges.tolist()
    log_z, node, edge, best = oracle.solve(*model.scores, edges, model.labels_per_node)
    if log_z == -np.inf:
        with pytest.raises(fg.InfeasibleError):
            model.log_partition()
        return
    assert model.log_partition() == pytest.approx(log_z, rel=1e-12, abs=1e-11)
    np.testing.assert_allclose(model.marginals().node, node, atol=1e-10)
    np.testing.assert_allclose(model.marginals().edge, edge, atol=1e-10)
    assert model.score(model.mode()) == pytest.approx(best, rel=1e-12, abs=1e-11)
    if model.graph.is_forest:
        bp = model.infer("bp", tol=1e-13, max_iter=50)
        assert bp.log_partition == pytest.approx(log_z, rel=1e-11, abs=1e-10)
        np.testing.assert_allclose(bp.edge, edge, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(models())
def test_a_plan_is_a_tree_of_cliques(model):
    graph, sizes = model.graph, model.labels_per_node.tolist()
    plan = make_plan(graph, sizes)
    assert sorted(plan.order) == list(range(graph.num_nodes))
    for k, (v, clique) in enumerate(zip(plan.order, plan.cliques, strict=True)):
        assert clique[-1] == v
        if plan.parent[k] >= 0:
            assert plan.parent[k] > k
            assert set(clique[:-1]) <= set(plan.cliques[plan.parent[k]])
    for a, b in graph.edges.tolist():
        assert any({a, b} <= set(clique) for clique in plan.cliques)


class Looks(Budget):
    """A budget that is spent at the n-th look, and counts them."""

    def __init__(self, number):
        vars(self).update(number=number, seen=0)

    def check(self):
        vars(self)["seen"] += 1
        if self.seen >= self.number:
            raise SpentError


def test_a_search_for_an_order_looks_at_the_time():
    """Every sixteen steps of each search; what is found by then is the plan."""
    graph = Graph(120, grid_edges(6, 20))
    sizes, endless = [3] * 120, Looks(np.inf)
    best = make_plan(graph, sizes, budget=endless)
    assert endless.seen >= 2 * 120 / 16
    with pytest.raises(SpentError):
        make_plan(graph, sizes, budget=Looks(7))
    early = make_plan(graph, sizes, budget=Looks(12))
    assert sorted(early.order) == list(range(120))
    assert sum(early.cells) >= sum(best.cells)
    assert any_order(graph, sizes, Looks(3)) == list(range(120))
    assert any_order(graph, sizes) != list(range(120))
    large = Graph(9000, np.stack((np.arange(8999), np.arange(1, 9000)), axis=1))
    with pytest.raises(SpentError):
        make_plan(large, [2] * 9000, budget=Looks(500))


def test_bounds_do_without_an_order_that_is_not_found_in_time():
    model = random_grid(5, 6, 2, seed=3)
    found = model.infer("bounds", max_seconds=1e-9, tolerance=0)
    assert found.lower < model.log_partition() < found.upper
    assert model.infer("bounds", tolerance=0, max_seconds=1e5).upper == pytest.approx(
        model.log_partition()
    )


def test_predicted_memory_is_what_the_tables_take():
    # a chain of five binary nodes, in the given order: cliques of 2 x 2 cells
    model = fg.PairwiseMRF(np.zeros((5, 2)), np.eye(2), [(i, i + 1) for i in range(4)])
    plan = make_plan(model.graph, [2] * 5)
    assert plan.width == 1
    assert sum(plan.cells) == 4 * 4 + 2
    assert sum(plan.messages) == 4 * 2 + 1
    with pytest.raises(fg.MemoryLimitError, match="a clique of 2 nodes, 4 cells"):
        plan.require(8 * 4, 16)
    # going up, a message takes the place of one that was read: two of 2 cells, and the last of 1
    engine = Elimination(model)
    assert engine.tree.upward_program.message[-1] == 2 + 2 + 1
    with pytest.raises(fg.MemoryLimitError, match="max_memory"):
        Elimination(model, 8 * (2 + 2 + 1 + 4) - 1).log_partition()
    assert Elimination(model, 8 * (2 + 2 + 1 + 4)).log_partition() == pytest.approx(
        model.log_partition()
    )
