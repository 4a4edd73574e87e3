"""Certified caps: bounds of the loss and of log Z against the exact ones."""

import pickle

import numpy as np
import pytest

import fstgrad as fg
from tests.helpers.losses import make_loss
from tests.oracles import strings as oracle

ABC = fg.Alphabet("abc")
KINDS = ["edit", "factored", "smith-waterman", "confusion"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("length", [3, 5])
def test_bounds_of_every_string_and_of_log_z(kind, seed, length):
    rng = np.random.default_rng(seed)
    target = tuple(int(i) for i in rng.integers(3, size=4))
    loss, by_hand = make_loss(kind, rng, ABC, target)
    strings = oracle.all_strings(3, length)
    losses = np.array([by_hand(y) for y in strings])
    scores = rng.normal(size=(length, 4, 3))
    exact = oracle.log_partition(scores, losses)
    for share in (-0.1, 0.2, 0.5, 0.8, 1.1):
        cap = float(losses.min() + share * np.ptp(losses))
        b = loss.compile(np.array(target), length, cap=cap)
        for y, true in zip(strings, losses, strict=True):
            above = b.cap.upper.loss(np.array(y))
            assert above >= true - 1e-9
            if true < cap - 1e-9:
                assert above == pytest.approx(true, abs=1e-9)
        lower, upper = fg.StringDistribution(scores, b).log_partition_bounds()
        assert lower <= exact + 1e-9
        assert exact <= upper + 1e-9
    assert lower == pytest.approx(exact, abs=1e-9)
    assert upper == pytest.approx(exact, abs=1e-9)


def test_bounds_of_unit_edit_by_hand():
    """Target "aa", cap 1: "aa" costs 0, one b costs 1 and two 2 by the only alignment."""
    abc = fg.Alphabet("ab")
    b = fg.EditDistance(abc).compile("aa", cap=1)
    lower, upper = fg.StringDistribution(np.zeros((2, 2)), b).log_partition_bounds()
    assert lower == pytest.approx(np.log(1 + 3 * np.exp(1)), abs=1e-12)
    assert upper == pytest.approx(np.log(1 + 2 * np.exp(1) + np.exp(2)), abs=2e-12)


def test_the_gradient_of_a_bound():
    rng = np.random.default_rng(0)
    scores, step = rng.normal(size=(4, 4, 3)), 1e-6
    b = fg.EditDistance(ABC).compile("abca", cap=1)
    for side, place in (("lower", 0), ("upper", 1)):
        gradient = fg.StringDistribution(scores, b).bound(side).marginals()
        for cell in [(0, 3, 1), (2, 0, 2)]:
            change = []
            for sign in (1, -1):
                moved = scores.copy()
                moved[cell] += sign * step
                change.append(fg.StringDistribution(moved, b).log_partition_bounds()[place])
            assert (change[0] - change[1]) / (2 * step) == pytest.approx(gradient[cell], abs=1e-8)


def test_without_a_cap_both_bounds_are_log_z():
    d = fg.StringDistribution(np.zeros((3, 3)))
    assert d.log_partition_bounds() == (d.log_partition(), d.log_partition())


def test_a_band_gives_an_upper_bound_only():
    loss = fg.EditDistance(fg.Alphabet("abc"))
    scores = np.random.default_rng(0).normal(size=(4, 3))
    exact = fg.StringDistribution(scores, loss.compile("abca")).log_partition()
    banded = fg.StringDistribution(scores, loss.compile("abca", band=0))
    lower, upper = banded.log_partition_bounds()
    assert lower == -np.inf
    assert exact + 1e-3 < upper == pytest.approx(banded.log_partition(), rel=1e-11)
    assert banded.bound("upper") is banded
    with pytest.raises(fg.NotSupportedError, match=r"band=0.* an upper bound only"):
        banded.bound("lower")


def test_a_loss_against_a_target_is_capped_with_the_bounds_of_the_loss():
    loss = fg.EditDistance(fg.Alphabet("abc"))
    scores = np.random.default_rng(0).normal(size=(4, 3))
    two = (loss.compile("abca", cap=1.0), loss.against("abca").compile(4, cap=1.0, max_states=1000))
    given, bounds = (fg.StringDistribution(scores, b).log_partition_bounds() for b in two)
    assert bounds == given
    assert given[0] + 1e-3 < given[1]
    with pytest.raises(fg.NotSupportedError, match="band excludes cap"):
        loss.against("abca").compile(4, band=1, cap=1.0, max_states=1000)


def test_choose_cap_says_why_it_stopped():
    rng = np.random.default_rng(1)
    target = rng.integers(3, size=8)
    scores = 0.1 * rng.normal(size=(8, 4, 3))
    loss = fg.EditDistance(ABC)
    exact = fg.StringDistribution(scores, loss.compile(target)).log_partition()
    found = fg.choose_cap(scores, loss, target, tolerance=0.0)
    assert found.lower == pytest.approx(found.upper, abs=1e-10)  # widened by what sums round
    assert found.reason == "exact"
    assert found.lower == pytest.approx(exact, abs=1e-10)
    found = fg.choose_cap(scores, loss, target, tolerance=0.5)
    assert found.reason == "tolerance"
    assert found.lower <= exact <= found.upper <= found.lower + 0.5
    assert found.cap < 9
    gap = found.upper - found.lower  # a gap of just the tolerance is close enough
    assert fg.choose_cap(scores, loss, target, tolerance=gap).cap == found.cap
    found = fg.choose_cap(scores, loss, target, tolerance=0.0, max_states=100)
    assert found.reason == "state limit"
    assert found.automaton.num_states <= 100
    assert found.lower <= exact <= found.upper
    with pytest.raises(fg.StateLimitError):
        fg.choose_cap(scores, loss, target, max_states=5)


@pytest.mark.parametrize("kind", KINDS)
def test_choose_cap_bounds_the_exact_risk(kind):
    rng = np.random.default_rng(0)
    target = tuple(int(i) for i in rng.integers(3, size=5))
    loss, by_hand = make_loss(kind, rng, ABC, target)
    scores = rng.normal(size=(5, 4, 3))
    losses = [by_hand(y) for y in oracle.all_strings(3, 5)]
    exact, _ = oracle.risk(scores, losses)
    for tolerance in (0.0, 0.05, 0.5):
        found = fg.choose_cap(scores, loss, target, tolerance=tolerance, objective="risk")
        assert found.lower - 1e-9 <= exact <= found.upper + 1e-9
        assert found.upper - found.lower <= tolerance
        capped, _ = oracle.risk(scores, np.minimum(losses, found.cap))
        assert found.lower == pytest.approx(capped, abs=1e-9)
    found = fg.choose_cap(scores, loss, target, tolerance=0.0, objective="risk", max_states=50)
    assert found.lower - 1e-9 <= exact <= found.upper + 1e-9


def test_auto_where_there_are_no_scores_names_the_remedy():
    loss, lattice = fg.EditDistance(ABC), fg.Lattice.from_nbest(["ab"], [0.0], ABC)
    mixed = loss + fg.Hamming(ABC)
    for call in (
        lambda: loss.compile("ab", cap="auto"),
        lambda: mixed.compile("ab", cap="auto"),
        lambda: fg.AutomatonCache().automaton(loss, "ab", cap="auto"),
        lambda: lattice.compile(loss, "ab", cap="auto"),
    ):
        with pytest.raises(fg.FstgradError, match=r"fg\.choose_cap\(scores, loss, target"):
            call()
    with pytest.raises(fg.InvalidInputError, match="cap"):
        loss.compile("ab", cap="high")


def test_losses_without_an_upper_bound():
    target, scores = np.array([0, 1, 2]), np.zeros((3, 4, 3))
    rational = fg.NGram(ABC, 2, smoothing=1.0)
    with pytest.raises(fg.NotSupportedError):
        fg.StringDistribution(scores, rational.compile(target, cap=1.0)).log_partition_bounds()
    with pytest.raises(fg.NotSupportedError):
        fg.choose_cap(scores, rational, target)


def test_a_capped_automaton_survives_pickling():
    b = pickle.loads(pickle.dumps(fg.EditDistance(ABC).compile("abc", cap=1)))
    d = fg.StringDistribution(np.zeros((3, 3)), b)
    lower, upper = d.log_partition_bounds()
    assert lower < upper


def test_choose_cap_returns_the_smallest_cap_tried_that_meets_the_tolerance():
    target, loss = np.array([0, 1, 2, 0, 1, 2]), fg.EditDistance(ABC)
    scores = np.zeros((6, 3))
    tried, widths = [], []

    def compiled(cap):
        b = loss.compile(target, cap=cap)
        lower, upper = fg.StringDistribution(scores, b).log_partition_bounds()
        tried.append(cap)
        widths.append(upper - lower)
        return b

    found = fg.choose_cap(scores, loss, target, tolerance=0.1, compiled=compiled)
    assert tried == [1.0 + i for i in range(len(tried))], "by the least cost of an arc"
    assert len(tried) > 2
    assert found.cap == tried[-1]
    assert [width <= 0.1 for width in widths] == [False] * (len(tried) - 1) + [True]


@pytest.mark.parametrize("transpose", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_bounds_with_cheap_transpositions(transpose, seed):
    """In the middle of a transposition only one symbol leads on; the bound of all strings holds."""
    rng = np.random.default_rng(seed)
    length = int(rng.integers(2, 5))
    target = rng.integers(3, size=length)
    loss = fg.OptimalStringAlignment(ABC, 1.0, 1.0, 1.0, transpose)
    strings = np.array(oracle.all_strings(3, length))
    exact = loss.against(target).losses_of(strings)
    scores = rng.normal(size=(length, 3))
    log_z = fg.StringDistribution(scores, loss.compile(target)).log_partition()
    for cap in (0.3, 0.6, 1.0, 1.6, 5.0):
        b = loss.compile(target, cap=cap)
        above = b.cap.upper.losses_of(strings)
        assert (above >= exact - 1e-12).all()
        np.testing.assert_allclose(above[exact < cap], exact[exact < cap], atol=1e-12)
        lower, upper = fg.StringDistribution(scores, b).log_partition_bounds()
        assert lower <= log_z <= upper  # widened: nothing is missed by rounding
    chosen = fg.choose_cap(scores, loss, target, tolerance=0.01)
    assert chosen.upper - chosen.lower <= 0.01 + 1e-9


def test_steps_of_the_cap_are_a_64th_of_the_range_where_arcs_cost_less():
    """Losses lie between 200, what two insertions cost, and 200.6: the first cap is just above."""
    loss = fg.EditDistance(ABC, insert_cost=100.0, delete_cost=100.0, substitute_cost=0.001)
    tried = []

    def compiled(cap):
        tried.append(cap)
        return loss.compile("abcabcab", 6, cap=cap)

    fg.choose_cap(np.zeros((6, 3)), loss, "abcabcab", tolerance=1e-9, compiled=compiled)
    lowest, highest = loss.against("abcabcab").bounds(6)
    assert tried[0] == pytest.approx(lowest + max(0.001, (highest - lowest) / 64), rel=1e-12)
    steps = np.diff(tried)[:-1]
    np.testing.assert_allclose(steps, tried[0] - lowest, rtol=1e-6)


@pytest.mark.parametrize("restricted", [{"cap": 1.5}, {"band": 1}, {"prune": 0.5}])
def test_a_scaled_automaton_bounds_the_scaled_loss(restricted):
    """A factor <= 0 exchanges the bounds, and whatever was pruned bounds nothing."""
    scores = np.random.default_rng(0).normal(size=(4, 3))
    loss = fg.EditDistance(ABC)
    b = loss.compile("abca", **restricted)
    if "prune" not in restricted:
        wanted = fg.StringDistribution(scores, (3.0 * loss).compile("abca")).log_partition()
        lower, upper = fg.StringDistribution(scores, b.scaled(3.0)).log_partition_bounds()
        assert lower <= wanted <= upper
        assert upper - lower > 0.01
    for factor in (-2.0, 0.0, *([3.0] if "prune" in restricted else [])):
        with pytest.raises(fg.NotSupportedError, match=r"bounds nothing|exchanges the bounds"):
            fg.StringDistribution(scores, b.scaled(factor)).log_partition_bounds()


@pytest.mark.parametrize("limit", ["cap", "band", "prune"])
def test_a_bool_is_no_limit(limit):
    with pytest.raises(fg.InvalidInputError, match=f"{limit} is True; give a"):
        fg.EditDistance(ABC).compile("ab", **{limit: True})
