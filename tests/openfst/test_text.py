"""AT&T text: what OpenFst's compiler reads, and the dialects of foma, HFST and pyfoma."""

import gzip

import numpy as np
import pynini
import pytest
import pywrapfst

import fstgrad as fg
from fstgrad.openfst import parse_text, read_collection, to_arrays

AB = fg.Alphabet("ab")
ODD = ["a", "b", "\u3000", "\xa0", "\u2028", "\x85", "\x0b", "\x0c", "\x1c", "a\u2028b", '"', "<"]


def arcs(text, **settings):
    """Return the start, the arcs with their symbols, and the final states of a text."""
    found = parse_text(text, "text", **settings)
    names = dict(found.symbols)
    rows = zip(found.source, found.nextstate, found.ilabel, found.olabel, found.cost, strict=True)
    return found.start, [(s, t, names[i], names[o], w) for s, t, i, o, w in rows], found.final


def compiled(text, acceptor=False):
    """Return the arcs, (source, nextstate, input, output, cost), and finals that OpenFst reads."""
    table = pywrapfst.SymbolTable()
    for label, symbol in enumerate(("<eps>", *ODD)):
        table.add_symbol(symbol, label)
    compiler = pywrapfst.Compiler(acceptor=acceptor, isymbols=table, osymbols=table)
    compiler.write(text)
    fst = to_arrays(pynini.Fst.from_pywrapfst(compiler.compile()))
    names = ("<eps>", *ODD)
    rows = zip(fst.source, fst.nextstate, fst.ilabel, fst.olabel, fst.weight, strict=True)
    finals = {int(s): float(fst.final[s]) for s in np.flatnonzero(fst.final < np.inf)}
    return int(fst.start), [(s, t, names[i], names[o], w) for s, t, i, o, w in rows], finals


SAMPLES = [
    "0\t1\ta\tb\t1.5\n1\t-2\n",
    "0  1 \t a  b\n\n1\n",
    " 0 1 a b \n1 0.25 \n",
    "0\t1\ta\tb\t\n1\t\n",  # a separator at the end of a line
    "0\t1\ta b 0.5\n1\n",
    "0 1 a <eps> -0.5\n1 2 <eps> b Infinity\n2",
    "0\n",
    *(f"0\t1\t{symbol}\t{symbol}\t1\n0 1 {symbol} a 2\n1\n" for symbol in ODD),
]


@pytest.mark.parametrize("text", SAMPLES)
def test_openfst_reads_the_same(text):
    assert arcs(text) == compiled(text)


def test_openfst_reads_the_same_acceptor():
    text = "0\t1\ta\t0.5\n1\t2\tb\n0 2 \u3000 -1\n2 3\n"
    start, rows, final = compiled(text, acceptor=True)
    found = arcs(text, acceptor=True)
    assert (found[0], sorted(found[1]), found[2]) == (start, sorted(rows), final)


def test_random_separators_and_symbols():
    rng = np.random.default_rng(0)
    for _ in range(50):
        lines = ["0 1 a a", "0 2 b b", "0 3 a b"]  # OpenFst numbers states as they appear
        for source in range(3):
            for _ in range(3):
                fields = [str(source), str(rng.integers(1, 4)), *rng.choice(ODD, 2)]
                fields += [str(rng.integers(-4, 5) / 4)] * int(rng.integers(2))
                gaps = [" \t", *rng.choice([" ", "\t", "  ", " \t"], len(fields) - 1)]
                lines.append(
                    "".join(a + b for a, b in zip(fields, gaps, strict=True)).rstrip(" \t")
                )
        lines += ["", "3 0.5"]
        text = "\n".join(lines) + "\n"
        assert arcs(text) == compiled(text)


