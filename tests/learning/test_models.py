"""Sequence models: templates, lengths, training, files."""

import json

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.core.errors import InvalidInputError
from fstgrad.learning.measures import edit_distance
from fstgrad.learning.outcomes import Sums
from fstgrad.learning.outputs import LengthModel
from fstgrad.learning.sequence import SequenceModel
from fstgrad.learning.template_features import TemplateFeatures
from fstgrad.learning.templates import Window
from fstgrad.learning.trainer import OptimizerSteps, State
from tests.helpers.training import SMALL, Killed, X, Y

ABC = fg.Alphabet("xyz")


def by_definition(features, w, x, length):
    """The table from the formula: an indicator for every (name, symbol) and every q-gram."""
    n, q = len(features.alphabet), features.order
    table = np.zeros((length, *(n + 1,) * (q - 1), n))
    rows = w[: len(features.names) * n].reshape(-1, n)
    for index in np.ndindex(*table.shape):
        for name in features.template(x, index[0], length):
            if name in features.names:
                table[index] += rows[features.names.index(name), index[-1]]
        start = rows.size
        for r in range(2, q + 1):
            shape = (n + 1,) * (r - 1) + (n,)
            block = w[start : start + int(np.prod(shape))].reshape(shape)
            table[index] += block[index[len(index) - r :]]
            start += block.size
    return table


@pytest.mark.parametrize("order", [1, 2, 3])
def test_scores_follow_the_definition(order):
    rng = np.random.default_rng(order)
    features = TemplateFeatures.from_data(ABC, order, Window(1, 2), [("abba", 3), ("b", 2)])
    w = rng.normal(size=features.shape)
    for x, length in [("abba", 3), ("ba", 4), ("c", 2)]:
        expected = by_definition(features, w, x, length)
        np.testing.assert_allclose(features.scores(w, x, length), expected, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_adjoint_is_the_adjoint(order):
    rng = np.random.default_rng(order)
    features = TemplateFeatures.from_data(ABC, order, Window(2, 2), [("abba", 3)])
    w, shape = rng.normal(size=features.shape), (5, *(4,) * (order - 1), 3)
    table, out = rng.normal(size=shape), rng.normal(size=features.shape)
    before = out.copy()
    features.accumulate(table, "bab", out)
    assert np.vdot(table, features.scores(w, "bab", 5)) == pytest.approx(
        np.vdot(out - before, w), rel=1e-12
    )
    np.testing.assert_allclose(features.gradient(table, "bab"), out - before, atol=1e-13)


def test_kernels_equal_numpy():
    from fstgrad.learning.kernels.templates import gather, scatter

    rng = np.random.default_rng(0)
    starts, ids, copies = np.array([0, 3, 3, 5]), np.array([1, 1, 4, 0, 1]), np.array([1, -1, -1])
    first, symbol = np.array([0, 2, 4, 4, 4, 6]), np.array([0, 1, 1, 2, 0, 2])  # 2: the copy
    encoded = starts, ids, copies, first, symbol
    weights, out = rng.normal(size=6), np.empty((3, 2))
    gather(*encoded, weights, out)
    own = 2 * weights[2] + 2 * weights[3] + weights[5]  # the copy is symbol 1 at position 0
    np.testing.assert_allclose(out[0], [weights[4], own], rtol=1e-15)
    assert (out[1] == 0).all()
    np.testing.assert_allclose(out[2], [weights[0], weights[1] + weights[2]], rtol=1e-15)
    table, added = rng.normal(size=(3, 2)), np.zeros(6)
    scatter(*encoded, table, added)
    assert np.vdot(added, weights) == pytest.approx(np.vdot(table, out), rel=1e-14)


def test_the_centre_is_the_position_of_aligned_symbols():
    for length in range(1, 9):
        x = [str(i) for i in range(length)]
        for s in range(length):
            assert list(Window(0, 1)(x, s, length)) == ["bias", f"0 {s}"]


def test_lengths_of_outputs():
    lengths = LengthModel.fit([(3, 3), (5, 5)])
    assert [lengths(m) for m in (0, 3, 4, 5, 9)] == [1, 3, 4, 5, 9]
    lengths = LengthModel.fit([(2, 1), (2, 3), (2, 6)])
    assert (lengths(2), lengths(4)) == (3, 6)  # the median ratio is 3 / 2


@pytest.mark.parametrize(
    "a, b, expected", [("", "", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)]
)
def test_edit_distance(a, b, expected):
    assert edit_distance(a, b) == edit_distance(b, a) == expected


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "lbfgs"])
@pytest.mark.parametrize("objective", ["softmax-margin", "risk", "crf"])
def test_every_objective_learns_with_every_optimizer(optimizer, objective):
    rates = {"adam": 0.3, "sgd": 3.0, "lbfgs": 1.0}
    settings = {**SMALL, "epochs": 20, "learning_rate": rates[optimizer], "l2": 1e-6}
    model = SequenceModel(**settings, optimizer=optimizer, objective=objective).fit(X, Y)
    assert model.score(X, Y) == 1.0
    assert model.score(X, Y, "neg_loss") == model.score(X, Y, "neg_error_rate") == 0.0
    assert model.history_[-1].objective < model.history_[0].objective


