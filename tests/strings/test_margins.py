"""Hinge, RAML, direct loss and minimum Bayes risk against enumeration."""

import itertools

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.strings.consensus import _representatives
from tests.helpers.losses import make_loss
from tests.oracles import strings as oracle

ABC = fg.Alphabet("abc")
KINDS = ["edit", "smith-waterman", "hamming", "ngram-smooth", "ngram"]


def case(kind, order, seed=0):
    """Scores, target, automaton, all strings with their scores and losses."""
    rng = np.random.default_rng(seed)
    target = tuple(int(i) for i in rng.integers(3, size=4))
    loss, by_hand = make_loss(kind, rng, ABC, target)
    scores = rng.normal(size=(4, *(4,) * (order - 1), 3))
    strings = oracle.all_strings(3, 4)
    losses = np.array([by_hand(y) for y in strings])
    return scores, np.array(target), loss, strings, oracle.log_weights(scores, None), losses


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_hinge_is_the_largest_margin(kind, order):
    scores, target, loss, strings, weights, losses = case(kind, order)
    value, gradient = fg.hinge(scores, target, loss.compile(target))
    totals = np.where(losses < np.inf, weights + losses, -np.inf)
    gold = float((oracle.parts(target, scores) * scores).sum())
    assert value == pytest.approx(totals.max() - gold, abs=1e-10)
    best = strings[int(totals.argmax())]
    expected = oracle.parts(best, scores) - oracle.parts(target, scores)
    np.testing.assert_array_equal(gradient, expected)
    # at temperature 0 the softmax margin, divided by the sharpness, is the hinge
    if order == 2 and np.isfinite(losses).all():
        sharp = 400.0
        soft, _ = fg.softmax_margin(sharp * scores, target, loss.compile(target).scaled(sharp))
        assert soft / sharp == pytest.approx(value, abs=np.log(81) / sharp)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("kind", KINDS)
def test_raml_is_a_cross_entropy(kind, temperature):
    scores, target, loss, strings, weights, losses = case(kind, 2)
    value, gradient = fg.raml(scores, loss.compile(target), temperature)
    reward = np.where(losses < np.inf, -losses / temperature, -np.inf)
    reward = np.exp(reward - np.logaddexp.reduce(reward))
    log_p = weights - np.logaddexp.reduce(weights)
    assert value == pytest.approx(-(reward @ log_p), abs=1e-10)
    table = np.array([oracle.parts(y, scores) for y in strings])
    expected = np.tensordot(np.exp(log_p) - reward, table, axes=1)
    np.testing.assert_allclose(gradient, expected, atol=1e-10)


@pytest.mark.parametrize("kind", ["edit", "smith-waterman", "hamming"])
def test_direct_loss_moves_away_from_a_worse_string(kind):
    scores, target, loss, strings, weights, losses = case(kind, 2)
    for epsilon in (0.3, 2.0):
        value, direction = fg.direct_loss(scores, loss.compile(target), epsilon)
        best, worse = int(weights.argmax()), int((weights + epsilon * losses).argmax())
        assert value == pytest.approx(losses[best], abs=1e-11)
        expected = (
            oracle.parts(strings[worse], scores) - oracle.parts(strings[best], scores)
        ) / epsilon
        np.testing.assert_allclose(direction, expected, atol=1e-12)


