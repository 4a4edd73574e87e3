"""The rule that says when weights fit into floats, and both sides of its limit."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.losses.automata.automaton import Level, LossAutomaton
from fstgrad.strings.passes import Passes
from fstgrad.strings.paths import loss_weights
from fstgrad.strings.solve import SAFE_RANGE, score_table, solve

AB = fg.Alphabet("ab")


def two_ways(length, given_back):
    """The loss that is `given_back` for b...b and 0 for a...a; other strings have none."""
    start = Level(np.array([[0, 1]]), np.zeros((1, 2)))
    onward = Level(np.array([[0, -1], [-1, 1]]), np.zeros((2, 2)))
    levels = (start, *(onward for _ in range(length - 1)))
    return LossAutomaton(AB, np.arange(2), levels, 0.0, np.array([0.0, given_back]))


@pytest.mark.parametrize("total", [300.0, 590.0, 610.0, 745.0, 760.0, 2000.0])
def test_what_a_loss_gives_back_is_not_lost(total):
    """b costs total / l in each of l positions, and the loss gives it all back: both are equal.

    exp(-745) is the least float64; on floats b...b would be gone, were it not for the rule.
    """
    length = 10
    scores = np.tile([0.0, -total / length], (length, 1))
    log_z, marginals = solve(scores, two_ways(length, total))
    assert log_z == pytest.approx(np.log(2), rel=1e-12)
    np.testing.assert_allclose(marginals, 0.5, rtol=1e-12)
    complete = LossAutomaton(
        AB,
        np.arange(2),
        (*(Level(np.array([[0, 1], [1, 1]])[: 1 + (t > 0)], np.zeros((1 + (t > 0), 2)))
           for t in range(length)),),
        0.0,
        np.array([total, 0.0]),
    )  # fmt: skip
    log_z, marginals = solve(-scores - total / length, complete)  # total for a...a, where b costs 0
    assert log_z == pytest.approx(exact(scores, total), rel=1e-12)


def exact(scores, total):
    """log of e^total times the weight of a...a, and the weight of all strings that have a b."""
    x = -scores[0, 1]
    length = len(scores)
    everything = length * np.logaddexp(-x, 0.0)
    aa = -length * x
    others = everything + np.log1p(-np.exp(aa - everything))
    return np.logaddexp(total + aa, others)


def test_the_rule_by_hand():
    scores = np.array([[0.0, -3.0], [1.0, -4.0], [2.0, 2.0]])
    table = score_table(scores)
    assert (table.prefix_swap_bound, table.total_range) == (0.0, 8.0)  # no contexts
    assert table.shift == 3.0
    assert table.highest.tolist() == [0.0, 1.0, 2.0]
    assert table.is_within_range(SAFE_RANGE, is_complete=True)
    assert not table.is_within_range(SAFE_RANGE + 0.1, is_complete=True)
    assert table.is_within_range(SAFE_RANGE - 8.0, is_complete=False)
    assert not table.is_within_range(SAFE_RANGE - 7.9, is_complete=False)
    scores[1, 1] = -np.inf  # a forbidden symbol: all positions count, their finite scores only
    table = score_table(scores)
    assert (table.prefix_swap_bound, table.total_range) == (np.inf, 3.0)
    assert table.is_within_range(SAFE_RANGE - 3.0, is_complete=True)
    bigrams = np.zeros((3, 3, 2))
    bigrams[0, 2], bigrams[1, 0], bigrams[2, 1] = [0.0, 4.0], [7.0, 0.0], [0.0, 9.0]
    bigrams[0, 0], bigrams[1, 2] = 99.0, -99.0  # contexts that cannot occur
    table = score_table(bigrams)
    assert table.prefix_swap_bound == 7.0 + 9.0  # q = 2 columns
    assert table.total_range == 4.0 + 7.0 + 9.0
    assert table.is_within_range(SAFE_RANGE - 16.0, is_complete=True)
    assert not table.is_within_range(SAFE_RANGE - 15.9, is_complete=True)


def test_spreads_by_hand():
    b = two_ways(3, 50.0)
    assert b.spread == 50.0
    assert b.greatest == 50.0
    assert not b.is_complete
    paths = loss_weights(b, scale=2.0)
    assert paths.spread == 100.0
    assert not paths.is_complete
    assert type(Passes(np.zeros((3, 2)), paths).algebra).__name__ == "Real"
    far = loss_weights(b, scale=13.0)
    assert type(Passes(np.zeros((3, 2)), far).algebra).__name__ == "Log"


@pytest.mark.parametrize("given_back", [50.0, 5000.0])
def test_passes_without_a_string_raise(given_back):
    """aaa is forbidden at the second position, bbb at the third; on floats and on logarithms."""
    scores = np.zeros((3, 2))
    scores[1, 0] = scores[2, 1] = -np.inf
    paths = loss_weights(two_ways(3, given_back), scale=1.0)
    with pytest.raises(fg.InfeasibleError, match="no string has a finite score"):
        Passes(scores, paths).forward()
