"""The faults program with few repetitions; `make faults` runs it with a hundred kills a target."""

from collections.abc import Iterator

import click
import pytest

from fstgrad.cli.main import fstgrad
from tests.faults import CHECKS, run_all
from tests.repeated import REPEATED


def names_of(command: click.Command, before: str = "") -> Iterator[str]:
    """Every command of a group, as it is called."""
    if not isinstance(command, click.Group):
        yield before.strip()
        return
    for name in command.list_commands(click.Context(command)):
        found = command.get_command(click.Context(command), name)
        assert found is not None
        yield from names_of(found, f"{before} {name}")


def test_results_of_every_command_are_repeated():
    lines = [line for _, *lines in REPEATED for line in lines]
    missing = [
        name
        for name in names_of(fstgrad)
        if not any(f"{line} ".startswith(f"{name} ") for line in lines)
    ]
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_no_result_is_lost_and_no_output_lies(check, capsys):
    assert run_all(kills=3, seed=0, names=[check.__name__]) == 0, capsys.readouterr().out