@pytest.mark.parametrize("kind", ["edit", "hamming"])
def test_minimum_bayes_risk(kind):
    scores, _, loss, strings, weights, _ = case(kind, 2, seed=5)
    p = fg.StringDistribution(scores)
    found = fg.mbr(p, loss, candidates=81)
    drawn = fg.mbr(p, loss, candidates=81, samples=80, rng=1)  # fewer than there are strings
    ys = [np.array(y) for y in strings]
    risks = loss.matrix(ys, ys) @ np.exp(weights - np.logaddexp.reduce(weights))
    exact = {tuple(y): risk for y, risk in zip(strings, risks, strict=True)}
    for ids, risk in zip(found.candidates, found.risks, strict=True):
        assert risk == pytest.approx(exact[tuple(ids.tolist())], abs=1e-10)
    assert found.risk == pytest.approx(risks.min(), abs=1e-10)
    assert (found.standard_errors == 0).all()
    for ids, risk, error in zip(drawn.candidates, drawn.risks, drawn.standard_errors, strict=True):
        assert 0 < abs(risk - exact[tuple(ids.tolist())]) < 5 * error
    at = oracle.marginals(scores).sum(axis=1)
    np.testing.assert_allclose(found.confidence, at[np.arange(4), found.ids], atol=1e-10)
    given = fg.mbr(p, loss, candidates=["abca", "bbbb"], rng=1)
    assert len(given.candidates) == 2


def test_normalized_losses_and_matrices_of_costs():
    normal = fg.Normalized(fg.Hamming(ABC))
    assert normal("abca", "abbb") == 0.5
    assert normal.compile("abbb").loss("abca") == 0.5
    kernel = fg.Normalized(2 * fg.NGram(ABC, 1, smoothing=1.0))
    value = 2 * -np.log(2 + 1) / 2  # "ab" has both letters of "ba"; the target has 2
    assert kernel("ab", "ba") == pytest.approx(value, abs=1e-12)
    assert kernel.compile("ba").loss("ab") == pytest.approx(value, abs=1e-12)
    assert kernel.compile("ba", engine="openfst").loss("ab") == pytest.approx(value, abs=1e-6)
    assert kernel.against("ba").losses_of([[0, 1]])[0] == pytest.approx(value, abs=1e-12)
    word = fg.Lattice.from_confusion_network([[("a", 0.0)], [("b", 0.0)]], ABC)
    for loss in (kernel, fg.CollapsedLoss(kernel, ABC, blank="c")):
        assert fg.risk(word, word.compile(loss, "ba"))[0] == pytest.approx(value, abs=1e-12)
    costs = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.5], [1.0, 1.0, 0.0]])
    loss = fg.Hamming(ABC, costs)
    assert loss("abc", "bcb") == 1.0 + 0.5 + 1.0
    assert loss.compile("bcb").loss("abc") == 2.5
    with pytest.raises(fg.InvalidInputError, match="cost"):
        fg.Hamming(ABC, costs[:2])
    with pytest.raises(fg.InvalidInputError, match="temperature"):
        fg.raml(np.zeros((2, 3)), normal.compile("ab"), 0.0)


@pytest.mark.parametrize("kind", ["edit", "smith-waterman", "hamming", "ngram-smooth"])
@pytest.mark.parametrize("seed", range(3))
def test_objectives_of_a_lattice(kind, seed):
    """Against its paths one by one, of several lengths, one with an epsilon."""
    rng = np.random.default_rng(seed)
    target = (0, 1, 2)
    loss, by_hand = make_loss(kind, rng, ABC, target)
    arcs = [
        (0, 1, "a", 0.3), (0, 1, "b", -0.2), (1, 2, "b", 0.1), (1, 2, "", -0.4), (2, 3, "c", 0.0),
        (2, 3, "a", 0.7), (0, 2, "c", -1.0), (1, 3, "b", 0.2), (1, 2, "c", 0.1),
    ]  # fmt: skip
    if kind == "hamming":  # which is infinite for other lengths
        arcs = [arc for arc in arcs if arc[2] and arc[1] - arc[0] == 1]
    source, nextstate, symbols, scores = zip(*arcs, strict=True)
    labels = [ABC.encode(symbol)[0] if symbol else -1 for symbol in symbols]
    lattice = fg.Lattice.from_arcs(source, nextstate, labels, scores, ABC, final=[3])
    lattice = lattice.with_scores(rng.normal(size=lattice.num_arcs))
    paths, strings = paths_of(lattice)
    weights, losses = paths @ lattice.scores, np.array([by_hand(y) for y in strings])
    b = lattice.compile(loss, target)

    value, gradient = fg.hinge(lattice, target, loss)
    gold = max((i for i, y in enumerate(strings) if y == target), key=lambda i: weights[i])
    worst = int((weights + losses).argmax())
    assert value == pytest.approx((weights + losses)[worst] - weights[gold], abs=1e-10)
    np.testing.assert_array_equal(gradient, paths[worst] - paths[gold])
    assert fg.hinge(lattice, target, b)[0] == value

    log_p = weights - np.logaddexp.reduce(weights)
    for temperature in (0.3, 2.0):
        reward = -losses / temperature
        reward = np.exp(reward - np.logaddexp.reduce(reward))
        value, gradient = fg.raml(lattice, b, temperature)
        assert value == pytest.approx(-(reward @ log_p), abs=1e-10)
        np.testing.assert_allclose(gradient, (np.exp(log_p) - reward) @ paths, atol=1e-10)

    for epsilon in (0.3, 2.0):
        value, direction = fg.direct_loss(lattice, b, epsilon)
        best, worse = int(weights.argmax()), int((weights + epsilon * losses).argmax())
        assert value == pytest.approx(losses[best], abs=1e-10)
        np.testing.assert_allclose(direction, (paths[worse] - paths[best]) / epsilon, atol=1e-12)


