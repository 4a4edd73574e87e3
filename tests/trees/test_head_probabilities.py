"""Chances of heads from an updated inverse against eliminations."""

import numpy as np
import pytest

from fstgrad.trees.kernels.sampling import (
    contract,
    contract_inverse,
    head_probabilities,
    head_weights,
    inverse_of_laplacian,
)


def weights(n, sd, seed):
    scores = sd * np.random.default_rng(seed).normal(size=(n + 1, n + 1))
    np.fill_diagonal(scores, -np.inf)
    scores[:, 0] = -np.inf
    scores[:, 1:] -= scores[:, 1:].max(axis=0)
    return np.exp(scores)


@pytest.mark.parametrize("sd", [1, 4, 12])
@pytest.mark.parametrize("n", [1, 2, 5, 15])
def test_chances_of_random_trees(n, sd):
    """Head by head; a level that says it is good has eight digits, chances that do not are told."""
    rng = np.random.default_rng(n)
    good_levels = 0
    for seed in range(10):
        w = weights(n, sd, seed)
        a, holder, inverse = w[:, 1:].copy(), np.arange(n + 1), np.empty((n, n))
        is_updated = inverse_of_laplacian(w, inverse)
        exact, found = np.empty((2, n + 1))
        for j in range(n - 1, -1, -1):
            assert head_weights(a[: j + 2, : j + 1], w, holder, j, False, exact)
            chances = exact / exact.sum()
            if is_updated:
                good, is_updated = head_probabilities(inverse, w, holder, j, found)
                if good and is_updated:
                    good_levels += 1
                    np.testing.assert_allclose(found, chances, rtol=1e-6, atol=1e-300)
            head = int(rng.choice(n + 1, p=chances))
            is_updated = is_updated and contract_inverse(inverse, j, holder[head])
            contract(a, holder, j, head, False)
    assert good_levels >= (0 if sd == 12 else 10)


def test_improbable_heads_are_told():
    w = weights(4, 1, 0)
    w[1, 4] = 1e-3
    w[4, 1] = 1e12  # the walk from 1 to the root passes through 4, so that 1 is hardly its head
    inverse, found = np.empty((4, 4)), np.empty(5)
    assert (
        not inverse_of_laplacian(w, inverse)
        or not head_probabilities(inverse, w, np.arange(5), 3, found)[0]
    )
