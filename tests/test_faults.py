"""The faults program with few repetitions; `make faults` runs it with a hundred kills a target."""

import pytest

from tests.faults import CHECKS, run_all


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_no_result_is_lost_and_no_output_lies(check, capsys):
    assert run_all(kills=3, seed=0, names=[check.__name__]) == 0, capsys.readouterr().out
