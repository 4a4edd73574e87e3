"""Cases that once failed: stalled solvers, wide sums, sums that stopped early, silent models."""

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import gammaln, logsumexp

import fstgrad as fg
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.grm import families, log_moments, measures, newton, partition
from fstgrad.grm.blocks import binomials
from fstgrad.grm.conditionals import NodeConditional
from fstgrad.grm.kernels import counts
from fstgrad.grm.kernels.counts import empty_moments
from fstgrad.grm.kernels.sampling import draw_count
from fstgrad.grm.log_moments import log_moment
from fstgrad.grm.normalization import _negative_quotient
from fstgrad.grm.sampling import gibbs
from tests.helpers.counts import parameters

pytest.importorskip("sklearn")


@pytest.mark.parametrize("mean", [50, 100])
def test_zero_inflated_columns_are_solved(mean):
    rng = np.random.default_rng(0)
    x = rng.poisson(mean, (400, 2)) * (rng.random((400, 2)) < 0.5)
    model = fg.GeneralizedRootModel(k=2, alpha=1e-3, interactions="all", tol=1e-5)
    assert model.fit(x).kkt_.max() <= 1e-5


@pytest.mark.parametrize("symmetrize", ["joint", "average"])
def test_genes_with_means_of_thousands_are_solved(symmetrize):
    rng = np.random.default_rng(0)
    depth = rng.gamma(8, 1 / 8, (200, 1))
    x = rng.poisson(depth * rng.gamma(20, 1 / 20, (200, 3)) * [6000, 10_000, 14_000])
    model = fg.GeneralizedRootModel(k=2, alpha=0.01, symmetrize=symmetrize).fit(x)
    assert model.kkt_.max() <= 1e-6
    assert np.isfinite(model.pseudo_log_likelihood(x)).all()  # was NaN at such means
    assert model.sample(4, 0).shape == (4, 3)  # modes above 20,000 were refused


@pytest.mark.parametrize("eta", [[100.0], [100.0, 0.3], [60.0, -2.0, 1.0]])
def test_huge_means_have_values(eta):
    interval = families.Poisson().log_partition(eta)
    assert interval.value == pytest.approx(np.exp(eta[0]), rel=1e-9)
    assert interval.lower <= interval.value <= interval.upper
    assert np.isfinite(families.Poisson().hessian(eta)).all()


@pytest.mark.parametrize(
    "base, eta",
    [(families.Poisson(), [800.0]), (families.Exponential(), [-1e-30, 1.0])],
)
def test_sums_beyond_floats_are_refused(base, eta):
    with pytest.raises(InvalidInputError, match="direct sum"):
        base.log_partition(eta)


def test_gaussian_bounds_reach_a_tolerance_in_few_rounds(monkeypatch):
    rounds, cuts = [], log_moments._cuts
    monkeypatch.setattr(log_moments, "_cuts", lambda *given: (rounds.append(1), cuts(*given))[1])
    eta = np.array([-8.0, 15.0, -20.0, 11.0])
    interval = families.Gaussian().log_partition(eta, method="bounds", tolerance=1e-3)
    assert interval.upper - interval.lower <= 1e-3
    assert len(rounds) < 100  # one piece at a time it was thousands


def test_an_exact_sum_sees_the_far_mode():
    # x_0 has half of its mass at 0 and half near 300, beyond the boxes of 64 and 128 counts
    model = parameters("poisson", [[6.687, -34.05], [0.0, 0.0]], ((2, 2), {(0, 1): 0.01}))
    found = partition.log_partition(model, "exact", samples=2, steps=1, rng=0)
    counts = np.arange(900.0)
    base, roots = families.Poisson().log_base(counts), np.sqrt(counts)
    left = base + 6.687 * counts - 34.05 * roots
    total = left[:, None] + base[None, :] + 0.01 * roots[:, None] * roots[None, :]
    assert found.exact
    assert found.value == pytest.approx(np.logaddexp.reduce(total.ravel()), rel=1e-12)
    assert partition._box_sum(model, 64, 1) == pytest.approx(partition._box_sum(model, 128, 1))
    assert found.value > partition._box_sum(model, 128, 1) + 1.0


def test_a_sum_that_cannot_be_bounded_is_not_exact():
    model = parameters("poisson", [[0.0, 0.0], [0.0, 0.0]], ((2, 2), {(0, 1): 30.0}))
    with pytest.raises(InvalidInputError, match="ais"):
        partition.log_partition(model, "exact", samples=2, steps=1, rng=0)


