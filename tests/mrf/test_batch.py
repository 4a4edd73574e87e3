"""Batches of models on one graph."""

import numpy as np
import pytest

import fstgrad as fg
from tests.mrf.models import random_scores

RNG = np.random.default_rng(0)
NODE = RNG.normal(size=(4, 4, 3))


@pytest.mark.parametrize("shape", [(3, 3), (5, 3, 3), (4, 5, 3, 3)])
@pytest.mark.parametrize("method", ["exact", "pseudolikelihood", "bp"])
def test_items_equal_single_models(shape, method):
    node, edge, edges = random_scores("square with a chord", 3, 0)
    shared_by_items = np.random.default_rng(1).normal(size=shape)
    batch = fg.PairwiseMRFBatch(fg.PairwiseMRF(node, edge, edges), NODE, shared_by_items)
    gold = np.array([[0, 1, 2, 0], [1, 1, 1, 1], [2, 0, 2, 0], [0, 0, 0, 1]])
    values, gradient = batch.nll(gold, method)
    for b in range(4):
        own = shared_by_items[b] if len(shape) == 4 else shared_by_items
        single = fg.PairwiseMRF(NODE[b], own, edges)
        value, table = single.nll(gold[b], method)
        assert values[b] == pytest.approx(value, rel=1e-13)
        np.testing.assert_allclose(gradient.node[b], table.node, atol=1e-13)
        np.testing.assert_allclose(gradient.edge[b], table.edge, atol=1e-13)
        assert batch.log_partition()[b] == pytest.approx(single.log_partition(), rel=1e-13)
        np.testing.assert_allclose(batch.marginals().edge[b], single.marginals().edge, atol=1e-13)
        np.testing.assert_array_equal(batch.mode()[b], single.mode())
    assert batch.sample(3, 0).shape == (4, 3, 4)
    assert batch[0].graph is batch[3].graph
    assert [r.converged for r in batch.infer("bp")] == [True] * 4


def test_bad_batches():
    model = fg.PairwiseMRF(*random_scores("square with a chord", 3, 0))
    with pytest.raises(fg.InvalidInputError, match=r"node_scores has shape \(4, 4, 2\)"):
        fg.PairwiseMRFBatch(model, NODE[..., :2], np.eye(3))
    with pytest.raises(fg.InvalidInputError, match="the same number of items"):
        fg.PairwiseMRFBatch(model, NODE, np.zeros((3, 5, 3, 3)))
    with pytest.raises(fg.InvalidInputError, match="no items"):
        fg.PairwiseMRFBatch(model, NODE[:0], np.eye(3))
    batch = fg.PairwiseMRFBatch(model, NODE, np.eye(3))
    with pytest.raises(fg.InvalidInputError, match="one labeling for each of 4 items"):
        batch.nll([0, 1, 2, 0])
