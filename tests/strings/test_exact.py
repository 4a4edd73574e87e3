"""F, log Z, Q and gradients of the layered engine against enumeration of Delta^l."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fstgrad as fg
from fstgrad.losses.automata.automaton import Level
from tests.helpers.losses import KINDS, make_loss
from tests.oracles import strings as oracle

SETTINGS = settings(max_examples=25, deadline=None, derandomize=True)


@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 3),
    length=st.integers(1, 4),
    order=st.integers(1, 3),
    scale=st.sampled_from([1.0, 50.0, 100.0]),
    masked=st.booleans(),
)
def test_softmax_margin_and_risk_equal_enumeration(kind, seed, n, length, order, scale, masked):
    rng = np.random.default_rng(seed)
    abc = fg.Alphabet("abc"[:n])
    target = tuple(int(i) for i in rng.integers(n, size=length))
    loss, by_hand = make_loss(kind, rng, abc, target)
    losses = [by_hand(y) for y in oracle.all_strings(n, length)]
    if not np.isfinite(losses).any():
        with pytest.raises(fg.InfeasibleError):
            loss.compile(np.array(target))
        return
    b = loss.compile(np.array(target))
    scores = scale * rng.normal(size=(length, *(n + 1,) * (order - 1), n))
    if masked:
        mask = rng.random(scores.shape) < 0.2
        mask &= oracle.parts(target, scores) == 0
        scores[mask] = -np.inf
    if not np.isfinite(oracle.log_weights(scores, losses)).any():
        with pytest.raises(fg.InfeasibleError):
            fg.softmax_margin(scores, np.array(target), b)
        return
    value, gradient = fg.softmax_margin(scores, np.array(target), b)
    expected, expected_gradient = oracle.softmax_margin(scores, target, losses)
    magnitude = abs(expected) + abs(oracle.score(target, scores)) + 1
    assert value == pytest.approx(expected, abs=1e-10 * magnitude)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-10)
    value, gradient = fg.risk(scores, b)
    expected, expected_gradient = oracle.risk(scores, losses)
    assert value == pytest.approx(expected, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-10 * (1 + abs(expected)))


@pytest.mark.parametrize("kind", ["edit", "smith-waterman", "confusion", "user-tropical"])
@SETTINGS
@given(seed=st.integers(0, 2**32 - 1), cap=st.sampled_from([0.5, 1.0, 2.0, 1.23]))
def test_cap_is_the_minimum(kind, seed, cap):
    rng = np.random.default_rng(seed)
    abc = fg.Alphabet("abc")
    target = tuple(int(i) for i in rng.integers(3, size=4))
    loss, by_hand = make_loss(kind, rng, abc, target)
    b = loss.compile(np.array(target), cap=cap)
    for y in oracle.all_strings(3, 4):
        assert b.loss(np.array(y)) == pytest.approx(min(by_hand(y), cap), abs=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_loss_of_pairs_of_any_length(kind):
    rng = np.random.default_rng(3)
    abc = fg.Alphabet("abc")
    for length in (1, 3):
        target = tuple(int(i) for i in rng.integers(3, size=length))
        loss, by_hand = make_loss(kind, rng, abc, target)
        for other in (0, 1, 2, 4):
            for y in oracle.all_strings(3, other):
                y_ids = np.array(y, dtype=np.int64)
                assert loss(y_ids, np.array(target)) == pytest.approx(by_hand(y), abs=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_other_lengths_than_the_target(kind):
    rng = np.random.default_rng(4)
    abc = fg.Alphabet("ab")
    target = (0, 1, 1)
    loss, by_hand = make_loss(kind, rng, abc, target)
    for length in (1, 2, 5):
        losses = [by_hand(y) for y in oracle.all_strings(2, length)]
        if not np.isfinite(losses).any():
            with pytest.raises(fg.InfeasibleError):
                loss.compile(np.array(target), length)
            continue
        b = loss.compile(np.array(target), length)
        scores = rng.normal(size=(length, 3, 2))
        assert fg.StringDistribution(scores, b).log_partition() == pytest.approx(
            oracle.log_partition(scores, losses), abs=1e-11
        )
        for y, expected in zip(oracle.all_strings(2, length), losses, strict=True):
            assert b.loss(np.array(y)) == pytest.approx(expected, abs=1e-11)


def test_expected_loss_of_another_automaton():
    rng = np.random.default_rng(5)
    abc = fg.Alphabet("ab")
    scores = rng.normal(size=(4, 3, 2))
    strings = oracle.all_strings(2, 4)
    edit = [oracle.edit_distance(y, (0, 1, 1, 0)) for y in strings]
    grams = [oracle.ngram_loss(y, (0, 1, 1, 0), 2, smoothing=0.5) for y in strings]
    b = fg.EditDistance(abc).compile("abba")
    other = fg.NGram(abc, 2, smoothing=0.5).compile("abba")
    weights = oracle.log_weights(scores, edit)
    probs = np.exp(weights - np.logaddexp.reduce(weights))
    d = fg.StringDistribution(scores, b)
    assert d.expected_loss(other) == pytest.approx(probs @ np.array(grams), abs=1e-12)
    assert d.expected_loss(b) == pytest.approx(probs @ np.array(edit), abs=1e-12)
    assert fg.StringDistribution(scores).expected_loss(b) == pytest.approx(
        fg.risk(scores, b)[0], abs=1e-12
    )


def test_cross_entropy_is_infinite_where_the_other_leaves_strings_out():
    abc = fg.Alphabet("ab")
    scores = np.zeros((3, 3, 2))
    everything = fg.StringDistribution(scores, fg.EditDistance(abc).compile("aba"))
    sharing = fg.StringDistribution(scores, fg.NGram(abc, 2).compile("aba"))
    assert everything.cross_entropy(sharing) == np.inf
    assert np.isfinite(sharing.cross_entropy(everything))


@pytest.mark.parametrize("own, other", [("ab", "ba"), ("ab", "bb"), (None, "ab"), ("ab", None)])
@pytest.mark.parametrize("small", [0.0, -30.0, -700.0])
def test_supports_that_differ(own, other, small):
    """+inf where a string is allowed that the other forbids, be its mass 1e-26; else finite."""
    abc = fg.Alphabet("ab")
    kernel = fg.NGram(abc, 2)  # finite for strings that share a bigram with the target
    scores = np.full((3, 3, 2), small)
    scores[..., 1] = 0.0  # nearly all mass is on bbb
    p, q = (
        fg.StringDistribution(table, None if target is None else kernel.compile(target, 3))
        for target, table in ((own, scores), (other, np.zeros((3, 3, 2))))
    )
    strings = oracle.all_strings(2, 3)
    allowed = [
        y for y in strings if own is None or oracle.ngram_loss(y, abc.encode(own), 2) < np.inf
    ]
    forbidden = [
        y for y in allowed if other and oracle.ngram_loss(y, abc.encode(other), 2) == np.inf
    ]
    assert (p.kl(q) == np.inf) == bool(forbidden)
    assert (p.cross_entropy(q) == np.inf) == bool(forbidden)
    if other is not None:
        assert (p.expected_loss(q.b) == np.inf) == bool(forbidden)
    assert p.kl(p) == 0.0
    assert p.entropy() >= 0.0


def test_entropy_and_divergence_are_not_below_zero():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        scores = rng.normal(size=(3, 2)) * rng.choice([1, 50, 300])
        d = fg.StringDistribution(scores)
        assert d.entropy() >= 0.0
        assert d.kl(fg.StringDistribution(scores.copy())) >= 0.0


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_class_without_symbols_changes_nothing(order):
    """Class 0 has no symbol; its arcs enter the state of "b", and a state of their own."""
    abc = fg.Alphabet("ab")
    start = Level(np.array([[0, 1, 0]]), np.array([[7.0, 2.0, 1.0]]))
    onward = Level(np.array([[0, 0, 1], [2, 1, 0]]), np.ones((2, 3)))
    final = np.array([0.5, 0.0, 9.0])
    b = fg.LossAutomaton(abc, np.array([1, 2]), (start, onward), 0.0, final)
    losses = [2 + 1 + 0.0, 2 + 1 + 0.5, 1 + 1 + 0.5, 1 + 1 + 0.0]  # aa, ab, ba, bb
    scores = np.random.default_rng(order).normal(size=(2, *(3,) * (order - 1), 2))
    d = fg.StringDistribution(scores, b)
    assert d.log_partition() == pytest.approx(oracle.log_partition(scores, losses), abs=1e-10)
    np.testing.assert_allclose(d.marginals(), oracle.marginals(scores, losses), atol=1e-10)
    value, gradient = fg.risk(scores, b)
    expected = oracle.risk(scores, losses)
    assert value == pytest.approx(expected[0], abs=1e-10)
    np.testing.assert_allclose(gradient, expected[1], atol=1e-10)
