"""Padding, empty sentences, divergences across families, offsets, orders of entropy near one."""

import numpy as np
import pytest

import fstgrad as fg
from tests.oracles import trees as oracle

both = pytest.mark.parametrize("single_root", [True, False])
FAMILIES = [
    (family, single_root)
    for family in (fg.SpanningTrees, fg.ProjectiveTrees)
    for single_root in (True, False)
]
families = pytest.mark.parametrize("family, single_root", FAMILIES)


@families
@pytest.mark.parametrize("labels", [None, 3])
@pytest.mark.parametrize("junk", [np.nan, np.inf, -np.inf, 1e308])
def test_padding_is_not_read(family, single_root, labels, junk):
    rng = np.random.default_rng(0)
    shape = (2, 5, 5) + ((labels,) if labels else ())
    scores, other, costs = rng.normal(size=(3, *shape))
    lengths = np.array([4, 2])
    spoiled, rival = scores.copy(), other.copy()
    for table in (spoiled, rival):
        table[1, 3:] = junk
        table[1, :, 3:] = junk
    results = []
    for p, q in ((scores, other), (spoiled, rival)):
        p, q = (
            family(x, single_root=single_root, lengths=lengths, labeled=labels is not None)
            for x in (p, q)
        )
        results.append(
            [
                p.log_partition(),
                p.marginals(),
                *p.entropy_and_gradient(),
                *p.risk(costs),
                *p.kl_and_gradients(q),
                p.renyi(2.0),
                p.mode(),
                p.covariance_product(costs),
                *p.nll(p.mode()),
            ]
        )
    for clean, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, clean, atol=1e-12)


@families
@pytest.mark.parametrize("labels", [None, 2])
def test_an_empty_sentence_has_one_tree(family, single_root, labels):
    shape = (3, 4, 4) + ((labels,) if labels else ())
    scores = np.random.default_rng(1).normal(size=shape)
    options = {"single_root": single_root, "labeled": labels is not None}
    batch = family(scores, lengths=[3, 0, 2], **options)
    assert batch.log_partition()[1] == 0
    assert not batch.marginals()[1].any()
    value, gradient = batch.entropy_and_gradient()
    assert value[1] == 0
    assert not gradient[1].any()
    assert batch.kl(batch).tolist() == [0, 0, 0]
    assert (batch.mode()[1] == -1).all()
    assert batch.log_prob(batch.sample(5, 0))[:, 1].tolist() == [0] * 5
    assert batch.nll(batch.mode())[0][1] == 0
    assert [len(found) for found in batch.kbest(2)] == [2, 1, 2]
    alone = family(scores[1][:1, :1], **options)
    assert alone.log_partition() == alone.entropy() == 0
    assert alone.mode().shape == ((0, 2) if labels else (0,))
    with pytest.raises(fg.InvalidInputError, match="n dependents"):
        family(np.zeros((0, 0)), single_root=single_root)


def probabilities(scores, single_root, projective):
    structures, tables = oracle.tables(scores.shape, single_root=single_root, projective=projective)
    totals = np.array([scores[t > 0].sum() for t in tables])
    p = np.exp(totals - np.logaddexp.reduce(totals))
    return {tuple(np.ravel(s).tolist()): x for s, x in zip(structures, p, strict=True) if x > 0}


@pytest.mark.parametrize("labels", [None, 2])
@pytest.mark.parametrize("own", FAMILIES)
@pytest.mark.parametrize("rival", FAMILIES)
def test_divergence_across_families(own, rival, labels):
    """By summing over trees; +inf where the other family lacks one of them."""
    rng = np.random.default_rng(2)
    for n in (1, 2, 3, 4) if labels is None else (2, 3):
        for holes in (False, True):
            shape = (n + 1, n + 1) + ((labels,) if labels else ())
            p, q = rng.normal(size=(2, *shape))
            if holes and n > 2:
                p[2:, 1] = p[0, 2:] = -np.inf
                q[(0, 1)] = rng.normal()
            first, second = (
                family(x, single_root=single, labeled=labels is not None)
                for (family, single), x in zip((own, rival), (p, q), strict=True)
            )
            chances = [
                probabilities(x, single, family is fg.ProjectiveTrees)
                for (family, single), x in zip((own, rival), (p, q), strict=True)
            ]
            expected = sum(
                x * np.log(x / chances[1][tree]) if tree in chances[1] else np.inf
                for tree, x in chances[0].items()
            )
            assert first.kl(second) == pytest.approx(expected, abs=1e-10)
            cross = expected + first.entropy()
            assert first.cross_entropy(second) == pytest.approx(cross, abs=1e-10)
            if np.isinf(expected):
                with pytest.raises(fg.InvalidInputError, match=r"other forbids.*\+inf"):
                    first.kl_and_gradients(second)


def test_one_crossing_tree_among_many_is_found():
    """Arcs whose trees cross only together: 1 -> 3 with 2 -> 4; all others are projective."""
    p = np.full((5, 5), -np.inf)
    for head, dependent in ((0, 1), (1, 2), (1, 3), (1, 4), (2, 4)):
        p[head, dependent] = 0.0
    p[2, 4] = -40.0
    spanning = fg.SpanningTrees(p, single_root=True)
    assert spanning.kl(fg.ProjectiveTrees(np.zeros((5, 5)), single_root=True)) == np.inf
    p[1, 3], p[2, 3] = -np.inf, 0.0
    spanning = fg.SpanningTrees(p, single_root=True)
    projective = fg.ProjectiveTrees(p, single_root=True)
    assert spanning.kl(projective) == pytest.approx(0, abs=1e-12)


