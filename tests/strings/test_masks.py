"""Positions and slots that are masked whole by a large finite number, such as padding.

The mask is an offset of every string: what depends on differences of scores must not change.
"""

import numpy as np
import pytest

import fstgrad as fg

ABC = fg.Alphabet("abc")
MASKS = [-1e9, -1e30, float(np.finfo(np.float32).min), 1e12]
LOSS = fg.EditDistance(ABC)


def both(order, mask, seed=0):
    """Scores of four positions, two of them offset by the mask, and without the offset."""
    scores = np.random.default_rng(seed).normal(size=(4, *(4,) * (order - 1), 3))
    scores[1], scores[3] = np.round(scores[1]), 0.0
    masked = scores.copy()
    masked[1] = masked[3] = mask  # what was there is no longer known
    scores[1] = 0.0
    return masked, scores


def cancelling(order, mask):
    """Scores of which position 0 has the offset mask and position 2 -mask, and without the offsets.

    Only contexts that a string of the position can have bear the offset, the others stay at 0.
    """
    scores = np.random.default_rng(1).normal(size=(4, *(4,) * (order - 1), 3))
    masked = scores.copy()
    for i, offset in ((0, mask), (2, -mask)):
        start = min(i, order - 1)  # the symbols before it that are no padding
        used = (i, *(3,) * (order - 1 - start), *(slice(0, 3),) * start)
        masked[used], scores[used] = offset, 0.0
    return masked, scores


