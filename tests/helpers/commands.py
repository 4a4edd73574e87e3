"""Every command of the command line."""

import click

from fstgrad.cli.command import Group
from fstgrad.cli.main import fstgrad


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
