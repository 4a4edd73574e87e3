import numpy as np
import pytest

import fstgrad as fg


def test_round_trip():
    abc = fg.Alphabet(["AH", "N", "T"])
    np.testing.assert_array_equal(abc.encode(["T", "AH"]), [2, 0])
    assert abc.decode([2, 0]) == ["T", "AH"]
    np.testing.assert_array_equal(abc.encode(np.array([1, 1])), [1, 1])
    np.testing.assert_array_equal(abc.encode([1, 1]), [1, 1])


@pytest.mark.parametrize(
    "symbols, said",
    [("", "empty"), ("aba", "'a' more than once"), (["a", ""], "''"), (["<eps>"], "<eps>")],
)
def test_bad_alphabets(symbols, said):
    with pytest.raises(fg.AlphabetError, match=said):
        fg.Alphabet(symbols)


@pytest.mark.parametrize(
    "sequence, said",
    [
        ("ax", r"\[1\] is 'x'.*add it to the alphabet"), (np.array([0, 9]), r"\[1\] is 9"),
        ([-1], "is -1"), (["a", ""], r"\[1\] is '', which no alphabet has; leave it out"),
        (["<eps>"], r"\[0\] is '<eps>', which no alphabet has"),
    ],
)  # fmt: skip
def test_unknown_symbols(sequence, said):
    with pytest.raises(fg.AlphabetError, match=said):
        fg.Alphabet("abc").encode(sequence)
