"""Covariates of the rows against regressions of others, and where they are needed."""

import numpy as np
import pytest
from click.testing import CliRunner

import fstgrad as fg
from fstgrad.cli.commands.grm import grm
from fstgrad.cli.main import main
from fstgrad.core.errors import InvalidInputError
from fstgrad.grm.families import BASES

linear_model = pytest.importorskip("sklearn.linear_model")
SLOPES = np.array([[0.5, -0.5], [-0.3, 0.0], [0.0, 0.7]])


@pytest.fixture(scope="module")
def rows():
    """Counts (300, 3) whose rates depend on covariates (300, 2)."""
    rng = np.random.default_rng(0)
    z = np.stack([rng.normal(3.0, 1.0, 300), (rng.random(300) < 0.4).astype(float)], axis=1)
    x = rng.poisson(np.exp(z @ SLOPES.T - [1.5, -0.5, 0.0])).astype(float)
    x[:, :2] += rng.poisson(0.4, size=(300, 1))
    return x, z


@pytest.fixture(scope="module")
def model(rows):
    x, z = rows
    return fg.GeneralizedRootModel(k=2, alpha=0.02, tol=1e-9).fit(x, covariates=z)


def test_one_variable_is_a_poisson_regression(rows):
    x, z = rows
    found = fg.GeneralizedRootModel(k=1, tol=1e-12).fit(x, covariates=z).parameters_
    for s in range(3):
        other = linear_model.PoissonRegressor(
            alpha=0, tol=1e-12, max_iter=1000, solver="newton-cholesky"
        ).fit(z, x[:, s])
        assert np.abs(found.slopes[s] - other.coef_).max() < 1e-10
        assert abs(found.intercepts[s, 0] - other.intercept_) < 1e-10


@pytest.mark.parametrize("symmetrize", ["joint", "average"])
@pytest.mark.parametrize("base", ["poisson", "hurdle-poisson", "bernoulli"])
def test_slopes_have_no_gradient(rows, base, symmetrize):
    x, z = rows
    weight = 0.5 + np.arange(300) / 300
    z = z - weight @ z / weight.sum()  # hurdles have a ridge on the intercept at the mean
    model = fg.GeneralizedRootModel(k=2, base=base, alpha=0.02, symmetrize=symmetrize, tol=1e-9)
    model.fit(x, covariates=z, sample_weight=weight)
    assert model.kkt_.max() <= 1e-9
    step, found = 1e-4, model.parameters_.slopes

    def score(slopes):
        object.__setattr__(model.parameters_, "slopes", slopes)
        return 3 * weight @ model.score_samples(x, covariates=z) / weight.sum()

    for at in np.ndindex(3, 2):
        unit = np.zeros((3, 2))
        unit[at] = step
        assert abs(score(found + unit) - score(found - unit)) / step < 1e-5
    assert score(found) > score(found + 0.01)


def test_a_penalty_selects_slopes(rows):
    x, z = rows
    alone = fg.GeneralizedRootModel(k=2, alpha=0.02, tol=1e-9).fit(x)
    none = fg.GeneralizedRootModel(k=2, alpha=0.02, tol=1e-9, covariate_alpha=10.0)
    none.fit(x, covariates=z)
    assert (none.parameters_.slopes == 0).all()
    assert none.score(x, covariates=z) == pytest.approx(alone.score(x), abs=1e-10)
    some = fg.GeneralizedRootModel(k=1, tol=1e-9, covariate_alpha=0.05).fit(x, covariates=z)
    mean = np.exp(some.parameters_.intercepts[:, 0] + z @ some.parameters_.slopes.T)
    gradient = (mean - x).T @ z / 300
    used = some.parameters_.slopes != 0
    assert 0 < used.sum() < 6
    assert np.abs(np.abs(gradient[used]) - 0.05).max() < 1e-7
    assert np.abs(gradient[~used]).max() <= 0.05 + 1e-7


def test_units_of_free_covariates_do_not_matter(rows, model):
    x, z = rows
    mixed = 7.0 + z @ [[1e3, 1.0], [0.0, 1e-3]]
    other = fg.GeneralizedRootModel(k=2, alpha=0.02, tol=1e-9).fit(x, covariates=mixed)
    assert np.abs(
        other.score_samples(x, covariates=mixed) - model.score_samples(x, covariates=z)
    ).max() < 1e-6  # fmt: skip
    assert np.abs(other.parameters_.flat.values - model.parameters_.flat.values).max() < 1e-7


