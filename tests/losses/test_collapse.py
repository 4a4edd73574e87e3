"""Losses of latent strings against enumeration: blanks, spelled symbols, CTC, ends."""

import collections
import dataclasses
import itertools
import string

import numpy as np
import pytest

import fstgrad as fg
from tests.helpers.losses import KINDS, make_loss
from tests.helpers.selection import pairwise
from tests.oracles import strings as oracle
from tests.oracles.losses import collapse

ABC = fg.Alphabet("ab_")
COLLAPSES = ["blank", "ctc", "end"]


@pytest.mark.parametrize("kind, how, order", pairwise(KINDS, COLLAPSES, [1, 2]))
def test_marginals_and_risk_equal_enumeration(kind, how, order):
    for seed in range(4):
        rng = np.random.default_rng([seed, order, KINDS.index(kind)])
        target = tuple(rng.integers(0, 2, size=int(rng.integers(1, 4))).tolist())
        if kind == "hamming" and how == "end":
            continue  # infinite but for one length: the next test
        loss, by_hand = make_loss(kind, rng, ABC, target)
        length = 4
        scores = rng.normal(size=(length, *(4,) * (order - 1), 3))
        losses = {}
        for z in itertools.product(range(3), repeat=length):
            y = collapse(z, how)
            losses[z] = np.inf if y is None else by_hand(y)
        latent = fg.CollapsedLoss(loss, ABC, collapse=how, blank="_")
        if not np.isfinite(list(losses.values())).any():
            with pytest.raises(fg.InfeasibleError):
                latent.compile(np.array(target), length)
            continue
        b = latent.compile(np.array(target), length)
        distribution = fg.StringDistribution(scores, b)
        table = np.array([losses[z] for z in oracle.all_strings(3, length)])
        np.testing.assert_allclose(
            distribution.log_partition(), oracle.log_partition(scores, table), atol=1e-10
        )
        np.testing.assert_allclose(
            distribution.marginals(), oracle.marginals(scores, table), atol=1e-10
        )
        value, gradient = fg.risk(scores, b)
        expected = oracle.risk(scores, table)
        np.testing.assert_allclose(value, expected[0], atol=1e-10)
        np.testing.assert_allclose(gradient, expected[1], atol=1e-10)
        for z in itertools.islice(losses, 0, None, 7):
            if collapse(z, how) is not None:
                assert latent(np.array(z), np.array(target)) == pytest.approx(losses[z], abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_symbols_that_stand_for_strings(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    spelling = {"-": (), "ab": ("a", "b"), "bba": ("b", "b", "a")}
    latent = fg.Alphabet(["a", "-", "ab", "b", "bba"])
    inner = fg.Alphabet("ab")
    target = ("ab", "-", "b")
    loss, by_hand = make_loss(kind, rng, inner, (0, 1, 1))
    collapsed = fg.CollapsedLoss(loss, latent, spelling)
    words = [(0,), (), (0, 1), (1,), (1, 1, 0)]
    losses = [by_hand(sum((words[i] for i in z), ())) for z in oracle.all_strings(5, 3)]
    b = collapsed.compile(target)
    scores = rng.normal(size=(3, 6, 5))
    d = fg.StringDistribution(scores, b)
    value, gradient = d.log_partition(), d.marginals()
    assert value == pytest.approx(oracle.log_partition(scores, losses), abs=1e-10)
    np.testing.assert_allclose(gradient, oracle.marginals(scores, losses), atol=1e-10)


def test_strings_of_every_length_up_to_the_last_position():
    """With an end symbol each y of length 0 .. 3 is one latent string: mode, samples, k best."""
    rng = np.random.default_rng(3)
    loss = fg.CollapsedLoss(
        fg.NoLoss(fg.Alphabet("ab")), fg.Alphabet("ab$"), collapse="end", blank="$"
    )
    scores = rng.normal(size=(3, 4, 3))
    d = fg.StringDistribution(scores, loss.compile("a", 3))
    weight = {
        collapse(z, "end"): np.exp(oracle.score(z, scores))
        for z in oracle.all_strings(3, 3)
        if collapse(z, "end") is not None
    }
    total = sum(weight.values())
    best = d.kbest(20)
    assert len(best) == len(weight) == 1 + 2 + 4 + 8
    for ids, log_prob in best:
        read = tuple(loss.read(ids).tolist())
        assert log_prob == pytest.approx(np.log(weight[read] / total), abs=1e-10)
    assert {tuple(loss.read(z).tolist()) for z in d.sample(4000, rng=0)} == set(weight)


@pytest.mark.parametrize("symbols", ["_ab", "a_b", "ab_", "_abc", "c_ba"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_blank_has_any_place_in_the_alphabet(symbols, order):
    """An end symbol that is no symbol of y, at each place; c does not occur in the target."""
    latent, inner = fg.Alphabet(symbols), fg.Alphabet(symbols.replace("_", ""))
    loss = fg.CollapsedLoss(fg.EditDistance(inner), latent, collapse="end", blank="_")
    read = [collapse(z, "end", symbols.index("_")) for z in oracle.all_strings(len(symbols), 3)]
    spelt = [None if y is None else "".join(symbols[i] for i in y) for y in read]
    losses = [np.inf if y is None else oracle.edit_distance(y, "a") for y in spelt]
    scores = np.random.default_rng(order).normal(
        size=(3, *(len(symbols) + 1,) * (order - 1), len(symbols))
    )
    b = loss.compile("a", 3)
    assert set(b.class_of) == set(range(b.num_classes))
    for table in (0 * scores, scores):
        d = fg.StringDistribution(table, b)
        assert d.log_partition() == pytest.approx(oracle.log_partition(table, losses), abs=1e-10)
        np.testing.assert_allclose(d.marginals(), oracle.marginals(table, losses), atol=1e-10)
        value, gradient = fg.risk(table, b)
        expected = oracle.risk(table, losses)
        assert value == pytest.approx(expected[0], abs=1e-10)
        np.testing.assert_allclose(gradient, expected[1], atol=1e-10)


def test_words_of_every_length_over_26_letters():
    """All words of up to 8 letters against "kitten": the order of the scores changes nothing."""
    letters = string.ascii_lowercase
    latent, inner = fg.Alphabet("_" + letters), fg.Alphabet(letters)
    b = fg.CollapsedLoss(fg.EditDistance(inner), latent, collapse="end", blank="_").compile(
        "kitten", 8
    )
    counts = collections.Counter({(0, 1, 2, 3, 4, 5, 6): 1})  # rows of the edit distances: words
    total = 0.0
    for _ in range(9):
        total += sum(words * np.exp(row[-1]) for row, words in counts.items())
        longer: collections.Counter[tuple[int, ...]] = collections.Counter()
        for row, words in counts.items():
            for letter in letters:
                after = [row[0] + 1]
                for j, wanted in enumerate("kitten"):
                    aligned = row[j] + (letter != wanted)
                    after.append(min(aligned, row[j + 1] + 1, after[-1] + 1))
                longer[tuple(after)] += words
        counts = longer
    plain, bigrams = np.zeros((8, 27)), np.zeros((8, 28, 27))
    for table in (plain, bigrams):
        found = fg.StringDistribution(table, b).log_partition()
        assert found == pytest.approx(np.log(total), abs=1e-10)
    value, gradient = fg.risk(plain, b)
    found = fg.risk(bigrams, b)
    assert found[0] == pytest.approx(value, abs=1e-10)
    np.testing.assert_allclose(found[1].sum(axis=1), gradient, atol=1e-10)


def test_latent_margin_equals_enumeration():
    rng = np.random.default_rng(5)
    inner = fg.Alphabet("ab_")
    gold = fg.CollapsedLoss(fg.ExactMatch(inner), inner, collapse="ctc", blank="_")
    loss = fg.CollapsedLoss(fg.EditDistance(inner), inner, collapse="ctc", blank="_")
    scores, target = rng.normal(size=(5, 3)), (0, 0)  # two equal letters: a blank between them
    value, gradient = fg.latent_softmax_margin(scores, gold.compile("aa", 5), loss.compile("aa", 5))
    strings = oracle.all_strings(3, 5)
    losses = [oracle.edit_distance(collapse(z, "ctc"), target) for z in strings]
    seen = [0.0 if collapse(z, "ctc") == target else np.inf for z in strings]
    expected = oracle.log_partition(scores, losses) - oracle.log_partition(scores, seen)
    assert value == pytest.approx(expected, abs=1e-10)
    difference = oracle.marginals(scores, losses) - oracle.marginals(scores, seen)
    np.testing.assert_allclose(gradient, difference, atol=1e-10)


@pytest.mark.parametrize("length, target", [(7, "abca"), (12, "aabbc"), (3, "c"), (4, "cc")])
def test_exact_match_behind_ctc_is_the_loss_of_torch(length, target):
    torch = pytest.importorskip("torch")
    abc = fg.Alphabet("_abc")
    scores = np.random.default_rng(length).normal(size=(length, 4))
    scores -= np.logaddexp.reduce(scores, axis=1, keepdims=True)
    gold = fg.CollapsedLoss(fg.ExactMatch(abc), abc, collapse="ctc", blank="_")
    log_p = torch.tensor(scores, requires_grad=True)
    expected = torch.nn.functional.ctc_loss(
        log_p[:, None], torch.tensor(abc.encode(target)), [length], [len(target)], reduction="sum"
    )
    expected.backward()
    value, gradient = fg.latent_softmax_margin(scores, gold.compile(target, length))
    assert value == pytest.approx(expected.item(), abs=1e-10)
    np.testing.assert_allclose(gradient, log_p.grad.numpy(), atol=1e-10)


def test_bad_collapses_are_named():
    abc = fg.Alphabet("ab_")
    with pytest.raises(fg.InvalidInputError, match="blank is empty"):
        fg.CollapsedLoss(fg.Hamming(abc), abc, collapse="ctc")
    with pytest.raises(fg.AlphabetError, match="'-', which is not in the alphabet"):
        fg.CollapsedLoss(fg.Hamming(abc), abc, blank="-")
    with pytest.raises(fg.InfeasibleError):
        fg.CollapsedLoss(fg.ExactMatch(abc), abc, collapse="ctc", blank="_").compile("aa", 2)


@pytest.mark.parametrize("kind", ["edit", "ngram-smooth", "user-probability"])
def test_pairs_know_of_the_end_as_the_automaton_does(kind):
    """A symbol after an end is +inf in __call__, pairwise, matrix, against and compile."""
    rng = np.random.default_rng(KINDS.index(kind))
    inner, _ = make_loss(kind, rng, ABC, (0, 1))
    loss = fg.CollapsedLoss(2.0 * inner, ABC, collapse="end", blank="_")
    ids, target = np.array(oracle.all_strings(3, 3)), np.array([0, 1])
    goes_on = [collapse(z, "end") is None for z in ids.tolist()]
    losses = loss.matrix(list(ids), [target])[:, 0]
    np.testing.assert_array_equal(losses == np.inf, goes_on)
    others = {
        "compile": loss.compile(target, 3).losses_of(ids),
        "against": loss.against(target).losses_of(ids),
        "pairwise": loss.pairwise(list(ids), [target] * len(ids)),
        "call": np.array([loss(z, target) for z in ids]),
    }
    for name, found in others.items():
        np.testing.assert_allclose(found, losses, atol=1e-10, err_msg=name)


def test_a_sum_with_a_rational_loss_is_collapsed_by_parts():
    total = fg.EditDistance(ABC) + fg.NGram(ABC, 1, smoothing=1.0)
    with pytest.raises(fg.NotSupportedError, match="collapse each part"):
        fg.CollapsedLoss(total, ABC, blank="_")


def test_the_topology_of_a_transducer_is_a_lattice_with_blanks():
    """RNN-T: a state (t, u) reads frame t or writes a label; all paths, and those of the gold."""
    frames, most, labels = 3, 3, 2
    abc = fg.Alphabet("ab_")  # the blank is label 2
    rng = np.random.default_rng(3)
    states = {tu: i for i, tu in enumerate(itertools.product(range(frames + 1), range(most + 1)))}
    arcs = []
    for (t, u), state in states.items():
        if t < frames:
            arcs.append((state, states[t + 1, u], 2))
        if u < most and t < frames:
            arcs += [(state, states[t, u + 1], k) for k in range(labels)]
    source, goal, label = np.array(arcs).T
    scores = rng.normal(size=len(arcs))
    final = {states[frames, u]: 0.0 for u in range(most + 1)}
    lattice = fg.Lattice.from_arcs(source, goal, label, scores, abc, final=final)
    score = dict(zip(arcs, scores.tolist(), strict=True))
    gold = (0, 1)
    alpha = np.full((frames + 1, len(gold) + 1), -np.inf)  # Graves (2012), Eq. 16
    alpha[0, 0] = 0.0
    for t, u in itertools.product(range(frames + 1), range(len(gold) + 1)):
        if t:
            read = score[states[t - 1, u], states[t, u], 2]
            alpha[t, u] = np.logaddexp(alpha[t, u], alpha[t - 1, u] + read)
        if u and t < frames:
            written = score[states[t, u - 1], states[t, u], gold[u - 1]]
            alpha[t, u] = np.logaddexp(alpha[t, u], alpha[t, u - 1] + written)
    p = np.exp(alpha[frames, -1] - lattice.log_partition())
    latent = fg.CollapsedLoss(fg.EditDistance(abc), abc, collapse="blank", blank="_")
    one = lattice.compile(latent, np.array(gold), cap=1)
    assert lattice.expected_loss(one) == pytest.approx(1 - p, abs=1e-10)
    paths, weights = lattice.kbest(10_000), 0.0
    expected = 0.0
    for path, log_p in paths:
        y = collapse(tuple(int(k) for k in path), "blank")
        expected += np.exp(log_p) * oracle.edit_distance(y, gold)
        weights += np.exp(log_p)
    assert weights == pytest.approx(1, abs=1e-10)
    assert lattice.expected_loss(lattice.compile(latent, np.array(gold))) == pytest.approx(
        expected, abs=1e-10
    )


@pytest.mark.parametrize("z, y", [("ab$c$", "ab"), ("$$a", ""), ("abc", "abc"), ("ab$$$", "ab")])
def test_the_first_end_cuts_the_string(z, y):
    abc = fg.Alphabet("abc$")
    loss = fg.CollapsedLoss(fg.EditDistance(fg.Alphabet("abc")), abc, collapse="end", blank="$")
    assert loss.read(z).tolist() == fg.Alphabet("abc").encode(y).tolist()
    whole = fg.CollapsedLoss(fg.EditDistance(abc), abc, collapse="end", blank="$")
    assert whole.read(z).tolist() == abc.encode(y).tolist()


def test_a_target_ends_at_its_first_end():
    abc = fg.Alphabet("abc$")
    loss = fg.CollapsedLoss(fg.EditDistance(abc), abc, collapse="end", blank="$")
    b = loss.compile("ab$c$")
    assert [b.loss(z) for z in ("ab$$$", "a$$$$", "abc$$")] == [0.0, 1.0, 1.0]
    assert loss("ab$$$", "ab$c$") == 0.0


@pytest.mark.parametrize("how", ["blank", "ctc"])
@pytest.mark.parametrize("spelling", [{}, {"ab": ("a", "b"), "b": ()}])
def test_pairs_by_the_fast_algorithm_are_those_of_the_machine(how, spelling):
    inner = fg.EditDistance(fg.Alphabet(["a", "b", "ab", "_"]), 0.5, 1.5, 1.0)
    loss = fg.CollapsedLoss(inner, inner.alphabet, spelling, collapse=how, blank="_")
    strings = [np.array(z, dtype=np.int64) for k in range(4) for z in oracle.all_strings(4, k)]
    for target in ([], [0], [0, 0], [2, 1, 0]):
        found = loss.pairwise(strings, [np.array(target, dtype=np.int64)] * len(strings))
        by_machine = dataclasses.replace(
            loss.against(np.array(target, dtype=np.int64)), programme=None
        )
        expected = [by_machine.losses_of(z[None])[0] for z in strings]
        np.testing.assert_array_equal(found, expected)
