"""Every command of the command line, and its examples in a shell."""

import os
import pathlib
import subprocess
import sys
import tempfile

import click

from fstgrad.cli.command import Group
from fstgrad.cli.main import fstgrad
from tests.helpers.sources import ROOT

PROGRAMS = {"fstgrad": '-c "from fstgrad.cli.main import main; main()"', "python3": ""}


def leaves(command=fstgrad, name=""):
    """Yield every command that is no group, with its full name."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    assert isinstance(command, Group)
    context = click.Context(command)
    for part in command.list_commands(context):
        yield from leaves(command.get_command(context, part), f"{name} {part}".strip())


LEAVES = dict(leaves())


def run_examples(name, folder):
    """Run the examples of a command in a folder, in a shell with `fstgrad` and its `python3`."""
    with tempfile.TemporaryDirectory() as programs:
        for program, arguments in PROGRAMS.items():
            file = pathlib.Path(programs, program)
            file.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
            file.chmod(0o755)
        environment = os.environ | {
            "PATH": os.pathsep.join([programs, os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(LEAVES[name].examples)],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