def test_a_loaded_model_knows_the_columns_of_its_frame(tmp_path):
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(0).poisson(1.0, (80, 3))
    frame = pandas.DataFrame(x, columns=["a", "b", "c"])
    model = fg.GeneralizedRootModel(k=2, alpha=0.05).fit(frame)
    model.save(tmp_path / "model.npz")
    loaded = fg.GeneralizedRootModel.load(tmp_path / "model.npz")
    assert loaded.score(frame) == model.score(frame)
    with pytest.raises(InvalidInputError, match="feature names"):
        loaded.score(frame[["c", "a", "b"]])


@pytest.mark.parametrize("rate", [3.0, 4e5, 1.6e8])
@pytest.mark.parametrize("deviations", [-30.0, -6.0, 0.0, 6.0, 30.0])
def test_bounds_of_poisson_pieces_hold(rate, deviations):
    from scipy.stats import norm

    left = max(1.0, np.floor(rate + deviations * np.sqrt(rate)))
    measure = measures.PoissonMeasure(np.log([[rate]]))
    row, zero = np.zeros(1, dtype=np.int64), np.zeros(1)
    low, high = measure.log_mass(row, np.array([left]), np.array([np.inf]), zero)
    assert low[0] <= high[0]
    # term by term from the largest count on that matters
    first = max(left, np.floor(rate - 40 * np.sqrt(rate)), 1.0)
    x = first + np.arange(0, 80 * np.sqrt(rate) + 200, max(1.0, np.sqrt(rate) / 2e4))
    step = x[1] - x[0]
    exact = np.logaddexp.reduce(measure.log_term(np.zeros(x.size, dtype=np.int64), x))
    if step == 1.0:
        assert low[0] <= exact + 1e-9 * (1 + abs(exact))
        assert exact - 1e-9 * (1 + abs(exact)) <= high[0]
    else:  # a normal law is good to a thousandth there
        normal = rate + norm.logsf((left - 0.5 - rate) / np.sqrt(rate))
        assert low[0] <= normal + 0.05
        assert normal - 0.05 <= high[0]


def test_a_model_without_normalizer_is_announced_and_not_sampled():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(10, 8)) + 3 * rng.normal(size=(10, 1))
    settings = {"k": 2, "base": "gaussian", "alpha": 1e-3, "tol": 1e-2}
    with pytest.warns(UserWarning, match="no normalizer"):
        model = fg.GeneralizedRootModel(**settings, symmetrize="max").fit(x)
    assert fg.GeneralizedRootModel(**settings).fit(x).is_normalizable()
    assert not model.is_normalizable()
    with pytest.raises(InfeasibleError, match="no normalizer"):
        model.sample(3, 0)
    with pytest.raises(InfeasibleError):
        model.log_partition("ais", samples=4, steps=2)


def test_few_effective_samples_are_announced():
    model = parameters("poisson", [[0.5, 0.0]] * 4, ((2, 2), {(0, 1): 1.5, (2, 3): 1.5}))
    with pytest.warns(UserWarning, match="effective samples"):
        partition.annealed(model, samples=40, steps=1, rng=0)


@pytest.mark.parametrize(
    "base",
    [families.NegativeBinomial(3.0, 0.5), families.Hurdle(families.NegativeBinomial(800.0, 2.0)),
     families.Hurdle(families.Poisson()), families.Bernoulli(),
     families.FiniteCounts(lambda x: -0.1 * x, largest=30, scale="log")],
    ids=lambda b: b.name,
)  # fmt: skip
@pytest.mark.parametrize("k", [1, 2, 3])
def test_sums_of_count_families_are_plain_sums(base, k):
    rng = np.random.default_rng(k)
    eta = rng.uniform(-0.5, 0.3, size=k + base.num_extra)
    x = np.arange(1.0 + (len(base.log_measure) - 1 if hasattr(base, "log_measure") else 60_000))
    t = base.statistics(x, k)
    height = t @ eta + base.log_base(x)
    value = np.logaddexp.reduce(height)
    p = np.exp(height - value)
    mean = p @ t
    assert base.log_partition(eta).value == pytest.approx(value, rel=1e-11, abs=1e-11)
    np.testing.assert_allclose(base.gradient(eta), mean, rtol=1e-9, atol=1e-11)
    expected = (t - mean).T @ (p[:, None] * (t - mean))
    np.testing.assert_allclose(base.hessian(eta), expected, rtol=1e-7, atol=1e-9)
    assert base.mean(eta) == pytest.approx(p @ x, rel=1e-9)


def test_draws_of_wide_counts_follow_their_law():
    base = families.NegativeBinomial(5000.0, 2.0)
    model = parameters("poisson", [[0.0]])
    model = type(model)((base,), 1, np.zeros((1, 1)), ())
    draws = gibbs(model, 5000, 0, burn_in=0, thin=1, chains=5000).values[:, 0]
    from scipy.stats import kstest, nbinom

    assert (draws == np.floor(draws)).all()
    assert kstest(draws, nbinom(2.0, 2.0 / 5002.0).cdf).pvalue > 1e-4


