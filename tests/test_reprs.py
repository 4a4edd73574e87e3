"""Public classes say on one short line what they are: sizes, never the entries of arrays."""

import inspect
import sys

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.core.short_repr import described, summary

LATIN = fg.Alphabet.named("latin")
GOLD = "kitten" * 3
LOSS = fg.EditDistance(LATIN)
SCORES = np.random.default_rng(0).normal(size=(18, 26))
NODES = np.zeros((400, 2))
TREE = np.zeros((30, 30))
ARCS = np.array([[i, j] for i in range(20) for j in range(1, 20) if i != j])
EDGES = np.array([[i, i + 1] for i in range(19)])


def grid(size=20):
    nodes = np.zeros((size * size, 2))
    return fg.PairwiseMRF.grid(size, size, node_scores=nodes, edge_scores=np.eye(2))


def objective():
    return fg.PairObjective(fg.QGramCounts(LATIN, 2), LOSS)


def trained():
    return fg.SequenceModel(epochs=1).fit(["ab"] * 30, ["ba"] * 30)


def lattice():
    return fg.Lattice.from_nbest([GOLD, "abc"], [0.0, -1.0], LATIN)


def counts():
    return np.random.default_rng(0).poisson(2.0, size=(40, 3))


MADE = {
    "Alphabet": lambda: fg.Alphabet([f"word{i}" for i in range(5000)]),
    "AutomatonCache": fg.AutomatonCache,
    "Batch": lambda: fg.Batch(objective()),
    "Budget": fg.Budget,
    "CapChoice": lambda: fg.choose_cap(SCORES[:6], LOSS, GOLD[:6]),
    "CharacterErrorRate": lambda: fg.CharacterErrorRate(LATIN),
    "CollapsedLoss": lambda: fg.CollapsedLoss(LOSS, LATIN),
    "Consensus": lambda: fg.mbr(fg.StringDistribution(SCORES), LOSS),
    "CostFit": lambda: fg.fit_costs(LOSS, [("ab", "ba")] * 20, held_out=0.0),
    "EditDistance": lambda: fg.EditDistance(LATIN, confusion=1.0 - np.eye(26)),
    "ExactMatch": lambda: fg.ExactMatch(LATIN),
    "FunctionLoss": lambda: fg.FunctionLoss(LATIN, lambda y, target: float(y != target)),
    "GappyNGram": lambda: fg.GappyNGram(LATIN),
    "GeneralizedRootModel": lambda: fg.GeneralizedRootModel(k=2, alpha=0.1).fit(counts()),
    "GlobalAlignment": lambda: fg.GlobalAlignment(LATIN, matrix=np.eye(26), gap_open=1.0),
    "Hamming": lambda: fg.Hamming(LATIN, 1.0 - np.eye(26)),
    "InputFeatures": lambda: fg.InputFeatures.from_function(LATIN, 2, size=3, psi=dict),
    "Lattice": lattice,
    "LatticeLoss": lambda: lattice().compile(LOSS, GOLD),
    "LongestCommonSubsequence": lambda: fg.LongestCommonSubsequence(LATIN),
    "LossAutomaton": lambda: LOSS.compile(GOLD, cap=3.0),
    "MismatchNGram": lambda: fg.MismatchNGram(LATIN),
    "NGram": lambda: fg.NGram(LATIN),
    "NGramSum": lambda: fg.NGramSum(LATIN),
    "NoLoss": lambda: fg.NoLoss(LATIN),
    "Normalized": lambda: fg.Normalized(LOSS),
    "OptimalStringAlignment": lambda: fg.OptimalStringAlignment(LATIN),
    "PairObjective": objective,
    "PairwiseMRF": grid,
    "PairwiseMRFBatch": lambda: fg.PairwiseMRFBatch(grid(), np.zeros((3, 400, 2)), np.eye(2)),
    "PositionalQGrams": lambda: fg.PositionalQGrams(LATIN, 2, max_length=18),
    "ProjectiveTrees": lambda: fg.ProjectiveTrees(TREE, single_root=True),
    "QGramCounts": lambda: fg.QGramCounts(LATIN, 2),
    "RuleLoss": lambda: fg.RuleLoss("alphabet = ab\na -> b 0.5\n"),
    "SampledObjective": lambda: fg.sampled_softmax_margin(SCORES, GOLD, LOSS, samples=200, rng=0),
    "Score": lambda: fg.score(["a b"] * 99, ["a c"] * 99, "wer", resamples=9),
    "SequenceModel": trained,
    "SmithWaterman": lambda: fg.SmithWaterman(LATIN),
    "SpanHamming": lambda: fg.SpanHamming(fg.Alphabet(["O", "B-PER", "I-PER"])),
    "SpanningTrees": lambda: fg.SpanningTrees(TREE, single_root=True),
    "SparseSpanningTrees": lambda: fg.SparseSpanningTrees(ARCS, np.zeros(len(ARCS)), n=19),
    "SparseUndirectedTrees": lambda: fg.SparseUndirectedTrees(EDGES, np.zeros(len(EDGES)), n=20),
    "StringDistribution": lambda: fg.StringDistribution(SCORES, LOSS.compile(GOLD, cap=3.0)),
    "SubstitutionMatrix": lambda: fg.SubstitutionMatrix.read("BLOSUM62"),
    "TagScheme": lambda: fg.TagScheme(["O", "B-PER", "I-PER"]),
    "TargetLoss": lambda: fg.Normalized(LOSS).against(GOLD),
    "TemplateFeatures": lambda: trained().features_,
    "TransducerLoss": lambda: fg.TransducerLoss(LOSS.transducer, LATIN),
    "UndirectedTrees": lambda: fg.UndirectedTrees(np.zeros((9, 9))),
    "Window": fg.Window,
    "WordErrorRate": lambda: fg.WordErrorRate(LATIN),
}
RESULTS = {
    "alignment": lambda: LOSS.align("kitten" * 20, "sitting" * 20),
    "alignments explained": lambda: fg.fit_costs(LOSS, [("ab", "ba")] * 20, held_out=0.0).changes(),
    "bounds of a field": lambda: grid(4).infer("bounds"),
    "epochs": lambda: trained().history_[0],
    "evaluation": lambda: trained().evaluate(["ab"], ["ba"]),
    "inference": lambda: grid().infer("bp"),
    "labeling": lambda: grid().decode("icm"),
    "marginals of a field": lambda: grid(4).marginals(),
    "samples of counts": lambda: MADE["GeneralizedRootModel"]().gibbs(50, 0),
    "scaled loss": lambda: 2.0 * LOSS,
    "sum of losses": lambda: LOSS + fg.Hamming(LATIN),
}
ABSTRACT = {"ArrayDistribution", "Distribution", "Features", "Loss"}


