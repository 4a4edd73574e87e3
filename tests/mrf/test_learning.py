"""The estimator: it recovers a model, meets its gradient, and takes what users give."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf.estimator import MRFClassifier
from tests.mrf.models import random_grid
from tests.tables import Frame, Labelled

GRID = fg.PairwiseMRF.grid(5, 6, np.zeros((30, 2)), np.zeros((2, 2)))
TRUE_W, TRUE_T = np.array([[-0.8, 0.8], [0.3, -0.3]]), 0.5 * np.eye(2)


def examples(count=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 30, 2))
    y = np.stack([GRID.with_scores(x @ TRUE_W, TRUE_T).sample(1, rng)[0] for x in X])
    return X, y


SLOW = pytest.param("pcd", marks=pytest.mark.slow)


@pytest.mark.parametrize("method", ["exact", "pseudolikelihood", "bp", "cd", SLOW])
def test_parameters_are_recovered(method):
    X, y = examples()
    model = MRFClassifier(GRID, method=method, l2=1e-3, max_iter=60, rng=0).fit(X, y)
    contrast = model.weights_[:, 1] - model.weights_[:, 0]
    np.testing.assert_allclose(contrast, [1.6, -0.6], atol=0.25)
    t = model.edge_scores_
    assert t[0, 0] + t[1, 1] - t[0, 1] - t[1, 0] == pytest.approx(1.0, abs=0.25)
    ours = model.score(X, y)
    model.weights_, model.edge_scores_ = TRUE_W, TRUE_T
    assert ours >= model.score(X, y) - 0.005
    assert model.predict_proba(X[:2]).shape == (2, 30, 2)


def test_hinge_learns_labelings_that_can_be_separated():
    X, _ = examples(20)
    y = (X[:, :, 0] > 0).astype(int)
    model = MRFClassifier(GRID, method="hinge", l2=1e-4, max_iter=100, step=1.0).fit(X, y)
    assert model.score(X, y) > 0.97


def test_hinge_is_its_definition_and_subgradient():
    model = random_grid(2, 3, 2, scale=0.5, shared=False)
    model = model.with_scores(model.scores.node, np.abs(model.scores.edge) * np.eye(2))
    gold = np.array([0, 1, 1, 0, 0, 1])
    ys = np.array(list(np.ndindex(*[2] * 6)))
    for cost in (0.0, 1.0, 2.5):
        wrong = cost * (ys != gold).sum(axis=1)
        goal = max(model.score(y) + c for y, c in zip(ys, wrong, strict=True)) - model.score(gold)
        for decoder in ("graph-cut", "exact"):
            value, slope = model.nll(gold, "hinge", cost=cost, decoder=decoder)
            assert value == pytest.approx(goal, abs=1e-10)
        moved = model.scores.node.copy()
        moved[0, 1] += 1e-6
        other = model.with_scores(moved, model.scores.edge).nll(gold, "hinge", cost=cost)[0]
        assert (other - value) / 1e-6 == pytest.approx(slope.node[0, 1], abs=1e-6)


def test_a_hinge_of_three_labels_names_a_remedy():
    model = fg.PairwiseMRF(np.zeros((3, 3)), np.eye(3), [(0, 1), (1, 2)])
    with pytest.raises(fg.NotSupportedError, match="give decoder='exact'"):
        model.nll([0, 1, 2], "hinge")
    assert model.nll([0, 1, 2], "hinge", decoder="exact")[0] == pytest.approx(4.0)
    with pytest.raises(fg.NotSupportedError, match="use 'exact', 'bp'"):
        MRFClassifier(model, method="hinge").fit(np.zeros((2, 3, 1)), [[0, 1, 2], [0, 0, 1]])


def test_unknown_labels():
    X, y = examples(60)
    hidden = y.copy()
    hidden[np.random.default_rng(1).random(y.shape) < 0.4] = -1
    model = MRFClassifier(GRID, method="exact", l2=1e-3).fit(X, hidden)
    contrast = model.weights_[:, 1] - model.weights_[:, 0]
    np.testing.assert_allclose(contrast, [1.6, -0.6], atol=0.35)
    right = (model.predict(X) == hidden)[hidden >= 0].mean()
    assert model.score(X, hidden) == pytest.approx(right, abs=1e-15)
    with pytest.raises(fg.InvalidInputError, match="no known label"):
        model.score(X, np.full_like(hidden, -1))
    for method in ("cd", "pseudolikelihood"):
        with pytest.raises(fg.InvalidInputError, match=r"unknown labels, .* use 'exact' or 'bp'$"):
            MRFClassifier(GRID, method=method).fit(X, hidden)
    with pytest.raises(fg.InvalidInputError, match="labels -1 and 1 alone"):
        MRFClassifier(GRID, method="exact").fit(X, 2 * y - 1)
    with pytest.warns(UserWarning, match=r"labels -1, 0 alone, .* has the label 1;"):
        MRFClassifier(GRID, method="exact").fit(X, y - 1)
    pair = fg.PairwiseMRF(np.zeros((2, 3)), np.zeros((3, 3)), [(0, 1)])
    negative, neutral, positive = -1, 0, 1
    moods = [[negative, neutral], [positive, positive]]
    with pytest.warns(UserWarning, match=r"-1, 0, 1 alone, .* has the label 2;"):
        MRFClassifier(pair, method="exact").fit(np.zeros((2, 2, 1)), moods)
    MRFClassifier(pair, method="exact").fit(np.zeros((2, 2, 1)), [[-1, 0], [1, 2]])


def test_larger_factors_of_the_graph_add_to_the_score():
    table = np.arange(8.0).reshape(2, 2, 2)
    graph = fg.PairwiseMRF.from_factors([2, 2, 2], [((0, 1), np.eye(2)), ((0, 1, 2), table)])
    X = np.random.default_rng(1).normal(size=(2, 3, 1))
    model = MRFClassifier(graph, method="exact").fit(X, [[0, 1, 0], [1, 1, 1]])
    own = model.models(X)[0]
    scores = X[0] @ model.weights_
    expected = scores[[0, 1, 2], [1, 0, 1]].sum() + model.edge_scores_[1, 0] + table[1, 0, 1]
    assert own.score([1, 0, 1]) == pytest.approx(expected, abs=1e-12)


def test_settings_and_shapes():
    model = MRFClassifier(GRID, l2=0.5)
    assert model.get_params()["l2"] == 0.5
    assert model.set_params(method="exact").method == "exact"
    X, y = examples(3)
    model.fit(X.reshape(3, 5, 6, 2), y.reshape(3, 5, 6))
    assert set(model.get_params()) == {"graph", "method", "l2", "max_iter", "step", "rng"}
    with pytest.raises(fg.InvalidInputError, match="give a label for each node"):
        model.fit(X, y[:2])
    with pytest.raises(fg.InvalidInputError, match="features of every node"):
        model.fit(X[:, :5], y)
    with pytest.raises(fg.InvalidInputError, match="has not been fitted"):
        MRFClassifier(GRID).predict(X)
    with pytest.raises(fg.InvalidInputError, match="method is 'guess'"):
        MRFClassifier(GRID, method="guess").fit(X, y)


def test_scikit_learn_clones_it():
    base = pytest.importorskip("sklearn.base")
    model = MRFClassifier(GRID, l2=0.25).fit(*examples(2))
    assert base.clone(model).get_params()["l2"] == 0.25


def test_features_with_labels_are_those_of_the_fit():
    X, y = examples(4)
    frames = [Frame(x, columns=["a", "b"]) for x in X]
    moved = [Frame(x[:, ::-1], columns=["b", "a"]) for x in X]
    plain = MRFClassifier(GRID).fit(X, y).predict_proba(X)
    for given, other in (
        (frames, moved),
        (Labelled(X, ["a", "b"]), Labelled(X[..., ::-1], ["b", "a"])),
    ):
        model = MRFClassifier(GRID).fit(given, y)
        np.testing.assert_array_equal(model.predict_proba(given), plain)
        np.testing.assert_array_equal(model.predict_proba(X), plain)
        with pytest.raises(fg.InvalidInputError, match="in this order"):
            model.predict(other)
    with pytest.raises(
        fg.InvalidInputError, match=r"X\[1\] has the columns .*give all in one order"
    ):
        MRFClassifier(GRID).fit([frames[0], moved[1], *frames[2:]], y)
    turned = Frame(X[1][::-1], index=range(29, -1, -1), columns=["a", "b"])
    with pytest.raises(fg.InvalidInputError, match=r"X\[1\] has the rows .*sort them"):
        MRFClassifier(GRID).fit([frames[0], turned, *frames[2:]], y)