def paths_of(lattice):
    """All paths as counts of arcs, (P, A), and their strings."""
    graph, counts, strings = lattice.graph, [], []

    def follow(state, taken):
        if state == graph.num_states - 1:
            counts.append(np.bincount(taken, minlength=graph.num_arcs))
            strings.append(tuple(int(lattice.label[a]) for a in taken if lattice.label[a] >= 0))
        for arc in np.flatnonzero(graph.source == state):
            follow(int(graph.nextstate[arc]), [*taken, int(arc)])

    follow(0, [])
    return np.array(counts, dtype=float), strings


def test_objectives_refuse_what_was_compiled_for_other_scores():
    loss = fg.EditDistance(ABC)
    lattice = fg.Lattice.from_nbest(["ab", "b"], [0.0, 0.0], ABC)
    calls = (lambda scores, b: fg.hinge(scores, "ab", b), fg.raml, fg.direct_loss)
    for call in calls:
        with pytest.raises(fg.InvalidInputError, match=r"lattice\.compile"):
            call(lattice, loss.compile("ab"))
        with pytest.raises(fg.InvalidInputError, match=r"loss\.compile"):
            call(np.zeros((2, 3)), lattice.compile(loss, "ab"))


def test_the_candidate_of_least_risk_on_a_lattice():
    """Exact where all paths are no more than samples, nearly so with samples; by hand."""
    hypotheses, scores = ["ab", "abc", "cab", "b"], [0.3, 0.2, 0.4, 0.1]
    lattice = fg.Lattice.from_nbest(hypotheses, np.log(scores), ABC)
    found = fg.mbr(lattice, fg.EditDistance(ABC))
    distances = np.array([[0, 1, 1, 1], [1, 0, 2, 2], [1, 2, 0, 2], [1, 2, 2, 0]])
    order = [hypotheses.index("".join(ABC.decode(ids))) for ids in found.candidates]
    np.testing.assert_allclose(found.risks, (distances @ scores)[order], atol=1e-12)
    assert ABC.decode(found.ids) == ["a", "b"]
    assert (found.standard_errors == 0).all()
    np.testing.assert_allclose(found.confidence, [0.9, 1.0], atol=1e-12)  # no a in b
    slots = [[("a", 0.6), ("b", 0.4)]] * 8
    network = fg.Lattice.from_confusion_network(
        [[(symbol, np.log(p)) for symbol, p in slot] for slot in slots], ABC
    )
    drawn = fg.mbr(network, fg.Hamming(ABC), ["a" * 8, "ab" * 4], samples=250)
    assert drawn.risks == pytest.approx([8 * 0.4, 4 * 0.4 + 4 * 0.6], abs=0.5)
    assert (drawn.standard_errors > 0.02).all()
    assert (abs(drawn.risks - [3.2, 4.0]) < 4 * drawn.standard_errors).all()


