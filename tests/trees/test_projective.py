"""Projective trees meet the contract, and count right."""

import math

import numpy as np
import pytest

import fstgrad as fg
from tests.contract import DistributionContract
from tests.helpers.trees import enumerated, masked
from tests.oracles import trees as oracle

both = pytest.mark.parametrize("single_root", [True, False])


class Projective(DistributionContract):
    takes_costs = True

    single_root: bool

    def cases(self):
        rng = np.random.default_rng(15)
        plain = rng.normal(size=(5, 5))
        return [
            enumerated(
                table, single_root=self.single_root, family=fg.ProjectiveTrees, projective=True
            )
            for table in (
                rng.normal(size=(2, 2)),
                rng.normal(size=(3, 3)),
                2 * plain,
                masked(plain, (1, 2), (0, 3), (3, 1)),
                rng.normal(size=(4, 4, 2)),
            )
        ]


class TestSingleRoot(Projective):
    single_root = True


class TestManyRoots(Projective):
    single_root = False


@both
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_second_order_against_enumeration(n, single_root):
    scores = np.random.default_rng(n).normal(size=(n + 1, n + 1))
    log_z, mean, covariance = oracle.moments(scores, single_root=single_root, projective=True)
    distribution = fg.ProjectiveTrees(scores, single_root=single_root)
    assert distribution.log_partition() == pytest.approx(log_z, abs=1e-12)
    np.testing.assert_allclose(distribution.marginals(), mean, atol=1e-12)
    np.testing.assert_allclose(distribution.covariance_matrix(), covariance, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 20, 40])
