"""What all families share."""

import numpy as np
import pytest

import fstgrad as fg


@pytest.mark.parametrize("seed", [1, 2, 9, 10, 23])  # where a difference of some family is above 0
def test_no_probability_exceeds_one(seed):
    rng = np.random.default_rng(seed)
    families = (
        fg.StringDistribution(100 * rng.normal(size=(6, 5, 4))),
        fg.PairwiseMRF.grid(3, 3, 100 * rng.normal(size=(9, 2)), 100 * rng.normal(size=(2, 2))),
        fg.SpanningTrees(100 * rng.normal(size=(6, 6)), single_root=True),
        fg.Lattice.from_nbest(["ab", "b", "aab"], 100 * rng.normal(size=3), fg.Alphabet("ab")),
    )
    for p in families:
        best, log_prob = p.kbest(1)[0]
        assert log_prob <= 0
        assert p.log_prob(best) <= 0
        assert p.log_prob(best) == pytest.approx(log_prob, abs=1e-9)