@pytest.mark.parametrize("epsilon", ["<eps>", "<epsilon>", "@0@", "@_EPSILON_SYMBOL_@", ""])
def test_epsilons(tmp_path, epsilon):
    # a for b: 5, or a deletion and an insertion: 1 + 1
    path = tmp_path / "x.txt"
    path.write_text(f"0\t0\ta\tb\t5\n0\t0\ta\t{epsilon}\t1\n0\t0\t{epsilon}\tb\t1\n0\n")
    loss = fg.TransducerLoss.from_file(path, AB)
    assert (loss("a", "b"), loss("aa", ""), loss("", "b")) == (1 + 1, 1 + 1, 1)
    assert fg.TransducerLoss.from_file(path)("a", "b") == 1 + 1
    assert fg.Lattice.from_text(f"0\t1\t{epsilon}\t\t1\n1\n", AB).log_partition() == -1


def test_escapes_and_the_space_between_tabs():
    expected = (0, [(0, 1, " ", " N", 0.5), (0, 1, "\t", ":", 0.0)], {1: 0.0})
    assert arcs("0\t1\t@_SPACE_@\t@_SPACE_@N\t0.5\n0\t1\t@_TAB_@\t@_COLON_@\n1\n") == expected
    assert arcs("0\t1\t \t \n1\n") == (0, [(0, 1, " ", " ", 0.0)], {1: 0.0})
    assert arcs("0\t1\t \tb\t0.5\n1\n") == (0, [(0, 1, " ", "b", 0.5)], {1: 0.0})  # foma, pyfoma


def test_labels_that_look_like_costs_are_labels_beside_others():
    """Between lines with two labels and a cost, lines of four fields have two labels."""
    expected = [(0, 1, "a", "b", 0.5), (0, 1, "x", ".5", 0.0), (0, 1, "x", "y", 0.0)]
    assert arcs("0 1 a b 0.5\n0 1 x .5\n0 1 x y\n1\n") == (0, expected, {1: 0.0})


@pytest.mark.parametrize(
    "text",
    ["0 1 a b 2\n1\n", "0 1 a b 2\r\n1\r\n", "\ufeff0 1 a b 2\n\n\n1", "0 1 a b 2\r\n1"],
)
def test_line_ends(tmp_path, text):
    plain, packed = tmp_path / "x.txt", tmp_path / "y.att.gz"
    plain.write_bytes(text.encode())
    packed.write_bytes(gzip.compress(text.encode()))
    assert arcs(text) == (0, [(0, 1, "a", "b", 2.0)], {1: 0.0})
    for path in (plain, packed):
        assert fg.TransducerLoss.from_file(path, AB)("a", "b") == 2


REFUSED = {
    "flag diacritic": "0 1 @P.CASE.ACC@ a\n1\n",
    "'\\[\\[\\$Un=On\\]\\]' is a flag diacritic": "0 1 [[$Un=On]] [[$Un=On]]\n1\n",  # of pyfoma
    "'\\[\\[!\\$Un\\]\\]' is a flag diacritic": "0 1 [[!$Un]] [[!$Un]] 2\n1\n",
    "text:2: '\u03b5' may be epsilon": "0 1 a b 1\n1 1 \u03b5 b 1\n1\n",
    "'<>' may be epsilon": "0 1 <> b 1\n1\n",
    "'@_IDENTITY_SYMBOL_@' stands for": "0 1 @_IDENTITY_SYMBOL_@ @_IDENTITY_SYMBOL_@\n1\n",
    "'@_UNKNOWN_SYMBOL_@' stands for": "0 1 a @_UNKNOWN_SYMBOL_@ 0.5\n1\n",
    "text:3: '--': several FSTs": "0 1 a b 0.5\n1 0\n--\n0 1 b b 0.5\n1 0\n",
    "text:4: after a blank line, a second FST": "0 1 a b\n1\n\n0 1 b b\n1\n",
    "network of foma": "##foma-net 1.0##\n##props##\n",
    "Prolog": 'network(net).\narc(net, 0, 1, "a").\nfinal(net, 1).\n',
    "text of k2": "0 1 1 0.5\n0 1 2 0.25\n1 2 -1 0\n2\n",
    "label -1 leads to": "0 1 1 1 0.5\n1 2 -1 -1 0\n2\n",
    "key of an entry": "utt-1 \n0 1 a 0.5\n1\n\n",
    "text: the first line makes 17 the start": "17 \n0 1 a a 0.5\n1\n\n",
    "which only lattices of Kaldi have": "0 1 7 3.5,-20.25,3_4_4\n1 2.5,0,\n",
    "several parts": "0 1 7 7 3.5,-20.25\n1\n",
    "a decimal comma": "0 1 a a 0,5\n1\n",
    "text:2: a carriage return": "0 1 a b\n1 2 b b\r\n2\n",
    "text:1: a carriage return": "0 1 a b\r1\r",
    "tabs separate other fields": "0\t1\ta b\t2\n1\n",
    "write .* and epsilon as @0@": "0\t1\t\n1\n",
    "fields than tabs and spaces together": "0 1 a a\n1\t1\t \n",  # a final state, or an arc
    "write a space in a symbol": "0\t1\ta\tb \n1\n",
    "has the cost 1 before": "0 1 a b\n1 1\n1 2\n",
    "all labels are numbers": "0 0 1 0 2\n0 0 1 1\n0\n",
    "pyfoma start at 0": "2 1 b b 0\n0 2 a a 0\n1\n",  # pyfoma's str(fst) of the string ab
    "one label and its cost, or two labels": "0\t0\ta\t0.0\n0\t0\ta\tb\t1.0\n0\t0.0\n",
    "'1_0' is not a cost": "0 1 a b 1_0\n1\n",
    "the cost nan": "0 1 a b nan\n1\n",
}


