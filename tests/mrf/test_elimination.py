"""Elimination in segments: the answers do not depend on how much memory the messages may take."""

import numpy as np
import pytest
from scipy.special import logsumexp

import fstgrad as fg
from fstgrad.mrf.bounds import engine_of
from fstgrad.mrf.exact.bucket_tree import BucketTree
from fstgrad.mrf.exact.elimination import Elimination
from fstgrad.mrf.resources import Budget
from tests.helpers.fields import model_of
from tests.mrf.models import random_grid, random_model
from tests.oracles import mrf as oracle


def in_segments(monkeypatch, number):
    monkeypatch.setattr(BucketTree, "segmented", lambda self, max_memory: self._in_segments(number))


@pytest.mark.parametrize("number", [2, 3, 8])
@pytest.mark.parametrize("scale", [0.7, 200.0])  # products of weights, sums of logarithms
def test_segments_change_nothing(monkeypatch, number, scale):
    models = [
        random_grid(5, 6, 3, seed=1, scale=scale),
        random_model("two trees", scale=scale),
        model_of(2, scale=1.0)[0],
    ]
    for model in models:
        whole = Elimination(model)
        marginals, best = whole.marginals(), model.score(whole.mode())
        draws = whole.sample(20, np.random.default_rng(0))
        with monkeypatch.context() as patch:
            in_segments(patch, number)
            segmented = Elimination(model)
            for mine, other in zip(segmented.marginals(), marginals, strict=True):
                np.testing.assert_array_equal(mine, other)
            assert model.score(segmented.mode()) == best
            again = segmented.sample(20, np.random.default_rng(0))
        np.testing.assert_array_equal(again, draws)


def test_segments_are_taken_where_memory_asks_for_them():
    model = random_grid(12, 12, 2, seed=3)
    whole = Elimination(model)
    needed = whole.tree.needed(whole.tree.program)
    small = Elimination(model, 3 * needed // 4)
    segmented = small.tree.segmented(3 * needed // 4)
    assert len(segmented.segments) > 1
    assert small.tree.needed(segmented.program) <= 3 * needed // 4
    np.testing.assert_allclose(small.marginals().node, whole.marginals().node, atol=1e-14)
    assert model.score(small.mode()) == model.score(whole.mode())
    assert len(whole.tree.segmented(needed).segments) == 1
    with pytest.raises(fg.MemoryLimitError, match="max_memory"):
        Elimination(model, 8 * max(whole.plan.cells)).marginals()


def test_tables_of_four_gib_are_the_limit():
    pairs = [(i, j) for i in range(30) for j in range(i)]
    model = fg.PairwiseMRF(np.zeros((30, 2)), np.zeros((len(pairs), 2, 2)), pairs)
    with pytest.raises(fg.MemoryLimitError, match=r"max_memory = 4\.00 GiB"):
        model.log_partition()


def test_a_ladder_of_many_rungs_is_a_product_of_matrices(monkeypatch):
    monkeypatch.setattr("fstgrad.mrf.exact.plan.LARGEST_BITS", 10)  # more nodes: sets, not bits
    rng = np.random.default_rng(0)
    node, edge = rng.normal(size=(40, 2, 2)), rng.normal(size=(2, 2))
    states = [(a, b) for a in (0, 1) for b in (0, 1)]
    own = [[left[a] + right[b] + edge[a, b] for a, b in states] for left, right in node]
    step = np.array([[edge[a, c] + edge[b, d] for c, d in states] for a, b in states])
    alpha = np.array(own[0])
    for scores in own[1:]:
        alpha = logsumexp(alpha[:, None] + step, axis=0) + scores
    model = fg.PairwiseMRF.grid(40, 2, node.reshape(80, 2), edge)
    assert model.log_partition() == pytest.approx(logsumexp(alpha), rel=1e-12)


def test_the_largest_table_of_an_exact_part_has_max_cells():
    pairs = [(a, b) for b in range(4) for a in range(b)]
    model = fg.PairwiseMRF(np.zeros((4, 2)), np.eye(2), pairs)
    assert engine_of(model, 16, Budget()).log_partition() == pytest.approx(model.log_partition())
    with pytest.raises(fg.MemoryLimitError):
        engine_of(model, 15, Budget())


def assert_enumerated(model, base):
    """Every exact answer of the model is that of the base, whose scores are of moderate size."""
    log_z, node, edge, best = oracle.solve(*base.scores, base.graph.edges)
    exact = Elimination(model)
    assert exact.log_partition() == pytest.approx(log_z, abs=1e-9)
    np.testing.assert_allclose(exact.marginals().node, node, atol=1e-9)
    np.testing.assert_allclose(exact.marginals().edge, edge, atol=1e-9)
    assert base.score(exact.mode()) == pytest.approx(best)
    draws = exact.sample(4000, np.random.default_rng(0))
    shares = np.stack([(draws == c).mean(axis=0) for c in range(3)], axis=1)
    np.testing.assert_allclose(shares, node, atol=0.035)


def test_tables_whose_weights_underflow_are_sums_of_logs():
    """What the nodes add, the edges take away: most weights of a table are 0 in floats."""
    base = random_model("complete", seed=5)
    own, pairs = base.scores.node.copy(), base.scores.edge.copy()
    shifts = 700.0 * np.eye(3)[[0, 1, 2, 0]]
    for e, (i, j) in enumerate(base.graph.edges):
        own[i] += shifts[i]
        own[j] += shifts[j]
        pairs[e] -= shifts[i][:, None] + shifts[j]
    assert_enumerated(base.with_scores(own, pairs), base)


def test_products_of_weights_that_underflow_are_sums_of_logs():
    """Every table fits floats, but not the product of all that the node in the middle hears."""
    rng = np.random.default_rng(2)
    edges = [(0, i) if i % 2 else (i, 0) for i in range(1, 7)]
    base = fg.PairwiseMRF(rng.normal(size=(7, 3)), rng.normal(size=(6, 3, 3)), edges)
    pairs = base.scores.edge.copy()
    pairs[0::2, 0] -= 300.0  # one leaf of a pair is against label 0, the other for it
    pairs[1::2, :, 0] += 300.0
    assert_enumerated(base.with_scores(base.scores.node, pairs), base)
