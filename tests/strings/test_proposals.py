"""Bands against a banded recursion, proposals against enumeration, intervals by how they hold."""

import math

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.core.estimates import mean_interval
from tests.helpers.losses import make_loss
from tests.oracles import strings as oracle

ABC = fg.Alphabet("abc")
TROPICAL = ["edit", "factored", "confusion", "smith-waterman", "hamming"]


def banded_edit_distance(y, z, low, high, insert, delete, substitute):
    """Least cost of the alignments whose cells (i, j) have low <= j - i <= high; no fewer cells."""
    row = [j * insert if low <= 0 and j <= high else math.inf for j in range(len(z) + 1)]
    for i, a in enumerate(y, start=1):
        above, row = row, []
        for j in range(len(z) + 1):
            best = above[j] + delete
            if j:
                own = 0.0 if a == z[j - 1] else substitute
                best = min(best, above[j - 1] + own, row[j - 1] + insert)
            row.append(best if low <= j - i <= high else math.inf)
    return row[-1]


@pytest.mark.parametrize("lengths", [(1, 1), (4, 4), (3, 5), (5, 2)])
@pytest.mark.parametrize("band", [0, 1, 2, (0, 1), (-2, 0), (-3, 2), (1, 2), (-2, -1)])
def test_a_band_keeps_the_alignments_near_the_diagonal(lengths, band):
    length, size = lengths
    rng = np.random.default_rng(1)
    costs = dict(zip(("insert", "delete", "substitute"), (0.75, 1.0, 1.5), strict=True))
    z = tuple(int(i) for i in rng.integers(3, size=size))
    offset = size - length
    low, high = band if isinstance(band, tuple) else (min(0, offset) - band, max(0, offset) + band)
    loss = fg.EditDistance(ABC, *costs.values())
    strings = oracle.all_strings(3, length)
    expected = [banded_edit_distance(y, z, low, high, **costs) for y in strings]
    if min(expected) == math.inf:
        with pytest.raises(fg.InfeasibleError, match="leaves out strings"):
            loss.compile(np.array(z), length, band=band)
        return
    b = loss.compile(np.array(z), length, band=band)
    np.testing.assert_allclose(b.losses_of(np.array(strings)), expected, atol=1e-12)
    assert [b.loss(np.array(y)) for y in strings] == b.losses_of(np.array(strings)).tolist()
    assert b.greatest == pytest.approx(max(x for x in expected if x < math.inf), abs=1e-12)


@pytest.mark.parametrize("kind", TROPICAL)
@pytest.mark.parametrize("seed", range(3))
def test_bands_lie_above_the_loss_and_end_in_it(kind, seed):
    rng = np.random.default_rng(seed)
    target = tuple(int(i) for i in rng.integers(3, size=5))
    loss, by_hand = make_loss(kind, rng, ABC, target)
    both = loss + 0.5 * fg.EditDistance(ABC, 1.0, 0.5, 2.0)
    strings = np.array(oracle.all_strings(3, 5))
    own = np.array([by_hand(y) for y in oracle.all_strings(3, 5)])
    for one in (loss, 3.0 * loss, both):
        exact = one.against(np.array(target)).losses_of(strings)
        last = np.full(len(strings), np.inf)
        for band in range(6):
            losses = one.compile(np.array(target), band=band).losses_of(strings)
            assert (losses <= last + 1e-12).all()
            assert (losses >= exact - 1e-12).all()
            last = losses
        np.testing.assert_allclose(last, exact, atol=1e-11)
    np.testing.assert_allclose(loss.against(np.array(target)).losses_of(strings), own, atol=1e-11)


def test_where_both_sides_are_skipped_for_nothing_a_band_bars_nothing():
    """Free insertions and deletions: the state waits; free insertions alone: it does not."""
    strings = np.array(oracle.all_strings(2, 3))
    ab, gold = fg.Alphabet("ab"), np.array([0, 1, 0])
    both = fg.EditDistance(ab, 0.0, 0.0, 1.0).compile(gold, band=(0, 0))
    np.testing.assert_array_equal(both.losses_of(strings), 0.0)
    one = fg.EditDistance(ab, 0.0, 1.0, 1.5).compile(gold, band=(0, 0))
    np.testing.assert_array_equal(one.losses_of(strings), 1.5 * (strings != gold).sum(axis=1))