def test_the_gradient_of_training_is_that_of_finite_differences():
    """One step of SGD at rate 1 is minus the gradient of the mean plus the penalty."""
    one = SequenceModel(**{**SMALL, "epochs": 1, "batch_size": 999}, optimizer="sgd", l2=0.5)
    one.set_params(learning_rate=1.0).fit(X[:5], Y[:5])
    two = SequenceModel(**{**SMALL, "epochs": 2, "batch_size": 999}, optimizer="sgd", l2=0.5)
    two.set_params(learning_rate=1.0).fit(X[:5], Y[:5])
    objective = fg.PairObjective(one.features_, one.loss_)

    def value(w):
        return objective.mean(w, list(zip(X[:5], Y[:5], strict=True)))[0] + 0.25 * w @ w

    step, h = one.coef_ - two.coef_, 1e-5
    for i in range(0, step.size, 5):
        change = h * np.eye(step.size)[i]
        slope = (value(one.coef_ + change) - value(one.coef_ - change)) / (2 * h)
        assert step[i] == pytest.approx(slope / 2, abs=1e-8)  # the rate of step 2 of 2 is half


def test_processes_change_nothing():
    results = [SequenceModel(**SMALL, n_jobs=jobs).fit(X, Y).coef_.tobytes() for jobs in (1, 2)]
    assert results[0] == results[1]


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "lbfgs"])
def test_a_killed_run_goes_on_to_the_same_weights(optimizer, tmp_path):
    settings = {**SMALL, "optimizer": optimizer, "epochs": 23, "l2": 0.01}
    whole = SequenceModel(**settings).fit(X, Y, (X[:3], Y[:3]))

    def kill(epoch):
        if epoch.epoch == 12:
            raise Killed

    path = str(tmp_path / "state")
    with pytest.raises(Killed):
        SequenceModel(**settings, callbacks=[kill], checkpoint=path).fit(X, Y, (X[:3], Y[:3]))
    model = SequenceModel(**settings, checkpoint=path)
    model.fit(X, Y, (X[:3], Y[:3]), resume=True)
    assert model.coef_.tobytes() == whole.coef_.tobytes()
    assert [e.objective for e in model.history_] == [e.objective for e in whole.history_]


def test_a_checkpoint_of_other_pairs_is_refused(tmp_path):
    path = str(tmp_path / "state")
    SequenceModel(**SMALL, checkpoint=path).fit(X, Y)
    with pytest.raises(InvalidInputError, match="other pairs or settings"):
        SequenceModel(**SMALL, checkpoint=path).fit(X[1:], Y[1:], resume=True)
    (tmp_path / "state").write_bytes(b"PK")
    with pytest.raises(InvalidInputError, match="not a checkpoint"):
        State.load(tmp_path / "state", "", 1)


