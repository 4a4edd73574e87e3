"""Bounds on log Z and marginals: they hold, close, and have gradients."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf.factors import Factor
from tests.helpers.fields import FACTORS, OFFSET, enumerated, model_of, models
from tests.mrf.models import masked_model, random_grid, random_model

HOURS = {"max_seconds": 1e5}  # no result may depend on the speed of the machine


def brackets(model, **options):
    try:
        log_z = model.log_partition()
    except fg.InfeasibleError:
        return
    exact = model.marginals().node
    found = model.infer("bounds", **options)
    slack = 1e-9 * max(1.0, abs(log_z))
    assert found.lower - slack <= log_z <= found.upper + slack
    assert (found.node_lower - 1e-9 <= exact).all()
    assert (exact <= found.node_upper + 1e-9).all()
    assert found.converged == (found.upper - found.lower <= options["tolerance"])


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("cells", [0, 9])
def test_bounds_hold(parts, cells):
    for model in models(50, seed=parts):
        brackets(model, tolerance=1e-6, max_parts=parts, max_cells=cells)


@pytest.mark.nightly
def test_bounds_hold_in_10000_models():
    for number, model in enumerate(models(10_000, seed=7)):
        brackets(model, tolerance=1e-3, max_parts=1 + number % 4, max_cells=4 * (number % 3))


def factor_models(count, seed=0):
    """Random models of factors over one to eight nodes, with the scores of all labelings."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        sizes = np.sort(rng.integers(1, 4, size=rng.integers(1, 9)))[::-1].copy()
        sizes[7:] = 1
        scale, factors = float(np.exp(rng.uniform(-1, 2.3))), []
        for _ in range(rng.integers(1, 7)):
            scope = rng.permutation(len(sizes))[: rng.integers(1, 9)].tolist()
            table = scale * rng.normal(size=sizes[scope])
            if rng.random() < 0.2:
                table[rng.random(table.shape) < 0.2] = -np.inf
            factors.append((scope, table))
        _, scores = enumerated([Factor(*f) for f in factors], sizes.tolist())
        if scores.max() > -np.inf:
            yield fg.PairwiseMRF.from_factors(sizes, factors), scores.reshape(sizes)


@pytest.mark.parametrize("options", [{"max_cells": 0}, {"max_cells": 6}, {"max_seconds": 1e-9}])
@pytest.mark.parametrize("parts", [1, 5])
def test_bounds_of_factors_of_any_arity_hold(options, parts):
    for model, scores in factor_models(10, seed=parts):
        log_z = np.logaddexp.reduce(scores.ravel())
        found = model.infer(
            "bounds", tolerance=0, max_parts=parts, **{"max_cells": 1, **HOURS, **options}
        )
        slack = 1e-9 * max(1.0, abs(log_z))
        assert found.lower - slack <= log_z <= found.upper + slack
        assert model.infer("trw", max_iter=5).log_partition >= log_z - slack
        for v, size in enumerate(scores.shape):
            others = tuple(u for u in range(scores.ndim) if u != v)
            exact = np.exp(scores - log_z).sum(axis=others)
            assert (found.node_lower[v, :size] <= exact + 1e-9).all()
            assert (exact <= found.node_upper[v, :size] + 1e-9).all()


def test_tree_reweighted_messages_of_factors_are_those_of_joint_nodes():
    compared = 0
    for model, _ in factor_models(10, seed=3):
        native, joint = (
            model.infer("trw", tol=1e-12, max_iter=3000, schedule=schedule)
            for schedule in ("flooding", "residual")
        )
        if native.converged and joint.converged:
            compared += 1
            assert native.log_partition == pytest.approx(joint.log_partition, abs=1e-7)
            np.testing.assert_allclose(native.node, joint.node, atol=1e-6)
            np.testing.assert_allclose(native.factors, joint.factors, atol=1e-6)
    assert compared > 5


def test_tree_reweighted_messages_that_grow_without_end_begin_anew():
    """All clauses "i and k imply j" of eight nodes: undamped messages grow fourfold a sweep."""
    clause = np.full((2, 2, 2), 1.5)
    clause[1, 0, 1] = 0.0
    triples = [(i, j, k) for i in range(8) for k in range(i + 1, 8) for j in range(8)
               if j not in (i, k)]  # fmt: skip
    model = fg.PairwiseMRF.from_factors([2] * 8, [(t, clause) for t in triples])
    found = model.infer("trw", max_iter=1500)
    assert found.converged
    assert model.log_partition() < found.log_partition < 312
    assert model.log_partition() < model.infer("trw", max_iter=30).log_partition < 316


def test_a_ring_of_wide_factors_is_bracketed():
    """Joint nodes of its factors would need tables of many gigabytes."""
    rng = np.random.default_rng(0)
    factors = [
        ([(start + step) % 20 for step in range(9)], rng.normal(size=(3,) * 9))
        for start in range(0, 20, 4)
    ]
    model = fg.PairwiseMRF.from_factors([3] * 20, factors)
    exact = model.log_partition()
    for cells in (0, 4096):
        found = model.infer("bounds", max_cells=cells, max_parts=2, max_seconds=0.2)
        assert found.lower <= exact <= found.upper
    assert found.upper - found.lower < 12


class Clock:
    """A clock that moves by one second each time that it is read."""

    def __init__(self):
        self.reads = 0

    def perf_counter(self):
        self.reads += 1
        return float(self.reads)


