"""Losses from files: FSTs, archives, AT&T text; labels matched with the alphabet by symbol."""

import math

import numpy as np
import pynini
import pytest

import fstgrad as fg
from fstgrad import openfst
from fstgrad.losses import transducers

ABC = fg.Alphabet("abc")
REVERSED = fg.Alphabet("cba")  # the same symbols under other labels
TEXT = "0 0 a a 0\n0 0 b b\n0 0 c c\n0 0 a b 0.1\n0 0 b <eps> 2\n0\n"


def confusing(alphabet=ABC):
    """a for b costs 0.25, and nothing else is allowed."""
    costs = np.full((3, 3), 64.0)
    np.fill_diagonal(costs, 0.0)
    a, b = alphabet.encode("ab")
    costs[a, b] = 0.25
    fst = transducers.edit_transducer(alphabet, insert_cost=64.0, confusion=costs)
    return openfst.with_symbols(fst, alphabet)


@pytest.fixture
def files(tmp_path):
    confusing().write(str(tmp_path / "x.fst"))
    openfst.write_archive(
        tmp_path / "x.far", {"near": confusing(), "hamming": transducers.hamming_transducer(ABC)}
    )
    openfst.write_archive(tmp_path / "one.far", {"only": confusing()})
    (tmp_path / "x.txt").write_text(TEXT)
    (tmp_path / "labels.txt").write_text("0 0 7 7 0\n0 0 7 8 0.1\n0 0 8 8\n0\n")
    (tmp_path / "symbols").write_text("<eps> 0\na 7\nb\t8\n")
    return tmp_path


@pytest.mark.filterwarnings("ignore::fstgrad.UnusedArcsWarning")
@pytest.mark.parametrize("name", ["x.fst", "x.far:near", "one.far"])
@pytest.mark.parametrize("alphabet", [ABC, REVERSED, fg.Alphabet("ba")], ids=repr)
def test_symbols_decide_not_labels(files, name, alphabet):
    loss = fg.TransducerLoss.from_file(f"{files}/{name}", alphabet)
    assert loss("aab", "abb") == 0.25
    assert loss("bba", "baa") == 64.0
    assert loss.compile("ab").loss("aa") == 0.25


def test_a_transducer_in_memory_is_matched_too():
    loss = fg.TransducerLoss(confusing(REVERSED), ABC)
    assert loss("aab", "abb") == 0.25
    counter = openfst.with_symbols(transducers.ngram_counter(REVERSED, 2), REVERSED)
    grams = fg.TransducerLoss(
        (counter, counter.copy().invert()), ABC, semiring="probability", log=False
    )
    assert grams("abab", "bab") == fg.NGram(ABC, 2, log=False)("abab", "bab") == -3.0


def test_factors_with_other_symbols_where_they_meet():
    counter = openfst.with_symbols(transducers.ngram_counter(ABC, 2), ABC)
    other = openfst.with_symbols(transducers.ngram_counter(REVERSED, 2), REVERSED)
    with pytest.raises(fg.FstError, match=r"label 1 is 'a' on the left and '\w' on the right"):
        fg.TransducerLoss((counter, other.copy().invert()), ABC, semiring="probability")


def test_a_name_of_text_decides_nothing_else(tmp_path):
    path = tmp_path / "persian.farsi.txt"  # no archive x.far
    path.write_text("0 0 a b 1\n0 0 a b 1\n0\n")
    assert fg.TransducerLoss.from_file(path, fg.Alphabet("ab"))("a", "b") == 1.0


def test_text_keeps_float64(files):
    loss = fg.TransducerLoss.from_file(files / "x.txt", ABC)
    assert loss("aa", "ab") == pytest.approx(0.1, abs=1e-12)  # 0.1 in float32 is 1.5e-9 off
    assert loss("ab", "a") == 2.0
    assert loss("a", "ab") == math.inf
    labelled = fg.TransducerLoss.from_file(files / "labels.txt", symbols=files / "symbols")
    assert labelled.alphabet == fg.Alphabet("ab")
    assert labelled("aa", "ab") == pytest.approx(0.1, abs=1e-12)


