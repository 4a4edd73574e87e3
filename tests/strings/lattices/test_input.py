"""Lattices at the edges: what is refused, by name and with a remedy, and the smallest cases."""

import numpy as np
import pynini
import pytest

import fstgrad as fg

ABC = fg.Alphabet("abc")
EDIT = fg.EditDistance(ABC)


def arcs(*rows, final=(2,), start=0):
    source, target, label, scores = zip(*rows, strict=True)
    return fg.Lattice.from_arcs(source, target, label, scores, ABC, final=final, start=start)


def network(*slots):
    return fg.Lattice.from_confusion_network(slots, ABC)


LATTICE = arcs((0, 1, 0, 0.0), (1, 2, 1, 0.0))


def acceptor(text):
    return pynini.accep(text)


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: arcs((0, 1, 0, 0.0), (1, 0, 1, 0.0), (1, 2, 1, 0.0)), fg.InvalidInputError,
         "cycle"),
        (lambda: arcs((0, 1, 0, 0.0), (1, 1, 1, 0.0), (1, 2, 1, 0.0)), fg.InvalidInputError,
         "cycle"),
        (lambda: arcs((0, 1, 0, 0.0)), fg.InfeasibleError, "no path"),
        (lambda: arcs((0, 2, 3, 0.0)), fg.InvalidInputError, "from -1 to 2"),
        (lambda: arcs((0, 2**31, 0, 0.0)), fg.InvalidInputError, "run from 0 to 2147483647"),
        (lambda: arcs((0, -1, 0, 0.0)), fg.InvalidInputError, "run from 0$"),
        (lambda: arcs((0, 2, 0, np.nan)), fg.InvalidInputError, r"scores\[0\] is nan"),
        (lambda: arcs((0, 2, 0, np.inf)), fg.InvalidInputError, "inf"),
        (lambda: arcs((0, 2, 0, 0.0), final={2: np.nan}), fg.InvalidInputError, "final"),
        (lambda: fg.Lattice.from_arcs([0], [1, 2], [0], [0.0], ABC, final=[1]),
         fg.InvalidInputError, "nextstate has shape"),
        (lambda: fg.Lattice.from_fst(pynini.cross("a", "b"), ABC), fg.FstError, "transducer"),
        (lambda: fg.Lattice.from_fst(pynini.closure(acceptor("a")), ABC), fg.FstError, "cyclic"),
        (lambda: fg.Lattice.from_fst(pynini.Fst(), ABC), fg.InfeasibleError, "empty"),
        (lambda: fg.Lattice.from_fst(acceptor("a"), ABC), fg.AlphabetError, "label 97"),
        (lambda: fg.Lattice.from_text("", ABC), fg.FstError, "empty"),
        (lambda: fg.Lattice.from_text("0 x a", ABC), fg.FstError, "text:1: 'x'"),
        (lambda: fg.Lattice.from_text("0 1 a\n1 high", ABC), fg.FstError, "text:2: 'high'"),
        (lambda: fg.Lattice.from_text("0 1 a b 1", ABC), fg.FstError, "text:1: .* transducer"),
        (lambda: fg.Lattice.from_text("0 1 d\n1", ABC), fg.AlphabetError, "'d'"),
        (lambda: fg.Lattice.from_nbest([], [], ABC), fg.InvalidInputError, "hypotheses is empty"),
        (lambda: fg.Lattice.from_nbest(["ab"], [0.0, 1.0], ABC), fg.InvalidInputError, "shape"),
        (lambda: fg.Lattice.from_confusion_network([], ABC), fg.InvalidInputError, "slots"),
        (lambda: LATTICE.with_scores([0.0]), fg.InvalidInputError, "shape"),
        (lambda: LATTICE.kbest(0), fg.InvalidInputError, "k is 0"),
        (lambda: LATTICE.compile(fg.EditDistance(fg.Alphabet("ab")), "a"), fg.InvalidInputError,
         "one Alphabet"),
        (lambda: LATTICE.compile(EDIT, "ab", max_states=1), fg.StateLimitError, "sampled_risk"),
        (lambda: fg.risk(LATTICE, "ab"), fg.InvalidInputError, "loss is missing"),
        (lambda: fg.risk(LATTICE, EDIT.compile("ab")), fg.InvalidInputError, "one length"),
        (lambda: fg.softmax_margin(LATTICE, "ab", EDIT.compile("ab")), fg.InvalidInputError,
         "one length"),
        (lambda: fg.risk(arcs((0, 2, 0, 0.0)), LATTICE.compile(EDIT, "ab")), fg.InvalidInputError,
         "another lattice"),
        (lambda: fg.risk(np.zeros((2, 3)), "ab", EDIT), fg.InvalidInputError, "loss.compile"),
        (lambda: fg.softmax_margin(np.zeros((2, 3)), "ab", EDIT), fg.InvalidInputError,
         "loss.compile"),
        (lambda: fg.softmax_margin(LATTICE.with_scores([0.0, -np.inf]), "ab"), fg.InfeasibleError,
         "-inf"),
        (lambda: fg.risk(LATTICE, "abc", fg.Hamming(ABC)), fg.InfeasibleError, "infinite loss"),
        (lambda: network([("a", 0.0)], []), fg.InvalidInputError, r"slots\[1\] is empty; give"),
        (lambda: network([("a", np.nan)]), fg.InvalidInputError, r"the score of 'a' in slots\[0\]"),
    ],
)  # fmt: skip
def test_what_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_the_empty_string_alone():
    lattice = fg.Lattice.from_nbest([""], [0.7], ABC)
    single = fg.Lattice.from_text("0", ABC)
    for each in (lattice, single):
        assert [y.tolist() for y, _ in each.kbest(3)] == [[]]
        assert each.entropy() == 0.0
        value, gradient = fg.risk(each, "abc", EDIT)  # three insertions
        assert value == 3.0
        assert not gradient.any()
    assert (single.num_states, single.num_arcs) == (1, 0)
    assert single.sample(2, 0)[0].tolist() == []
    assert lattice.log_partition() == pytest.approx(0.7, abs=1e-12)