def test_every_public_class_is_looked_at():
    classes = {name for name in fg.__all__ if inspect.isclass(getattr(fg, name))}
    errors = {name for name in classes if issubclass(getattr(fg, name), Exception)}
    assert classes - errors - ABSTRACT <= MADE.keys()


@pytest.mark.parametrize("name", [*MADE, *RESULTS])
def test_a_repr_is_short(name):
    made = (MADE | RESULTS)[name]()
    text = repr(made[0] if isinstance(made, list) else made)
    assert len(text) <= 200
    assert "\n" not in text
    assert " at 0x" not in text
    assert "array(" not in text


def test_parts_without_room_are_counted():
    parts = {f"part{i}": "x" * 30 for i in range(9)}
    text = summary("Name", parts)
    assert text.startswith("Name(part0='xxx")
    assert text.endswith("... 5 more)")
    assert len(text) <= 200


@pytest.mark.parametrize(
    "value, text",
    [
        (np.zeros((3, 4), dtype=np.float32), "float32 (3, 4)"),
        (np.float64(1 / 3), "0.333333"),
        (np.int64(3), "3"),
        ((1, 2), "(1, 2)"),
        (list(range(99)), "list of 99"),
        ("a" * 99, repr("a" * 38 + "...")),
        (print, "<built-in function print>"),
        (object(), "object"),
        ({}, "{}"),
    ],
)
def test_values(value, text):
    assert described(value) == text


def test_a_bar_in_a_notebook_does_not_warn(monkeypatch, capsys):
    """Warnings are errors here: rich warns in a notebook that has no widgets."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    model = fg.GeneralizedRootModel(k=2, alpha=0.1, verbose=True).fit(counts())
    assert "GeneralizedRootModel" in repr(model)
    assert "nodes" in capsys.readouterr().out


@pytest.mark.parametrize("name", [*MADE, *RESULTS])
def test_objects_can_be_compared(name):
    """Arrays have no truth value, so what holds them is equal to itself alone."""
    one, other = (MADE | RESULTS)[name](), (MADE | RESULTS)[name]()
    if not isinstance(one, tuple):  # a tuple compares its arrays
        assert one == one
        assert isinstance(one == other, bool)
