"""Two minutes of the fuzzer, and every case that it once found."""

import json
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

import fstgrad as fg
from fstgrad import costs
from fstgrad.cli.interrupts import Terminated
from fstgrad.cli.main import fstgrad, main
from fstgrad.mrf.images import segmentation
from fstgrad.openfst import Fst
from tests.fuzz.judging import judged, signature
from tests.fuzz.runner import Fuzzer, fuzz
from tests.helpers.refusals import not_refused

AB = fg.Alphabet("ab")
EDIT = fg.EditDistance(AB)


@pytest.mark.nightly
@pytest.mark.filterwarnings("default")  # as on a command line
@pytest.mark.parametrize(
    "kinds, cases", [(("command", "call", "sweep"), 4000), (("example",), 400)], ids=str
)
def test_cases_of_each_kind_find_nothing(tmp_path, kinds, cases):
    """About two minutes; the cases are counted, not timed: a slow machine runs the same ones."""
    said = []
    found = fuzz(20_260, float("inf"), tmp_path, say=said.append, kinds=kinds, cases=cases)
    assert found == 0, "\n".join(said)


def test_cases_repeat(tmp_path):
    """A number is one case: what was found can be found again."""
    fuzzer = Fuzzer.__new__(Fuzzer)
    fuzzer.seed = 3
    for index in range(5):
        assert fuzzer.call(index)[0] == fuzzer.call(index)[0]


@pytest.mark.parametrize(
    "code, out, err, wrong",
    [
        (0, "1.0\n", "", False),
        (1, "", "fstgrad: x: no\n", False),
        (70, "", "fstgrad: internal error\n", True),
        ("traceback", "", "", True),
        (1, "", "no\n", True),
        (0, "nan\n", "", True),
        (0, '{"y": "b nan"}\n', "", False),
        (0, '{"x": NaN}\n', "", True),
        (0, "1\n", "ERROR: Verify\n", True),
        (1, "", "Traceback (most recent\nfstgrad: x\n", True),
    ],
)
def test_what_is_judged_wrong(code, out, err, wrong):
    assert bool(judged(code, out, err, [])) == wrong


@pytest.mark.parametrize("line, wrong", [(0, True), (1, False), (3, False), (5, True)])
def test_letters_of_an_alignment_are_no_numbers(line, wrong):
    lines = ["1.0", "ban", "S..", "ran", ""] * 2
    lines[line] = "nan"
    assert bool(judged(0, "\n".join(lines), "", ["loss", "--align"])) == wrong


def test_findings_of_one_cause_look_alike():
    first, second = (f"IndexError: index {n} at /a/b{n}/c.py:3" for n in (1, 20))
    assert signature(first) == signature(second)


