"""The faults program with few kills; `make faults` runs it with a hundred."""

import pytest

from tests.faults import run_all


@pytest.mark.slow
def test_no_result_is_lost_and_no_output_lies(capsys):
    assert run_all(kills=3, seed=0) == 0, capsys.readouterr().out
