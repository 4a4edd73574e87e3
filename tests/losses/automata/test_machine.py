"""Parts of M: costs in one unit, classes of symbols, depths of states, states that skip."""

import itertools

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.losses.automata import machine as machines
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.composition import depth_range, states_with_free_skips
from fstgrad.losses.automata.machine import Arcs, cost_unit, symbol_classes
from fstgrad.losses.automata.semiring import INF, PROBABILITY, TROPICAL
from fstgrad.openfst import FstArrays


def test_infinity_begins_above_half_of_it():
    values = np.array([0, INF // 2, INF // 2 + 1, INF])
    assert TROPICAL.is_zero(values).tolist() == [False, False, True, True]
    assert PROBABILITY.is_zero(np.array([0.0, 1e-300])).tolist() == [True, False]


def test_the_unit_of_costs():
    assert cost_unit(np.array([3.0, 0.0, -5.0])) == 1.0
    assert cost_unit(np.array([3.0, 0.5])) == 0.5
    assert cost_unit(np.array([2.0**-20])) == 2.0**-20
    fine = cost_unit(np.array([1 / 3, 2.0]))
    assert 0 < fine < 1e-12
    assert np.log2(fine) == np.rint(np.log2(fine))


def test_costs_too_far_apart_are_refused_with_the_smallest_that_is_lost():
    with pytest.raises(fg.InvalidInputError, match=r"a cost of 0\.1 beside one of 1e\+16"):
        cost_unit(np.array([0.1, 0.3, 1e16]))


def test_a_collision_of_hashes_is_seen_and_drawn_anew(monkeypatch):
    """Under the first salt all arcs hash alike, and they differ in one column only."""
    source, nextstate = np.zeros(4, dtype=np.int64), np.array([1, 1, 0, 2])
    arcs, label = Arcs(source, nextstate, np.array([5, 5, 5, 5])), np.arange(4)
    expected, classes = symbol_classes(arcs, label, 4)
    assert expected.tolist() == [0, 0, 1, 2]
    whole, salts = machines.hash_arcs, []

    def mix(weight, source, nextstate, salt):
        salts.append(salt)
        return np.ones_like(weight) if salt == 1 else whole(weight, source, nextstate, salt)

    monkeypatch.setattr(machines, "hash_arcs", mix)
    found, same = symbol_classes(arcs, label, 4)
    assert salts == [1, 2]
    assert found.tolist() == expected.tolist()
    for a, b in zip(same, classes, strict=True):
        assert a.nextstate.tolist() == b.nextstate.tolist()


def paths_to(fst, state):
    """The numbers of symbols read on all ways from the start to a state, by enumeration."""
    if state == fst.start:
        return [0]
    into = np.flatnonzero(fst.nextstate == state)
    return [n + (fst.ilabel[a] > 0) for a in into for n in paths_to(fst, fst.source[a])]


@pytest.mark.parametrize("seed", range(5))
def test_depths_by_enumeration(seed):
    rng = np.random.default_rng(seed)
    states = 6
    chain = np.arange(states - 1)
    source = np.sort(np.concatenate([chain, rng.integers(states - 1, size=6)]))
    nextstate = np.concatenate([chain + 1, np.zeros(6, dtype=np.int64)])[np.argsort(source)]
    nextstate = np.maximum(source + 1, rng.integers(states, size=len(source)))
    label = rng.integers(3, size=len(source))
    final = np.full(states, np.inf)
    fst = FstArrays("log64", 0, final, source, label, label, nextstate, np.zeros(len(source)))
    found = depth_range(fst)
    for state in range(states):
        depths = paths_to(fst, state)
        if depths:
            assert found[state].tolist() == [min(depths), max(depths)]


def test_states_that_skip_everything():
    """State 0 skips a and b on both sides, 1 only a, 2 pays for it."""
    loops = [(0, 1, 0, 0.0), (0, 2, 0, 0.0), (0, 0, 1, 0.0), (0, 0, 2, 0.0),
             (1, 1, 0, 0.0), (1, 0, 1, 0.0), (1, 0, 2, 0.0),
             (2, 1, 0, 0.0), (2, 2, 0, 1.0), (2, 0, 1, 0.0), (2, 0, 2, 0.0)]  # fmt: skip
    source, ilabel, olabel, weight = (np.array(column) for column in zip(*loops, strict=True))
    fst = FstArrays("log64", 0, np.zeros(3), source, ilabel, olabel, source, weight)
    assert states_with_free_skips(fst).tolist() == [True, False, False]


def test_the_automaton_of_no_loss():
    b = LossAutomaton.trivial(fg.Alphabet("abc"), 4)
    assert (b.num_states, b.num_arcs, b.num_classes, b.length) == (5, 12, 1, 4)
    assert all(level.cost.shape == level.nextstate.shape == (1, 1) for level in b.levels)
    assert {b.loss(np.array(y)) for y in itertools.product(range(3), repeat=4)} == {0.0}


def test_bounds_of_a_loss_against_a_target():
    ab = fg.Alphabet("ab")
    assert fg.EditDistance(ab, substitute_cost=0.5).against("ab").bounds(3) == (1.0, 2.0)
    assert fg.Hamming(ab).against("ab").bounds(2) == (0.0, 2.0)
    assert fg.NGram(ab, 2, smoothing=0.5).against("ab").bounds(2) == (-np.inf, np.log(2.0))
    assert fg.NGram(ab, 2).against("ab").bounds(2) == (-np.inf, np.inf)


@pytest.mark.parametrize("dead", [(0, 3, 1, 0), (0, 3, 0, 1), (0, 0, 0, 1)])
def test_arcs_of_probability_zero_are_no_arcs(dead):
    """e^-800 is 0 in float64: such an arc makes neither a class of symbols nor a cycle."""
    arcs = np.array([(0, 1, 1, 0), (0, 2, 1, 0), (1, 0, 0, 0), dead])
    cost = np.array([0.0, 1.0, 800.0, 800.0])
    fst = FstArrays("log64", 0, np.zeros(2), *arcs.T, cost)
    machine = fg.TransducerLoss(fst, fg.Alphabet("abcd"), semiring="probability").machine("aa")
    assert machine.class_of[2] == machine.class_of[3]  # c and d lead nowhere
    assert len(machine.final) == 3