def test_the_ends_of_an_alignment_are_in_a_pair_or_nothing_is():
    """Offset 0 at the start and 2 at the end; a local alignment starts and ends anywhere."""
    loss, gold = fg.EditDistance(ABC), np.array([0, 1, 0, 1])
    lattice = fg.Lattice.from_confusion_network([[(a, 0.0) for a in "abc"]] * 2, ABC)
    for band in [(0, 1), (1, 2), (3, 4), (-2, -1)]:
        with pytest.raises(fg.InfeasibleError, match="a pair contains 0 and the length of the"):
            loss.compile(gold, 2, band=band)
        with pytest.raises(fg.InfeasibleError, match="a pair contains 0 and the length of the"):
            lattice.compile(loss, gold, band=band)
    assert loss.compile(gold, 2, band=(0, 2)).losses_of([[0, 1], [2, 2]]).tolist() == [2.0, 4.0]
    local = fg.SmithWaterman(ABC)
    assert local.compile(gold, 2, band=(1, 1)).loss("ba") == local("ba", gold)


def test_bands_are_small_where_the_exact_automaton_is_not():
    """|Delta| = 10, l = 18, unit costs: 190,084 states exactly; hundreds in bands."""
    rng = np.random.default_rng(0)
    target = rng.integers(10, size=18)
    loss = fg.EditDistance(fg.Alphabet("abcdefghij"))
    sizes = [loss.compile(target, band=band).num_states for band in (0, 1, 2)]
    assert sizes[0] == 19
    assert 100 < sizes[1] < 200
    assert 600 < sizes[2] < 1000


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: fg.EditDistance(ABC).compile("ab", band=-1), fg.InvalidInputError, "band is -1"),
        (lambda: fg.EditDistance(ABC).compile("ab", band=1.5), fg.InvalidInputError, "1.5"),
        (lambda: fg.EditDistance(ABC).compile("ab", band=(2, 1)), fg.InvalidInputError, "least"),
        (lambda: fg.EditDistance(ABC).compile("ab", band=True), fg.InvalidInputError, "True"),
        (lambda: fg.EditDistance(ABC).compile("ab", band=1, cap=1.0), fg.NotSupportedError, "cap"),
        (lambda: fg.NGram(ABC, 2).compile("ab", band=1), fg.NotSupportedError, "sums over paths"),
        (
            lambda: (fg.NGram(ABC, 1) + fg.Hamming(ABC)).compile("ab", band=1),
            fg.NotSupportedError,
            "cap, band or prune of a sum",
        ),
        (
            lambda: fg.EditDistance(ABC).compile("ab", band=1, engine="openfst"),
            fg.NotSupportedError,
            "layered",
        ),
    ],
)
def test_bands_that_there_are_not(call, error, words):
    with pytest.raises(error, match=words):
        call()


def proposals_of(kind):
    names = ["plain", "auto"]
    return names if kind.startswith("ngram") else [*names, "band", "cap", "mixture"]


@pytest.mark.parametrize("kind", ["edit", "smith-waterman", "confusion", "ngram-smooth", "ngram"])
def test_values_and_gradients_of_every_proposal(kind):
    """Within four standard errors, or inside what the interval says where samples saw nothing."""
    rng = np.random.default_rng(3)
    target = tuple(int(i) for i in rng.integers(3, size=6))
    loss, _ = make_loss(kind, rng, ABC, target)
    gold = np.array(target)
    for scale in (0.3, 2.0):
        scores = scale * rng.normal(size=(6, 4, 3))
        exact, gradient = fg.softmax_margin(scores, gold, loss.compile(gold))
        for proposal in proposals_of(kind):
            r = fg.sampled_softmax_margin(
                scores, gold, loss, proposal=proposal, samples=4000, rng=5
            )
            assert r.interval[0] <= r.value <= r.interval[1] <= r.upper_bound
            assert r.interval[0] <= exact <= r.interval[1], (proposal, r)
            assert abs(r.value - exact) <= 4 * r.standard_error + 2e-3
            far = abs(r.gradient - gradient) > 5 * r.gradient_standard_error + 5e-3
            assert not far.any(), proposal


