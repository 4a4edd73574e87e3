"""Columns of the design: kept and streamed blocks against dense products."""

from itertools import combinations

import numpy as np
import pytest
from scipy import sparse

import fstgrad as fg
from fstgrad.core.errors import MemoryLimitError
from fstgrad.grm import blocks, design, joint


def counts(n=60, p=7, rate=0.7, seed=0):
    return np.random.default_rng(seed).poisson(rate, (n, p)).astype(float)


def colex(features, size):
    return sorted(combinations(range(features), size), key=lambda s: s[::-1])


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("make", [blocks.store, blocks.stream])
def test_products_squares_and_entries_are_those_of_dense_columns(size, make):
    x = counts()
    block = make(sparse.csr_matrix(x), blocks.Term(size, size), None)
    whole = {s: x[:, s].prod(axis=1) for s in colex(7, size - 1)}
    dense = np.stack([whole[tuple(m)] for m in block.members.tolist()], axis=1)
    rng = np.random.default_rng(1)
    same = np.full(60, 0.3)
    same[[3, 40]] = -1.0
    few = rng.permutation(block.keys.size)[:3]
    for vector in (rng.normal(size=60), same):
        for columns in (np.arange(block.keys.size), few):
            np.testing.assert_allclose(
                block.products(columns, vector), vector @ dense[:, columns], atol=1e-12
            )
    weights = 0.5 + np.arange(len(dense))
    np.testing.assert_allclose(block.sums_of_squares(weights), weights @ dense**2, rtol=1e-12)
    indptr, rows, values = block.gather(few)
    for place, column in enumerate(few):
        part = slice(indptr[place], indptr[place + 1])
        made = np.bincount(rows[part], values[part], minlength=60)
        np.testing.assert_allclose(made, dense[:, column], atol=1e-15)


def test_streamed_columns_of_candidates_are_those_that_are_kept():
    x = sparse.csr_matrix(counts())
    sets = np.array([[0, 1, 2], [1, 3, 6]])
    kept, made = (f(x, blocks.Term(3, 3), sets) for f in (blocks.store, blocks.stream))
    np.testing.assert_array_equal(kept.keys, made.keys)
    vector = np.linspace(-1, 1, 60)
    columns = np.arange(kept.keys.size)
    np.testing.assert_allclose(kept.products(columns, vector), made.products(columns, vector))


@pytest.mark.parametrize("symmetrize", ["joint", "average"])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_fit_whose_design_is_streamed_is_the_same(symmetrize, scaled, monkeypatch):
    x = counts(n=150, p=6, rate=1.5)
    arguments = {"k": 3, "alpha": 0.02, "symmetrize": symmetrize, "scale_columns": scaled}
    kept = fg.GeneralizedRootModel(**arguments, tol=1e-8).fit(x)
    monkeypatch.setattr(design, "STORED_BYTES", 1e12)
    monkeypatch.setattr(design, "LEAST_SETS", 3)
    monkeypatch.setattr(joint, "AT_ONCE", 2)
    made = fg.GeneralizedRootModel(**arguments, tol=1e-8, max_memory=1e6).fit(x)
    assert made.kkt_.max() <= 1e-8
    assert made.parameters_.flat.values.size == kept.parameters_.flat.values.size > 0
    ours, theirs = made.parameters_.flat.values, kept.parameters_.flat.values
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert abs(made.score(x) - kept.score(x)) < 1e-8


def test_columns_in_play_that_do_not_fit_are_refused(monkeypatch):
    x = counts(n=150, p=6, rate=1.5)
    monkeypatch.setattr(design, "STORED_BYTES", 1e12)
    with pytest.raises(MemoryLimitError, match="raise alpha"):
        fg.GeneralizedRootModel(k=3, alpha=1e-4, symmetrize="average", max_memory=3e4).fit(x)
