"""The estimator: conventions, warm starts, checkpoints, bad input, real data."""

import pathlib
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from scipy import sparse

import fstgrad as fg
from fstgrad.core.errors import InvalidInputError, MemoryLimitError
from fstgrad.grm.files import read_table
from fstgrad.grm.regression import NodeFit
from tests.helpers.counts import counts

sklearn_base = pytest.importorskip("sklearn.base")


def test_threads_sparse_input_and_frames_change_nothing():
    x = counts()
    plain = fg.GeneralizedRootModel(k=3, alpha=0.05).fit(x)
    for model in (
        fg.GeneralizedRootModel(k=3, alpha=0.05, n_jobs=2).fit(x),
        fg.GeneralizedRootModel(k=3, alpha=0.05).fit(sparse.csr_matrix(x)),
        fg.GeneralizedRootModel(k=3, alpha=0.05).fit(sparse.csr_array(x.astype(float))),
    ):
        for mine, other in zip(model.parameters_.flat, plain.parameters_.flat, strict=True):
            np.testing.assert_array_equal(mine, other)
    assert plain.score(x) == pytest.approx(plain.score(sparse.csr_matrix(x)), abs=1e-15)


def test_warm_start_needs_fewer_steps():
    x = counts(n=1000, p=8)
    model = fg.GeneralizedRootModel(k=3, alpha=0.04, warm_start=True).fit(x)
    cold = fg.GeneralizedRootModel(k=3, alpha=0.03).fit(x)
    warm = model.set_params(alpha=0.03).fit(x)
    steps = [sum(fit.steps for fit in m.node_fits_) for m in (warm, cold)]
    assert steps[0] < steps[1]
    assert warm.score(x) == pytest.approx(cold.score(x), abs=1e-6)


def test_warm_start_leaves_sets_that_are_no_candidates():
    x = counts(p=4)
    model = fg.GeneralizedRootModel(k=3, alpha=0.01, warm_start=True).fit(x)
    assert model.parameters_.flat.values.size > 1
    model.set_params(candidate_sets=[[0, 1]]).fit(x)
    assert [i.sets.tolist() for i in model.parameters_.interactions] == [[[0, 1]], []]
    alone = fg.GeneralizedRootModel(k=3, alpha=0.01, candidate_sets=[[0, 1]]).fit(x)
    assert model.score(x) == pytest.approx(alone.score(x), abs=1e-7)


def test_a_path_has_the_fits_of_its_alphas():
    x = counts()
    models = fg.GeneralizedRootModel(k=3, tol=1e-8).path(x, [0.02, 0.1, 0.05])
    assert [model.alpha for model in models] == [0.1, 0.05, 0.02]
    sizes = [model.parameters_.flat.values.size for model in models]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    for model in models:
        alone = fg.GeneralizedRootModel(k=3, alpha=model.alpha, tol=1e-8).fit(x)
        assert model.score(x) == pytest.approx(alone.score(x), abs=1e-7)


