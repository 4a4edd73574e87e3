"""Lattices of Kaldi and k2 in text: weights by arithmetic, tables of symbols, errors by line."""

import math

import pytest

import fstgrad as fg
from fstgrad.openfst import parse_lattices, read_collection

ABC = fg.Alphabet(["the", "cat", "cap"])
TABLE = ((0, "<eps>"), (1, "the"), (2, "cat"), (3, "cap"))
COMPACT = """utt-1\x20
0 1 the 1.5,2.5,3_4_4
1 2 cat 0.25,1,5_6
1 2 cap 0.5,0.5,
2 0,0.125,7

utt-2
0
"""
LATTICE = "7 8 10 1 1.5,2.5\n8 9 11 2 0.25,1\n8 9 11 3 0.5,.5\n9 10 0 0\n10 0,0.125\n"
K2 = "0 1 1 -4\n1 2 2 -1.25\n1 2 3 -1\n2 3 -1 -0.125\n3\n"
K2_WORDS = "0 1 7 1 -4\n1 2 8 2 -1.25\n1 2 9 3 -1\n2 3 -1 -1 -0.125\n3\n"
K2_MAPPED = "0 1 the -4\n1 2 cat -1.25\n1 2 cap -1\n2 3 -1 -0.125\n3\n"  # by int2sym.pl -f 3
K2_WORDS_MAPPED = "0 1 7 the -4\n1 2 8 cat -1.25\n1 2 9 cap -1\n2 3 -1 -1 -0.125\n3\n"
OPENFST = "0 1 the 4\n1 2 cat 1.25\n1 2 cap 1\n2 0.125\n"


def paths(lattice):
    """{string: score} of a lattice with one path for each string."""
    total = lattice.log_partition()
    return {tuple(lattice.alphabet.decode(y)): p + total for y, p in lattice.kbest(9)}


EXPECTED = {("the", "cat"): -(4 + 1.25 + 0.125), ("the", "cap"): -(4 + 1 + 0.125)}


@pytest.mark.parametrize("text", [LATTICE, K2, K2_WORDS, K2_MAPPED, K2_WORDS_MAPPED, OPENFST])
def test_one_lattice_in_each_form(text, tmp_path):
    symbols = None if text in (OPENFST, K2_MAPPED, K2_WORDS_MAPPED) else TABLE
    found = paths(fg.Lattice.from_text(text, ABC, symbols=symbols))
    assert found == pytest.approx(EXPECTED, abs=1e-12)
    (tmp_path / "u.lat").write_text(text)
    (tmp_path / "words.txt").write_text("".join(f"{word} {i}\n" for i, word in TABLE))
    table = None if symbols is None else tmp_path / "words.txt"
    for path in (tmp_path / "u.lat", tmp_path):
        (tmp_path / "words.txt").rename(tmp_path / "words") if path == tmp_path else None
        table = tmp_path / "words" if table and path == tmp_path else table
        fst = read_collection(path, symbols=table)["u"]
        assert paths(fg.Lattice.from_fst(fst, ABC)) == pytest.approx(EXPECTED, abs=1e-12)


def test_an_archive_of_kaldi_and_the_acoustic_scale():
    found = parse_lattices(COMPACT, "lat.txt")
    assert list(found) == ["utt-1", "utt-2"]
    assert found["utt-1"].cost.tolist() == [1.5 + 2.5, 0.25 + 1, 0.5 + 0.5]
    assert (found["utt-1"].final, found["utt-2"].final) == ({2: 0.125}, {0: 0.0})
    scaled = parse_lattices(COMPACT, "lat.txt", acoustic_scale=0.1)["utt-1"]
    assert scaled.cost.tolist() == [1.5 + 0.1 * 2.5, 0.25 + 0.1 * 1, 0.5 + 0.1 * 0.5]
    # FSTs of lattice-to-fst in an archive have one cost
    keyed = parse_lattices("a\n0 1 the the 2.5\n1 0.5\n\nb\n0 1 cat\n1\n", "x")
    assert (keyed["a"].cost.tolist(), keyed["b"].cost.tolist()) == ([2.5], [0.0])


def test_a_numeric_key_of_kaldi_is_no_state():
    found = parse_lattices("17\n0 1 the 0.5,1,\n1 0,0,\n\n18\n0 1 cat 1,1,\n1\n", "x")
    assert [(key, arcs.cost.tolist()) for key, arcs in found.items()] == [
        ("17", [1.5]),
        ("18", [2]),
    ]


