"""Bad input is named, with indices, the item of a batch and the remedy."""

import numpy as np
import pytest
from scipy.sparse import csr_array, dok_array, lil_array

import fstgrad as fg


def with_value(value, *index, shape=(4, 4)):
    scores = np.zeros(shape)
    scores[index] = value
    return scores


@pytest.mark.parametrize(
    "scores, options, words",
    [
        (np.zeros((3, 4)), {}, ["(3, 4)", "(..., n+1, n+1)"]),
        (np.zeros(4), {}, ["(4,)"]),
        (np.zeros((0, 4, 4)), {}, ["(0, 4, 4)", "empty batch"]),
        (np.zeros((4, 4, 4)), {}, ["labeled=False", "labeled=True"]),
        (np.zeros((3, 4, 2)), {"labeled": True}, ["(..., n+1, n+1, y)"]),
        (with_value(np.nan, 1, 2), {}, ["scores[1, 2] is nan"]),
        (with_value(np.inf, 0, 3), {}, ["scores[0, 3] is inf", "-inf to forbid"]),
        (with_value(np.inf, 2, 0, 3, shape=(5, 4, 4)), {}, ["scores[2, 0, 3]", "item 2"]),
        (with_value(np.nan, 1, 3, 0, shape=(4, 4, 2)), {}, ["scores[1, 3, 0] is nan"]),
        ([["a", "b"], ["c", "d"]], {}, ["not an array of numbers"]),
        (
            np.zeros((2, 4, 4)),
            {"lengths": [3, 4]},
            ["lengths[1] is 4", "words without the root", "from 0 to 3"],
        ),
        (np.zeros((2, 4, 4)), {"lengths": [3, -1]}, ["lengths[1] is -1"]),
        (np.zeros((2, 4, 4)), {"lengths": [3]}, ["lengths has shape (1,)"]),
    ],
)
def test_bad_tables(scores, options, words):
    with pytest.raises(fg.InvalidInputError) as caught:
        fg.SpanningTrees(scores, single_root=True, **options)
    for word in words:
        assert word in str(caught.value)


def infeasible(single_root, *blocked, shape=(4, 4)):
    scores = np.zeros(shape)
    for arc in blocked:
        scores[arc] = -np.inf
    return fg.SpanningTrees(scores, single_root=single_root)


@pytest.mark.parametrize(
    "distribution, words",
    [
        (infeasible(False, np.s_[:, 2]), ["[2] have no allowed head"]),
        (infeasible(True, np.s_[1, :, 3], shape=(2, 4, 4)), ["[3]", "item 1: ", "head"]),
        (
            infeasible(False, np.s_[0, 2:], np.s_[1, 2:]),
            ["from the root to dependents [2, 3]", "Z = 0"],
        ),
        (
            infeasible(True, np.s_[1:, 1], np.s_[1:, 3]),
            ["single root arc", "1 does not reach [3]", "3 does not reach [1]"],
        ),
        (infeasible(True, np.s_[0]), ["to dependents [1, 2, 3]"]),
    ],
)
@pytest.mark.parametrize("question", ["log_partition", "marginals", "mode"])
def test_no_tree_is_named(distribution, words, question):
    with pytest.raises(fg.InfeasibleError) as caught:
        getattr(distribution, question)()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "gold, words",
    [
        ([2, 3, 1], ["gold", "cycle", "to the root"]),
        ([0, 0, 1], ["dependents [1, 2] to the root", "single_root"]),
        ([0, 5, 1], ["head of dependent 2", "5", "to 3"]),
        ([0, -1, 1], ["head of dependent 2", "-1", "lengths="]),
        ([0, 1], ["shape (2,)", "(3,)"]),
        ([0.0, 1.0, 1.0], ["dtype float64"]),
    ],
)
def test_bad_gold_trees(gold, words):
    with pytest.raises(fg.InvalidInputError) as caught:
        fg.SpanningTrees(np.zeros((4, 4)), single_root=True).nll(gold)
    for word in words:
        assert word in str(caught.value)


def test_bad_gold_trees_of_a_batch_name_the_item():
    batch = fg.SpanningTrees(np.zeros((3, 4, 4)), single_root=True)
    with pytest.raises(fg.InvalidInputError, match="gold of item 1 has a cycle"):
        batch.nll([[0, 1, 1], [0, 3, 2], [2, 0, 2]])
    with pytest.raises(
        fg.InfeasibleError, match=r"gold\[0\] has 3 root arcs.*gold\[1\] has 2 root"
    ):
        batch.nll([[0, 0, 0], [0, 0, 1], [2, 0, 2]])
    labeled = fg.SpanningTrees(np.zeros((4, 4, 2)), single_root=True)
    with pytest.raises(fg.InvalidInputError, match="labels"):
        labeled.nll([[0, 0], [1, 2], [1, 0]])


