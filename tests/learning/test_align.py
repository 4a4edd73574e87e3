"""Alignments by expectation maximization against enumeration, and models behind them."""

import itertools

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.learning.align import Aligner, Link, _unique_inverse, per_symbol
from fstgrad.learning.outputs import (
    _SLOT,
    LatentOutputs,
    _fitted,
    _in_slots_before,
    _in_slots_behind,
)
from fstgrad.learning.sequence import SequenceModel
from fstgrad.learning.templates import Tagged


def alignments(x, y, max_x, max_y, empty_x=True, empty_y=True):
    """All sequences of links of a pair."""
    if not x and not y:
        yield ()
    for a, b in itertools.product(range(max_x + 1), range(max_y + 1)):
        if a + b == 0 or a > len(x) or b > len(y) or (a == 0 and not empty_x):
            continue
        if b == 0 and not empty_y:
            continue
        for rest in alignments(x[a:], y[b:], max_x, max_y, empty_x, empty_y):
            yield ((x[:a], y[:b]), *rest)


SETTINGS = [
    {"max_x": 2, "max_y": 2},
    {"max_x": 1, "max_y": 2, "empty_x": False, "normalization": "conditional"},
    {"max_x": 2, "max_y": 1, "empty_y": False},
    {"max_x": 1, "max_y": 1, "normalization": "conditional"},
]


def pairs_for(settings, rng):
    pairs = []
    while len(pairs) < 5:
        x, y = (tuple(rng.choice(list("abc"), size=rng.integers(1, 4))) for _ in range(2))
        limits = {k: v for k, v in settings.items() if k != "normalization"}
        if next(alignments(x, y, **limits), None) is not None:
            pairs.append((x, y))
    return pairs


@pytest.mark.parametrize("settings", SETTINGS)
def test_expected_counts_equal_enumeration_of_alignments(settings):
    rng = np.random.default_rng(1)
    pairs = pairs_for(settings, rng)
    limits = {k: v for k, v in settings.items() if k != "normalization"}
    every = [list(alignments(x, y, **limits)) for x, y in pairs]
    kinds = {link for found in every for one in found for link in one}
    aligner = Aligner(**settings, max_iter=4).fit(pairs)
    p = dict.fromkeys(kinds, 1 / len(aligner.counts_))  # uniform, dead ends included
    history = []
    for _ in range(4):
        counts, total = dict.fromkeys(kinds, 0.0), 0.0
        for found in every:
            weight = [np.prod([p[link] for link in one]) for one in found]
            total += np.log(sum(weight))
            for one, w in zip(found, weight, strict=True):
                for link in one:
                    counts[link] += w / sum(weight)
        history.append(total)
        for u, v in kinds:
            norm = sum(
                n
                for (other, _), n in counts.items()
                if settings.get("normalization") != "conditional" or other == u
            )
            p[u, v] = counts[u, v] / norm
    np.testing.assert_allclose(aligner.log_likelihood_, history, atol=1e-10)
    assert (np.diff(aligner.log_likelihood_) >= -1e-12).all()
    for (x, y), found in zip(pairs, every, strict=True):
        result = aligner.align(x, y)
        weight = np.array([np.prod([p[link] for link in one]) for one in found])
        assert result.log_probability == pytest.approx(np.log(weight.sum()), abs=1e-10)
        best = found[int(weight.argmax())]
        assert np.prod([p[tuple(link)] for link in result.links]) == pytest.approx(weight.max())
        if np.isclose(weight, weight.max(), rtol=1e-9).sum() == 1:
            assert tuple(map(tuple, result.links)) == best
        done = 0, 0
        for link, posterior in zip(result.links, result.posterior, strict=True):
            place = (done, link)
            expected = (
                sum(w for one, w in zip(found, weight, strict=True) if place in placed(one))
                / weight.sum()
            )
            assert posterior == pytest.approx(expected, abs=1e-10)
            done = done[0] + len(link.x), done[1] + len(link.y)


