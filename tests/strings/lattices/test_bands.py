"""Bands along lattices: against those of strings, from above, and as what paths are drawn from."""

import itertools

import numpy as np
import pytest

import fstgrad as fg
from tests.strings.lattices.random_lattice import ABC, RandomLattice

LOSSES = {
    "edit": fg.EditDistance(ABC, 0.5, 1.0, 2.0),
    "osa": fg.OptimalStringAlignment(ABC),
    "smith-waterman": fg.SmithWaterman(ABC),
    "global": fg.GlobalAlignment(ABC, [[2, -1, 0], [-1, 1, 0], [0, -1, 2]], 2, 0.5),
    "sum": fg.EditDistance(ABC) + 0.5 * fg.LongestCommonSubsequence(ABC),
}
MANY = fg.Alphabet("abcdefghijklmnopqrst")


def network(length, alternatives, seed, *, empty=False):
    """A confusion network of 20 letters around a target, with an empty alternative in each slot."""
    rng = np.random.default_rng(seed)
    target = rng.integers(20, size=length)
    slots = []
    for own in target.tolist():
        others = [a for a in rng.permutation(20).tolist() if a != own][: alternatives - 1]
        slot = [(MANY.symbols[a], float(rng.normal())) for a in (own, *others)]
        slots.append([*slot, (None, -2.0)] if empty else slot)
    return fg.Lattice.from_confusion_network(slots, MANY), target


@pytest.mark.parametrize("kind", ["edit", "osa", "smith-waterman", "global"])
@pytest.mark.parametrize("band", [0, 1, 2, (-2, 1)])
def test_a_network_of_all_strings_has_the_bands_of_strings(kind, band):
    rng = np.random.default_rng(3)
    for length, size in ((4, 4), (5, 3), (3, 4)):
        target = rng.integers(3, size=size)
        lattice = fg.Lattice.from_confusion_network(
            [[(symbol, float(rng.normal())) for symbol in "abc"] for _ in range(length)], ABC
        )
        strings = np.array(list(itertools.product(range(3), repeat=length)))
        losses = LOSSES[kind].compile(target, length, band=band).losses_of(strings)
        weights = lattice.scores.reshape(length, 3)[np.arange(length), strings].sum(axis=1)
        p = np.exp(weights - np.logaddexp.reduce(weights))
        b = lattice.compile(LOSSES[kind], target, band=band)
        assert fg.risk(lattice, b)[0] == pytest.approx(p @ losses, abs=1e-10)
        margin = np.logaddexp.reduce(weights + losses)
        assert b.augmented(lattice.graph, lattice.scores)[0] == pytest.approx(margin, abs=1e-10)


@pytest.mark.parametrize("kind", LOSSES)
def test_bands_lie_above_the_loss_and_end_in_it(kind):
    """Risks by band, on lattices whose paths of one end have several lengths."""
    checked = 0
    for seed in range(30):
        case, loss = RandomLattice(seed), LOSSES[kind]
        if not case.paths.paths:
            continue
        lattice = case.lattice()
        exact, gradient = fg.risk(lattice, "abca", loss)
        risks = []
        for band in (0, 1, 2, 4, 7):
            try:
                risks.append(fg.risk(lattice, lattice.compile(loss, "abca", band=band)))
            except fg.InfeasibleError:
                assert not risks  # a wider band loses nothing that a narrower one has
        values = [value for value, _ in risks]
        assert values == sorted(values, reverse=True) or np.ptp(np.diff(values)) < 1e-9
        assert values[-1] == pytest.approx(exact, abs=1e-10)
        np.testing.assert_allclose(risks[-1][1], gradient, atol=1e-10)
        checked += values[0] > exact + 1e-3
    assert checked > 1 or kind == "smith-waterman"