@pytest.mark.parametrize("cells", [0, 9])
@pytest.mark.parametrize("seconds", [1, 10, 40, 200])
def test_time_is_looked_at_between_sweeps(monkeypatch, cells, seconds):
    """After the end there are a few more looks, not those of all sweeps that are left."""
    model = random_grid(7, 7, 2, seed=1, scale=2.0, shared=False)
    clock = Clock()
    monkeypatch.setattr("fstgrad.mrf.resources.time", clock)
    found = model.infer("bounds", tolerance=0, max_cells=cells, max_seconds=seconds)
    assert clock.reads <= seconds + 20
    monkeypatch.undo()
    assert found.lower <= model.log_partition() <= found.upper


def test_bounds_close():
    model = random_grid(4, 4, 2, seed=3, scale=1.5)
    widths = [
        (found := model.infer("bounds", tolerance=0, max_parts=parts, max_cells=0, **HOURS)).upper
        - found.lower
        for parts in (1, 8, 64, 2000)
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1e-9
    assert model.infer("bounds", tolerance=0.1, max_cells=0, **HOURS).converged
    exact = model.infer("bounds", **HOURS)
    assert (exact.lower, exact.upper) == pytest.approx((model.log_partition(),) * 2)


def test_brackets_of_marginals_close():
    model = random_grid(3, 3, 3, seed=1)
    found = model.infer("bounds", tolerance=1e-10, max_parts=5000, max_cells=0, **HOURS)
    assert found.converged
    np.testing.assert_allclose(found.node_lower, model.marginals().node, atol=1e-9)
    np.testing.assert_allclose(found.node_upper, model.marginals().node, atol=1e-9)
    np.testing.assert_allclose(found.edge, model.marginals().edge, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_bounds_of_larger_factors(seed):
    model, _, scores = model_of(seed, scale=1.5)
    found = model.infer("bounds", tolerance=1e-9, max_parts=3, max_cells=0, **HOURS)
    assert found.lower - 1e-9 <= np.logaddexp.reduce(scores) <= found.upper + 1e-9
    assert found.factors.shape == model.factors.table.shape
    assert (found.node_upper >= model.marginals().node - 1e-9).all()


@pytest.mark.parametrize("parts", [1, 6])
def test_gradients_of_bounds(parts):
    """The lower one at a converged mean field, the upper one where messages have converged too."""
    model = random_model("complete", seed=5, scale=0.4)
    options = {"tolerance": 0, "max_parts": parts, "max_cells": 0, **HOURS}
    found = model.infer("bounds", **options)
    for which in range(2):
        for cell in list(np.ndindex(model.scores[which].shape))[::7]:
            ends = []
            for sign in (1, -1):
                moved = [table.copy() for table in model.scores]
                moved[which][cell] += sign * 1e-4
                ends.append(model.with_scores(*moved).infer("bounds", **options))
            for name in ("lower", "upper"):
                slope = (getattr(ends[0], name) - getattr(ends[1], name)) / 2e-4
                table = getattr(found, f"{name}_gradient")
                assert table[which][cell] == pytest.approx(slope, abs=2e-3)


def test_a_forbidden_model():
    forbid = np.where(np.eye(2) == 1, -np.inf, 0.0)
    model = fg.PairwiseMRF(np.zeros((3, 2)), forbid, [(0, 1), (1, 2), (2, 0)])
    with pytest.raises(fg.InfeasibleError):
        model.infer("bounds", max_cells=0)
    assert masked_model("complete").infer("bounds", max_cells=0).upper > -np.inf


def test_the_offset_is_counted():
    plain = fg.PairwiseMRF.from_factors([2, 2, 2], FACTORS)
    raised = fg.PairwiseMRF.from_factors([2, 2, 2], [*FACTORS, Factor((), OFFSET)])
    for cells in (0, 100):
        one, other = (m.infer("bounds", max_cells=cells, **HOURS) for m in (plain, raised))
        assert other.lower == pytest.approx(one.lower + OFFSET)
        assert other.upper == pytest.approx(one.upper + OFFSET)
        assert other.log_partition == pytest.approx(one.log_partition + OFFSET)


@pytest.mark.parametrize("options", [{"tolerance": -1}, {"max_parts": 0}, {"max_cells": -1}])
def test_bad_options(options):
    with pytest.raises(fg.InvalidInputError, match=next(iter(options))):
        random_model("triangle").infer("bounds", **options)


@pytest.mark.parametrize("scale", [1, 4])
def test_the_bound_of_one_part_is_that_of_trees(scale):
    model = random_grid(4, 4, 2, seed=3, scale=scale)
    found = model.infer("bounds", tolerance=0, max_parts=1, max_cells=0, **HOURS)
    assert found.upper == pytest.approx(model.infer("trw").log_partition, abs=1e-6)


def test_an_exact_sum_is_not_begun_where_the_time_does_not_suffice():
    """The largest table of this grid has 2^18 cells, all its tables have 9 million."""
    rng = np.random.default_rng(5)
    model = fg.PairwiseMRF.grid(12, 60, rng.normal(size=(720, 2)), rng.normal(size=(2, 2)))
    exact = model.infer("bounds", **HOURS)
    assert exact.lower == exact.upper == pytest.approx(model.log_partition(), abs=1e-9)
    found = model.infer("bounds", max_seconds=1e-3)
    assert found.lower < exact.lower < found.upper
    assert found.parts == 1