def placed(links):
    i = j = 0
    for u, v in links:
        yield (i, j), Link(u, v)
        i, j = i + len(u), j + len(v)


def test_pairs_without_an_alignment_are_named():
    with pytest.raises(fg.InfeasibleError, match=r"^2 items are infeasible: pairs\[1\] has 1 sym"):
        Aligner(1, 1, empty_x=False).fit([("a", "b"), ("a", "bbb"), ("a", "bb")])
    aligner = Aligner(1, 1, empty_x=False, empty_y=False).fit([(("a",), ("b",))])
    with pytest.raises(fg.InfeasibleError, match=r"item 0: x is .*cannot align"):
        aligner.align("a", "c")
    with pytest.raises(fg.InvalidInputError, match="pairs is empty"):
        Aligner().fit([])


def test_smoothing_counts_the_links_of_whole_alignments_alone():
    """ab-x; and a-x bc-y or ab-x c-y.  The link b-y, for one, leaves c without a y."""
    pairs = [(tuple("ab"), tuple("x")), (tuple("abc"), tuple("xy"))]
    aligner = Aligner(2, 1, empty_x=False, empty_y=False, smoothing=0.25, max_iter=1).fit(pairs)
    assert sorted(aligner.counts_) == [0.5 + 0.25, 0.5 + 0.25, 0.5 + 0.25, 1.5 + 0.25]
    p = np.exp(aligner.align("abc", "xy").log_probability)
    assert p == pytest.approx((0.75 / 4) ** 2 + (1.75 / 4) * (0.75 / 4), abs=1e-12)


def test_an_empty_x_has_links_of_up_to_max_y_symbols():
    pairs = [((), ("b", "c")), (("a",), ("b",)), ((), ("b",))]
    aligner = Aligner(2, 2, longest={"a": 1, "z": 3}).fit(pairs)
    found = [aligned.links for aligned in aligner.align_all(pairs)]
    assert found == [(Link(*pairs[0]),), (Link(*pairs[1]),), (Link(*pairs[2]),)]


def test_strings_for_each_symbol():
    links = [Link((), ("p",)), Link(("a", "b"), ("q", "r")), Link((), ("s",)), Link(("c",), ())]
    assert per_symbol(links) == [("p", "q", "r"), ("s",), ()]


def spell(x):
    return "".join({"x": "ks", "e": "", "q": "k"}.get(a, a) for a in x)


def words(count, seed):
    rng = np.random.default_rng(seed)
    made = ["".join(rng.choice(list("abxeq"), size=rng.integers(1, 6))) + "a" for _ in range(count)]
    return made, [spell(x) for x in made]


@pytest.mark.parametrize("objective", ["crf", "softmax-margin", "risk"])
def test_a_model_learns_outputs_of_another_length(objective, tmp_path):
    X, Y = words(100, 0)
    model = SequenceModel(
        "edit", alignment="auto", objective=objective, order=1, window=0, batch_size=8
    )
    model.fit(X, Y)
    test = words(30, 1)[0]
    assert model.predict(test) == [spell(x) for x in test]
    assert model.evaluate(X, Y).accuracy == 1.0
    best = model.predict_nbest(["xa"], k=3)[0]
    assert best[0][0] == "ksa"
    assert best[0][1] <= 0.0
    assert len({y for y, _ in best}) == len(best)
    model.save(tmp_path / "m.npz")
    loaded = SequenceModel.load(tmp_path / "m.npz")
    assert loaded.predict(test) == model.predict(test)
    assert loaded.evaluate(X, Y) == model.evaluate(X, Y)


