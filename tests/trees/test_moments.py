"""Second-order quantities and gradients against enumeration and finite differences."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import fstgrad as fg
from fstgrad.trees.arc_covariances import ArcCovariances
from tests.oracles import trees as oracle

TIGHT = 1e-12


def random_scores(shape, seed=0, holes=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=shape)
    free = [(i, j) for i in range(shape[0]) for j in range(1, shape[1]) if i != j]
    for i, j in (free[h] for h in rng.permutation(len(free))[:holes]):
        scores[i, j] = -np.inf
    return scores


CASES = {
    "one": random_scores((2, 2)),
    "three": random_scores((4, 4), 1),
    "five": random_scores((6, 6), 2),
    "five with holes": random_scores((6, 6), 3, holes=8),
    "three labeled": random_scores((4, 4, 2), 4),
    "two labeled with holes": random_scores((3, 3, 3), 5, holes=1),
}
both = pytest.mark.parametrize("single_root", [True, False])
every = pytest.mark.parametrize("scores", CASES.values(), ids=CASES)


def trees(scores, single_root):
    return fg.SpanningTrees(scores, single_root=single_root, labeled=scores.ndim == 3)


def exact(scores, single_root):
    """Moments of the allowed trees: forbidden arcs at -10000 have probability 0 exactly."""
    return oracle.moments(np.maximum(scores, -1e4), single_root=single_root)


def filled(scores):
    return np.where(np.isfinite(scores), scores, 0.0)


@both
@every
def test_first_and_second_order(scores, single_root):
    log_z, mean, covariance = exact(scores, single_root)
    distribution = trees(scores, single_root)
    assert distribution.log_partition() == pytest.approx(log_z, abs=TIGHT)
    np.testing.assert_allclose(distribution.marginals(), mean, atol=TIGHT)
    np.testing.assert_allclose(distribution.covariance_matrix(), covariance, atol=TIGHT)


@both
@every
def test_entropy_gradient(scores, single_root):
    log_z, mean, covariance = exact(scores, single_root)
    value, gradient = trees(scores, single_root).entropy_and_gradient()
    theta = filled(scores)
    assert value == pytest.approx(log_z - (mean * theta).sum(), abs=TIGHT)
    expected = -np.tensordot(covariance, theta, axes=theta.ndim)
    np.testing.assert_allclose(gradient, expected, atol=TIGHT)


@both
@every
def test_divergence_gradients(scores, single_root):
    other = scores + np.random.default_rng(7).normal(size=scores.shape)
    log_p, mean, covariance = exact(scores, single_root)
    log_q, other_mean, _ = exact(other, single_root)
    p, q = trees(scores, single_root), trees(other, single_root)
    gap = filled(scores) - filled(other)
    axes = scores.ndim
    value, mine, theirs = p.kl_and_gradients(q)
    assert value == pytest.approx(log_q - log_p + (mean * gap).sum(), abs=TIGHT)
    np.testing.assert_allclose(mine, np.tensordot(covariance, gap, axes=axes), atol=TIGHT)
    np.testing.assert_allclose(theirs, other_mean - mean, atol=TIGHT)
    value, mine, theirs = p.cross_entropy_and_gradients(q)
    assert value == pytest.approx(log_q - (mean * filled(other)).sum(), abs=TIGHT)
    expected = -np.tensordot(covariance, filled(other), axes=axes)
    np.testing.assert_allclose(mine, expected, atol=TIGHT)
    np.testing.assert_allclose(theirs, other_mean - mean, atol=TIGHT)


@both
@every
def test_risk(scores, single_root):
    costs = np.random.default_rng(8).normal(size=scores.shape)
    _, mean, covariance = exact(scores, single_root)
    value, gradient = trees(scores, single_root).risk(costs)
    assert value == pytest.approx((mean * costs).sum(), abs=TIGHT)
    expected = np.tensordot(covariance, costs, axes=costs.ndim)
    np.testing.assert_allclose(gradient, expected, atol=TIGHT)


@both
@every
def test_generalized_expectation(scores, single_root):
    rng = np.random.default_rng(9)
    features = rng.normal(size=(*scores.shape, 3))
    target = rng.normal(size=3)
    _, mean, covariance = exact(scores, single_root)
    gap = np.tensordot(mean, features, axes=mean.ndim) - target
    expected = np.tensordot(covariance, features @ gap, axes=mean.ndim)
    distribution = trees(scores, single_root)
    for given in (features, csr_array(features.reshape(-1, 3))):
        value, gradient = distribution.generalized_expectation(given, target)
        assert value == pytest.approx(0.5 * gap @ gap, abs=TIGHT)
        np.testing.assert_allclose(gradient, expected, atol=TIGHT)


def log_probabilities(scores, single_root, projective=False):
    """Return the tables of all allowed trees, their log-weights and log-probabilities."""
    shape = scores.shape
    tables = np.array(oracle.tables(shape, single_root=single_root, projective=projective)[1])
    totals = np.array([scores[t > 0].sum() for t in tables])
    allowed = totals > -np.inf
    return tables[allowed], totals[allowed], totals[allowed] - np.logaddexp.reduce(totals[allowed])


families = pytest.mark.parametrize("family", [fg.SpanningTrees, fg.ProjectiveTrees])


@both
@every
@families
def test_entropies_of_the_last_orders_and_norms(scores, single_root, family):
    p = family(scores, single_root=single_root, labeled=scores.ndim == 3)
    tables, _, logs = log_probabilities(scores, single_root, p.projective)
    assert p.renyi(0) == pytest.approx(np.log(len(logs)), abs=TIGHT)
    assert p.renyi(np.inf) == pytest.approx(-logs.max(), abs=TIGHT)
    value, gradient = p.renyi_and_gradient(0)
    assert value == p.renyi(0)
    assert not gradient.any()
    value, gradient = p.renyi_and_gradient(np.inf)
    expected = np.exp(logs) @ tables.reshape(len(tables), -1) - tables[logs.argmax()].ravel()
    np.testing.assert_allclose(gradient.ravel(), expected, atol=TIGHT)
    for k in (0.5, 1.0, 2, 3.5):
        assert p.norm(k) == pytest.approx(np.exp(k * logs).sum() ** (1 / k), rel=TIGHT)
    assert p.norm(np.inf) == pytest.approx(np.exp(logs.max()), rel=TIGHT)


@both
@every
@families
def test_unnormalized_totals(scores, single_root, family):
    rng = np.random.default_rng(19)
    r, s = rng.normal(size=(*scores.shape, 2)), rng.normal(size=(*scores.shape, 3))
    p = family(scores, single_root=single_root, labeled=scores.ndim == 3)
    tables, totals, _ = log_probabilities(scores, single_root, p.projective)
    rows = tables.reshape(len(tables), -1)
    first, second = (rows @ x.reshape(rows.shape[1], -1) for x in (r, s))
    weights = np.exp(totals)
    np.testing.assert_allclose(p.totals(r), weights @ first, rtol=1e-10)
    np.testing.assert_allclose(p.totals(r, s), (weights[:, None] * first).T @ second, rtol=1e-10)


@both
@every
@pytest.mark.parametrize("order", [0.5, 2.0, 3.0])
def test_renyi(scores, single_root, order):
    log_z, mean, _ = exact(scores, single_root)
    log_a, mean_a, _ = exact(np.where(np.isfinite(scores), order * scores, -np.inf), single_root)
    distribution = trees(scores, single_root)
    value, gradient = distribution.renyi_and_gradient(order)
    assert value == pytest.approx((log_a - order * log_z) / (1 - order), abs=TIGHT)
    assert distribution.renyi(order) == value
    expected = order / (1 - order) * (mean_a - mean)
    np.testing.assert_allclose(gradient, expected, atol=TIGHT)


def test_renyi_of_order_one_is_the_entropy():
    distribution = trees(CASES["five"], True)
    assert distribution.renyi(1) == distribution.entropy()
    near = 1 + 1e-6  # the slope in the order is of the size of a variance over two
    assert distribution.renyi(near) == pytest.approx(distribution.entropy(), abs=1e-5)
    np.testing.assert_array_equal(
        distribution.renyi_and_gradient(1)[1], distribution.entropy_and_gradient()[1]
    )


@both
@every
def test_three_routes_to_second_moments(scores, single_root):
    rng = np.random.default_rng(10)
    r = rng.normal(size=(*scores.shape, 2)) * (rng.random((*scores.shape, 1)) < 0.5)
    s = rng.normal(size=(*scores.shape, 3))
    _, mean, covariance = exact(scores, single_root)
    axes = mean.ndim
    mean_r, mean_s = (np.tensordot(mean, x, axes=axes) for x in (r, s))
    moved = np.tensordot(covariance, s, axes=axes)
    expected = np.tensordot(r, moved, axes=(range(axes), range(axes))) + np.outer(mean_r, mean_s)
    distribution = trees(scores, single_root)
    sparse = csr_array(r.reshape(-1, 2)), csr_array(s.reshape(-1, 3))
    routes = [
        distribution.second_moments(r, s),
        distribution.second_moments(r, s, method="vector"),
        distribution.second_moments(r, s, method="hessian"),
        distribution.second_moments(s, r, method="hessian").T,
        distribution.second_moments(*sparse, method="hessian"),
        distribution.second_moments(*sparse, method="vector"),
        distribution.second_moments(r, sparse[1], method="vector"),
        np.array(
            [[distribution.covariance(r[..., i], s[..., j]) for j in range(3)] for i in range(2)]
        )
        + np.outer(mean_r, mean_s),
    ]
    for route in routes:
        np.testing.assert_allclose(route, expected, atol=TIGHT)
    np.testing.assert_allclose(distribution.expectations(r), mean_r, atol=TIGHT)
    np.testing.assert_allclose(distribution.expectations(sparse[1]), mean_s, atol=TIGHT)


@both
@families
@pytest.mark.parametrize("labels", [(), (2,)])
def test_second_moments_of_a_batch(single_root, family, labels):
    """A padded batch has the moments of its sentences, by sums over their trees."""
    rng = np.random.default_rng(20)
    lengths = np.array([[3, 0, 4], [1, 2, 4]])
    scores = rng.normal(size=(2, 3, 5, 5, *labels))
    r, s = rng.normal(size=(*scores.shape, 2)), rng.normal(size=(*scores.shape, 3))
    for index in np.ndindex(2, 3):
        scores[index][lengths[index] + 1 :] = np.nan
        scores[index][:, lengths[index] + 1 :] = np.nan
    batch = family(scores, single_root=single_root, lengths=lengths, labeled=bool(labels))
    found, totals = batch.second_moments(r, s), batch.totals(r, s)
    assert found.shape == (2, 3, 2, 3)
    assert not found[0, 1].any()
    for index in zip(*lengths.nonzero(), strict=True):
        inner = (*index, *2 * (slice(lengths[index] + 1),))
        tables, weights, logs = log_probabilities(scores[inner], single_root, batch.projective)
        rows = tables.reshape(len(tables), -1)
        first, second = (rows @ x[inner].reshape(rows.shape[1], -1) for x in (r, s))
        expected = (np.exp(logs)[:, None] * first).T @ second
        np.testing.assert_allclose(found[index], expected, atol=TIGHT)
        expected = (np.exp(weights)[:, None] * first).T @ second
        np.testing.assert_allclose(totals[index], expected, rtol=1e-9, atol=TIGHT)
    np.testing.assert_allclose(batch.second_moments(r, s, method="hessian"), found, atol=TIGHT)


def test_the_cheaper_way_to_second_moments(monkeypatch):
    """Pairs of arcs for wide sparse vectors only; the vectors with fewer arcs come first."""
    used = []
    way = ArcCovariances.between_sparse
    monkeypatch.setattr(
        ArcCovariances, "between_sparse", lambda *a: (used.append(a[1].nnz), way(*a))[1]
    )
    rng = np.random.default_rng(21)
    p = trees(rng.normal(size=(9, 9)), True)
    wide = csr_array((rng.normal(size=81), (np.arange(81), np.arange(81) * 9)), shape=(81, 729))
    few = csr_array((rng.normal(size=2), ([10, 20], [0, 5])), shape=(81, 729))
    narrow = rng.normal(size=(9, 9, 5))
    p.second_moments(narrow, narrow)
    assert used == []
    for r, s, count in ((wide, wide, 81), (few, wide, 2), (wide, few, 2)):
        used.clear()
        found = p.second_moments(r, s)
        assert used == [count]
        expected = p.second_moments(r, s, method="vector")
        np.testing.assert_allclose(found, expected, atol=TIGHT)


@pytest.mark.parametrize("method", ["auto", "vector", "hessian"])
@pytest.mark.parametrize("sizes", [(0, 2), (2, 0), (0, 0)])
def test_second_moments_of_vectors_of_length_zero(sizes, method):
    r, s = (np.ones((4, 4, size)) for size in sizes)
    found = fg.SpanningTrees(random_scores((4, 4)), single_root=True).second_moments(
        r, s, method=method
    )
    assert found.shape == sizes


def test_second_moments_of_sparse_vectors_that_repeat_entries():
    """Entries of a sparse array that are given twice are added, and the array is left as it is."""
    p = trees(CASES["three"], True)
    starts = [0] * 7 + [3] * 10  # of the arc from node 1 to 2
    twice = csr_array(([1.0, 2.0, 0.0], [1, 1, 0], starts), shape=(16, 2))
    dense = twice.toarray().reshape(4, 4, 2)
    for method in ("vector", "hessian"):
        found = p.second_moments(twice, twice, method=method)
        np.testing.assert_allclose(found, p.second_moments(dense, dense), atol=TIGHT)
    assert twice.nnz == 3


@pytest.mark.parametrize("height", [0, 30])  # with and without a closed form
@pytest.mark.parametrize("method", ["auto", "vector", "hessian"])
def test_vectors_of_second_moments_are_kept(height, method):
    """Vectors of one entry are tables that products could overwrite."""
    rng = np.random.default_rng(22)
    scores, r = rng.normal(size=(5, 5)), rng.normal(size=(5, 5, 1))
    scores[1, 2] += height
    scores[2, 1] += height
    p, kept = trees(scores, True), r.copy()
    found = p.second_moments(r, r, method=method)
    np.testing.assert_array_equal(r, kept)
    r.setflags(write=False)
    mean, variance = p.expectation(r[..., 0]), p.covariance(r[..., 0], r[..., 0])
    assert found == pytest.approx(variance + mean**2, abs=TIGHT)
    np.testing.assert_array_equal(p.second_moments(r, r, method=method), found)


@both
@pytest.mark.parametrize("n", [8, 33, 40])
def test_gradients_by_central_differences(n, single_root):
    """Sizes beyond enumeration, on both sides of the compiled kernels' limit."""
    rng = np.random.default_rng(n)
    scores = rng.normal(size=(n + 1, n + 1))
    other = trees(rng.normal(size=(n + 1, n + 1)), single_root)
    features = rng.normal(size=(n + 1, n + 1, 4))
    target = rng.normal(size=4)
    v = rng.normal(size=scores.shape)
    values = {
        "log_partition": lambda p: (p.log_partition(), p.marginals()),
        "entropy": lambda p: p.entropy_and_gradient(),
        "kl": lambda p: p.kl_and_gradients(other)[:2],
        "risk": lambda p: p.risk(features[..., 0]),
        "renyi": lambda p: p.renyi_and_gradient(2.0),
        "ge": lambda p: p.generalized_expectation(features, target),
    }
    step = 1e-5
    for name, call in values.items():
        _, gradient = call(trees(scores, single_root))
        ends = [call(trees(scores + sign * step * v, single_root))[0] for sign in (1, -1)]
        difference = (ends[0] - ends[1]) / (2 * step)
        assert (gradient * v).sum() == pytest.approx(difference, abs=1e-6, rel=1e-7), name


