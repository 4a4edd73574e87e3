"""Losses against targets of 1 to 60 distinct symbols and lengths 1 to 60.

Kernels write into arrays whose size was computed beforehand; small examples do not reach its end.
"""

import numpy as np
import pytest

import fstgrad as fg
from tests.oracles import strings as oracle

MANY = fg.Alphabet([f"p{i}" for i in range(61)])


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 18, 19, 20, 40, 60])
def test_ngrams_of_targets_with_many_distinct_symbols(order, size):
    target = np.arange(size)
    automaton = fg.NGram(MANY, order=order, smoothing=0.5).compile(target)
    rng = np.random.default_rng(size)
    for y in (target, rng.permutation(target), rng.integers(0, 61, size)):
        expected = oracle.ngram_loss(tuple(y), tuple(target), order, smoothing=0.5)
        assert automaton.loss(y) == pytest.approx(expected, abs=1e-12)
