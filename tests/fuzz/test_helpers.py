"""Arguments of the functions around models, pairs and figures: one clear error each."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.learning.align import Aligner, per_symbol
from fstgrad.learning.comparison import compare
from fstgrad.learning.data import made_loss
from fstgrad.learning.measures import edit_distances, errors, evaluate
from fstgrad.learning.outputs import LengthModel, check_aligned
from fstgrad.learning.templates import Tagged, Window
from fstgrad.openfst import check_symbols
from tests.helpers.refusals import not_refused

AB = fg.Alphabet("ab")
ITSELF: list = []
ITSELF.append(ITSELF)
LATTICE = fg.Lattice.from_text("0 1 a\n1", AB)


class Odd:
    """An object whose iteration fails."""

    def __iter__(self):
        raise RuntimeError("no items")


@pytest.mark.parametrize("wrong", [0.5, ITSELF, [0, 1], ["cat", "dog"], np.zeros(1), Odd(), None])
def test_predictions_and_targets(wrong):
    for measure in (evaluate, errors, edit_distances):
        with pytest.raises(fg.InvalidInputError, match="predictions"):
            measure(wrong, ["cat"])
        with pytest.raises(fg.InvalidInputError, match="targets"):
            measure(["cat"], wrong)
    with pytest.raises(fg.InvalidInputError, match="first"):
        compare(wrong, ["cat"], ["cat"])
    with pytest.raises(fg.InvalidInputError, match="loss"):
        evaluate(["cat"], ["cat"], 1.0)


def test_measures_take_strings_and_lists_of_symbols():
    assert evaluate(["cat", ["d", "o"]], (["c", "a", "t"], "do")).accuracy == 1.0
    assert errors(iter(["a"]), iter([["b"]])).substituted == ((("a", "b"), 1),)


WRONG = [
    lambda: list(Window()("ab", 0, 0)),
    lambda: list(Window()("ab", 2, 2)),
    lambda: list(Window()("ab", 0, ITSELF)),
    lambda: list(Window()([0, 1], 0, 2)),
    lambda: list(Window()(3, 0, 2)),
    lambda: list(Window()(Tagged((), ("V",)), 0, 1)),
    lambda: Tagged(3, ()),
    lambda: Tagged(("a",), [1]),
    lambda: LengthModel.fit(3),
    lambda: LengthModel.fit([3]),
    lambda: LengthModel.fit([(1, 2, 3)]),
    lambda: LengthModel.fit([(1, "a")]),
    lambda: LengthModel.fit([(-1, 2)]),
    lambda: LengthModel.fit([(1, 2)])(0.5),
    lambda: LengthModel.fit([(1, 2)])(ITSELF),
    lambda: LengthModel.fit([(1, 2)])(-1),
    lambda: LengthModel(np.array([2, 1]), np.array([1, 1]), 1.0),
    lambda: LengthModel(np.array([1]), np.array([1, 1]), 1.0),
    lambda: LengthModel(np.array([1]), np.array([1]), float("nan")),
    lambda: Aligner(empty_x="yes"),
    lambda: Aligner(longest=3),
    lambda: Aligner(longest={"a": "b"}),
    lambda: Aligner(start=3),
    lambda: Aligner(start=lambda u, v: float("nan")).fit([("a", "b")]),
    lambda: Aligner(start=lambda u, v: "x").fit([("a", "b")]),
    lambda: Aligner().fit(3),
    lambda: Aligner().fit([("a", "b", "c")]),
    lambda: Aligner().fit([("a", 3)]),
    lambda: Aligner().fit([([1], "a")]),
    lambda: Aligner().align("a", "b"),
    lambda: Aligner().discourage(2.0),
    lambda: Aligner().fit([("a", "b")]).align(ITSELF, "b"),
    lambda: Aligner().fit([("a", "b")]).align_all(0.5),
    lambda: Aligner().fit([("a", "b")]).discourage("x"),
    lambda: per_symbol([("a", "b")]),
    lambda: check_aligned([3]),
    lambda: check_aligned([(1, 2)]),
    lambda: made_loss([], AB),
    lambda: made_loss(lambda alphabet: 3, AB),
    lambda: check_symbols(3, ((0, "a"),)),
    lambda: check_symbols(((0, "a"),), (1, 2)),
    lambda: check_symbols(((0, "a"),), ((0, ITSELF),)),
    lambda: fg.SpanningTrees(np.zeros((3, 3)), single_root=True).with_score(0, 1, ITSELF),
    lambda: fg.SpanningTrees(np.zeros((3, 3)), single_root=True).with_score(0, 1, np.nan),
]


def test_one_clear_error():
    assert not_refused(WRONG) == []


NO_PICTURES = [
    lambda: fg.plot.curves([], xlabel="x", ylabel="y"),
    lambda: fg.plot.curves({"a": 3}, xlabel="x", ylabel="y"),
    lambda: fg.plot.curves({"a": {"b": ([1], [1, 2])}}, xlabel="x", ylabel="y"),
    lambda: fg.plot.bars({"a": np.zeros(2)}, xlabel="x"),
    lambda: fg.plot.bars({"a": 1.0}, xlabel="x", dark=np.zeros(2)),
    lambda: fg.plot.learning([3]),
    lambda: fg.plot.learning(0.5),
    lambda: fg.plot.bounds([1], [1], [1], exact="a"),
    lambda: fg.plot.trees(np.zeros((3, 3)), 3),
    lambda: fg.plot.trees(np.zeros((3, 3)), heads=[9, 0]),
    lambda: fg.plot.trees(np.zeros((3, 3)), threshold=np.zeros(2)),
    lambda: fg.plot.alignment(3),
    lambda: fg.plot.confusion_network(3),
    lambda: fg.plot.marginals(np.zeros((2, 2)), "ab"),
    lambda: fg.plot.save(3, "x.png"),
    lambda: fg.plot.check_name(3),
]


def test_what_cannot_be_drawn():
    pytest.importorskip("matplotlib")
    assert not_refused(NO_PICTURES) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"label": np.array([5])},
        {"label": np.array([0.5])},
        {"label": np.array([0, 1])},
        {"scores": np.array([np.nan])},
        {"scores": np.zeros((1, 1))},
        {"alphabet": "ab"},
    ],
)
def test_lattices_made_by_hand(changes):
    fields = {name: getattr(LATTICE, name) for name in LATTICE.__dataclass_fields__}
    with pytest.raises(fg.InvalidInputError):
        fg.Lattice(**(fields | changes))


@pytest.mark.parametrize(
    "changes",
    [{"arc": np.array([7])}, {"cost": np.zeros(3)}, {"label": ITSELF}, {"graph": 1}],
)
def test_losses_along_a_lattice_made_by_hand(changes):
    along = LATTICE.compile(fg.EditDistance(AB), "ab")
    fields = {name: getattr(along, name) for name in along.__dataclass_fields__}
    with pytest.raises(fg.InvalidInputError):
        fg.LatticeLoss(**(fields | changes))


@pytest.mark.parametrize("arcs", [([1, 0], [2, 1]), ([0, 1], [1, 1]), ([0, 0], [1, 9]), ([0], [])])
def test_graphs_made_by_hand(arcs):
    graph = type(LATTICE.graph)
    with pytest.raises(fg.InvalidInputError):
        graph(*(np.array(states, dtype=np.int64) for states in arcs), 3)


@pytest.mark.parametrize("numbered", [3, [3], [(0, 3)], [("a", [])], [(0,)]])
def test_chunks_of_a_batch(numbered):
    batch = fg.Batch(fg.PairObjective(fg.QGramCounts(AB), fg.EditDistance(AB)))
    with pytest.raises(fg.InvalidInputError):
        list(batch.numbered(np.zeros((2, 2)), numbered))
    with pytest.raises(fg.InvalidInputError, match="first"):
        list(batch.chunks(np.zeros((2, 2)), [("x", "ab")], first="a"))
