"""The arrays of a transducer of pairs."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.costs.transducer import Pairs, PairTransducer, loss_of
from fstgrad.openfst import with_symbols

ABC = fg.Alphabet("ab")


@pytest.mark.parametrize(
    "change, said",
    [
        ({"ilabel": [3]}, r"ilabel\[0\] is 3; indices run from 0 to 2"),
        ({"olabel": [3]}, r"olabel\[0\] is 3; indices run from 0 to 2"),
        ({"source": [1]}, r"source\[0\] is 1; indices run from 0 to 0"),
        ({"nextstate": [1]}, r"nextstate\[0\] is 1; indices run from 0 to 0"),
        ({"rule": [-3]}, r"rule\[0\] is -3; indices run from -2"),
        ({"start": 1}, "start is 1; states run from 0 to 0"),
    ],
)
def test_arrays_of_a_transducer_stay_within_it(change, said):
    fields = {name: np.zeros(1, np.int64) for name in ("ilabel", "olabel", "source", "nextstate")}
    fields |= {"start": 0, "rule": np.array([-1]), "cost": np.zeros(2)}
    assert PairTransducer(ABC, **fields).cost.tolist() == [0.0, 0.0]
    with pytest.raises(fg.InvalidInputError, match=said):
        PairTransducer(ABC, **fields | change)


def test_symbols_of_a_transducer_are_its_table_without_epsilon():
    transducer = with_symbols(fg.EditDistance(ABC).factors[0], ABC)
    assert loss_of(transducer).alphabet == ABC


def test_sums_over_a_silent_cycle_of_two_states():
    """Silent arcs 0 -> 1 (cost 1) and 1 -> 0 (cost 3): the sums of a cycle are not symmetric."""
    silent, read = (1.0, 3.0), 0.5
    ends = {"ilabel": np.array([0, 0, 1]), "olabel": np.array([0, 0, 1])}
    machine = PairTransducer(
        ABC,
        0,
        **ends,
        source=np.array([0, 1, 1]),
        nextstate=np.array([1, 0, 1]),
        rule=np.full(3, -1),
        cost=np.array([*silent, read, np.inf, 0.0]),
    )
    around = -np.log1p(-np.exp(-sum(silent)))  # any number of rounds of the cycle
    expected = around - silent[0] - read + around
    pairs = Pairs.encode(ABC, [("a", "a")])
    np.testing.assert_allclose(machine.log_sums(pairs, -machine.cost), [expected], atol=1e-12)
    value, counts = machine.expected_counts(pairs, -machine.cost)
    rounds = np.exp(-sum(silent)) / -np.expm1(-sum(silent))
    np.testing.assert_allclose(value, [expected], atol=1e-12)
    np.testing.assert_allclose(counts, [1 + 2 * rounds, 2 * rounds, 1, 0, 1], atol=1e-12)
