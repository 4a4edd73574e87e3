"""The estimator: optimality, an independent solver, recovery, conventions, bad input."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import fstgrad as fg
from fstgrad.errors import InvalidInputError, MemoryLimitError
from fstgrad.grm import design, fitting
from fstgrad.grm.bases import Poisson
from fstgrad.grm.files import read_table
from fstgrad.grm.kernels import regression as kernels
from fstgrad.grm.parameters import Interactions, Parameters
from fstgrad.grm.regression import NodeFit
from fstgrad.grm.sampling import gibbs
from tests.oracles import grm as oracle

sklearn_base = pytest.importorskip("sklearn.base")


def counts(n=300, p=5, seed=0):
    """Counts with a shared rate, so that sets matter."""
    rng = np.random.default_rng(seed)
    shared = rng.gamma(1.0, size=(n, 1))
    return rng.poisson(0.3 + shared * np.linspace(0.3, 1.0, p))


def coefficients(fit, model, x):
    """{(root, set without node): coefficient} of one node regression on all sets."""
    shared = design.build(
        {j: sparse.csr_matrix(x ** (1 / j)) for j in range(1, model.k + 1)},
        design.terms_of(model.k, model.interactions), {}, 1e9,
    )  # fmt: skip
    found = {}
    for term, key, value in zip(fit.term, fit.key, fit.values, strict=True):
        block = shared.blocks[term]
        members = shared.members(block, np.array([key]))[0]
        found[block.term.root, tuple(members.tolist())] = float(value)
    return found


@pytest.mark.parametrize("base", ["poisson", "exponential", "gaussian"])
def test_k_1_is_the_closed_form(base):
    rng = np.random.default_rng(0)
    if base == "poisson":
        x = counts()
        expected = np.log(x.mean(axis=0))
    elif base == "exponential":
        x = rng.exponential(2.0, (300, 5))
        expected = -1 / x.mean(axis=0)
    else:
        x = rng.normal(size=(300, 5))
        expected = -0.5 / (x**2).mean(axis=0)
    model = fg.GeneralizedRootModel(k=1, base=base).fit(x)
    np.testing.assert_allclose(model.parameters_.intercepts[:, 0], expected, rtol=1e-6)
    assert model.kkt_.max() <= 1e-6


@pytest.mark.parametrize("k", [2, 3])
def test_agrees_with_an_independent_solver(k):
    x = counts(p=4)
    alpha = 0.03
    model = fg.GeneralizedRootModel(k=k, alpha=alpha, tol=1e-8).fit(x)
    for node in range(4):
        fit = model.node_fits_[node]
        intercept, expected, objective = oracle.poisson_node(x, node, k, alpha)
        assert fit.objective == pytest.approx(objective, abs=1e-9)
        assert fit.intercepts[0] == pytest.approx(intercept, abs=1e-5)
        mine = coefficients(fit, model, x)
        for members, value in expected.items():
            assert mine.get(members, 0.0) == pytest.approx(value, abs=1e-5)
        assert any(value != 0 for value in expected.values())


@pytest.mark.parametrize("interactions", ["strongest", "all"])
def test_optimality_conditions_by_hand(interactions):
    x = counts()
    alpha = 0.02
    model = fg.GeneralizedRootModel(k=3, alpha=alpha, interactions=interactions).fit(x)
    assert model.kkt_.max() <= 1e-6
    roots = [1, 2, 3] if interactions == "all" else [1]
    t = np.arange(60.0)[:, None] ** (1 / np.arange(1, 4))
    for node in range(5):
        fit = model.node_fits_[node]
        found = oracle.columns(x, node, 3, every=interactions == "all")
        mine = coefficients(fit, model, x)
        for root, value in zip(roots, fit.intercepts, strict=True):
            mine[root, ()] = float(value)
            found[root, ()] = np.ones(len(x))
        eta = np.zeros((len(x), 3))
        for (root, members), value in mine.items():
            eta[:, root - 1] += value * found[root, members]
        height = eta @ t.T + Poisson().log_base(np.arange(60.0))
        p = np.exp(height - np.logaddexp.reduce(height, axis=1)[:, None])
        residual = p @ t - x[:, [node]] ** (1 / np.arange(1, 4))
        for (root, members), column in found.items():
            slope = (column * residual[:, root - 1]).mean()
            value = mine.get((root, members), 0.0)
            weight = 0.0 if root == 1 else alpha
            violation = abs(slope + weight * np.sign(value)) if value else abs(slope) - weight
            assert violation <= 1e-6 + 1e-12


def test_gaussian_pairs_are_the_gaussian_graphical_model():
    rng = np.random.default_rng(1)
    precision = np.array([[2.0, 0.6, 0.0], [0.6, 1.5, -0.4], [0.0, -0.4, 1.0]])
    x = rng.multivariate_normal(np.zeros(3), np.linalg.inv(precision), size=4000)
    model = fg.GeneralizedRootModel(k=2, base="gaussian", alpha=1e-7, tol=1e-8).fit(x)
    # with no penalty a node's conditional is the least-squares regression on the others:
    # eta_1 = -1 / (2 s^2), theta = slope / s^2
    for node in range(3):
        others = [s for s in range(3) if s != node]
        slope, residual, *_ = np.linalg.lstsq(x[:, others], x[:, node], rcond=None)
        variance = residual[0] / len(x)
        fit = model.node_fits_[node]
        assert fit.intercepts[0] == pytest.approx(-0.5 / variance, rel=1e-4)
        np.testing.assert_allclose(fit.values, slope / variance, rtol=1e-3, atol=1e-4)
    pairs = model.parameters_.interactions[0]
    found = -2 * np.diag(model.parameters_.intercepts[:, 0])
    found[tuple(pairs.sets.T)] = -pairs.values
    np.testing.assert_allclose(found, np.triu(precision), atol=0.1)


@pytest.mark.parametrize("base", ["exponential", "gaussian"])
def test_numbers_reach_the_conditions(base):
    rng = np.random.default_rng(2)
    x = rng.exponential(1.0, (150, 3)) + 0.5 * rng.exponential(1.0, (150, 1))
    if base == "gaussian":
        x = rng.normal(size=(150, 3)) + rng.normal(size=(150, 1))
    independent = fg.GeneralizedRootModel(k=1, base=base).fit(x)
    for k in (2, 3):
        model = fg.GeneralizedRootModel(k=k, base=base, alpha=0.05).fit(x)
        assert model.kkt_.max() <= 1e-6
        assert model.parameters_.flat[3].size
        assert model.score(x) > independent.score(x)


@pytest.mark.parametrize("interactions", ["strongest", "all"])
def test_working_sets_give_the_fit_on_all_columns(interactions):
    x = counts()
    fits = [
        fg.GeneralizedRootModel(
            k=3, alpha=0.03, interactions=interactions, screening=screening
        ).fit(x)
        for screening in ("kkt", "none")
    ]
    for one, other in zip(fits[0].node_fits_, fits[1].node_fits_, strict=True):
        assert one.objective == pytest.approx(other.objective, abs=1e-8)
        assert one.kkt <= 1e-6


TRUE_PAIRS = [(0, 1), (1, 2), (3, 4), (5, 6)]
TRUE_TRIPLES = [(0, 3, 5), (2, 7, 8), (4, 8, 9)]


def sampled_model(n, seed):
    """Draws of a known model with p = 10: four pairs and three triples."""
    parameters = Parameters(
        "poisson",
        np.column_stack([np.full(10, 0.3), np.zeros((10, 2))]),
        (
            Interactions(design.Term(2, 2), np.array(TRUE_PAIRS), np.array([0.8, -0.8, 0.7, -0.7])),
            Interactions(design.Term(3, 3), np.array(TRUE_TRIPLES), np.array([0.7, -0.9, 0.7])),
        ),
    )
    return gibbs(parameters, n, seed, burn_in=100, thin=10, chains=100).values


def support_f1(n):
    model = fg.GeneralizedRootModel(
        k=3, alpha=1.3 * np.sqrt(np.log(10) / n), tol=1e-4, symmetrize="min"
    ).fit(sampled_model(n, seed=4))
    found = {tuple(s) for i in model.parameters_.interactions for s in i.sets.tolist()}
    true = set(TRUE_PAIRS) | set(TRUE_TRIPLES)
    return 2 * len(found & true) / (len(found) + len(true))


def test_a_sampled_model_is_recovered_better_with_more_data():
    scores = [support_f1(n) for n in (200, 1000, 5000)]
    assert scores[0] < scores[1] <= scores[2]
    assert scores[2] >= 0.9


def test_stages_keep_to_triangles():
    x = counts(n=500, p=6, seed=3)
    model = fg.GeneralizedRootModel(k=3, alpha=0.05, candidate_sets="stagewise").fit(x)
    pairs = fg.GeneralizedRootModel(k=2, alpha=0.05, symmetrize="max").fit(x)
    graph = {tuple(s) for s in pairs.parameters_.interactions[0].sets.tolist()}
    assert model.kkt_.max() <= 1e-6
    for a, b, c in model.parameters_.interactions[1].sets.tolist():
        assert {(a, b), (a, c), (b, c)} <= graph


def test_cliques_are_triangles():
    pairs = np.array([(0, 1), (0, 2), (1, 2), (2, 3), (1, 3), (3, 4)])
    np.testing.assert_array_equal(fitting.cliques(pairs, 5), [(0, 1, 2), (1, 2, 3)])


def test_candidate_sets_bound_the_model():
    x = counts(p=6)
    sets = [[0, 1, 2], [4, 5]]
    model = fg.GeneralizedRootModel(k=3, alpha=0.005, candidate_sets=sets).fit(x)
    assert model.n_candidates_ == 4 + 1  # pairs 01 02 12 45 and the triple 012
    found = {tuple(s) for i in model.parameters_.interactions for s in i.sets.tolist()}
    assert found <= {(0, 1), (0, 2), (1, 2), (4, 5), (0, 1, 2)}
    assert (0, 1) in found
    assert model.kkt_.max() <= 1e-6


def test_design_columns_are_the_products():
    x = counts(n=40, p=6)
    statistics = {j: sparse.csr_matrix(x ** (1 / j)) for j in (1, 2, 3, 4)}
    shared = design.build(statistics, design.terms_of(4, "strongest"), {}, 1e9)
    for block in shared.blocks:
        size = block.term.size
        dense = sparse.csc_matrix(
            (block.values, block.rows, block.indptr), (40, len(block.members))
        ).toarray()
        assert len({tuple(m) for m in block.members.tolist()}) == len(block.members)
        for column, members in zip(dense.T, block.members, strict=True):
            expected = np.prod(x[:, members], axis=1) ** (1 / size)
            np.testing.assert_allclose(column, expected, rtol=1e-14)
            assert column.any()
        for node in range(6):
            used = shared.columns(block, node)
            without = [i for i, m in enumerate(block.members) if node not in m]
            np.testing.assert_array_equal(used, without)


def test_quadratic_descent_is_the_minimum_of_its_model():
    rng = np.random.default_rng(5)
    n, k, c = 30, 2, 6
    z = rng.normal(size=(n, c)) * (rng.random((n, c)) < 0.6)
    root = np.array([0, 0, 1, 1, 1, 0])
    square = rng.normal(size=(n, k, k))
    hessian = square @ square.transpose(0, 2, 1) + 0.1 * np.eye(k)
    gradient, coef = rng.normal(size=c), rng.normal(size=c) * (rng.random(c) < 0.5)
    penalty = np.array([0.0, 0.2, 0.2, 0.2, 0.2, 0.2])
    csc = sparse.csc_matrix(z)
    arrays = csc.indptr.astype(np.int64), csc.indices.astype(np.int64), csc.data, root
    d, done = kernels.quadratic_descent(*arrays, hessian, gradient, penalty, coef, 1e-12, 10_000)
    assert done
    full = np.zeros((c, c))
    for a in range(c):
        for b in range(c):
            full[a, b] = (z[:, a] * hessian[:, root[a], root[b]] * z[:, b]).mean()
    slope = gradient + full @ d
    now = coef + d
    active = now != 0
    np.testing.assert_allclose(slope[active], -(penalty * np.sign(now))[active], atol=1e-9)
    assert (np.abs(slope[~active]) <= penalty[~active] + 1e-9).all()
    np.testing.assert_allclose(
        kernels.gradients(*arrays, np.ones((n, k))), z.mean(axis=0), atol=1e-14
    )


def test_correlated_columns_are_solved():
    # values near 100: x_0^2, x_0 x_1 and 1 are all but proportional
    x = 100 + np.random.default_rng(6).normal(size=(80, 2))
    model = fg.GeneralizedRootModel(k=2, base="gaussian", tol=1e-4).fit(x)
    assert model.kkt_.max() <= 1e-4
    assert sum(fit.steps for fit in model.node_fits_) < 100


@pytest.mark.parametrize(
    "rule, expected", [("average", [0.5, -0.2]), ("min", [0.4, 0.0]), ("max", [0.6, -0.4])]
)
def test_symmetrization_rules(rule, expected):
    # theta_01 is estimated as 0.4 and 0.6, theta_02 as -0.4 by node 2 alone
    sets = np.array([(0, 1), (0, 1), (0, 2)])
    merged = fitting._combine(design.Term(2, 2), sets, np.array([0.4, 0.6, -0.4]), rule)
    full = dict(zip(map(tuple, merged.sets.tolist()), merged.values.tolist(), strict=True))
    assert [full.get((0, 1), 0.0), full.get((0, 2), 0.0)] == pytest.approx(expected)


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
    assert model.parameters_.flat[3].size > 1
    model.set_params(candidate_sets=[[0, 1]]).fit(x)
    assert [i.sets.tolist() for i in model.parameters_.interactions] == [[[0, 1]], []]
    alone = fg.GeneralizedRootModel(k=3, alpha=0.01, candidate_sets=[[0, 1]]).fit(x)
    assert model.score(x) == pytest.approx(alone.score(x), abs=1e-7)


def test_a_path_has_the_fits_of_its_alphas():
    x = counts()
    models = fg.GeneralizedRootModel(k=3, tol=1e-8).path(x, [0.02, 0.1, 0.05])
    assert [model.alpha for model in models] == [0.1, 0.05, 0.02]
    sizes = [model.parameters_.flat[3].size for model in models]
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
    solved.clear()
    monkeypatch.setattr(
        "fstgrad.grm.regression.NodeRegression.fit",
        lambda self, start=None: solved.append(self.node) or solve(self, start),
    )
    resumed = fg.GeneralizedRootModel(**settings).fit(x)
    assert solved == [3, 4]
    plain = fg.GeneralizedRootModel(k=3, alpha=0.05).fit(x)
    np.testing.assert_array_equal(resumed.parameters_.flat[3], plain.parameters_.flat[3])
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


def test_cross_validation_picks_an_alpha():
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(
        fg.GeneralizedRootModel(k=2, tol=1e-4), {"alpha": [0.01, 0.05, 10.0]}, cv=3
    ).fit(counts())
    assert search.best_params_["alpha"] < 10.0


def test_constant_columns_are_kept_alone():
    x = counts(p=4)
    x[:, 1], x[:, 2] = 0, 3
    with pytest.warns(UserWarning, match="2 column"):
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
        ({"candidate_sets": [["a", 0]]}, None, "no column"),
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


def test_without_scikit_learn_only_the_estimator_is_missing():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import fstgrad as fg, fstgrad.grm.bases as bases\n"
        "assert bases.Poisson().log_partition([0.0]).value == 1.0\n"
        "try:\n    fg.GeneralizedRootModel\n"
        "except fg.MissingDependencyError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'fstgrad[grm]'" in done.stdout


def test_memory_is_predicted():
    with pytest.raises(MemoryLimitError, match="max_memory"):
        fg.GeneralizedRootModel(k=3, max_memory=1e3).fit(counts())


def test_a_stop_before_convergence_is_said():
    with pytest.warns(UserWarning, match="max_iter"):
        model = fg.GeneralizedRootModel(k=3, alpha=0.01, max_iter=1).fit(counts())
    assert model.kkt_.max() > 1e-6
    assert isinstance(model.node_fits_[0], NodeFit)


@pytest.mark.parametrize("base, k", [("gaussian", 1), ("gaussian", 2), ("exponential", 1)])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_checks_of_scikit_learn(base, k):
    from sklearn.utils.estimator_checks import check_estimator

    check_estimator(fg.GeneralizedRootModel(k=k, base=base), on_skip=None)


def test_the_progress_bar_ends_at_the_last_node(capsys):
    fg.GeneralizedRootModel(k=2, alpha=0.05, verbose=True).fit(counts())
    assert "5/5" in capsys.readouterr().out


PUBLISHED = {
    ("boundary", "layer"): 4.98, ("heat", "transfer"): 4.26, ("tunnel", "wind"): 3.95,
    ("edge", "leading"): 3.32, ("bone", "marrow"): 3.15, ("angle", "attack"): 3.04,
    ("skin", "friction"): 2.87, ("layer", "skin", "friction"): 0.507,
    ("information", "retrieval", "storage"): 0.317, ("pressure", "number", "mach"): 0.315,
}  # fmt: skip


def test_classic3_gives_the_published_pairs(shared_data):
    x, words = read_table(shared_data / "classic3" / "classic3.mat")
    used = [words.index(w) for w in ("boundary", "layer", "heat", "transfer", "bone", "marrow")]
    model = fg.GeneralizedRootModel(k=3, alpha=0.01, tol=1e-4).fit(x[:, used])
    ranked = model.top_interactions(2, 3, sign="positive")
    assert {s.members for s in ranked} == {(0, 1), (2, 3), (4, 5)}


@pytest.mark.slow
def test_classic3_gives_the_published_values(shared_data):
    x, words = read_table(shared_data / "classic3" / "classic3.mat")
    model = fg.GeneralizedRootModel(k=3, alpha=0.01, tol=1e-4)
    model.fit(x[:, :500], feature_names=words[:500])
    assert model.kkt_.max() <= 1e-4
    assert model.n_candidates_ == 500 * 499 // 2 + 500 * 499 * 498 // 6
    found = model.top_interactions(2, 7, sign="positive")
    found += model.top_interactions(3, 3, sign="positive")
    assert [s.names for s in found] == list(PUBLISHED)
    for weighted in found:  # the published values come of a looser fit with bounds of A
        assert weighted.value == pytest.approx(PUBLISHED[weighted.names], abs=0.01)
