"""Choosing alpha, reports, and what scikit-learn asks of every base."""

import itertools
import warnings

import numpy as np
import pytest
from scipy import special, stats

import fstgrad as fg
from fstgrad.core.errors import InvalidInputError
from fstgrad.grm import report
from fstgrad.grm.families import BASES
from tests.helpers.counts import counts

pytest.importorskip("sklearn")
FRACTIONS = {  # these checks draw fractions and do not ask the tags
    name: "draws fractions; see test_weights_are_repeated_rows"
    for name in (
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    )
}


@pytest.mark.parametrize("symmetrize", ["joint", "average"])
def test_alpha_max_is_where_the_first_set_enters(symmetrize):
    x = counts(n=400, p=6)
    model = fg.GeneralizedRootModel(k=3, symmetrize=symmetrize)
    top = model.alpha_max(x)
    for factor, some in ((1.0, False), (0.999, True)):
        fitted = fg.GeneralizedRootModel(k=3, symmetrize=symmetrize, alpha=factor * top).fit(x)
        assert bool(fitted.parameters_.flat.values.size) is some


@pytest.mark.parametrize("symmetrize", ["joint", "average", "max"])
@pytest.mark.parametrize("candidate_sets", [None, "stagewise", [(0, 3)], [(0, 2, 3), (1, 2)]])
@pytest.mark.parametrize(
    ("base", "settings", "with_rows"),
    [
        ("poisson", {"scale_columns": True}, False),
        ("poisson", {"interactions": "all"}, True),
        ("hurdle-negative-binomial", {}, True),
        ("bernoulli", {"screening": "none"}, False),
        ("exponential", {"interactions": "all"}, False),
        ("gaussian", {"k": 2}, True),
    ],
)
def test_alpha_max_is_that_of_the_settings(base, settings, with_rows, candidate_sets, symmetrize):
    rng = np.random.default_rng(3)
    mean = 0.3 + rng.gamma(0.7, size=(100, 1)) * [[1.5, 1.2, 0.3, 2, 0]]
    x = rng.exponential(mean) if base == "exponential" else rng.poisson(mean)
    x[:, 4] = 2  # constant columns have no sets
    names = ("covariates", "offset", "sample_weight")
    values = (rng.normal(size=(100, 1)), 0.3 * rng.normal(size=100), rng.integers(0, 3, 100))
    rows = dict(zip(names, values, strict=True)) if with_rows else {}
    model = fg.GeneralizedRootModel(
        **{"k": 3, "base": base, "tol": 1e-8} | settings, symmetrize=symmetrize,
        candidate_sets=candidate_sets,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"1 column\(s\)|the fitted model has no|base 'gaussian'")
        top = model.alpha_max(x, **rows)
        for factor, some in ((1.001, False), (0.999, True)):
            fitted = model.set_params(alpha=factor * top).fit(x, **rows)
            assert bool((fitted.parameters_.flat.sizes > 1).any()) is some


def test_alpha_max_of_one_candidate_by_hand():
    """Without sets, x_s is a Poisson variable; the gradient of a pair is a mean of products."""
    x = counts(n=200, p=4)
    sums = np.arange(200)
    mean_root = np.array([np.sqrt(sums) @ stats.poisson.pmf(sums, m) for m in x.mean(axis=0)])
    root = np.sqrt(x)
    slopes = root.T @ (mean_root - root) / 200  # of the pair (t, s) at node s
    for a, b in itertools.combinations(range(4), 2):
        pair = slopes[a, b], slopes[b, a]
        for symmetrize, expected in (("joint", abs(sum(pair)) / 2), ("max", np.abs(pair).max())):
            model = fg.GeneralizedRootModel(k=2, candidate_sets=[(a, b)], symmetrize=symmetrize)
            assert model.alpha_max(x) == pytest.approx(expected, rel=1e-7)
            path = model.path(x, 2)
            assert path[0].alpha == pytest.approx(expected, rel=1e-7)
            assert [m.parameters_.flat.values.size for m in path] == [0, 1]
    with pytest.raises(InvalidInputError, match="no candidate set does"):
        fg.GeneralizedRootModel(k=2, candidate_sets=[]).path(x, 2)