def test_masked_second_roots_do_not_count():
    """With all root arcs at -1e6 a second one has the probability exp(-1e6), which is 0."""
    rng = np.random.default_rng(12)
    scores, other = rng.normal(size=(2, 4, 4))
    scores[0] -= 1e6
    for family in (fg.SpanningTrees, fg.ProjectiveTrees):
        many = family(scores, single_root=False)
        one = family(scores, single_root=True)
        q = fg.SpanningTrees(other, single_root=True)
        assert many.kl(q) == pytest.approx(one.kl(q), abs=1e-9)
        near = family(
            np.where(np.arange(4)[:, None] == 0, scores + 1e6 - 30, scores), single_root=False
        )
        assert near.kl(q) == np.inf  # exp(-30) is rare, but not 0


@both
def test_divergences_need_the_same_words(single_root):
    p = fg.SpanningTrees(np.zeros((2, 4, 4)), single_root=single_root, lengths=[3, 2])
    for other, words in (
        (fg.SpanningTrees(np.zeros((2, 4, 4)), single_root=single_root), "length 3 of item 1"),
        (fg.SpanningTrees(np.zeros((2, 5, 5)), single_root=single_root), r"shape \(2, 5, 5\)"),
        (fg.SpanningTrees(np.zeros((2, 4, 4, 2)), single_root=single_root), "labels"),
        (3.0, "float"),
    ):
        for call in (p.kl, p.cross_entropy, p.kl_and_gradients, p.cross_entropy_and_gradients):
            with pytest.raises(fg.InvalidInputError, match=words):
                call(other)


@families
@pytest.mark.parametrize("offset", [0, -1e6, 1e9])
def test_offsets_leave_divergence_and_entropy_alone(family, single_root, offset):
    rng = np.random.default_rng(4)
    for shape in ((6, 6), (5, 5, 3)):
        scores, rest = rng.integers(-8, 8, size=(2, *shape)) / 4  # exact with the offsets
        plain, other = (
            family(x, single_root=single_root, labeled=len(shape) == 3) for x in (scores, rest)
        )
        moved, rival = (p.with_scores(p.scores + offset) for p in (plain, other))
        assert moved.kl(moved) == 0
        assert moved.kl(rival) == pytest.approx(plain.kl(other), abs=1e-10)
        assert moved.entropy() == pytest.approx(plain.entropy(), abs=1e-10)
        assert moved.renyi(2) == pytest.approx(plain.renyi(2), abs=1e-10)


@families
@pytest.mark.parametrize("order", [1 - 1e-3, 1 + 1e-14, 1 - 1e-9, 1 + 1e-6, 1.0099, 1.0101])
def test_renyi_near_order_one(family, single_root, order):
    """Against sums over trees: (log sum p^a) / (1 - a) in 50 digits."""
    import mpmath

    scores = 2 * np.random.default_rng(5).normal(size=(5, 5))
    p = probabilities(scores, single_root, family is fg.ProjectiveTrees)
    with mpmath.workdps(50):
        a = mpmath.mpf(order)
        z = mpmath.fsum(mpmath.mpf(x) for x in p.values())
        total = mpmath.fsum((mpmath.mpf(x) / z) ** a for x in p.values())
        expected = float(mpmath.log(total) / (1 - a))
    trees = family(scores, single_root=single_root)
    value, gradient = trees.renyi_and_gradient(order)
    assert value == trees.renyi(order) == pytest.approx(expected, abs=1e-11)
    v, step = np.random.default_rng(6).normal(size=scores.shape), 1e-5
    ends = [trees.with_scores(scores + s * step * v).renyi(order) for s in (1, -1)]
    assert (gradient * v).sum() == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-7)


@families
@pytest.mark.parametrize("order", [0.05, 0.3, 3.0])
def test_renyi_of_wide_scores(family, single_root, order):
    """Orders below 1 count trees that are far below the best one."""
    import mpmath

    scores = 50 * np.random.default_rng(8).normal(size=(4, 4))
    projective = family is fg.ProjectiveTrees
    _, tables = oracle.tables(scores.shape, single_root=single_root, projective=projective)
    with mpmath.workdps(50):
        totals = [mpmath.fsum(scores[table > 0].tolist()) for table in tables]
        log_z = mpmath.log(mpmath.fsum(mpmath.exp(x) for x in totals))
        total = mpmath.fsum(mpmath.exp(order * (x - log_z)) for x in totals)
        expected = float(mpmath.log(total) / (1 - mpmath.mpf(order)))
    found = family(scores, single_root=single_root).renyi(order)
    assert found == pytest.approx(expected, abs=1e-11)


@both
def test_crossing_trees_have_no_probability(single_root):
    scores = np.random.default_rng(7).normal(size=(2, 5, 5))
    crossing, flat = [0, 1, 1, 2], [0, 1, 1, 1]  # 1 -> 3 and 2 -> 4
    assert not oracle.is_projective(tuple(crossing))
    trees = fg.ProjectiveTrees(scores, single_root=single_root)
    found = trees.log_prob([flat, crossing])
    assert np.isfinite(found[0])
    assert found[1] == -np.inf
    with pytest.raises(fg.InfeasibleError, match=r"gold\[1\] .*\(1, 3\) and \(2, 4\)"):
        trees.nll([flat, crossing])
    alone = fg.ProjectiveTrees(scores[0], single_root=single_root)
    assert alone.log_prob(crossing) == -np.inf
    probs = [np.exp(alone.log_prob(heads)) for heads in oracle.trees(4, single_root=single_root)]
    assert sum(probs) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 3)])
def test_a_sentence_of_no_words_has_one_tree_to_draw(shape, single_root):
    trees = fg.SpanningTrees(np.zeros(shape), single_root=single_root)
    ((tree, log_prob),) = trees.sample_without_replacement(2, np.random.default_rng(0))
    assert len(tree) == 0
    assert log_prob == 0.0