@both
def test_a_ragged_batch_is_its_items(single_root):
    rng = np.random.default_rng(11)
    lengths = np.array([[1, 5, 3], [40, 2, 34]])
    scores = rng.normal(size=(2, 3, 41, 41))
    other = rng.normal(size=(2, 3, 41, 41))
    features, target = rng.normal(size=(2, 3, 41, 41, 2)), rng.normal(size=2)
    for index in np.ndindex(2, 3):
        n = lengths[index]
        scores[(*index, slice(n + 1, None))] = np.nan
        scores[(*index, slice(None), slice(n + 1, None))] = np.nan
    batch = fg.SpanningTrees(scores, single_root=single_root, lengths=lengths, labeled=False)
    second = fg.SpanningTrees(other, single_root=single_root, lengths=lengths, labeled=False)
    results = {
        "marginals": batch.marginals(),
        "log_partition": batch.log_partition(),
        "entropy": batch.entropy_and_gradient(),
        "kl": batch.kl_and_gradients(second),
        "ge": batch.generalized_expectation(features, target),
        "risk": batch.risk(other),
        "mode": batch.mode(),
    }
    nll = batch.nll(batch.mode())
    for index in np.ndindex(2, 3):
        n = lengths[index]
        inner = (*index, slice(n + 1), slice(n + 1))
        alone = trees(scores[inner], single_root)
        theirs = trees(other[inner], single_root)
        expected = {
            "marginals": alone.marginals(),
            "log_partition": alone.log_partition(),
            "entropy": alone.entropy_and_gradient(),
            "kl": alone.kl_and_gradients(theirs),
            "ge": alone.generalized_expectation(features[inner], target),
            "risk": alone.risk(other[inner]),
            "mode": alone.mode(),
        }
        for name, result in expected.items():
            pairs = zip(
                result if isinstance(result, tuple) else (result,),
                results[name] if isinstance(results[name], tuple) else (results[name],),
                strict=True,
            )
            for want, have in pairs:
                item = have[index]
                if np.ndim(want) == 2:
                    assert not np.any(item[n + 1 :])
                    assert not np.any(item[:, n + 1 :])
                    item = item[: n + 1, : n + 1]
                elif np.ndim(want) == 1:
                    assert (item[n:] == -1).all()
                    item = item[:n]
                np.testing.assert_allclose(item, want, atol=1e-11, err_msg=name)
        assert nll[0][index] == pytest.approx(alone.nll(alone.mode())[0], abs=1e-11)


