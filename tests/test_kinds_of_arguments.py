"""Kinds of arguments that numpy or Python would take for others: times, masks, odd truth values."""

import contextlib
import os
from datetime import date
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

import fstgrad as fg
from fstgrad.cli.main import main
from fstgrad.core.checks import (
    generator,
    index_array,
    is_integer,
    positive_integer,
    positive_number,
)
from fstgrad.grammars.loading import Grammar
from fstgrad.io import read_alphabet, read_confusion, read_lines
from fstgrad.learning.measures import evaluate
from fstgrad.openfst.binary import pack_archive

AB = fg.Alphabet("ab")
LOSS = fg.EditDistance(AB)
TABLE = np.arange(9.0).reshape(3, 3)


@pytest.mark.parametrize("kind", ["M8[s]", "m8[s]"])
def test_times_are_no_scores(kind):
    with pytest.raises(fg.InvalidInputError, match="scores has times"):
        fg.SpanningTrees(TABLE.astype(np.int64).astype(kind), single_root=True)
    with pytest.raises(fg.InvalidInputError, match="scores has times"):
        fg.StringDistribution(TABLE.astype(np.int64).astype(kind))


def test_masks_of_what_is_allowed_are_no_scores():
    for call in (
        fg.StringDistribution,
        fg.UndirectedTrees,
        lambda s: fg.SpanningTrees(s, single_root=True),
        lambda s: fg.best_tree(s, single_root=True),
    ):
        for scores in (TABLE > 3, (TABLE > 3).tolist()):
            with pytest.raises(fg.InvalidInputError, match="scores has dtype bool, but scores are"):
                call(scores)


def test_what_a_mask_hides_is_no_score_and_no_index():
    with pytest.raises(fg.InvalidInputError, match="scores has masked entries; fill them"):
        fg.SpanningTrees(np.ma.array(TABLE, mask=TABLE > 5), single_root=True)
    rows = list(np.ma.array(TABLE, mask=TABLE > 5))  # each row keeps its mask
    for call in (fg.StringDistribution, lambda s: fg.SpanningTrees([s], single_root=True)):
        with pytest.raises(fg.InvalidInputError, match=r"scores.*\] has masked entries; fill"):
            call(rows)
    with pytest.raises(fg.InvalidInputError, match="masked entries"):
        index_array("edges", np.ma.array([0, 1], mask=[False, True]), 3)
    plain = fg.SpanningTrees(np.ma.array(TABLE), single_root=True)
    assert plain.log_partition() == fg.SpanningTrees(TABLE, single_root=True).log_partition()


@pytest.mark.parametrize("value", [np.timedelta64(1, "s"), np.uint64(2**64 - 1), True])
def test_what_is_no_count(value):
    with pytest.raises(fg.InvalidInputError, match="order"):
        fg.NGram(AB, value)
    with pytest.raises(fg.InvalidInputError):
        positive_integer("n", value)
    assert is_integer(np.int8(3))


def test_limits_and_bands_of_other_integers():
    loss = fg.EditDistance(AB)
    assert loss.compile("ab", max_states=np.int8(100)).num_states == loss.compile("ab").num_states
    with pytest.raises(fg.InvalidInputError, match="band is"):
        loss.compile("ab", band=np.timedelta64(1, "s"))


def test_a_span_of_time_is_no_seed():
    with pytest.raises(fg.InvalidInputError, match="rng is"):
        generator(np.timedelta64(1, "s"))


def test_floats_that_float64_does_not_hold_are_no_numbers():
    if np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("a long double is a float64 here")
    with pytest.raises(fg.InvalidInputError, match="epsilon is"):
        fg.direct_loss(np.zeros((2, 2)), fg.EditDistance(AB).compile("ab"), np.longdouble(1))
    with pytest.raises(fg.InvalidInputError):
        positive_number("smoothing", np.longdouble(1))


@pytest.mark.parametrize("value", [np.empty(0), sparse.csr_matrix(TABLE), 1, "no"])
def test_switches_are_true_or_false(value):
    for make in (
        lambda: fg.EditDistance(AB, factored=value),
        lambda: fg.NGram(AB, 2, log=value),
        lambda: fg.SpanningTrees(TABLE, labeled=value, single_root=True),
        lambda: fg.ProjectiveTrees(TABLE, labeled=value, single_root=True),
    ):
        with pytest.raises(fg.InvalidInputError, match="give True or False"):
            make()


