"""F, log Z, Q and gradients of the layered engine against enumeration of Delta^l."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fstgrad as fg
from fstgrad.automata.automaton import Level
from fstgrad.openfst import FstArrays, from_arrays
from tests.oracles import strings as oracle

SETTINGS = settings(max_examples=25, deadline=None, derandomize=True)


def random_transducer(rng, n, states, semiring):
    """A complete random transducer: every pair of a symbol or epsilon with another, kept at 60 %.

    Returns (arcs, final) of the oracle's form; epsilon arcs lead to higher states only.
    """
    arcs = []
    for source in range(states):
        for a in [None, *range(n)]:
            for b in [None, *range(n)]:
                if a is None and b is None:
                    continue
                if rng.random() < 0.6 or (source == 0 and a == b):
                    low = source + 1 if a is None else 0
                    if low < states:
                        target = int(rng.integers(low, states)) if a != b else source
                        cost = float(np.round(rng.uniform(0, 2), 3))
                        arcs.append((source, a, b, cost, target))
    return arcs, {s: float(np.round(rng.uniform(0, 1), 3)) for s in range(states)}


def to_fst(arcs, final):
    label = [[0 if arc[i] is None else arc[i] + 1 for arc in arcs] for i in (1, 2)]
    return from_arrays(
        FstArrays(
            arc_type="log64",
            start=0,
            final=np.array([final[s] for s in range(len(final))]),
            source=[arc[0] for arc in arcs],
            ilabel=label[0],
            olabel=label[1],
            nextstate=[arc[4] for arc in arcs],
            weight=[arc[3] for arc in arcs],
        )
    )


def make_loss(kind, rng, abc, target):
    """A loss with random costs and its oracle."""
    n = len(abc)
    if kind == "edit":
        a, b, c = rng.uniform(0.2, 2, size=3)
        return fg.EditDistance(abc, a, b, c), lambda y: oracle.edit_distance(
            y, target, insert=a, delete=b, substitute=c
        )
    if kind == "factored":
        a, b, c = rng.integers(1, 4, size=3)
        return fg.EditDistance(abc, a, b, c, factored=True), lambda y: oracle.edit_distance(
            y, target, insert=a, delete=b, substitute=c
        )
    if kind == "confusion":
        table = rng.integers(0, 8, size=(n, n)) / 4
        return fg.EditDistance(abc, confusion=table), lambda y: oracle.edit_distance(
            y, target, confusion=table
        )
    if kind == "smith-waterman":
        a, b, c, d = rng.uniform(0.2, 2, size=4)
        return fg.SmithWaterman(abc, -a, b, c, d), lambda y: oracle.smith_waterman(
            y, target, match=-a, substitute=b, insert=c, delete=d
        )
    if kind == "ngram":
        return fg.NGram(abc, 2), lambda y: oracle.ngram_loss(y, target, 2)
    if kind == "ngram-smooth":
        return fg.NGram(abc, 1, smoothing=0.3), lambda y: oracle.ngram_loss(
            y, target, 1, smoothing=0.3
        )
    if kind == "ngram-linear":
        return fg.NGram(abc, 2, log=False), lambda y: oracle.ngram_loss(y, target, 2, log=False)
    if kind == "hamming":
        return fg.Hamming(abc, 0.7), lambda y: oracle.hamming(y, target, cost=0.7)
    arcs, final = random_transducer(rng, n, 2, kind)
    fst = to_fst(arcs, final)
    if kind == "user-tropical":
        return fg.TransducerLoss(fst, abc), lambda y: oracle.min_path_cost(
            arcs, 0, final, y, target
        )
    return fg.TransducerLoss(
        fst, abc, semiring="probability", smoothing=0.2
    ), lambda y: -np.log(oracle.path_sum(arcs, 0, final, y, target) + 0.2)


KINDS = [
    "edit", "factored", "confusion", "smith-waterman", "ngram", "ngram-smooth", "ngram-linear",
    "hamming", "user-tropical", "user-probability",
]  # fmt: skip


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
