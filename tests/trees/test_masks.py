"""A finite number that stands for "forbidden" gives what -inf gives, wherever a tree avoids it."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.trees import treebank
from tests.oracles import trees as oracle

GOAL = 1e-9
MASKS = [
    -1e4,
    -1e9,
    -1e30,
    -1e300,
    float(np.finfo(np.float32).min),
    float(np.finfo(np.float64).min),
]
FAMILIES = [(fg.SpanningTrees, True), (fg.SpanningTrees, False), (fg.ProjectiveTrees, True)]
families = pytest.mark.parametrize("family, single_root", FAMILIES)

# An engine that takes -1e30 for a weight like others gives these marginals an error of 0.2.
MINIMAL = np.array(
    [
        [-0.9, -1.4, 0.1, -0.8],
        [0, 0.6, -0.5, -1.9],
        [1.4, 0.3, -0.6, 0.8],
        [-0.7, -1e30, -1e30, 0.4],
    ]
)


def pruned(rng, n, heads=4, gold=None, sd=2.0):
    """Scores like a parser's with -inf for all but the best heads of each word, a tree kept."""
    scores = sd * rng.normal(size=(n + 1, n + 1))
    tree = gold if gold is not None else fg.SpanningTrees(scores, single_root=True).mode()
    scores[tree, np.arange(1, n + 1)] += 4.0
    np.fill_diagonal(scores, -np.inf)
    worst = np.argsort(scores[:, 1:], axis=0)[:-heads]
    for d in range(1, n + 1):
        scores[np.setdiff1d(worst[:, d - 1], tree[d - 1]), d] = -np.inf
    return scores


def answers(distribution, other):
    v = np.random.default_rng(0).normal(size=distribution.scores.shape)
    value, gradient = distribution.entropy_and_gradient()
    return {
        "log Z": distribution.log_partition(),
        "marginals": distribution.marginals(),
        "entropy": value,
        "entropy gradient": gradient,
        "Cov v": distribution.covariance_product(v),
        "mode": distribution.mode(),
        "KL": distribution.kl(other),
        "KL back": other.kl(distribution) if np.isfinite(other.kl(distribution)) else -1.0,
        "Renyi": distribution.renyi(0.5),
    }


def assert_same(found, expected):
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=GOAL, err_msg=name)


@families
@pytest.mark.parametrize("mask", MASKS)
def test_masks_are_infinite(mask, family, single_root):
    rng = np.random.default_rng(3)
    for n in (3, 4, 9, 24):
        for _ in range(6):
            table = (
                pruned(rng, n)
                if n > 4
                else np.where(
                    rng.random((n + 1, n + 1)) < 0.35, -np.inf, rng.normal(size=(n + 1, n + 1))
                )
            )
            wanted = family(table, single_root=single_root)
            try:
                wanted.log_partition()
            except fg.InfeasibleError:
                continue
            other = wanted.with_scores(table + rng.normal(size=table.shape))
            expected = answers(wanted, other)
            masked = np.where(table == -np.inf, mask, table)
            found = family(masked, single_root=single_root)
            assert_same(
                answers(
                    found, found.with_scores(np.where(other.scores == -np.inf, mask, other.scores))
                ),
                expected,
            )


@families
@pytest.mark.parametrize("mask", [*MASKS, -np.inf])
def test_the_minimal_table(mask, family, single_root):
    table = np.where(MINIMAL == -1e30, mask, MINIMAL)
    log_z, mean, _ = oracle.moments(
        np.maximum(table, -1e4), single_root=single_root, projective=family is fg.ProjectiveTrees
    )
    found = family(table, single_root=single_root)
    assert found.log_partition() == pytest.approx(log_z, abs=GOAL)
    np.testing.assert_allclose(found.marginals(), mean, atol=GOAL)


def sentences(shared_data, count):
    path = shared_data / "ud" / "UD_English-PUD" / "en_pud-ud-test.conllu"
    return [s.heads for s in treebank.read_conllu(path) if len(s.heads) > 2][:count]


@pytest.mark.parametrize("mask", [-1e30, float(np.finfo(np.float32).min), -np.inf])
def test_pruned_sentences(shared_data, mask):
    """Four heads a word: columns of marginals sum to one, and are those of long arithmetic."""
    rng = np.random.default_rng(1)
    for i, gold in enumerate(sentences(shared_data, 150)):
        table = pruned(rng, len(gold), gold=gold)
        distribution = fg.SpanningTrees(np.where(table == -np.inf, mask, table), single_root=True)
        marginals = distribution.marginals()
        np.testing.assert_allclose(marginals[:, 1:].sum(axis=0), 1, atol=GOAL)
        wanted = fg.SpanningTrees(table, single_root=True)
        np.testing.assert_allclose(marginals, wanted.marginals(), atol=GOAL)
        if i < 5 and len(gold) < 25:
            log_z, mean = oracle.long_solution(table, single_root=True, digits=100)
            np.testing.assert_allclose(marginals, mean, atol=GOAL)
            assert distribution.log_partition() == pytest.approx(log_z, abs=GOAL)