@both
def test_constraints_condition_the_distribution(single_root):
    scores = CASES["five"]
    structures, tables = oracle.tables(scores.shape, single_root=single_root)
    constrained = trees(scores, single_root).with_arcs(
        required=[(3, 1)], forbidden=[(0, 2), (5, 4)]
    )
    kept = [t for t in tables if t[3, 1] and not t[0, 2] and not t[5, 4]]
    totals = np.array([(t * scores).sum() for t in kept])
    assert constrained.log_partition() == pytest.approx(np.logaddexp.reduce(totals), abs=TIGHT)
    np.testing.assert_array_equal(constrained.parts(constrained.mode()), kept[totals.argmax()])
    assert 0 < len(kept) < len(structures)


def test_constraints_with_labels():
    scores = CASES["three labeled"]
    free = trees(scores, True)
    one = free.with_arcs(required=[(0, 2, 1)], forbidden=[(2, 1)])
    marginals = one.marginals()
    assert marginals[0, 2, 1] == pytest.approx(1, abs=TIGHT)
    assert not marginals[2, 1].any()
    _, tables = oracle.tables(scores.shape, single_root=True)
    totals = [(t * scores).sum() for t in tables if t[0, 2, 1] and not t[2, 1].any()]
    assert one.log_partition() == pytest.approx(np.logaddexp.reduce(totals), abs=TIGHT)


