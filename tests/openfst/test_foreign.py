"""FSTs of pynini and pywrapfst with their own symbol tables: symbols decide, never numbers."""

import numpy as np
import pynini
import pytest
import pywrapfst

import fstgrad as fg
from fstgrad import openfst
from fstgrad.openfst import symbol_table, with_character_symbols

AB = fg.Alphabet("ab")
EPSILON = "<eps>"


def table(*symbols):
    made = pywrapfst.SymbolTable()
    for label, symbol in enumerate(symbols):
        made.add_symbol(symbol, label)
    return made


def machine(rows, inputs=None, outputs=None):
    """Return the FST with the arcs (source, nextstate, ilabel, olabel, cost); the last is final."""
    fst = pynini.Fst()
    states = 1 + max(max(row[:2]) for row in rows)
    for _ in range(states):
        fst.add_state()
    fst.set_start(0).set_final(states - 1)
    for source, nextstate, ilabel, olabel, cost in rows:
        fst.add_arc(source, pynini.Arc(ilabel, olabel, cost, nextstate))
    fst.set_input_symbols(inputs).set_output_symbols(outputs)
    return fst


BA = table(EPSILON, "b", "a")  # another order than that of the alphabet
SUBSTITUTE = [(0, 0, 1, 1, 0.0), (0, 0, 2, 2, 0.0), (0, 0, 2, 1, 0.25)]  # a for b, by BA


def test_tables_of_a_loss_are_matched_by_symbol():
    loss = fg.TransducerLoss(machine(SUBSTITUTE, BA, BA), AB)
    assert (loss("a", "b"), loss("b", "a")) == (0.25, np.inf)
    mixed = machine([(0, 0, 1, 2, 0.25), (0, 0, 1, 1, 0.0)], BA, symbol_table(AB))
    assert fg.TransducerLoss(mixed, AB)("b", "b") == 0.25  # b is 1 on the left and 2 on the right


@pytest.mark.parametrize("side", ["input", "output"])
def test_a_table_on_one_side_alone_does_not_decide_the_other(side):
    fst = machine(SUBSTITUTE, *((BA, None) if side == "input" else (None, BA)))
    with pytest.raises(fg.FstError, match=f"the {side} side .* has a symbol table"):
        fg.TransducerLoss(fst, AB)
    remedy = fst.copy().set_input_symbols(BA).set_output_symbols(BA)
    assert fg.TransducerLoss(remedy, AB)("a", "b") == 0.25
    own = symbol_table(AB)  # its labels are those of the alphabet, so that both readings agree
    same = machine(SUBSTITUTE, *((own, None) if side == "input" else (None, own)))
    assert fg.TransducerLoss(same, AB)("b", "a") == 0.25


def test_strings_of_pynini_get_their_characters():
    rule = pynini.union("a", "b", pynini.accep("a", weight=0.5) + "b").closure()
    with pytest.raises(fg.FstError, match=r"label 98 on its .*with_character_symbols"):
        fg.TransducerLoss(rule, AB)
    assert fg.TransducerLoss(with_character_symbols(rule), AB)("ab", "ab") == 0


def test_dropped_arcs_are_told_once_and_counted():
    abc = table(EPSILON, "a", "b", "c", "d")
    rows = [(0, 0, 1, 1, 0.0), (0, 0, 1, 3, 1.0), (0, 0, 4, 3, 1.0), (0, 0, 2, 2, 0.0)]
    with pytest.warns(fg.UnusedArcsWarning) as told:
        fg.TransducerLoss(machine(rows, abc, abc), AB)
    assert [str(warning.message) for warning in told] == [
        "2 of 4 arcs of the transducer have a symbol outside the alphabet and are left out: 'c' "
        "'d'; an alphabet with these symbols keeps them"
    ]


def test_acceptors_as_targets_are_matched_by_symbol():
    word = machine([(0, 1, 1, 1, 0.0), (1, 2, 2, 2, 0.0)], BA, BA)  # "ba"
    loss = fg.EditDistance(AB)
    assert (loss("ba", word), loss("ab", word)) == (0, 2)
    for engine in ("layered", "openfst"):
        b = loss.compile(word, 2, engine=engine)
        assert (b.loss("ba"), b.loss("ab")) == (0, 2)
    collapsed = fg.CollapsedLoss(loss, fg.Alphabet("_ab"), collapse="ctc", blank="_")
    assert collapsed.compile(word, 3).loss("b_a") == 0
    with pytest.raises(fg.AlphabetError, match="target has the symbol 'b', which is not in"):
        fg.EditDistance(fg.Alphabet("ac"))("a", word)
    characters = pynini.accep("ba")
    with pytest.raises(fg.AlphabetError, match=r"target has label 98 and .*with_character_symbols"):
        loss("ba", characters)
    assert loss("ba", with_character_symbols(characters)) == 0