@families
@pytest.mark.parametrize("mask", [-1e4, -1e9, -1e30])
def test_where_every_tree_needs_a_masked_arc(mask, family, single_root):
    """Words 1 and 2 reach each other alone: one of the masked arcs into them is in every tree."""
    rng = np.random.default_rng(5)
    table, rest = rng.normal(size=(2, 5, 5))
    table[[0, 3, 4], 1] = table[[0, 3, 4], 2] = 0.0
    rest[[0, 3, 4], 1] = rest[[0, 3, 4], 2] = 0.0
    shift = np.zeros((5, 5))
    for scores in (table, rest):
        scores[0, 3:] += 3.0
    shift[np.ix_([0, 3, 4], [1, 2])] = 1.0
    # all trees have one arc into the pair but for those with two, which cost a mask more
    structures, tables = oracle.tables(
        (5, 5), single_root=single_root, projective=family is fg.ProjectiveTrees
    )
    is_kept = [(t * shift).sum() == 1 for t in tables]
    kept = [t for t, counts in zip(tables, is_kept, strict=True) if counts]
    heads = [s for s, counts in zip(structures, is_kept, strict=True) if counts]
    totals = np.array([(t * table).sum() for t in kept])
    others = np.array([(t * rest).sum() for t in kept])
    p = np.exp(totals - np.logaddexp.reduce(totals))
    q = np.exp(others - np.logaddexp.reduce(others))
    masked, other = (
        family(np.where(shift > 0, mask + s, s), single_root=single_root) for s in (table, rest)
    )
    np.testing.assert_allclose(masked.marginals(), np.tensordot(p, kept, axes=1), atol=GOAL)
    assert masked.entropy() == pytest.approx(-(p @ np.log(p)), abs=GOAL)
    assert masked.kl(other) == pytest.approx(p @ np.log(p / q), abs=GOAL)
    assert masked.kl(masked) == 0
    change = -np.tensordot(
        p * (np.log(p) - p @ np.log(p)), np.array(kept) - np.tensordot(p, kept, axes=1), axes=1
    )
    np.testing.assert_allclose(masked.entropy_and_gradient()[1], change, atol=GOAL)
    np.testing.assert_allclose([masked.log_prob(t) for t in heads], np.log(p), atol=GOAL)
    np.testing.assert_allclose(masked.log_prob(np.stack(heads)), np.log(p), atol=GOAL)
    assert masked.nll(heads[0])[0] == pytest.approx(-np.log(p[0]), abs=GOAL)
    q = rng.uniform(0.1, 9.0, size=(5, 5))
    product = sum(x * q[t > 0].prod() for x, t in zip(p, kept, strict=True))
    assert masked.expected_product(q) == pytest.approx(product, abs=GOAL)
    best = masked.kbest(len(heads))
    np.testing.assert_allclose([x for _, x in best], np.sort(np.log(p))[::-1], atol=GOAL)
    logs = dict(zip(map(tuple, heads), np.log(p), strict=True))
    expected = [logs[tuple(h.tolist())] for h, _ in best]
    np.testing.assert_allclose([x for _, x in best], expected, atol=GOAL)
    if family is fg.SpanningTrees:
        drawn = masked.sample_without_replacement(len(heads), 0)
        expected = [logs[tuple(h.tolist())] for h, _ in drawn]
        np.testing.assert_allclose([x for _, x in drawn], expected, atol=GOAL)


