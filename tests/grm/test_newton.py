"""Newton steps: normal matrices against columns."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.grm import newton
from fstgrad.grm.kernels import descent
from fstgrad.grm.kernels import design as design_kernels

pytest.importorskip("sklearn")


def words(n=300, p=8, seed=0):
    """Counts of words with topics: most are zero, and one column has no zeros."""
    rng = np.random.default_rng(seed)
    rate = rng.gamma(0.4, 1.5, size=(n, 3)) @ rng.gamma(0.3, 1.0, size=(3, p))
    x = rng.poisson(rate)
    x[:, 0] = 1 + rng.poisson(2.0, size=n)
    return x


@pytest.mark.parametrize("symmetrize", ["joint", "average"])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("base", ["poisson", "negative-binomial"])  # one and two free intercepts
def test_matrices_and_columns_give_the_same_fit(monkeypatch, base, k, symmetrize):
    formed, found, fill = [], [], descent.fill_matrix
    monkeypatch.setattr(descent, "fill_matrix", lambda *given: formed.append(fill(*given)))
    for products in (1e9, -1.0):
        monkeypatch.setattr(newton, "PRODUCTS", products)
        model = fg.GeneralizedRootModel(
            k=k, base=base, alpha=0.02, tol=1e-9, symmetrize=symmetrize
        ).fit(words())
        assert model.kkt_.max() <= 1e-9
        assert bool(formed) == (products > 0)
        formed.clear()
        found.append(model.parameters_.flat)
    np.testing.assert_array_equal(found[0].members, found[1].members)
    np.testing.assert_allclose(found[0].values, found[1].values, atol=1e-6)


@pytest.mark.parametrize("m", [1, 7])
def test_a_normal_matrix_is_the_product_of_dense_matrices(m):
    """Full columns, sparse ones, empty ones, and a column with all entries but the first."""
    rng = np.random.default_rng(m)
    n, c = 40, 3
    dense = rng.normal(size=(n, m)) * (rng.random((n, m)) < rng.random(m))
    dense[:, 0], dense[:, m // 2], dense[1:, -1] = 1.0, 0.0, 2.0
    rows = [np.flatnonzero(column) for column in dense.T]
    ends = np.cumsum([0, *(r.size for r in rows)])
    slots = design_kernels.Slots(
        np.arange(m + 1), np.zeros(m, np.int64), rng.integers(0, c, m), ends[:-1], ends[1:],
        np.concatenate(rows), np.concatenate([dense[r, j] for j, r in enumerate(rows)]),
    )  # fmt: skip
    square = rng.normal(size=(n, c, c))
    hessian = square @ square.transpose(0, 2, 1)
    entries = np.empty(m * m)
    descent.fill_matrix(slots, np.arange(m), hessian, entries)
    weight = hessian[:, slots.coordinate][:, :, slots.coordinate]
    expected = np.einsum("ia,iab,ib->ab", dense, weight, dense) / n
    np.testing.assert_allclose(entries.reshape(m, m), expected, rtol=1e-12, atol=1e-14)
    counts = (dense != 0).sum(axis=1)
    assert descent.count_products(slots, np.arange(m), n) == (counts**2).sum()
