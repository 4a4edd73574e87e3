"""Losses as objects: compilation, caps, limits, references as acceptors, and bad input."""

import itertools
import math

import numpy as np
import pynini
import pytest

import fstgrad as fg
from fstgrad.losses import transducers
from fstgrad.openfst import from_arrays, to_arrays

ABC = fg.Alphabet("abc")


def test_sizes_of_small_automata_by_hand():
    # Hamming against a target of length l: one state a level, the mismatch costs 1
    b = fg.Hamming(ABC).compile("abca")
    assert b.num_states == 4 + 1
    assert b.num_arcs == 4 * 3
    assert b.is_complete
    assert b.spread == 4
    # the trivial automaton: L = 0
    assert fg.LossAutomaton.trivial(ABC, 3).num_states == 3 + 1


def test_symbols_outside_the_target_share_a_class():
    abc = fg.Alphabet("abcdefghij")
    b = fg.EditDistance(abc).compile("abba")
    assert b.num_classes == 3  # a, b, anything else
    assert len(set(b.class_of[2:])) == 1


def test_levels_are_read_only():
    b = fg.EditDistance(ABC).compile("ab")
    for array in (b.class_of, b.final, b.levels[0].nextstate, b.levels[0].cost):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_fst_round_trip():
    b = fg.EditDistance(ABC, 0.7, 0.9, 1.1).compile("abca")
    back = fg.LossAutomaton.from_arrays(ABC, to_arrays(b.to_fst()), 4)
    for y in ("aaaa", "abca", "cbac"):
        assert back.loss(y) == pytest.approx(b.loss(y), abs=1e-14)


def test_minimal_as_openfst_counts():
    """OpenFst's own minimization of the same acceptor finds no smaller one."""
    rng = np.random.default_rng(0)
    abc = fg.Alphabet("abcdefgh")
    for length in (4, 6):
        target = rng.integers(8, size=length)
        b = fg.EditDistance(abc).compile(target)
        costs = pynini.arcmap(from_arrays(b.to_arrays()), map_type="to_standard")
        costs.minimize()
        assert b.num_states == costs.num_states()


def test_a_target_acceptor_gives_the_least_loss():
    references = pynini.union(
        transducers.string_acceptor(ABC, "abc"), transducers.string_acceptor(ABC, "ccb")
    ).optimize()
    loss = fg.EditDistance(ABC)
    b = loss.compile(references, 3)
    for y in ("abb", "ccc", "aaa"):
        expected = min(loss(y, "abc"), loss(y, "ccb"))
        assert b.loss(y) == expected
        assert loss(y, references) == expected


def test_the_whole_transducer_of_factors():
    whole = fg.EditDistance(ABC, factored=True).transducer
    assert fg.TransducerLoss(whole, ABC)("abca", "bc") == 2.0


@pytest.mark.parametrize("engine", ["layered", "openfst"])
@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (fg.NGram(ABC, 3, smoothing=0.25), math.log(4.0)),
        (fg.NGram(ABC, 3, log=False), 0.0),
    ],
    ids=["smoothed", "linear"],
)
def test_a_target_without_ngrams_has_one_loss(loss, expected, engine):
    b = loss.compile("ab", engine=engine)
    assert [b.loss(y) for y in ("aa", "ab", "cb")] == pytest.approx([expected] * 3, abs=1e-15)


def test_large_vocabularies():
    """Edit distances factor on their own; what has n^2 arcs says that it is too large."""
    words = fg.Alphabet([f"w{i}" for i in range(6000)])
    loss = fg.EditDistance(words)
    assert len(loss.factors) == 2
    assert len(fg.EditDistance(fg.Alphabet("abc")).factors) == 1
    y, target = ["w0", "w5999", "w7"], ["w5999", "w8", "w9"]
    assert loss(y, target) == 3.0
    assert loss.compile(target).loss(y) == 3.0
    with pytest.raises(fg.InvalidInputError, match=r"36,000,000 arcs.*smaller alphabet"):
        fg.Hamming(words)


@pytest.mark.parametrize(
    "loss",
    [
        fg.EditDistance(ABC), fg.WordErrorRate(ABC), fg.LongestCommonSubsequence(ABC),
        fg.SmithWaterman(ABC), fg.NGram(ABC, smoothing=1.0), fg.NoLoss(ABC),
        fg.EditDistance(ABC) + 2.0 * fg.NGram(ABC, smoothing=1.0),
        fg.CollapsedLoss(fg.EditDistance(ABC), ABC, collapse="ctc", blank="c"),
        fg.CollapsedLoss(fg.EditDistance(ABC), ABC, collapse="end", blank="c"),
    ],
    ids=lambda loss: type(loss).__name__,
)  # fmt: skip
def test_a_target_may_be_empty(loss):
    b = loss.compile("", 3)
    for y in itertools.product("abc", repeat=3):
        assert b.loss(y) == pytest.approx(loss(y, ""), abs=1e-12)