@families
@pytest.mark.parametrize("factor", [1.5, 2.0])
def test_masks_of_the_least_float_may_be_scaled(family, single_root, factor):
    rng = np.random.default_rng(7)
    table = pruned(rng, 6)
    masked = np.where(table == -np.inf, np.finfo(np.float64).min, table)
    wanted, found = (family(t, single_root=single_root) for t in (table, masked))
    assert found.renyi(factor) == pytest.approx(wanted.renyi(factor), abs=GOAL)
    expected = wanted.scaled(factor).marginals()
    np.testing.assert_allclose(found.scaled(factor).marginals(), expected, atol=GOAL)
    least = np.full((5, 5), np.finfo(np.float64).min)
    least[0, 1] = least[1, 2] = least[2, 3] = least[3, 4] = 0.0
    two_masks = family(least, single_root=single_root).log_prob([0, 1, 1, 1])
    assert two_masks == -2e300  # each counts as -1e300


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("mask", [-1e9, -1e30, -1e300])
@pytest.mark.parametrize("sd", [1, 100])
def test_where_all_root_arcs_are_masked(mask, single_root, sd):
    """Next to such scores a search for the best tree does not see the others."""
    rng = np.random.default_rng(6)
    for n in (1, 2, 4):
        scores = sd * np.round(rng.normal(size=(n + 1, n + 1)), 2)
        free = np.where(np.arange(n + 1)[:, None] == 0, 0.0, scores)
        scores[0] = mask
        _, tables = oracle.tables(scores.shape, single_root=True)  # others pay the mask twice
        totals = np.array([free[t > 0].sum() for t in tables])
        p = np.exp(totals - np.logaddexp.reduce(totals))
        trees = fg.SpanningTrees(scores, single_root=single_root)
        expected = np.tensordot(p, tables, axes=1)
        np.testing.assert_allclose(trees.marginals(), expected, atol=GOAL)
        entropy = -(p[p > 0] @ np.log(p[p > 0]))
        assert trees.entropy() == pytest.approx(entropy, abs=GOAL)
        assert trees.log_partition() == pytest.approx(mask + np.logaddexp.reduce(totals), rel=1e-15)
        assert expected[trees.mode(), np.arange(1, n + 1)].min() > 0


@families
@pytest.mark.parametrize("own, own_root", FAMILIES)
def test_divergence_from_a_masked_distribution_counts_the_masks(family, single_root, own, own_root):
    """q makes the arc 1 -> 3 cost 1e6, which p does not mind."""
    rng = np.random.default_rng(8)
    p, q = rng.normal(size=(2, 5, 5))
    q[1, 3] = -1e6
    first, second = own(p, single_root=own_root), family(q, single_root=single_root)
    logs = []
    for scores, single, kind in ((p, own_root, own), (q, single_root, family)):
        structures, tables = oracle.tables(
            scores.shape, single_root=single, projective=kind is fg.ProjectiveTrees
        )
        totals = np.array([(t * scores).sum() for t in tables])
        log_p = totals - np.logaddexp.reduce(totals)
        logs.append({tuple(s): x for s, x in zip(structures, log_p, strict=True)})
    expected = sum(
        np.exp(x) * (x - logs[1][tree]) if tree in logs[1] else np.inf
        for tree, x in logs[0].items()
    )
    assert first.kl(second) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", [78, 191])
@pytest.mark.parametrize("single_root", [True, False])
def test_labels_masked_by_the_least_float_do_not_overflow(seed, single_root):
    """The share of such a label has the log -1.8e308, and an arc that no tree needs may add it."""
    rng = np.random.default_rng(seed + 9000)
    n, labels = int(rng.integers(1, 5)), int(rng.integers(1, 3))
    rng.random()
    scores = rng.normal(size=(n + 1, n + 1, labels)) * rng.choice([1, 5, 50])
    masked = rng.random(scores.shape) < 0.4
    trees, forbidden = (
        fg.SpanningTrees(np.where(masked, mask, scores), single_root=single_root, labeled=True)
        for mask in (np.finfo(np.float64).min, -np.inf)
    )
    assert trees.kl(trees) == 0.0
    assert trees.entropy() == pytest.approx(forbidden.entropy(), abs=1e-10)
    assert trees.kl(forbidden) == pytest.approx(0.0, abs=1e-10)


@pytest.mark.parametrize("single_root", [True, False])
def test_masks_of_the_least_float_in_third_derivatives_and_lists(single_root):
    """Scores below -1e300 count as -1e300, whose sums stay finite."""
    rng = np.random.default_rng(17)
    scores = rng.normal(size=(5, 5))
    scores[3, 2] = scores[2, 3] = 30.0
    masked = rng.random((5, 5)) < 0.3
    masked[0, 1] = masked[1, 2] = masked[3, 2] = masked[2, 3] = masked[1, 4] = False
    v, u = rng.normal(size=(2, 5, 5))
    trees, forbidden = (
        fg.SpanningTrees(np.where(masked, mask, scores), single_root=single_root)
        for mask in (np.finfo(np.float64).min, -np.inf)
    )
    np.testing.assert_allclose(trees.third_order(v, u), forbidden.third_order(v, u), atol=1e-10)
    best = forbidden.kbest(200)
    for (heads, log_p), (expected, log_q) in zip(trees.kbest(len(best)), best, strict=True):
        np.testing.assert_array_equal(heads, expected)
        assert log_p == pytest.approx(log_q, abs=1e-9)
    assert len(trees.kbest(len(best) + 1)) == len(best) + 1  # one that needs a mask
    one = fg.SpanningTrees([[-1e300, 26.8], [-1e300, -1e300]], single_root=single_root)
    assert one.sample_without_replacement(2, rng=0)[0][0].tolist() == [0]


