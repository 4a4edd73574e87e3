"""The joint fit: its optimality, never below independence, means like those of the data."""

import numpy as np
import pytest
from scipy.stats import poisson

import fstgrad as fg
from fstgrad.core.errors import InvalidInputError
from fstgrad.grm import calibration, families, newton
from fstgrad.grm import design as designs
from fstgrad.grm.sampling import gibbs
from tests.helpers.counts import counts
from tests.helpers.selection import pairwise
from tests.oracles import grm as oracle
from tests.tables import Column, Frame

pytest.importorskip("sklearn")


def nested_counts(n=600, seed=0):
    """Counts like arrests: most are zero, and one column counts a part of another."""
    rng = np.random.default_rng(seed)
    rate = rng.gamma(0.3, 2.0, size=n)
    total = rng.poisson(rate)
    part = rng.binomial(total, 0.5)
    return np.stack([total, part, rng.binomial(part, 0.6), rng.poisson(0.2 + rate)], axis=1)


@pytest.mark.parametrize("k", [2, 3])
def test_optimality_of_the_tied_parameters_by_hand(k):
    x, alpha = counts(), 0.02
    model = fg.GeneralizedRootModel(k=k, alpha=alpha, tol=1e-8).fit(x)
    assert model.kkt_.max() <= 1e-8
    found = {
        tuple(s): v
        for i in model.parameters_.interactions
        for s, v in zip(i.sets.tolist(), i.values, strict=True)
    }
    t = np.arange(80.0)[:, None] ** (1 / np.arange(1, k + 1))
    slopes = {}
    for node in range(x.shape[1]):
        columns = oracle.columns(x, node, k)
        eta = np.zeros((len(x), k))
        eta[:, 0] = model.parameters_.intercepts[node, 0]
        for (root, members), column in columns.items():
            eta[:, root - 1] += found.get(tuple(sorted((node, *members))), 0.0) * column
        height = eta @ t.T + families.Poisson().log_base(np.arange(80.0))
        p = np.exp(height - np.logaddexp.reduce(height, axis=1)[:, None])
        residual = p @ t - x[:, [node]] ** (1 / np.arange(1, k + 1))
        assert abs(residual[:, 0].mean()) <= 1e-8 + 1e-12
        for (root, members), column in columns.items():
            whole = tuple(sorted((node, *members)))
            slopes[whole] = slopes.get(whole, 0.0) + (column * residual[:, root - 1]).mean()
    assert found
    for whole, slope in slopes.items():
        weight, value = alpha * len(whole), found.get(whole, 0.0)
        violation = abs(slope + weight * np.sign(value)) if value else abs(slope) - weight
        assert violation <= len(whole) * 1e-8 + 1e-12


@pytest.mark.filterwarnings("ignore:1 column")
@pytest.mark.parametrize("stored_bytes", [24, 1e9])  # stored and streamed columns
@pytest.mark.parametrize(
    "options",
    [
        {"k": 2, "scale_columns": True},
        {"k": 3, "interactions": "all"},
        {"k": 3, "candidate_sets": [(0, 1), (1, 2, 4), (0, 4), (2, 4), (0, 3, 4)]},
    ],
)
def test_one_table_of_gradients_and_a_scan_of_each_node_select_the_same_sets(
    monkeypatch, options, stored_bytes
):
    monkeypatch.setattr(designs, "STORED_BYTES", stored_bytes)
    x = np.column_stack([counts(), np.zeros(len(counts())), counts()[::-1, :2]])
    x[:, 4] += x[:, 0]
    model = fg.GeneralizedRootModel(alpha=0.01, tol=1e-8, **options)
    tables = model.path(x, [0.05, 0.01])
    monkeypatch.setattr(designs, "AT_ONCE", 0)
    scans = model.path(x, [0.05, 0.01])
    for table, scan in zip(tables, scans, strict=True):
        assert len(table.parameters_.flat.sizes)
        assert table.kkt_.max() <= 1e-8
        np.testing.assert_allclose(table.kkt_, scan.kkt_, atol=1e-12)
        assert table.n_iter_ == scan.n_iter_
        for found, wanted in zip(
            table.parameters_.interactions, scan.parameters_.interactions, strict=True
        ):
            np.testing.assert_array_equal(found.sets, wanted.sets)
            np.testing.assert_allclose(found.values, wanted.values, atol=1e-10)


