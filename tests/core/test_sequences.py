"""What is a batch of sequences, for every function that takes one."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.costs import fit_ranking
from fstgrad.learning.align import Aligner
from fstgrad.learning.comparison import compare
from fstgrad.learning.measures import errors, evaluate
from tests.tables import Column, Frame

WORDS, OTHERS = ["ab", "cba"], ["abc", "ca"]
ABC = fg.Alphabet("abc")
EDIT = fg.EditDistance(ABC)
MODEL = fg.SequenceModel(order=1, epochs=1).fit(WORDS, WORDS)
LATTICE = fg.Lattice.from_nbest(WORDS, [0.0, 0.0], ABC)
UNIFORM = fg.StringDistribution(np.zeros((2, 3)))

BATCHES = {  # a call with the batch in question
    "pairwise": lambda b: EDIT.pairwise(b, WORDS),
    "targets": lambda b: EDIT.pairwise(WORDS, b),
    "matrix": lambda b: EDIT.matrix(WORDS, b),
    "check": EDIT.check,
    "from_sequences": fg.Alphabet.from_sequences,
    "from_nbest": lambda b: fg.Lattice.from_nbest(b, [0.0, 0.0], ABC).mode(),
    "mbr": lambda b: fg.mbr(UNIFORM, EDIT, b).risks,
    "fit X": lambda b: fg.SequenceModel(order=1, epochs=1).fit(b, WORDS).coef_,
    "fit Y": lambda b: fg.SequenceModel(order=1, epochs=1).fit(WORDS, b).coef_,
    "validation": lambda b: (
        fg.SequenceModel(order=1, epochs=1).fit(WORDS, WORDS, validation=(b, WORDS)).coef_
    ),
    "predict": MODEL.predict,
    "predict_nbest": lambda b: MODEL.predict_nbest(b, 1),
    "score X": lambda b: MODEL.score(b, WORDS),
    "score Y": lambda b: MODEL.score(WORDS, b),
    "evaluate": lambda b: evaluate(b, WORDS),
    "errors": lambda b: errors(WORDS, b),
    "compare": lambda b: compare(WORDS, b, WORDS, resamples=10),
    "candidates": lambda b: fit_ranking(EDIT, [("ab", 0, b)], max_iter=1).cost,
}
SAME = {  # the words as another batch
    "tuple": tuple,
    "array": np.array,
    "objects": lambda words: np.array(words, dtype=object),
    "column": lambda words: Column(words, index=[7, 3]),
    "generator": iter,
}
NO_BATCH = {
    "set": set,
    "frozenset": frozenset,
    "dict": dict.fromkeys,
    "keys": lambda words: dict.fromkeys(words).keys(),
    "values": lambda words: dict(enumerate(words)).values(),
    "table": lambda words: Frame([[word] for word in words], columns=["hyp"]),
    "records": lambda words: np.array([(word,) for word in words], dtype=[("hyp", "U3")]),
    "matrix": lambda words: np.array(words)[:, None],
    "str": lambda words: words[0],
    "bytes": lambda words: words[0].encode(),
    "no axis": lambda words: np.array(words[0]),
    "masked": lambda words: np.ma.array(words, mask=[True, False]),
    "none": lambda words: None,
}


@pytest.mark.parametrize("call", BATCHES.values(), ids=BATCHES)
def test_batches(call):
    expected = call(WORDS)
    for name, made in SAME.items():
        assert repr(call(made(WORDS))) == repr(expected), name
    for name, made in NO_BATCH.items():
        if name == "none" and call is BATCHES["mbr"]:
            continue  # its default
        with pytest.raises(fg.InvalidInputError, match=r" is | has masked"):  # noqa: PT012
            call(made(WORDS))
            pytest.fail(f"{name} passes")


def test_headers_are_no_words():
    hyp, ref = Frame([["ab"], ["c"]], columns=["hyp"]), Frame([["ab"], ["a"]], columns=["ref"])
    with pytest.raises(fg.InvalidInputError, match=r"table with the columns 'hyp'.*ys\['hyp'\]"):
        EDIT.pairwise(hyp, ref)
    with pytest.raises(fg.InvalidInputError, match=r"X is a table .* give one column, such as X"):
        fg.SequenceModel().fit(hyp, ref)
    with pytest.raises(fg.InvalidInputError, match=r"list\(zip\(pairs\['x'\], pairs\['y'\]\)\)"):
        Aligner().fit(Frame([["a", "b"]], columns=["x", "y"]))


def test_tables_of_other_libraries_are_named_by_their_columns():
    index = Column([("ab", 1)])
    index.nlevels = 2  # a MultiIndex, which has no index of its own
    del index.index
    with pytest.raises(fg.InvalidInputError, match=r"index of 2 levels.*get_level_values\(0\)"):
        EDIT.pairwise(index, WORDS)
    texts = Column(WORDS)  # texts of pyarrow, which are no array without a copy
    texts.to_numpy, texts.to_pylist = None, lambda: WORDS
    assert EDIT.pairwise(texts, WORDS).tolist() == [0, 0]
    table = Frame([["ab"]], columns=[["ab"]])  # a table of pyarrow: columns are values
    table.column_names = ["hyp"]
    with pytest.raises(fg.InvalidInputError, match=r"the columns 'hyp'; give .* ys\['hyp'\]"):
        EDIT.pairwise(table, WORDS)
    with pytest.raises(fg.AlphabetError, match="an id of 64 bits"):
        EDIT(np.array([2**63], dtype=np.uint64), "a")


@pytest.mark.parametrize("wrong", [{"a", "b"}, {"a": 0, "b": 1}, dict(a=0).keys(), b"ab"])
def test_symbols_have_an_order(wrong):
    with pytest.raises(fg.AlphabetError, match="symbols is"):
        fg.Alphabet(wrong)
    assert fg.Alphabet(Column(["b", "a"])).symbols == ("b", "a")
    assert fg.Alphabet(c for c in "ba") == fg.Alphabet(np.array(["b", "a"])) == fg.Alphabet("ba")


@pytest.mark.parametrize("wrong", [{"a"}, {"a": 1}, b"a", None, 3, 0.5, [True], [0.0], [b"a"]])
def test_no_sequences(wrong):
    with pytest.raises(fg.AlphabetError, match="y"):
        EDIT(wrong, "a")
    with pytest.raises(fg.AlphabetError, match="target"):
        EDIT.compile(wrong)


@pytest.mark.parametrize("kind", [np.int8, np.uint64, object])
def test_ids(kind):
    rows = np.array([[0, 1], [2, 0]], dtype=kind)
    if kind is object:
        rows = list(rows)
    np.testing.assert_array_equal(EDIT.pairwise(rows, ["ab", "cb"]), [0, 1])
    np.testing.assert_array_equal(ABC.encode(Column([2, 0])), [2, 0])
    np.testing.assert_array_equal(ABC.encode(Column(["c", "a"], [5, 9])), [2, 0])


def test_what_is_missing_is_no_symbol():
    words = fg.Alphabet(["nan", "None", "1"])
    for missing in (np.nan, None, 1.0):
        with pytest.raises(fg.AlphabetError, match=r"sequence\[0\]"):
            words.encode([missing, "nan"])


def test_columns_that_belong_together_have_one_index():
    hyp, ref = Column(["ab", "c"], index=[4, 2]), Column(["ab", "a"], index=[4, 2])
    np.testing.assert_array_equal(EDIT.pairwise(hyp, ref), [0, 1])
    np.testing.assert_array_equal(EDIT.pairwise(hyp, ["ab", "a"]), [0, 1])
    turned = Column(["a", "ab"], index=[2, 4])
    with pytest.raises(fg.InvalidInputError, match="ys has the index 4, 2 and targets 2, 4"):
        EDIT.pairwise(hyp, turned)
    assert EDIT.matrix(hyp, turned).shape == (2, 2)
    with pytest.raises(fg.InvalidInputError, match="hypotheses has the index 4, 2 and scores 0, 1"):
        fg.Lattice.from_nbest(hyp, Column([0.0, 1.0]), ABC)
    for call in (MODEL.fit, MODEL.score):
        with pytest.raises(fg.InvalidInputError, match="X has the index 4, 2 and Y 2, 4"):
            call(hyp, turned)
    with pytest.raises(fg.InvalidInputError, match="predictions has the index"):
        evaluate(hyp, turned)


@pytest.mark.parametrize("call", [Aligner().fit, lambda pairs: fg.fit_costs(EDIT, pairs)])
def test_a_text_is_no_pair(call):
    with pytest.raises(fg.InvalidInputError, match=r"pairs\[0\] is the str 'ab'"):
        call(["ab", "bc"])
    with pytest.raises(fg.InvalidInputError, match=r"pairs\[0\] is a dict"):
        call([{"x": "ab", "y": "bc"}])


def test_generators_are_read_once():
    assert MODEL.evaluate(iter(WORDS), iter(WORDS)) == MODEL.evaluate(WORDS, WORDS)
    for call in (EDIT.matrix, EDIT.pairwise, fg.score, MODEL.evaluate):
        same = iter(["ab", "ba"])
        with pytest.raises(
            fg.InvalidInputError, match=r"are the same list_iterator, .* give lists"
        ):
            call(same, same)


def test_words_are_no_text():
    with pytest.raises(fg.InvalidInputError, match=r"str 'the cat' .* list with the symbol 'the'"):
        evaluate([["the", "cat"]], ["the cat"])
    words = fg.SequenceModel(order=1, epochs=1).fit([["the", "cat"]], [["D", "NN"]])
    for x in ("the cat", ["the cat"]):
        with pytest.raises(fg.InvalidInputError, match="'the cat'"):
            words.predict(x)
    with pytest.raises(fg.InvalidInputError, match=r"model has words such as 'cat'.*X\[0\]\.split"):
        words.distribution("the cat")
    with pytest.raises(fg.InvalidInputError, match=r"Y\[0\] is the str 'D NN'"):
        words.score([["the", "cat"]], ["D NN"])
    assert len(words.predict([["the", "cat"]])[0]) == 2


def test_a_model_that_aligns_characters_reads_text():
    model = fg.SequenceModel(order=1, epochs=1, alignment="em").fit(["ab", "abb"], ["x", "xy"])
    assert isinstance(model.predict(["ab"])[0], str)


@pytest.mark.parametrize("x", [["the", "cat"], ("the", "a")])
def test_words_are_no_characters(x):
    model = fg.SequenceModel(order=1, epochs=1).fit(["the", "cat"], ["xyz", "abc"])
    for call in (model.predict, lambda xs: model.score(xs, ["xyz"])):
        with pytest.raises(fg.InvalidInputError, match=r"X\[0\] has the word 'the', but the model"):
            call([x])
    assert model.predict([list("the")]) == model.predict(["the"])
    assert len(model.predict([["t", "he", "e"]])[0]) == 3  # an unknown symbol


def test_targets_are_words_or_text():
    with pytest.raises(fg.InvalidInputError, match=r"Y\[1\] is the str 'NN'.* words such as 'NN'"):
        fg.SequenceModel(order=1, epochs=1).fit([["the", "cat"], ["a"]], [["D", "NN"], "NN"])


def test_a_mapping_of_pairs():
    with pytest.raises(fg.InvalidInputError, match=r"such as list\(pairs\.items\(\)\)"):
        Aligner().fit({"ab": "x"})
    with pytest.raises(fg.InvalidInputError, match=r"such as list\(slots\[0\]\.items\(\)\)"):
        fg.Lattice.from_confusion_network([{"a": 0.0}], ABC)
    assert fg.Lattice.from_confusion_network([list({"a": 0.0}.items())], ABC).log_partition() == 0


def test_empty_targets_are_evaluated():
    model = fg.SequenceModel(order=1, epochs=1).fit(WORDS, WORDS)
    found = model.evaluate(WORDS, ["ab", ""])
    edits = len(model.predict(WORDS)[1]) + EDIT(model.predict(WORDS)[0], "ab")
    assert (found.loss, found.error_rate) == (edits / 2, edits / 2)  # two pairs, two symbols
    fg.SequenceModel(order=1, epochs=1).fit(WORDS, WORDS, validation=(WORDS, ["ab", ""]))
    with pytest.raises(fg.InvalidInputError, match=r"Y\[1\] is empty"):
        model.fit(WORDS, ["ab", ""])
