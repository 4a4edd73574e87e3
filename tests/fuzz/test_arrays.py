"""Arrays made by hand: what the kernels follow is looked through before they do."""

from dataclasses import replace

import numpy as np
import pytest

import fstgrad as fg
from fstgrad import costs, io
from fstgrad.learning.template_features import Encoded, Pairs, TemplateFeatures
from fstgrad.learning.templates import Window
from fstgrad.mrf import objectives
from fstgrad.openfst import with_arc_type
from tests.helpers.refusals import not_refused

AB = fg.Alphabet("ab")
TRANSDUCER = costs.pair_transducer(fg.EditDistance(AB), AB)
PAIRS = costs.Pairs.encode(AB, [("ab", "ba"), ("b", "a")])
ITSELF: list = []
ITSELF.append(ITSELF)


def template_features(order=1, **settings):
    names = ["0 x", "bias"]
    return TemplateFeatures(AB, order, Window(0, 1), names, **settings)


@pytest.mark.parametrize("name", ["starts", "ids", "copies"])
@pytest.mark.parametrize("value", [2**62, 7, -2])
def test_names_beside_their_arrays(name, value):
    """`gather` and `scatter` would read and write beside their arrays."""
    features = template_features()
    encoded, w = features.encode([("xy", 2)]), np.zeros(features.shape)
    wrong = encoded._replace(**{name: np.full_like(getattr(encoded, name), value)})
    with pytest.raises(fg.InvalidInputError, match=name):
        features.emissions(w, wrong)
    with pytest.raises(fg.InvalidInputError, match=name):
        features.accumulate_emissions(np.zeros((2, 2)), wrong, w)


def test_starts_that_descend():
    features = template_features()
    wrong = Encoded(np.array([1, 0, 2]), np.zeros(2, int), np.zeros(2, int))
    with pytest.raises(fg.InvalidInputError, match="starts of the positions descend"):
        features.emissions(np.zeros(features.shape), wrong)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_tables_of_any_order(order):
    """The adjoint of order q takes q + 1 axes, no more and no fewer."""
    features = template_features(order)
    rng = np.random.default_rng(0)
    w, table = rng.normal(size=features.shape), np.zeros((2, *(3,) * (order - 1), 2))
    table[:] = rng.normal(size=table.shape)
    gradient = features.gradient(table, "xy")
    scores = features.scores(w, "xy", 2)
    np.testing.assert_allclose((scores * table).sum(), gradient @ w, rtol=1e-12)
    for wrong in (table[None], table[0], table[..., :1], table * np.nan, "a", ITSELF):
        with pytest.raises(fg.InvalidInputError, match="table"):
            features.gradient(wrong, "xy")


@pytest.mark.parametrize(
    "out", [[], None, np.zeros(1), np.zeros(4, np.float32), np.zeros(4, ">f8"), np.zeros(4)[None]]
)
def test_sums_that_cannot_be_added_to(out):
    features, grams = template_features(), fg.QGramCounts(AB, 2)
    encoded = features.encode([("xy", 2)])
    with pytest.raises(fg.InvalidInputError, match="out"):
        features.accumulate_emissions(np.zeros((2, 2)), encoded, out)
    with pytest.raises(fg.InvalidInputError, match="out"):
        grams.accumulate(np.zeros((2, 3, 2)), None, out)
    read_only = np.zeros((2, 2))
    read_only.flags.writeable = False
    with pytest.raises(fg.InvalidInputError, match="out is read-only"):
        grams.accumulate(np.zeros((2, 3, 2)), None, read_only)


@pytest.mark.parametrize(
    "settings",
    [
        {"pairs": Pairs(np.array([0, 2, 9]), np.array([0, 1, 0]))},
        {"pairs": Pairs(np.array([0, 2, 3]), np.array([0, 1, 3]))},
        {"pairs": Pairs(np.array([0, 3]), np.array([0, 1, 1]))},
        {"pairs": Pairs(np.array([2, 0, 3]), np.array([0, 1, 1]))},
        {"copies": {"x": 2}},
        {"copies": {"x": -1}},
        {"copies": 3},
    ],
)
def test_pairs_and_copies_beside_the_alphabet(settings):
    with pytest.raises(fg.InvalidInputError, match=r"pairs|cop"):
        template_features(**settings)


@pytest.mark.parametrize("mass", [ITSELF, np.ones(3), [1.0, np.nan], "ab", None])
def test_the_mass_of_pairs(mass):
    weight = -TRANSDUCER.cost
    for counted in (TRANSDUCER.best_counts, TRANSDUCER.expected_counts):
        if mass is None:
            assert np.array_equal(counted(PAIRS, weight)[1], counted(PAIRS, weight, [1, 1])[1])
            continue
        with pytest.raises(fg.InvalidInputError, match="mass"):
            counted(PAIRS, weight, mass)


@pytest.mark.parametrize(
    "changes",
    [
        {"x_first": np.array([0, 2, 9])},
        {"y_first": np.array([0, 3, 2])},
        {"x_first": np.array([0, 3])},
        {"y_first": np.array([1, 1, 3])},
        {"x": np.zeros((2, 2), int)},
        {"mass": ITSELF},
    ],
)
def test_places_of_pairs(changes):
    with pytest.raises(fg.InvalidInputError, match=next(iter(changes))):
        replace(PAIRS, **changes)