@pytest.mark.parametrize("n", [3, 9, 36])
def test_the_older_algorithms_agree(n):
    rng = np.random.default_rng(n)
    scores = rng.normal(size=(n + 1, n + 1))
    features, target = rng.normal(size=(n + 1, n + 1, 3)), rng.normal(size=3)
    distribution = trees(scores, True)
    assert distribution.entropy() == pytest.approx(oracle.smith_eisner_entropy(scores), abs=1e-9)
    expected = oracle.druck_smith_gradient(scores, features, target)
    _, gradient = distribution.generalized_expectation(features, target)
    np.testing.assert_allclose(gradient, expected, atol=1e-10)


@pytest.mark.parametrize("labeled", [False, True])
def test_directions_are_read_and_kept(labeled):
    """Products are taken in place, but not in a table of the caller's; any layout will do."""
    rng = np.random.default_rng(3)
    scores, v = rng.normal(size=(2, 5, 5, 3) if labeled else (2, 5, 5))
    trees = fg.SpanningTrees(scores, single_root=True, labeled=labeled)
    kept = v.copy()
    expected = trees.covariance_product(v)
    np.testing.assert_array_equal(v, kept)
    fixed = v.copy()
    fixed.setflags(write=False)
    for other in (fixed, np.asfortranarray(v), np.repeat(v, 2, axis=0)[::2]):
        np.testing.assert_array_equal(trees.covariance_product(other), expected)
    value, gradient = trees.risk(fixed)
    assert value == pytest.approx((trees.marginals() * v).sum(), abs=1e-12)
    np.testing.assert_array_equal(gradient, expected)
    one = np.broadcast_to(1.0, scores.shape)
    np.testing.assert_allclose(trees.covariance_product(one), 0, atol=1e-12)  # n arcs, always


