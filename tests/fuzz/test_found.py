"""Calls that the fuzzer found after those of `test_fuzz`."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

import fstgrad as fg
from fstgrad import costs, grammars, io
from fstgrad.learning import outputs
from fstgrad.losses.transducers.rules import RuleSet, compile_rules
from fstgrad.mrf.estimator import MRFClassifier
from fstgrad.objectives.sampling import Sampling
from tests.helpers.refusals import not_refused

AB = fg.Alphabet("ab")
EDIT = fg.EditDistance(AB)


def test_a_loss_automaton_is_no_source_of_costs():
    with pytest.raises(fg.InvalidInputError, match="source is a LossAutomaton"):
        costs.pair_transducer(EDIT.compile("ab"), AB)


@pytest.mark.parametrize("band", [2**63 - 1, 10**30, (-(10**30), 10**30)])
def test_bands_beyond_all_lengths_are_all_alignments(band):
    y = np.array([0, 1, 1])
    assert EDIT.compile("ab", 3, band=band).loss(y) == EDIT(y, "ab")


@pytest.mark.parametrize("single_root", [True, False])
def test_a_sentence_of_one_word_has_one_tree_without_replacement(single_root):
    trees = fg.SpanningTrees(np.array([[0.0, 1.5], [0.0, 0.0]]), single_root=single_root)
    ((heads, log_p),) = trees.sample_without_replacement(3, 0)
    assert (heads.tolist(), log_p) == ([0], 0.0)


def test_complex_scores_are_refused_instead_of_cut():
    scores = np.full((4, 4), 1j)
    with pytest.raises(fg.InvalidInputError, match="complex numbers"):
        fg.SpanningTrees(scores, single_root=True)
    with pytest.raises(fg.InvalidInputError, match="complex numbers"):
        fg.StringDistribution(scores)


def test_a_single_root_with_arcs_of_the_largest_scores_has_a_finite_log_partition():
    scores = np.zeros((3, 3))
    scores[0, 2] = scores[2, 1] = 1e300
    for family in (fg.ProjectiveTrees, fg.SpanningTrees):
        trees = family(scores, single_root=True)
        assert trees.log_partition() == 2e300
        assert trees.marginals()[0, 2] == trees.marginals()[2, 1] == 1.0


@pytest.mark.parametrize("score", [1.01e300, 1e308])
def test_scores_whose_sums_overflow_are_refused(score):
    calls = [
        lambda: fg.SpanningTrees(np.full((3, 3), score), single_root=True),
        lambda: fg.ProjectiveTrees(np.full((1, 3, 3), score), single_root=False),
        lambda: fg.best_tree(np.full((3, 3), score), single_root=True),
        lambda: fg.StringDistribution(np.full((3, 2), score)),
        lambda: fg.PairwiseMRF(np.full((2, 2), score), [[0, 1]], np.zeros((1, 2, 2))),
    ]
    for call in calls:
        with pytest.raises(fg.InvalidInputError, match=r"at most 1e\+300"):
            call()


LATTICE = fg.Lattice.from_text("0 1 a\n1", AB)
TREES = fg.SpanningTrees(np.zeros((4, 4)), single_root=True)
WINDOW = fg.Window(0, 1)
NAMES = fg.TemplateFeatures(AB, 1, WINDOW, ["0 x", "bias"])
PAIR = fg.PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), [(0, 1)])
NODES = np.array([[[1.0], [1.0]], [[-1.0], [-1.0]]])
FITTED = MRFClassifier(PAIR, method="exact", max_iter=2).fit(NODES, [[1, 1], [0, 0]])


FOUND = [
    lambda: fg.LossAutomaton(AB, np.array([0, 1]), np.array("x"), 0.0, np.zeros(1)),
    lambda: fg.LossAutomaton(2**63, np.array([0, 1]), (), 0.0, np.zeros(1)),
    lambda: io.json_object({}, {}),
    lambda: io.json_object("{}", AB),
    lambda: io.read_arrays("none", [1], what="a model"),
    lambda: io.read_arrays("none", {"a": 1}, what="a model"),
    lambda: FITTED.fit(NODES, np.zeros(0)),
    lambda: FITTED.fit(NODES, [[1, 1], [0, [["a"]]]]),
    lambda: FITTED.predict(np.zeros((1, 2, 3))),
    lambda: FITTED.score(NODES, [[0, 1]]),
    lambda: MRFClassifier("ba").fit(NODES, [[1, 1], [0, 0]]),
    lambda: fg.PairwiseMRF.build(PAIR.graph, np.zeros((2, 2)), np.eye(2), factors=b""),
    lambda: fg.PairwiseMRF.build(PAIR.graph, np.zeros((2, 2)), np.eye(2), offset="a"),
    lambda: fg.Alphabet(1 / 0 for _ in range(3)),
    lambda: fg.SequenceModel(held_out=np.zeros(3)).fit(["ab"], ["ba"]),
    lambda: fg.SequenceModel(checkpoint=[1, 2], epochs=1).fit(["ab"], ["ba"]),
    lambda: fg.GeneralizedRootModel(1, checkpoint=(1, 2)).fit(np.eye(3)),
    lambda: fg.GeneralizedRootModel(2, candidate_sets=[1, 2]).fit(np.eye(3)),
    lambda: fg.GeneralizedRootModel(2, candidate_sets=[(0, 1.5)]).fit(np.eye(3)),
    lambda: fg.GeneralizedRootModel(2, candidate_sets=3).fit(np.eye(3)),
    lambda: fg.GeneralizedRootModel(1, scale_columns=np.zeros(0)).fit(np.eye(3)),
    lambda: fg.GeneralizedRootModel(1, warm_start=np.eye(3)).fit(np.eye(3)),
    lambda: fg.AutomatonCache(1000).automaton(EDIT, "ab", bounded=np.zeros(2)),
    lambda: fg.GeneralizedRootModel(1).stability(map(str, [1, 2]), samples=4, rng=0),
    lambda: fg.GeneralizedRootModel(1).stability(0.5, samples=4, rng=0),
    lambda: grammars.Grammar.load(0.5),
    lambda: Sampling().generator([("ab", 2.0)]),
    lambda: Sampling().generator(1e308),
    lambda: Sampling().keep(3),
    lambda: Sampling().keep([None]),
    lambda: fg.plot.word_graph({"a": 1}),
    lambda: fg.plot.confusion_network(LATTICE, top=EDIT),
    lambda: fg.Budget().most_samples(sparse.eye(3), 20),
    lambda: fg.PairObjective(fg.QGramCounts(AB)).mean(np.zeros((2, 2)), sparse.eye(3)),
    lambda: fg.SequenceModel().prepare(AB, None, latent=len),
    lambda: fg.SequenceModel().prepare(AB, (x for x in "a")),
    lambda: fg.SequenceModel().prepare(AB, 1),
    lambda: fg.SequenceModel().fit(["ab"], ["ba"], np.array([[0, 1], None], dtype=object)),
    lambda: NAMES.scores(np.zeros(NAMES.shape), ("b", [1, 2]), 2),
    lambda: NAMES.scores(np.zeros(NAMES.shape), np.zeros((2, 2)), 2),
    lambda: fg.TemplateFeatures.from_pairs(0, 2, WINDOW, [("cat", "aba")]),
    lambda: fg.InputFeatures.from_function(AB, 1, size=2, psi=lambda *_: {0: [1, 2]}).scores(
        np.zeros(2), "x", 1
    ),
    lambda: RuleSet.parse([0]),
    lambda: compile_rules(True),
    lambda: compile_rules(RuleSet.parse("alphabet = ab\na -> b 1"), {0: 1.0}),
    lambda: TREES.with_arcs(required=sparse.eye(3)),
    lambda: TREES.with_arcs(required=(1 / 0 for _ in range(3))),
    lambda: TREES.with_column([], np.zeros(4)),
    lambda: TREES.with_score([], 1, 0.5),
    lambda: grammars.Grammar.load("keyboard").loss(np.zeros((2, 2))),
    lambda: grammars.Grammar.load("keyboard").explain("cst", 2**64),
    lambda: grammars.RuleGrammar.read(None),
    lambda: grammars.ModuleGrammar.imported([0], "build"),
    lambda: PAIR.condition({(): memoryview(b"ab")}),
    lambda: PAIR.condition({0: [[1]]}),
    lambda: fg.SequenceModel(held_out=np.ma.masked).fit(["ab"], ["ba"]),
    lambda: fg.SequenceModel(alphabet=np.full((3, 2), np.inf)).fit(["ab"], ["ba"]),
    lambda: fg.SequenceModel(features=np.zeros((2, 0))).fit(["ab"], ["ba"]),
    lambda: fg.SequenceModel(features=lambda: None).fit(["ab"], ["ba"]),
    lambda: fg.SequenceModel(features=lambda *_: 3).fit(["ab"], ["ba"]),
    lambda: fg.SequenceModel(loss=dict.fromkeys).fit(["ab"], ["ba"]),
    lambda: fg.SequenceModel(callbacks=0.5, epochs=1).fit(["ab"], ["ba"]),
    lambda: fg.SequenceModel(callbacks=[3], epochs=1).fit(["ab"], ["ba"]),
    lambda: fg.GeneralizedRootModel(1, candidate_sets=sparse.eye(3)).fit(np.eye(3)),
    lambda: fg.LossAutomaton.from_arrays(fg.Alphabet("a"), EDIT.compile("ab").to_arrays(), 2),
    lambda: fg.choose_cap(np.zeros((2, 2)), EDIT, "ab", tolerance=0.1, compiled=lambda: None),
    lambda: fg.choose_cap(np.zeros((2, 2)), EDIT, "ab", tolerance=0.1, compiled=lambda _: 3),
    lambda: io.write_text("none", Fraction(1, 2)),
    lambda: fg.PairwiseMRFBatch(np.zeros((1, 2, 2)), np.eye(2), [[0, 1]]).nll([[["a", [0]]]]),
    lambda: fg.NGram(AB, 2**31),
    lambda: fg.NGramSum(AB, 2**31),
    lambda: fg.GappyNGram(AB, 2**31),
    lambda: fg.MismatchNGram(AB, 2**31),
]


def test_calls_of_the_examples_that_were_found():
    assert not_refused(FOUND) == []


@pytest.mark.parametrize("wrong", [None, 2**70, 0.5, [0]])
def test_what_is_no_ignored_index(wrong):
    torch = pytest.importorskip("torch")
    from fstgrad import torch as ft

    scores, gold = torch.zeros(2, 2), torch.tensor([0, 1])
    for call in (
        lambda: ft.mrf_nll(scores, scores, gold, PAIR, ignore_index=wrong),
        lambda: ft.crf_nll(scores, gold, ignore_index=wrong),
        lambda: ft.CRF(scores[None], scores).nll(gold[None], ignore_index=wrong),
    ):
        with pytest.raises(fg.InvalidInputError, match="ignore_index"):
            call()


def test_gold_ids_of_more_axes():
    torch = pytest.importorskip("torch")
    from fstgrad import torch as ft

    for gold in ([[[1, 2]]], memoryview(b"ab"), [["a", [0]]]):
        with pytest.raises(fg.InvalidInputError, match="gold"):
            ft.ctc_nll(torch.zeros(1, 4, 3), gold)
    with pytest.raises(fg.InvalidInputError, match="method"):
        ft.mrf_nll(
            torch.zeros(2, 2), torch.zeros(2, 2), torch.tensor([0, 1]), PAIR, method=range(2)
        )
    with pytest.raises(fg.InvalidInputError, match="no items"):
        ft.SpanningTreeLoss(single_root=True)(torch.zeros(0, 4, 4), torch.zeros(0, 3).long())
    with pytest.raises(fg.InvalidInputError, match="scores have the shape"):
        ft.RiskLoss(EDIT)(torch.tensor(1.0), ["ab"])
    with pytest.raises(fg.InvalidInputError, match="gold"):
        ft.CTCRiskLoss(EDIT)(torch.zeros(1, 4, 2), np.array(1.0))
    with pytest.raises(fg.InvalidInputError, match="X is not a table"):
        fg.GeneralizedRootModel(1).fit(torch.zeros(3, 2, requires_grad=True))
    with pytest.raises(fg.InvalidInputError, match="reduction"):
        ft.nbest_risk(torch.zeros(2), ["a", "b"], "a", EDIT, reduction=np.zeros((2, 2)))


def test_values_that_no_machine_has():
    target = fg.NGram(AB, 2, smoothing=0.5, log=True).against("ab")
    for value in (np.array([-1.0]), np.array([np.nan])):
        with pytest.raises(fg.InvalidInputError, match="value has NaN"):
            target.in_nats(value)


def test_a_table_of_nan_has_no_inner_product():
    p = fg.StringDistribution(np.zeros((2, 3)))
    with pytest.raises(fg.InvalidInputError, match="values has NaN"):
        p.inner(p.marginals(), np.full((2, 3), np.nan))


@pytest.mark.parametrize("pairs", [np.array([1, 2]), [3], [("a",)], [("a", "b", "c")], [None]])
def test_what_is_no_pair_of_a_batch(pairs):
    features = fg.QGramCounts(AB, 2)
    with (
        fg.Batch(fg.PairObjective(features, EDIT)) as batch,
        pytest.raises(fg.InvalidInputError, match=r"pairs\[0\]"),
    ):
        batch.sums(np.zeros(features.shape), pairs)


@pytest.mark.parametrize("kind", [3, (int, 3), None])
def test_what_is_no_type_of_a_key(kind):
    with pytest.raises(fg.InvalidInputError, match=r"keys\['a'\]"):
        io.json_object('{"a": 1}', {"a": kind})


def test_pairs_are_read_once(tmp_path):
    """An iterator of inputs is one pass over them."""
    given = fg.SequenceModel(order=1, epochs=1, window=1).fit(map(str, ["ab", "b"]), ["ba", "a"])
    listed = fg.SequenceModel(order=1, epochs=1, window=1).fit(["ab", "b"], ["ba", "a"])
    np.testing.assert_array_equal(given.coef_, listed.coef_)


def test_numbers_that_no_table_holds():
    trees = fg.SpanningTrees(np.zeros((3, 3)), single_root=True)
    assert trees.expectations(np.zeros((3, 3, 0))).shape == (0,)
    with pytest.raises(fg.InvalidInputError, match="features has an entry of 1e"):
        trees.generalized_expectation(np.full((3, 3, 1), 1e300), [5.0])
    features = fg.InputFeatures.from_function(AB, 1, size=1, psi=lambda x, z, s: [1.0])
    with pytest.raises(fg.MemoryLimitError, match="length is 1099511627776"):
        features.scores([2.0], "ba", 2**40)
    with pytest.raises(fg.InvalidInputError, match="weights"):
        fg.StringDistribution(np.zeros((2, 3))).inner(np.inf, np.array([0.0, -1.0, 0.5]))


def test_infinities_that_cancel_have_no_expectation():
    trees = fg.ProjectiveTrees(np.zeros((3, 3)), single_root=True)
    r = np.zeros((3, 3))
    r[0, 1:] = np.inf, -np.inf
    with pytest.raises(fg.InvalidInputError, match="infinities that cancel"):
        trees.expectation(r)


def test_a_tensor_without_a_length_is_no_pair():
    torch = pytest.importorskip("torch")
    pairs = [tuple(torch.zeros(2))]
    with pytest.raises(fg.InvalidInputError, match="x of pair 0 is tensor"):
        outputs.check_aligned(pairs)


def test_partial_trees_of_another_shape():
    torch = pytest.importorskip("torch")
    from fstgrad.torch import spanning_tree_partial_nll

    for allowed in (torch.tensor([-100, 0]), torch.zeros(3, 2).long()):
        with pytest.raises(fg.InvalidInputError, match="allowed has the shape"):
            spanning_tree_partial_nll(torch.zeros(4, 4), allowed, single_root=True)


def test_fewer_losses_than_gold_strings():
    torch = pytest.importorskip("torch")
    import fstgrad.torch as ft

    scores = torch.zeros(1, 3, 2, dtype=torch.float64)
    for loss in ((), [EDIT.compile("ab", 3)] * 2):
        with pytest.raises(fg.InvalidInputError, match=r"loss has [02] items; gold has 1"):
            ft.risk(scores, ["aba"], loss)


def test_a_lattice_with_what_is_no_loss():
    for run in (fg.sampled_risk, fg.sampled_softmax_margin):
        with pytest.raises(fg.InvalidInputError, match="loss is a tuple"):
            run(LATTICE, "a", ("a", "b"), samples=5, rng=0)


def test_a_field_is_no_network_of_words():
    from fstgrad import plot

    with pytest.raises(fg.InvalidInputError, match="lattice is a PairwiseMRF"):
        plot.confusion_network(PAIR)


def test_images_without_pixels():
    with pytest.raises(fg.InvalidInputError, match=r"X has shape \(3, 2, 1, 0\)"):
        FITTED.models(np.zeros((3, 2, 1, 0)))


def test_settings_are_kept_as_numbers():
    """Whatever holds a number is kept as the number."""
    from fstgrad.learning.trainer import Settings

    rate = np.array(0.5)
    settings = Settings(learning_rate=rate[()], epochs=np.int8(3))
    assert (type(settings.learning_rate), type(settings.epochs)) == (float, int)
    objective = fg.PairObjective(fg.QGramCounts(AB, 2), EDIT, kind="risk", cap=np.float32(2))
    assert type(objective.cap) is float


def test_sequences_and_tables_that_are_none():
    import torch

    import fstgrad.torch as fgt
    from fstgrad import openfst, plot
    from fstgrad.losses.automata.automaton import LossAutomaton

    objective = fg.PairObjective(fg.QGramCounts(AB, 2), EDIT, kind="risk")
    found, rows = openfst.to_arrays(EDIT.compile("ab").to_fst()), sparse.eye(3, format="dia")
    edges = torch.zeros(2, 2, dtype=torch.float64)
    calls = {
        "marginals are from 0 to 2": lambda: plot.trees(np.full((3, 3), [0.0, 1.0, 2.0])),
        "alphas is empty": lambda: fg.GeneralizedRootModel(k=1).select(np.ones((4, 2)), ()),
        "give pairs": lambda: fg.Batch(objective).sums(np.zeros((2, 2)), rows),
        "levels is empty": lambda: LossAutomaton(AB, np.array([0, 1]), (), 0.0, np.zeros(1)),
        "length is 2147483648": lambda: LossAutomaton.from_arrays(AB, found, 2**31),
        r"node_scores has shape \(\)": lambda: fgt.mrf_log_partition(edges.sum(), edges, PAIR),
    }
    for message, call in calls.items():
        with pytest.raises(fg.InvalidInputError, match=message):
            call()


@pytest.mark.parametrize("target", [1.1e150, -1e308])
def test_targets_whose_squares_overflow_are_refused(target):
    with pytest.raises(fg.InvalidInputError, match="target has an entry of"):
        TREES.generalized_expectation(np.ones((4, 4, 1)), [target])
    with pytest.raises(fg.InvalidInputError, match=r"features\.data has an entry of"):
        TREES.generalized_expectation(sparse.csr_array(np.full((16, 1), target)), [0.0])


def test_held_out_pairs_are_read_once():
    X, Y = ["ab", "ba", "aab"], ["ba", "ab", "bba"]
    given = fg.SequenceModel(order=1, epochs=2, window=1).fit(X, Y, iter([map(str, X), iter(Y)]))
    listed = fg.SequenceModel(order=1, epochs=2, window=1).fit(X, Y, (X, Y))
    np.testing.assert_array_equal(given.coef_, listed.coef_)
    with pytest.raises(fg.InvalidInputError, match="validation is"):
        fg.SequenceModel(order=1, epochs=1).fit(X, Y, [X])
    with pytest.raises(fg.InvalidInputError, match=r"validation\[1\]"):
        fg.SequenceModel(order=1, epochs=1).fit(X, Y, (X, 3))


@pytest.mark.parametrize("shape", [(0, 3, 2), (3, 0, 2), (3, 3, 0)])
def test_dense_fields_without_pixels_or_labels(shape):
    from fstgrad.mrf.dense import Kernel, dense_mean_field

    with pytest.raises(fg.InvalidInputError, match="node_scores has shape"):
        dense_mean_field(np.zeros(shape), np.zeros(shape[:2]), [Kernel(1.0, 1.0, 0.5)])


def test_settings_of_dense_fields():
    from fstgrad.mrf.dense import Kernel, dense_mean_field

    node, image = np.zeros((2, 2, 2)), np.zeros((2, 2))
    for damping in (1.0, -0.1, np.nan, "a"):
        with pytest.raises(fg.InvalidInputError, match="damping"):
            dense_mean_field(node, image, [Kernel(1.0, 1.0)], damping=damping)
    with pytest.raises(fg.InvalidInputError, match=r"kernels\[0\]"):
        dense_mean_field(node, image, [(1.0, 1.0)])


@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 3, 0), (0, 3, 3)])
def test_dense_layers_without_pixels_or_labels(shape):
    torch = pytest.importorskip("torch")
    from fstgrad.mrf.dense import Kernel
    from fstgrad.torch import mrf_dense_marginals

    with pytest.raises(fg.InvalidInputError, match="node_scores has shape"):
        mrf_dense_marginals(torch.zeros(shape), torch.zeros(shape[1:]), [Kernel(1.0, 1.0, 0.5)])


def test_a_range_of_candidate_sets_names_a_checkpoint(tmp_path):
    """What a list may be, a range may be, also in the digest of the settings."""
    X, where = np.eye(3), tmp_path / "nodes.npz"
    chosen = fg.GeneralizedRootModel(k=2, alpha=0.1, candidate_sets=range(0), checkpoint=where)
    assert not chosen.fit(X).top_interactions(order=2)
    assert chosen.fit(X).n_candidates_ == 0
    assert where.exists()


def test_an_empty_table_of_text_is_a_table_of_numbers(tmp_path):
    path = tmp_path / "read.npz"
    np.savez(path, slopes=np.zeros((3, 0), dtype="U3"))
    field = io.Field("float", (3, None))
    found = io.read_arrays(path, {"slopes": field}, what="a table")["slopes"]
    assert found.shape == (3, 0)
    assert found.dtype == np.float64