@pytest.mark.parametrize(
    "base, k, alpha",
    pairwise(
        ["poisson", "negative-binomial", "hurdle-negative-binomial"], [2, 3], [0.1, 0.01, 0.001]
    ),
)
def test_never_below_independence_on_the_data_of_the_fit(base, k, alpha):
    x = nested_counts()
    alone = fg.GeneralizedRootModel(k=1, base=base).fit(x).score(x)
    model = fg.GeneralizedRootModel(k=k, base=base, alpha=alpha, tol=1e-4).fit(x)
    assert model.kkt_.max() <= 1e-4
    assert model.score(x) >= alone - 1e-3  # the ridge of the intercepts differs by this much


def test_averages_get_their_own_intercepts():
    x = nested_counts()
    alone = fg.GeneralizedRootModel(k=1).fit(x).score(x)
    model = fg.GeneralizedRootModel(k=2, alpha=0.01, symmetrize="average").fit(x)
    # with the intercepts of the nodes' own estimates the score was -10 where -1 is independence
    assert model.score(x) >= alone - 0.1
    eta = model.parameters_.eta(x.astype(float)).reshape(-1, 2)
    mean = families.Poisson().derivatives(eta)[1].reshape(*x.shape, 2)[:, :, 0]
    np.testing.assert_allclose(mean.mean(axis=0), x.mean(axis=0), atol=1e-5)


@pytest.mark.parametrize("base", ["poisson", "hurdle-negative-binomial"])
def test_means_of_samples_are_those_of_the_data(base):
    x = counts(n=2000, p=4)
    model = fg.GeneralizedRootModel(k=2, base=base, alpha=0.01, tol=1e-4).fit(x)
    draws = gibbs(model.parameters_, 3000, 1, burn_in=100, thin=3, chains=100)
    error = draws.values.std(axis=0) / np.sqrt(np.minimum(draws.effective, 3000))
    gap = np.abs(draws.values.mean(axis=0) - x.mean(axis=0))
    assert (gap <= 0.1 * x.mean(axis=0) + 3 * error).all()


@pytest.mark.parametrize("k", [2, 3])
def test_real_counts_of_ink(k):
    from sklearn.datasets import load_digits

    x = load_digits().data.reshape(-1, 8, 8)[:600, 2:5, 2:5].reshape(-1, 9)
    base = "hurdle-negative-binomial"
    alone = fg.GeneralizedRootModel(k=1, base=base).fit(x).score(x)
    model = fg.GeneralizedRootModel(k=k, base=base, alpha=0.03, tol=1e-4).fit(x)
    assert model.kkt_.max() <= 1e-4
    assert model.score(x) > alone + 0.02


def test_the_empty_model_is_not_picked():
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(
        fg.GeneralizedRootModel(k=2, base="hurdle-negative-binomial", tol=1e-4),
        {"alpha": [0.003, 10.0]}, cv=3,
    ).fit(nested_counts())  # fmt: skip
    assert search.best_params_["alpha"] == 0.003


@pytest.mark.parametrize(
    "settings", [{}, {"symmetrize": "average", "scale_columns": True}], ids=str
)
@pytest.mark.parametrize("base", families.BASES)
@pytest.mark.filterwarnings("ignore:base 'gaussian' has mean 0")
def test_weights_are_repeated_rows(base, settings):
    x, rng = counts(n=80, p=4), np.random.default_rng(0)
    weight = rng.integers(0, 4, size=80)
    x[weight == 0] += [3, 40, 0, 0]  # the fit must not see these rows
    x[:, 3] = weight == 0  # constant without them
    rows = {"covariates": rng.normal(size=(80, 1)), "offset": rng.normal(size=80) / 10}
    copies = {name: np.repeat(values, weight, axis=0) for name, values in rows.items()}
    repeated = np.repeat(x, weight, axis=0)
    model = fg.GeneralizedRootModel(k=2, base=base, alpha=0.03, tol=1e-8, **settings)
    scores = []
    for data, more in ((x, {**rows, "sample_weight": weight}), (repeated, copies)):
        with pytest.warns(UserWarning, match="constant"):
            model.fit(data, **more)
        scores.append(
            [model.score(x, **rows, sample_weight=weight), model.score(repeated, **copies)]
        )
        found = model.parameters_
        scores[-1] += [*found.intercepts.ravel(), *found.slopes.ravel(), *found.flat.values]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)
    assert scores[0][0] == pytest.approx(scores[0][1], abs=1e-12)


