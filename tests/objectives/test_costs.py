"""`fg.risk` and `fg.softmax_margin` of trees and fields beyond the contract of one structure.

`tests/contract.py` compares both with sums over all structures.
"""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf.scored_graph import Table


@pytest.mark.parametrize("family", [fg.SpanningTrees, fg.ProjectiveTrees])
def test_a_batch_of_trees_is_its_items(family):
    rng = np.random.default_rng(0)
    scores, costs = rng.normal(size=(2, 2, 5, 5))
    scores[1, 3:] = scores[1, :, 3:] = np.nan  # padding
    lengths, gold = [4, 2], np.array([[2, 0, 2, 3], [0, 1, -1, -1]])
    batch = family(scores, single_root=True, lengths=lengths, labeled=False)
    risks, margins = fg.risk(batch, costs), fg.softmax_margin(batch, gold, costs)
    for i, n in enumerate(lengths):
        inner = slice(n + 1)
        alone = family(scores[i, inner, inner], single_root=True)
        own_costs = costs[i, inner, inner]
        for found, expected in (
            (risks, fg.risk(alone, own_costs)),
            (margins, fg.softmax_margin(alone, gold[i, :n], own_costs)),
        ):
            assert found[0][i] == pytest.approx(expected[0], abs=1e-12)
            np.testing.assert_allclose(found[1][i][inner, inner], expected[1], atol=1e-12)


def test_shared_edges_sum_their_gradient():
    rng = np.random.default_rng(1)
    edges, gold = [(0, 1), (1, 2), (2, 3), (3, 0)], [0, 1, 2, 0]
    node, edge, costs = rng.normal(size=(4, 3)), rng.normal(size=(3, 3)), rng.normal(size=(4, 3))
    shared = fg.PairwiseMRF(node, edge, edges)
    separate = fg.PairwiseMRF(node, np.stack([edge] * 4), edges)
    edge_costs = rng.normal(size=(3, 3))
    both = Table(costs, edge_costs), Table(costs, np.stack([edge_costs] * 4))
    for one, two in (
        [fg.risk(model, table) for model, table in zip((shared, separate), both, strict=True)],
        [
            fg.softmax_margin(model, gold, table)
            for model, table in zip((shared, separate), both, strict=True)
        ],
    ):
        assert one[0] == pytest.approx(two[0], abs=1e-12)
        np.testing.assert_allclose(one[1].node, two[1].node, atol=1e-12)
        np.testing.assert_allclose(one[1].edge, two[1].edge.sum(axis=0), atol=1e-12)
    for value, gradient in (
        fg.risk(shared, shared.hamming_costs(gold)),
        fg.softmax_margin(shared, gold, shared.hamming_costs(gold)),
    ):
        assert np.isfinite(value)
        assert gradient.edge.shape == (3, 3)


def test_the_hamming_margin_of_a_field_without_edges():
    """Each node by itself: log(e^s_gold + sum of e^(s + 1)) - s_gold."""
    node = np.random.default_rng(2).normal(size=(3, 4))
    field = fg.PairwiseMRF(node, np.zeros((4, 4)), np.zeros((0, 2), dtype=int))
    gold = np.array([3, 0, 2])
    value, _ = fg.softmax_margin(field, gold, field.hamming_costs(gold))
    augmented = node + 1
    augmented[np.arange(3), gold] -= 1
    expected = np.logaddexp.reduce(augmented, axis=1) - node[np.arange(3), gold]
    assert value == pytest.approx(expected.sum(), abs=1e-12)


def test_a_forbidden_gold_tree():
    scores = np.zeros((3, 3))
    scores[0, 1] = -np.inf
    trees = fg.SpanningTrees(scores, single_root=True)
    value, gradient = fg.softmax_margin(trees, [0, 1], trees.hamming_costs([0, 1]))
    assert value == np.inf
    assert np.isfinite(gradient).all()


