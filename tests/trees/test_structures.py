"""Best trees, k best, samples with and without replacement."""

import networkx
import numpy as np
import pytest

import fstgrad as fg
from fstgrad.trees import sampling
from fstgrad.trees.kernels import sampling as sampling_kernels
from tests.helpers.selection import pairwise
from tests.helpers.trees import KILLERS
from tests.oracles import trees as oracle

both = pytest.mark.parametrize("single_root", [True, False])


def key(tree):
    return tuple(np.asarray(tree).ravel().tolist())


def ranked(scores, single_root):
    """All allowed trees, best first, with their log-probabilities."""
    structures, tables = oracle.tables(scores.shape, single_root=single_root)
    totals = np.array([scores[t > 0].sum() for t in tables])
    log_probs = totals - np.logaddexp.reduce(totals)
    order = np.argsort(-totals, kind="stable")
    return [(structures[i], log_probs[i]) for i in order if totals[i] > -np.inf]


def tables():
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 4, 5):
        yield rng.normal(size=(n + 1, n + 1))
    holed = 3 * rng.normal(size=(6, 6))
    holed[rng.random((6, 6)) < 0.3] = -np.inf
    holed[0, 2] = holed[2, 5] = holed[5, 1] = holed[1, 3] = holed[3, 4] = 0.0
    yield holed
    yield rng.normal(size=(4, 4, 2))
    yield rng.normal(size=(3, 3, 4))


@both
def test_kbest_is_the_sorted_enumeration(single_root):
    for scores in tables():
        distribution = fg.SpanningTrees(scores, single_root=single_root)
        expected = ranked(scores, single_root)
        for k in (1, 2, 10, 200):
            found = distribution.kbest(k)
            assert len(found) == min(k, len(expected))
            assert len({key(tree) for tree, _ in found}) == len(found)
            for (tree, log_prob), (want, want_log_prob) in zip(found, expected, strict=False):
                assert log_prob == pytest.approx(want_log_prob, abs=1e-11)
                assert key(tree) == key(want)
        assert key(distribution.mode()) == key(expected[0][0])


@both
def test_kbest_of_random_graphs(single_root):
    """Sparse, tied and nested cycles: scores of the enumeration, each tree once."""
    rng = np.random.default_rng(20)
    for trial in range(50):
        n = int(rng.integers(1, 5))
        scores = rng.normal(size=(n + 1, n + 1)) * rng.choice([0.5, 5])
        if trial % 3 == 0:
            scores = np.round(scores)
        if trial % 2 == 0:
            scores[rng.random(scores.shape) < 0.35] = -np.inf
        distribution = fg.SpanningTrees(scores, single_root=single_root)
        expected = []
        if oracle.exact_count(scores > -np.inf, single_root=single_root):
            expected = ranked(scores, single_root)
        if not expected:
            with pytest.raises(fg.InfeasibleError):
                distribution.kbest(3)
            continue
        for k in (3, 25, 5000):
            found = distribution.kbest(k)
            assert len(found) == min(k, len(expected))
            assert len({key(tree) for tree, _ in found}) == len(found)
            values = [log_prob for _, log_prob in found]
            np.testing.assert_allclose(values, [x for _, x in expected[:k]], atol=1e-10)
            for tree, log_prob in found:
                assert log_prob == pytest.approx(distribution.log_prob(tree), abs=1e-10)


@pytest.mark.parametrize("family", [fg.SpanningTrees, fg.ProjectiveTrees])
@both
@pytest.mark.parametrize("labels", [None, 2])
def test_the_tree_of_minimum_risk(family, single_root, labels):
    """The most expected heads of all trees of the family, by enumeration."""
    rng = np.random.default_rng(21)
    for _ in range(20):
        n = 3 if labels else 4
        scores = 2 * rng.normal(size=(n + 1, n + 1) + ((labels,) if labels else ()))
        trees = family(scores, single_root=single_root, labeled=labels is not None)
        _, tables = oracle.tables(
            scores.shape, single_root=single_root, projective=family is fg.ProjectiveTrees
        )
        best = max((trees.marginals() * t).sum() for t in tables)
        found = trees.parts(trees.minimum_risk_tree())
        assert (trees.marginals() * found).sum() == pytest.approx(best, abs=1e-12)