@pytest.mark.parametrize("name", ["match", "substitute", "insert", "delete"])
@pytest.mark.parametrize("value", ["", -(10**400), object(), range(3), float("nan")])
def test_costs_of_local_alignments_are_numbers(name, value):
    with pytest.raises(fg.InvalidInputError, match=name):
        fg.SmithWaterman(AB, **{name: value})


@pytest.mark.parametrize(
    "target", [np.void(b"abc"), np.zeros(2, dtype="m8[s]"), [np.timedelta64(0)]], ids=repr
)
def test_what_is_no_sequence_of_symbols(target):
    with pytest.raises(fg.AlphabetError):
        AB.encode(target)


def test_a_length_below_zero():
    class Wrong:
        def __len__(self):
            return -1

        def __repr__(self):
            return "Wrong"

    with pytest.raises(fg.AlphabetError, match="is Wrong"):
        AB.encode(Wrong())


def test_spellings_and_functions():
    latent = fg.Alphabet("ab-")
    with pytest.raises(fg.InvalidInputError, match="spelling of 'a' is 1"):
        fg.CollapsedLoss(fg.EditDistance(AB), latent, {"a": 1}, blank="-")
    with pytest.raises(fg.InvalidInputError, match="compiled is True; give a function"):
        fg.choose_cap(np.zeros((2, 2)), fg.EditDistance(AB), "ab", tolerance=0.1, compiled=True)


def test_measures_of_nothing():
    for pairs in ([], [""]):
        with pytest.raises(fg.InvalidInputError, match="targets have no symbols"):
            evaluate(pairs, pairs)


def test_names_of_files_that_are_no_text(tmp_path, capsys):
    with pytest.raises(fg.FstError, match="not a key of an archive"):
        pack_archive({"\udcff": b""})
    rules = tmp_path / os.fsdecode(b"\xff.rules")
    rules.write_text("alphabet = ab\na -> b 0.5\n")
    with pytest.raises(SystemExit) as stop:
        main(["grammar", "build", str(rules), "-o", str(tmp_path / "x.far")])
    assert stop.value.code == 1
    assert "not a key of an archive; give a name in UTF-8" in capsys.readouterr().err


def test_text_in_utf_16_is_no_text_in_utf_8(tmp_path, capsys):
    """Without a mark at its begin it decodes as UTF-8, with a NUL beside every letter."""
    file = tmp_path / "pairs.tsv"
    file.write_bytes("ab\tba\n".encode("utf-16-be"))
    with pytest.raises(SystemExit) as stop:
        main(["loss", str(file)])
    assert stop.value.code == 1
    assert "pairs.tsv:1: a NUL character, as UTF-16 has; convert" in capsys.readouterr().err
    packed = file.read_bytes()
    file.write_bytes(b"a\0b\tba\n")
    with pytest.raises(SystemExit):
        main(["loss", str(file)])
    assert "pairs.tsv:1: a NUL character; delete it: tr -d '\\000'" in capsys.readouterr().err
    file.write_bytes(packed)
    with pytest.raises(fg.AlphabetError, match=":1: a NUL character"):
        read_alphabet(file)
    with pytest.raises(fg.RowError, match=":1: a NUL character"):
        read_lines(file)


@pytest.mark.parametrize("factor", [np.nan, np.inf, "x", None, [1, 2], 1j])
def test_what_is_no_factor_of_a_loss(factor):
    with pytest.raises(fg.InvalidInputError, match="factor is"):
        fg.EditDistance(AB).compile("ab").scaled(factor)


@pytest.mark.parametrize(("alphabet", "length"), [("ab", 3), (AB, 0), (AB, 2.5)])
def test_what_has_no_trivial_automaton(alphabet, length):
    with pytest.raises(fg.InvalidInputError, match="give an"):
        fg.LossAutomaton.trivial(alphabet, length)


