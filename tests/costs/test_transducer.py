"""The arrays of a transducer of pairs."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.costs.source import loss_of
from fstgrad.costs.transducer import PairTransducer
from fstgrad.openfst import with_symbols

ABC = fg.Alphabet("ab")


@pytest.mark.parametrize(
    "change, said",
    [
        ({"ilabel": [3]}, r"ilabel\[0\] is 3; indices run from 0 to 2"),
        ({"olabel": [3]}, r"olabel\[0\] is 3; indices run from 0 to 2"),
        ({"source": [1]}, r"source\[0\] is 1; indices run from 0 to 0"),
        ({"nextstate": [1]}, r"nextstate\[0\] is 1; indices run from 0 to 0"),
        ({"rule": [-2]}, r"rule\[0\] is -2; indices run from -1"),
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