def test_calibration_weights_the_rows():
    x, weight = counts(n=60, p=2), np.tile([0, 1, 3], 20)
    model = fg.GeneralizedRootModel(k=1).fit(x, sample_weight=weight)
    data = [
        calibration.calibrate(
            model.parameters_, rows, weights, np.array([0]), sweeps=20, chains=4,
            rng=np.random.default_rng(0),
        )
        for rows, weights in ((x, weight / 4), (np.repeat(x, weight, axis=0), np.ones(80)))
    ]  # fmt: skip
    np.testing.assert_allclose(data[0].gap, data[1].gap, rtol=0.5)
    model.calibrate(x, sample_weight=weight, sweeps=300)
    means = np.exp(model.parameters_.intercepts[:, 0])
    np.testing.assert_allclose(means, weight @ x / weight.sum(), rtol=0.05)


def test_a_row_of_weight_0_does_not_change_the_dispersion():
    x, weight = np.array([[0.0], [1], [2], [1], [0], [3], [900]]), np.array([1, 1, 1, 1, 1, 1, 0])
    for base in ("negative-binomial", "hurdle-negative-binomial"):
        model = fg.GeneralizedRootModel(k=1, base=base).fit(x, sample_weight=weight)
        alone = fg.GeneralizedRootModel(k=1, base=base).fit(x[:6])
        assert model.parameters_.families == alone.parameters_.families
        assert model.score(x[:6]) == alone.score(x[:6])


def test_large_weights_do_not_overflow():
    x = counts(n=30, p=2)
    model = fg.GeneralizedRootModel(k=1).fit(x, sample_weight=np.full(30, 1e308))
    assert model.score(x, sample_weight=np.full(30, 5e-324)) == pytest.approx(
        fg.GeneralizedRootModel(k=1).fit(x).score(x), abs=1e-10
    )


def test_what_belongs_to_the_rows_has_their_index():
    x, index = counts(n=30, p=2), [*range(29, -1, -1)]
    frame, turned = Frame(x), Column(np.ones(30).tolist(), index)
    for name, column in (
        ("sample_weight", turned),
        ("offset", turned),
        ("covariates", Frame(x[:, :1], index)),
    ):
        said = rf"X has the index 0, 1, .* and {name} 29, 28, .*{name}\.to_numpy\(\)"
        with pytest.raises(InvalidInputError, match=said):
            fg.GeneralizedRootModel(k=1).fit(frame, **{name: column})
    model = fg.GeneralizedRootModel(k=1).fit(x)
    with pytest.raises(InvalidInputError, match="X has the index 0, 1"):
        model.score(frame, sample_weight=turned)
    assert model.score(x, sample_weight=turned.to_numpy()) == model.score(x)


@pytest.mark.parametrize("base, power", [("exponential", 1), ("gaussian", 2)])
@pytest.mark.filterwarnings("ignore:base 'gaussian' has mean 0")
def test_offsets_of_numbers_that_are_no_counts(base, power):
    """log p = eta t - log of the integral of exp(eta t), with eta = theta + offset < 0."""
    rng = np.random.default_rng(0)
    t, offset = rng.exponential(2.0, size=(40, 1)), 3 * rng.normal(size=40)
    model = fg.GeneralizedRootModel(k=1, base=base, tol=1e-12)
    model.fit(t ** (1 / power), offset=offset)
    eta = model.parameters_.intercepts[0, 0] + offset
    assert (eta < 0).all()
    # the derivative of the mean log-likelihood is 0: E[t] = -1 / (power eta)
    assert np.mean(t[:, 0] + 1 / (power * eta)) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("base", ["poisson", "hurdle-negative-binomial", "bernoulli"])