def test_pairs_that_do_not_belong_together_are_left_out():
    X, Y = words(100, 0)
    wrong = [("aaaaaa", "ksbksbkksb"), ("qqqqqqqq", "bababab")]
    model = SequenceModel("edit", alignment="em", objective="crf", order=1, window=0, epochs=2)
    model.fit([*X, *(x for x, _ in wrong)], [*Y, *(y for _, y in wrong)])
    assert model.left_out_ == 2
    assert model.fit(X, Y).left_out_ == 0
    pairs = [(tuple(x), tuple(y)) for x, y in [wrong[0], *zip(X, Y, strict=True), wrong[1]]]
    _, aligned, places = LatentOutputs.fit(pairs, fg.Alphabet.from_sequences(Y))
    assert places == list(range(1, 101))
    assert len(aligned) == 100
    few = [*pairs[:40], wrong[1]]
    assert LatentOutputs.fit(few, fg.Alphabet.from_sequences(Y))[2] == list(range(41))


def test_at_most_a_tenth_is_left_out():
    rng = np.random.default_rng(0)
    words = [tuple(rng.choice([*"abcdefgh"], 8)) for _ in range(100)]
    pairs = [(x, x if i < 60 else words[99 - i]) for i, x in enumerate(words[:80])]  # 20 at random
    places = LatentOutputs.fit(pairs, fg.Alphabet("abcdefgh"))[2]
    assert len(places) == 72
    assert places[:60] == list(range(60))


@pytest.mark.parametrize("length", [1, 2, 5])
def test_short_outputs_are_related(length):
    """The frequencies of symbols are those of strings that end, like the aligner's p(y | x)."""
    rng = np.random.default_rng(0)
    words = [tuple(rng.choice([*"abcd"], length)) for _ in range(200)]
    pairs = [(x, tuple(s.upper() for s in x)) for x in words]
    assert len(LatentOutputs.fit(pairs, fg.Alphabet("ABCD"))[2]) == 200
    several = [((*x, *"xyz"), y[:1]) for x, y in pairs]
    assert len(LatentOutputs.fit(several, fg.Alphabet("ABCD"))[2]) == 200


def test_tags_decide_the_suffix():
    rng = np.random.default_rng(0)
    ends = {"past": "ed", "now": "", "ing": "ing"}
    stems = ["".join(rng.choice(list("bdgklmnprt"), size=4)) for _ in range(60)]
    pairs = [(Tagged(tuple(s), (tag,)), s + end) for s in stems for tag, end in ends.items()]
    X, Y = [x for x, _ in pairs], [y for _, y in pairs]
    model = SequenceModel("edit", alignment="em", objective="crf", order=1, window=0)
    model.fit(X[:120], Y[:120])
    assert model.evaluate(X[120:], Y[120:]).accuracy >= 0.95


def test_a_pair_of_which_one_side_is_far_longer():
    pairs = [("a", tuple("xyzxyzxyzxyzxyz")), ("aaaa", ("x",))]
    latent, aligned, _ = LatentOutputs.fit([(tuple(x), y) for x, y in pairs], fg.Alphabet("xyz"))
    for (_, y), (x, z) in zip(pairs, aligned, strict=True):
        assert len(x) == len(z)
        assert latent.read(latent.symbols.encode(z)) == y
    with pytest.raises(fg.InvalidInputError, match="marks the slots"):
        LatentOutputs.fit([(("a", "<s2>"), ("x",))], fg.Alphabet("xyz"))
    with pytest.raises(fg.InvalidInputError, match=r"3300 of y, too many .* alignment=None"):
        LatentOutputs.fit([(("a",) * 3300, ("x",) * 3300)], fg.Alphabet("xyz"))


def test_settings_are_those_of_scikit_learn():
    sklearn = pytest.importorskip("sklearn")
    from sklearn.model_selection import GridSearchCV, cross_val_score

    X, Y = words(40, 2)
    model = SequenceModel("edit", alignment="em", objective="crf", epochs=4, batch_size=8)
    assert sklearn.base.clone(model).get_params() == model.get_params()
    assert cross_val_score(model, X, Y, cv=3).shape == (3,)
    found = GridSearchCV(model, {"l2": [1e-4, 1e-2]}, cv=2).fit(X, Y)
    assert found.best_params_["l2"] in (1e-4, 1e-2)
    assert "alignment='em'" in repr(model)
    from sklearn.utils.estimator_checks import check_estimator

    with pytest.warns(sklearn.exceptions.SkipTestWarning, match="requires input"):  # no matrices
        done = check_estimator(SequenceModel("edit", alignment="em"), on_skip=None)
    assert {found["status"] for found in done} == {"passed"}