def test_state_limit_says_what_to_do():
    abc = fg.Alphabet("abcdefghij")
    loss = fg.EditDistance(abc)
    target = np.random.default_rng(0).integers(10, size=14)
    with pytest.raises(fg.StateLimitError, match=r"max_states=1,000.*cap") as caught:
        loss.compile(target, max_states=1000)
    assert caught.value.states > caught.value.limit == 1000
    assert loss.compile(target, max_states=100_000, cap=2).num_states < 10_000


@pytest.mark.parametrize(
    "call, error, said",
    [
        (lambda: fg.EditDistance(ABC).compile("abx"), fg.AlphabetError, r"target\[2\] is 'x'"),
        (lambda: fg.EditDistance(ABC).compile(""), fg.InvalidInputError, "give the length"),
        (lambda: fg.EditDistance(ABC).compile("ab", 0), fg.InvalidInputError, "length is 0"),
        (
            lambda: fg.EditDistance(ABC).compile("ab", cap=float("nan")),
            fg.InvalidInputError,
            "cap",
        ),
        (
            lambda: fg.EditDistance(ABC).compile("ab", engine="fast"),
            fg.InvalidInputError,
            "layered, openfst",
        ),
        (
            lambda: fg.EditDistance(ABC, confusion=np.zeros((3, 3)), factored=True),
            fg.InvalidInputError,
            "confusion",
        ),
        (lambda: fg.NGram(ABC, 0), fg.InvalidInputError, "order is 0"),
        (lambda: fg.NGram(ABC, 2, smoothing=-1), fg.InvalidInputError, "smoothing is -1"),
        (lambda: fg.NGram(ABC, 3).compile("ab"), fg.InfeasibleError, "rejects the target"),
        (lambda: fg.Hamming(ABC).compile("abc", 2), fg.InfeasibleError, "length 2"),
        (
            lambda: fg.TransducerLoss(pynini.accep("[7]"), ABC),
            fg.FstError,
            r"label 7 .* 1 \.\. 3",
        ),
        (
            lambda: fg.EditDistance(ABC).compile(pynini.closure(pynini.accep("[1]")), 2),
            fg.FstError,
            "cyclic",
        ),
        (
            lambda: fg.EditDistance(ABC).compile(pynini.cross("[1]", "[2]"), 2),
            fg.FstError,
            "acceptor",
        ),
        (
            lambda: fg.EditDistance(ABC).compile(transducers.string_acceptor(ABC, "ab")),
            fg.InvalidInputError,
            "length is missing",
        ),
        (
            lambda: fg.EditDistance(ABC, insert_cost=-1).compile("ab"),
            fg.FstgradError,
            "insert|negative",
        ),
    ],
)
def test_bad_input(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_rejected_targets():
    identity = pynini.union(pynini.accep("[1]"), pynini.accep("[2]")).closure().optimize()
    with pytest.raises(fg.InfeasibleError, match=r"rejects the target 'a c'"):
        fg.TransducerLoss(identity, ABC).compile("ac")


def test_negative_cycles_are_refused():
    fst = pynini.Fst()
    fst.add_states(1)
    fst.set_start(0).set_final(0)
    for a in (1, 2, 3):
        fst.add_arc(0, pynini.Arc(a, a, 0, 0))
    fst.add_arc(0, pynini.Arc(0, 0, -1, 0))
    with pytest.raises(fg.FstError, match="negative cost"):
        fg.TransducerLoss(fst, ABC)("ab", "ab")


@pytest.mark.parametrize(
    "scores, said",
    [
        (np.zeros(3), r"shape \(3,\)"),
        (np.zeros((0, 3)), "shape"),
        (np.zeros((3, 3, 3)), "context axes have 4"),
        (np.full((3, 3), np.nan), "nan"),
        (np.full((3, 3), np.inf), "inf"),
        (np.zeros((2, 3)), "2 positions and 3 symbols.*3 positions and 3 symbols"),
        (np.zeros((3, 2)), "3 positions and 2 symbols"),
        ("text", "not an array"),
    ],
)
def test_bad_scores(scores, said):
    b = fg.EditDistance(ABC).compile("abc")
    with pytest.raises(fg.InvalidInputError, match=said):
        fg.StringDistribution(scores, b)


def test_infeasible_problems_and_gold():
    b = fg.EditDistance(ABC).compile("abc")
    scores = np.zeros((3, 3))
    scores[1] = -np.inf
    with pytest.raises(fg.InfeasibleError, match=r"scores\[1\] forbids every symbol"):
        fg.StringDistribution(scores, b).log_partition()
    scores = np.zeros((3, 3))
    scores[2, 2] = -np.inf
    with pytest.raises(fg.InfeasibleError, match="gold has a score of -inf at position 2"):
        fg.softmax_margin(scores, "abc", b)
    with pytest.raises(fg.InvalidInputError, match="length 2"):
        fg.softmax_margin(np.zeros((3, 3)), "ab", b)
    blocked = np.zeros((3, 4, 3))
    blocked[0, :, 1:] = blocked[1, 0, :] = -np.inf
    with pytest.raises(fg.InfeasibleError, match="Z = 0"):
        fg.StringDistribution(blocked, b).log_partition()
    with pytest.raises(fg.InfeasibleError, match="Z = 0"):
        fg.StringDistribution(blocked, b).sample(1, 0)
    assert fg.StringDistribution(np.zeros((3, 3)), b).kbest(1)


def test_extreme_scores_use_the_log_domain():
    """One string has nearly all the mass, another the rest: exp(-1000) is no float."""
    scores = np.zeros((2, 4, 3))
    scores[0, 3] = [0, -1000, -2000]
    scores[1, 0] = [-2000, 0, -2000]
    scores[1, 1] = [5, 0, 0]
    d = fg.StringDistribution(scores)
    assert d.log_partition() == pytest.approx(0, abs=1e-12)
    assert d.log_prob(np.array([1, 0])) == pytest.approx(-1000 + 5, abs=1e-9)
    np.testing.assert_allclose(d.marginals()[0, 3], [1, 0, 0], atol=1e-300)


@pytest.mark.parametrize("small, large", [(0.1, 1e3), (0.1, 1e9), (0.1, 1e12), (0.3, 7.7e5)])
def test_costs_of_different_size_keep_their_digits(small, large):
    loss = fg.EditDistance(fg.Alphabet("ab"), large, large, small)
    assert loss("ab", "bb") == small
    assert loss.compile("bb").loss("ab") == pytest.approx(small, rel=1e-15)
    assert loss("b", "bb") == large


def test_costs_that_would_lose_digits_are_refused():
    loss = fg.EditDistance(fg.Alphabet("ab"), 1e13, 1e13, np.pi)
    with pytest.raises(fg.InvalidInputError, match=r"1e\+13, 3.18e\+12 times as much"):
        loss.compile("bb")
    assert loss("ab", "bb") == np.pi
    close = fg.EditDistance(fg.Alphabet("ab"), 1e3 * np.e, 1e3 * np.e, np.pi)
    assert close("ab", "bb") == pytest.approx(np.pi, abs=1e-10)


def test_a_target_without_an_ngram_is_named_with_the_remedy():
    with pytest.raises(fg.InfeasibleError, match=r"target 'a': .*smoothing > 0"):
        fg.NGram(fg.Alphabet("abc"), 2).compile("a")


def strings_of(alphabet, length):
    return np.array(list(itertools.product(range(len(alphabet)), repeat=length)))


def test_a_multiple_of_a_sum_with_a_rational_loss_has_all_methods():
    abc = fg.Alphabet("ab")
    edit, bigrams = fg.EditDistance(abc), fg.NGram(abc, smoothing=0.5)
    strings, scores = strings_of(abc, 3), np.random.default_rng(0).normal(size=(3, 2))
    losses = [edit(y, "ab") + bigrams(y, "ab") for y in strings]
    weights = np.exp(scores[range(3), strings].sum(axis=1))
    for loss in (0.5 * (edit + bigrams), fg.Normalized(edit + bigrams)):
        np.testing.assert_allclose(loss.against("ab").losses_of(strings), np.divide(losses, 2))
        risk, _ = fg.risk(scores, loss.compile("ab", 3))
        assert risk == pytest.approx(0.5 * np.average(losses, weights=weights), abs=1e-12)


def test_a_multiple_of_a_rational_loss_forbids_symbols_after_the_end():
    latent = fg.Alphabet("ab_")
    loss = fg.CollapsedLoss(
        fg.NGram(fg.Alphabet("ab"), smoothing=0.5), latent, collapse="end", blank="_"
    )
    strings = strings_of(latent, 3)
    losses = 0.5 * np.array([loss(y, "ab") for y in strings])
    assert np.isinf(losses).sum() == 12  # letters after an end: 8 of "_.." and 4 of "._."
    for scaled in (0.5 * loss, fg.Normalized(loss)):
        np.testing.assert_allclose([scaled(y, "ab") for y in strings], losses)
        np.testing.assert_allclose(scaled.against("ab").losses_of(strings), losses)
        risk, _ = fg.risk(np.zeros((3, 3)), scaled.compile("ab", 3))
        assert risk == pytest.approx(losses[np.isfinite(losses)].mean(), abs=1e-12)
    with pytest.raises(fg.NotSupportedError, match="leave it out"):
        loss.compile("ab", 3, cap=1.0)
    with pytest.raises(fg.NotSupportedError, match="with an end"):
        fg.CollapsedLoss(0.5 * loss, latent)