@pytest.mark.parametrize(
    "structure, loss",
    [
        ("lattice", fg.EditDistance(ABC, 0.5, 1.5, 1.25)),
        ("lattice", 2 * fg.Hamming(ABC) + fg.EditDistance(ABC, 0.5, 2.0)),
        ("strings", fg.NGram(ABC, 2, smoothing=1.0)),
        ("strings", fg.SmithWaterman(ABC)),
    ],
    ids=["edit", "sum", "n-grams", "alignment"],
)
def test_risks_of_candidates_are_exact_beyond_a_thousand_strings(structure, loss):
    """The sides of these losses differ; all 2,187 strings are summed here."""
    scores = np.random.default_rng(4).normal(size=(7, 3))
    ys = [np.array(y) for y in itertools.product(range(3), repeat=7)]
    weights = np.array([scores[np.arange(7), y].sum() for y in ys])
    if structure == "lattice":
        slots = [list(zip("abc", row, strict=True)) for row in scores]
        p = fg.Lattice.from_confusion_network(slots, ABC)
    else:
        p = fg.StringDistribution(scores)
    found = fg.mbr(p, loss, ["abcabca", "cba", "bbbbbbb"])
    table = loss.matrix(list(found.candidates), ys)
    expected = table @ np.exp(weights - np.logaddexp.reduce(weights))
    np.testing.assert_allclose(found.risks, expected, rtol=1e-10)
    errors = np.where(np.isfinite(expected), 0.0, np.nan)
    np.testing.assert_array_equal(found.standard_errors, errors)
    assert found.method == "exact"


def test_a_consensus_says_that_strings_were_drawn():
    p = fg.StringDistribution(np.random.default_rng(4).normal(size=(7, 3)))
    found = fg.mbr(p, fg.Normalized(fg.EditDistance(ABC)), 3)  # its unit depends on the target
    assert (found.method, (found.standard_errors > 0).all()) == ("sampled", True)
    assert fg.mbr(p, fg.EditDistance(ABC), 3, samples=50).method == "sampled"


def test_the_converse_of_a_loss_exchanges_its_sides():
    for loss in (fg.EditDistance(ABC, 0.5, 1.5), 2 * fg.Hamming(ABC) + fg.EditDistance(ABC, 0.5)):
        assert loss.converse()("ab", "bca") == loss("bca", "ab")
    big = fg.Alphabet([f"w{i}" for i in range(150)])  # two factors
    loss = fg.EditDistance(big, 0.5, 1.5)
    assert loss.converse()([0, 1], [1, 2, 3]) == loss([1, 2, 3], [0, 1])
    with pytest.raises(fg.NotSupportedError, match="has no converse"):
        fg.WordErrorRate(ABC).converse()


def test_risks_of_candidates_may_be_infinite():
    p = fg.StringDistribution(np.zeros((2, 3)))
    with pytest.warns(UserWarning, match="all candidates have an infinite expected loss"):
        found = fg.mbr(p, fg.NGram(ABC, 2, smoothing=0.0), ["ab", "ba"])
    assert (found.risks == np.inf).all()
    assert np.isnan(found.standard_errors).all()


def test_a_string_whose_probability_underflows_makes_no_risk_infinite():
    """The path of the score -800 has p = 0 in float64; its infinite loss counts nothing."""
    lattice = fg.Lattice.from_nbest(["ab", "ba", "a"], [0.0, -1.0, -800.0], ABC)
    found = fg.mbr(lattice, fg.Hamming(ABC), ["a", "ab", "ba"])
    p = 1 / (1 + np.exp(-1))
    np.testing.assert_allclose(found.risks, [np.inf, 2 * (1 - p), 2 * p], atol=1e-10)
    assert ABC.decode(found.ids) == ["a", "b"]
    assert found.standard_errors[1:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6, 1e12])
