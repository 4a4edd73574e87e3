"""Sampled objectives on lattices: near the exact ones, within their stated errors."""

import numpy as np
import pytest

import fstgrad as fg
from tests.strings.lattices.random_lattice import ABC, RandomLattice

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


@pytest.mark.parametrize("proposal", [{}, {"proposal": "band"}, {"band": 0}, {"proposal": "plain"}])
@pytest.mark.parametrize("loss", [fg.Hamming(ABC), fg.Hamming(ABC) + fg.EditDistance(ABC)])
def test_lengths_of_infinite_loss_are_left_out(loss, proposal):
    """Hamming is finite for two symbols only, of strings with one to three."""
    lattice = fg.Lattice.from_nbest(["a", "ab", "cb", "aba"], [0.0, -1.0, -0.5, 0.3], ABC)
    unit = loss("cb", "ab")  # of one substitution
    exact = unit / (1 + np.exp(-0.5))
    assert fg.risk(lattice, "ab", loss)[0] == pytest.approx(exact, abs=1e-10)
    found = fg.sampled_risk(lattice, "ab", loss, **proposal)
    low, high = found.interval
    assert low <= exact <= high
    if found.proposal != "plain":
        assert (found.value, found.standard_error) == (pytest.approx(exact, abs=1e-10), 0.0)
        assert low >= exact - 0.02 * unit
    assert abs(found.value - exact) <= 5 * found.standard_error + 1e-10
    assert lattice.expected_loss(lattice.compile(loss, "ab")) == np.inf


def test_an_expected_loss_is_infinite_as_on_strings():
    """If a string of positive probability has an infinite loss; one that is forbidden does not."""
    slots = [[("a", 0.0), ("b", 1.0)], [("a", 0.5), ("b", -800.0)]]
    lattice = fg.Lattice.from_confusion_network(slots, ABC)
    loss = fg.NGram(ABC, 1)  # -log of the number of common symbols; +inf of "bb" against "a"
    share = np.exp([0.0, 1.0]) / np.exp([0.0, 1.0]).sum()
    for second, expected in ((-800.0, np.inf), (-np.inf, share @ [-np.log(2), 0.0])):
        scores = np.where(lattice.scores == -800.0, second, lattice.scores)
        own = lattice.with_scores(scores)
        found = own.expected_loss(own.compile(loss, "a"))
        assert found == pytest.approx(expected, abs=1e-10)
        table = np.array([[0.0, 1.0, -np.inf], [0.5, second, -np.inf]])
        on_strings = fg.StringDistribution(table).expected_loss(loss.compile("a", 2))
        assert on_strings == pytest.approx(expected, abs=1e-10)
