"""The contract of a distribution, on forests and on graphs with loops."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf.scored_graph import Table
from tests.contract import DistributionContract, Enumerated
from tests.mrf.models import SHAPES, masked_model, random_model
from tests.oracles import mrf as oracle


def enumerated(model):
    sizes = model.labels_per_node
    edges = model.graph.edges.tolist()
    structures = oracle.labelings(sizes)
    tables = [oracle.parts(y, model.scores.node.shape, edges) for y in structures]

    def with_scores(scores):
        return fg.PairwiseMRF(*scores, edges, sizes)

    return Enumerated(
        model, structures, tables, np.zeros(len(structures)), tuple(model.scores), with_scores
    )


class TestForest(DistributionContract):
    takes_costs = True

    def cases(self):
        models = [random_model("one node", 2), random_model("star"), masked_model("chain")]
        return [enumerated(m) for m in models]

    def like(self, arrays, distribution):
        return Table(*arrays)


class TestElimination(TestForest):
    def cases(self):
        models = [random_model("triangle"), masked_model("square with a chord")]
        return [enumerated(m) for m in models]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("build", [random_model, masked_model])
@pytest.mark.parametrize("seed", range(3))
def test_exact_equals_enumeration(name, build, seed):
    model = build(name, seed=seed)
    log_z, node, edge, best = oracle.solve(
        *model.scores, model.graph.edges.tolist(), model.labels_per_node
    )
    assert model.log_partition() == pytest.approx(log_z, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(model.marginals().node, node, atol=1e-12)
    np.testing.assert_allclose(model.marginals().edge, edge, atol=1e-12)
    assert model.score(model.mode()) == pytest.approx(best, rel=1e-12, abs=1e-12)


def test_shared_scores_sum_their_gradient():
    rng = np.random.default_rng(3)
    node, table, edges = rng.normal(size=(4, 3)), rng.normal(size=(3, 3)), [(0, 1), (2, 1), (2, 3)]
    shared = fg.PairwiseMRF(node, table, edges)
    own = fg.PairwiseMRF(node, np.stack([table] * 3), edges)
    gold = [0, 2, 1, 1]
    value, gradient = shared.nll(gold)
    own_value, own_gradient = own.nll(gold)
    assert value == pytest.approx(own_value, rel=1e-14)
    np.testing.assert_allclose(gradient.edge, own_gradient.edge.sum(axis=0), atol=1e-14)
    np.testing.assert_allclose(gradient.node, own_gradient.node, atol=1e-14)
    assert shared.entropy() == pytest.approx(own.entropy(), rel=1e-13)


def test_condition_equals_the_restricted_sum():
    model = masked_model("square with a chord")
    edges, sizes = model.graph.edges.tolist(), model.labels_per_node
    agreeing = [
        oracle.score(y, *model.scores, edges)
        for y in oracle.labelings(sizes)
        if y[1] == 1 and y[3] == 0
    ]
    given = model.condition({1: 1, 3: 0})
    assert given.log_partition() == pytest.approx(np.logaddexp.reduce(agreeing), rel=1e-13)
    assert given.marginals().node[1].tolist() == [0, 1, 0]


def test_forest_of_100_000_nodes_equals_the_transfer_matrix():
    rng = np.random.default_rng(5)
    n, labels = 100_000, 3
    node, edge = rng.normal(size=(n, labels)), rng.normal(size=(n - 1, labels, labels))
    edges = np.stack((np.arange(n - 1), np.arange(1, n)), axis=1)
    chain = fg.PairwiseMRF(node, edge, edges)
    expected = oracle.transfer_matrix(node, edge)
    assert chain.log_partition() == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(chain.marginals().node.sum(axis=1), 1, atol=1e-12)
    # the same chain with its nodes renamed and half of its edges turned round
    rename = rng.permutation(n)
    turned = rename[edges].copy()
    turned[::2] = turned[::2, ::-1]
    edge = edge.copy()
    edge[::2] = edge[::2].transpose(0, 2, 1)
    shuffled = fg.PairwiseMRF(node[np.argsort(rename)], edge, turned)
    assert shuffled.log_partition() == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(
        shuffled.marginals().node[rename], chain.marginals().node, atol=1e-12
    )


@pytest.mark.parametrize("sd", [50, 100, 1000])
def test_extreme_scores(sd):
    for name in ("chain", "complete"):
        model = random_model(name, seed=7, scale=sd)
        log_z, node, edge, _ = oracle.solve(*model.scores, model.graph.edges.tolist())
        assert model.log_partition() == pytest.approx(log_z, rel=1e-13)
        np.testing.assert_allclose(model.marginals().node, node, atol=1e-10)
        np.testing.assert_allclose(model.marginals().edge, edge, atol=1e-10)


def test_closed_forms():
    # a cycle of n spins with coupling J: Z = (2 cosh J)^n + (2 sinh J)^n
    n, coupling = 7, 0.4
    edges = [(i, (i + 1) % n) for i in range(n)]
    cycle = fg.PairwiseMRF(np.zeros((n, 2)), coupling * np.array([[1, -1], [-1, 1]]), edges)
    expected = np.log((2 * np.cosh(coupling)) ** n + (2 * np.sinh(coupling)) ** n)
    assert cycle.log_partition() == pytest.approx(expected, rel=1e-14)
    # proper colourings of that cycle with q colours: (q - 1)^n + (-1)^n (q - 1)
    q = 3
    forbid = np.where(np.eye(q) == 1, -np.inf, 0.0)
    colourings = fg.PairwiseMRF(np.zeros((n, q)), forbid, edges)
    assert colourings.log_partition() == pytest.approx(np.log((q - 1) ** n - (q - 1)), rel=1e-14)
    assert colourings.entropy() == pytest.approx(np.log((q - 1) ** n - (q - 1)), rel=1e-13)


def test_two_engines_agree_on_a_grid():
    # a 1 x n grid is a forest; the same scores with a forbidden detour are not
    from fstgrad.mrf.exact.elimination import Elimination

    model = fg.PairwiseMRF.grid(1, 30, np.random.default_rng(0).normal(size=(30, 4)), np.eye(4))
    other = Elimination(model)
    assert model.log_partition() == pytest.approx(other.log_partition(), rel=1e-13)
    for mine, theirs in zip(model.marginals(), other.marginals(), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-13)


@pytest.mark.parametrize("loop", [False, True])
def test_scores_beyond_the_float_range_that_cancel(loop):
    # e^-900 is no float, but the node's 900 makes up for the edge's -900: all labelings are equal
    edges = [(0, 1), (1, 2), (2, 0)] if loop else [(0, 1)]
    node, edge = np.zeros((3, 2)), np.zeros((len(edges), 2, 2))
    node[1, 1], edge[0, :, 1] = 900.0, -900.0
    model = fg.PairwiseMRF(node, edge, edges)
    assert model.log_partition() == pytest.approx(3 * np.log(2), rel=1e-13)
    np.testing.assert_allclose(model.marginals().node, 0.5, atol=1e-13)
    bp = model.infer("bp")
    np.testing.assert_allclose(bp.node, 0.5, atol=1e-13)


def test_a_plan_serves_shared_scores_and_those_of_each_edge():
    model = random_model("complete", seed=1)
    shared = model.with_scores(model.scores.node, model.scores.edge[0])
    again = fg.PairwiseMRF(*shared.scores, model.graph.edges)
    for one, other in ((model, random_model("complete", seed=1)), (shared, again)):
        assert one.log_partition() == pytest.approx(other.log_partition(), rel=1e-13)
        np.testing.assert_allclose(one.marginals().edge, other.marginals().edge, atol=1e-13)


def test_evidence_changes_without_a_new_plan():
    model = random_model("complete", seed=2)
    model.log_partition()
    known = dict(model.graph.cache)
    for label in range(3):
        given = model.condition({1: label})
        scores = [model.score(y) for y in oracle.labelings([3] * 4) if y[1] == label]
        assert given.log_partition() == pytest.approx(np.logaddexp.reduce(scores), rel=1e-13)
        assert given.marginals().node[1, label] == pytest.approx(1)
        assert given.mode()[1] == label
    assert model.graph.cache == known