@pytest.mark.parametrize("symmetrize", ["joint", "max"])
def test_alpha_max_with_penalised_intercepts(symmetrize):
    """Below some alpha, the intercepts of roots are not 0, and explain what sets would."""
    rng = np.random.default_rng(47)
    x = rng.poisson(rng.gamma(0.3, size=(100, 4)) * rng.uniform(0.3, 4, 4))
    given = {"symmetrize": symmetrize, "tol": 1e-8}
    model = fg.GeneralizedRootModel(k=3, interactions="all", **given)
    top = model.alpha_max(x)
    assert top < 0.75 * fg.GeneralizedRootModel(k=3, **given).alpha_max(x)
    for factor, some in ((1.001, False), (0.999, True)):
        found = model.set_params(alpha=factor * top).fit(x).parameters_
        assert found.intercepts[:, 1:].any()
        assert bool(found.flat.sizes.size) is some


def test_alpha_max_of_a_triple_that_pairs_of_nodes_admit():
    """Stagewise, nodes select three pairs, which the joint fit leaves out, but not their triple."""
    rng = np.random.default_rng(46)
    x = rng.poisson(0.5, size=(60, 4))
    rare = rng.random(60) < 0.1
    x[rare, :3] += rng.integers(1, 6, (rare.sum(), 3))
    model = fg.GeneralizedRootModel(k=3, candidate_sets="stagewise", tol=1e-8)
    top = model.alpha_max(x)
    assert top > 1.01 * fg.GeneralizedRootModel(k=2).alpha_max(x)
    assert not model.set_params(alpha=1.001 * top).fit(x).parameters_.flat.sizes.size
    assert model.set_params(alpha=0.999 * top).fit(x).parameters_.flat.sizes.tolist() == [3]


def test_criteria_prefer_neither_end_of_the_path():
    x = counts(n=400, p=5)
    for criterion in ("ebic", "cv"):
        found = fg.GeneralizedRootModel(k=2, tol=1e-5).select(x, 6, criterion=criterion, folds=3)
        assert (np.diff(found.alphas) < 0).all()
        assert int(np.flatnonzero(found.alphas == found.model.alpha)[0]) > 0
        assert np.isfinite(found.criterion).all()


def test_weights_of_a_path_are_repeated_rows():
    x, weight = counts(n=80, p=4), np.tile([0, 1, 3, 1], 20)
    model, repeated = fg.GeneralizedRootModel(k=2, tol=1e-9), np.repeat(x, weight, axis=0)
    assert model.alpha_max(x, sample_weight=weight) == pytest.approx(model.alpha_max(repeated))
    assert model.alpha_max(x, sample_weight=weight) != pytest.approx(model.alpha_max(x))
    ours = model.select(x, 4, sample_weight=weight)
    theirs = model.select(repeated, 4)
    np.testing.assert_allclose(ours.criterion, theirs.criterion, atol=1e-6)
    assert ours.model.alpha == pytest.approx(theirs.model.alpha)
    score = ours.model.score(x, sample_weight=weight)
    assert score == pytest.approx(ours.model.score(repeated), abs=1e-12)
    assert score != pytest.approx(ours.model.score(x))
    held = model.select(x, 3, criterion="cv", folds=2, sample_weight=weight)
    assert np.isfinite(held.criterion).all()
    stable = model.set_params(alpha=0.03).stability(x, samples=2, sample_weight=weight)
    assert set(stable.values()) <= {0.5, 1.0}
    with pytest.raises(InvalidInputError, match="sample_weight"):
        model.stability(x, samples=2, sample_weight=weight[1:])


def test_strong_sets_are_stable():
    x = counts(n=400, p=5)
    found = fg.GeneralizedRootModel(k=2, alpha=0.05).stability(x, samples=6)
    assert max(found.values()) == 1.0
    assert list(found.values()) == sorted(found.values(), reverse=True)