def test_final_scores_are_arcs_to_one_end():
    lattice = arcs((0, 1, 0, 0.0), (1, 2, 1, 0.0), final={1: 0.5, 2: -0.5})
    assert lattice.ends.sum() == 2
    p = np.exp(0.5) / (np.exp(0.5) + np.exp(-0.5))
    ends = dict(zip(lattice.origin[lattice.ends], lattice.marginals()[lattice.ends], strict=True))
    assert ends == {1: pytest.approx(p, abs=1e-12), 2: pytest.approx(1 - p, abs=1e-12)}
    written = lattice.to_fst()
    assert written.num_states() == 3
    assert [float(written.final(s)) for s in (1, 2)] == pytest.approx([-0.5, 0.5], abs=1e-8)


def test_symbols_are_matched_by_name():
    words = fg.Alphabet(["sat", "cat"])
    table = pynini.SymbolTable()
    table.add_symbol("<eps>", 0)
    table.add_symbol("cat", 1)
    table.add_symbol("sat", 2)
    fst = pynini.accep("cat sat", token_type=table)
    fst.set_input_symbols(table)
    fst.set_output_symbols(table)
    lattice = fg.Lattice.from_fst(fst, words)
    assert words.decode(lattice.mode()) == ["cat", "sat"]


def test_arrays_are_read_only():
    for array in (LATTICE.scores, LATTICE.label, LATTICE.graph.source, LATTICE.origin):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_extreme_scores():
    # two paths 2000 nats apart: the better one has probability one, in logarithms -2000
    lattice = fg.Lattice.from_nbest(["a", "b"], [1000.0, -1000.0], ABC)
    assert lattice.log_partition() == 1000.0
    assert lattice.log_prob("b") == -2000.0
    assert fg.risk(lattice, "b", EDIT)[0] == 1.0


def test_a_final_score_of_finfo_min_is_a_mask_as_on_arcs():
    lowest = np.finfo(float).min
    lattice = arcs((0, 1, 0, lowest), (1, 2, 1, lowest), (0, 2, 2, lowest), final={2: lowest})
    assert lattice.log_partition() == pytest.approx(-2e300)
    assert lattice.best_path()[0].tolist() == [1, 3]  # the shorter one