def test_arcs_with_symbols_outside_the_alphabet_are_left_out(files):
    (files / "x.txt").write_text("0 0 a a\n0 0 b b\n0 0 c b 0.125\n0 0 a c 0.25\n0\n")
    for symbols in ("ab", "ba"):
        with pytest.warns(fg.UnusedArcsWarning, match="2 of 4 arcs .* left out: 'c'; ") as told:
            loss = fg.TransducerLoss.from_file(files / "x.txt", fg.Alphabet(symbols))
        assert [warning.filename for warning in told] == [__file__]  # once, at the caller
        assert loss("ab", "ab") == 0.0
        assert loss("ab", "bb") == loss("ab", "aa") == math.inf
    whole = fg.TransducerLoss.from_file(files / "x.txt", ABC)
    assert whole("cab", "bab") == 0.125


def test_the_arc_type_tells_the_semiring(tmp_path):
    path = tmp_path / "counter.fst"
    openfst.with_symbols(transducers.ngram_counter(ABC, 1), ABC).write(str(path))
    counter = fg.TransducerLoss.from_file(path, log=False)
    assert counter.semiring == "probability"
    assert counter("aba", "a") == -2.0  # a occurs twice
    assert fg.TransducerLoss.from_file(path, semiring="tropical")("aba", "a") == 0.0


def test_pynini_strings_are_characters(tmp_path):
    path = tmp_path / "x.far"
    rule = pynini.union(pynini.cross("a", "b") + pynini.accep("", weight=0.5), *"abc").closure()
    openfst.write_archive(path, {"rule": rule.optimize()})
    with pytest.warns(fg.UnusedArcsWarning, match="'c'"):
        loss = fg.TransducerLoss.from_file(f"{path}:rule", fg.Alphabet("ba"))
    assert loss("aa", "ab") == 0.5
    assert loss("ba", "aa") == math.inf
    assert set(fg.TransducerLoss.from_file(path).alphabet) == set("abc")


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("x.txt", "", "is empty"),
        ("x.txt", "0 0 a b 1 2\n", r"x\.txt:1: 6 fields"),
        ("x.txt", "0 0 a a\n0 zero a a\n", r":2: 'zero' is not the number.*'0 zero a a'"),
        ("x.txt", "0 -1 a a\n", ":1: '-1' is not the number"),
        ("x.txt", "0 0 a a one\n", ":1: 'one' is not a cost"),
        ("x.txt", "0 0 a a nan\n0\n", ":1: the cost nan"),
        ("x.fst", "hello", "is not an FST"),
        ("x.far", "hello", "is not a FAR"),
    ],
)
def test_bad_files(tmp_path, name, text, said, capfd):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(fg.FstError, match=said):
        fg.TransducerLoss.from_file(path)
    assert capfd.readouterr().err == ""  # OpenFst would write of it


def test_what_does_not_match_is_named(files):
    with pytest.raises(fg.FstError, match=r"no entry 'far'; .*one of hamming, near"):
        fg.TransducerLoss.from_file(f"{files}/x.far:far", ABC)
    with pytest.raises(fg.FstError, match="no entry is named"):
        fg.TransducerLoss.from_file(files / "x.far", ABC)
    with pytest.raises(fg.FstError, match=r"alphabet has 'x'.* input symbols .*'a b c'"):
        fg.TransducerLoss.from_file(files / "x.fst", fg.Alphabet("abx"))
    (files / "empty").write_text("<eps> 0\n")
    with pytest.raises(fg.FstError, match=r"x\.txt:1: 'a' is not in the symbol table"):
        fg.TransducerLoss.from_file(files / "x.txt", symbols=files / "empty")
    for table, said in (("a b\n", ":1: 'a b'"), ("a 1\nb 1\n", ":2: 'b 1' repeats")):
        (files / "bad").write_text(table)
        with pytest.raises(fg.FstError, match=said):
            fg.TransducerLoss.from_file(files / "x.txt", symbols=files / "bad")
    with pytest.raises(FileNotFoundError):
        fg.TransducerLoss.from_file(files / "absent.far")
    partial = confusing()
    partial.set_input_symbols(openfst.symbol_table(fg.Alphabet("ab")))
    with pytest.raises(fg.FstError, match="label 3 is not in the symbol table of the input side"):
        fg.TransducerLoss(partial, fg.Alphabet("ab"))