@pytest.mark.slow
def test_a_report_tells_the_right_model_from_independence():
    x = counts(n=1500, p=5)
    joint = fg.GeneralizedRootModel(k=2, alpha=0.005, base="hurdle-negative-binomial", tol=1e-4)
    alone = fg.GeneralizedRootModel(k=1, base="hurdle-negative-binomial", tol=1e-4)
    good, poor = (model.fit(x).report(x, samples=1500) for model in (joint, alone))
    assert good.pairs.spearman < 0.5 * poor.pairs.spearman
    assert good.pairs.discrepancy < poor.pairs.discrepancy
    assert max(good.independent.p_value, poor.pairs.p_value) < 0.05
    assert not good.pairs.is_told_apart
    describes = "the model describes the dependence of columns {} than independent columns"
    assert (
        good.verdict
        == describes.format("better") + ", and its samples cannot be told from the data"
    )
    assert poor.verdict.startswith(
        describes.format("not clearly better") + ", and its samples can be told from the data"
    )
    np.testing.assert_allclose(good.samples["mean"], x.mean(axis=0), rtol=0.15)
    np.testing.assert_allclose(good.samples["zeros"], (x == 0).mean(axis=0), atol=0.05)
    assert len(str(good).splitlines()) == 11 + 2 + len(good.sets)
    assert report.spearman_difference(x, x) == 0.0
    rows = joint.supporting_rows(x, ("x0", "x1"), 3)
    assert x[rows[0], :2].prod() == x[:, :2].prod(axis=1).max()
    assert len(joint.supporting_rows(x, ("x0", "x1"))) == 5
    with pytest.raises(InvalidInputError, match="not a column"):
        joint.supporting_rows(x, ("x0", "y"))


def test_scores_and_names_follow_scikit_learn():
    x = counts(p=4)
    model = fg.GeneralizedRootModel(k=2, alpha=0.05).fit(x)
    assert model.score_samples(x).mean() / 4 == pytest.approx(model.score(x))
    assert model.get_feature_names_out().tolist() == ["x0", "x1", "x2", "x3"]


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("base", list(BASES))
@pytest.mark.parametrize("k", [1, 2])
def test_the_checks_of_scikit_learn_for_every_base(base, k):
    from sklearn.utils.estimator_checks import check_estimator

    expected = FRACTIONS if BASES[base].whole_numbers else {}
    check_estimator(
        fg.GeneralizedRootModel(k=k, base=base), on_skip=None, expected_failed_checks=expected
    )


def test_one_column_has_no_pairs_to_compare():
    one = np.arange(6.0)[:, None]
    assert report.spearman_difference(one, one[::-1]) == 0.0
    assert np.isnan(report.discrepancy_test(one, one, np.random.default_rng(0))[1])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("rows", "columns", "samples"), [(1, 3, 20), (9, 1, 20), (9, 3, 1)])
def test_a_comparison_of_one_row_or_column_has_no_verdict(rows, columns, samples):
    x = counts(n=rows, p=columns)
    found = fg.GeneralizedRootModel(k=1).fit(x).report(x, samples=samples)
    assert np.isnan(found.pairs.p_value)
    assert found.verdict == "a comparison needs two columns, and two rows of data and of samples"


def test_the_p_value_of_a_discrepancy_is_that_of_all_divisions(monkeypatch):
    """Against the definition: a kernel mean for each pair of columns, all divisions of the rows."""
    rng = np.random.default_rng(3)
    x, y = rng.poisson(1.0, (4, 3)), rng.poisson(3.0, (5, 3))
    pairs = list(map(list, itertools.combinations(range(3), 2)))

    def gaussian(u, v):
        return np.exp(-0.5 * ((u[:, None] - v[None]) ** 2).sum(axis=-1))

    def product(u, v):
        return np.outer(u.prod(axis=1), v.prod(axis=1))

    def squared(rows, kernel, inside):
        outside = [k for k in range(9) if k not in inside]
        return np.mean([
            np.mean([k[i, j] for i, j in itertools.permutations(inside, 2)])
            + np.mean([k[i, j] for i, j in itertools.permutations(outside, 2)])
            - 2 * k[np.ix_(inside, outside)].mean()
            for k in (kernel(rows[:, c], rows[:, c]) for c in pairs)
        ])  # fmt: skip

    both = np.concatenate([x, y])
    tables = (np.log1p(both) / np.log1p(x).std(axis=0), stats.zscore(stats.rankdata(both, axis=0)))
    divisions = list(map(list, itertools.combinations(range(9), 4)))
    values = np.array([
        [squared(rows, kernel, inside) for inside in divisions]
        for rows, kernel in zip(tables, (gaussian, product), strict=True)
    ])  # fmt: skip
    single = np.array([[(row >= value - 1e-12).mean() for value in row] for row in values])
    smallest = single.min(axis=0)
    monkeypatch.setattr(report, "PERMUTATIONS", 40_000)
    value, p = report.discrepancy_test(x * 1.0, y * 1.0, rng)
    assert value == pytest.approx(values[0, 0], abs=1e-12)
    assert p == pytest.approx(np.mean(smallest <= smallest[0]), abs=0.01)
    assert report.pair_discrepancy(x * 1.0, y * 1.0, rng) == pytest.approx(value, abs=1e-12)