def test_a_forbidden_gold_tree_has_no_probability():
    scores = np.zeros((3, 3))
    scores[0, 1] = -np.inf
    distribution = fg.SpanningTrees(scores, single_root=True)
    value, gradient = distribution.nll([0, 1])
    assert value == np.inf
    np.testing.assert_array_equal(gradient, [[0, -1, 1], [0, 0, -1], [0, 1, 0]])


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda t: t.with_arcs(required=[(1, 0)]), ["required", "(1, 0)"]),
        (lambda t: t.with_arcs(forbidden=[(4, 1)]), ["forbidden", "4"]),
        (lambda t: t.with_arcs(forbidden=[(2, 2)]), ["(2, 2)"]),
        (lambda t: t.covariance_product(np.zeros((3, 3))), ["(3, 3)", "(4, 4)"]),
        (lambda t: t.covariance_product(np.full((4, 4), np.inf)), ["direction[0, 0]"]),
        (lambda t: t.risk(np.full((4, 4), np.nan)), ["costs[0, 0] is nan"]),
        (lambda t: t.generalized_expectation(np.zeros((4, 4)), [0.0]), ["features", "more axis"]),
        (lambda t: t.generalized_expectation(np.zeros((4, 4, 2)), [0.0]), ["target", "(2,)"]),
        (lambda t: t.renyi(-1), ["order"]),
        (lambda t: t.scaled(0), ["factor"]),
        (lambda t: t.sample(0), ["k is 0"]),
        (lambda t: t.kbest(1.5), ["k is 1.5"]),
        (lambda t: t.sample(1, "seed"), ["rng"]),
        (lambda t: t.sample(1, 0, method="mcmc"), ["method", "wilson"]),
        (
            lambda t: t.kl_and_gradients(t.with_arcs(forbidden=[(1, 2)])),
            ["other forbids", "[1, 2]", "+inf"],
        ),
        (lambda t: t.norm(0), ["order"]),
        (lambda t: t.norm(-np.inf), ["order", "or inf"]),
        (lambda t: t.renyi(np.nan), ["order", "a number >= 0 or inf"]),
        (lambda t: t.expectations(lil_array([[np.nan]] * 16)), ["r.data", "nan"]),
        (lambda t: t.second_moments(np.zeros((4, 4, 1)), np.zeros((4, 4))), ["s has", "more axis"]),
        (
            lambda t: fg.SpanningTrees(np.zeros((2, 3, 3)), single_root=True).second_moments(
                np.zeros((2, 3, 3, 1)), csr_array((9, 1))
            ),
            ["s is sparse", "without a batch"],
        ),
        (lambda t: t.scaled(1e3).with_scores(t.scores + 300).totals(np.ones((4, 4, 1))), ["log Z"]),
        (lambda t: t.with_scores(t.scores - 300).totals(np.ones((4, 4, 1))), ["range", "log Z"]),
    ],
)
def test_bad_arguments(call, words):
    with pytest.raises(fg.InvalidInputError) as caught:
        call(fg.SpanningTrees(np.zeros((4, 4)), single_root=True))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("kind", [lil_array, dok_array])
def test_every_sparse_format_is_read(kind):
    p = fg.SpanningTrees(np.arange(16.0).reshape(4, 4), single_root=True)
    table = np.random.default_rng(0).integers(0, 2, size=(16, 2)).astype(float)
    r, s = kind(table), csr_array(table)
    np.testing.assert_array_equal(p.expectations(r), p.expectations(s))
    np.testing.assert_array_equal(p.second_moments(r, r), p.second_moments(s, s))


def test_divergence_from_a_narrower_distribution_is_infinite():
    p = fg.SpanningTrees(np.zeros((4, 4)), single_root=True)
    assert p.kl(p.with_arcs(forbidden=[(1, 2)])) == np.inf


def test_results_cannot_be_written_into():
    p = fg.SpanningTrees(np.zeros((4, 4)), single_root=True)
    with pytest.raises(ValueError, match="read-only"):
        p.marginals()[0, 1] = 2