def test_proposals_of_odd_caps_and_bands():
    def value(**proposal):
        scores = np.zeros((2, 2))
        return fg.sampled_softmax_margin(scores, "ab", LOSS, samples=9, rng=0, **proposal).value

    for cap in (Decimal(1), Fraction(1, 2), date(2020, 1, 1)):
        with pytest.raises(fg.InvalidInputError, match=r"cap is .*; give a number"):
            value(cap=cap)
    with pytest.raises(fg.InvalidInputError, match=r"compiled is .*; give a function"):
        value(compiled=3)
    assert value(band=np.int8(1)) == value(band=1)
    assert value(cap=np.float32(1)) == value(cap=1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize(
    "command",
    [
        "report P -o x.html",
        "grammar show P.rules",
        "grammar show P.py",
        "grammar test P.rules",
        "compare P P",
        "mrf marginals P --evidence P",
        "loss data.tsv --loss P.rules",
    ],
)
def test_a_pipe_that_would_be_read_twice_is_refused(command, tmp_path, monkeypatch, capsys):
    """A second reader would wait for ever."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.tsv").write_text("ab\tab\n", encoding="utf-8")
    for name in ("P", "P.rules", "P.py"):
        os.mkfifo(name)
    with pytest.raises(SystemExit) as stopped:
        main(command.split())
    assert stopped.value.code in (1, 2)
    assert "is a pipe" in capsys.readouterr().err


def test_rules_with_a_nul_are_refused(tmp_path):
    file = tmp_path / "nul.rules"
    file.write_bytes(b"alphabet = ab\0c\nedit = 1\n")
    with pytest.raises(fg.FstError, match="NUL character"):
        Grammar.load(str(file))


def test_counts_beyond_float64_are_no_numbers():
    with pytest.raises(fg.FstgradError, match="X is not a table of numbers: int too large"):
        fg.GeneralizedRootModel().fit([[10**400, 1], [2, 3]])


def test_messages_are_one_line():
    with pytest.raises(fg.InvalidInputError) as said:
        fg.EditDistance(AB).compile("ab", max_states=sparse.csr_matrix(TABLE))
    assert "\n" not in str(said.value)


@pytest.mark.parametrize("wrong", [None, 1, "ab", np.zeros(3)])
def test_what_is_no_fst(wrong, tmp_path):
    openfst = pytest.importorskip("fstgrad.openfst")
    fst = openfst.with_symbols(fg.EditDistance(AB).transducer, AB)
    for call in (
        openfst.is_acceptor, openfst.is_acyclic, openfst.is_empty, openfst.from_arrays,
        lambda x: openfst.compose(fst, x), lambda x: openfst.union(x, fst),
        lambda x: openfst.prune(x, 1.0), lambda x: openfst.determinize(x, delta=1e-6),
        lambda x: openfst.remove_epsilons(x, delta=1e-6), openfst.symbol_table,
        lambda x: openfst.over_alphabet(x, AB), lambda x: openfst.project(fst, x),
        lambda x: openfst.arc_sort(fst, x), lambda x: openfst.write_file(tmp_path / "a.fst", x),
        lambda x: openfst.write_archive(tmp_path / "a.far", x),
    ):  # fmt: skip
        with pytest.raises(fg.FstgradError):
            call(wrong)
    for delta in (10**400, "x", -1.0, float("nan")):
        with pytest.raises(fg.InvalidInputError, match="delta is"):
            openfst.minimize(fst, delta=delta)


@pytest.mark.parametrize("name", ["start", "final", "source", "ilabel", "nextstate", "weight"])
@pytest.mark.parametrize("wrong", [None, "x", 10**400, 1j, np.zeros((2, 2))])
def test_arrays_of_an_fst(name, wrong):
    openfst = pytest.importorskip("fstgrad.openfst")
    whole = dict(start=0, final=[0.0], source=[0], ilabel=[1], olabel=[1], nextstate=[0],
                 weight=[1.0])  # fmt: skip
    with pytest.raises(fg.InvalidInputError, match=name):
        openfst.FstArrays("log64", **whole | {name: wrong})


@pytest.mark.parametrize("wrong", [None, "x", 10**400, np.zeros(9), np.full(2, np.nan)])
def test_scores_of_a_loss_along_a_lattice(wrong):
    lattice = fg.Lattice.from_nbest(["ab", "b"], [0.0, 1.0], AB)
    along = lattice.compile(LOSS, "ab")
    for call in (along.augmented, along.risk, along.best):
        with pytest.raises(fg.InvalidInputError, match="scores"):
            call(lattice.graph, wrong)
    with pytest.raises(fg.InvalidInputError, match="temperature"):
        along.reward(lattice.graph, 0.0)


def test_names_of_templates_beside_their_arrays():
    """The kernels would write beside their arrays."""
    features = fg.SequenceModel(epochs=1).fit(["ab", "b"], ["ba", "a"]).features_
    encoded, w = features.encode([("ab", 2)]), np.zeros(features.shape)
    for name in ("ids", "copies", "starts"):
        wrong = encoded._replace(**{name: np.full_like(getattr(encoded, name), 2**62)})
        with pytest.raises(fg.InvalidInputError):
            features.emissions(w, wrong)
        with pytest.raises(fg.InvalidInputError):
            features.accumulate_emissions(np.zeros((2, 2)), wrong, w)
    for wrong in ([], None, np.zeros(1)):
        with pytest.raises(fg.InvalidInputError, match="out"):
            features.accumulate_emissions(np.zeros((2, 2)), encoded, wrong)


def test_settings_that_are_arrays_have_a_repr():
    assert "cap=array" in repr(fg.SequenceModel(cap=np.zeros(2)))


@pytest.mark.parametrize("command", ["show {}.rules", "compare edit {}.rules p.tsv"])
def test_names_that_are_not_utf_8_are_printed(command, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / os.fsdecode(b"\xff.rules")).write_text("alphabet = ab\na -> b 0.5\n")
    (tmp_path / "p.tsv").write_text("ab\tba\n")
    with contextlib.suppress(SystemExit):
        main(["grammar", *(part.format(os.fsdecode(b"\xff")) for part in command.split())])
    out, err = capfd.readouterr()
    assert "\\udcff" in out
    assert "cannot hold" not in err


def test_files_without_a_rule_or_a_row(tmp_path):
    rules, rows = tmp_path / "x.rules", tmp_path / "x.tsv"
    rules.write_text("# nothing\n\n")
    rows.write_text("")
    with pytest.raises(fg.FstError, match="holds no rule"):
        Grammar.load(str(rules))
    with pytest.raises(fg.InvalidInputError, match="has no row"):
        read_confusion(rows, AB)


@pytest.mark.parametrize("cap", [1e308, 1e-320, -(10**400), "zz", None, 1j])
def test_caps_that_cannot_be_counted(cap):
    with pytest.raises(fg.InvalidInputError, match="cap is"):
        fg.NoLoss(AB).against("ab").compile(2, cap=np.nan if cap is None else cap, max_states=9)
    with pytest.raises(fg.InvalidInputError, match="alphabet is"):
        fg.NoLoss(cap)


@pytest.mark.parametrize("wrong", [None, 3, "x", object(), [1]])
def test_more_arguments_of_other_kinds(wrong):
    counts = np.array([[1, 2], [0, 1], [3, 1], [2, 2]] * 3)
    model = fg.GeneralizedRootModel(alpha=0.1).fit(counts)
    lattice = fg.Lattice.from_nbest(["ab", "b"], [0.0, 1.0], AB)
    batch = fg.Batch(fg.PairObjective(fg.QGramCounts(AB, 1), LOSS))
    for call in (
        lambda: fg.PairwiseMRF.from_factors([2, 2], wrong),
        lambda: fg.PairwiseMRF.build(wrong, np.zeros((2, 2)), np.zeros((2, 2))),
        lambda: batch.sums(wrong, [(None, "ab")]),
        lambda: model.select(counts, [0.1], gamma=[wrong]),
        lambda: model.report(counts, samples=[wrong]),
        lambda: model.supporting_rows(counts, [0, wrong]),
        lambda: lattice.kbest(1, max_states=[wrong]),
        lambda: fg.SequenceModel(epochs=1).fit(["ab"], ["ba"], validation=[wrong]),
    ):
        with pytest.raises(fg.FstgradError):
            call()