def test_a_raw_exposure_is_no_offset(base):
    x, exposure = counts(n=50, p=2), np.linspace(20.0, 2000.0, 50)
    model = fg.GeneralizedRootModel(k=2, base=base, alpha=0.1)
    with pytest.raises(InvalidInputError, match=r"from 20 to 2000, .* give log\(exposure\)"):
        model.fit(x, offset=exposure)
    model.set_params(tol=1e-3).fit(x, offset=np.log(exposure))
    with pytest.raises(InvalidInputError, match=r"give log\(exposure\)"):
        model.score(x, offset=exposure)


def test_offsets_without_an_exposure_are_refused():
    for low in (-1e9, np.finfo(float).min):
        with pytest.raises(fg.InvalidInputError, match="in row 2, and "):
            fg.GeneralizedRootModel(k=1).fit(np.ones((4, 1)), offset=[0, 0, low, 0])


def test_rows_of_negligible_exposure_change_no_poisson_fit():
    """The maximum of sum x (b + o) - exp(b + o) is at b = log(sum x / sum exp(o))."""
    exposure = np.random.default_rng(0).uniform(1, 20, 300)
    x = np.random.default_rng(1).poisson(0.4 * exposure)[:, None]
    for tiny in (1e-12, 1e-20, 1e-300):
        exposure[:5], x[:5] = tiny, 0
        model = fg.GeneralizedRootModel(k=1, tol=1e-9).fit(x, offset=np.log(exposure))
        expected = np.log(x.sum() / exposure.sum())
        assert model.parameters_.intercepts[0, 0] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("base", ["negative-binomial", "hurdle-poisson"])
def test_offsets_far_apart_name_a_row_to_leave_out(base):
    """The ridge of these bases is at the mean offset, which rows without exposure would move."""
    exposure = np.random.default_rng(0).uniform(1, 20, 300)
    x = np.random.default_rng(1).poisson(0.4 * exposure)[:, None]
    exposure[7], x[7] = 1e-20, 0
    model = fg.GeneralizedRootModel(k=1, base=base)
    with pytest.raises(InvalidInputError, match=r"from -46.* leave out .* such as row 7$"):
        model.fit(x, offset=np.log(exposure))
    weight = np.ones(300)
    weight[7] = 0
    model.fit(x, offset=np.log(exposure), sample_weight=weight)
    assert np.isfinite(model.score(x, offset=np.log(exposure)))


def test_an_offset_is_an_exposure():
    rng = np.random.default_rng(0)
    exposure = rng.uniform(1, 20, size=3000)
    x = rng.poisson(exposure[:, None] * [0.2, 0.5])
    model = fg.GeneralizedRootModel(k=2, alpha=0.05).fit(x, offset=np.log(exposure))
    np.testing.assert_allclose(model.parameters_.intercepts[:, 0], np.log([0.2, 0.5]), atol=0.05)
    # the exposure alone makes the columns rise together
    assert model.parameters_.flat.values.size == 0
    assert fg.GeneralizedRootModel(k=2, alpha=0.05).fit(x).parameters_.flat.values.size == 1


def gap_of_means(model, x):
    """Return by how much sampled means miss those of the data, over the latter, less 3 errors."""
    draws = gibbs(model.parameters_, 4000, 1, burn_in=300, thin=3, chains=100)
    error = draws.values.std(axis=0) / np.sqrt(np.minimum(draws.effective, 4000))
    mean = x.mean(axis=0)
    return ((np.abs(draws.values.mean(axis=0) - mean) - 3 * error) / mean).max()


