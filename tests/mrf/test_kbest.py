"""The k best labelings against enumeration."""

import itertools

import numpy as np
import pytest

import fstgrad as fg


def models():
    rng = np.random.default_rng(0)
    chain = fg.PairwiseMRF(
        rng.normal(size=(4, 3)), rng.normal(size=(3, 3)), [(0, 1), (1, 2), (2, 3)]
    )
    grid = fg.PairwiseMRF.grid(2, 3, rng.normal(size=(6, 2)), rng.normal(size=(7, 2, 2)))
    node = rng.normal(size=(4, 3))
    node[0, 1] = node[2, :2] = -np.inf
    edge = rng.normal(size=(3, 3))
    edge[0, 1] = -np.inf
    masked = fg.PairwiseMRF(node, edge, [(0, 1), (1, 2), (2, 3), (3, 0)])
    pair = (0, 1, 2), rng.normal(size=(2, 3, 2))
    ragged = fg.PairwiseMRF.from_factors([2, 3, 2], [pair, ((0,), rng.normal(size=2))])
    lone = fg.PairwiseMRF(rng.normal(size=(1, 4)), np.zeros((4, 4)), np.zeros((0, 2), dtype=int))
    return {"chain": chain, "grid": grid, "masked": masked, "factors": ragged, "one node": lone}


@pytest.mark.parametrize("name", models())
@pytest.mark.parametrize("k", [1, 7, 200])
def test_equals_enumeration(name, k):
    model = models()[name]
    sizes = model.labels_per_node
    every = [(model.log_prob(y), y) for y in itertools.product(*map(range, sizes))]
    expected = sorted((p for p, _ in every if p > -np.inf), reverse=True)[:k]
    found = model.kbest(k)
    np.testing.assert_allclose([p for _, p in found], expected, rtol=0, atol=1e-10)
    assert len({tuple(y) for y, _ in found}) == len(found)
    np.testing.assert_allclose([model.log_prob(y) for y, _ in found], expected, rtol=0, atol=1e-10)


def test_ties_are_different_labelings():
    model = fg.PairwiseMRF(np.zeros((3, 2)), np.zeros((2, 2)), [(0, 1), (1, 2)])
    assert len({tuple(y) for y, _ in model.kbest(100)}) == 8


def test_k_is_checked():
    with pytest.raises(fg.InvalidInputError, match="k is 0"):
        models()["chain"].kbest(0)