def test_a_stopped_fit_resumes_from_its_checkpoint(tmp_path, monkeypatch):
    x = counts()
    path = tmp_path / "fit.npz"
    settings = {"k": 3, "alpha": 0.05, "checkpoint": path}
    solved = []
    solve = fg.grm.regression.NodeRegression.fit

    def stop_after_three(self, start=None):
        if len(solved) == 3:
            raise KeyboardInterrupt
        solved.append(self.node)
        return solve(self, start)

    monkeypatch.setattr("fstgrad.grm.regression.NodeRegression.fit", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        fg.GeneralizedRootModel(**settings).fit(x)
    assert path.exists()
    for thread in threading.enumerate():  # an interrupted fit does not wait for its threads
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join()
    solved.clear()
    monkeypatch.setattr(
        "fstgrad.grm.regression.NodeRegression.fit",
        lambda self, start=None: solved.append(self.node) or solve(self, start),
    )
    resumed = fg.GeneralizedRootModel(**settings).fit(x)
    assert solved == [3, 4]
    plain = fg.GeneralizedRootModel(k=3, alpha=0.05).fit(x)
    np.testing.assert_array_equal(resumed.parameters_.flat.values, plain.parameters_.flat.values)
    with pytest.raises(InvalidInputError, match="other data or settings"):
        fg.GeneralizedRootModel(**{**settings, "alpha": 0.06}).fit(x)
    path.write_text("not a checkpoint")
    with pytest.raises(InvalidInputError, match="not a checkpoint"):
        fg.GeneralizedRootModel(**settings).fit(x)


def test_save_pickle_and_clone(tmp_path):
    x = sparse.csr_matrix(counts(p=4))
    model = fg.GeneralizedRootModel(k=2, alpha=0.05, candidate_sets=[["a", "b", "d"]])
    model.fit(x, feature_names=["a", "b", "c", "d"])
    assert {s.names for s in model.top_interactions(2)} <= {("a", "b"), ("a", "d"), ("b", "d")}
    model.save(tmp_path / "model.npz")
    for copy in (fg.GeneralizedRootModel.load(tmp_path / "model.npz"),
                 pickle.loads(pickle.dumps(model))):  # fmt: skip
        assert copy.score(x) == model.score(x)
        assert copy.names_ == ["a", "b", "c", "d"]
        assert copy.get_params() == model.get_params()
        np.testing.assert_array_equal(copy.kkt_, model.kkt_)
    assert sklearn_base.clone(model).get_params() == model.get_params()
    assert not hasattr(sklearn_base.clone(model), "kkt_")
    (tmp_path / "other.npz").write_bytes(b"text")
    with pytest.raises(InvalidInputError, match="not a model"):
        fg.GeneralizedRootModel.load(tmp_path / "other.npz")


def test_candidate_sets_in_a_set_are_saved_in_order(tmp_path):
    model = fg.GeneralizedRootModel(k=2, candidate_sets={(1, 3), (0, 2), (0, 1)}).fit(counts(p=4))
    model.save(tmp_path / "model.npz")
    loaded = fg.GeneralizedRootModel.load(tmp_path / "model.npz")
    assert loaded.candidate_sets == [[0, 1], [0, 2], [1, 3]]


def test_cross_validation_picks_an_alpha():
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(
        fg.GeneralizedRootModel(k=2, tol=1e-4), {"alpha": [0.01, 0.05, 10.0]}, cv=3
    ).fit(counts())
    assert search.best_params_["alpha"] < 10.0


def test_constant_columns_are_kept_alone():
    x = counts(p=4)
    x[:, 1], x[:, 2] = 0, 3
    with pytest.warns(UserWarning, match="2 column.*the first is 1"):
        model = fg.GeneralizedRootModel(k=3, alpha=0.005).fit(x)
    intercepts = model.parameters_.intercepts[:, 0]
    assert intercepts[1] == -100.0
    assert intercepts[2] == pytest.approx(np.log(3))
    assert {tuple(s) for i in model.parameters_.interactions for s in i.sets.tolist()} <= {(0, 3)}
    assert np.isfinite(model.score(x))


@pytest.mark.parametrize(
    "settings, change, message",
    [
        ({"k": 0}, None, "k is 0"),
        ({"k": 6}, None, "k is 6 and X has 5"),
        ({"alpha": 0.0}, None, "alpha is 0.0"),
        ({"alpha": -1.0}, None, "alpha is -1.0"),
        ({"base": "normal"}, None, "base is 'normal'"),
        ({"interactions": "some"}, None, "interactions"),
        ({"candidate_sets": "stages"}, None, "candidate_sets"),
        ({"candidate_sets": [[0]]}, None, "two or more"),
        ({"candidate_sets": [["a", 0]]}, None, "not a column"),
        ({"candidate_sets": [[0, 9]]}, None, "from 0 to 4"),
        ({"n_jobs": 0}, None, "n_jobs is 0"),
        ({}, -1.0, "-1.0"),
        ({}, 0.5, "0.5"),
        ({}, np.nan, "NaN"),
        ({"base": "exponential"}, -1.0, "-1.0"),
    ],
)
def test_bad_input(settings, change, message):
    x = counts().astype(float)
    if change is not None:
        x[3, 2] = change
    with pytest.raises(InvalidInputError, match=message):
        fg.GeneralizedRootModel(**{"k": 2, **settings}).fit(x)


@pytest.mark.parametrize("kind", ["U", "S", "O", "M8[D]", "m8[s]", "c16"])
def test_texts_and_times_are_no_counts(kind):
    """NumPy reads the text 1_0 as 10, and scikit-learn a date as days since 1970."""
    x = counts().astype(kind)
    if kind == "O":
        x[0, 0] = "1_0"
    with pytest.raises(InvalidInputError, match=r"X is not a table .* (it has texts|Complex data)"):
        fg.GeneralizedRootModel(k=2).fit(x)


def test_without_scikit_learn_only_the_estimator_is_missing():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import fstgrad as fg\nfrom fstgrad.grm import families\n"
        "assert families.Poisson().log_partition([0.0]).value == 1.0\n"
        "try:\n    fg.GeneralizedRootModel\n"
        "except fg.MissingDependencyError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'fstgrad[grm]'" in done.stdout


def test_memory_is_predicted():
    with pytest.raises(MemoryLimitError, match="max_memory"):
        fg.GeneralizedRootModel(k=3, max_memory=1e3).fit(counts())


def test_a_stop_before_convergence_is_said():
    x = counts()
    x[:, 0] = 3  # a node alone, solved at once
    with pytest.warns(match="constant"), pytest.warns(match="max_iter") as said:
        model = fg.GeneralizedRootModel(k=3, alpha=0.01, max_iter=1).fit(x)
    assert model.kkt_[0] < 1e-6 < model.kkt_.max()
    worst = int(model.kkt_.argmax())
    assert any(f"node {worst} stopped at" in str(warning.message) for warning in said)
    assert isinstance(model.node_fits_[0], NodeFit)


def test_the_progress_bar_ends_at_the_last_node(capsys):
    fg.GeneralizedRootModel(k=2, alpha=0.05, verbose=True).fit(counts())
    assert "5/5" in capsys.readouterr().out


def test_classic3_gives_the_published_pairs():
    x, words, *_ = read_table(pathlib.Path(__file__).parents[2] / "data" / "classic3.mat")
    used = [words.index(w) for w in ("boundary", "layer", "heat", "transfer", "bone", "marrow")]
    model = fg.GeneralizedRootModel(k=3, alpha=0.01, tol=1e-4).fit(x[:, used])
    ranked = model.top_interactions(2, 3, sign="positive")
    assert {s.members for s in ranked} == {(0, 1), (2, 3), (4, 5)}


def test_a_warm_start_of_another_family_is_a_cold_one():
    x = np.random.default_rng(0).poisson(2.0, (60, 3))
    warm = fg.GeneralizedRootModel(k=2, alpha=0.05, warm_start=True).fit(x)
    warm.set_params(base="exponential").fit(x + 1.0)
    cold = fg.GeneralizedRootModel(k=2, alpha=0.05, base="exponential").fit(x + 1.0)
    np.testing.assert_array_equal(warm.parameters_.intercepts, cold.parameters_.intercepts)
    for own, other in zip(warm.parameters_.flat, cold.parameters_.flat, strict=True):
        np.testing.assert_array_equal(own, other)