@pytest.mark.parametrize("symmetrize", ["joint", "average"])
@pytest.mark.parametrize("base", list(BASES))
@pytest.mark.filterwarnings("ignore:base 'gaussian' has mean 0")
def test_shifted_offsets_move_intercepts_and_slopes_only(base, symmetrize):
    """eta_1 = intercept + offset + slope z: 5 + 2 z in the offset is -5 and -2 in the others."""
    rng = np.random.default_rng(3)
    z, shift = rng.normal(size=(100, 1)), 0.2 * rng.normal(size=100)
    x = rng.poisson(rng.gamma(1.0, size=(100, 1)) * [[1.5, 1.2, 0.9]]).astype(float)
    if not BASES[base].whole_numbers:
        x += rng.random(x.shape)
    given = {"covariates": z, "sample_weight": rng.integers(0, 3, 100)}
    near, far = {"offset": shift, **given}, {"offset": shift + 5 + 2 * z[:, 0], **given}
    model = fg.GeneralizedRootModel(k=2, base=base, alpha=0.03, symmetrize=symmetrize, tol=1e-9)
    top = model.alpha_max(x, **near)
    assert model.alpha_max(x, **far) == pytest.approx(top, rel=1e-7)
    here = model.set_params(alpha=0.3 * top, warm_start=True).fit(x, **near)
    own, score = here.parameters_, here.score(x, **near)
    assert own.flat.values.size
    cold = fg.GeneralizedRootModel(**model.get_params()).fit(x, **far)
    for there in (cold, model.fit(x, **far)):  # the second one starts from the fit above
        other = there.parameters_
        assert other.flat.members.tolist() == own.flat.members.tolist()
        np.testing.assert_allclose(other.flat.values, own.flat.values, atol=1e-6)
        np.testing.assert_allclose(other.slopes, own.slopes - 2, atol=1e-6)
        moved = own.intercepts - 5 * (np.arange(own.intercepts.shape[1]) == 0)
        np.testing.assert_allclose(other.intercepts, moved, atol=1e-6)
        assert there.score(x, **far) == pytest.approx(score, abs=1e-9)


@pytest.mark.parametrize("base", ["negative-binomial", "hurdle-negative-binomial"])
def test_a_constant_offset_changes_no_choice_of_alpha(rows, base):
    x, model = rows[0], fg.GeneralizedRootModel(k=2, base=base, tol=1e-7)
    for criterion in ("ebic", "cv"):
        found = [
            model.select(x, 3, criterion=criterion, folds=2, offset=np.full(len(x), c))
            for c in (0.0, 12.0)
        ]
        np.testing.assert_allclose(found[0].alphas, found[1].alphas, rtol=1e-8)
        np.testing.assert_allclose(found[0].criterion, found[1].criterion, rtol=1e-7)


def test_a_checkpoint_of_other_offsets_is_refused(rows, tmp_path):
    x, path = rows[0], tmp_path / "c.npz"
    model = fg.GeneralizedRootModel(k=2, alpha=0.1, checkpoint=path)
    model.fit(x, offset=np.ones(len(x)))
    with pytest.raises(InvalidInputError, match="other data or settings"):
        model.fit(x, offset=np.full(len(x), 2.0))


def test_covariates_explain_what_sets_would(rows):
    z = rows[1][:, :1] - 3
    x = np.random.default_rng(1).poisson(np.exp(z @ [[0.7, 0.7]]))
    top = fg.GeneralizedRootModel(k=2).alpha_max(x)
    assert fg.GeneralizedRootModel(k=2).alpha_max(x, covariates=z) < 0.5 * top


def test_the_model_at_a_row_is_that_of_its_conditionals(rows, model):
    x, z = rows
    for i in (0, 7):
        at = model.at(z[i])
        expected = model.score_samples(x[i : i + 1], covariates=z[i : i + 1])
        assert at.score_samples(x[i : i + 1]) == pytest.approx(expected, abs=1e-10)
        node = at.node_conditional(1, x[i])
        eta = at.parameters_.eta(x[i : i + 1])[0, 1]
        assert np.abs(node.eta - eta).max() < 1e-10
    assert at.log_partition().exact
    both = model.at(z[0], offset=0.5).parameters_.intercepts[:, 0]
    assert np.abs(both - model.at(z[0]).parameters_.intercepts[:, 0] - 0.5).max() < 1e-12


