"""Weighted mini-buckets and forests of mean field against enumeration and elimination."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf.exact.engine import exact
from fstgrad.mrf.mean_field import structured_mean_field
from fstgrad.mrf.mini_buckets import MiniBuckets
from tests.helpers.fields import model_of, models
from tests.mrf.models import SHAPES, masked_model, random_grid, random_model

SCOPES = [(0, 1, 2), (1, 3, 4), (2, 3, 0), (4, 0, 2)]  # none is within another


@pytest.mark.parametrize("cells", [1, 9, 27])
def test_the_bounds_hold(cells):
    held = 0
    for model in models(60, seed=cells):
        try:
            log_z, best = model.log_partition(), model.score(model.mode())
            bound = MiniBuckets(model, cells).value
            top = MiniBuckets(model, cells, maximum=True).value
        except fg.InfeasibleError:
            continue
        held += 1
        assert bound >= log_z - 1e-9 * max(1.0, abs(log_z))
        assert top >= best - 1e-9 * max(1.0, abs(best))
    assert held > 40


@pytest.mark.parametrize("model", [masked_model("complete"), model_of(1, scale=1.0)[0]])
def test_without_a_split_everything_is_exact(model):
    found = MiniBuckets(model, 10**9)
    assert found.value == pytest.approx(model.log_partition(), rel=1e-12)
    gradient, marginals = found.gradient(), model.marginals()
    for mine, goal in zip(
        (*gradient, gradient.factors), (*marginals, marginals.factors), strict=True
    ):
        np.testing.assert_allclose(mine, goal, atol=1e-12)
    best = MiniBuckets(model, 10**9, maximum=True)
    assert best.value == pytest.approx(model.score(model.mode()), rel=1e-12)
    assert model.score(best.labels()) == pytest.approx(best.value, rel=1e-12)


def test_labels_of_split_buckets_are_the_best_in_turn():
    for seed in range(5):
        found = MiniBuckets(model_of(seed, scopes=SCOPES, scale=3.0)[0], 4, maximum=True)
        labels, own = found.labels(), {}
        for bucket in found.buckets:
            v = bucket.scope[-1]
            row = bucket.table[tuple(labels[u] for u in bucket.scope[:-1])]
            own[v] = own.get(v, 0.0) + row
        assert len(own) < len(found.buckets)
        assert {v: int(row.argmax()) for v, row in own.items()} == dict(enumerate(labels.tolist()))


def test_parts_of_a_split_bucket_have_the_same_best_scores():
    for seed in range(5):
        found = MiniBuckets(model_of(seed, scopes=SCOPES, scale=3.0)[0], 4, maximum=True)
        best, split = {}, 0
        for bucket in found.buckets:
            own = bucket.table.max(axis=tuple(range(bucket.table.ndim - 1)))
            v = bucket.scope[-1]
            split += v in best
            np.testing.assert_allclose(own, best.setdefault(v, own), atol=1e-12)
        assert split


def moved_bound(found, node, edge):
    """The bound with scores of nodes and edges added, the shifts being those of `found`."""
    model, sent, value = found.model, {}, 0.0
    for number, bucket in enumerate(found.buckets):
        table = bucket.table.copy()
        for piece in bucket.pieces:
            if piece.source >= 0:
                change = sent[piece.source] - piece.table
            elif ~piece.source < model.num_nodes:
                change = node[piece.scope[0]]
            else:
                e = ~piece.source - model.num_nodes
                a, b = model.graph.edges[e]
                change = edge[e] if piece.scope == (a, b) else edge[e].T
            shape = [model.num_labels if v in piece.scope else 1 for v in bucket.scope]
            table += change.reshape(shape)
        sent[number] = bucket.weight * np.logaddexp.reduce(table / bucket.weight, axis=-1)
        if sent[number].ndim == 0:
            value += float(sent[number])
    return value


def test_the_gradient_is_that_of_the_bound_with_its_shifts():
    model = random_grid(4, 4, 3, seed=2, scale=1.0, shared=False)
    found = MiniBuckets(model, 9)
    assert len(found.buckets) > 16  # some bucket is split
    node, edge = (np.zeros(table.shape) for table in model.scores)
    assert moved_bound(found, node, edge) == pytest.approx(found.value, rel=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(5):
        step = [1e-5 * rng.normal(size=table.shape) for table in (node, edge)]
        ends = [moved_bound(found, *(sign * s for s in step)) for sign in (1, -1)]
        slope = sum((g * s).sum() for g, s in zip(found.gradient(), step, strict=True))
        assert slope == pytest.approx((ends[0] - ends[1]) / 2, rel=1e-6)


def test_a_factor_takes_what_is_within_it_at_any_limit():
    found = MiniBuckets(model_of(0, scopes=[(0, 1), (1,), (3, 2, 1, 0), (2, 3)])[0], 1)
    assert len(found.buckets) == 5  # no bucket is split
    assert found.value == pytest.approx(found.model.log_partition(), rel=1e-12)


def test_more_cells_bring_the_bounds_closer():
    model = random_grid(8, 8, 2, seed=0, scale=1.5, shared=False)
    values = [MiniBuckets(model, cells).value for cells in (4, 32, 128, 4096)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(model.log_partition(), rel=1e-12)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("build", [random_model, masked_model])
def test_forests_of_mean_field_are_a_lower_bound(name, build):
    model = build(name, seed=3)
    inner = model.infer("mean-field")
    found = structured_mean_field(model, inner.node)
    assert inner.log_partition - 1e-9 <= found.value <= model.log_partition() + 1e-9
    if model.is_forest:
        assert found.value == pytest.approx(model.log_partition(), rel=1e-9)
    for i, c in np.argwhere(found.node > -np.inf):
        assert found.node[i, c] <= model.condition({i: c}).log_partition() + 1e-9
    np.testing.assert_allclose(found.marginals.node.sum(axis=1), 1)
    np.testing.assert_allclose(found.marginals.edge.sum(axis=(1, 2)), 1)


def test_the_gradient_of_forests_at_their_optimum():
    model = random_grid(3, 4, 2, seed=5, scale=0.4, shared=False)

    def value(node, edge):
        moved = model.with_scores(node, edge)
        return structured_mean_field(moved, exact(moved).marginals.node)

    found = value(*model.scores)
    for which in range(2):
        for cell in list(np.ndindex(model.scores[which].shape))[::5]:
            ends = []
            for sign in (1, -1):
                moved = [table.copy() for table in model.scores]
                moved[which][cell] += sign * 1e-3
                ends.append(value(*moved).value)
            slope = (ends[0] - ends[1]) / 2e-3
            assert found.marginals[which][cell] == pytest.approx(slope, abs=2e-3)


def test_a_coupled_grid_is_bracketed():
    """Trees and naive mean field leave more than 30 nats here."""
    signs = np.random.default_rng(0).choice([-3.0, 3.0], size=112)[:, None, None]
    model = fg.PairwiseMRF.grid(8, 8, np.zeros((64, 2)), signs * np.eye(2))
    before = model.infer("bounds", max_cells=0, max_parts=1, max_seconds=1e5)
    after = model.infer("bounds", max_cells=128, max_parts=10, tolerance=0.5, max_seconds=1e5)
    log_z = model.log_partition()
    assert before.upper - before.lower > 30
    assert after.lower <= log_z <= after.upper
    assert after.upper - after.lower < 10