@pytest.mark.parametrize(
    "base, eta, law",
    [
        (families.Poisson(), np.log(1e5), stats.poisson(1e5)),
        (families.NegativeBinomial(5e6, 2.0), 0.0, stats.nbinom(2.0, 2.0 / 5_000_002.0)),
    ],
)
def test_draws_within_the_panels_of_a_table_are_quantiles(base, eta, law):
    table, moments, heights = base.table(1), empty_moments(1), np.empty(counts.NODES)
    uniforms = (np.arange(400) + 0.5) / 400
    draws = np.array([draw_count(np.array([eta]), table, moments, heights, u) for u in uniforms])
    missed = np.maximum(law.cdf(draws - 1) - uniforms, uniforms - law.cdf(draws))
    assert missed.max() < 1e-5


@pytest.mark.parametrize("eta", [(9.0, -109.20265185602602), (10.5, -231.1715679321049)])
def test_draws_of_two_modes_far_apart_follow_their_law(eta):
    """Counts near zero and counts above 8,000 share the mass; none lies in the valley between."""
    table = families.Poisson().table(2)
    uniforms = (np.arange(400) + 0.5) / 400
    moments, heights = empty_moments(2), np.empty(counts.NODES)
    draws = [draw_count(np.array(eta), table, moments, heights, u) for u in uniforms]
    x = np.arange(200_000)
    log_weights = eta[0] * x + eta[1] * np.sqrt(x) - gammaln(x + 1)
    cdf = np.cumsum(np.exp(log_weights - logsumexp(log_weights)))
    assert 0.1 < cdf[1000] < 0.9
    np.testing.assert_allclose(draws, np.searchsorted(cdf, uniforms), atol=2)


def test_one_piece_of_the_line_bounds_the_integral():
    lower, upper = log_moment(families.Exponential().integrands(np.array([[-2.0]]), 0.0), domains=1)
    assert lower[0] <= -np.log(2.0) <= upper[0]


def test_sparse_and_dense_agree_for_every_base():
    x = np.random.default_rng(0).poisson(0.8, (120, 4))
    for base in ("negative-binomial", "hurdle-poisson", "bernoulli"):
        models = [
            fg.GeneralizedRootModel(k=2, base=base, alpha=0.02, tol=1e-5).fit(data)
            for data in (x, sparse.csr_matrix(x))
        ]
        assert models[0].score(x) == pytest.approx(models[1].score(sparse.csr_matrix(x)), abs=1e-12)


def test_penalties_and_folds_of_tables_without_effects():
    """A path has no steps where no two columns vary, and a fold has no rows if there are few."""
    for x, weights in ((np.zeros((5, 3)), None), (np.eye(3), [1, 0, 0]), ([[1, 2, 3]], None)):
        model = fg.GeneralizedRootModel(k=2)
        for call in (model.path, model.select):
            with (
                pytest.warns(UserWarning, match="constant"),
                pytest.raises(InvalidInputError, match="no effect"),
            ):
                call(np.array(x), 3, sample_weight=weights)
    x = np.random.default_rng(0).poisson(1.0, (3, 3))
    with pytest.raises(InvalidInputError, match=r"3 row\(s\)"):
        model.select(x, [0.1], criterion="cv", folds=4)
    with pytest.raises(InvalidInputError, match="halves"):
        model.stability(x[:1], samples=2)


def test_a_node_reads_counts_above_0_as_present():
    x = np.random.default_rng(0).poisson(1.0, (80, 3))
    model = fg.GeneralizedRootModel(k=2, base="bernoulli", alpha=0.02).fit(x)
    for row, expected in zip(x[:20], model.score_samples(x[:20]), strict=True):
        nodes = [model.node_conditional(s, row).log_prob(row[s]) for s in range(3)]
        assert sum(nodes) == pytest.approx(expected, abs=1e-12)
    for value in (-1, 0.5):
        with pytest.raises(InvalidInputError, match="bernoulli"):
            model.node_conditional(0, [0, value, 2])