def test_scores_need_covariates(rows, model, tmp_path):
    x, z = rows
    with pytest.raises(InvalidInputError, match=r"fitted with 2 covariate\(s\)"):
        model.score(x)
    with pytest.raises(InvalidInputError, match=r"at\(covariates\)"):
        model.sample(3)
    with pytest.raises(InvalidInputError, match="fitted with 2 covariate"):
        model.report(x)
    with pytest.raises(InvalidInputError, match="fitted without"):
        fg.GeneralizedRootModel(k=1).fit(x).score(x, covariates=z)
    with pytest.raises(InvalidInputError, match="shape"):
        model.score(x, covariates=z[:, :1])
    model.save(tmp_path / "m.npz")
    again = fg.GeneralizedRootModel.load(tmp_path / "m.npz")
    assert again.score(x, covariates=z) == model.score(x, covariates=z)
    with pytest.raises(InvalidInputError, match=r"fitted with 2 covariate\(s\)"):
        again.score(x)


@pytest.mark.parametrize(
    ("column", "said"), [(np.full(300, 2.0), "constant column 2"), (None, "combination")]
)
def test_columns_that_say_nothing_are_refused(rows, column, said):
    x, z = rows
    extra = z.sum(axis=1) if column is None else column
    with pytest.raises(InvalidInputError, match=said):
        fg.GeneralizedRootModel(k=1).fit(x, covariates=np.column_stack([z, extra]))


def test_a_checkpoint_of_other_covariates_is_refused(rows, tmp_path):
    x, z = rows
    path = tmp_path / "c.npz"
    fg.GeneralizedRootModel(k=2, alpha=0.1, checkpoint=path).fit(x, covariates=z)
    fg.GeneralizedRootModel(k=2, alpha=0.1, checkpoint=path).fit(x, covariates=z)
    with pytest.raises(InvalidInputError, match="other data or settings"):
        fg.GeneralizedRootModel(k=2, alpha=0.1, checkpoint=path).fit(x, covariates=z[::-1])


def test_alpha_is_chosen_with_covariates(rows):
    x, z = rows
    model = fg.GeneralizedRootModel(k=2, tol=1e-6)
    alphas = [0.2, 0.05]
    for found, alpha in zip(model.path(x, alphas, covariates=z), alphas, strict=True):
        alone = fg.GeneralizedRootModel(k=2, tol=1e-6, alpha=alpha).fit(x, covariates=z)
        assert found.score(x, covariates=z) == pytest.approx(alone.score(x, covariates=z), abs=1e-7)
    for criterion in ("ebic", "cv"):
        chosen = model.select(x, alphas, criterion=criterion, folds=2, covariates=z)
        assert chosen.model.parameters_.slopes.shape == (3, 2)
    model.set_params(alpha=0.05)
    assert model.stability(x, samples=2, covariates=z).keys() <= {
        ("x0", "x1"), ("x0", "x2"), ("x1", "x2"),
    }  # fmt: skip


@pytest.mark.slow
def test_a_report_draws_rows_with_their_covariates(rows, model):
    x, z = rows
    found = model.report(x, samples=1500, covariates=z, bootstrap=3)
    error = x.std(axis=0) * np.sqrt(1 / 1500 + 1 / 300)
    assert (np.abs(found.samples["mean"] - found.data["mean"]) < 4 * error).all()
    assert np.isnan(found.r_hat)
    assert found.sets[0].names == ("x0", "x1")
    assert found.sets[0].rows[0] == (x[:, 0] * x[:, 1]).argmax()
    for each in found.sets:
        assert 0 <= each.stability <= 1


