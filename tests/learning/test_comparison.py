"""Error rates of two sets of predictions: values by hand, intervals that hold, bad input."""

import itertools
import json

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.learning.comparison import compare


def test_values_are_arithmetic():
    first, second, gold = ["cat", "do", "x"], ["cat", "dog", "yz"], ["cat", "dog", "y"]
    result = compare(first, second, gold, resamples=100)
    assert [rate.value for rate in result.word_error] == [2 / 3, 1 / 3]
    assert [rate.value for rate in result.symbol_error] == [2 / 7, 1 / 7]
    assert result.word_difference.value == pytest.approx(-1 / 3)
    assert compare(first, first, gold).p_word == 1.0


def test_intervals_leave_out_resamples_whose_targets_have_no_symbols():
    """Against all 4^4 resamples; the second has the errors of no target only."""
    gold, first, second = ["ab", "", "c", ""], ["xb", "uvw", "c", ""], ["ab", "uvwxyz", "c", "u"]
    errors, sizes = np.array([[1, 3, 0, 0], [0, 6, 0, 1]]), np.array([2, 0, 1, 0])
    draws = np.array(list(itertools.product(range(4), repeat=4)))
    draws = draws[sizes[draws].sum(axis=1) > 0]
    rates = errors[:, draws].sum(axis=2) / sizes[draws].sum(axis=1)
    found = compare(first, second, gold, resamples=20000)
    for rate, interval in zip(rates, found.symbol_error, strict=True):
        assert interval[1:] == pytest.approx(np.quantile(rate, [0.025, 0.975]))
    ends = np.quantile(rates[1] - rates[0], [0.025, 0.975])
    assert found.symbol_difference.value == pytest.approx(3 / 3)
    assert found.symbol_difference[1:] == pytest.approx(ends)


def test_intervals_hold_for_independent_errors():
    """Of 200 pairs of samples with rates 0.3 and 0.4, about 95 percent of intervals have -0.1."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(200):
        first, second = (["a" if u > rate else "b" for u in rng.random(200)] for rate in (0.4, 0.3))
        found = compare(first, second, ["a"] * 200, resamples=300, rng=rng).word_difference
        held += found.lower <= -0.1 <= found.upper
    assert 180 <= held <= 199


def test_p_values_are_uniform_without_a_difference():
    rng, small = np.random.default_rng(1), 0
    for _ in range(200):
        first, second = (["a" if u > 0.3 else "b" for u in rng.random(150)] for _ in range(2))
        small += compare(first, second, ["a"] * 150, resamples=300, rng=rng).p_word <= 0.1
    assert 8 <= small <= 36  # 10 percent of 200, give or take four standard deviations


def test_a_few_pairs_are_no_evidence():
    """All k differences have one sign, which has the probability 2 / 2^k without a difference."""
    for k in (1, 2, 5):
        result = compare(["a"] * k + ["b"], ["b"] * (k + 1), ["b"] * (k + 1))
        assert result.p_word == result.p_symbol >= 2 / 2**k
    assert compare(["a"] * 30, ["b"] * 30, ["b"] * 30).p_word == 1 / 2000


def test_the_interval_has_0_where_p_is_not_small():
    """Also of few pairs, whose draws all agree, and of numbers of draws that are no multiple."""
    rng, seen = np.random.default_rng(2), set()
    for i in range(300):
        pairs = int(rng.integers(1, 12 if i % 2 else 60))
        first, second = (
            ["a" if u > rate else "b" for u in rng.random(pairs)] for rate in (0.5, 0.1)
        )
        draws = (1, 30, 333, 400)[i % 4]
        found = compare(first, second, ["a"] * pairs, resamples=draws, rng=rng)
        rows = ((found.word_difference, found.p_word), (found.symbol_difference, found.p_symbol))
        for change, p in rows:
            assert (p > 0.05) == (change.lower <= 0 <= change.upper)
            seen.add(p > 0.05)
    assert seen == {True, False}
    found = compare(["a"] * 3 + ["b"] * 2, ["b"] * 5, ["b"] * 5)
    assert (found.p_word, found.changed) == (0.25, 3)
    assert found.word_difference == (-0.6, -1.0, 0.0)
    assert "only 3 of the pairs differ" in str(found)
    assert "paired bootstrap of 5 pairs" in str(found)
    assert "only" not in str(compare(["a"] * 30, ["b"] * 30, ["b"] * 30))
    for segments, is_told in ((29, True), (30, False)):  # errors of the first system: 1, 2, 1, ...
        first = ["xx" if i % 2 else "x" for i in range(segments)]
        found = compare(first, ["y"] * segments, ["y"] * segments)
        assert found.matched_pairs.segments == segments
        assert ("not reliable with fewer than 30 segments" in str(found)) == is_told


def test_other_numbers_of_items_are_named():
    with pytest.raises(fg.InvalidInputError, match="have 1, 2 and 1 items"):
        compare(["a"], ["a", "b"], ["a"])


def test_command(run, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("ab\tAB\nba\tBA\naab\tAAB\nb\tB\n")
    for name, epochs in (("one", 1), ("two", 30)):
        options = ("--order", 1, "--window", 0, "--epochs", epochs, "--batch-size", 2)
        assert run("train", pairs, *options, "-o", tmp_path / name)[0] == 0
    code, out, _ = run("compare", tmp_path / "one", tmp_path / "two", pairs)
    found = json.loads(out)
    assert code == 0
    assert found["pairs"] == 4
    assert found["word_error"][1] == [0.0, 0.0, 0.0]
    (tmp_path / "words.tsv").write_text("a b\tA B\n")
    options = ("--tokens-x", "words", "--tokens-y", "words", "--epochs", 1)
    assert run("train", tmp_path / "words.tsv", *options, "-o", tmp_path / "three")[0] == 0
    code, _, err = run("compare", tmp_path / "one", tmp_path / "three", pairs)
    assert (code, "in different ways" in err) == (1, True)