@pytest.mark.slow
def test_calibrated_intercepts_give_the_means_of_counts_of_another_family():
    x = nested_counts()
    alone = fg.GeneralizedRootModel(k=1).fit(x).score(x)
    model = fg.GeneralizedRootModel(k=2, alpha=0.01, tol=1e-4).fit(x)
    interactions = model.parameters_.flat.values.copy()
    assert gap_of_means(model, x) > 0.3  # Poisson nodes fit the conditionals, not the joint law
    found = model.calibrate(x, sweeps=400, chains=100, rng=0)
    assert found.parameters is model.parameters_
    assert found.gap.max() < 0.02
    assert gap_of_means(model, x) < 0.1
    np.testing.assert_array_equal(model.parameters_.flat.values, interactions)
    assert model.score(x) > alone


def test_calibration_of_an_independent_model_is_its_maximum_likelihood():
    x = counts(n=2000, p=2)
    model = fg.GeneralizedRootModel(k=1).fit(x)
    fitted = model.parameters_.intercepts.copy()
    model.parameters_ = model.parameters_.at_offset(0.3)
    model.calibrate(x, sweeps=400, chains=200, rng=0)
    np.testing.assert_allclose(model.parameters_.intercepts, fitted, atol=0.02)


def test_scores_and_samples_of_a_model_with_an_offset(tmp_path):
    rng = np.random.default_rng(0)
    exposure = rng.uniform(1, 20, size=1000)
    x = rng.poisson(exposure[:, None] * [0.2, 0.5])
    model = fg.GeneralizedRootModel(k=2, alpha=0.05).fit(x, offset=np.log(exposure))
    with pytest.raises(InvalidInputError, match="fitted with an offset"):
        model.score(x)
    with pytest.raises(InvalidInputError, match="the same exposure"):
        model.calibrate(x)
    rate = np.exp(model.parameters_.intercepts[:, 0] + np.log(exposure)[:, None])
    expected = poisson.logpmf(x, rate).mean()
    assert model.score(x, offset=np.log(exposure)) == pytest.approx(expected, abs=1e-10)
    model.save(tmp_path / "m.npz")
    again = fg.GeneralizedRootModel.load(tmp_path / "m.npz")
    with pytest.raises(InvalidInputError, match="fitted with an offset"):
        again.score_samples(x)
    draws = again.gibbs(4000, 0, chains=100, offset=np.log(10)).values
    np.testing.assert_allclose(draws.mean(axis=0), [2, 5], rtol=0.05)


def test_steps_that_do_not_help_leave_the_intercepts(monkeypatch):
    x = counts(n=500, p=4)
    model = fg.GeneralizedRootModel(k=2, alpha=0.05).fit(x)
    fitted = model.parameters_.intercepts.copy()
    monkeypatch.setattr(calibration, "STEPS", (1e9, 0.0))  # as far as a sweep may go, to and fro
    monkeypatch.setattr(calibration, "LARGEST", 3.0)
    found = model.calibrate(x, sweeps=50, chains=50)
    np.testing.assert_allclose(model.parameters_.intercepts, fitted, rtol=1e-12)
    assert np.isfinite(found.gap).all()


def test_one_row_can_be_calibrated():
    x = counts(n=60, p=3)
    model = fg.GeneralizedRootModel(k=2, alpha=0.1).fit(x)
    found = model.calibrate(x[:1], sweeps=2, chains=2)  # it has no spread: the intercepts stay
    assert np.isfinite(found.gap).all()
    assert np.isfinite(model.parameters_.intercepts).all()


def test_a_hard_node_does_not_stop_the_intercepts_of_others(monkeypatch):
    """Intercepts are refitted for many nodes at once; if that fails, for one after another."""
    x = counts()
    options = {"k": 2, "alpha": 0.02, "symmetrize": "average", "tol": 1e-8}
    wanted = fg.GeneralizedRootModel(**options).fit(x)
    solve, alone = newton.NewtonSolver.solve, []

    def hard(self, active, target, *more):
        residual, slopes, objective = solve(self, active, target, *more)
        alone.append(len(self.families) == 1)
        return residual, slopes if alone[-1] else slopes + 1.0, objective

    monkeypatch.setattr(newton.NewtonSolver, "solve", hard)
    model = fg.GeneralizedRootModel(**options).fit(x)
    assert alone.count(False) == 1
    np.testing.assert_allclose(
        model.parameters_.intercepts, wanted.parameters_.intercepts, atol=1e-6
    )