def test_minus_one_of_an_alphabet_is_no_end_of_k2():
    text = "0 1 a 0.5\n1 2 -1 0\n2"
    with pytest.raises(fg.FstError, match="if -1 is a symbol, give the final state a cost"):
        fg.Lattice.from_text(text, fg.Alphabet(["a", "-1"]))
    lattice = fg.Lattice.from_text(text + " 0", fg.Alphabet(["a", "-1"]))
    assert paths(lattice) == {("a", "-1"): -0.5}


@pytest.mark.parametrize(
    "text, symbols, said",
    [
        ("0 1 1\n1 2 2\n2 3 -1\n3", None, "text:1: text of k2.* with a score on each line"),
        ("0 1 1\n1 2 2\n2 3 -1\n3 0", None, "text:1: all labels are numbers, and none is in the"),
        ("0 1 1 1\n1 2 2 0\n2 3 -1 0", [(1, "a"), (2, "b")], "'-1' .*; text of k2 ends with"),
        ("0 1 1\n1 2 2\n2", "words.txt", r"give pairs \(label, symbol\), as .*read_symbols\(path"),
        ("0 1 1\n1 2 2\n2", ["a", "b"], "symbols has 'a'; give pairs"),
    ],
)
def test_numeric_labels_without_their_table(text, symbols, said):
    with pytest.raises(fg.FstgradError, match=said):
        fg.Lattice.from_text(text, fg.Alphabet("ab"), symbols=symbols)
    right = "0 1 1 0.5\n1 2 2 0.1\n2 3 -1 0\n3"
    lattice = fg.Lattice.from_text(right, fg.Alphabet("ab"), symbols=[(0, "-"), (1, "a"), (2, "b")])
    assert lattice.num_paths == 1


def test_an_infinite_score_of_k2_forbids():
    lattice = fg.Lattice.from_text("0 1 1 -inf\n0 1 2 0.5\n1 2 -1 0\n2\n", ABC, symbols=TABLE)
    assert lattice.log_partition() == 0.5
    assert math.isinf(lattice.log_prob(["the"]))


def test_an_infinite_cost_of_kaldi_forbids():
    text = "u\n0 1 the inf,2.0\n0 1 cat 1,Infinity\n0 1 cap 1,2.5\n1\n"
    assert fg.Lattice.from_text(text, ABC).log_partition() == -3.5


@pytest.mark.parametrize(
    ("text", "symbols", "message"),
    [
        (LATTICE, None, "x:1: labels are numbers; give the table"),
        (K2, None, "x:1: labels are numbers; give the table"),
        (K2, TABLE[:3], "x:3: the table of symbols has no label 3"),
        (COMPACT, ((0, "<eps>"), (1, "the")), "x:3: 'cat' is not in the table"),
        ("0 1 the the 0,5\n1\n", None, "x:1: .*a decimal comma must be a point"),
        ("0 1 the 0.5,1,\n0 1 cat 0.5\n1\n", None, "x:2: a line of Kaldi is"),
        ("0 1 the 0.5,1,\n1 0.5\n", None, "x:2: a line of Kaldi is"),
        ("0 1 the 0.5.1,1,\n1 0.5,1,\n", None, "x:1: '0.5.1' is not a cost"),
        ("a\n0 1 the\n1\n\na\n0 1 cat\n1\n", None, "x:5: after a blank line, an archive has a key"),
        ("a\n0 1 the\n1\n\n0 1 cat\n1\n", None, "x:5: after a blank line, an archive has a key"),
        ("a\n\nb\n0\n", None, "x: the entry 'a' has no lines"),
        ("0 1 the cat 0.5\n1\n", None, "x:1: an arc of a transducer"),
        ("u\n0 1 the -inf,2.0\n1\n", None, "x:2: the cost -inf"),
        ("words.txt", None, "x is the one word 'words.txt'; .*not the name of a file"),
        ("\n\n", None, "x is empty"),
    ],
)
def test_what_is_refused_by_line(text, symbols, message):
    with pytest.raises(fg.FstError, match=message):
        parse_lattices(text, "x", symbols)


def test_several_lattices_are_no_single_one():
    with pytest.raises(fg.FstError, match="text has 2 lattices"):
        fg.Lattice.from_text(COMPACT, ABC)


def test_the_start_of_k2_is_state_0():
    """Also where no arc leaves it, so that there is no path."""
    with pytest.raises(fg.FstError, match="in k2, state 0 is the start"):
        fg.Lattice.from_text("1 2 1 0.5\n2 3 -1 0\n3\n", fg.Alphabet("1"), symbols=((1, "1"),))