FOUND = [
    lambda: AB.encode(np.int8(1)),
    lambda: AB.encode(b"ab"),
    lambda: AB.encode({1, 2}),
    lambda: AB.encode([10**30]),
    lambda: fg.Alphabet(np.zeros((2, 2))),
    lambda: fg.Alphabet(3),
    lambda: fg.EditDistance("ab"),
    lambda: fg.EditDistance(AB).compile("ab", cap=1e308),
    lambda: fg.EditDistance(AB).compile("ab", engine=np.zeros(2)),
    lambda: fg.EditDistance(AB) + 1.0,
    lambda: fg.Hamming(AB, np.zeros(3)),
    lambda: fg.NGram(3),
    lambda: fg.SmithWaterman(True),
    lambda: fg.TransducerLoss([], AB),
    lambda: fg.SmithWaterman(3, matrix=np.eye(2), gap_open=1.0),
    lambda: fg.TransducerLoss(fg.Hamming(AB).transducer, len),
    lambda: fg.StringDistribution(np.zeros((2, 2)), np.zeros(3)),
    lambda: fg.StringDistribution(np.zeros((2, 2))).covariance_product(np.full((2, 2), np.nan)),
    lambda: fg.StringDistribution(np.zeros((2, 2))).covariance_product(np.full((2, 2), 1e308)),
    lambda: fg.StringDistribution(np.zeros((2, 2))).kl(None),
    lambda: fg.StringDistribution(np.zeros((2, 2))).expectation(np.zeros(3)),
    lambda: fg.choose_cap(np.zeros((2, 2)), None, "ab", tolerance=0.1),
    lambda: fg.Lattice.from_text(3, AB),
    lambda: fg.Lattice.from_text("0 1 a -inf\n1", AB),
    lambda: fg.Lattice.from_text("0 ١ a\n1", AB),
    lambda: fg.Lattice.from_nbest(True, [0.0], AB),
    lambda: fg.Lattice.from_nbest(["a"], [0.0], "ab"),
    lambda: fg.Lattice.from_confusion_network([[1.0]], AB),
    lambda: fg.Lattice.from_arcs([0], [1], [0], [0.0], AB, final=3),
    lambda: fg.Lattice.from_text("0 1 a\n1", AB).string([5]),
    lambda: fg.Lattice.from_text("0 1 a\n1", AB).string([[0, 1], [2]]),
    lambda: fg.Lattice.from_text("0 1 a\n1", AB).to_fst(np.inf),
    lambda: fg.Lattice.from_text("0 1 a\n1", AB).to_fst(np.zeros(7)),
    lambda: fg.Lattice.from_text("0 1 a\n1", AB).expected_loss(np.zeros(1)),
    lambda: fg.Lattice.from_text("0 1 a\n1", AB).covariance_product([np.inf]),
    lambda: fg.SpanningTrees(np.zeros((3, 3)), single_root=np.zeros(3)),
    lambda: fg.SpanningTrees(np.zeros((3, 3)), single_root=True).parts([[0, 1], [2]]),
    lambda: fg.PairwiseMRF(np.zeros((2, 2)), np.eye(2), [[0, 1]]).condition("ab"),
    lambda: fg.PairwiseMRF(np.zeros((2, 2)), np.eye(2), [[0, 1]]).covariance_product(1.0),
    lambda: fg.PairwiseMRF(np.zeros((2, 2)), np.eye(2), [[0, 1]]).infer(np.zeros(2)),
    lambda: fg.QGramCounts(3),
    lambda: fg.PairObjective(fg.QGramCounts(AB), loss=1),
    lambda: fg.PairObjective(fg.QGramCounts(AB)).mean(np.zeros((2, 2)), [3]),
    lambda: fg.SequenceModel().fit(3, ["a"]),
    lambda: fg.SmithWaterman(AB, matrix="a" * 300, gap_open=1.0),
    lambda: fg.PairwiseMRF(np.zeros((3, 2)), [(0, 1), (1, 2, 0)], np.zeros((2, 2))),
    lambda: fg.PairwiseMRF(np.zeros((3, 2)), [(0, 1), (1, 2)], [[1], [2, 3]]),
    lambda: segmentation([[1], [2, 3]], 2),
    lambda: fg.GeneralizedRootModel(2).fit(np.array([[0, 10**9], [1, 2], [3, 4]])),
    lambda: fg.GeneralizedRootModel(2).fit({"a": 1}),
    lambda: fg.fit_costs(EDIT, 1e308),
    lambda: fg.fit_costs(EDIT, [3]),
    lambda: fg.fit_costs(EDIT, [("a", "b", "x")]),
    lambda: fg.fit_costs(EDIT, [("a", "b")], np.zeros((3, 2))),
    lambda: fg.fit_costs(EDIT, [("a", "b")], tie=np.zeros((3, 2))),
    lambda: fg.fit_costs(EDIT, [("a", "b")], held_out=True),
    lambda: fg.fit_costs(EDIT, [("a", "b")], schedule=range(2)),
    lambda: fg.fit_ranking(EDIT, 1j),
    lambda: fg.fit_ranking(EDIT, ["s1"]),
    lambda: fg.fit_ranking(EDIT, [("a", "b", ["a"])]),
    lambda: fg.fit_ranking(EDIT, [("a", 0, ["a", "b"])], max_iter=[]),
    lambda: costs.softmax_margin_gradient(np.zeros((2, 2)), "ab", np.zeros(1)),
    lambda: costs.loss_gradient(None, "ab", "ab"),
    lambda: fg.Normalized(np.array(1.0)),
    lambda: fg.CollapsedLoss(EDIT, 0.5, blank="a"),
    lambda: fg.CollapsedLoss(EDIT, AB, range(2)),
    lambda: fg.CollapsedLoss(EDIT, AB, blank=True),
    lambda: fg.CollapsedLoss(EDIT, AB, blank=[[0, 1], [2]]),
    lambda: fg.losses.collapsed(np.zeros(2), "a"),
    lambda: fg.losses.collapsed(EDIT, np.array(1.0)),
    lambda: fg.Hamming(AB, [("ab", 7, ["a"])]),
    lambda: fg.RuleLoss(slice(1)),
    lambda: fg.RuleLoss("alphabet = ab", float("nan")),
    lambda: fg.SubstitutionMatrix(("a", "b"), ("a", "b"), 1),
    lambda: fg.SubstitutionMatrix(3, ("a", "b"), np.eye(2)),
    lambda: EDIT.pairwise({}, len),
    lambda: EDIT.pairwise([1, 2], ["a", "b"]),
    lambda: EDIT.pairwise(["a"], np.array("x")),
    lambda: EDIT.matrix(["a"], sparse.csr_matrix(np.eye(3))),
    lambda: EDIT.compile(Fst(), 3),
    lambda: fg.hinge(np.zeros((2, 2)), "ab", None),
    lambda: fg.raml(np.zeros((2, 2)), np.float32(0.5)),
    lambda: fg.direct_loss(np.zeros((2, 2)), "ab"),
    lambda: fg.latent_softmax_margin(np.zeros((2, 2)), "ab"),
    lambda: fg.mbr(fg.StringDistribution(np.zeros((2, 2))), None, ["ab"]),
    lambda: fg.mbr(fg.StringDistribution(np.zeros((2, 2))), EDIT, 0.5),
    lambda: fg.mbr(None, EDIT, ["ab"]),
    lambda: fg.GappyNGram(AB, 2, Fraction(1, 2)),
    lambda: fg.GeneralizedRootModel(2, alpha=10**30).fit(np.eye(3)),
    lambda: fg.fit_ranking(EDIT, [("a", 0, ["a", "b"])], margin=Fraction(1, 2)),
    lambda: budgeted(fg.Budget(np.zeros(2), 1e9, 0.1)),
    lambda: budgeted(fg.Budget(1.0, "x", 0.1)),
    lambda: fg.fit_costs(EDIT, [("a", "b")], tie=len),
    lambda: budgeted(fg.Budget(1.0, 1e9, len)),
    lambda: AB.decode(None),
    lambda: AB.decode([0.5]),
    lambda: fg.Alphabet.named(np.zeros(2)),
    lambda: fg.Alphabet.from_sequences([1, 2]),
    lambda: fg.Alphabet.from_sequences([[0, 1]]),
    lambda: AB.encode_characters(1.0),
    lambda: fg.TransducerLoss.from_file(np.zeros(2), AB),
    lambda: fg.SubstitutionMatrix.read(np.zeros(2)),
    lambda: fg.SubstitutionMatrix(("a",), ("a",), np.eye(1)).over(int),
    lambda: fg.SequenceModel.load(int),
    lambda: fg.SequenceModel().save("x"),
    lambda: fg.SequenceModel().start_from(EDIT),
    lambda: fg.SequenceModel().prepare(3, None),
    lambda: fg.StringDistribution(np.zeros((2, 2))).inner(np.zeros(2), np.zeros(3)),
    lambda: fg.SpanningTrees(np.zeros((3, 3)), single_root=True).inner(1.0, "a"),
    lambda: fg.SpanningTrees(np.zeros((3, 3)), single_root=True).inner(1.0, 1.0),
    lambda: fg.SpanningTrees(np.zeros((3, 3)), single_root=True).with_arcs(required=1.0),
    lambda: fg.PairwiseMRF(np.zeros((2, 2)), np.eye(2), [[0, 1]]).inner(np.zeros(2), 1.0),
    lambda: fg.PairwiseMRFBatch(1j, np.zeros((1, 2, 2)), np.eye(2)),
    lambda: fg.LossAutomaton.from_arrays(AB, np.zeros(2), 2),
    lambda: fg.LossAutomaton(AB, np.zeros(2), (("a", "b"),), 0.0, np.zeros(1)),
    lambda: fg.LossAutomaton(AB, 3, (), 0.0, np.zeros(1)),
    lambda: fg.Lattice(AB, 3, [0], [0], [0], [0]),
    lambda: fg.Lattice.from_text("0 1 a\n1", AB).scatter(3),
    lambda: fg.Batch("risk"),
    lambda: fg.AutomatonCache(1000).automaton("edit", "ab"),
    lambda: fg.AutomatonCache(1000).target_loss("edit", "ab"),
    lambda: fg.TemplateFeatures(AB, 1, 0.5, ["a"]),
    lambda: fg.TemplateFeatures(AB, 1, fg.Window(0, 1), [[]]),
    lambda: fg.losses.SumLoss(0),
    lambda: fg.losses.SumLoss([]),
    lambda: EDIT.against("ab").bounds("x"),
    lambda: EDIT.against("ab").compile(np.zeros(2), max_states=9),
    lambda: EDIT.against("ab").in_nats(10**70),
    lambda: EDIT.align("ab", "ba").scaled([]),
    lambda: costs.pair_transducer(EDIT, AB).log_sums([("a", "b")], np.zeros(3)),
    lambda: costs.pair_transducer(EDIT, AB).best_sums("ab", "a", np.zeros(3)),
    lambda: costs.pair_transducer(EDIT, AB).to_fst(1j),
    lambda: costs.PairTransducer.from_fst(Fst(), AB),
    lambda: fg.Budget().states(3),
    lambda: fg.Budget().most_samples(np.zeros((2, 2)), "x"),
    lambda: fg.risk(fg.Lattice.from_text("0 1 a\n1", AB), 3),
    lambda: fg.StringDistribution(Raising()),
    lambda: AB.encode(Raising()),
    lambda: fg.GeneralizedRootModel(1).fit(np.eye(3)).to_networkx(np.zeros(2)),
]