def test_lattices_are_matched_by_symbol():
    rows = [(0, 1, 1, 1, 0.5), (1, 2, 2, 2, 0.25)]
    for tables in ((BA, BA), (BA, None), (None, BA)):
        lattice = fg.Lattice.from_fst(machine(rows, *tables), AB)
        assert lattice.log_prob("ba") == 0
    with pytest.raises(fg.FstError, match="transducer"):  # b:a, a:b by symbol
        fg.Lattice.from_fst(machine(rows, BA, symbol_table(AB)), AB)
    crossed = machine([(0, 1, 1, 2, 0.5)], BA, symbol_table(AB))  # b:b by symbol
    assert fg.Lattice.from_fst(crossed, AB).log_prob("b") == 0
    with pytest.raises(fg.AlphabetError, match="fst has the symbol 'c'"):
        fg.Lattice.from_fst(machine([(0, 1, 1, 1, 0.0)], table(EPSILON, "c")), AB)


@pytest.mark.parametrize(
    "symbols, said",
    [
        ((EPSILON, "@P.CASE.ACC@", "a", "b"), "flag diacritic"),
        (("@0@", "@_IDENTITY_SYMBOL_@", "a", "b"), "stands for other symbols"),
        (("a", "b"), "label 0 of .* is epsilon, and its symbol table calls it 'a'"),
        (("<unk>", EPSILON, "a", "b"), "'<eps>' has label 1"),
    ],
)
def test_tables_with_special_symbols(symbols, said):
    rows = [(0, 0, label, label, 0.0) for label in range(len(symbols))]
    fst = machine(rows, table(*symbols), table(*symbols))
    acyclic = machine([(0, 1, *row[2:]) for row in rows], table(*symbols))
    alphabet = fg.Alphabet("b") if symbols == ("a", "b") else AB
    if alphabet is AB:
        with pytest.raises(fg.FstError, match=said):
            fg.TransducerLoss(fst, AB)
    with pytest.raises(fg.FstError, match=said):
        fg.Lattice.from_fst(acyclic, AB)


@pytest.mark.filterwarnings("default::fstgrad.UnusedArcsWarning")
def test_the_command_line_tells_dropped_arcs_in_one_line(tmp_path, run):
    (tmp_path / "x.txt").write_text("0 0 a a\n0 0 b b\n0 0 a b 2\n0 0 a c 1\n0\n")
    (tmp_path / "pairs.tsv").write_text("ab\tbb\naa\tab\n")
    code, out, err = run("loss", tmp_path / "pairs.tsv", "--loss", tmp_path / "x.txt")
    assert (code, out) == (0, "2.0\n2.0\n")
    told = "1 of 4 arcs of the transducer have a symbol outside the alphabet and are left out: 'c'"
    told += "; an alphabet with these symbols keeps them"
    assert err == f"fstgrad: {told}\nfstgrad: alphabet: 2 symbols from the data\n"


LETTERS = fg.Alphabet([*"abcdefghij", *(f"w{i}" for i in range(200))])


@pytest.mark.parametrize("text", ["ab", "12"])
def test_labels_that_may_be_bytes_need_a_table(text):
    """In an alphabet of 200 symbols, the bytes of a text are labels of other symbols."""
    fst = pynini.accep(text)
    for call in (
        lambda given: fg.Lattice.from_fst(given, LETTERS).sample(1, 0)[0],
        lambda given: fg.EditDistance(LETTERS)("a", given),
        lambda given: fg.TransducerLoss(given, LETTERS)("a", "a"),
    ):
        with pytest.raises(fg.FstError, match=r"no symbol table, and its labels (97 98|49 50) are"):
            call(fst)
        call(openfst.with_symbols(fst, LETTERS))
    ids = fg.Lattice.from_fst(openfst.with_symbols(fst, LETTERS), LETTERS).sample(1, 0)[0]
    assert (ids + 1).tolist() == [*text.encode()]
    if text == "ab":
        lattice = fg.Lattice.from_fst(with_character_symbols(fst), LETTERS)
        assert LETTERS.decode(lattice.sample(1, 0)[0]) == ["a", "b"]
    low = machine([(0, 1, 5, 5, 0.0), (1, 2, 98, 98, 0.0)])  # no text has the character 5
    assert fg.Lattice.from_fst(low, LETTERS).sample(1, 0)[0].tolist() == [4, 97]
    same = fg.Alphabet([chr(i) for i in range(1, 150)])  # both readings are one
    assert same.decode(fg.Lattice.from_fst(fst, same).sample(1, 0)[0]) == [*text]
