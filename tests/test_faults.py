"""The quick checks of the faults program; `make faults` runs all of them, with a hundred kills."""

import pytest

from tests.faults import run_all

QUICK = (
    "outputs_are_checked_first",
    "streams_may_be_closed",
    "full_disks_lose_nothing",
    "signals_end_runs_cleanly",
)


@pytest.mark.slow
def test_no_result_is_lost_and_no_output_lies(capsys):
    assert run_all(kills=3, seed=0, names=QUICK) == 0, capsys.readouterr().out
