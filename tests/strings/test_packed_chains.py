"""Chains that lie position by position have the sums of `LinearChains`, in and beyond range."""

import numpy as np
import pytest

from fstgrad.core.errors import InvalidInputError
from fstgrad.strings.packed_chains import Packed, _padded, solve_packed


@pytest.mark.parametrize("n", [1, 2, 5, 17])
@pytest.mark.parametrize("scale", [1.0, 30.0, 3000.0])
def test_sums_are_those_of_padded_chains(n, scale):
    rng = np.random.default_rng(n)
    for items in (1, 9):
        packed = Packed.of(np.sort(rng.integers(1, 8, items))[::-1].copy())
        emissions = rng.normal(size=(len(packed.item), n)) * scale
        transitions = rng.normal(size=(n, n)) * scale / 5
        before = emissions.copy()
        expected = _padded(emissions, transitions, packed)
        found = solve_packed(emissions, transitions, packed)
        for own, array in zip(found, expected, strict=True):
            np.testing.assert_allclose(own, array, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(emissions, before)


def test_forbidden_symbols_and_scores_that_are_none():
    packed = Packed.of(np.array([2, 1]))
    emissions = np.zeros((3, 2))
    emissions[1] = -np.inf, 0.0
    found = solve_packed(emissions, np.zeros((2, 2)), packed)
    np.testing.assert_allclose(found.log_z, [np.log(4), 0.0], atol=1e-15)
    for wrong in (np.nan, np.inf, 1e301):
        emissions[2] = 0.0, wrong
        with pytest.raises(InvalidInputError):
            solve_packed(emissions, np.zeros((2, 2)), packed)
