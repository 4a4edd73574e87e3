"""Finite masks: bounds hold where scores of -1e30 stand for hard zeros, and where none can be."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf.hard_zeros import with_hard_zeros
from tests.mrf.models import random_model

MASKS = [-1e9, -1e30, np.finfo(float).min]


def masked(mask, seed):
    model = random_model("complete", seed=seed)
    rng = np.random.default_rng(seed)
    node, edge = (table.copy() for table in model.scores)
    edge[rng.random(edge.shape) < 0.15] = mask
    node[rng.random(node.shape) < 0.1] = mask
    return model.with_scores(node, edge)


@pytest.mark.parametrize("mask", MASKS)
def test_bounds_hold_with_finite_masks(mask):
    for seed in range(8):
        model = masked(mask, seed)
        log_z, exact = model.log_partition(), model.marginals().node
        assert log_z > -1e6
        for schedule in ("flooding", "residual"):
            assert model.infer("trw", schedule=schedule).log_partition >= log_z - 1e-9
        for cells in (0, 9):
            found = model.infer("bounds", max_cells=cells, max_parts=3)
            assert found.lower - 1e-9 <= log_z <= found.upper + 1e-9
            assert (found.node_lower - 1e-9 <= exact).all()
            assert (exact <= found.node_upper + 1e-9).all()


def test_masks_become_hard_zeros_where_they_do_not_count():
    model = masked(-1e30, 0)
    plain = with_hard_zeros(model)
    assert (plain.scores.edge[model.scores.edge == -1e30] == -np.inf).all()
    assert plain.log_partition() == pytest.approx(model.log_partition(), abs=1e-12)


def test_masks_that_every_labeling_has_stay():
    """Each labeling pays 1e9 once: no hard zeros, or nothing would be left."""
    edge = np.full((2, 2), -1e9)
    node = np.array([[0.0, -2e9], [1.0, 0.0]])
    model = fg.PairwiseMRF(node, edge, [(0, 1)])
    plain = with_hard_zeros(model)
    assert plain.log_partition() == pytest.approx(model.log_partition(), abs=1e-6)
    tied = fg.PairwiseMRF(np.array([[0.0, -1e9], [-1e9, 0.0]]), -1e9 * np.eye(2)[::-1], [(0, 1)])
    assert with_hard_zeros(tied).log_partition() == pytest.approx(tied.log_partition())


@pytest.mark.parametrize("mask", [-1e9, -1e30])
def test_differences_beside_masks_that_every_labeling_has_are_an_error(mask):
    """The entropy was 9.93 for 0.524 at -1e9; offsets of single nodes are no such masks."""
    model = fg.PairwiseMRF([[0.0, mask], [1.0, mask]], [[[mask, 0.0], [2.0, 0.0]]], [[0, 1]])
    for differences in (model.marginals, model.entropy, lambda: model.log_prob([0, 0])):
        with pytest.raises(fg.InfeasibleError, match="every labeling has a mask such as -1e9"):
            differences()
    assert model.log_partition() == pytest.approx(mask)
    if mask < -1e12:
        for rough in (model.mode, lambda: model.sample(2, 0), lambda: model.infer("bp")):
            with pytest.raises(fg.InfeasibleError, match="every labeling has a mask such as -1e9"):
                rough()
    else:  # differences of scores keep seven digits
        assert model.mode().tolist() == [1, 0]
        e = np.exp(1.0)  # the labelings (0, 0), (0, 1), (1, 0) have the scores mask + 1, 0, 3
        first = (e + 1) / (e + 1 + e**3)
        assert model.infer("bp").node[0, 0] == pytest.approx(first, abs=1e-6)
    padded = fg.PairwiseMRF([[0.0, 1.0], [mask, mask]], np.eye(2), [(0, 1)])
    assert padded.marginals().node.sum() == pytest.approx(2.0)


def test_masks_of_nodes_without_edges():
    node = np.array([[0.0, -1e30], [2.0, 1.0]])
    model = fg.PairwiseMRF(node, np.zeros((0, 2, 2)), np.empty((0, 2), int))
    log_z = model.log_partition()
    assert model.infer("trw").log_partition == pytest.approx(log_z)
    assert model.infer("bounds", max_cells=0).upper == pytest.approx(log_z)


def test_masks_in_larger_factors():
    table = np.random.default_rng(0).normal(size=(2, 2, 2))
    table[0, 1, 0] = table[1, 1, 1] = -1e30
    model = fg.PairwiseMRF.from_factors([2, 2, 2], [((0, 1, 2), table), ((0, 1), table[0])])
    log_z = model.log_partition()
    assert model.infer("trw").log_partition >= log_z - 1e-9
    found = model.infer("bounds", max_cells=0, max_parts=2)
    assert found.lower - 1e-9 <= log_z <= found.upper + 1e-9


@pytest.mark.parametrize("mask", [-1e9, -1e30, float(np.finfo(np.float32).min), 1e12])
@pytest.mark.parametrize("edges", [[(0, 1), (1, 2), (2, 3)], [(0, 1), (1, 2), (2, 3), (0, 3)]])
def test_a_node_that_is_masked_whole_is_an_offset(mask, edges):
    """Padding of an image: every difference of scores is the same as without the offset."""
    rng = np.random.default_rng(len(edges))
    node, edge = rng.normal(size=(4, 3)), rng.normal(size=(len(edges), 3, 3))
    node[1] = 0.0
    masked = node.copy()
    masked[1] = mask
    p, q = (fg.PairwiseMRF(table, edge, edges) for table in (masked, node))
    y = np.array([0, 1, 2, 0])
    assert p.log_partition() == pytest.approx(q.log_partition() + mask, rel=1e-12)
    assert p.entropy() == pytest.approx(q.entropy(), abs=1e-12)
    assert p.log_prob(y) == pytest.approx(q.log_prob(y), abs=1e-12)
    other = [fg.PairwiseMRF(table, 0.5 * edge, edges) for table in (masked, node)]
    assert p.kl(other[0]) == pytest.approx(q.kl(other[1]), abs=1e-12)
    np.testing.assert_array_equal(p.mode(), q.mode())
    np.testing.assert_array_equal(p.sample(5, rng=0), q.sample(5, rng=0))
    for (labels, log_p), (expected, log_q) in zip(p.kbest(6), q.kbest(6), strict=True):
        np.testing.assert_array_equal(labels, expected)
        assert log_p == pytest.approx(log_q, abs=1e-12)
    for method in ("exact", "bp", "trw", "mean-field", "bounds"):
        found, expected = p.infer(method), q.infer(method)
        np.testing.assert_allclose(found.node, expected.node, atol=1e-12)
        assert found.log_partition == pytest.approx(expected.log_partition + mask, rel=1e-12)
    for method in ("exact", "max-product", "trw", "icm"):
        found, expected = p.decode(method), q.decode(method)
        np.testing.assert_array_equal(found.labels, expected.labels)
        assert found.score == pytest.approx(expected.score + mask, rel=1e-12)
    for method in ("exact", "bp", "trw", "mean-field", "pseudolikelihood"):
        value, gradient = p.nll(y, method)
        expected, slope = q.nll(y, method)
        assert value == pytest.approx(expected, abs=1e-12)
        np.testing.assert_allclose(gradient.node, slope.node, atol=1e-12)
    batch = fg.PairwiseMRFBatch(q, np.stack([masked, node]), edge)
    np.testing.assert_allclose(batch.nll(np.stack([y, y]))[0], q.nll(y)[0], atol=1e-12)


def test_ordinary_scores_are_returned_as_they_are():
    model = random_model("complete")
    assert with_hard_zeros(model) is model


@pytest.mark.filterwarnings("error")
def test_masks_of_the_least_float_add_up_without_overflow():
    """They count as -1e300, in sums of factors, too."""
    least = np.finfo(float).min
    table = np.array([[least, 0.0], [1.0, 2.0]])
    twice = fg.PairwiseMRF.from_factors([2, 2], [((0, 1), table), ((1, 0), table.T)])
    assert twice.scores.edge[0, 0, 0] == twice.score([0, 0]) == -1e300
    assert twice.log_partition() == pytest.approx(np.log(1 + np.exp(2) + np.exp(4)))
    dark = fg.PairwiseMRF(np.full((2, 1), least), np.zeros((1, 1)), [(0, 1)])
    assert dark.score([0, 0]) == -2e300


def test_mean_field_of_masks_that_no_product_avoids_at_its_start():
    least = np.finfo(float).min
    edge = np.array([[least, 0.0], [0.0, least]])
    model = fg.PairwiseMRF(np.zeros((4, 2)), edge, [(0, 1), (1, 2), (2, 3), (3, 0)])
    found = model.infer("mean-field")
    assert found.log_partition <= np.log(2) + 1e-12
    assert np.isfinite(found.log_partition)


@pytest.mark.parametrize("nodes", [3, 4])
def test_a_forbidden_best_labeling_does_not_say_that_there_is_no_other(nodes):
    """Neighbours on a cycle differ: possible for 4 nodes, not for 3; all messages are ties."""
    edges = [(i, (i + 1) % nodes) for i in range(nodes)]
    differ = np.where(np.eye(2) == 1, -np.inf, 0.0)
    model = fg.PairwiseMRF(np.zeros((nodes, 2)), differ, edges)
    assert model.infer("max-product").log_partition == -np.inf
    if nodes == 3:
        with pytest.raises(fg.InfeasibleError, match="every labeling has the score -inf"):
            model.decode("max-product")
    else:
        assert model.decode("max-product").score == 0
