"""Sampled objectives on lattices: near the exact ones, within their stated errors."""

import numpy as np
import pytest

import fstgrad as fg
from tests.lattices.random_lattice import ABC, RandomLattice

LATTICE = RandomLattice(6).lattice()
LOSSES = [fg.EditDistance(ABC), fg.NGram(ABC, 2, smoothing=0.2), fg.NGram(ABC, 1)]


@pytest.mark.parametrize("loss", LOSSES, ids=["edit", "bigram", "unigram with +inf"])
def test_errors_are_as_stated(loss):
    # over 60 seeds the deviations from the exact value, in standard errors, have variance one
    exact, exact_gradient = fg.risk(LATTICE, "abc", loss)
    margin, margin_gradient = fg.softmax_margin(
        LATTICE, LATTICE.mode(), LATTICE.compile(loss, "abc")
    )
    deviations, gradients = [], []
    for seed in range(60):
        r = fg.sampled_risk(LATTICE, "abc", loss, samples=400, rng=seed, proposal="plain")
        m = fg.sampled_softmax_margin(
            LATTICE, LATTICE.mode(), loss.against("abc"), samples=400, rng=seed, proposal="plain"
        )
        deviations.append(
            [(r.value - exact) / r.standard_error, (m.value - margin) / m.standard_error]
        )
        gradients.append([r.gradient - exact_gradient, m.gradient - margin_gradient])
        stated = [r.gradient_standard_error, m.gradient_standard_error]
    assert np.all(np.abs(np.mean(deviations, axis=0)) < 5 / np.sqrt(60))
    assert np.all(np.abs(np.std(deviations, axis=0) - 1) < 0.4)
    real = np.sqrt(np.mean(np.square(gradients), axis=0))
    assert np.all(np.abs(np.mean(gradients, axis=0)) < 5 * real / np.sqrt(60) + 1e-9)
    for mine, error in zip(real, stated, strict=True):
        assert 0.6 < np.linalg.norm(error) / np.linalg.norm(mine) < 1.6


def test_target_is_needed():
    with pytest.raises(fg.InvalidInputError, match="against"):
        fg.sampled_risk(LATTICE, None, LOSSES[0])


def test_the_state_limit_names_the_sampled_objective():
    abc = fg.Alphabet("ab")
    slots = [[("a", 0.0), ("b", 0.0)]] * 16
    lattice = fg.Lattice.from_confusion_network(slots, abc)
    target = "abbaabababbaabba"
    loss = fg.NGram(abc, 3, smoothing=1.0)
    with pytest.raises(fg.StateLimitError, match="sampled_risk"):
        lattice.compile(loss, target, max_states=50)
    sampled = fg.sampled_risk(lattice, target, loss, samples=2000)
    exact, _ = fg.risk(lattice, target, loss)
    assert abs(sampled.value - exact) < 5 * sampled.standard_error