@both
def test_kbest_of_ties_lists_every_tree_once(single_root):
    distribution = fg.SpanningTrees(np.zeros((5, 5)), single_root=single_root)
    found = distribution.kbest(1000)
    count = 4**3 if single_root else 5**3
    assert len({key(tree) for tree, _ in found}) == len(found) == count


def test_kbest_where_a_set_has_several_best_trees():
    scores = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 1], [1, 0, 1, 1.0]])
    found = [key(tree) for tree, _ in fg.SpanningTrees(scores, single_root=True).kbest(10)]
    assert len(set(found)) == len(found) == 9
    assert {(0, 3, 1), (0, 1, 2)} < set(found)


@pytest.mark.parametrize("family", [fg.SpanningTrees, fg.ProjectiveTrees])
def test_kbest_where_the_best_tree_leaves_far_behind(family):
    """Differences of 1e4 nats and more, among them arcs whose marginals are below all floats."""
    scores = 1.0001e4 * np.array([[0, 0, -4, 1], [0, 0, 5, 4], [0, 3, 0, -5], [0, 4, 3, 0]])
    for factor in (1.0, 1e3, 1e8):
        found = family(factor * scores, single_root=False).kbest(4)
        expected = [0.0, -10001.0, -20002.0, -30003.0]
        np.testing.assert_allclose([log_p for _, log_p in found], np.multiply(factor, expected))
        assert [key(tree) for tree, _ in found[:2]] == [(3, 1, 0), (0, 1, 1)]


@pytest.mark.parametrize("family", [fg.SpanningTrees, fg.ProjectiveTrees])
@both
@pytest.mark.parametrize("labels", [None, 2])
def test_kbest_of_integer_scores(family, single_root, labels):
    """Ties of whole numbers, and of sums of decimals that are equal up to rounding."""
    rng = np.random.default_rng(22)
    n = 3 if labels else 4
    shape = (n + 1, n + 1, labels) if labels else (n + 1, n + 1)
    structures, tables = oracle.tables(
        shape, single_root=single_root, projective=family is fg.ProjectiveTrees
    )
    for trial in range(20):
        scores = rng.integers(0, 2 + trial % 3, size=shape) * (0.1 if trial % 2 else 1.0)
        totals = np.array([(t * scores).sum() for t in tables])
        found = family(scores, single_root=single_root, labeled=labels is not None).kbest(5000)
        assert {key(tree) for tree, _ in found} == {key(tree) for tree in structures}
        assert len(found) == len(structures)
        expected = np.sort(totals)[::-1] - np.logaddexp.reduce(totals)
        np.testing.assert_allclose([p for _, p in found], expected, atol=1e-10)


def test_modes_of_random_graphs():
    """Against networkx's Edmonds, with and without ties and cycles to contract."""
    rng = np.random.default_rng(1)
    for trial in range(60):
        n = int(rng.integers(1, 16))
        scores = rng.normal(size=(n + 1, n + 1))
        if trial % 3 == 0:
            scores = np.round(2 * scores)
        if trial % 3 == 1:
            scores[rng.random(scores.shape) < 0.4] = -np.inf
        graph = networkx.DiGraph()
        graph.add_nodes_from(range(n + 1))
        graph.add_weighted_edges_from(
            (h, d, scores[h, d])
            for h in range(n + 1)
            for d in range(1, n + 1)
            if h != d and scores[h, d] > -np.inf
        )
        distribution = fg.SpanningTrees(scores, single_root=False)
        try:
            best = networkx.maximum_spanning_arborescence(graph)
        except networkx.NetworkXException:
            with pytest.raises(fg.InfeasibleError):
                distribution.mode()
            continue
        assert score(scores, distribution.mode()) == pytest.approx(
            best.size(weight="weight"), abs=1e-10
        )
        if trial % 3 == 1:
            continue
        # one root arc: the best over all choices of it
        alone = [
            score(
                scores,
                distribution.with_arcs(
                    required=[(0, r)], forbidden=[(0, d) for d in range(1, n + 1) if d != r]
                ).mode(),
            )
            for r in range(1, n + 1)
        ]
        single = fg.SpanningTrees(scores, single_root=True).mode()
        assert (single == 0).sum() == 1
        assert score(scores, single) == pytest.approx(max(alone), abs=1e-10)


