"""Losses against targets of 1 to 60 distinct symbols and lengths 1 to 60.

Kernels write into arrays whose size was computed beforehand; small examples do not reach its end.
`make bounds` runs these tests with every index checked.
"""

import itertools

import numpy as np
import pytest

import fstgrad as fg
from tests.oracles import losses as by_hand
from tests.oracles import strings as oracle

MANY = fg.Alphabet([f"p{i}" for i in range(61)])
BLANK = fg.Alphabet([*MANY, "_"])
TABLE = np.random.default_rng(0).integers(1, 9, (61, 61)) / 4 * (1 - np.eye(61))
RULES = "alphabet = " + " ".join(MANY) + "\np0 -> p1 0.5 / # _ p2\np3 p4 -> p5 2\np6 <-> p7 0.25\n"


def infinite(value):
    return lambda y, z: -np.log(u) if (u := value(y, z)) > 0 else np.inf


# a loss, and its definition where that takes no exponential time
LOSSES = {
    "edit": (fg.EditDistance(MANY), oracle.edit_distance),
    "costs": (
        fg.EditDistance(MANY, 0.75, 1.25, 1.5),
        lambda y, z: oracle.edit_distance(y, z, insert=0.75, delete=1.25, substitute=1.5),
    ),
    "confusion": (
        fg.EditDistance(MANY, confusion=TABLE),
        lambda y, z: oracle.edit_distance(y, z, confusion=TABLE),
    ),
    "hamming": (fg.Hamming(MANY), oracle.hamming),
    "transpositions": (fg.OptimalStringAlignment(MANY), None),
    "subsequence": (fg.LongestCommonSubsequence(MANY), None),
    "local": (fg.SmithWaterman(MANY, gap_open=1.5, gap_extend=0.5), None),
    "matrix": (
        fg.SmithWaterman(MANY, matrix=2 * np.eye(61) - TABLE, gap_open=1.5, gap_extend=0.5),
        None,
    ),
    "global": (fg.GlobalAlignment(MANY, np.eye(61) - TABLE, 1.25, 0.5), None),
    "free ends": (fg.GlobalAlignment(MANY, np.eye(61), 2.0, 0.5, free_ends="both"), None),
    "rate": (
        fg.WordErrorRate(MANY),
        lambda y, z: oracle.edit_distance(y, z) / len(z),
    ),
    "exact": (fg.ExactMatch(MANY), lambda y, z: 0.0 if tuple(y) == tuple(z) else np.inf),
    "rules": (lambda: fg.RuleLoss(RULES, MANY), None),  # needs OpenFst
    "scaled": (0.5 * fg.EditDistance(MANY), lambda y, z: 0.5 * oracle.edit_distance(y, z)),
    "sum": (
        fg.EditDistance(MANY) + 2 * fg.Hamming(MANY),
        lambda y, z: oracle.edit_distance(y, z) + 2 * oracle.hamming(y, z),
    ),
    "ngrams": (
        fg.NGramSum(MANY, 3, [1.0, 2.0, 0.5]),
        infinite(lambda y, z: by_hand.ngram_sum(y, z, [1.0, 2.0, 0.5])),
    ),
    "gappy": (fg.GappyNGram(MANY, 2, 0.5, smoothing=0.25), None),
    "mismatch": (fg.MismatchNGram(MANY, 2, 1, smoothing=0.25), None),
    "counts": (
        fg.NGram(MANY, 2, log=False),
        lambda y, z: oracle.ngram_loss(y, z, 2, log=False),
    ),
    "ctc": (fg.CollapsedLoss(fg.EditDistance(MANY), BLANK, collapse="ctc", blank=["_"]), None),
}
LARGEST = {"ctc": 12}  # 61 symbols at each of l places, and blanks, take seconds to compose


def check(loss, definition, distinct, length, rng):
    """Compare pairs, the machine, the automaton and the definition; walk the automaton."""
    symbols = rng.permutation(61)[:distinct]
    target = np.concatenate([symbols, rng.choice(symbols, max(0, length - distinct))])[:length]
    ys = np.stack([target, rng.permutation(target), rng.integers(0, 61, length),
                   rng.choice(symbols, length)])  # fmt: skip
    alone = np.array([loss(y, target) for y in ys])
    if definition is not None:
        expected = [definition(tuple(y), tuple(target)) for y in ys]
        np.testing.assert_allclose(alone, expected, atol=1e-10)
    np.testing.assert_allclose(loss.against(target).losses_of(ys), alone, atol=1e-10)
    other = rng.integers(0, 61, int(rng.integers(1, 61)))
    np.testing.assert_allclose(
        loss.pairwise([*ys, other], [target] * 5), [*alone, loss(other, target)], atol=1e-10
    )
    compiled = smallest(loss, target)
    if compiled is None:
        return False
    automaton, cap = compiled
    found = [automaton.loss(y) for y in ys]
    np.testing.assert_allclose(found, np.minimum(alone, np.inf if cap is None else cap), atol=1e-10)
    n = len(loss.alphabet)
    value, gradient = fg.softmax_margin(rng.normal(size=(length, n + 1, n)), target, automaton)
    assert np.isfinite(value)
    np.testing.assert_allclose(gradient.sum(axis=(1, 2)), 0, atol=1e-10)
    return True


def smallest(loss, target):
    """Return an automaton of at most 3,000 states and its cap, or None if a cap of 1 has more."""
    for cap in (None, 2.0, 1.0):
        try:
            return loss.compile(target, cap=cap, max_states=3000), cap
        except (fg.StateLimitError, fg.NotSupportedError, fg.InvalidInputError):
            continue
    return None


def made(name):
    """Return a loss and its definition."""
    loss, definition = LOSSES[name]
    return (loss if isinstance(loss, fg.Loss) else loss()), definition


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_at_the_largest_size(name):
    largest = LARGEST.get(name, 60)
    check(*made(name), largest, largest, np.random.default_rng(0))


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_at_random_sizes(name):
    rng = np.random.default_rng(list(LOSSES).index(name))
    compiled, largest = 0, LARGEST.get(name, 60)
    for length in (*rng.integers(1, largest + 1, 10), 1, 2, min(largest, 19), min(largest, 20)):
        distinct = int(rng.integers(1, length + 1))
        compiled += check(*made(name), distinct, int(length), rng)
    assert compiled


@pytest.mark.parametrize(
    "order, size", [*itertools.product([1, 2, 3], [1, 2, 18, 19, 20]), (1, 60)]
)
def test_ngrams_of_targets_with_many_distinct_symbols(order, size):
    target = np.arange(size)
    automaton = fg.NGram(MANY, order=order, smoothing=0.5).compile(target)
    rng = np.random.default_rng(size)
    for y in (target, rng.permutation(target), rng.integers(0, 61, size)):
        expected = oracle.ngram_loss(tuple(y), tuple(target), order, smoothing=0.5)
        assert automaton.loss(y) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("cap", [5e17, 6e17, 1e18, 4e18, 1e300])
def test_a_huge_cap_is_counted_or_refused(cap):
    never = {name: np.inf for name in ("insert_cost", "delete_cost", "substitute_cost")}
    loss = fg.EditDistance(fg.Alphabet("ab"), **never)
    if cap > 2.0**59:
        with pytest.raises(fg.InvalidInputError, match=r"cap is .* too large to be counted"):
            loss.compile("a", cap=cap)
    else:
        b = loss.compile("a", cap=cap)
        assert [b.loss(y) for y in "ab"] == [0.0, cap]
