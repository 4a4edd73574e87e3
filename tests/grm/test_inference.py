"""A model's answers against sums over boxes of counts and closed forms."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.grm import conditionals, families, normalization, partition
from fstgrad.grm.calibration import calibrate
from fstgrad.grm.kernels.sampling import CELLS, draw_table, stack_tables, table_of
from fstgrad.grm.normalization import is_normalizable
from fstgrad.grm.sampling import gibbs, one_each
from tests.helpers.counts import parameters
from tests.oracles import grm as oracle


def small_counts():
    """p = 3, k = 3: two pairs and the triple, one pair through the cube root."""
    return parameters(
        "poisson",
        [[-0.2, 0.1, 0.0], [-0.5, 0.0, 0.0], [0.1, 0.0, -0.1]],
        ((2, 2), {(0, 1): 0.5, (1, 2): -0.6}),
        ((3, 3), {(0, 1, 2): 0.4}),
        ((2, 3), {(0, 2): 0.2}),
    )


PAIRS = {(2, (0, 1)): 0.5, (2, (1, 2)): -0.6, (3, (0, 1, 2)): 0.4, (3, (0, 2)): 0.2}


def enumerated(size=30):
    return oracle.count_table(small_counts().intercepts, PAIRS, size)


def test_potential_is_the_sum_over_sets():
    model = small_counts()
    x = np.array([[0, 0, 0], [1, 2, 3], [5, 0, 2], [0, 7, 1]], dtype=float)
    expected = [oracle.potential("poisson", model.intercepts, PAIRS, row) for row in x]
    np.testing.assert_allclose(model.log_potential(x), expected, rtol=1e-13)


@pytest.mark.parametrize("base", ["exponential", "gaussian"])
def test_potential_of_the_other_bases(base):
    model = small_counts()
    model = replace(model, families=(families.BASES[base],) * 3)
    x = np.random.default_rng(0).normal(size=(5, 3))
    x = np.abs(x) if base == "exponential" else x
    expected = [oracle.potential(base, model.intercepts, PAIRS, row) for row in x]
    np.testing.assert_allclose(model.log_potential(x), expected, rtol=1e-12, atol=1e-13)


def test_node_conditionals_are_those_of_the_joint():
    box, probability, _ = enumerated()
    model = small_counts()
    rng = np.random.default_rng(0)
    for node in range(3):
        x = rng.integers(0, 6, size=3).astype(float)
        same = np.all(np.delete(box, node, 1) == np.delete(x, node), axis=1)
        expected = probability[same] / probability[same].sum()
        found = conditionals.node_conditional(model, node, x)
        counts = box[same][:, node]
        np.testing.assert_allclose(np.exp(found.log_prob(counts)), expected, rtol=1e-9, atol=1e-14)
        assert found.mean() == pytest.approx(expected @ counts, rel=1e-9)
        each = model.conditional_log_likelihoods(x[None, :])[0, node]
        assert each == pytest.approx(np.log(expected[int(x[node])]), abs=1e-10)


def test_draws_along_a_ray_of_counts_have_the_law_of_the_model_given_the_ray():
    model = small_counts()
    ray = conditionals.radial_conditional(model, [2.0, 0.0, 4.0])
    drawn = ray.sample(20_000, rng=0)
    points = np.arange(40.0)[:, None] * [1.0, 0.0, 2.0]
    p = np.exp(model.log_potential(points))
    p /= p.sum()
    np.testing.assert_array_equal(drawn[:, 2], 2 * drawn[:, 0])
    found = np.bincount(drawn[:, 0].astype(int), minlength=40) / len(drawn)
    assert np.abs(found - p[: found.size]).max() < 5 * np.sqrt(0.25 / len(drawn))
    with pytest.raises(InvalidInputError, match="whole numbers"):
        conditionals.radial_conditional(model, [0.5, 1.0, 0.0]).sample(1)


def test_draws_along_a_ray_reach_every_probable_count():
    """Along an axis of independent counts, draws are Poisson, wherever the mode is."""
    for rate in (100.0, 5_000.0):
        model = replace(
            small_counts(),
            interactions=(),
            intercepts=np.outer([np.log(rate), 0.0, 0.0], [1, 0, 0]),
        )
        z = conditionals.radial_conditional(model, [1.0, 0.0, 0.0]).sample(20_000, rng=0)[:, 0]
        assert z.mean() == pytest.approx(rate, abs=5 * np.sqrt(rate / z.size))
        assert z.var() == pytest.approx(rate, rel=5 * np.sqrt(2 / z.size))


def test_draws_along_a_ray_of_reals_have_its_moments():
    model = replace(
        small_counts(), families=(families.BASES["exponential"],) * 3, interactions=(),
        intercepts=np.outer([-1.0, -2.0, -1e-6], [1.0, 0.0, 0.0]),
    )  # fmt: skip
    z = conditionals.radial_conditional(model, [1.0, 0.5, 0.0]).sample(40_000, rng=0)[:, 0]
    assert z.mean() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(z.size))
    assert z.std() == pytest.approx(0.5, rel=0.05)
    far = conditionals.radial_conditional(model, [0.0, 0.0, 1.0]).sample(40_000, rng=0)[:, 2]
    assert far.mean() == pytest.approx(1e6, rel=0.03)
    grows = replace(model, intercepts=-model.intercepts)
    with pytest.raises(InfeasibleError, match="normalizer"):
        conditionals.radial_conditional(grows, [1.0, 0.0, 0.0]).sample(1)


def test_rays_are_the_potential_along_a_direction():
    for base, v in (("poisson", [1.0, 2.0, 0.5]), ("gaussian", [1.0, -2.0, 0.5])):
        model = replace(small_counts(), families=(families.BASES[base],) * 3)
        ray = conditionals.radial_conditional(model, v)
        for z in (1.0, 2.0, 4.0):
            expected = model.log_potential(z * np.array(v)[None, :])[0]
            assert ray.log_density(z) == pytest.approx(expected, rel=1e-12)
        assert (np.diff(ray.exponents) < 0).all()
    with pytest.raises(InvalidInputError, match="direction"):
        conditionals.radial_conditional(small_counts(), np.zeros(3))
    with pytest.raises(InvalidInputError, match="negative"):
        conditionals.radial_conditional(small_counts(), [1.0, -1.0, 0.0])


def test_samples_follow_the_joint():
    box, probability, _ = enumerated()
    draws = gibbs(small_counts(), 8000, 1, burn_in=50, thin=3, chains=200)
    number = {tuple(x): i for i, x in enumerate(box.tolist())}
    counts = np.zeros(len(box))
    for row in draws.values.astype(int).tolist():
        counts[number[tuple(row)]] += 1
    expected = probability * len(draws.values)
    small = expected < 20
    observed = np.append(counts[~small], counts[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    chi2 = ((observed - expected) ** 2 / expected).sum()
    degrees = len(observed) - 1
    assert chi2 < degrees + 6 * np.sqrt(2 * degrees)
    assert (draws.r_hat < 1.05).all()
    assert (draws.effective > 800).all()


@pytest.mark.filterwarnings("ignore:base 'gaussian' has mean 0")
def test_draws_of_chains_that_have_not_mixed_warn():
    """Three columns that are almost one."""
    rng = np.random.default_rng(0)
    x = 5 + rng.normal(size=(400, 1)) + 0.02 * rng.normal(size=(400, 3))
    model = fg.GeneralizedRootModel(k=2, alpha=1e-6, base="gaussian", interactions="all").fit(x)
    with pytest.warns(UserWarning, match="have not mixed: the largest R-hat is 2"):
        model.sample(1000, rng=0)


def test_samples_repeat_with_the_seed():
    first, second = (gibbs(small_counts(), 7, 3, burn_in=5, thin=1, chains=2) for _ in range(2))
    np.testing.assert_array_equal(first.values, second.values)
    assert first.values.shape == (7, 3)


@pytest.mark.parametrize(
    "base, eta", [("exponential", [-1.0, 1.5, -0.5]), ("gaussian", [-0.6, 0.8, 0.7])]
)
def test_continuous_draws_have_the_moments(base, eta):
    node = conditionals.NodeConditional(families.BASES[base], np.array(eta))
    draws = node.sample(6000, 0)
    t = node.base.statistics(draws, 3)
    mean, covariance = node.base.gradient(eta), node.base.hessian(eta)
    error = np.sqrt(np.diag(covariance) / len(draws))
    assert (np.abs(t.mean(axis=0) - mean) < 5 * error).all()
    assert np.mean(np.exp(node.log_prob(draws[:100]))) > 0


def test_log_partition_of_small_counts():
    _, _, log_z = enumerated()
    exact = partition.log_partition(small_counts(), "auto", samples=2, steps=1, rng=0)
    assert exact.exact
    assert exact.value == pytest.approx(log_z, abs=1e-10)
    sampled = partition.annealed(small_counts(), samples=6000, steps=5, rng=0)
    assert not sampled.exact
    assert 0 < sampled.standard_error < 0.02
    assert abs(sampled.value - log_z) < 5 * sampled.standard_error


def test_log_partition_of_a_gaussian():
    model = parameters(
        "gaussian", [[-1.0, 0.3], [-0.8, 0.0], [-0.7, -0.2]], ((2, 2), {(0, 1): 0.5, (1, 2): -0.4})
    )
    precision = np.array([[2.0, -0.5, 0.0], [-0.5, 1.6, 0.4], [0.0, 0.4, 1.4]])
    h = np.array([0.3, 0.0, -0.2])
    expected = (
        1.5 * np.log(2 * np.pi)
        - 0.5 * np.linalg.slogdet(precision)[1]
        + 0.5 * h @ np.linalg.solve(precision, h)
    )
    exact = partition.log_partition(model, "exact", samples=2, steps=1, rng=0)
    assert exact.value == pytest.approx(expected, rel=1e-12)
    sampled = partition.annealed(model, samples=200, steps=20, rng=0)
    assert abs(sampled.value - expected) < 5 * sampled.standard_error
    broken = parameters("gaussian", [[-1.0, 0.0], [-1.0, 0.0]], ((2, 2), {(0, 1): 3.0}))
    with pytest.raises(InfeasibleError, match="is_normalizable"):
        partition.log_partition(broken, "exact", samples=2, steps=1, rng=0)


def test_a_variable_that_does_not_decay_alone():
    answer = is_normalizable(parameters("exponential", [[0.0, 0.0], [-0.5, 0.0]]))
    assert answer.value is False
    assert answer.direction.tolist() == [1.0, 0.0]


def test_exact_is_refused_where_it_cannot_be():
    model = parameters("exponential", [[-1.0, 0.0]] * 2, ((2, 2), {(0, 1): 0.5}))
    with pytest.raises(InvalidInputError, match="ais"):
        partition.log_partition(model, "exact", samples=2, steps=1, rng=0)


@pytest.mark.parametrize(
    "base, theta, expected",
    [
        ("poisson", 50.0, True),
        # -z1^2 - z2^2 + theta z1 z2 is negative definite for |theta| < 2
        ("exponential", 1.9, True),
        ("exponential", 2.1, False),
        ("exponential", -50.0, True),  # fine on the positive simplex
        ("gaussian", 1.9, True),
        ("gaussian", 2.1, False),
        ("gaussian", -2.1, False),
    ],
)
def test_normalizable_pairs(base, theta, expected):
    model = parameters(base, [[-1.0, 0.0]] * 2, ((2, 2), {(0, 1): theta}))
    answer = is_normalizable(model)
    assert answer.value is expected
    assert bool(answer) is expected
    if not expected:
        ray = conditionals.radial_conditional(model, answer.direction)
        assert ray.coefficients[0] >= 0
        assert not ray.is_normalizable()


def test_normalizable_triples():
    # Q = -T1 - T2 - T3 + theta (T1 T2 T3)^(1/3) < 0 for theta < 3
    for theta, expected in ((2.9, True), (3.1, False)):
        model = parameters("exponential", [[-1.0, 0.0, 0.0]] * 3, ((3, 3), {(0, 1, 2): theta}))
        answer = is_normalizable(model)
        assert answer.value is expected
        if not expected:
            np.testing.assert_allclose(answer.direction, 1 / 3, atol=1e-3)


@pytest.mark.parametrize("base", ["exponential", "gaussian"])
def test_the_direction_of_a_triple_that_grows(base):
    """Q = -T1 - T2 - T3 / 10 + theta (T1 T2 T3)^(1/3) is 0 at T = (1, 1, 10), theta = 1.392."""
    intercepts = [[-1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [-0.1, 0.0, 0.0]]
    model = parameters(base, intercepts, ((3, 3), {(0, 1, 2): 1.4}))
    answer = is_normalizable(model)
    assert answer.value is False
    assert not conditionals.radial_conditional(model, answer.direction).is_normalizable()


def on_a_grid(theta, sets, family, steps=20):
    """The largest Q(T) / sum(T) over shares of T on a grid, and over the signs of x if any."""
    p = len(theta)
    bars = itertools.combinations(range(steps + p - 1), p - 1)
    shares = np.array([np.diff([-1, *cut, steps + p - 1]) - 1 for cut in bars]) / steps
    value = shares @ theta + np.zeros((2**p, 1))
    for row, sign in enumerate(itertools.product([1, -1], repeat=p)):
        for members, weight in sets.items():
            product = shares[:, members].prod(axis=1) ** (1 / len(members))
            if family == "gaussian" and len(members) % 2 == 0:
                product = product * np.prod(np.array(sign)[list(members)])
            value[row] += weight * product
    return value.max()


def copositive(matrix):
    """Strict copositivity (Kaplan 2000): no principal submatrix has a positive eigenvector of an
    eigenvalue <= 0."""
    p = len(matrix)
    for size in range(1, p + 1):
        for members in itertools.combinations(range(p), size):
            values, vectors = np.linalg.eigh(matrix[np.ix_(members, members)])
            signs = np.abs(np.sign(vectors).sum(axis=0))
            if (values[signs == size] <= 0).any():
                return False
    return True


@pytest.mark.parametrize(
    ("base", "p", "k"), [("exponential", 3, 3), ("exponential", 4, 4), ("gaussian", 3, 3)]
)
def test_small_models_are_decided(base, p, k):
    rng = np.random.default_rng(p + k)
    answers = []
    for _ in range(12):
        theta = -0.2 - rng.exponential(size=p)
        every = [s for size in range(2, k + 1) for s in itertools.combinations(range(p), size)]
        sets = {s: rng.normal() for s in every if rng.random() < 0.6}
        terms = [
            ((size, size), {s: v for s, v in sets.items() if len(s) == size})
            for size in range(2, k + 1)
        ]
        intercepts = np.column_stack([theta, np.zeros((p, k - 1))])
        model = parameters(base, intercepts, *(term for term in terms if term[1]))
        answer = is_normalizable(model)
        largest = on_a_grid(theta, sets, base)
        assert answer.value is not None
        assert answer.value or largest > -0.05  # the steps of the grid are this coarse
        assert not answer.value or largest < 0
        answers.append((answer.value, "Bernstein" in answer.certificate))
    assert {(True, True), (False, False)} <= set(answers)


def test_coefficients_of_halved_simplices_are_those_of_the_polynomial():
    """At corners they are the values of Q, and elsewhere they bound it."""
    rng = np.random.default_rng(0)
    sets = {(0, 1): 0.7, (0, 2): -1.1, (1, 2): 0.4}
    terms = ((2, 2), sets), ((3, 3), {(0, 1, 2): 1.3})
    model = parameters("gaussian", -rng.uniform(0.5, 2, size=(3, 3)), *terms)
    sign, m = np.array([1.0, -1.0, 1.0]), 6

    def q(u):
        t = u**m
        pairs = sum(v * np.sqrt(t[a] * t[b]) * sign[a] * sign[b] for (a, b), v in sets.items())
        return model.intercepts[:, 0] @ t + pairs + 1.3 * t.prod() ** (1 / 3)

    combinations = itertools.combinations_with_replacement(range(3), m)
    powers = np.array([np.bincount(c, minlength=3) for c in combinations])
    pieces = normalization._bernstein_coefficients(model, sign, powers)[None]
    corners = np.eye(3)[None]
    for _ in range(4):
        ((pieces, corners),) = normalization._halved(
            pieces, corners, powers, lambda a, b: normalization._halving(powers, a, b)
        )
    assert len(pieces) == 16
    for coefs, piece in zip(pieces, corners, strict=True):
        for s, corner in enumerate(piece):
            at_corner = coefs[powers[:, s] == m]
            np.testing.assert_allclose(at_corner, q(corner), atol=1e-12)
        for share in rng.dirichlet(np.ones(3), size=5):
            assert coefs.min() <= q(share @ piece) <= coefs.max()


def test_no_certificate_where_the_potential_grows(monkeypatch):
    monkeypatch.setattr(normalization, "MOST_WORK", 1_000_000)
    for theta, proven in ((2.9, True), (3.1, False)):  # as in test_normalizable_triples
        terms = (3, 3), {(0, 1, 2): theta}
        model = parameters("exponential", [[-1.0, 0.0, 0.0]] * 3, terms)
        assert (normalization._negative_on_simplices(model) is not None) is proven


def test_pairs_of_positive_variables_are_copositive():
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        p = int(rng.integers(3, 7))
        theta = -0.2 - rng.exponential(size=p)
        upper = np.triu(rng.normal(scale=0.6, size=(p, p)), 1)
        pairs = {(i, j): upper[i, j] for i, j in itertools.combinations(range(p), 2)}
        model = parameters("exponential", np.column_stack([theta, 0 * theta]), ((2, 2), pairs))
        answer = is_normalizable(model)
        assert answer.value is copositive(-np.diag(theta) - (upper + upper.T) / 2)
        found.append("Bernstein" in answer.certificate)
    assert 2 <= sum(found) < 10


@pytest.mark.parametrize(
    "intercepts, pairs",
    [
        ([-1.0, -1.0], {(0, 1): 2.0}),  # no integral: Q = -(t_1 - t_2)^2 is 0 where both are equal
        # the integral is finite: in z, of exp(-5 sqrt(z x) - x) over x, squared, near (2 / 25 z)^2
        ([0.0, -1.0, -1.0], {(0, 1): -5.0, (0, 2): -5.0}),
    ],
)
def test_a_model_on_the_boundary_is_not_decided(intercepts, pairs, monkeypatch):
    monkeypatch.setattr(normalization, "MOST_WORK", 500_000)
    rows = [[theta, 0.0] for theta in intercepts]
    assert is_normalizable(parameters("exponential", rows, ((2, 2), pairs))).value is None


def test_a_root_decides_where_theta_is_zero(monkeypatch):
    """exp(-sqrt(x)) has the integral 2, and exp(0) none."""
    monkeypatch.setattr(normalization, "MOST_WORK", 500_000)
    for root, value in ((-1.0, None), (0.0, False)):
        model = parameters("exponential", [[0.0, root], [-0.5, 0.0]])
        assert is_normalizable(model).value is value


def test_a_model_without_normalizer_cannot_be_drawn():
    model = parameters("exponential", [[1.0, 0.0]] * 2, ((2, 2), {(0, 1): 1.0}))
    with pytest.raises(InfeasibleError, match="is_normalizable"):
        gibbs(model, 2, 0, burn_in=1, thin=1, chains=1)


def fitted():
    rng = np.random.default_rng(0)
    x = rng.poisson(0.5 + rng.gamma(1.0, size=(400, 1)) * np.ones(4))
    model = fg.GeneralizedRootModel(k=3, alpha=0.02, tol=1e-5)
    return model.fit(x, feature_names=["ape", "bee", "cat", "dog"]), x


def test_a_fitted_model_answers():
    model, x = fitted()
    pseudo = model.pseudo_log_likelihood(x)
    each = [sum(model.node_conditional(s, row).log_prob(row[s]) for s in range(4)) for row in x[:5]]
    np.testing.assert_allclose(pseudo[:5], each, rtol=1e-10)
    assert model.score(x) == pytest.approx(pseudo.mean() / 4)
    assert model.sample(5, 0).shape == (5, 4)
    assert model.is_normalizable()
    assert model.log_partition(samples=20, steps=5, rng=0).standard_error > 0
    assert model.radial_conditional(np.ones(4)).is_normalizable()


def test_tables_and_graphs():
    model, _ = fitted()
    pairs = model.top_interactions(2, 100)
    assert [abs(s.value) for s in pairs] == sorted((abs(s.value) for s in pairs), reverse=True)
    assert all(s.value > 0 for s in model.top_interactions(2, 100, sign="positive"))
    singles = model.top_interactions(1, 4)
    assert [s.value for s in singles] == sorted((s.value for s in singles), reverse=True)
    assert {s.names[0] for s in singles} == {"ape", "bee", "cat", "dog"}
    networkx = pytest.importorskip("networkx")
    graph = model.to_networkx()
    assert isinstance(graph, networkx.Graph)
    for found in pairs:
        assert graph.edges[found.names]["weight"] == found.value
    triples = model.top_interactions(3, 100)
    assert triples
    for found in triples:
        assert (found.names, found.value) in graph.edges[found.names[:2]]["sets"]


def test_the_plot_draws_edges():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    pytest.importorskip("networkx")
    axes = fitted()[0].plot(top=3)
    assert axes.collections
    matplotlib.pyplot.close("all")


def test_bad_questions():
    model, _ = fitted()
    with pytest.raises(InvalidInputError, match="indices run"):
        model.node_conditional(9, np.zeros(4))
    with pytest.raises(InvalidInputError, match="shape"):
        model.node_conditional(0, np.zeros(3))
    with pytest.raises(InvalidInputError, match="choose one of"):
        model.log_partition("guess")
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError, match="fit"):
        fg.GeneralizedRootModel().sample(1)


def test_calibration_refuses_a_model_without_a_normalizer():
    broken = parameters("gaussian", [[-1.0, 0.0], [-1.0, 0.0]], ((2, 2), {(0, 1): 3.0}))
    with pytest.raises(InfeasibleError, match="calibrate"):
        calibrate(
            broken, np.zeros((2, 2)), np.ones(2), np.array([0, 1]), sweeps=2, chains=2,
            rng=np.random.default_rng(0),
        )  # fmt: skip


def test_the_best_of_several_searches_for_a_direction_counts():
    """The search from equal shares ends at a hill below zero; others find a direction above."""
    intercepts = [[a, 0.0, 0.0] for a in (-0.96, -0.31, -0.25, -2.48, -2.76, -1.9)]
    sets = {
        (0, 2, 3): -9.3, (0, 2, 4): -4.98, (0, 2, 5): -2.18, (0, 3, 5): 4.17, (0, 4, 5): 5.47,
        (1, 3, 4): -2.97, (2, 4, 5): -0.64,
    }  # fmt: skip
    model = parameters("exponential", intercepts, ((3, 3), sets))
    answer = is_normalizable(model)
    assert not answer
    assert conditionals.radial_conditional(model, answer.direction).coefficients[0] > 0.8


def test_stacked_tables_are_those_of_the_nodes():
    """Tables of different sizes, with and without panels and an end, in any order."""
    families_of = [
        families.Poisson(),
        families.FiniteCounts(np.zeros(6)),
        families.NegativeBinomial(9.0, 2.0),
    ]
    tables = [base.table(2) for base in families_of]
    which = np.array([2, 0, 1, 2])
    stacked = stack_tables(tables, which)
    for node, number in enumerate(which):
        found, expected = table_of(stacked, node), tables[number]
        for name in expected._fields:
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_a_shift_of_each_row_multiplies_its_means():
    shift = np.repeat(np.log([[1.0, 10.0], [20.0, 0.5]]), 2000, axis=0)
    draws = one_each(parameters("poisson", [[0.0], [np.log(3.0)]]), shift, 1, 0)
    means = np.array([[1.0, 30.0], [20.0, 1.5]])
    found = draws.reshape(2, 2000, 2).mean(axis=1)
    assert (np.abs(found - means) < 5 * np.sqrt(means / 2000)).all()


@pytest.mark.parametrize("table", [np.linspace(0.0, 1.0, CELLS + 1), np.ones(CELLS + 1)])
def test_a_table_of_a_linear_density_is_drawn_exactly(table):
    """Over log T in 1 .. 3: for the density u, the distribution function is u or its square."""
    place = np.array([1.0, 3.0, 0.0, 0.0])
    for u in (0.0, 0.1237, 0.5, 0.998, 1.0):
        expected = 1.0 + 2.0 * (u if table[0] else u**0.5)
        assert np.log(draw_table(place, table, u)) == pytest.approx(expected, abs=1e-12)
