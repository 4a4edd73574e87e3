"""The faults program with few repetitions; `make faults` runs it with a hundred kills a target."""

import pytest

from fstgrad.cli.main import fstgrad
from tests.faults import CHECKS, run_all
from tests.faults_commands import commands_of, lines, outputs
from tests.repeated import OF_EXAMPLES, REPEATED


def test_results_of_every_command_are_repeated():
    """By lines of their own, or else by the examples of the help."""
    assert "doctor" in OF_EXAMPLES
    lines = [line for _, *lines in REPEATED for line in lines]
    for name, _ in commands_of(fstgrad):
        assert any(f"{line} ".removeprefix("fstgrad ").startswith(f"{name} ") for line in lines)


def test_faults_cover_every_command_and_every_output():
    assert len(lines()) == len(dict(commands_of(fstgrad)))
    assert {one.option for one in outputs()} > {"--output", "--journal", "--checkpoint"}


@pytest.mark.nightly
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_no_result_is_lost_and_no_output_lies(check, capsys):
    assert run_all(kills=3, seed=0, names=[check.__name__]) == 0, capsys.readouterr().out