def test_early_stopping_keeps_the_best_weights():
    model = SequenceModel(**{**SMALL, "epochs": 50}, patience=2, learning_rate=0.3)
    model.fit(X, Y, (X[:4], Y[:4]))
    assert len(model.history_) < 50
    best = min(e.validation for e in model.history_)
    assert -model.score(X[:4], Y[:4], "neg_error_rate") == best


def test_a_warm_start_from_aligned_pairs_needs_their_alignment():
    model = SequenceModel(**SMALL, objective="crf", alignment="auto", warm_start=True)
    model.fit(["ab", "ba", "a"], ["xyy", "yyx", "x"])
    with pytest.raises(InvalidInputError, match="give the same pairs"):
        model.fit(["ab", "ba"], ["xy", "yx"])


def test_a_warm_start_goes_on_from_the_last_weights(tmp_path):
    model = SequenceModel(**SMALL, objective="crf").fit(X, Y)
    before, names = model.coef_.copy(), model.features_.names
    model.set_params(objective="risk", warm_start=True, optimizer="sgd", epochs=1)
    model.set_params(learning_rate=0.05, l2=1e-4)
    model.fit(X[:8], Y[:8])
    assert model.features_.names == names
    objective = fg.PairObjective(model.features_, model.loss_, kind="risk")
    _, gradient = objective.mean(before, list(zip(X[:8], Y[:8], strict=True)))
    step = model.learning_rate * (gradient + model.l2 * before)
    np.testing.assert_allclose(model.coef_, before - step, atol=1e-12)
    model.save(tmp_path / "model")
    loaded = SequenceModel.load(tmp_path / "model").fit(X[:8], Y[:8])
    assert loaded.coef_.tobytes() == model.fit(X[:8], Y[:8]).coef_.tobytes()
    with pytest.raises(InvalidInputError, match="keep the order of the last fit"):
        model.set_params(order=3).fit(X, Y)


def test_a_checkpoint_of_another_start_is_refused(tmp_path):
    path = str(tmp_path / "state")
    model = SequenceModel(**SMALL, checkpoint=path).fit(X, Y)
    model.fit(X, Y, resume=True)
    with pytest.raises(InvalidInputError, match="other pairs or settings"):
        model.set_params(warm_start=True).fit(X, Y, resume=True)


def test_a_callback_ends_the_training():
    model = SequenceModel(**SMALL, callbacks=[lambda epoch: epoch.epoch == 2]).fit(X, Y)
    assert len(model.history_) == 2


def test_saved_models_are_the_same(tmp_path):
    model = SequenceModel(**SMALL).fit(X, Y)
    model.save(tmp_path / "model")
    loaded = SequenceModel.load(tmp_path / "model")
    assert loaded.predict_nbest(X[:3], 4) == model.predict_nbest(X[:3], 4)
    assert loaded.evaluate(X, Y) == model.evaluate(X, Y)
    assert loaded.history_ == model.history_
    edited = dict(np.load(tmp_path / "model"))
    text = json.loads(str(edited["text"]))
    edited["text"] = np.array(json.dumps(text | {"symbols": [*text["symbols"][:-1], 1]}))
    with (tmp_path / "edited").open("wb") as file:
        np.savez(file, **edited)
    with pytest.raises(InvalidInputError, match="symbols has an item that is not text"):
        SequenceModel.load(tmp_path / "edited")
    (tmp_path / "none").write_bytes(b"PK")
    with pytest.raises(InvalidInputError, match="not a model"):
        SequenceModel.load(tmp_path / "none")


def test_own_templates(tmp_path):
    def letter(x, s, length):
        yield x[min(s, len(x) - 1)]

    words = [list(y) for y in Y]
    settings = {**SMALL, "epochs": 10, "learning_rate": 0.3}
    model = SequenceModel(**settings, features=letter).fit(X, words)
    assert model.features_.names == ("a", "b", "c")
    assert model.predict(["abcabc"]) == [list("xyzxyz")]
    model.save(tmp_path / "model")
    with pytest.raises(InvalidInputError, match="custom features"):
        SequenceModel.load(tmp_path / "model")
    assert SequenceModel.load(tmp_path / "model", features=letter).predict(["ab"]) == [["x", "y"]]


