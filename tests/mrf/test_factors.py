"""Factors over three and more nodes: every method against enumeration."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf import clamping
from fstgrad.mrf import factors as factors_module
from fstgrad.mrf.factors import Factor, pairwise_form
from fstgrad.mrf.sampling.chains import Chain, start_labels
from fstgrad.mrf.scored_graph import Table
from tests.helpers.fields import SIZES, model_of, random_factors


def expected_tables(model, ys, weights):
    tables = [model.parts(y) for y in ys]
    return [
        sum(w * getattr(t, name) for w, t in zip(weights, tables, strict=True))
        for name in ("node", "edge", "factors")
    ]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("scale, zeros", [(1.0, 0.0), (1.0, 0.3), (60.0, 0.0), (400.0, 0.1)])
def test_exact_answers_equal_enumeration(seed, scale, zeros):
    model, ys, scores = model_of(seed, scale=scale, zeros=zeros)
    log_z = np.logaddexp.reduce(scores)
    if log_z == -np.inf:
        with pytest.raises(fg.InfeasibleError):
            model.log_partition()
        return
    assert model.log_partition() == pytest.approx(log_z, rel=1e-12)
    found = model.marginals()
    for mine, goal in zip(
        (*found, found.factors), expected_tables(model, ys, np.exp(scores - log_z)), strict=True
    ):
        np.testing.assert_allclose(mine, goal, atol=1e-10)
    assert model.score(model.mode()) == pytest.approx(scores.max(), rel=1e-12)
    for y, score in zip(ys, scores, strict=True):
        assert model.score(y) == pytest.approx(score, rel=1e-12, abs=1e-12)


def test_samples_are_exact():
    model, ys, scores = model_of(3)
    p = np.exp(scores - np.logaddexp.reduce(scores))
    draws = model.sample(20_000, 0)
    index = np.ravel_multi_index(draws.T, SIZES)
    np.testing.assert_allclose(np.bincount(index, minlength=len(ys)) / 20_000, p, atol=0.015)


def test_covariances_equal_enumeration():
    model, ys, scores = model_of(1)
    p = np.exp(scores - model.log_partition())
    rng = np.random.default_rng(0)
    direction = Table(*(rng.normal(size=a.shape) for a in (*model.scores, model.factors.table)))
    tables = [model.parts(y) for y in ys]
    along = np.array([model.inner(t, direction) for t in tables])
    change = model.covariance_product(direction)
    for name in ("node", "edge", "factors"):
        values = np.array([getattr(t, name).ravel() for t in tables])
        goal = p @ (values * along[:, None]) - (p @ values) * (p @ along)
        np.testing.assert_allclose(getattr(change, name).ravel(), goal, atol=1e-12)
    assert model.kl(model) == pytest.approx(0, abs=1e-12)
    assert model.entropy() == pytest.approx(-(p @ np.log(p)), rel=1e-12)


def test_divergences_match_edges_and_factors_by_their_nodes():
    """q has its parts in another order and direction than p, or lacks some of them."""
    scopes, sizes = [(0, 1, 2), (1, 2, 3), (0, 3), (3, 2), (1,)], [2, 3, 2, 3]
    parts = random_factors(0, scopes, sizes, 1.0)
    p = fg.PairwiseMRF.from_factors(sizes, parts)
    turned = [(nodes[::-1], table.transpose()) for nodes, table in parts[::-1]]
    assert p.kl(fg.PairwiseMRF.from_factors(sizes, turned)) == pytest.approx(0, abs=1e-12)
    q = fg.PairwiseMRF.from_factors(sizes, random_factors(1, scopes[3:0:-1], sizes, 1.0))
    ys = list(np.ndindex(*sizes))
    log_p, log_q = (np.array([model.log_prob(y) for y in ys]) for model in (p, q))
    assert p.cross_entropy(q) == pytest.approx(-(np.exp(log_p) @ log_q), rel=1e-12)
    with pytest.raises(fg.NotSupportedError, match="zeros"):
        q.kl(p)

    node, edge, edges = np.zeros((3, 2)), np.array([[1.0, 0.0], [0.5, 2.0]]), [(0, 1), (1, 2)]
    p = fg.PairwiseMRF(node, np.stack([edge, 2 * edge]), edges)
    q = fg.PairwiseMRF(node, np.stack([2 * edge, edge.T]), [(1, 2), (1, 0)])
    assert p.kl(q) == q.kl(p) == pytest.approx(0, abs=1e-12)
    shared, stacked = (fg.PairwiseMRF(node, table, edges) for table in (edge, [edge, edge]))
    assert shared.kl(stacked) == stacked.kl(shared) == pytest.approx(0, abs=1e-12)
    with pytest.raises(fg.NotSupportedError, match=r"\[0, 2\]"):
        shared.kl(fg.PairwiseMRF(node, edge, [(0, 1), (0, 2)]))
    with pytest.raises(fg.InvalidInputError, match=r"other\.node"):
        shared.kl(fg.PairwiseMRF(node[:2], edge, edges[:1]))


@pytest.mark.parametrize("schedule", ["flooding", "residual"])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_belief_propagation_is_exact_on_trees_of_factors(schedule, scale):
    scopes, sizes = [(0, 1, 2), (2, 3), (3, 4, 5), (1,), (6, 2)], [2, 3, 2, 3, 2, 2, 3]
    for seed in range(8):
        factors = random_factors(seed, scopes, sizes, scale)
        model = fg.PairwiseMRF.from_factors(sizes, factors)
        exact = model.marginals()
        found = model.infer("bp", schedule=schedule, tol=1e-9)
        assert found.converged
        assert found.log_partition == pytest.approx(model.log_partition(), rel=1e-9)
        np.testing.assert_allclose(found.node, exact.node, atol=1e-9)
        np.testing.assert_allclose(found.edge, exact.edge, atol=1e-9)
        np.testing.assert_allclose(found.factors, exact.factors, atol=1e-9)
        best = model.decode("max-product")
        assert best.score == pytest.approx(model.score(model.mode()))


@pytest.mark.parametrize("damping", [0.0, 0.4])
def test_native_messages_are_those_of_joint_nodes(damping):
    model, *_ = model_of(4)
    native = model.infer("bp", tol=1e-12, damping=damping, max_iter=3000)
    joint = model.infer("bp", tol=1e-12, damping=damping, max_iter=3000, schedule="residual")
    assert native.converged
    assert joint.converged
    assert native.log_partition == pytest.approx(joint.log_partition, abs=1e-9)
    np.testing.assert_allclose(native.factors, joint.factors, atol=1e-9)
    assert pairwise_form(model).num_nodes == 5 + 2


def test_bounds_hold():
    for seed in range(20):
        model, _, scores = model_of(seed, scale=2.0)
        log_z = np.logaddexp.reduce(scores)
        above, below = model.infer("trw"), model.infer("mean-field")
        assert below.log_partition <= log_z + 1e-9 <= above.log_partition + 2e-9
        assert above.node.shape == below.node.shape == (5, 3)


def test_errors_of_mean_field_name_mean_field(monkeypatch):
    """Not the sampler whose start it borrows."""
    model, _, _ = model_of(2)
    assert model.infer("mean-field").method == "mean-field"
    with pytest.raises(fg.InvalidInputError, match="'mean-field' has no option 'samples'"):
        model.infer("mean-field", samples=3)
    apart = np.where(np.arange(8).reshape(2, 2, 2) % 3 == 0, -np.inf, 0.0)
    shut = fg.PairwiseMRF.from_factors(
        [2, 2, 2], [((0, 1, 2), apart), ((0, 1, 2), np.where(apart == 0, -np.inf, 0.0))]
    )
    with pytest.raises(fg.InfeasibleError) as raised:
        shut.infer("mean-field")
    assert "gibbs" not in str(raised.value)

    def too_wide(*_):
        raise fg.NotSupportedError("pass one as initial=")

    monkeypatch.setattr("fstgrad.mrf.mean_field.start_labels", too_wide)
    with pytest.raises(fg.NotSupportedError, match="mean-field found no allowed labeling"):
        shut.infer("mean-field")


def test_mean_field_is_stationary():
    model, ys, scores = model_of(2, scale=0.5)
    found = model.infer("mean-field", tol=1e-13)
    q = found.node
    weights = np.prod([q[i, ys[:, i]] for i in range(5)], axis=0)
    entropy = -(q[q > 0] * np.log(q[q > 0])).sum()
    assert found.log_partition == pytest.approx(weights @ scores + entropy, rel=1e-12)
    for i in range(5):
        given = [np.log(q[i, c]) - (weights * (ys[:, i] == c)) @ scores / q[i, c]
                 for c in range(SIZES[i])]  # fmt: skip
        assert np.ptp(given) < 1e-9


@pytest.mark.parametrize("sampler", ["gibbs", "chromatic", "blocked", "metropolis"])
def test_samplers_leave_the_distribution_as_it_is(sampler):
    model, ys, scores = model_of(5, scale=0.7)
    p = np.exp(scores - model.log_partition())
    found = model.infer(sampler, samples=4000, chains=4, rng=0)
    goal = expected_tables(model, ys, p)[0]
    assert found.converged
    assert (np.abs(found.node - goal) <= 2 * found.margin + 1e-3).all()
    chain = Chain(model, sampler, start_labels(model, np.random.default_rng(0)), 3)
    chain.advance(2)
    assert model.score(chain.labels) > -np.inf


def test_pseudolikelihood_equals_its_definition():
    model, _ys, scores = model_of(6)
    gold = np.array([1, 2, 0, 1, 1])
    table = scores.reshape(SIZES)
    expected = 0.0
    for i in range(5):
        row = table[tuple(slice(None) if j == i else gold[j] for j in range(5))]
        expected += np.logaddexp.reduce(row) - row[gold[i]]
    value, gradient = model.nll(gold, "pseudolikelihood")
    assert value == pytest.approx(expected, rel=1e-12)
    step = 1e-6
    for cell in range(0, len(model.factors.table), 5):
        moved = model.factors.table.copy()
        moved[cell] += step
        other = model.with_scores(*model.scores, moved).nll(gold, "pseudolikelihood")[0]
        assert (other - value) / step == pytest.approx(gradient.factors[cell], abs=1e-5)


@pytest.mark.parametrize("method", ["exact", "bp", "cd", "cd1"])
def test_gradients_have_a_part_for_each_cell(method):
    model, ys, scores = model_of(7)
    gold = ys[int(scores.argmax())]
    options = (
        {"rng": 0} if method.startswith("cd") else {"max_iter": 2000} if method == "bp" else {}
    )
    gradient = model.nll(gold, method, **options)[1]
    assert gradient.factors.shape == model.factors.table.shape
    assert gradient.factors.sum() == pytest.approx(0, abs=1e-8)  # both count one cell a factor


def test_a_wide_factor_takes_no_more_than_its_table():
    scope, rng = tuple(range(12)), np.random.default_rng(0)
    table = rng.normal(size=(2,) * 12)
    pair = rng.normal(size=(2, 2))
    factors = [Factor(scope, table), *(Factor((v, v + 12), pair) for v in range(12))]
    model = fg.PairwiseMRF.from_factors([2] * 24, factors)
    inside = np.logaddexp.reduce(pair, axis=1)
    total = table
    for v in range(12):
        total = total + inside.reshape([-1 if k == v else 1 for k in range(12)])
    assert model.log_partition() == pytest.approx(np.logaddexp.reduce(total, axis=None), rel=1e-12)
    found = model.infer("bp", tol=1e-10)
    np.testing.assert_allclose(found.node, model.marginals().node, atol=1e-9)


def test_max_product_decodes_feasible_models_with_hard_zeros():
    refused = 0
    for seed in range(150):
        model, _, scores = model_of(seed, zeros=0.45)
        if scores.max() == -np.inf:
            continue
        found = model.decode("max-product")
        assert found.score > -np.inf
        assert found.score <= scores.max() + 1e-9
        refused += 1
    assert refused > 50


def test_many_labels_beside_few_are_not_padded():
    sizes = [2000, *[2] * 60]
    factors = [Factor((0, v), np.zeros((2000, 2))) for v in range(1, 61)]
    model = fg.PairwiseMRF.from_factors(sizes, factors)
    assert model.factors.number == 60
    assert model.log_partition() == pytest.approx(np.log(2000) + 60 * np.log(2), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_pairs_that_are_not_padded_are_counted_once(monkeypatch, seed):
    padded = model_of(seed)[0]
    given = padded.condition({0: 1})
    log_z, below = padded.log_partition(), given.log_partition()
    monkeypatch.setattr(factors_module, "PADDED_CELLS", 0)
    monkeypatch.setattr(clamping, "PADDED_CELLS", 0)
    separate = model_of(seed)[0]
    assert separate.graph.num_edges == 0
    assert separate.log_partition() == pytest.approx(log_z, abs=1e-10)
    clamped = clamping.clamp(separate, np.array([1, -1, -1, -1, -1]))
    log_rest = fg.PairwiseMRF.log_partition(clamped.rest)
    assert clamped.value + log_rest == pytest.approx(below, abs=1e-10)


def test_messages_of_labels_whose_cells_underflow():
    """All cells of a label are 700 or more nats below the best cell: it has its own log-sum."""
    t, u = np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    t[0, 1], t[1, 1] = -900.0, -700.0
    u[:, 0] = -700.0
    model = fg.PairwiseMRF.from_factors([2] * 5, [Factor([0, 1, 2], t), Factor([3, 1, 4], u)])
    expected = model.marginals()
    # label 0 has 4 of its 4 cells at 0, label 1 has 2
    np.testing.assert_allclose(expected.node[1], [2 / 3, 1 / 3], atol=1e-12)
    np.testing.assert_allclose(model.infer("bp").node, expected.node, atol=1e-10)
    first = model.infer("bp", max_iter=1)  # one message of either factor is all that node 1 needs
    np.testing.assert_allclose(first.node[1], expected.node[1], atol=1e-10)
