"""A str is a sentence for word error rates, and characters for all other losses."""

import pickle

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.costs import explain
from fstgrad.learning.measures import evaluate

SENTENCES = ["the cat sat", "the dog", ""]
WORDS = fg.Alphabet.from_sequences([s.split() for s in SENTENCES])
LETTERS = fg.Alphabet.from_sequences(SENTENCES)
WER = fg.WordErrorRate(WORDS)


def test_sentences_are_split_at_white_space():
    assert WER("the cat", "the dog") == WER(["the", "cat"], ["the", "dog"]) == 1 / 2
    assert WER("the  cat\tsat\n", "the dog") == 2 / 2
    np.testing.assert_array_equal(WER.pairwise(["the cat", "sat"], ["the dog", "sat"]), [1 / 2, 0])
    np.testing.assert_array_equal(WER.matrix(["the cat"], ["the dog", "sat"]), [[1 / 2, 2]])
    assert WER.compile("the dog").loss("the cat") == 1 / 2
    assert WER.against("the dog").losses_of(WORDS.encode(["the", "cat"])[None])[0] == 1 / 2
    assert str(WER.align("the cat", "the dog")).split() == ["the", "cat", ".", "S", "the", "dog"]
    assert (2 * WER)("the cat", "the dog") == (WER + WER)("the cat", "the dog") == 1
    assert pickle.loads(pickle.dumps(WER))("the cat", "the dog") == 1 / 2
    assert WER.alphabet == WORDS


def test_a_rate_of_words_needs_words():
    for y in ("the cat", ["the", "cat"]):
        with pytest.raises(fg.AlphabetError, match=r"word 'the'.*make the alphabet from words"):
            fg.WordErrorRate(LETTERS)(y, "the dog")
    with pytest.raises(fg.AlphabetError, match=r"y\[1\] is 'mat', which is not in the alphabet"):
        WER("the mat", "the dog")
    with pytest.raises(fg.AlphabetError, match=r"has the word '.*WordErrorRate"):
        fg.CharacterErrorRate(WORDS)
    with pytest.raises(fg.InvalidInputError, match=r"Y\[0\] is the str 'the dog'.*split"):
        fg.SequenceModel(loss=fg.WordErrorRate).fit(["the dog"], ["the dog"])


def test_a_rate_of_characters_counts_spaces():
    rate = fg.CharacterErrorRate(LETTERS)
    assert rate("the cat", "the dog") == 3 / 7
    assert rate("thecat", "the cat") == 1 / 7


@pytest.mark.parametrize("loss", [fg.EditDistance(WORDS), fg.Normalized(fg.EditDistance(WORDS))])
def test_other_losses_of_words_refuse_a_text(loss):
    with pytest.raises(fg.AlphabetError, match=r"y is the str 'the cat'.*y\.split\(\) for words"):
        loss("the cat", ["the", "dog"])


def test_a_text_of_characters_and_longer_symbols():
    mixed = fg.Alphabet(["a", "b", "ab", "<s>"])
    with pytest.raises(fg.AlphabetError, match="'ab', but the alphabet has symbols of several"):
        mixed.encode("ab")
    assert mixed.encode("ba").tolist() == [1, 0]
    assert mixed.encode(["ab", "<s>"]).tolist() == [2, 3]


def test_empty_targets_count_as_one_word():
    """As in jiwer 4: the rate against silence is the number of insertions."""
    assert WER("", "") == 0
    assert WER("the cat", "") == 2
    np.testing.assert_array_equal(WER.pairwise(["the cat", ""], ["", "the"]), [2, 1])
    np.testing.assert_array_equal(WER.matrix(["the", ""], [""]), [[1], [0]])
    assert fg.CharacterErrorRate(LETTERS)("the", "") == 3
    assert fg.EditDistance(LETTERS).pairwise(["the"], [""]).tolist() == [3]
    assert [step.cost for step in WER.align("the cat", "").operations] == [1, 1]


def test_rates_of_a_lattice():
    beam = [s.split() for s in ("the cat", "the dog")]
    lattice = fg.Lattice.from_nbest(beam, np.log([0.75, 0.25]), WORDS)
    assert fg.risk(lattice, lattice.compile(WER, "the dog"))[0] == pytest.approx(
        0.75 / 2, abs=1e-10
    )
    best = fg.mbr(lattice, WER, ["the cat", "the dog"])
    assert best.risk == pytest.approx(0.25 / 2, abs=1e-10)


def test_evaluation_of_sentences():
    found = evaluate(["the cat", "the dog"], ["the dog", "the dog"], WER)
    assert found == evaluate(
        [["the", "cat"], ["the", "dog"]], [["the", "dog"], ["the", "dog"]], WER
    )
    assert (found.loss, found.error_rate, found.unknown) == ((1 / 2 + 0) / 2, 1 / 4, 0)


@pytest.mark.parametrize("loss", [WER, fg.Normalized(fg.EditDistance(LETTERS))])
def test_a_rate_has_no_costs_to_learn(loss):
    for call in (lambda: explain(loss, "the", "the"), lambda: fg.fit_costs(loss, [("the", "the")])):
        with pytest.raises(fg.InvalidInputError, match=f"source is a {type(loss).__name__}; give"):
            call()
