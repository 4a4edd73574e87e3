"""`fstgrad completion`: print the script that completes commands, options and values."""

import click
from click.shell_completion import get_completion_class

from fstgrad.cli.command import Command
from fstgrad.cli.output import echo

SHELLS = ("bash", "zsh", "fish")
# zsh defines compdef in compinit, which a new ~/.zshrc does not call
REGISTER = "    compdef _fstgrad_completion fstgrad"
COMPINIT = "    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }"


@click.command(cls=Command, examples=("fstgrad completion bash > fstgrad.bash", ". ./fstgrad.bash"))
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes fstgrad in a shell.

    It completes commands, options, files, and values such as those of --loss, --matrix and
    --alphabet.  Bash must be version 4.4 or newer.  To enable it in every session:

    bash: append eval "$(fstgrad completion bash)" to ~/.bashrc

    zsh: append eval "$(fstgrad completion zsh)" to ~/.zshrc

    fish: append fstgrad completion fish | source to ~/.config/fish/config.fish
    """
    completion_class = get_completion_class(shell)
    if completion_class is not None:
        root = context.find_root()
        script = completion_class(root.command, {}, "fstgrad", "_FSTGRAD_COMPLETE").source()
        echo(script.replace(REGISTER, f"{COMPINIT}\n{REGISTER}"))
