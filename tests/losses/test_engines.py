"""The layered engine against the reference engine on real pairs.

The reference is float32 in the tropical steps and quantises in determinization; 1e-6 is its own
precision.  Costs that are small integers are exact there too: the measured difference on the pairs
below is under 1e-12 for edit distance.
"""

import numpy as np
import pytest

import fstgrad as fg

PRECISION = 1e-6


def phone_pairs(folder, count, longest):
    """(alphabet, targets): the first `count` entries of at most `longest` phones, no stress."""
    text = (folder / "g2p_cmudict" / "cmudict20k.tsv").read_text(encoding="utf-8")
    words = [
        [phone.rstrip("012") for phone in line.split("\t")[1].split()] for line in text.splitlines()
    ]
    abc = fg.Alphabet.from_sequences(words)
    return abc, [word for word in words[::37] if 2 <= len(word) <= longest][:count]


def compare(loss, target, rng, **options):
    fast = loss.compile(target, **options)
    slow = loss.compile(target, engine="openfst", **options)
    scores = rng.normal(size=(len(target), len(loss.alphabet) + 1, len(loss.alphabet)))
    value, gradient = fg.softmax_margin(scores, target, fast)
    expected, expected_gradient = fg.softmax_margin(scores, target, slow, engine="openfst")
    assert value == pytest.approx(expected, rel=PRECISION)
    np.testing.assert_allclose(gradient, expected_gradient, atol=PRECISION)
    if loss.semiring == "tropical":
        assert slow.num_states >= fast.num_states
    return abs(value - expected)


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(4))
def test_200_pairs(shared_data, part):
    abc, targets = phone_pairs(shared_data, 200, 8)
    assert len(targets) == 200
    loss, rng = fg.EditDistance(abc), np.random.default_rng(part)
    # OpenFst's determinization over 39 phones is exponential: 8 phones stay within the limit
    worst = max(compare(loss, target, rng) for target in targets[part::4])
    assert worst < PRECISION


def test_pairs_with_a_cap(shared_data):
    abc, targets = phone_pairs(shared_data, 3, 6)
    loss, rng = fg.EditDistance(abc), np.random.default_rng(1)
    assert max(compare(loss, target, rng, cap=3) for target in targets) < PRECISION


@pytest.mark.parametrize("length", [3, 5])
def test_every_loss(length):
    rng = np.random.default_rng(length)
    abc = fg.Alphabet("abcd")
    losses = [
        fg.EditDistance(abc, 0.7, 1.1, 0.9),
        fg.EditDistance(abc, factored=True),
        fg.EditDistance(abc, confusion=rng.integers(0, 8, size=(4, 4)) / 4),
        fg.SmithWaterman(abc),
        fg.Hamming(abc),
        fg.NGram(abc, 2),
        fg.NGram(abc, 2, smoothing=0.5),
        fg.NGram(abc, 1, log=False),
    ]
    for loss in losses:
        compare(loss, rng.integers(4, size=length), rng)


def test_long_targets_have_more_prefixes_than_a_machine_counts():
    # the bound of the states that OpenFst may build, 11^20 here, is no number of 64 bits
    abc = fg.Alphabet("abcdefghij")
    target = np.random.default_rng(0).integers(10, size=20)
    loss = fg.NGram(abc, 2, smoothing=1.0)
    compare(loss, target, np.random.default_rng(1))