@pytest.mark.parametrize("label", [0, 3, 10**6])
def test_labels_of_pairs(label):
    wrong = replace(PAIRS, x=np.full_like(PAIRS.x, label))
    for call in (TRANSDUCER.log_sums, TRANSDUCER.best_counts, TRANSDUCER.expected_counts):
        with pytest.raises(fg.InvalidInputError, match="x"):
            call(wrong, -TRANSDUCER.cost)
    with pytest.raises(fg.InvalidInputError, match="x"):
        wrong.shown(0, AB)


@pytest.mark.parametrize("name", ["ilabel", "olabel", "source", "nextstate", "rule", "start"])
@pytest.mark.parametrize("value", [-3, 2**40])  # a rule of -2 goes on with the last one
def test_arcs_of_a_pair_transducer(name, value):
    given = getattr(TRANSDUCER, name)
    with pytest.raises(fg.InvalidInputError, match=name):
        replace(TRANSDUCER, **{name: value if name == "start" else np.full_like(given, value)})


def test_arcs_out_of_order():
    with pytest.raises(fg.InvalidInputError, match="sorted"):
        replace(TRANSDUCER, ilabel=TRANSDUCER.ilabel[::-1])


@pytest.mark.parametrize("which", [[2], [-1], [np.nan], ITSELF, 0, "a", [[0]]])
def test_pairs_that_are_not_there(which):
    with pytest.raises(fg.InvalidInputError, match="which"):
        PAIRS.take(which)
    with pytest.raises(fg.InvalidInputError, match="n is"):
        PAIRS.shown(2 if which == 0 else which, AB)
    with pytest.raises(fg.InvalidInputError, match="alphabet"):
        costs.Pairs.encode("ab", [("a", "b")])
    assert PAIRS.shown(0, AB) == "'ab' against 'ba'"


@pytest.mark.parametrize("value", [-2, 9, 2**30])
def test_levels_of_an_automaton(value):
    b = fg.EditDistance(AB).compile("ab")
    level = b.levels[0]
    wrong = replace(level, nextstate=np.full_like(level.nextstate, value))
    with pytest.raises(fg.InvalidInputError, match=f"nextstate {value}"):
        replace(b, levels=(wrong, *b.levels[1:]))
    with pytest.raises(fg.InvalidInputError, match="class_of"):
        replace(b, class_of=np.full_like(b.class_of, -1))
    narrow = replace(level, cost=level.cost[:, :1])
    with pytest.raises(fg.InvalidInputError, match="cost"):
        replace(b, levels=(narrow, *b.levels[1:]))


@pytest.mark.parametrize("labels", [[10**6] * 3, [0.5] * 3, ITSELF, [0, 1], [-2, 0, 0], "aaa"])
def test_labelings_of_a_field(labels):
    model = fg.PairwiseMRF(np.zeros((3, 2)), np.eye(2), [[0, 1], [1, 2]])
    for loss in (
        objectives.exact_nll,
        objectives.pseudolikelihood,
        lambda m, y: objectives.counts(m, y, 1.0),
    ):
        with pytest.raises(fg.InvalidInputError):
            loss(model, labels)
        with pytest.raises(fg.InvalidInputError, match="model is a list"):
            loss([], [0, 0, 0])
    with pytest.raises(fg.InvalidInputError, match="out"):
        objectives.counts(model, [0, 0, 0], 1.0, out=model.scores._replace(node=np.zeros((1, 1))))


FOUND = [
    lambda: Pairs.all(2.5, 2),
    lambda: Pairs.all(2, "a"),
    lambda: template_features().encode([("xy", 0)]),
    lambda: template_features().encode([3]),
    lambda: TemplateFeatures.from_data(AB, 1, 3, [("xy", 2)]),
    lambda: TemplateFeatures.from_data(AB, 1, Window(0, 1), [("xy", 2)], min_count="z"),
    lambda: TemplateFeatures.from_pairs(AB, 1, Window(0, 1), 0.5),
    lambda: TemplateFeatures.from_pairs(AB, 1, Window(0, 1), [("x", "a")], copies=3),
    lambda: fg.plot.automaton_source(fg.Hamming(AB).compile("ab"), max_edges=[]),
    lambda: fg.plot.automaton_source(fg.Hamming(AB).compile("ab"), title=0.5),
    lambda: fg.plot.automaton_source(fg.Hamming(AB).compile("ab"), "ab"),
    lambda: fg.plot.render(3, "svg"),
    lambda: fg.plot.strip([(0, 1)]),
    lambda: io.tokenize(3, "chars"),
    lambda: io.tokenize("ab", np.zeros(2)),
    lambda: io.write_bytes("/nonexistent/x", ["a"]),
    lambda: io.write_npz("/nonexistent/x", np.zeros(2)),
    lambda: AB.encode(range(10**9)),
    lambda: with_arc_type(fg.EditDistance(AB).transducer, np.zeros(2)),
    lambda: costs.Alignment(3, 1.0),
    lambda: fg.PairObjective(fg.QGramCounts(AB), fg.EditDistance(AB)).automaton(0.5),
    lambda: fg.Lattice.from_text("0 1 a\n1", AB).scatter(["b"]),
]


def test_what_else_was_found():
    assert not_refused(FOUND) == []


def test_starts_that_end_behind_the_features():
    features = template_features()
    wrong = Encoded(np.array([0, 1, 3]), np.zeros(2, int), np.zeros(2, int))
    with pytest.raises(fg.InvalidInputError, match="starts"):
        features.emissions(np.zeros(features.shape), wrong)