def test_sums_of_costs_of_very_different_size_keep_their_digits_or_are_refused(size):
    loss = (1 / 3) * fg.EditDistance(ABC, size, size, size) + fg.EditDistance(
        ABC, 0.7138256, 0.1357924681, 1.2345678912345
    )
    if size >= 1e6:
        with pytest.raises(fg.InvalidInputError, match="times as much"):
            loss.compile("ab", 3)
        return
    ys = [np.array(y) for y in oracle.all_strings(3, 3)]
    expected = loss.matrix(ys, [np.array([0, 1])])[:, 0]
    b = loss.compile("ab", 3)
    np.testing.assert_allclose(b.losses_of(np.array(ys)), expected, rtol=1e-9, atol=1e-8)


def test_draws_leave_one_degree_of_freedom_less():
    strings, share, freedom = _representatives(fg.StringDistribution(np.zeros((6, 3))), 50, 0)
    assert freedom == 49.0
    assert len(strings) == len(share) <= 50
    assert share.sum() == pytest.approx(1.0, abs=1e-12)
    assert _representatives(fg.StringDistribution(np.zeros((2, 3))), 50, 0)[2] == np.inf


def test_the_number_of_candidates_may_be_a_number_of_numpy():
    p = fg.StringDistribution(np.random.default_rng(0).normal(size=(4, 3)))
    loss = fg.Hamming(fg.Alphabet("abc"))
    np.testing.assert_array_equal(
        fg.mbr(p, loss, candidates=np.int64(9)).ids, fg.mbr(p, loss, candidates=9).ids
    )


def test_errors_of_a_sampled_consensus_are_those_of_a_mean():
    """The same strings are drawn with the same seed; some of them more than once."""
    abc, size = fg.Alphabet("abc"), 50
    d = fg.StringDistribution(2.0 * np.random.default_rng(3).normal(size=(4, 3)))
    loss, candidates = fg.EditDistance(abc), ["abca", "aaaa", "ccb"]
    found = fg.mbr(d, loss, candidates, samples=size, rng=7)
    drawn = d.sample(size, 7)
    assert len({tuple(y) for y in drawn.tolist()}) < size
    losses = np.array([[loss(c, y) for y in drawn] for c in candidates])
    np.testing.assert_allclose(found.risks, losses.mean(axis=1), rtol=1e-12)
    expected = losses.std(axis=1, ddof=1) / np.sqrt(size)
    np.testing.assert_allclose(found.standard_errors, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "scores, says",
    [
        ([["1_0", "0"]], "has texts"),  # which Python reads as 10
        (np.array([["1", "2"]]), "has texts"),
        (np.array([[1.0, "2"]], dtype=object), "has texts"),
        ([[np.datetime64("2020"), np.datetime64("2021")]], "has times"),
        ([[np.datetime64("2020"), 1.0]], "has times"),  # an array of objects: 2020 is 50
        ([[1j, 0]], "has complex numbers"),
    ],
)
def test_what_is_no_number_is_no_score(scores, says):
    with pytest.raises(fg.InvalidInputError, match=f"scores .*{says}"):
        fg.StringDistribution(scores)


def test_by_default_no_string_of_a_short_list_has_a_smaller_risk():
    """The least expected loss is often that of an improbable string between the others."""
    rng = np.random.default_rng(3)
    abc = fg.Alphabet("abcd")
    loss, ranks = fg.EditDistance(abc), []
    for _ in range(2):
        drawn = ("".join(rng.choice(list("abcd"), size=6)) for _ in range(120))
        strings = list(dict.fromkeys(drawn))
        scores = rng.normal(size=len(strings)) / 4
        p = np.exp(scores) / np.exp(scores).sum()
        risks = np.array([[loss(y, z) for z in strings] for y in strings]) @ p
        found = fg.mbr(fg.Lattice.from_nbest(strings, scores, abc), loss)
        assert found.risk == pytest.approx(risks.min(), rel=1e-12)
        chosen = "".join(abc.decode(found.ids))
        ranks.append((p > p[strings.index(chosen)]).sum())
    assert max(ranks) >= 50