def same(found, expected):
    """Compare values, and arrays entry by entry."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("tables", [both, cancelling])
def test_values_of_strings_with_masked_positions(tables, order, mask):
    b, gold = LOSS.compile("abca"), np.array([0, 1, 2, 0])
    masked, scores = tables(order, mask)
    for objective in (
        lambda s: fg.softmax_margin(s, gold, b),
        lambda s: fg.softmax_margin(s, gold),
        lambda s: fg.risk(s, b),
        lambda s: fg.hinge(s, gold, b),
        lambda s: fg.raml(s, b),
        lambda s: fg.direct_loss(s, b),
    ):
        same(objective(masked), objective(scores))
    for automaton in (None, b):
        d, e = (fg.StringDistribution(s, automaton) for s in (masked, scores))
        q, r = (fg.StringDistribution(s * 0.5, automaton) for s in (masked, scores))
        same(
            [d.entropy(), d.kl(q), d.cross_entropy(q), d.log_prob(gold), d.marginals()],
            [e.entropy(), e.kl(r), e.cross_entropy(r), e.log_prob(gold), e.marginals()],
        )
        for (y, log_p), (z, log_q) in zip(d.kbest(9), e.kbest(9), strict=True):
            np.testing.assert_array_equal(y, z)
            assert log_p == pytest.approx(log_q, abs=1e-10)
        np.testing.assert_array_equal(d.mode(), e.mode())
        np.testing.assert_array_equal(d.sample(50, 0), e.sample(50, 0))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("tables", [both, cancelling])
def test_sampled_latent_and_batched_values(tables, order, mask):
    torch = pytest.importorskip("torch")
    from fstgrad import torch as fgt

    masked, scores = tables(order, mask)
    gold = np.array([0, 1, 2, 0])
    one, other = (fg.sampled_softmax_margin(s, gold, LOSS, samples=50) for s in (masked, scores))
    same([one.value, one.gradient, one.interval], [other.value, other.gradient, other.interval])
    inner = fg.CollapsedLoss(fg.ExactMatch(ABC), ABC, collapse="ctc", blank="c").compile("ab", 4)
    same(fg.latent_softmax_margin(masked, inner), fg.latent_softmax_margin(scores, inner))

    def batch(table):
        given = torch.tensor(np.stack([scores, table]), requires_grad=True)
        value = fgt.softmax_margin(given, torch.tensor(np.stack([gold, gold])), LOSS)
        value.backward()
        return value.item(), given.grad.numpy()

    same(batch(masked), batch(scores))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    ("slots", "cancel"),
    [
        *(((0,), False), ((1,), False), ((3,), False), ((0, 2), False), ((0, 1, 2, 3), False)),
        *(((0, 1), True), ((1, 2), True), ((0, 3), True), ((0, 1, 2, 3), True)),
    ],
)
def test_values_of_lattices_with_masked_slots(slots, cancel, mask):
    """A confusion network in which all arcs of some slots have the score of the mask.

    Where `cancel`, the slots of odd number have minus that score, and all paths small sums.
    """
    rng = np.random.default_rng(len(slots))
    source = np.repeat(np.arange(4), 3)
    label, scores = np.tile(np.arange(3), 4), rng.normal(size=12)
    scores[np.isin(source, slots)] = 0.0
    sign = np.where(cancel & (source % 2 == 1), -1.0, 1.0)
    with_mask = np.where(np.isin(source, slots), mask * sign, scores)
    p, q = (
        fg.Lattice.from_arcs(source, source + 1, label, s, ABC, final=[4])
        for s in (with_mask, scores)
    )
    offset = sum(mask * (-1 if cancel and s % 2 else 1) for s in slots)
    assert p.log_partition() == pytest.approx(q.log_partition() + offset, rel=1e-12, abs=1e-10)
    for objective in (
        lambda lattice: fg.softmax_margin(lattice, "abca", LOSS),
        lambda lattice: fg.softmax_margin(lattice, "abca"),
        lambda lattice: fg.risk(lattice, "abca", LOSS),
        lambda lattice: fg.hinge(lattice, "abca", LOSS),
        lambda lattice: fg.raml(lattice, lattice.compile(LOSS, "abca")),
        lambda lattice: fg.direct_loss(lattice, lattice.compile(LOSS, "abca")),
        lambda lattice: (lattice.entropy(), lattice.marginals()),
        lambda lattice: (lattice.log_prob("abca"), lattice.parts("abca")),
        lambda lattice: lattice.best_path(),
        lambda lattice: lattice.kbest(1)[0],
    ):
        same(objective(p), objective(q))
    other = p.with_scores(np.where(np.isin(source, slots), mask * sign, scores[::-1]))
    plain = q.with_scores(np.where(np.isin(source, slots), 0.0, scores[::-1]))
    same([p.kl(other), p.cross_entropy(other)], [q.kl(plain), q.cross_entropy(plain)])


def test_some_paths_need_no_mask():
    """Masked arcs beside free ones are as forbidden."""
    arcs = [0, 0, 1, 1], [1, 1, 2, 2], [0, 1, 0, 1]
    for mask in MASKS[:3]:
        p, q = (
            fg.Lattice.from_arcs(*arcs, [0.3, 0.1, 0.7, m], ABC, final=[2]) for m in (mask, -np.inf)
        )
        same([p.entropy(), *fg.risk(p, "ab", LOSS)], [q.entropy(), *fg.risk(q, "ab", LOSS)])


@pytest.mark.parametrize("order", [1, 2])
def test_a_risk_with_masks_of_finfo_min_warns_of_nothing(order):
    """Two masks on one path add up to -inf; warnings are errors in these tests."""
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(4, *(4,) * (order - 1), 3))
    hidden = rng.random(scores.shape) < 0.4
    hidden[..., 0] = False
    b = fg.EditDistance(ABC).compile("abca")
    value, gradient = fg.risk(np.where(hidden, np.finfo(float).min, scores), b)
    expected, other = fg.risk(np.where(hidden, -np.inf, scores), b)
    assert value == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(gradient, other, atol=1e-12)


LEAST = [-1e308, float(np.finfo(np.float64).min)]


@pytest.mark.parametrize("mask", LEAST)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_searches_and_samples_with_masks_of_the_least_float(order, mask):
    rng = np.random.default_rng(5)
    for _ in range(5):
        scores = rng.normal(size=(4, *(4,) * (order - 1), 3))
        hidden = rng.random(scores.shape) < 0.4
        hidden[..., 0] = False
        p, q = (fg.StringDistribution(np.where(hidden, m, scores)) for m in (mask, -np.inf))
        same([p.mode(), p.sample(5, 0)], [q.mode(), q.sample(5, 0)])
        for (y, one), (z, other) in zip(p.kbest(1), q.kbest(1), strict=True):
            same([y, one], [z, other])
        estimates = [fg.sampled_risk(d.scores, "abca", LOSS, samples=50) for d in (p, q)]
        same(*([e.value, e.gradient] for e in estimates))


@pytest.mark.parametrize("mask", [*LEAST, *MASKS])
def test_lattices_of_masks_alone(mask):
    arcs = [0, 0, 1, 1], [1, 1, 2, 2], [0, 1, 1, 2]
    p, q = (fg.Lattice.from_arcs(*arcs, np.full(4, m), ABC, final=[2]) for m in (mask, 0.0))
    (path, score), (other, _) = p.best_path(), q.best_path()
    assert score == pytest.approx(-np.log(4), abs=1e-12)
    same([path, p.mode(), p.marginals()], [other, q.mode(), q.marginals()])
    same([p.entropy(), p.expected_loss(p.compile(LOSS, "ab"))], [np.log(4), 1.0])
    same([y for y, _ in p.kbest(4)], [y for y, _ in q.kbest(4)])