def test_paths_drawn_from_a_band():
    """Intervals hold in 95 percent of the runs; values and gradients lie within their errors."""
    rng = np.random.default_rng(1)
    slots = [[(symbol, float(rng.normal())) for symbol in "abc"] for _ in range(7)]
    lattice, loss = fg.Lattice.from_confusion_network(slots, ABC), fg.EditDistance(ABC)
    target, gold = "abcabca", lattice.kbest(3)[2][0]
    exact, gradient = fg.softmax_margin(lattice, gold, lattice.compile(loss, gold))
    risk, risk_gradient = fg.risk(lattice, target, loss)
    missed, widths = np.zeros(2), []
    for seed in range(200):
        m = fg.sampled_softmax_margin(lattice, gold, loss, samples=200, rng=seed, band=0)
        r = fg.sampled_risk(lattice, target, loss, samples=200, rng=seed, band=0)
        assert m.proposal == r.proposal == "band 0"
        assert m.upper_bound >= exact
        assert r.upper_bound >= risk
        missed += [
            not m.interval[0] <= exact <= m.interval[1],
            not r.interval[0] <= risk <= r.interval[1],
        ]
        widths.append(m.width)
    assert (missed <= 10).all()
    assert np.mean(widths) < 0.3
    m = fg.sampled_softmax_margin(lattice, gold, loss, samples=20_000, rng=1, band=0)
    r = fg.sampled_risk(lattice, target, loss, samples=20_000, rng=1, band=0)
    assert 0 < m.standard_error < 0.01
    assert abs(m.value - exact) < 4 * m.standard_error
    assert abs(r.value - risk) < 4 * r.standard_error
    assert (abs(m.gradient - gradient) < 5 * m.gradient_standard_error + 1e-3).all()
    assert (abs(r.gradient - risk_gradient) < 5 * r.gradient_standard_error + 1e-3).all()


@pytest.mark.parametrize("empty", [False, True])
def test_a_band_where_no_composition_fits(empty):
    lattice, target = network(40, 5, 40, empty=empty)
    loss = fg.EditDistance(MANY)
    with pytest.raises(fg.StateLimitError):
        lattice.compile(loss, target, max_states=20_000)
    assert lattice.compile(loss, target, band=1).num_states < 1_000
    margin = fg.sampled_softmax_margin(lattice, target, loss)
    assert margin.proposal.startswith("band")
    assert margin.is_reliable
    assert margin.width < 0.1
    plain = fg.sampled_softmax_margin(lattice, target, loss, proposal="plain")
    assert plain.effective_samples < 200 < 900 < margin.effective_samples
    risk = fg.sampled_risk(lattice, target, loss)
    assert risk.is_reliable
    assert risk.standard_error < 0.02


@pytest.mark.parametrize("band", [0, (0, 0)])
def test_a_band_that_leaves_strings_out_bounds_nothing(band):
    loss = fg.EditDistance(ABC, substitute_cost=np.inf)
    lattice = fg.Lattice.from_confusion_network([[(s, 0.0) for s in "abc"]] * 4, ABC)
    for call in (
        lambda: loss.compile("abca", band=band),
        lambda: lattice.compile(loss, "abca", band=band),
        lambda: fg.sampled_softmax_margin(np.zeros((4, 3)), "abca", loss, band=band),
        lambda: fg.sampled_risk(lattice, "abca", loss, band=band),
    ):
        with pytest.raises(fg.InfeasibleError, match="wider band"):
            call()
    exact, _ = fg.softmax_margin(np.zeros((4, 3)), "abca", loss.compile("abca"))
    for result in (
        fg.sampled_softmax_margin(np.zeros((4, 3)), "abca", loss),
        fg.sampled_softmax_margin(lattice, "abca", loss),
    ):
        assert result.proposal.startswith("band")
        assert result.interval[0] <= exact <= result.interval[1]
    forbidden = fg.Hamming(ABC, [[0, np.inf, 1], [1, 0, 1], [1, 1, 0]])  # a is never read for b
    b = forbidden.compile("abca", band=0)
    assert b.loss("bbca") == 1
    assert b.loss("aaca") == np.inf


def test_what_a_lattice_has_no_bands_for():
    lattice = RandomLattice(6).lattice()
    with pytest.raises(fg.NotSupportedError, match="sums over paths"):
        lattice.compile(fg.NGram(ABC, 2), "abc", band=1)
    with pytest.raises(fg.NotSupportedError, match="exclude each other"):
        lattice.compile(fg.EditDistance(ABC), "abc", band=1, cap=2)
    for options in ({"cap": 1}, {"proposal": "mixture"}):
        with pytest.raises(fg.NotSupportedError, match="plain"):
            fg.sampled_softmax_margin(lattice, lattice.mode(), fg.EditDistance(ABC), **options)


def test_a_lattice_whose_paths_are_all_forbidden_by_finite_scores():
    """Probabilities add up to one where scores of 1e38 leave no digits for a logarithm."""
    least = float(np.finfo(np.float32).min)
    lattice = fg.Lattice.from_confusion_network(
        [[("a", least), ("b", least)], [("a", 0.0), ("c", 0.0)]], ABC
    )
    np.testing.assert_allclose(lattice.marginals(), 0.5, atol=1e-12)
    assert fg.risk(lattice, "aa", fg.Hamming(ABC))[0] == pytest.approx(1.0, abs=1e-12)
