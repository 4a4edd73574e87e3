"""Losses that are functions of Python, against enumeration and against the same loss compiled."""

import numpy as np
import pytest

import fstgrad as fg
from tests.oracles import strings as oracle

ABC = fg.Alphabet("abc")


def edit(y, target):
    """Return the edit distance of two tuples of symbols, by its recursion."""
    row = list(range(len(target) + 1))
    for i, a in enumerate(y, start=1):
        before, row = row, [i]
        for j, b in enumerate(target, start=1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b)))
    return row[-1]


def test_the_same_numbers_as_the_compiled_loss_on_a_lattice():
    """Paths of several lengths, an epsilon, the same string twice, the empty string."""
    scores = [0.3, -0.2, 0.5, 0.1, -1.0, 0.7]
    lattice = fg.Lattice.from_nbest(["ab", "c", "abc", "", "ab", "cab"], scores, ABC)
    slots = [[("a", 0.1), (None, 0.4)], [("b", 0.2), ("c", -0.3), (None, 0.0)], [("a", 0.5)]]
    for each in (lattice, fg.Lattice.from_confusion_network(slots, ABC)):
        for function, exact in (
            (fg.FunctionLoss(ABC, edit), fg.EditDistance(ABC)),
            (2 * fg.FunctionLoss(ABC, edit) + fg.Hamming(ABC),
             2 * fg.EditDistance(ABC) + fg.Hamming(ABC)),
        ):  # fmt: skip
            a, b = each.compile(function, "ca"), each.compile(exact, "ca")
            for objective in (fg.risk, fg.raml):
                found, expected = objective(each, a), objective(each, b)
                np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
                np.testing.assert_allclose(found[1], expected[1], atol=1e-12)


def test_samples_lists_and_matrices():
    loss, exact = fg.FunctionLoss(ABC, edit), fg.EditDistance(ABC)
    scores = np.random.default_rng(0).normal(size=(4, 3))
    names = {"samples": 200, "rng": 1, "proposal": "plain"}
    found = fg.sampled_risk(scores, "abca", loss, **names)
    expected = fg.sampled_risk(scores, "abca", exact, **names)
    assert found.value == pytest.approx(expected.value, abs=1e-12)
    np.testing.assert_allclose(found.gradient, expected.gradient, atol=1e-12)
    p = fg.StringDistribution(scores)
    assert fg.mbr(p, loss, 3).risks == pytest.approx(fg.mbr(p, exact, 3).risks, abs=1e-12)
    ys = [np.array(y) for y in oracle.all_strings(3, 3)]
    np.testing.assert_array_equal(loss.matrix(ys, ys[:4]), exact.matrix(ys, ys[:4]))


def test_paths_of_infinite_loss_are_left_out():
    lattice = fg.Lattice.from_nbest(["a", "b", "c"], np.log([0.5, 0.25, 0.25]), ABC)
    loss = fg.FunctionLoss(ABC, lambda y, _: {"a": np.inf, "b": 1.0, "c": 4.0}[y[0]])
    assert fg.risk(lattice, lattice.compile(loss, "a"))[0] == pytest.approx(2.5, abs=1e-12)
    assert lattice.expected_loss(lattice.compile(loss, "a")) == np.inf
    never = fg.FunctionLoss(ABC, lambda *_: np.inf)
    with pytest.raises(fg.InfeasibleError, match="infinite loss"):
        lattice.compile(never, "a")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda loss, _: loss.compile("ab"), fg.NotSupportedError, "sampled_risk"),
        (lambda loss, _: (2 * loss).compile("ab"), fg.NotSupportedError, "sampled_risk"),
        (lambda loss, x: x.compile(loss, "ab", cap=1.0), fg.NotSupportedError, "n-best list"),
        (lambda loss, x: x.compile(loss, "ab", band=1), fg.NotSupportedError, "no band"),
        (lambda loss, x: x.compile(loss, "ab", max_states=2), fg.StateLimitError, "fewer paths"),
        (lambda *_: fg.FunctionLoss(ABC, 3), fg.InvalidInputError, "function is a"),
        (lambda *_: fg.FunctionLoss(ABC, lambda *_: None)("a", "b"), fg.InvalidInputError,
         r"returned None for \('a',\)"),
        (lambda *_: fg.FunctionLoss(ABC, lambda *_: np.nan)("a", "b"), fg.InvalidInputError, "nan"),
    ],
)  # fmt: skip
def test_what_a_function_cannot_do_is_an_error_that_says_what_it_can(call, error, message):
    lattice = fg.Lattice.from_nbest(["ab", "c"], [0.0, 0.0], ABC)
    with pytest.raises(error, match=message):
        call(fg.FunctionLoss(ABC, edit), lattice)


def test_two_functions_have_two_fingerprints():
    one, other = (2 * fg.FunctionLoss(ABC, edit) for _ in range(2))
    assert one.fingerprint == one.fingerprint != other.fingerprint