@pytest.mark.parametrize(
    "base",
    [*families.BASES, families.FiniteCounts(np.zeros(40)), families.NegativeBinomial(1.0, 2.0)],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:base 'gaussian' has mean 0")
def test_models_of_every_base_are_saved(base, tmp_path):
    x = np.random.default_rng(0).poisson(1.0, (60, 3))
    settings = {"k": 2, "base": base, "alpha": 0.05, "tol": 1e-3}
    model = fg.GeneralizedRootModel(**settings, checkpoint=tmp_path / "kept.npz").fit(x)
    assert fg.GeneralizedRootModel(**settings, checkpoint=tmp_path / "kept.npz").fit(x)
    model.save(tmp_path / "model.npz")
    loaded = fg.GeneralizedRootModel.load(tmp_path / "model.npz")
    assert loaded.score(x) == model.score(x)
    assert loaded.families_ == model.families_


def test_masked_values_are_refused():
    x = np.random.default_rng(0).poisson(1.0, (30, 3))
    masked = np.ma.masked_array(x, x > 2)
    for given in (masked, list(masked)):
        with pytest.raises(InvalidInputError, match=r"X.* has masked entries; fill them"):
            fg.GeneralizedRootModel(k=2).fit(given)


@pytest.mark.parametrize("largest", [0, 10, 589_826, 1_000_000])
def test_the_work_of_a_fit_does_not_grow_with_the_largest_count(monkeypatch, largest):
    """Coefficients that have no curvature, for a count is 0 for certain, stalled every step."""
    x = np.array([[2, 1, 0], [0, 1, 0], [0, 1, 0], [1, 1, 1], [0, 2, 2], [3, 2, 1], [3, 3, 3],
                  [3, 0, 2], [1, 1, 2], [1, largest, 0], [1, 0, 2], [0, 0, 1]])  # fmt: skip
    states, evaluate = [], newton.NewtonSolver._state

    def counted(*arguments):
        states.append(evaluate(*arguments))
        return states[-1]

    monkeypatch.setattr(newton.NewtonSolver, "_state", counted)
    model = fg.GeneralizedRootModel(k=2, base="poisson", alpha=0.1).fit(x)
    assert model.kkt_.max() <= model.tol
    assert len(states) < 400  # 100 scans of 200 steps each


def test_counts_are_added_one_by_one_near_the_highest_only(monkeypatch):
    """Panels on the way up to the mode bend, and are negligible beside it."""
    added = []
    monkeypatch.setattr(counts, "add_counts", lambda *arguments: added.append(arguments[2]))
    table, moments = families.Poisson().table(2), empty_moments(2)
    room = np.empty(counts.NODES)
    counts.sum_counts(np.array([350.0, -57_213.0]), table, room, moments)
    assert len(added) <= 20  # of 2,000 panels, half a million counts


def test_a_law_that_is_given_is_not_fitted():
    base = families.NegativeBinomial(3.0, 0.5)
    assert base.fitted_to(np.array([1.0, 5.0, 9.0])) is base
    assert families.NegativeBinomial(3.0).fitted_to(np.array([1.0, 5.0, 30.0])).dispersion > 0
    hurdle = families.Hurdle(families.NegativeBinomial()).fitted_to(np.array([0.0, 1.0, 5.0, 30.0]))
    assert hurdle.inner.law_mean > 0


def test_draws_of_a_conditional_with_many_zeros_have_its_mean():
    base = families.Hurdle(families.NegativeBinomial(3.0, 0.5))
    conditional = NodeConditional(base, np.array([0.1, -0.5, 1.0]))  # two powers and 1[x = 0]
    draws = conditional.sample(20_000, 0)
    assert draws.mean() == pytest.approx(conditional.mean(), abs=5 * draws.std() / 20_000**0.5)
    zero = float(np.exp(conditional.log_prob(0.0)))
    assert (draws == 0).mean() == pytest.approx(zero, abs=5 * 0.5 / 20_000**0.5)


def test_directions_of_any_spread_have_a_growth():
    model = parameters("poisson", [[1.0], [2.0]])
    value, gradient = _negative_quotient(np.array([0.0, 800.0]), model, np.ones(2))
    assert value == pytest.approx(-2.0, rel=1e-12)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-12)


def test_counts_beyond_the_largest_are_refused():
    model = fg.GeneralizedRootModel(k=2, alpha=1.0)
    with pytest.raises(InvalidInputError, match="up to 1,000,000"):
        model.fit(np.array([[1_000_001.0, 2.0], [3.0, 4.0], [0.0, 1.0]]))


def test_numbers_of_sets_and_inverses_of_blocks():
    assert binomials(20, 5)[20].tolist() == [1, 20, 190, 1140, 4845, 15504]
    with pytest.raises(InvalidInputError, match="use fewer features"):
        binomials(10_000, 6)
    matrices = np.array([[[2.0, 1.0], [1.0, 3.0]], [[4.0, 0.0], [0.0, 0.0]]])
    np.testing.assert_allclose(
        newton._inverses(matrices),
        [[[0.6, -0.2], [-0.2, 0.4]], [[0.25, 0.0], [0.0, 0.0]]],
        atol=1e-14,
    )