def test_a_selection_prints_its_values():
    x = counts(p=4)
    for criterion, text in (("ebic", "EBIC"), ("cv", "held-out score")):
        found = fg.GeneralizedRootModel(k=2).select(x, 4, criterion=criterion)
        lines = str(found).splitlines()
        assert text in lines[0]
        assert [float(line.split()[0]) for line in lines[1:]] == pytest.approx(
            found.alphas, rel=1e-4
        )
        best = np.argmin(found.criterion) if criterion == "ebic" else np.argmax(found.criterion)
        assert [k for k, line in enumerate(lines[1:]) if line.endswith("chosen")] == [best]


@pytest.mark.parametrize("symmetrize", ["joint", "average"])
def test_a_path_finds_the_models_of_single_fits_with_fewer_evaluations(symmetrize, monkeypatch):
    x, done = counts(n=300, p=6), [0]
    derivatives = BASES["poisson"].derivatives

    def counted(self, eta):
        done[0] += len(eta)
        return derivatives(eta)

    monkeypatch.setattr(type(BASES["poisson"]), "derivatives", counted)
    model = fg.GeneralizedRootModel(k=3, symmetrize=symmetrize, tol=1e-7)
    alphas = 0.2 * 0.6 ** np.arange(8.0)
    models = model.path(x, alphas)
    along, done[0] = done[0], 0
    for found in models:
        alone = fg.GeneralizedRootModel(k=3, symmetrize=symmetrize, tol=1e-7, alpha=found.alpha)
        assert found.kkt_.max() <= 1e-7
        assert found.score(x) == pytest.approx(alone.fit(x).score(x), abs=1e-6)
    if symmetrize == "joint":
        assert along < 0.5 * done[0]


def test_a_set_that_no_resampled_fit_has_is_not_stable(monkeypatch):
    x = counts(n=100, p=3)
    model = fg.GeneralizedRootModel(k=2, alpha=0.01).fit(x)
    fit = fg.GeneralizedRootModel.fit
    monkeypatch.setattr(
        fg.GeneralizedRootModel, "fit",
        lambda self, x, **given: fit(self.set_params(alpha=1e6), x, **given),
    )  # fmt: skip
    sets = model.report(x, samples=20, bootstrap=2).sets
    assert any(found.value > 0 for found in sets)
    assert [found.stability for found in sets] == [0.0] * len(sets)


def correlated_counts(seed, rows, correlation):
    """Poisson counts of four columns, of which the first two and the last two are dependent."""
    covariance = np.kron(np.eye(2), [[1.0, correlation], [correlation, 1.0]])
    normal = np.random.default_rng(seed).multivariate_normal(np.zeros(4), covariance, size=rows)
    return stats.poisson.ppf(stats.norm.cdf(normal), 1.0)


def test_independence_is_told_from_dependence(monkeypatch):
    """A correlation of 0.3 in 150 rows is seen, as by the exact test of one pair; none is invented.

    Where columns are independent, the share of p-values below u is u, up to three standard errors.
    """
    monkeypatch.setattr(report, "PERMUTATIONS", 199)
    rng = np.random.default_rng(0)
    null, dependent = (
        np.array([
            report.independence_p_value(correlated_counts(seed, 150, correlation), rng)
            for seed in range(60)
        ])
        for correlation in (0.0, 0.3)
    )  # fmt: skip
    for u in (0.05, 0.25, 0.5, 0.75):
        assert abs(np.mean(null <= u) - u) < 3 * (u * (1 - u) / 60) ** 0.5
    alone = [
        min(stats.spearmanr(x[:, i], x[:, i + 1]).pvalue for i in (0, 2))
        for x in (correlated_counts(seed, 150, 0.3) for seed in range(60))
    ]
    assert np.mean(dependent < 0.05) >= np.mean(np.array(alone) < 0.05 / 6) - 0.05
    single = np.random.default_rng(1).poisson(1.0, (150, 40)) * 1.0
    single[:, 39] = single[:, 0]
    assert report.independence_p_value(single, rng) < 0.01


def test_samples_with_other_correlations_are_told_from_the_data(monkeypatch):
    """Equal columns, different correlations; and samples of the distribution of the data."""
    monkeypatch.setattr(report, "PERMUTATIONS", 199)
    rng = np.random.default_rng(0)
    other, same = (
        np.array([
            report.discrepancy_test(
                correlated_counts(seed, 150, 0.4), correlated_counts(seed + 100, 300, rho), rng
            )[1]
            for seed in range(30)
        ])
        for rho in (0.0, 0.4)
    )  # fmt: skip
    assert np.mean(other < 0.05) > 0.9
    assert np.mean(same < 0.05) < 0.05 + 3 * (0.05 * 0.95 / 30) ** 0.5