def test_calls_that_were_found():
    assert not_refused(FOUND, fg.FstgradError) == []


@pytest.mark.parametrize(
    "weights",
    [{"symbols": np.array("ab")}, {"symbols": np.array([1, 2])}, {"weights": np.zeros((2, 2, 1))}],
)
def test_weights_that_were_found(run, tmp_path, weights):
    (tmp_path / "x.tsv").write_text("a\tab\n")
    np.savez(tmp_path / "w.npz", **({"weights": np.zeros((2, 2)), "symbols": ["a", "b"]} | weights))
    code, _, err = run("grad", tmp_path / "x.tsv", "--weights", tmp_path / "w.npz")
    assert (code, len(err.splitlines())) == (1, 1)


def test_a_model_of_long_outputs(run, tmp_path):
    (tmp_path / "x.tsv").write_text("a\tab\n")
    assert run("train", tmp_path / "x.tsv", "--epochs", 1, "-o", tmp_path / "m.npz")[0] == 0
    with np.load(tmp_path / "m.npz") as archive:
        arrays = dict(archive)
    for changes in ({"outputs": np.array([2**31])}, {"text": _ratio(arrays["text"], 1e12)}):
        np.savez(tmp_path / "n.npz", **(arrays | changes))
        code, _, err = run("predict", tmp_path / "n.npz", tmp_path / "x.tsv")
        assert (code, len(err.splitlines())) == (1, 1)
        assert "is not a model" in err