@pytest.mark.parametrize("family", [fg.SpanningTrees, fg.ProjectiveTrees])
def test_masks_of_every_sentence_of_a_batch_are_dropped(family):
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(3, 5, 5))
    scores[:, 1, 3] = -1e30  # trees can avoid it
    scores[2, [0, 3, 4], 1:3] = -1e30  # every tree needs one: 1 and 2 reach each other alone
    batch = family(scores, single_root=False)
    for i in range(3):
        np.testing.assert_allclose(
            batch.marginals()[i],
            family(scores[i], single_root=False).marginals(),
            atol=1e-12,
            rtol=0,
        )
    assert not batch.marginals()[:2, 1, 3].any()
    into = batch.marginals()[2, [0, 3, 4], 1:3]
    np.testing.assert_allclose(into.sum(), 1.0, atol=1e-12)
    np.testing.assert_allclose(batch.marginals()[2].sum(axis=0)[1:], 1.0, atol=1e-12)


@pytest.mark.parametrize("mask", [-1e20, -1e38, -1e300])
def test_a_root_row_of_masks_leaves_one_root_arc(mask):
    scores = 1e4 * np.random.default_rng(0).normal(size=(5, 5))
    scores[0] = mask
    trees = fg.SpanningTrees(scores, single_root=False)
    single = fg.SpanningTrees(np.where(scores == mask, 0.0, scores), single_root=True)
    np.testing.assert_allclose(trees.marginals(), single.marginals(), atol=GOAL, rtol=0)
    assert trees.entropy() == pytest.approx(single.entropy(), abs=GOAL)
    np.testing.assert_array_equal(trees.mode(), single.mode())


@pytest.mark.parametrize("single_root", [True, False])
def test_masks_of_two_sizes_do_not_hide_each_other(single_root):
    low = float(np.finfo(np.float64).min)
    scores = np.array([[0, low, low], [0, 0, -1e20], [0, -1e20, 0.0]])
    trees = fg.SpanningTrees(scores, single_root=single_root)
    # 0 -> 1 -> 2 and 0 -> 2 -> 1 have equal scores, and 0 -> 1, 0 -> 2 a far lower one
    np.testing.assert_allclose(trees.marginals()[:, 1], [0.5, 0.0, 0.5], atol=GOAL)
    assert trees.entropy() == pytest.approx(np.log(2), abs=GOAL)
    assert trees.log_prob([0, 1]) == pytest.approx(-np.log(2), abs=GOAL)
    assert sorted(tree.tolist() for tree, _ in trees.kbest(2)) == [[0, 1], [2, 0]]
    assert len(trees.sample_without_replacement(2, 0)) == 2


def test_log_prob_if_a_masked_root_arc_is_forced():
    no = -np.inf
    scores = np.array(
        [[0, 4431, -1e6, 2813], [0, 0, no, 8346], [0, -6051, 0, 26], [0, -2373, no, 0.0]]
    )
    trees = fg.SpanningTrees(scores, single_root=True)
    assert trees.log_prob([2, 0, 1]) == pytest.approx(0.0, abs=GOAL)  # -6051 + 8346 = 2295
    assert trees.log_prob([3, 0, 2]) == pytest.approx(-2373 + 26 - 2295, abs=GOAL)


def test_projective_trees_keep_the_scores_beside_needed_masks():
    scores = np.array([[0, 1e6, 1.01e6], [0, 0, -1e38], [0, -1e38, 0.0]])
    trees = fg.ProjectiveTrees(scores, single_root=True)
    # either root arc needs one masked arc: 2 -> 1 has 1e4 nats more
    np.testing.assert_allclose(trees.marginals()[0], [0, 0, 1], atol=1e-12)
    assert trees.mode().tolist() == [2, 0]
    assert trees.entropy() == pytest.approx(0.0, abs=1e-6)
    assert trees.log_prob([0, 1]) == pytest.approx(-1e4, rel=1e-9)
    assert trees.sample(3, 0).tolist() == [[2, 0]] * 3


@pytest.mark.parametrize("mask", [-1e5, -1e9, float(np.finfo(np.float64).min)])
def test_samples_where_every_head_of_a_word_is_masked(mask):
    scores = np.random.default_rng(9).normal(size=(5, 5))
    scores[:, 2] = mask
    for family, single_root in [*FAMILIES, (fg.ProjectiveTrees, False)]:
        trees = family(scores, single_root=single_root)
        shares = np.zeros((5, 5))
        for heads in trees.sample(4000, 0):
            shares[heads, np.arange(1, 5)] += 1 / 4000
        np.testing.assert_allclose(shares, trees.marginals(), atol=4.5 * 0.5 / np.sqrt(4000))