def score(scores, heads):
    return scores[heads, np.arange(1, len(heads) + 1)].sum()


def assert_follows(draws, scores, single_root):
    """Pearson's statistic of the draws, within five standard deviations of its mean."""
    expected = ranked(scores, single_root)
    number = {key(tree): i for i, (tree, _) in enumerate(expected)}
    counts = np.bincount([number[key(d)] for d in draws], minlength=len(expected))
    means = np.exp([log_prob for _, log_prob in expected]) * len(draws)
    rare = means < 5
    counts = np.append(counts[~rare], counts[rare].sum())
    means = np.append(means[~rare], means[rare].sum())
    used = means > 1e-9
    degrees = used.sum() - 1
    statistic = ((counts - means)[used] ** 2 / means[used]).sum()
    assert statistic <= degrees + 5 * np.sqrt(2 * degrees) + 1e-9
    assert counts[~used].sum() == 0


@both
@pytest.mark.parametrize("method", ["wilson", "colbourn", "logs"])
def test_samples_pass_the_chi_square_test(method, single_root):
    rng = np.random.default_rng(2)
    for scores in tables():
        distribution = fg.SpanningTrees(scores, single_root=single_root)
        if method != "logs":
            draws = distribution.sample(4000, rng, method=method)
        elif scores.ndim == 2:
            solution = distribution._solution
            draws = np.empty((4000, len(scores) - 1), dtype=np.int64)
            assert sampling_kernels.colbourn(
                solution.log_weights(0), solution.marginals[0, 0], True, single_root, rng, draws
            )
        else:
            continue
        assert_follows(draws, scores, single_root)


@both
def test_inclusion_without_replacement(single_root):
    """Two draws out of T: p_i + sum_j p_j p_i / (1 - p_j) is the chance that i is among them."""
    rng = np.random.default_rng(3)
    for scores in (2 * rng.normal(size=(4, 4)), rng.normal(size=(3, 3, 2))):
        distribution = fg.SpanningTrees(scores, single_root=single_root)
        expected = ranked(scores, single_root)
        p = np.exp([log_prob for _, log_prob in expected])
        number = {key(tree): i for i, (tree, _) in enumerate(expected)}
        repeats = 1500
        first, both_draws = np.zeros((2, len(p)))
        for _ in range(repeats):
            pair = distribution.sample_without_replacement(2, rng)
            indices = [number[key(tree)] for tree, _ in pair]
            assert indices[0] != indices[1]
            assert pair[0][1] == pytest.approx(np.log(p[indices[0]]), abs=1e-10)
            first[indices[0]] += 1
            both_draws[indices] += 1
        odds = p / (1 - p)
        included = p + p * (odds.sum() - odds)
        for counts, chance in ((first, p), (both_draws, included)):
            deviation = np.sqrt(np.maximum(chance * (1 - chance), 1e-12) / repeats)
            assert (np.abs(counts / repeats - chance) < 5 * deviation + 1e-3).all()