@both
@every
def test_expected_products(scores, single_root):
    """E[product of q] over all trees, q of any sign."""
    rng = np.random.default_rng(14)
    distribution = trees(scores, single_root)
    _, tables = oracle.tables(scores.shape, single_root=single_root)
    totals = np.array([scores[t > 0].sum() for t in tables])
    p = np.exp(totals - np.logaddexp.reduce(totals))
    for q in (rng.random(scores.shape), rng.normal(size=scores.shape), np.zeros(scores.shape)):
        expected = sum(x * q[t > 0].prod() for x, t in zip(p, tables, strict=True))
        assert distribution.expected_product(q) == pytest.approx(expected, abs=TIGHT)


@both
@every
def test_covariances_where_there_is_no_closed_form(scores, single_root, monkeypatch):
    distribution = trees(scores, single_root)
    assert distribution._arc_covariances(()) is not None
    closed = distribution.covariance_matrix()
    monkeypatch.setattr(fg.SpanningTrees, "_arc_covariances", lambda self, place: None)
    np.testing.assert_allclose(distribution.covariance_matrix(), closed, atol=TIGHT)
    rng = np.random.default_rng(15)
    r, s = rng.normal(size=(*scores.shape, 2)), rng.normal(size=(*scores.shape, 3))
    by_products = [distribution.second_moments(r, s, method=m) for m in ("vector", "hessian")]
    monkeypatch.undo()
    for found in by_products:
        np.testing.assert_allclose(found, distribution.second_moments(r, s), atol=TIGHT)


