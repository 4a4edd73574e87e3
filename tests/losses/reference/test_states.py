"""The lower bound of the states of Det(M) against OpenFst's count."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad import openfst
from fstgrad.losses import reference
from fstgrad.losses.reference import determinization
from fstgrad.losses.reference.state_bound import depths, least_states

AB = fg.Alphabet("ab")


def tropical(rng):
    """Losses whose costs float32 holds, so that equal states compare equal."""
    insert, delete, substitute = rng.integers(1, 5, 3) / 2
    yield fg.EditDistance(AB, insert, delete, substitute)
    yield fg.OptimalStringAlignment(AB)
    yield fg.SmithWaterman(AB, gap_open=1.5, gap_extend=0.5)
    yield fg.Hamming(AB, substitute)


@pytest.mark.parametrize("seed", range(8))
def test_without_a_limit_all_states_are_counted(seed):
    rng = np.random.default_rng(seed)
    for loss in tropical(rng):
        target, length = rng.integers(0, 2, rng.integers(1, 7)), int(rng.integers(1, 8))
        length = len(target) if isinstance(loss, fg.Hamming) else length
        machine = reference.hypothesis_machine(loss.transducer, AB, target, length)
        states = reference.determinized(machine).num_states()
        arrays = openfst.to_arrays(machine)
        assert least_states(arrays, depths(arrays), 10**6) == states
        for limit in range(1, states + 2):
            found = least_states(arrays, depths(arrays), limit)
            assert found <= states
            assert found >= min(2, states)


def test_a_limit_that_is_passed_is_an_error_before_openfst_determinizes(monkeypatch):
    def determinize(*_, **__):
        raise AssertionError("OpenFst takes minutes for such a machine")

    monkeypatch.setattr(determinization.openfst, "determinize", determinize)
    with pytest.raises(fg.StateLimitError, match=r"max_states=1,500"):
        fg.EditDistance(AB).compile("a" * 120, engine="openfst", max_states=1500)
