"""A factor over no node is a constant of the score: every method counts it."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf import uai
from fstgrad.mrf.factors import Factor
from tests.helpers.fields import FACTORS, OFFSET


@pytest.fixture
def models():
    plain = fg.PairwiseMRF.from_factors([2, 2, 2], FACTORS)
    return plain, fg.PairwiseMRF.from_factors([2, 2, 2], [*FACTORS, Factor((), OFFSET)])


@pytest.mark.parametrize(
    "method, options",
    [
        ("exact", {}),
        ("exact", {"max_memory": 1 << 20}),
        ("bp", {}),
        ("bp", {"schedule": "residual"}),
        ("trw", {}),
        ("mean-field", {}),
        ("max-product", {}),
    ],
)
def test_log_partition(models, method, options):
    plain, raised = (model.infer(method, **options).log_partition for model in models)
    assert raised == pytest.approx(plain + OFFSET, abs=1e-10)


@pytest.mark.parametrize("method", ["exact", "max-product", "icm", "graph-cut"])
def test_labelings(models, method):
    plain, raised = (model.decode(method) for model in models)
    assert raised.score == pytest.approx(plain.score + OFFSET, abs=1e-12)
    assert raised.gap == pytest.approx(plain.gap, abs=1e-9)


def test_a_file_keeps_the_constant(models, tmp_path):
    for number, model in enumerate(models):
        uai.write_model(tmp_path / "m.uai", model)
        table = uai.read_model(tmp_path / "m.uai")
        assert table.to_mrf().offset == pytest.approx(number * OFFSET, abs=1e-14)
        scopes = (tmp_path / "m.uai").read_text().splitlines()[4:]
        assert ("0" in scopes) == (number == 1)  # a factor over no node


def test_probabilities_do_not_change(models):
    plain, raised = models
    assert raised.log_prob([0, 1, 0]) == pytest.approx(plain.log_prob([0, 1, 0]), abs=1e-12)
    assert raised.nll([0, 1, 0])[0] == pytest.approx(plain.nll([0, 1, 0])[0], abs=1e-12)
    assert raised.entropy() == pytest.approx(plain.entropy(), abs=1e-12)
    assert plain.cross_entropy(raised) == pytest.approx(plain.entropy(), abs=1e-12)
    assert plain.kl(raised) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("offset", [3.7, -3.7])
def test_a_minimum_cut_is_certified(offset):
    """The bound counts the constant too: a gap of zero, whatever its sign."""
    model = fg.PairwiseMRF.from_factors([2, 2, 2], [*FACTORS, Factor((), offset)])
    found = model.decode("graph-cut")
    assert found.gap == pytest.approx(0, abs=1e-12)
    assert found.score == pytest.approx(model.decode("exact").score, abs=1e-12)


def test_a_score_is_the_tables_and_the_constant(models):
    for model, constant in zip(models, (0.0, OFFSET), strict=True):
        y = [0, 1, 0]
        assert model.log_base(y) == constant
        tables = model.inner(model.parts(y), model.scores)
        assert tables + constant == pytest.approx(model.score(y), abs=1e-12)


@pytest.mark.parametrize("mask", [-1e9, -1e300, np.finfo(float).min, 1e7])
@pytest.mark.parametrize("shared", [True, False])
def test_a_table_that_is_all_masks_adds_a_constant(mask, shared):
    """Edges or larger factors that are masked as a whole, as in padding, change no probability."""
    rng = np.random.default_rng(0)
    node, edges = rng.normal(size=(4, 3)), [(0, 1), (1, 2), (2, 3), (0, 3)]
    table = np.full((3, 3) if shared else (4, 3, 3), mask)
    plain, masked = (fg.PairwiseMRF(node, edge, edges) for edge in (0 * table, table))
    for method in ("exact", "bp", "trw", "mean-field"):
        np.testing.assert_array_equal(masked.infer(method).node, plain.infer(method).node)
    assert masked.log_partition() == pytest.approx(plain.log_partition() + 4 * max(mask, -1e300))
    assert masked.nll([0, 1, 2, 0])[0] == pytest.approx(plain.nll([0, 1, 2, 0])[0], abs=1e-12)
    scopes = [([i], node[i]) for i in range(4)]
    larger = fg.PairwiseMRF.from_factors([3] * 4, [*scopes, ([0, 1, 3], np.full((3, 3, 3), mask))])
    assert larger.entropy() == pytest.approx(plain.entropy(), abs=1e-12)