@pytest.mark.parametrize(("model", "alone", "gain", "verdict"), [
    (0.5, 0.5, 9, "the model fits; correlations between columns of the data are not significant"),
    (0.0, 0.5, 9, "the model does not fit; correlations between columns of the data are not signi"),
    (0.5, 0.0, 3, "the model describes the dependence of columns better than independent columns, "
     "and its samples cannot be told from the data"),
    (0.0, 0.0, 2.5, "the model describes the dependence of columns better than independent columns"
     ", but its samples can be told from the data"),
    (0.0, 0.0, 1, "the model describes the dependence of columns not clearly better than independe"
     "nt columns, and its samples can be told from the data"),
    (0.06, 0.5, 9, "the model fits; correlations between columns of the data are not significant; p"
     " = 0.06 is near 0.05, so another seed may"),
    (0.5, 0.0, -1, "the model describes the dependence of columns not clearly better than independ"
     "ent columns, but its samples cannot be told from the data"),
    (0.0, 0.0, -3, "the model describes the dependence of columns worse than independent columns, "
     "and its samples can be told from the data"),
])  # fmt: skip
def test_a_verdict_says_what_is_clear_and_why(model, alone, gain, verdict):
    x = np.arange(6.0)[:, None]
    for r_hat, base, dispersion in itertools.product(
        (1.0, 1.2, np.nan), ("poisson", "gaussian"), (1.0, 1.05, 1.5, np.nan)
    ):
        found = report.FitReport(
            ["a"], base, report._columns(x), report._columns(x),
            report.PairStatistics(0.1, 0.1, model), report.PairStatistics(0.1, 0.1, alone),
            report.WithError(gain * 0.01, 0.01), report.WithError(dispersion, 0.01), r_hat, [],
        )  # fmt: skip
        is_wide = base == "poisson" and dispersion == 1.5
        assert found.verdict.startswith(verdict)
        assert ("close (2.5 standard errors)" in found.verdict) == (gain == 2.5)
        assert ("vary 1.5 times as much as the base poisson allows" in found.verdict) == is_wide
        is_advised = is_wide or (base == "poisson" and model < 0.05)
        assert ("the base negative-binomial or hurdle-neg" in found.verdict) == is_advised
        assert ("the chains mix slowly" in found.verdict) == (r_hat > 1.1)
        assert ("R-hat nan" in str(found), "dispersion" in str(found).splitlines()[-2]) == (
            False, dispersion == dispersion,
        )  # fmt: skip


def rank_correlations(x):
    return stats.spearmanr(x).statistic[np.triu_indices(4, 1)]


def test_the_gain_in_rank_correlations_is_its_definition():
    """Against scipy's rank correlations."""
    x, y = correlated_counts(0, 150, 0.3), correlated_counts(1000, 600, 0.4)
    r, s, one, other = map(rank_correlations, (x, y, y[:300], y[300:]))
    gain = report.rank_gain(x, y, 5).value
    assert gain == pytest.approx(np.mean(2 * r * s - one * other), abs=1e-12)


@pytest.mark.slow
def test_the_error_of_the_gain_is_its_spread_over_tables_and_draws():
    pairs = [
        (correlated_counts(k, 150, 0.3), correlated_counts(1000 + k, 600, 0.4)) for k in range(80)
    ]
    found = [report.rank_gain(x, y, 5) for x, y in pairs]
    r, s = (
        rank_correlations(correlated_counts(0, 10**5, 0.3)),
        rank_correlations(correlated_counts(1, 10**5, 0.4)),
    )
    values, errors = np.array(found).T
    truth = np.mean(r**2 - (r - s) ** 2)
    assert abs(values.mean() - truth) < 3 * values.std() / 80**0.5
    assert np.mean(errors) == pytest.approx(values.std(), rel=0.2)
    slow = report.rank_gain(pairs[0][0], np.repeat(pairs[0][1], 5, axis=0), 25)
    assert slow.standard_error == pytest.approx(found[0].standard_error, rel=1e-3)