@pytest.mark.parametrize(
    "single_root, draws, logs", pairwise([True, False], [0, 16], [False, True])
)
def test_order_statistics_without_replacement(single_root, draws, logs, monkeypatch):
    """Ordered triples have the chance p_i p_j / (1 - p_i) p_k / (1 - p_i - p_j): chi-square.

    Without independent draws all come from what is left of the distribution, in floats or on
    logarithms.
    """
    rng = np.random.default_rng(3)
    if draws == 0:
        monkeypatch.setattr(sampling, "_first_occurrences", none_known)
    if logs:
        monkeypatch.setattr(sampling, "LOWEST_WEIGHT", 0.0)
    for scores in (2 * rng.normal(size=(4, 4)), rng.normal(size=(3, 3, 2))):
        distribution = fg.SpanningTrees(scores, single_root=single_root)
        expected = ranked(scores, single_root)
        p = np.exp([log_prob for _, log_prob in expected])
        number = {key(tree): i for i, (tree, _) in enumerate(expected)}
        repeats, counts = 1000, np.zeros((len(p),) * 3)
        for _ in range(repeats):
            triple = distribution.sample_without_replacement(3, rng)
            counts[tuple(number[key(tree)] for tree, _ in triple)] += 1
        i, j, k = np.indices(counts.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            chance = p[i] * p[j] / (1 - p[i]) * p[k] / (1 - p[i] - p[j])
        chance = np.where((i == j) | (i == k) | (j == k), 0, chance)
        assert chance.sum() == pytest.approx(1)
        assert counts[chance == 0].sum() == 0
        means = chance.ravel() * repeats
        rare = means < 5
        observed = np.append(counts.ravel()[~rare], counts.ravel()[rare].sum())
        means = np.append(means[~rare], means[rare].sum())
        statistic = ((observed - means)[means > 0] ** 2 / means[means > 0]).sum()
        degrees = (means > 0).sum() - 1
        assert statistic < degrees + 5 * np.sqrt(2 * degrees)


def none_known(table, solution, count, rng):
    return np.empty((0, int(table.lengths[0]), 2), dtype=np.int64)


@both
@pytest.mark.parametrize("sd", [1, 50, 400])
def test_all_trees_without_replacement(single_root, sd):
    """None is lost, however improbable, and improbable ones come in order."""
    scores = sd * np.random.default_rng(4).normal(size=(5, 5))
    found = fg.SpanningTrees(scores, single_root=single_root).sample_without_replacement(999, 0)
    expected = ranked(scores, single_root)
    assert {key(tree) for tree, _ in found} == {key(tree) for tree, _ in expected}
    assert np.exp([log_prob for _, log_prob in found]).sum() == pytest.approx(1, abs=1e-10)
    log_probs = np.array([log_prob for _, log_prob in found])
    # a tree that comes after one less probable by e^-30 would come once in 1e13 lists
    assert (np.maximum.accumulate(log_probs[::-1])[::-1] - log_probs).max() < 30


@both
def test_all_labeled_trees_without_replacement(single_root):
    """Those that remain after independent draws are the others: 9 or 16 trees, 2^3 labelings."""
    scores = np.random.default_rng(4).normal(size=(4, 4, 2))
    trees = fg.SpanningTrees(scores, single_root=single_root, labeled=True)
    found = trees.sample_without_replacement(999, 0)
    assert len({np.asarray(tree).tobytes() for tree, _ in found}) == len(found)
    assert len(found) == (9 if single_root else 16) * 2**3
    assert np.exp([log_prob for _, log_prob in found]).sum() == pytest.approx(1, abs=1e-10)


def test_all_trees_of_wide_scores_where_every_tree_needs_a_mask():
    """k best and draws: trees more than e^-50 below the best one, each with its digits."""
    rng = np.random.default_rng(13)
    scores = np.round(60 * rng.normal(size=(4, 4)), 3)
    centered = scores.copy()
    scores[0] = -1e30
    centered[0] = 0.0
    alone = [(tree, log_p) for tree, log_p in ranked(centered, True)]
    trees = fg.SpanningTrees(scores, single_root=False)
    for found in (trees.kbest(9), trees.sample_without_replacement(9, 0)):
        found = {key(tree): log_prob for tree, log_prob in found}
        assert set(found) == {key(tree) for tree, _ in alone}
        for tree, log_p in alone:
            assert found[key(tree)] == pytest.approx(log_p, abs=1e-9)


@both
@pytest.mark.parametrize("mask", [-1e9, -1e30, -1e300, np.finfo(np.float32).min])
def test_masks_leave_the_order_of_the_k_best_alone(mask, single_root):
    rng = np.random.default_rng(15)
    for _ in range(10):
        scores = 5 * rng.normal(size=(5, 5))
        scores[1, 3] += 30
        scores[3, 1] += 30
        forbidden = rng.random((5, 5)) < 0.4
        forbidden[[0, 1, 1, 2], [1, 2, 3, 4]] = False
        expected = ranked(np.where(forbidden, -np.inf, scores), single_root)
        masked = fg.SpanningTrees(np.where(forbidden, mask, scores), single_root=single_root)
        found = masked.kbest(len(expected))
        assert [key(tree) for tree, _ in found] == [key(tree) for tree, _ in expected]
        np.testing.assert_allclose(
            [log_prob for _, log_prob in found], [log_prob for _, log_prob in expected], atol=1e-9
        )


def test_where_two_kinds_of_masks_are_needed():
    """The best tree is below what rounding leaves of the other mask's digits."""
    scores = np.full((3, 3), -1e30)
    scores[0, 1:] = [-1000000000.7528218, -1000000000.2586797]
    trees = fg.SpanningTrees(scores, single_root=True)
    gap = scores[0, 2] - scores[0, 1]
    expected = {(2, 0): -np.log1p(np.exp(-gap)), (0, 1): -np.log1p(np.exp(gap))}
    for found in (trees.kbest(2), trees.sample_without_replacement(2, 0)):
        found = {key(tree): log_prob for tree, log_prob in found}
        assert found == pytest.approx(expected, abs=1e-6)


def test_walks_that_would_not_end_are_left_to_another_method():
    scores = np.random.default_rng(0).normal(size=(7, 7))
    scores[1, 2] += 40
    scores[2, 1] += 40
    distribution = fg.SpanningTrees(scores, single_root=False)
    draws = distribution.sample(300, 1, method="wilson")
    assert_follows(draws, scores, False)


@both
@pytest.mark.parametrize("scores", KILLERS.values(), ids=KILLERS)
def test_samples_of_killers_follow_their_marginals(scores, single_root):
    distribution = fg.SpanningTrees(scores, single_root=single_root)
    k = 400
    frequencies = distribution.parts(distribution.sample(k, 5)).mean(axis=0)
    marginals = distribution.marginals()
    deviation = np.sqrt(marginals * (1 - marginals) / k)
    assert (np.abs(frequencies - marginals) <= 5 * deviation + 5 / k).all()
    assert np.isfinite(distribution.log_prob(distribution.sample(3, 6))).all()


@both
def test_samples_of_a_ragged_labeled_batch(single_root):
    rng = np.random.default_rng(6)
    lengths = [4, 1, 3]
    distribution = fg.SpanningTrees(
        rng.normal(size=(3, 5, 5, 2)), single_root=single_root, lengths=lengths
    )
    draws = distribution.sample(3000, rng)
    assert draws.shape == (3000, 3, 4, 2)
    for i, n in enumerate(lengths):
        assert (draws[:, i, n:] == -1).all()
    marginals = distribution.marginals()
    frequencies = distribution.parts(draws).mean(axis=0)
    assert (np.abs(frequencies - marginals) < 5 * np.sqrt(0.25 / 3000)).all()
    assert distribution.log_prob(draws).shape == (3000, 3)
    for i, found in enumerate(distribution.kbest(2)):
        assert found[0][0].shape == (lengths[i], 2)
        assert found[0][1] == pytest.approx(distribution.log_prob(distribution.mode())[i])


def test_expected_steps_are_those_of_the_walk():
    """Closed form: n dependents, all weights 1, many roots: visits s_j B_jj = n * 2 / (n + 1)."""
    from fstgrad.trees.sampling import expected_steps

    n = 6
    distribution = fg.SpanningTrees(np.zeros((n + 1, n + 1)), single_root=False)
    expected = n * (n * 2 / (n + 1))
    assert expected_steps(distribution._solution, 0) == pytest.approx(expected, rel=1e-12)
