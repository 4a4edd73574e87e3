"""Costs of any size are exact to 1e-9, forbid by infinity, or are refused; never wrong."""

import itertools

import numpy as np
import pytest

import fstgrad as fg
from tests.oracles import strings as oracle

AB = fg.Alphabet("ab")
STRINGS = [y for length in (1, 2, 3) for y in oracle.all_strings(2, length)]
SIZES = [0.0, 1e-300, 1e-12, 1e-3, 0.1, 0.6, 1.0, 7.5, 1e3, 1e6, 1e9, 1e12, 1e15, 1e30, 1e308]


@pytest.mark.parametrize("insert, substitute", [*itertools.product(SIZES, [0.6, 1.0, 3.0, 1e12])])
def test_large_and_small_costs(insert, substitute):
    target = (1, 0, 0)
    loss = fg.EditDistance(AB, insert_cost=insert, substitute_cost=substitute)
    try:
        b = loss.compile(np.array(target))
    except fg.InvalidInputError:
        with pytest.raises(fg.InvalidInputError, match="infinite cost"):
            loss.machine(np.array(target))
        assert max(insert, substitute) > 16_384
        b = None
    costs = {"insert": insert, "delete": 1.0, "substitute": substitute}
    for y in STRINGS:
        expected = oracle.edit_distance(y, target, **costs)
        assert loss(np.array(y), np.array(target)) == pytest.approx(expected, rel=1e-9, abs=1e-9)
        if len(y) == 3 and b is not None:
            assert b.loss(np.array(y)) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ["insert_cost", "delete_cost", "substitute_cost"])
def test_infinity_forbids(name):
    loss = fg.EditDistance(AB, **{"delete_cost": 0.6, name: np.inf})
    huge = {"insert": 1.0, "delete": 0.6, "substitute": 1.0, name.removesuffix("_cost"): 1e6}
    for y in STRINGS:
        expected = oracle.edit_distance(y, (1, 0, 0), **huge)
        value = loss(np.array(y), np.array([1, 0, 0]))
        assert value == (np.inf if expected >= 1e6 else pytest.approx(expected, abs=1e-12))


def test_infinite_confusions_forbid():
    confusion = np.array([[0.0, np.inf], [0.25, 0.0]])
    loss = fg.EditDistance(AB, 1e6, 1e6, confusion=confusion)
    assert loss("b", "a") == 0.25
    assert loss("a", "b") == 2e6
    assert fg.Hamming(AB, np.inf)("ab", "aa") == np.inf


@pytest.mark.parametrize("cap", [1e-9, 0.3, 1.0, 2.5, 1e6, 1e12])
def test_caps_of_any_size(cap):
    b = fg.EditDistance(AB).compile("abb", cap=cap)
    for y in oracle.all_strings(2, 3):
        expected = min(cap, oracle.edit_distance(y, (0, 1, 1)))
        assert b.loss(np.array(y)) == pytest.approx(expected, abs=1e-10)


def test_a_cap_below_all_costs_is_named_in_nats():
    """The unit of the costs, here 0.1, is not in the message."""
    loss = fg.EditDistance(AB, substitute_cost=1e6, insert_cost=0.1, delete_cost=0.1)
    with pytest.raises(fg.InvalidInputError, match=r"a cost of 1.23e-07 beside one of 1e\+06, "):
        loss.compile("abb", cap=1.23e-7)


@pytest.mark.parametrize("cap", [1e30, 1e308])
def test_caps_beyond_all_costs(cap):
    with pytest.raises(fg.InvalidInputError, match=r"cap is 1e.*leave it out"):
        fg.EditDistance(AB).compile("abb", cap=cap)
    with pytest.raises(fg.InvalidInputError, match=r"cap is 1e.*leave it out"):
        fg.EditDistance(AB, substitute_cost=0.5).compile("abb", cap=cap)