@pytest.mark.filterwarnings("ignore:1 column")
def test_the_dispersion_is_that_of_sums_over_counts():
    """A model of pairs with offsets: E and Var by summing exp(eta t(x)) / x! over 0, ..., 99."""
    x = counts(n=40, p=3).astype(float)
    x[:, 2] = 1.0
    shift = np.linspace(0.0, 0.3, 40)
    fitted = fg.GeneralizedRootModel(k=2, alpha=0.02).fit(x, offset=shift)
    theta, pair = fitted.parameters_.intercepts, fitted.parameters_.interactions[0]
    grid = np.arange(100.0)
    ratios = []
    for s in (0, 1):
        parts = np.zeros((40, 2))
        for i, row in enumerate(x):
            other = sum(
                value * row[next(t for t in members if t != s)] ** 0.5
                for members, value in zip(pair.sets.tolist(), pair.values, strict=True)
                if s in members
            )
            eta = theta[s] + [shift[i], other]
            law = np.exp(eta[0] * grid + eta[1] * grid**0.5 - special.gammaln(grid + 1))
            law /= law.sum()
            mean = law @ grid
            parts[i] = (row[s] - mean) ** 2, law @ (grid - mean) ** 2
        ratios.append(parts)
    expected = np.mean([p[:, 0].sum() / p[:, 1].sum() for p in ratios])
    excess = np.mean([(p[:, 0] - p[:, 1]) / p[:, 1].mean() for p in ratios], axis=0)
    wide = np.repeat(shift[:, None], 3, axis=1)
    found = report.dispersion(fitted.parameters_, x, wide)
    assert found.value == pytest.approx(expected, abs=1e-7)
    assert found.standard_error == pytest.approx(excess.std(ddof=1) / 40**0.5, abs=1e-7)
    assert fitted.report(x, offset=shift, samples=20).dispersion == found


def test_overdispersion_is_told_and_not_invented():
    rng, told = np.random.default_rng(4), {}
    means = np.array([1.2, 0.8, 2.0, 1.5])
    true = fg.GeneralizedRootModel(k=2, alpha=0.05).fit(correlated_counts(0, 1000, 0.4))
    for name, base, draw in [
        ("independent", "poisson", lambda: rng.poisson(means, (200, 4))),
        ("dependent", "poisson", lambda: true.gibbs(200, rng, chains=200, burn_in=50).values),
        ("wide", "poisson", lambda: rng.negative_binomial(1, 1 / (1 + means), (200, 4))),
        ("cured", "negative-binomial", lambda: rng.negative_binomial(1, 1 / (1 + means), (200, 4))),
    ]:
        tables = [draw().astype(float) for _ in range(6)]
        fits = [fg.GeneralizedRootModel(k=2, alpha=0.03, base=base).fit(x) for x in tables]
        found = [
            report.dispersion(model.parameters_, x, None)
            for model, x in zip(fits, tables, strict=True)
        ]
        told[name] = sum(bool(report.overdispersion(base, one)) for one in found)
    assert told == {"independent": 0, "dependent": 0, "wide": 6, "cured": 0}


@pytest.mark.parametrize("offset", [False, True])
def test_a_weight_in_a_report_is_a_number_of_copies(offset):
    x, weight = counts(n=200, p=3), np.random.default_rng(0).integers(0, 3, size=200)
    shift = 0.1 * np.arange(200) / 200 if offset else None
    copies = np.repeat(np.arange(200), weight)
    model = fg.GeneralizedRootModel(k=2, alpha=0.05).fit(x, sample_weight=weight, offset=shift)
    given = {"samples": 100, "bootstrap": 2, "rng": 1}
    found = model.report(x, sample_weight=weight, offset=shift, **given)
    expected = model.report(x[copies], offset=None if shift is None else shift[copies], **given)
    for one, other in ((found.data, expected.data), (found.samples, expected.samples)):
        assert {k: v.tolist() for k, v in one.items()} == {k: v.tolist() for k, v in other.items()}
    assert (found.pairs, found.independent) == (expected.pairs, expected.independent)
    assert [s.stability for s in found.sets] == [s.stability for s in expected.sets]
    assert all(weight[row] > 0 for own in found.sets for row in own.rows)
    uneven = report.copies_of_rows([0.5, 1.5, 0.0, 2.25], 4)  # shares 0.47, 1.41, 0, 2.12 of 4
    assert uneven.tolist() == [1, 1, 3, 3]
    with pytest.raises(InvalidInputError, match="sample_weight"):
        model.report(x, sample_weight=-weight, offset=shift)
