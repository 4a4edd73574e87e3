"""The fit: optimality, an independent solver, recovery, candidate sets, symmetrization."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse, stats

import fstgrad as fg
from fstgrad.grm import design, fitting
from fstgrad.grm.families import Poisson
from fstgrad.grm.kernels import descent
from fstgrad.grm.kernels import design as design_kernels
from fstgrad.grm.newton import NewtonSolver
from fstgrad.grm.parameters import Interactions, Parameters
from fstgrad.grm.sampling import gibbs
from tests.helpers.counts import coefficients, counts
from tests.oracles import grm as oracle

sklearn_base = pytest.importorskip("sklearn.base")


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
    model = fg.GeneralizedRootModel(symmetrize="average", k=k, alpha=alpha, tol=1e-8).fit(x)
    for node in range(4):
        fit = model.node_fits_[node]
        intercept, expected, objective = oracle.poisson_node(x, node, k, alpha)
        assert fit.objective == pytest.approx(objective, abs=1e-9)
        assert fit.intercepts[0] == pytest.approx(intercept, abs=1e-5)
        mine = coefficients(fit, model)
        for members, value in expected.items():
            assert mine.get(members, 0.0) == pytest.approx(value, abs=1e-5)
        assert any(value != 0 for value in expected.values())


@pytest.mark.parametrize("interactions", ["strongest", "all"])
def test_optimality_conditions_by_hand(interactions):
    x = counts()
    alpha = 0.02
    model = fg.GeneralizedRootModel(
        symmetrize="average", k=3, alpha=alpha, interactions=interactions
    ).fit(x)
    assert model.kkt_.max() <= 1e-6
    roots = [1, 2, 3] if interactions == "all" else [1]
    t = np.arange(60.0)[:, None] ** (1 / np.arange(1, 4))
    for node in range(5):
        fit = model.node_fits_[node]
        found = oracle.columns(x, node, 3, every=interactions == "all")
        mine = coefficients(fit, model)
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
    model = fg.GeneralizedRootModel(
        symmetrize="average", k=2, base="gaussian", alpha=1e-7, tol=1e-8
    ).fit(x)
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
        assert model.parameters_.flat.values.size
        assert model.score(x) > independent.score(x)


@pytest.mark.parametrize("interactions", ["strongest", "all"])
def test_working_sets_give_the_fit_on_all_columns(interactions):
    x = counts()
    fits = [
        fg.GeneralizedRootModel(
            symmetrize="average", k=3, alpha=0.03, interactions=interactions, screening=screening
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
        (Poisson(),) * 10,
        3,
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


@pytest.mark.slow
def test_a_sampled_model_is_recovered_better_with_more_data():
    few, many = support_f1(200), support_f1(3000)
    assert few < 0.9 <= many


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


@pytest.mark.parametrize("in_matrices", [False, True])
def test_quadratic_descent_is_the_minimum_of_its_model(in_matrices):
    # two nodes; parameters 0-1 are their intercepts, 2-4 act on one node, 5 is tied to both
    rng = np.random.default_rng(5)
    n, c = 30, 2
    z = rng.normal(size=(n, 5)) * (rng.random((n, 5)) < 0.6)
    csc = sparse.csc_matrix(z)
    rows = np.concatenate([np.arange(n), csc.indices]).astype(np.int64)
    values = np.concatenate([np.ones(n), csc.data])
    ends = n + csc.indptr.astype(np.int64)
    slot_node, slot_root = np.array([0, 1, 0, 0, 1, 0, 1]), np.array([0, 0, 0, 1, 1, 1, 1])
    slots = design_kernels.SparseDesign(
        np.array([0, 1, 2, 3, 4, 5, 7]), slot_node, slot_root,
        np.array([0, 0, *ends[:5]]), np.array([n, n, *ends[1:]]), rows, values,
    )  # fmt: skip
    dense = np.concatenate([np.ones((n, 2)), z], axis=1)
    owner = np.array([0, 1, 2, 3, 4, 5, 5])
    square = rng.normal(size=(2, n, c, c))
    hessian = square @ square.transpose(0, 1, 3, 2) + 0.1 * np.eye(c)
    gradient, coef = rng.normal(size=6), rng.normal(size=6) * (rng.random(6) < 0.5)
    penalty = np.array([0.0, 0.0, 0.2, 0.2, 0.2, 0.4])
    blocks = np.array([[0], [1]])
    ridge = np.array([0.3, 0.2, 0.0, 0.0, 0.1, 0.0])
    inverses = 1.0 / (hessian.mean(axis=1)[:, :1, :1] + ridge[:2, None, None])
    place, first = np.array([0, 4, 1, 2, 5, 3, 6]), 4 * slot_node
    last, start = np.array([4, 7])[slot_node], np.array([0, 16, 4, 8, 19, 12, 22])
    entries = np.empty(25 if in_matrices else 0)
    if in_matrices:
        descent.fill_matrix(slots, np.array([0, 2, 3, 5]), hessian[0], entries[:16])
        descent.fill_matrix(slots, np.array([1, 4, 6]), hessian[1], entries[16:])
    model = descent.Quadratic(
        hessian,
        gradient,
        penalty,
        ridge,
        coef,
        blocks,
        np.ascontiguousarray(inverses),
        descent.NormalMatrices(place, first, last, start, entries),
    )
    d, done = descent.quadratic_descent(slots, model, 1e-12, 1e-12, 10_000)
    assert done
    full = np.zeros((6, 6))
    for a in range(7):
        for b in range(7):
            if slot_node[a] == slot_node[b]:
                h = hessian[slot_node[a], :, slot_root[a], slot_root[b]]
                full[owner[a], owner[b]] += (dense[:, a] * h * dense[:, b]).mean()
    counts = np.array([[(dense[i, slot_node == s] != 0).sum() for i in range(n)] for s in (0, 1)])
    assert (
        descent.count_products(slots, np.argsort(slot_node, kind="stable"), n) == (counts**2).sum()
    )
    np.testing.assert_allclose(
        design_kernels.hessian_product(slots, hessian, d), full @ d, atol=1e-13
    )
    slope = gradient + full @ d + ridge * d
    now = coef + d
    active = now != 0
    np.testing.assert_allclose(slope[active], -(penalty * np.sign(now))[active], atol=1e-9)
    assert (np.abs(slope[~active]) <= penalty[~active] + 1e-9).all()
    expected = np.bincount(owner, dense.mean(axis=0))
    np.testing.assert_allclose(
        design_kernels.gradients(slots, np.ones((2, n, c))), expected, atol=1e-14
    )


@pytest.mark.filterwarnings("ignore:base 'gaussian' has mean 0")
def test_correlated_columns_are_solved():
    # values near 100: x_0^2, x_0 x_1 and 1 are all but proportional
    x = 100 + np.random.default_rng(6).normal(size=(80, 2))
    model = fg.GeneralizedRootModel(symmetrize="average", k=2, base="gaussian", tol=1e-4).fit(x)
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


def test_variances_of_statistics_are_weighted():
    rng = np.random.default_rng(0)
    observed, weights = rng.normal(size=(3, 50, 2)) + 5.0, rng.uniform(0.5, 2.0, size=50)
    means = np.average(observed, axis=1, weights=weights)
    solver = SimpleNamespace(observed=observed, weights=weights, means=means)
    expected = np.average((observed - means[:, None]) ** 2, axis=1, weights=weights)
    found = NewtonSolver.variances.func(solver)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_gaussian_base_says_that_its_mean_is_zero():
    x = np.random.default_rng(0).normal([100, 0, -0.05], [1, 2, 1], size=(200, 3))
    model = fg.GeneralizedRootModel(k=2, base="gaussian", alpha=0.2)
    said = r"1 column\(s\) of X have not, the first is 0 \(mean 99.9, standard deviation 1.0"
    for data, more in ((x, {}), (np.repeat(x, 2, axis=0), {"sample_weight": [1, 2] * 200})):
        with pytest.warns(UserWarning, match=said):
            model.fit(data, **more)
    assert len(model.fit(x - x.mean(axis=0)).top_interactions(2, 3)) == 0  # no warning


@pytest.mark.parametrize("mean", [3_000, 5_000, 100_000])
@pytest.mark.parametrize("hurdle", ["", "hurdle-"])
def test_large_counts_that_vary_little(mean, hurdle):
    """A negative binomial law of size 1,000: the model is near the law, whose log p is SciPy's.

    The ridge moves the mean of a Poisson distribution by 0.001 log m.
    """
    rng = np.random.default_rng(0)
    x = rng.poisson(mean * rng.gamma(1000, 1e-3, size=(200, 1)))
    model = fg.GeneralizedRootModel(k=1, base=f"{hurdle}negative-binomial").fit(x)
    law = model.families_[0].inner if hurdle else model.families_[0]
    r, m = law.dispersion, law.law_mean
    expected = stats.nbinom.logpmf(x, r, r / (r + m)).mean()
    assert model.score(x) == pytest.approx(expected, abs=0.01)
    assert model.node_conditional(0, x[0]).mean() == pytest.approx(x.mean(), rel=1e-3)
    hurdle = fg.GeneralizedRootModel(k=1, base="hurdle-poisson").fit(x)
    assert hurdle.node_conditional(0, x[0]).mean() == pytest.approx(x.mean(), abs=0.02)


@pytest.mark.parametrize("mean", [100, 400_000])
def test_negative_binomial_laws_end_near_the_poisson_distribution(mean):
    """At the largest r, 100 m, the variance m + m^2 / r is 1 percent above that of Poisson."""
    x = np.random.default_rng(0).poisson(mean, size=(200, 1))
    score = fg.GeneralizedRootModel(k=1, base="negative-binomial").fit(x).score(x)
    assert score == pytest.approx(stats.poisson.logpmf(x, x.mean()).mean(), abs=2e-3)