@pytest.mark.parametrize("kind", ["edit", "smith-waterman", "confusion", "ngram-smooth"])
def test_the_band_as_the_control_of_a_risk(kind):
    rng = np.random.default_rng(4)
    target = tuple(int(i) for i in rng.integers(3, size=6))
    loss, _ = make_loss(kind, rng, ABC, target)
    gold = np.array(target)
    scores = rng.normal(size=(6, 4, 3))
    exact, gradient = fg.risk(scores, loss.compile(gold))
    for proposal in ("plain", "auto") if kind == "ngram-smooth" else ("plain", "auto", "band"):
        r = fg.sampled_risk(scores, gold, loss, proposal=proposal, samples=4000, rng=5)
        assert r.interval[0] <= exact <= r.interval[1] <= r.upper_bound
        assert abs(r.value - exact) <= 4 * r.standard_error + 1e-3
        assert not (abs(r.gradient - gradient) > 5 * r.gradient_standard_error + 5e-3).any()


def test_a_band_beats_plain_samples_of_a_peaked_model():
    """Plain samples never see the strings that matter, and say so."""
    rng = np.random.default_rng(0)
    alphabet = fg.Alphabet("abcdefghij")
    target = rng.integers(10, size=14)
    scores = rng.normal(size=(14, 11, 10))
    scores[np.arange(14), :, target] += 4.0
    loss = fg.EditDistance(alphabet)
    exact, gradient = fg.softmax_margin(scores, target, loss.compile(target))
    plain = fg.sampled_softmax_margin(scores, target, loss, proposal="plain", rng=1)
    assert not plain.is_reliable
    assert plain.interval[0] <= exact <= plain.interval[1]
    band = fg.sampled_softmax_margin(scores, target, loss, rng=1)
    assert band.proposal.startswith("band")
    assert band.is_reliable
    assert band.effective_samples > 950
    assert abs(band.value - exact) < 2e-3
    assert abs(band.gradient - gradient).max() < 2e-3
    assert band.interval[0] <= exact <= band.interval[1]
    assert band.width < 0.02


def test_bands_are_raised_no_further_than_the_width_asks_for():
    rng = np.random.default_rng(0)
    target = rng.integers(3, size=14)
    scores = rng.normal(size=(14, 4, 3))
    scores[np.arange(14), :, target] += 1.0
    loss, tried = fg.EditDistance(ABC), []

    def compiled(**which):
        tried.append(which["band"])
        return loss.compile(target, **which)

    chosen = []
    for width in (0.2, 0.0002):
        tried.clear()
        budget = fg.Budget(0.02, width=width)
        r = fg.sampled_softmax_margin(scores, target, loss, samples=budget, compiled=compiled)
        chosen.append((r.proposal, list(tried)))
        if width == 0.2:
            assert r.width <= width
    assert chosen[0] == ("band 1", [1])
    assert chosen[1][1][:3] == [1, 2, 3]


def test_memory_limits_the_states_of_an_automaton():
    """Half the bytes, 16 for each state and column: two of 4 contexts and 3 symbols."""
    scores = np.zeros((5, 4, 3))
    assert fg.Budget(seconds=1e6, memory=2 * 2 * 16 * 7).states(scores) == 2
    assert fg.Budget(seconds=1e6, memory=1.0).states(scores) == 1


def test_a_budget_that_cannot_pay_for_samples_is_refused():
    """What a string costs is told from the machine of its target."""
    target = np.zeros(2500, dtype=int)
    rules = fg.RuleLoss("edit = 1\nswap: a b -> b a 0.5", ABC)
    with pytest.raises(fg.InvalidInputError, match="2,500 positions with this loss needs"):
        fg.Budget().most_samples(np.zeros((2500, 3)), rules.against(target).step_states)
    edit = fg.EditDistance(ABC).against(target)
    assert fg.Budget().most_samples(np.zeros((2500, 3)), edit.step_states) >= 200
    scaled = (2 * rules).against(target[:9])
    assert scaled.step_states == rules.against(target[:9]).step_states > 9


