"""Lattices meet the contract, where every string has one path."""

from functools import partialmethod

import numpy as np
import pytest

import fstgrad as fg
from tests.contract import DistributionContract, Enumerated
from tests.strings.lattices.random_lattice import ABC, RandomLattice


def enumerated(lattice, case):
    """A lattice without duplicate strings as the contract's list of structures."""
    tables = np.zeros((len(case.paths.strings), lattice.num_arcs))
    full = case.paths.table
    inner, ends = ~lattice.ends, lattice.ends
    tables[:, inner] = full[:, lattice.origin[inner]]
    columns = [case.paths.states.index(state) for state in lattice.origin[ends]]
    tables[:, ends] = full[:, case.paths.num_arcs + np.array(columns, dtype=int)]
    return Enumerated(
        lattice,
        [np.array(string, dtype=np.int64) for string in case.paths.strings],
        [(table,) for table in tables],
        np.zeros(len(tables)),
        (lattice.scores,),
        lambda scores: lattice.with_scores(scores[0]),
    )


class TestLattices(DistributionContract):
    def cases(self):
        found = []
        for seed in range(40):
            case = RandomLattice(seed, states=5, masked=seed % 2 == 1)
            strings = case.paths.strings
            if len(strings) > 2 and len(set(strings)) == len(strings):
                found.append(enumerated(case.lattice(), case))
        assert len(found) >= 3
        return found[:5]


def test_samples_of_strings_with_several_paths():
    case = RandomLattice(6)
    lattice, sums = case.lattice(), case.paths.log_sums_of_strings()
    assert len(sums) < len(case.paths.paths)
    k = 20_000
    draws = [tuple(y.tolist()) for y in lattice.sample(k, 0)]
    for string, total in sums.items():
        p = np.exp(total - case.paths.log_z())
        assert abs(draws.count(string) / k - p) < 5 * np.sqrt(p * (1 - p) / k) + 1e-12


def test_entropies_are_between_lattices_with_the_same_arcs():
    first, second = RandomLattice(6).lattice(), RandomLattice(6).lattice()
    with pytest.raises(fg.NotSupportedError, match="with_scores"):
        first.kl(second)
    assert first.kl(first.with_scores(second.scores)) == pytest.approx(0, abs=1e-12)


def test_the_mode_is_a_string_not_a_path():
    # "a" by one path of weight 3, "b" by two of weight 2 each
    lattice = fg.Lattice.from_nbest(["a", "b", "b"], np.log([3.0, 2.0, 2.0]), ABC)
    assert ABC.decode(lattice.mode()) == ["b"]
    path, log_prob = lattice.best_path()
    assert ABC.decode(lattice.string(path)) == ["a"]
    assert log_prob == pytest.approx(np.log(3 / 7), abs=1e-12)


def test_kbest_stops_early_where_slots_may_be_empty(monkeypatch):
    """A prefix reaches many states, and each counts; `mbr` has no limit, so it asks for strings."""
    slots = [[("a", -1.0), ("b", -1.0), (None, -1.0)]] * 300
    lattice = fg.Lattice.from_confusion_network(slots, ABC)
    limited = partialmethod(fg.Lattice.kbest, max_states=20_000)
    monkeypatch.setattr(fg.Lattice, "kbest", limited)
    with pytest.raises(fg.StateLimitError, match="best_path") as caught:
        lattice.kbest(2)
    assert caught.value.states < 20_000 + 3 * 301
    with pytest.raises(fg.StateLimitError, match=r"Give candidates, such as distribution\.sample"):
        fg.mbr(lattice, fg.Hamming(ABC))
    few = fg.Lattice.from_confusion_network(slots[:4], ABC)
    strings = few.sample(5, 0)
    assert len(fg.mbr(few, fg.EditDistance(ABC), strings).risks) == len(strings)


def test_the_closest_string_is_one_that_the_lattice_allows():
    lattice = fg.Lattice.from_nbest(["ab", "bbb", "b"], [-np.inf, 0.0, 0.0], ABC)
    b = lattice.compile(fg.EditDistance(ABC), "ab")
    closest, least = b.closest()
    assert (ABC.decode(closest), least) == (["b"], 1.0)
    free = lattice.with_scores(np.zeros(lattice.num_arcs)).compile(fg.EditDistance(ABC), "ab")
    assert free.closest()[1] == 0.0
    hidden = lattice.with_scores(np.full(lattice.num_arcs, -np.inf))
    with pytest.raises(fg.InfeasibleError, match="no path"):
        hidden.compile(fg.EditDistance(ABC), "ab").closest()


def test_kbest_stops_at_its_limit():
    # every string has a path through each of two equal halves: bounds are loose
    slots = [[("a", 0.0), ("a", 0.0), ("b", 0.0)]] * 12
    lattice = fg.Lattice.from_confusion_network(slots, ABC)
    with pytest.raises(fg.StateLimitError, match="best_path"):
        lattice.kbest(3000, max_states=100)
