"""Every kernel of belief propagation and of pseudolikelihood equals the definition."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf import reference
from fstgrad.mrf.arrays import Factors
from fstgrad.mrf.graph import Graph
from fstgrad.mrf.messages.grid import GridMessages
from fstgrad.mrf.messages.linear_domain import LinearMessages, _LayoutSweeps
from fstgrad.mrf.messages.log_domain import LogMessages, ResidualMessages
from fstgrad.mrf.messages.tree_reweighted import VectorizedTreeMessages
from fstgrad.mrf.scored_graph import ScoredGraph
from tests.mrf.models import random_grid, random_model


def terms(model):
    """The arguments that the definitions share: s^N, s^E, edges."""
    shape = (model.graph.num_edges, model.num_labels, model.num_labels)
    return model.scores.node, np.broadcast_to(model.scores.edge, shape), model.graph.edges


def defined(model, dampings, maximum=False):
    """The logarithms of the messages after one iteration for each damping."""
    z = np.ones((2 * model.graph.num_edges, model.num_labels))
    for damping in dampings:
        z = reference.updated_messages(*terms(model), z, damping, maximum=maximum)
    return np.log(z)


def in_the_log_domain(model, maximum):
    messages = LogMessages(model, maximum, 1)
    return messages, lambda: messages.messages


def in_the_linear_domain(model, maximum):
    messages = LinearMessages(model, maximum, 1)
    return messages, lambda: messages._arcs.messages


def in_a_layout(model, maximum):
    """Also for two labels, which have a kernel of their own by default."""
    messages = LinearMessages(model, maximum, 1)
    messages.sweeps = _LayoutSweeps(messages, 1)
    return messages, lambda: messages._arcs.messages


def on_a_grid(model, maximum):
    messages = GridMessages(model, maximum, 1)
    return messages, lambda: messages._arcs.messages


def by_trees(model, maximum):
    """Tree-reweighted messages with all shares 1 are those of belief propagation."""
    assert maximum == 0
    messages = VectorizedTreeMessages(model, 1, np.ones(model.graph.num_edges))

    def read():
        messages.sum_up()
        return messages.messages

    return messages, read


def between_factors(model, maximum):
    """The edges as factors, which have messages of their own."""
    _, tables, edges = terms(model)
    pairs = [(pair, table) for pair, table in zip(edges.tolist(), tables, strict=True)]
    no_edges = Graph(model.num_nodes, np.zeros((0, 2), np.int64))
    no_tables = np.zeros((0, model.num_labels, model.num_labels))
    factors = Factors.pack(model.num_nodes, pairs)
    messages = LogMessages(
        ScoredGraph(no_edges, model.scores.node, no_tables, factors=factors), maximum, 1
    )
    swapped = np.arange(2 * len(pairs)) ^ 1  # slot 2e is the first node: its message comes back
    return messages, lambda: messages.factor_to_variable[swapped]


SUMS = [in_the_log_domain, in_the_linear_domain, in_a_layout, on_a_grid, between_factors, by_trees]
CASES = [(kind, maximum) for kind in SUMS for maximum in (0, 1) if (kind, maximum) != (by_trees, 1)]


@pytest.mark.parametrize("labels, shared", [(2, True), (2, False), (3, True), (5, False)])
@pytest.mark.parametrize("kind, maximum", CASES, ids=[f"{k.__name__} {m}" for k, m in CASES])
def test_messages_are_those_of_the_definition(kind, maximum, labels, shared):
    model = random_grid(3, 4, labels, seed=labels, scale=1.5, shared=shared)
    messages, read = kind(model, maximum)
    dampings = (0.0, 0.4, 0.0, 0.25)
    for damping in dampings:
        messages.sweep(damping)
    np.testing.assert_allclose(read(), defined(model, dampings, bool(maximum)), atol=1e-11)


@pytest.mark.parametrize("maximum", [0, 1])
def test_the_residual_schedule_begins_with_the_same_messages(maximum):
    model = random_model("square with a chord")
    pending = ResidualMessages(model, maximum, 1e-9, 0.0).queue.pending
    np.testing.assert_allclose(pending, defined(model, [0.0], bool(maximum)), atol=1e-13)


@pytest.mark.parametrize("shape", ["triangle", "complete", "loop and tree"])
def test_beliefs_and_the_estimate_are_those_of_the_definition(shape):
    model = random_model(shape)
    found = model.infer("bp", max_iter=6, tol=0.0)
    z = np.exp(defined(model, 6 * [0.0]))
    nodes = [reference.node_belief(n, model.scores.node, model.graph.edges, z)
             for n in range(model.num_nodes)]  # fmt: skip
    edges = [reference.edge_belief(e, *terms(model), z) for e in range(model.graph.num_edges)]
    np.testing.assert_allclose(found.node, [b / b.sum() for b in nodes], atol=1e-12)
    np.testing.assert_allclose(found.edge, [b / b.sum() for b in edges], atol=1e-12)
    value = reference.bethe_log_partition(*terms(model), z)
    assert found.log_partition == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("shape", ["chain", "star", "two trees"])
def test_the_definition_is_exact_on_trees(shape):
    model = random_model(shape)
    z = np.exp(defined(model, model.num_nodes * [0.0]))
    value = reference.bethe_log_partition(*terms(model), z)
    assert value == pytest.approx(model.log_partition(), rel=1e-12)
    for n, marginal in enumerate(model.marginals().node):
        belief = reference.node_belief(n, model.scores.node, model.graph.edges, z)
        np.testing.assert_allclose(belief / belief.sum(), marginal, atol=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_pseudolikelihood_is_that_of_the_definition(shared):
    model = random_grid(3, 3, 3, seed=1, scale=1.5, shared=shared)
    gold = np.random.default_rng(2).integers(3, size=9)
    value, gradient = model.nll(gold, "pseudolikelihood")
    expected, grad_n, grad_e = reference.pseudolikelihood(*terms(model), gold)
    assert value == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(gradient.node, grad_n, atol=1e-13)
    np.testing.assert_allclose(gradient.edge, grad_e.sum(0) if shared else grad_e, atol=1e-13)


def test_a_conditional_is_one_gibbs_draw():
    """On two nodes it is a row of the joint table, normalized."""
    table = np.array([[0.0, 1.0], [2.0, -1.0]])
    model = fg.PairwiseMRF(np.zeros((2, 2)), table, [(0, 1)])
    p = reference.conditional(0, *terms(model), np.array([0, 1]))
    assert p == pytest.approx(np.exp([1.0, -1.0]) / (np.e + 1 / np.e))