def test_rules_and_tags_that_were_found(run, tmp_path):
    """A loss of rules in `grad`; tags that stood behind y in training."""
    (tmp_path / "x.rules").write_text("alphabet = ab\nBOTH = a b\na -> b 0.5 / # _ BOTH\n")
    (tmp_path / "x.tsv").write_text("ab\tba\tV\n")
    (tmp_path / "pairs.tsv").write_text("ab\tba\n")
    assert run("grad", tmp_path / "pairs.tsv", "--loss", tmp_path / "x.rules")[0] == 0
    model = tmp_path / "m.npz"
    assert run("train", tmp_path / "x.tsv", "--tags", 3, "--epochs", 1, "-o", model)[0] == 0
    (tmp_path / "new").write_text("ab\tV\n")
    code, out, _ = run("predict", model, tmp_path / "new")
    assert (code, out.count("\t")) == (0, 2)


@pytest.mark.parametrize(
    "line, said",
    [
        ("mrf sample {}/m.uai --method gibbs --tol 1", "--tol has no effect"),
        ("mrf sample {}/m.uai --burn-in 3", "--burn-in has no effect"),
        ("mrf partition {}/m.uai --max-gib 1e308", ""),
        ("grad {}/long.tsv --engine openfst", "use --engine layered"),
        ("train {}/long.tsv --alignment em -o {}/out", "leave it out"),
    ],
)
def test_commands_that_were_found(run, tmp_path, line, said):
    """The last two ended in std::bad_alloc, and in hours: a target of thousands of symbols."""
    (tmp_path / "m.uai").write_text("MARKOV\n2\n2 2\n1\n2 0 1\n\n4\n1 2 3 4\n")
    (tmp_path / "long.tsv").write_text("ab\tba\nb\t" + "1" * 7800 + "\n")
    _, _, err = run(*line.replace("{}", str(tmp_path)).split())
    assert len(err.splitlines()) == bool(said)
    assert said in err


@pytest.mark.parametrize("raised, code", [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_signals_in_a_kernel_are_what_they_are(monkeypatch, capsys, raised, code):
    """A compiled kernel wraps what a handler raises in a SystemError."""

    def wrapped(*_args, **_settings):
        try:
            raise raised
        except BaseException as error:
            raise SystemError("a result with an exception set") from error

    monkeypatch.setattr(fstgrad, "main", wrapped)
    with pytest.raises(SystemExit) as stop:
        main([])
    assert (stop.value.code, len(capsys.readouterr().err.splitlines())) == (code, 1)


class Raising:
    """An array-like whose conversion fails."""

    def __array__(self, *_args, **_settings):
        raise RuntimeError("no array")


def budgeted(budget):
    return fg.sampled_softmax_margin(np.zeros((2, 2)), "ab", EDIT, samples=budget)


def _ratio(text, value):
    return np.array(json.dumps(json.loads(str(text)) | {"ratio": value}))