@pytest.mark.parametrize("reason", REFUSED)
@pytest.mark.parametrize("acceptor", [False, True])
def test_what_is_refused_by_name(reason, acceptor):
    with pytest.raises(fg.FstError, match=reason):
        parse_text(REFUSED[reason], "text", acceptor=acceptor)


def test_four_fields_are_never_guessed():
    for text in ("0 1 3 3\n1\n", "0 1 3 3\n1 2 4 4\n2\n"):  # labels 3 at the cost 3, or pairs 3:3
        with pytest.raises(fg.FstError, match="text:1: one label and its cost, or two labels"):
            fg.Lattice.from_text(text, fg.Alphabet("34"))
    pair = fg.Lattice.from_text("0 1 3 3 0\n1\n", fg.Alphabet("34"))
    cost = fg.Lattice.from_text("0 1 3\n1 2 4 3\n2\n", fg.Alphabet("34"))
    assert (pair.log_partition(), cost.log_partition()) == (0, -3)
    assert arcs("0 1 3 3\n1\n")[1] == [(0, 1, "3", "3", 0.0)]  # of a transducer, as in OpenFst
    for text in ("0 1 a\n1 2 b 2\n2\n", "0 1 a 2\n1 2 b 0.5\n2\n"):
        with pytest.raises(fg.FstError, match="one label and its cost, or two labels"):
            arcs(text)
    assert arcs("0 1 a 0.5\n1\n", known=["0.5"])[1] == [(0, 1, "a", "0.5", 0.0)]


def test_the_same_files_are_lattices_in_python_and_on_the_command_line(tmp_path):
    acceptor, pairs = "0 1 a 0.5\n1 2 b\n2 0.25\n", "0 1 a a 0.5\n1 2 b b\n2 0.25\n"
    (tmp_path / "one.txt").write_text(acceptor)
    (tmp_path / "two.att").write_text(pairs)
    for fst in read_collection(tmp_path).values():
        assert fg.Lattice.from_fst(fst, AB).log_partition() == -(0.5 + 0.25)
    for text in (acceptor, pairs):
        assert fg.Lattice.from_text(text, AB).log_partition() == -(0.5 + 0.25)
    assert read_collection(tmp_path / "one.txt").keys() == {"one"}
    (tmp_path / "one.att").write_text(acceptor)
    with pytest.raises(fg.FstError, match=r"one.att and .*one.txt have one name"):
        read_collection(tmp_path)