def test_nbest_are_probabilities():
    model = SequenceModel(**SMALL).fit(X, Y)
    best = model.predict_nbest(["ab"], 100)[0]
    assert len(best) == 3**2
    assert sum(np.exp(p) for _, p in best) == pytest.approx(1.0, abs=1e-12)
    assert best[0][0] == model.predict(["ab"])[0]


def test_scikit_learn_clones():
    base = pytest.importorskip("sklearn.base")
    model = base.clone(SequenceModel(**SMALL, l2=0.5))
    assert model.get_params() == SequenceModel(**SMALL, l2=0.5).get_params()


@pytest.mark.parametrize(
    "settings, x, y, message",
    [
        ({}, ["a"], [], "1 inputs and Y 0"),
        ({}, [], [], "X is empty"),
        ({}, ["a"], [""], r"Y\[0\] is empty"),
        ({"features": "aligned"}, ["ab"], ["a"], "pair 0 has 2 input and 1 output"),
        ({"features": "other"}, ["ab"], ["a"], "features is 'other'"),
        ({"loss": "other"}, ["ab"], ["a"], "loss is 'other'"),
        ({"optimizer": "other"}, ["ab"], ["a"], "optimizer is 'other'"),
        ({"min_count": 9}, ["ab"], ["a"], "min_count=9"),
        ({"l2": -1.0}, ["ab"], ["a"], "l2 is -1"),
    ],
)
def test_wrong_input_is_named(settings, x, y, message):
    with pytest.raises(InvalidInputError, match=message):
        SequenceModel(**settings).fit(x, y)


def test_prediction_needs_training():
    with pytest.raises(InvalidInputError, match="not trained"):
        SequenceModel().predict(["a"])
    with pytest.raises(InvalidInputError, match="no setting 'other'"):
        SequenceModel().set_params(other=1)


def test_a_training_that_diverges_is_one_error():
    pairs = (["ab", "ba", "aa"], ["ba", "ab", "bb"])
    for settings in (
        {"learning_rate": 1e308},
        {"l2": 1e308},
        {"learning_rate": 1e300, "batch_size": 1},
        {"learning_rate": 1e300, "held_out": 0.4},
    ):
        model = fg.SequenceModel(loss=None, objective="crf", epochs=3, **settings)
        with pytest.raises(fg.InvalidInputError, match="diverges"):
            model.fit(*pairs)


def test_spans_beyond_all_numbers_are_refused_at_once():
    with pytest.raises(fg.InvalidInputError, match="smaller span"):
        fg.SequenceModel(span=2**31 - 1, epochs=1).fit(["ab"], ["ba"])