def test_commands(rows, model, tmp_path, capsys):
    x, z = rows
    np.savetxt(tmp_path / "x.csv", x, delimiter=",", fmt="%d")
    np.savetxt(tmp_path / "z.csv", z, delimiter=",", fmt="%.17g")
    (tmp_path / "one.csv").write_text("5,1\n")
    names = {name: str(tmp_path / name) for name in ("x.csv", "z.csv", "one.csv", "m.npz")}
    given = ["--covariates", names["z.csv"]]

    def run(*arguments):
        done = CliRunner().invoke(grm, arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    run("fit", names["x.csv"], "--alpha", ".02", "--tol", "1e-9", *given, "-o", names["m.npz"])
    score = float(run("score", names["m.npz"], names["x.csv"], *given))
    assert score == pytest.approx(model.score(x, covariates=z), abs=1e-6)
    said = run("report", names["m.npz"], names["x.csv"], "-n", "50", *given)
    assert "rows" in said
    assert "R-hat" not in said  # each draw is the last one of a chain of its own
    fitted = fg.GeneralizedRootModel.load(names["m.npz"])
    slopes = fitted.parameters_.slopes
    for sign, expected in (("both", np.abs(slopes)), ("negative", -slopes)):
        lines = run("top", names["m.npz"], "--size", "1", "--top", "2", "--sign", sign).splitlines()
        found = [line.split("\t")[1:] for line in lines if "slope of" in line]
        assert len(found) == min(2, np.sum(expected > 0))
        for (value, name), place in zip(found, np.argsort(-expected.ravel()), strict=False):
            column, covariate = np.unravel_index(place, slopes.shape)
            assert float(value) == pytest.approx(slopes[column, covariate], rel=1e-5)
            assert name == f"{fitted.names_[column]}, slope of {covariate + 1}"
    drawn = run("sample", names["m.npz"], "--covariates", names["one.csv"], "--seed", "0")
    assert len(drawn.splitlines()) == 11
    with pytest.raises(SystemExit):
        main(["grm", "score", names["m.npz"], names["x.csv"]])
    assert "covariates is None" in capsys.readouterr().err


def test_a_model_of_a_row_is_a_model(tmp_path, rows, model):
    """It can be saved, and an offset can be added to it."""
    x, z = rows
    at = model.at(z[0], offset=0.5)
    at.save(tmp_path / "at.npz")
    loaded = fg.GeneralizedRootModel.load(tmp_path / "at.npz")
    assert loaded.score(x) == at.score(x)
    assert loaded.at(offset=0.25).score(x) == pytest.approx(model.at(z[0], offset=0.75).score(x))
    plain = fg.GeneralizedRootModel(k=2, alpha=0.02).fit(x, offset=np.zeros(len(x)))
    assert plain.at(offset=0.5).at(offset=-0.5).score(x) == pytest.approx(plain.at().score(x))


@pytest.mark.parametrize("command", ["sample", "stability"])
def test_commands_name_the_options_of_the_rows(tmp_path, rows, command):
    x, z = rows
    counts, path = tmp_path / "c.npy", tmp_path / "m.npz"
    np.save(counts, x)
    given = [str(path)] if command == "sample" else [str(path), str(counts)]
    fit = fg.GeneralizedRootModel(k=2, alpha=0.5)
    fit.fit(x, covariates=z).save(path)
    with pytest.raises(InvalidInputError, match="was fitted with covariates; give --covariates"):
        CliRunner().invoke(grm, [command, *given], catch_exceptions=False)
    if command == "stability":
        fit.fit(x, offset=z[:, 1]).save(path)
        with pytest.raises(InvalidInputError, match="was fitted with an offset; give --offset"):
            CliRunner().invoke(grm, [command, *given], catch_exceptions=False)


def test_a_fit_with_an_offset_says_that_rows_have_offset_zero(tmp_path):
    """With exposures of 10 to 20, rates per unit of exposure are not the means of the rows."""
    rng = np.random.default_rng(0)
    exposure = rng.uniform(10, 20, 200)
    x = rng.poisson(exposure[:, None] * [0.3, 0.1, 0.5])
    model = fg.GeneralizedRootModel(k=2, alpha=50.0).fit(x, offset=np.log(exposure))
    for call in (
        lambda: model.sample(3, rng=0),
        lambda: model.node_conditional(0, x[0]),
        lambda: model.log_partition("exact"),
        lambda: model.radial_conditional([1, 1, 1]),
    ):
        with pytest.warns(UserWarning, match="fitted with an offset, and this is for rows of off"):
            call()
    there = model.at(offset=np.log(exposure[0]))
    rates = x.sum(axis=0) / exposure.sum()
    assert there.node_conditional(0, x[0]).mean() == pytest.approx(exposure[0] * rates[0])
    model.at(offset=0.0).sample(3, rng=0)  # no warning
    model.gibbs(3, rng=0, offset=1.0)
    model.save(tmp_path / "m.npz")
    found = CliRunner().invoke(grm, ["sample", str(tmp_path / "m.npz"), "--offset", "1"])
    assert found.exit_code == 0


def test_a_report_does_not_leave_counts_unread(tmp_path, rows, run):
    x, z = rows
    counts, path = tmp_path / "c.npy", tmp_path / "m.npz"
    np.save(counts, x)
    fg.GeneralizedRootModel(k=2, alpha=0.5).fit(x, covariates=z).save(path)
    code, _, err = run("report", path, "--counts", counts, "-o", tmp_path / "r.html")
    assert code == 1
    assert "leave --counts out, and compare with fstgrad grm report" in err