def test_numbers_of_links_are_those_of_numpy():
    """By a table where numbers are small, by a sort where they are not."""
    for largest in (1, 50, 10**7):
        keys = np.random.default_rng(largest).integers(0, largest, 300)
        expected = np.unique(keys, return_inverse=True)
        for found, array in zip(_unique_inverse(keys.copy()), expected, strict=True):
            np.testing.assert_array_equal(found, array)
    assert [len(array) for array in _unique_inverse(np.zeros(0, dtype=np.int64))] == [0, 0]


def test_discouraged_are_rare_strings_of_several_symbols_alone():
    aligner = Aligner(max_iter=3).fit([("ab", "abb"), ("a", "a"), ("b", "bb"), ("ab", "ab")])
    before = aligner.log_p_.copy()
    strings = aligner._y.strings()
    before = aligner.log_p_.copy()
    np.testing.assert_array_equal(aligner.discourage(0.0).log_p_, before)
    aligner.discourage(1e6)  # more than any count
    change = [-50.0 if len(strings[y]) > 1 else 0.0 for _, y in aligner._number]
    np.testing.assert_allclose(aligner.log_p_ - before, change, atol=1e-10)


def test_symbols_of_aligned_pairs_are_copies():
    pairs = [("ab", "ab"), ("ba", "bb")]
    for settings in ({"features": "aligned"}, {"alignment": "given"}):
        model = SequenceModel(epochs=1, **settings).fit(*zip(*pairs, strict=True))
        assert model.features_.copies == {"a": 0, "b": 1}
    assert not SequenceModel(epochs=1).fit(*zip(*pairs, strict=True)).features_.copies


def test_alignment_ends_with_the_first_iteration_without_gain():
    aligner = Aligner(1, 1, empty_x=False, empty_y=False).fit([("a", "x")])
    assert len(aligner.log_likelihood_) == 2


def test_a_slot_produces_at_most_one_symbol():
    pairs = [(("a",), ("x", "y") * 10), (("a", "a", "b"), ("x",)), (("b",), ("y",))]
    aligner, cut, _ = _fitted(pairs)
    for pair in aligner.align_all(cut):
        assert all(len(link.y) <= 1 for link in pair.links if _SLOT.fullmatch(link.x[0]))


def test_links_on_no_complete_alignment_are_left_out():
    """With counts of 0, log(0) - log(0) would make every likelihood NaN."""
    settings = {"max_x": 2, "max_y": 1, "empty_x": False, "empty_y": False}
    pairs = [(("a", "b"), ("x",)), (("a", "b", "c"), ("x", "y"))]
    aligner = Aligner(**settings, normalization="conditional").fit(pairs)
    # one alignment (ab, x) and two, (a, x) (bc, y) and (ab, x) (c, y): 4 kinds of links
    assert aligner.log_likelihood_[0] == pytest.approx(np.log(1 / 4) + np.log(2 / 4**2))
    assert np.isfinite(aligner.log_p_).tolist() == [True] * 4
    first, second = aligner.align_all(pairs)
    assert (first.links, first.posterior) == ((Link(("a", "b"), ("x",)),), (1.0,))
    assert [link.x for link in second.links] in ([("a",), ("b", "c")], [("a", "b"), ("c",)])
    assert second.log_probability == pytest.approx(np.log(1 + 1))  # two alignments, p(v | u) = 1


