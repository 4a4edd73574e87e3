"""`fstgrad completion`: the script that completes commands, options and values in a shell."""

import click
from click.shell_completion import get_completion_class

from fstgrad.cli.grouping import Command
from fstgrad.cli.text import echo

SHELLS = ("bash", "zsh", "fish")


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    r"""Print the script that completes fstgrad in a shell.

    It completes commands, options, files, and values such as those of --loss, --matrix and
    --alphabet.  Bash has to be of version 4.4 or newer.  To have it in every session, append a
    line to the shell's own file:

    \b
      bash  ~/.bashrc                   eval "$(fstgrad completion bash)"
      zsh   ~/.zshrc                    eval "$(fstgrad completion zsh)"
      fish  ~/.config/fish/config.fish  fstgrad completion fish | source
    """
    found = get_completion_class(shell)
    if found is not None:
        root = context.find_root()
        echo(found(root.command, {}, "fstgrad", "_FSTGRAD_COMPLETE").source())
