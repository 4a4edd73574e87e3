"""Tags that write spans: schemes, and the loss that counts missed and wrong spans."""

import itertools

import numpy as np
import pytest

import fstgrad as fg
from tests.oracles import losses as by_hand

LETTERS = {"BIO": "BI", "BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES"}
EACH = pytest.mark.parametrize("name", LETTERS)


def tags_of(name, types="xy"):
    return ["O", *(f"{letter}-{kind}" for kind in types for letter in LETTERS[name])]


@EACH
def test_spans_are_those_of_conlleval(name):
    """Of all tags of length 3, also of those that no scheme allows."""
    tags = tags_of(name)
    scheme = fg.TagScheme(tags, name)
    assert scheme.types == ("x", "y")
    for length in range(4):
        for y in itertools.product(tags, repeat=length):
            assert scheme.spans(y) == by_hand.spans(y)


@EACH
def test_allowed_tags_are_those_that_spans_write(name):
    """The tags of all sets of spans in three tokens, and nothing else, may follow each other."""
    tags = tags_of(name)
    scheme = fg.TagScheme(tags, name)
    first, inner, *single = LETTERS[name]

    def written(length):
        """All tags of all sets of spans."""
        if length == 0:
            yield ()
        for stop in range(1, length + 1):
            for rest in written(length - stop):
                if stop == 1:
                    yield ("O", *rest)
                for kind in "xy":
                    own = [first] + [inner] * (stop - 1)
                    if single:  # the last and the only token have their own letters
                        own[-1] = single[-1] if stop == 1 else single[0]
                    yield (*(f"{letter}-{kind}" for letter in own), *rest)

    expected = set(written(3))
    for y in itertools.product(tags, repeat=3):
        ids = scheme.alphabet.encode(y)
        allowed = scheme.allowed[ids[:-1], ids[1:]].all()
        allowed &= scheme.allowed_start[ids[0]] & scheme.allowed_end[ids[-1]]
        assert allowed == (y in expected), y


@EACH
def test_the_loss_counts_spans(name):
    tags, rng = tags_of(name), np.random.default_rng(0)
    loss = fg.SpanHamming(fg.Alphabet(tags), name, missed_cost=0.5, wrong_cost=2.0)
    for length in (0, 1, 2, 7) * 20:
        y, z = ([tags[i] for i in rng.integers(len(tags), size=length)] for _ in range(2))
        own, gold = set(by_hand.spans(y)), set(by_hand.spans(z))
        assert loss(y, z) == 0.5 * len(gold - own) + 2.0 * len(own - gold), (y, z)
    assert loss(["O"], ["O", "O"]) == np.inf


def test_risk_and_margin_of_spans_against_enumeration():
    """Bigram scores, one type, all 3^5 tags; the gradient by differences of the enumeration."""
    tags, gold = ["O", "B-x", "I-x"], [1, 2, 0, 1, 1]
    loss = fg.SpanHamming(fg.Alphabet(tags))
    scores = np.random.default_rng(0).normal(size=(5, 4, 3))
    ys = list(itertools.product(range(3), repeat=5))
    target = set(by_hand.spans([tags[i] for i in gold]))
    costs = np.array([len(target ^ set(by_hand.spans([tags[i] for i in y]))) for y in ys])
    parts = np.zeros((len(ys), *scores.shape))
    for row, y in zip(parts, ys, strict=True):
        row[np.arange(5), [3, *y[:-1]], y] = 1.0
    weight = np.exp((parts * scores).sum(axis=(1, 2, 3)))
    p = weight / weight.sum()
    b = loss.compile(gold)
    value, gradient = fg.risk(scores, b)
    assert value == pytest.approx(p @ costs, abs=1e-12)
    expected = np.tensordot(p * (costs - p @ costs), parts, 1)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-12)
    margin = np.log((weight * np.exp(costs)).sum()) - (parts[ys.index(tuple(gold))] * scores).sum()
    assert fg.softmax_margin(scores, gold, b)[0] == pytest.approx(margin, abs=1e-12)


def test_many_types_need_few_states():
    """Eighteen types, as in OntoNotes: at most K + 2 states a position."""
    tags = tags_of("BIO", map(str, range(18)))
    gold = np.random.default_rng(0).integers(len(tags), size=30)
    assert fg.SpanHamming(fg.Alphabet(tags)).compile(gold).num_states <= 20 * 30 + 1


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: fg.TagScheme(["O", "E-PER"]), "tags has 'E-PER'; a tag of BIO is 'O', or B, I"),
        (lambda: fg.TagScheme(["O", "[PAD]"]), r"tags has '\[PAD\]'"),
        (lambda: fg.TagScheme(["O", "B-"]), "tags has 'B-'"),
        (lambda: fg.TagScheme(["O", "O"]), "more than once"),
        (lambda: fg.TagScheme([]), "symbols is empty"),
        (lambda: fg.TagScheme(["O"], "IOB1"), "scheme is 'IOB1'; choose one of BIO, BIOES"),
        (lambda: fg.TagScheme(["O"]).spans(["B"]), "'B'"),
        (lambda: fg.SpanHamming(["O", "B"]), "alphabet"),
        (lambda: fg.SpanHamming(fg.Alphabet("OB"), missed_cost=-1.0), "missed_cost is -1"),
        (lambda: fg.SpanHamming(fg.Alphabet("OB"), wrong_cost=np.inf), "wrong_cost is inf"),
    ],
)
def test_bad_input(call, said):
    with pytest.raises(fg.InvalidInputError, match=said):
        call()


def test_an_acceptor_is_no_target():
    from fstgrad.losses.transducers.builder import string_acceptor

    tags = fg.Alphabet("OB")
    with pytest.raises(fg.NotSupportedError, match="one target string"):
        fg.SpanHamming(tags).compile(string_acceptor(tags, "OB"), 2)
