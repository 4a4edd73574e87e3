"""Memory of a determinization: known before a level is allocated, and refused there."""

import pickle

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.losses.automata.determinize import CountFrontier, TropicalFrontier, determinize

WIDE = fg.Alphabet([f"s{i}" for i in range(120)])
FRONTIERS = {
    "tropical": (TropicalFrontier, fg.EditDistance(WIDE)),
    "probability": (CountFrontier, fg.NGram(WIDE, 2, smoothing=1.0)),
}


@pytest.mark.parametrize("kind", FRONTIERS)
def test_a_level_is_refused_before_it_is_allocated(kind):
    form, loss = FRONTIERS[kind]
    length, far = 8, 2**40
    machine = loss.machine(np.arange(length))

    def before(remaining):
        """The frontier that has this many symbols left."""
        frontier = form(machine, length)
        for r in range(length - 1, remaining, -1):
            frontier.advance(r, far)
        return frontier

    for remaining in (4, 1):
        count, nothing_needed, level = before(remaining).advance(remaining, far)
        assert nothing_needed == 0
        enough = 2**6
        while before(remaining).advance(remaining, far, enough).needed:
            enough *= 2
        again, _, same = before(remaining).advance(remaining, far, enough)
        assert again == count
        np.testing.assert_array_equal(same.nextstate, level.nextstate)
        for share in (2, 8, 1000):  # too little for the rows that are found, for the arcs
            refused = before(remaining)
            _, needed, nothing = refused.advance(remaining, far, enough // share)
            assert needed > enough // share
            assert nothing.nextstate.size == 0
            assert refused.advance(remaining, far).states == count, "a refusal changes nothing"


def test_the_error_names_the_bytes_and_the_states_so_far():
    """100 classes: 100 arcs of 24 bytes for each state, more than the 1,024 that go with it."""
    target = np.arange(100)
    with pytest.raises(fg.StateLimitError, match=r"would bring memory to [\d,]+ bytes") as caught:
        fg.EditDistance(WIDE).compile(target, max_states=50_000)
    error = caught.value
    assert error.nbytes > 1024 * 50_000
    assert error.states < 50_000 == error.limit
    assert "cap=" in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.nbytes) == (str(error), error.nbytes)


def test_what_is_below_the_limit_is_untouched():
    machine = fg.EditDistance(fg.Alphabet("abcd")).machine(np.array([0, 1, 2, 3, 0, 1, 2]))
    raw = determinize(machine, 7, max_states=100_000)
    states = 1 + sum(int(level.nextstate.max()) + 1 for level in raw.levels)
    assert len(determinize(machine, 7, max_states=states).levels) == 7
    with pytest.raises(fg.StateLimitError, match="states exceed max_states") as caught:
        determinize(machine, 7, max_states=states - 1)
    assert caught.value.nbytes is None


def test_levels_that_are_kept_count(monkeypatch):
    """A level that fits alone does not fit beside those before it."""
    machine = fg.EditDistance(WIDE).machine(np.arange(8))
    frontier = TropicalFrontier(machine, 8)
    held, alone, together = 0, 0, 0
    for remaining in reversed(range(8)):
        room = 2**6
        while (step := frontier.advance(remaining, 2**40, room)).needed:
            room += 2**6
        alone, together = max(alone, room), max(together, held + room)
        held += step.level.nbytes
    assert together > 1.2 * alone
    monkeypatch.setattr("fstgrad.losses.automata.determinize._STATE_MEMORY", 0)
    monkeypatch.setattr("fstgrad.losses.automata.determinize._LEAST_MEMORY", alone)
    with pytest.raises(fg.StateLimitError, match="would bring memory to") as caught:
        determinize(machine, 8, max_states=100_000)
    assert caught.value.nbytes > alone
    monkeypatch.setattr("fstgrad.losses.automata.determinize._LEAST_MEMORY", together)
    assert len(determinize(machine, 8, max_states=100_000).levels) == 8


@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_machine_of_one_state(length):
    """With bounds checks on, reading before the first of its one cell is an error."""
    automaton = fg.NoLoss(fg.Alphabet("ab")).compile(np.array([0]), length)
    assert automaton.losses_of(np.zeros((1, length), dtype=int)).tolist() == [0.0]