def test_numbers_are_symbols_of_an_alphabet_that_has_them(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("0 0 0 1 2\n0 0 1 1\n0 0 0 0\n0\n")
    assert fg.TransducerLoss.from_file(path, fg.Alphabet("01"))("00", "01") == 2
    with pytest.raises(fg.FstError, match="0 may be epsilon"):
        fg.TransducerLoss.from_file(path)
    table = tmp_path / "symbols"
    table.write_text("<eps> 0\na 1\n")
    assert fg.TransducerLoss.from_file(path, symbols=table)("", "a") == 2  # 0 1 2 is an insertion


@pytest.mark.parametrize(
    "table, said",
    [
        ("a 0\na 1\n", "repeats"), ("<eps> 1\na 0\n", "epsilon is label 0"), ("a b 1\n", ":1:"),
        ("a -1\n", "label >= 0"), ("a\u30001\n", ":1:"),
    ],
)  # fmt: skip
def test_symbol_tables_that_are_refused(tmp_path, table, said):
    (tmp_path / "x.txt").write_text("0 0 a a\n0\n")
    (tmp_path / "symbols").write_text(table)
    with pytest.raises(fg.FstError, match=said):
        fg.TransducerLoss.from_file(tmp_path / "x.txt", symbols=tmp_path / "symbols")


def test_labels_of_symbol_tables_are_those_that_openfst_can_store(tmp_path):
    (tmp_path / "x.txt").write_text("0 0 a a 0.5\n0\n")
    (tmp_path / "symbols").write_text(f"a {2**31 - 1}\n")
    loss = fg.TransducerLoss.from_file(tmp_path / "x.txt", symbols=tmp_path / "symbols")
    assert loss("aa", "aa") == 2 * 0.5
    (tmp_path / "symbols").write_text(f"a {2**31}\n")
    with pytest.raises(fg.FstError, match="its label >= 0"):
        fg.TransducerLoss.from_file(tmp_path / "x.txt", symbols=tmp_path / "symbols")


def test_symbol_tables_have_the_escapes_and_separators_of_text(tmp_path):
    (tmp_path / "x.txt").write_text("0\t0\t \t\u3000\t2\n0\n")
    (tmp_path / "symbols").write_text("@0@\t0\r\n \t1\r\n\u3000  2\r\n")
    loss = fg.TransducerLoss.from_file(tmp_path / "x.txt", symbols=tmp_path / "symbols")
    assert loss.alphabet == fg.Alphabet(" \u3000")
    assert loss(" ", "\u3000") == 2


def test_an_encoding_other_than_utf8_is_named(tmp_path):
    for encoding in ("utf-16", "latin-1"):
        (tmp_path / "x.txt").write_bytes("0 1 ä ä\n1\n".encode(encoding))
        with pytest.raises(fg.FstgradError, match=r"x\.txt:1: .*UTF-8"):
            fg.TransducerLoss.from_file(tmp_path / "x.txt")


def test_the_letter_epsilon_is_a_symbol_of_greek():
    assert arcs("0 1 \u03b1 \u03b5\n1\n")[1] == [(0, 1, "\u03b1", "\u03b5", 0.0)]
    assert arcs("0 1 \u03b5 \u03b5\n1\n", known="\u03b5")[1] == [(0, 1, "\u03b5", "\u03b5", 0.0)]


def test_the_error_about_a_table_is_at_the_line_that_is_wrong():
    table = ((0, "<eps>"), (3, "a"))
    for wrong, said in (
        ("8.18", "text:2: '8.18' is not in the symbol table"),
        ("a", "text:1: '3'"),
    ):
        with pytest.raises(fg.FstError, match=said):
            arcs(f"0 1 3 3 5.49\n1 2 {wrong} 3 1\n2\n", symbols=table)


def test_labels_of_a_table_may_have_gaps():
    for table in (((0, "<eps>"), (7, "a"), (9, "b")), ((7, "b"), (2**30, "a"))):
        label = next(i for i, symbol in table if symbol == "a")
        lattice = fg.Lattice.from_text(f"0 1 {label} 0.5\n1\n", AB, symbols=table)
        assert lattice.log_partition() == -0.5
        assert AB.decode(lattice.kbest(1)[0][0]) == ["a"]