def test_errors():
    trees = fg.SpanningTrees(np.zeros((4, 4)), single_root=True)
    field = fg.PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), [(0, 1)])
    gold = [0, 1, 2]
    for call, words in (
        (lambda: fg.risk(trees, np.zeros((4, 5))), "costs"),
        (lambda: fg.risk(trees, np.full((4, 4), np.inf)), r"b\[0, 0\] is inf"),
        (lambda: fg.softmax_margin(trees, gold, np.zeros((4, 5))), "costs"),
        (lambda: fg.softmax_margin(trees, [0, 3, 2], np.zeros((4, 4))), "cycle"),
        (lambda: fg.softmax_margin(trees, gold, engine="openfst"), "engine"),
        (lambda: fg.risk(field, np.zeros((2, 2))), "costs"),
        (lambda: fg.softmax_margin(field, [0, 0], np.zeros((2, 2))), "costs"),
        (lambda: fg.softmax_margin(field, [0, 2], field.hamming_costs([0, 1])), "2"),
    ):
        with pytest.raises(fg.InvalidInputError, match=words):
            call()
    strings = fg.StringDistribution(np.zeros((3, 2)))
    with pytest.raises(fg.NotSupportedError, match="a loss"):
        fg.softmax_margin(strings, [0, 1, 1], np.zeros((3, 2)))
    lattice = fg.Lattice.from_nbest(["ab", "b"], [0.0, 0.0], fg.Alphabet("ab"))
    with pytest.raises(fg.NotSupportedError, match="nll"):
        lattice.softmax_margin("b", np.zeros(lattice.num_arcs))


def test_a_loss_beside_costs_and_families_without_objectives():
    trees, costs = fg.SpanningTrees(np.zeros((3, 3)), single_root=True), np.ones((3, 3))
    with pytest.raises(fg.InvalidInputError, match="takes a table of costs"):
        fg.risk(trees, costs, fg.Hamming(fg.Alphabet("ab")))
    undirected = fg.UndirectedTrees(np.zeros((3, 3)))
    for call in (lambda: fg.risk(undirected, costs), lambda: fg.softmax_margin(undirected, [0])):
        with pytest.raises(fg.NotSupportedError, match="UndirectedTrees has no"):
            call()


@pytest.mark.parametrize("mask", [-1e20, -1e30, np.finfo(float).min])
def test_costs_beside_masks_that_every_structure_needs(mask):
    """Scores of a dependent, a node or an edge all masked: the mask is no difference of scores."""
    rng = np.random.default_rng(0)
    scores, costs = rng.normal(size=(2, 4, 4))
    scores[:, 2] = 0.0
    masked = scores.copy()
    masked[:, 2] = mask
    for family in (fg.SpanningTrees, fg.ProjectiveTrees):
        plain, hidden = (family(s, single_root=True) for s in (scores, masked))
        expected, found = (fg.softmax_margin(d, [0, 1, 1], costs) for d in (plain, hidden))
        assert found[0] == pytest.approx(expected[0], abs=1e-12)
        np.testing.assert_allclose(found[1], expected[1], atol=1e-12)
    node, edge = np.array([[0.0, 0.0], [0.3, 0.0]]), rng.normal(size=(2, 2))
    plain = fg.PairwiseMRF(node, edge, [(0, 1)])
    hidden = fg.PairwiseMRF(np.add(node, [[mask], [0.0]]), edge, [(0, 1)])
    costs = plain.hamming_costs([0, 1])
    expected, found = (fg.softmax_margin(m, [0, 1], costs) for m in (plain, hidden))
    assert found[0] == pytest.approx(expected[0], abs=1e-12)
    np.testing.assert_allclose(found[1].node, expected[1].node, atol=1e-12)
    hidden = fg.PairwiseMRF(node, edge + mask, [(0, 1)])
    plain = fg.PairwiseMRF(node, np.zeros((2, 2)), [(0, 1)])
    expected, found = (fg.softmax_margin(m, [0, 1], costs) for m in (plain, hidden))
    assert found[0] == pytest.approx(expected[0], abs=1e-12)