def test_random_fits_have_no_nan():
    rng = np.random.default_rng(0)
    for _ in range(60):
        counts = dict(zip(("max_x", "max_y"), rng.integers(1, 4, 2).tolist(), strict=True))
        flags = dict(zip(("empty_x", "empty_y"), (rng.random(2) < 0.5).tolist(), strict=True))
        aligner = Aligner(
            **counts, **flags,
            normalization=["joint", "conditional"][rng.integers(2)],
            smoothing=[0.0, 1e-320, 1e300][rng.integers(3)],
            start=[None, lambda u, v: -800.0 * (u != v)][rng.integers(2)],
        )  # fmt: skip
        pairs = [tuple(tuple(rng.choice([*"abc"], rng.integers(0, 4))) for _ in "xy")] * 2
        try:
            found = aligner.fit(pairs).align_all(pairs)
        except fg.InfeasibleError:
            continue
        assert np.isfinite(aligner.log_likelihood_).all()
        assert not np.isnan(aligner.log_p_).any()
        for one in found:
            assert np.isfinite(one.log_probability)
            assert (sum((link.x for link in one.links), ()), len(one.links)) == (
                tuple(pairs[0][0]), len(one.posterior)
            )  # fmt: skip


def test_symbols_with_a_limit_of_their_own():
    """The limit of an insertion is that of the symbol before it, of the first one at the start."""
    longest, most_x, most_y = {"b": 1}, 2, 2

    def lengths(x, y, i=0, j=0):
        """The number of links of each alignment."""
        if (i, j) == (len(x), len(y)):
            yield 0
        for a in range(min(most_x, len(x) - i) + 1):
            owner = x[max(0, i - (a == 0))] if x else ""
            for b in range(min(longest.get(owner, most_y), len(y) - j) + 1):
                if a + b:
                    yield from (1 + n for n in lengths(x, y, i + a, j + b))

    texts = [("ab", "xyz"), ("a", "xy"), ("ba", "xyx"), ("", "yx"), ("bb", "zz")]
    pairs = [(tuple(x), tuple(y)) for x, y in texts]
    aligner = Aligner(most_x, most_y, longest=longest, max_iter=1).fit(pairs)
    kinds = len(aligner.counts_)
    expected = [np.log(sum(float(kinds) ** -n for n in lengths(x, y))) for x, y in pairs]
    np.testing.assert_allclose(aligner.log_probabilities_, expected, rtol=1e-12)


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("text", ["", "a", "ab", "abc", "abcdef"])
def test_slots_beside_x_hold_the_whole_string(slots, text):
    """Letter by letter, nearest to x first; what is left over is in the outermost slot."""
    string, empty = tuple(text), ()
    excess = max(0, len(text) - slots + 1)
    before, behind = _in_slots_before(string, slots), _in_slots_behind(string, slots)
    assert sum(before, ()) == sum(behind, ()) == string
    assert len(before) == len(behind) == slots
    letters = [(symbol,) for symbol in string]
    rest = slots - 1 - (len(string) - excess)
    assert before == (*[empty] * rest, string[:excess], *letters[excess:])
    inner = letters[: slots - 1]
    assert behind == (*inner, *[empty] * (slots - 1 - len(inner)), string[slots - 1 :])


@pytest.mark.parametrize("normalization", ["joint", "conditional"])
def test_an_advantage_at_the_start_is_a_probability(normalization):
    """The likelihood rises from the first iteration on, so that the fit does not stop there."""
    pairs = [("aab", "xxy"), ("ab", "xxyy"), ("ba", "yx"), ("bab", "yxx")]
    aligner = Aligner(
        max_iter=30, normalization=normalization, start=lambda u, v: 3.0 * (len(u) == len(v))
    ).fit([(tuple(x), tuple(y)) for x, y in pairs])
    assert len(aligner.log_likelihood_) > 5
    assert aligner.log_likelihood_[0] < 0
    assert (np.diff(aligner.log_likelihood_) > -1e-9).all()