def test_steps_of_adam_equal_the_algorithm():
    """Kingma and Ba (2015), algorithm 1, on gradient + l2 w; a weight without gradient too."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=4)
    steps = OptimizerSteps("adam", 0.1, 0.5, 4, w.copy(), np.zeros(4), np.zeros(4), 0)
    first, second = np.zeros(4), np.zeros(4)
    for t in (1, 2, 3):
        gradient = rng.normal(size=3)
        steps.take(Sums(2.0 * gradient, done=2, support=np.array([0, 2, 3])))
        g = np.array([gradient[0], 0.0, *gradient[1:]]) + 0.5 * w
        first = 0.9 * first + 0.1 * g
        second = 0.999 * second + 0.001 * g**2
        mean, square = first / (1 - 0.9**t), second / (1 - 0.999**t)
        w = w - 0.1 * (1 - (t - 1) / 4) * mean / (np.sqrt(square) + 1e-8)
        np.testing.assert_allclose(steps.w, w, rtol=1e-12)


def test_steps_of_sgd_equal_steps_on_all_weights():
    """The penalties of the steps that do not visit a weight are applied later, all of them."""
    rng = np.random.default_rng(1)
    w = rng.normal(size=5)
    steps = OptimizerSteps("sgd", 0.3, 0.7, 8, w.copy(), np.zeros(5), np.zeros(5), 0)
    for t, support in enumerate([[0, 2], [1], [2, 0], [2], [0, 1, 2, 3], [3]]):
        gradient = rng.normal(size=len(support))
        steps.take(Sums(3.0 * gradient, done=3, support=np.array(support)))
        whole = np.zeros(5)
        whole[support] = gradient
        w = w - 0.3 * (1 - t / 8) * (whole + 0.7 * w)
        np.testing.assert_allclose(steps.w[support], w[support], rtol=1e-12)
    steps.catch_up()
    np.testing.assert_allclose(steps.w, w, rtol=1e-12)


@pytest.mark.parametrize(
    "kind, options",
    [(list, {}), (np.array, {"alignment": "em"}), (np.uint8, {"held_out": 0.2})],
)
def test_integer_labels_are_ids(kind, options, tmp_path):
    """The same model with the symbols of the ids, whose order is that of the ids, 10 after 9."""
    rng = np.random.default_rng(0)
    labels = [rng.choice([0, 2, 9, 10], size=size).tolist() for size in (3, 4, 3, 5, 4) * 12]
    X = [[f"w{label}" for label in y] for y in labels]
    settings = {"features": "aligned", "epochs": 2, **options}
    abc = fg.Alphabet([str(i) for i in range(11)])
    named = fg.SequenceModel(alphabet=abc, **settings).fit(X, [[str(i) for i in y] for y in labels])
    model = fg.SequenceModel(**settings).fit(X, [kind(y) for y in labels])
    np.testing.assert_array_equal(model.coef_, named.coef_)
    expected = [[int(symbol) for symbol in y] for y in named.predict(X)]
    assert model.predict(X) == expected
    assert all(type(label) is int for y in model.predict(X) for label in y)
    assert model.predict_nbest(X[:1], 2)[0][0][0] == expected[0]
    assert model.evaluate(X, [kind(y) for y in labels]) == named.evaluate(
        X, [[str(i) for i in y] for y in labels]
    )
    model.save(tmp_path / "model.npz")
    assert fg.SequenceModel.load(tmp_path / "model.npz").predict(X) == expected


def test_ids_of_a_given_alphabet_and_bad_labels():
    X, abc = [["x", "y"], ["y", "x"]] * 3, fg.Alphabet(["N", "V"])
    model = fg.SequenceModel(alphabet=abc, features="aligned", epochs=5)
    assert model.fit(X, [[0, 1], [1, 0]] * 3).predict(X[:2]) == [[0, 1], [1, 0]]
    assert model.fit(X, np.array([[0, 1], [1, 0]] * 3)).alphabet_ == abc
    for bad, said in (
        ([[0, -1]] * 6, "Y has the label -1; .* ids from 0"),
        ([[0, 10**9]] * 6, "Y has the label 1000000000"),
        ([[0, 1.5]] * 6, "give a str or a sequence of symbols"),
        ([[True, False]] * 6, "give a str or a sequence of symbols"),
        ([0, 1] * 3, "is 0; give a sequence"),
    ):
        with pytest.raises(fg.InvalidInputError, match=said):
            fg.SequenceModel(features="aligned").fit(X, bad)
    with pytest.raises(fg.AlphabetError, match=r"Y\[1\]\[0\] is 2; ids of this alphabet"):
        model.fit(X, [[0, 1], [2, 0]] * 3)


def test_losses_have_the_names_of_the_command_line():
    fitted = SequenceModel(**{**SMALL, "loss": "cer"}).fit(X, Y)
    assert isinstance(fitted.loss_, fg.CharacterErrorRate)
    with pytest.raises(InvalidInputError, match="loss is 'alignment'; choose one of edit, osa"):
        SequenceModel(**{**SMALL, "loss": "alignment"}).fit(X, Y)  # which needs a matrix
