"""Names as numbers, sparse pairs, copies, and whole chunks against pair by pair."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.core.errors import InvalidInputError
from fstgrad.learning.bigram_chunks import applies
from fstgrad.learning.objective import PairObjective
from fstgrad.learning.outcomes import Sums
from fstgrad.learning.template_features import TemplateFeatures
from fstgrad.learning.templates import Tagged, Window
from fstgrad.learning.trainer import OptimizerSteps
from fstgrad.learning.vocabulary import Names, WindowNames, vocabulary_of

ABC = fg.Alphabet("xyzab")
TAGGED = Tagged(("a", "b", "a"), ("N", "PL"))
DATA = [("abba", "xyzb"), ("b", "y"), ("bab", "bxy"), (TAGGED, "aba"), ("a", "a")]


@pytest.mark.parametrize("window", [Window(0, 1), Window(1, 2), Window(3, 3), Window(2, 4)])
def test_numbered_names_are_those_of_the_template(window):
    inputs = [(x, len(y) + extra) for x, y in DATA for extra in (0, 2)]
    numbered, named = WindowNames.of(window, inputs, 2), Names.of(window, inputs, 2)
    assert set(numbered.names) == set(named.names)
    assert len(numbered.names) == len(named)
    unknown = [(("a", "?", "b"), 3), (Tagged(("a", "?"), ("N", "other")), 2), ("", 1)]
    for x, length in inputs + unknown[: None if window.width else 1]:
        found, wanted = numbered.active([(x, length)]), named.active([(x, length)])
        for s in range(length):
            ids = found.ids[found.starts[s] : found.starts[s + 1]]
            expected = wanted.ids[wanted.starts[s] : wanted.starts[s + 1]]
            assert sorted(numbered.names[i] for i in ids) == sorted(
                named.names[i] for i in expected
            )


def test_an_input_with_tags_needs_a_symbol():
    window, empty = Window(1, 2), (Tagged((), ("N",)), 1)
    inputs = [(x, len(y)) for x, y in DATA]
    for vocabulary in (WindowNames.of(window, inputs, 1), Names.of(window, inputs, 1)):
        with pytest.raises(InvalidInputError, match="no symbols; give at least one"):
            vocabulary.active([*inputs, empty])
    with pytest.raises(InvalidInputError, match="no symbols; give at least one"):
        WindowNames.of(window, [*inputs, empty], 1)


def test_spans_that_cannot_be_numbered_are_refused():
    inputs = [([str(i) for i in range(500)], 500)]
    with pytest.raises(InvalidInputError, match="smaller span"):
        WindowNames.of(Window(1, 7), inputs, 1)


def sparse(order=2):
    copies = {"a": 3, "b": 4}
    return TemplateFeatures.from_pairs(ABC, order, Window(1, 2), DATA, copies=copies)


def test_an_empty_input_has_nothing_to_copy():
    assert sparse().encode([("", 2), ("a", 1)]).copies.tolist() == [-1, -1, 3]


def test_only_pairs_that_occur_have_weights():
    features = sparse()
    names = features.names
    for f, name in enumerate(names):
        pairs = features.pairs
        own = pairs.symbol[pairs.first[f] : pairs.first[f + 1]].tolist()
        expected = set()
        for x, y in DATA:
            for s, symbol in enumerate(y):
                if name in features.template(x, s, len(y)):
                    read = x.symbols if isinstance(x, Tagged) else x
                    expected.add(ABC.encode(symbol)[0])
                    if symbol == read[s]:
                        expected.add(len(ABC))
        assert own == sorted(expected), name


@pytest.mark.parametrize("order", [1, 2, 3])
def test_copies_and_their_adjoint(order):
    rng, features = np.random.default_rng(order), sparse(order)
    w = rng.normal(size=features.shape)
    table = features.scores(w, "ab", 2)
    single, _ = features.parts(w, "ab", 2)
    for s in range(2):
        for b in range(len(ABC)):
            own = 0.0
            for f, name in enumerate(features.names):
                if name in features.template("ab", s, 2):
                    for e in range(*features.pairs.first[f : f + 2]):
                        symbol = features.pairs.symbol[e]
                        own += w[e] * (symbol == b or (symbol == len(ABC) and b == 3 + s))
            assert single[s, b] == pytest.approx(own, abs=1e-12)
    change, out = rng.normal(size=table.shape), np.zeros(features.shape)
    features.accumulate(change, "ab", out)
    assert np.vdot(change, table) == pytest.approx(np.vdot(out, w), rel=1e-12)


def objectives():
    features, loss = sparse(), fg.EditDistance(ABC)
    yield PairObjective(features, kind="crf")
    for kind in ("softmax-margin", "risk"):
        yield PairObjective(features, loss, kind)
        yield PairObjective(features, loss, kind, cap=1.0)
        yield PairObjective(features, loss, kind, prune=1.0)
    yield PairObjective(features, fg.NGram(ABC, 1), "softmax-margin")  # not all strings are finite


@pytest.mark.parametrize(
    "objective", list(objectives()), ids=lambda o: f"{o.kind}-{o.cap}-{o.prune}"
)
@pytest.mark.parametrize("scale", [1.0, 300.0])  # at 300 weights pass the range of floats
def test_chunks_are_their_pairs_one_by_one(objective, scale):
    assert applies(objective)
    w = scale * np.random.default_rng(0).normal(size=objective.features.shape)
    bad = [("a", ""), ("a", "?"), InvalidInputError("a row")]
    items = [DATA[0], bad[0], *DATA[1:], *bad[1:]]
    expected = Sums(np.zeros(objective.features.shape))
    for x, y in DATA:
        part = objective.pair(w, x, y, out=expected.gradient)
        expected.count(part)
    with fg.Batch(objective) as batch:
        for _ in range(2):  # the second pass takes what the first has kept
            total, outcomes = Sums(np.zeros(objective.features.shape)), []
            for chunk in batch.chunks(w, items):
                total.add(chunk.sums)
                outcomes += chunk.outcomes
            assert [o.place for o in outcomes if o.error is not None] == [1, 6, 7]
            assert [o.place for o in outcomes] == list(range(8))
            assert (total.done, total.failed) == (5, 3)
            assert total.value == pytest.approx(expected.value, rel=1e-11)
            np.testing.assert_allclose(total.gradient, expected.gradient, atol=1e-9)


def test_sums_of_few_weights():
    one = Sums(np.array([1.0, 2.0]), support=np.array([4, 1]))
    one.add(Sums(np.array([3.0, 5.0]), support=np.array([1, 0])))
    total = Sums(np.ones(6))
    total.add(one)
    assert total.gradient.tolist() == [6, 6, 1, 1, 2, 1]
    with pytest.raises(InvalidInputError, match="few weights"):
        one.add(total)


def test_weights_that_a_step_leaves_alone_pay_the_penalty_later():
    """Gradients of few weights make the steps of whole gradients with zeros."""
    ends = []
    for sparse in (False, True):
        steps = OptimizerSteps(
            "sgd", 0.5, 0.4, 9, np.array([1.0, -2.0, 3.0]), np.zeros(3), np.zeros(3), 0
        )
        for place in (1, 1, 2, 1):
            value, whole = np.array([0.7]), 0.7 * np.eye(3)[place]
            some = Sums(value, done=1, support=np.array([place])) if sparse else Sums(whole, done=1)
            steps.take(some)
        steps.catch_up()
        ends.append(steps.w)
    np.testing.assert_allclose(*ends, rtol=1e-13)
    rates = [0.5 * (1 - taken / 9) for taken in range(4)]
    assert ends[1][0] == pytest.approx(np.prod([1 - 0.4 * rate for rate in rates]), rel=1e-13)


def test_a_template_may_yield_the_same_list_again():
    kept = []

    def letter(x, s, length):
        kept[:] = [x[s]]
        return kept

    vocabulary = vocabulary_of(letter, [("ab", 2), ("b", 1)], 1)
    assert vocabulary.names == ("a", "b")
    assert vocabulary.active([("ba", 2)]).ids.tolist() == [1, 0]