def test_covariances_of_ill_conditioned_tables():
    scores = np.random.default_rng(16).normal(size=(6, 6))
    scores[1, 2] += 30
    scores[2, 1] += 30
    _, _, covariance = oracle.moments(scores, single_root=True)
    distribution = trees(scores, True)
    assert distribution._arc_covariances(()) is None
    np.testing.assert_allclose(distribution.covariance_matrix(), covariance, atol=1e-12)


@both
@pytest.mark.parametrize("height", [4, 8, 12, 16, 20])
def test_second_order_where_the_gradient_is_large(height, single_root):
    """First-order digits last longer than second-order ones, which then come from elimination."""
    rng = np.random.default_rng(18)
    scores, v = rng.normal(size=(2, 6, 6))
    scores[1, 2] += height
    scores[2, 1] += height
    log_z, mean, covariance = oracle.moments(scores, single_root=single_root)
    distribution = trees(scores, single_root)
    assert distribution.log_partition() == pytest.approx(log_z, abs=TIGHT)
    np.testing.assert_allclose(distribution.marginals(), mean, atol=TIGHT)
    product = distribution.covariance_product(v)
    np.testing.assert_allclose(product, np.tensordot(covariance, v), atol=TIGHT)


@both
def test_covariances_of_a_batch(single_root):
    scores = np.random.default_rng(17).normal(size=(3, 5, 5))
    found = fg.SpanningTrees(scores, single_root=single_root, lengths=[4, 2, 3]).covariance_matrix()
    for i, n in enumerate((4, 2, 3)):
        inner = np.s_[: n + 1]
        _, _, covariance = oracle.moments(scores[i][inner, inner], single_root=single_root)
        np.testing.assert_allclose(found[i][inner, inner, inner, inner], covariance, atol=TIGHT)
    whole = fg.SpanningTrees(scores, single_root=single_root).covariance_matrix()
    for i in range(3):
        _, _, covariance = oracle.moments(scores[i], single_root=single_root)
        np.testing.assert_allclose(whole[i], covariance, atol=TIGHT)