VARIABLES = {
    "even": lambda rng, k: rng.random(k),
    "rare": lambda rng, k: (rng.random(k) < 0.02) * 1.0,
    "nearly one": lambda rng, k: 1 - (rng.random(k) < 0.02) * rng.random(k),
    "tiny": lambda rng, k: 1e-8 * rng.random(k),
}
MEANS = {"even": 0.5, "rare": 0.02, "nearly one": 0.99, "tiny": 5e-9}


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("k", [2, 30, 500])
def test_intervals_of_a_mean_hold(name, k):
    rng = np.random.default_rng(6)
    missed, widths = 0, []
    for _ in range(400):
        low, high = mean_interval(VARIABLES[name](rng, k))
        missed += not low <= MEANS[name] <= high
        widths.append(high - low)
    assert missed <= 20 + 2 * math.sqrt(20)  # 5 percent of 400, and two deviations
    if k == 500 and name != "tiny":
        assert np.mean(widths) < 0.2


def test_intervals_of_unbounded_means_scale_with_the_values():
    values = np.random.default_rng(7).exponential(size=200)
    low, high = mean_interval(values, bounded=False)
    assert high == np.inf
    assert 0.5 < low < 1.0
    scaled, _ = mean_interval(values * 1e-3, bounded=False)
    assert scaled == pytest.approx(1e-3 * low, rel=1e-9)


@pytest.mark.nightly
@pytest.mark.parametrize("proposal", ["plain", "band", "mixture", "auto"])
@pytest.mark.parametrize("kind", ["edit", "smith-waterman"])
def test_intervals_of_values_hold_in_95_percent_of_1000_runs(kind, proposal):
    rng = np.random.default_rng(8)
    target = rng.integers(3, size=7)
    loss, _ = make_loss(kind, rng, ABC, tuple(target.tolist()))
    scores = 1.5 * rng.normal(size=(7, 4, 3))
    exact, _ = fg.softmax_margin(scores, target, loss.compile(target))
    risk, _ = fg.risk(scores, loss.compile(target))
    against = loss.against(target)
    missed, widths = np.zeros(2), []
    for seed in range(1000):
        r = fg.sampled_softmax_margin(
            scores, target, against, proposal=proposal, band=None, samples=100, rng=seed
        )
        missed[0] += not r.interval[0] <= exact <= r.interval[1]
        widths.append(r.width)
        if proposal != "mixture":
            r = fg.sampled_risk(scores, None, against, proposal=proposal, samples=100, rng=seed)
            missed[1] += not r.interval[0] <= risk <= r.interval[1]
    assert (missed <= 50).all()
    assert np.mean(widths) < 1.0  # 0.05 to 0.91: they say something


@pytest.mark.parametrize("constraint", [fg.NoLoss, fg.ExactMatch])
def test_constraints_have_bands(constraint):
    """Nothing is aligned without a loss; an exact match lies on the diagonal."""
    loss = constraint(ABC) + fg.EditDistance(ABC)
    ids = np.array(oracle.all_strings(3, 3))
    exact = loss.compile("abc").losses_of(ids)
    for band in (0, 1, 3):
        losses = loss.compile("abc", band=band).losses_of(ids)
        assert (losses >= exact - 1e-12).all()
    np.testing.assert_allclose(losses, exact, atol=1e-12)


def test_the_control_of_a_band_is_the_band_of_two():
    scores = np.random.default_rng(0).normal(size=(8, 3))
    loss = fg.EditDistance(fg.Alphabet("abc"))
    found = [
        fg.sampled_risk(scores, "abcabcab", loss, proposal="band", samples=50, rng=1, band=band)
        for band in (None, 2)
    ]
    assert found[0].value == found[1].value


def test_a_budget_of_twice_the_seconds_draws_twice_as_many():
    few, many = (
        fg.Budget(seconds=seconds).most_samples(np.zeros((20, 3)), 20) for seconds in (0.1, 0.2)
    )
    assert 2 * few == pytest.approx(many, abs=2)