def test_counts(n):
    """binom(3n, n) / (2n + 1) with many roots; with one, sum over its place r of two factors.

    The words to one side of a head, m of them, take binom(3m+1, m) / (3m + 1) shapes.
    """
    sides = [math.comb(3 * m + 1, m) // (3 * m + 1) for m in range(n)]
    expected = {
        False: math.comb(3 * n, n) // (2 * n + 1),
        True: sum(sides[r] * sides[n - 1 - r] for r in range(n)),
    }
    for single_root, count in expected.items():
        distribution = fg.ProjectiveTrees(np.zeros((n + 1, n + 1)), single_root=single_root)
        assert distribution.log_partition() == pytest.approx(math.log(count), abs=1e-11)
        assert distribution.entropy() == pytest.approx(math.log(count), abs=1e-11)


@both
def test_kbest_is_the_sorted_enumeration(single_root):
    scores = np.random.default_rng(3).normal(size=(5, 5))
    structures, tables = oracle.tables(scores.shape, single_root=single_root, projective=True)
    totals = np.array([(t * scores).sum() for t in tables])
    order = np.argsort(-totals)
    found = fg.ProjectiveTrees(scores, single_root=single_root).kbest(1000)
    assert len(found) == len(structures)
    for (tree, log_prob), i in zip(found, order, strict=True):
        assert tree.tolist() == structures[i].tolist()
        assert log_prob == pytest.approx(totals[i] - np.logaddexp.reduce(totals), abs=1e-11)


@both
@pytest.mark.parametrize("sd", [20, 100, 1000])
def test_any_range_of_scores(sd, single_root):
    scores = sd * np.random.default_rng(4).normal(size=(31, 31))
    distribution = fg.ProjectiveTrees(scores, single_root=single_root)
    marginals = distribution.marginals()
    np.testing.assert_allclose(marginals[:, 1:].sum(axis=0), 1, atol=1e-9)
    assert 0 <= marginals.min() <= marginals.max() <= 1 + 1e-12
    best = distribution.log_prob(distribution.mode())
    assert best >= distribution.log_prob(distribution.sample(20, 0)).max() - 1e-9
    _, gradient = distribution.entropy_and_gradient()
    assert np.isfinite(gradient).all()


@both
def test_a_ragged_batch_is_its_items(single_root):
    rng = np.random.default_rng(6)
    lengths = [3, 8, 1]
    scores = rng.normal(size=(3, 9, 9))
    batch = fg.ProjectiveTrees(scores, single_root=single_root, lengths=lengths)
    value, gradient = batch.entropy_and_gradient()
    for i, n in enumerate(lengths):
        inner = np.s_[: n + 1, : n + 1]
        alone = fg.ProjectiveTrees(scores[i][inner], single_root=single_root)
        want, slope = alone.entropy_and_gradient()
        assert value[i] == pytest.approx(want, abs=1e-12)
        np.testing.assert_allclose(gradient[i][inner], slope, atol=1e-12)
        assert batch.mode()[i, :n].tolist() == alone.mode().tolist()
        assert (batch.sample(4, 0)[:, i, n:] == -1).all()


def test_no_projective_tree_is_named():
    # the only trees that these arcs allow cross: 1 -> 3 and 0 -> 2 with 2 -> 4
    scores = np.full((5, 5), -np.inf)
    for head, dependent in ((0, 2), (2, 4), (4, 1), (1, 3)):
        scores[head, dependent] = 0.0
    assert not oracle.is_projective((4, 0, 1, 2))
    with pytest.raises(fg.InfeasibleError, match="crossing arcs"):
        fg.ProjectiveTrees(scores, single_root=True).log_partition()
    with pytest.raises(fg.InfeasibleError, match="no allowed head"):
        fg.ProjectiveTrees(np.full((3, 3), -np.inf), single_root=True).mode()


@pytest.mark.parametrize("offset", [-1e6, -1000.0, -800.0, 800.0, 1000.0, 1e6])
@pytest.mark.parametrize("seed", range(5))
def test_a_constant_on_the_root_arcs_of_single_root_trees_changes_nothing_else(offset, seed):
    scores = np.random.default_rng(seed).normal(size=(6, 6))
    moved = scores.copy()
    moved[0] += offset
    one, other = (fg.ProjectiveTrees(s, single_root=True) for s in (scores, moved))
    digits = 1e-14 * max(abs(offset), 1000.0)  # that adding the offset has left
    assert other.log_partition() == pytest.approx(one.log_partition() + offset, abs=digits)
    assert other.entropy() == pytest.approx(one.entropy(), abs=20 * digits)
    np.testing.assert_allclose(other.marginals(), one.marginals(), atol=20 * digits)


@both
@pytest.mark.parametrize("sd", [300, 1000, 3000, 1e6])
def test_wide_scores_are_no_masks(sd, single_root):
    """The best tree may need arcs more than 1000 nats below others, though some trees do not."""
    rng = np.random.default_rng(16)
    _, tables = oracle.tables((5, 5), single_root=single_root, projective=True)
    for _ in range(20):
        scores = sd * rng.normal(size=(5, 5))
        totals = np.array([(t * scores).sum() for t in tables])
        log_z = np.logaddexp.reduce(totals)
        distribution = fg.ProjectiveTrees(scores, single_root=single_root)
        assert distribution.log_partition() == pytest.approx(log_z, rel=1e-12)
        expected = np.tensordot(np.exp(totals - log_z), tables, axes=1)
        np.testing.assert_allclose(distribution.marginals(), expected, atol=1e-12 * sd)


def test_masks_of_several_sizes():
    """Two masked arcs of -1e8 are better than one of -3e8, and kbest gives each tree its own."""
    scores = np.array([[0, -3, -2, -2], [0, 0, -1, -1], [0, 0, 0, -2], [0, -2, -3, 0.0]]) * 1e8
    distribution = fg.ProjectiveTrees(scores, single_root=False)
    assert distribution.log_partition() == -4e8 + np.log(2)
    np.testing.assert_allclose(
        distribution.marginals(), [[0, 0, 1, 0.5], [0] * 4, [0, 1, 0, 0.5], [0] * 4], atol=1e-12
    )
    found = distribution.kbest(100)
    assert len(found) == 12
    expected = [scores[tree, [1, 2, 3]].sum() + 4e8 - np.log(2) for tree, _ in found]
    np.testing.assert_allclose([p for _, p in found], expected, rtol=1e-12)
    assert expected == sorted(expected, reverse=True)


def test_the_methods_are_those_of_spanning_trees():
    """All but those that the guide names."""

    def methods(family):
        return {name for name in dir(family) if not name.startswith("_")}

    assert methods(fg.SpanningTrees) - methods(fg.ProjectiveTrees) == {
        "sample_without_replacement", "third_order", "with_column", "with_score"
    }  # fmt: skip
