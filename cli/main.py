"""`fstgrad`: the entry point, its table of commands, and the one place where errors become text.

A command's module is imported when the command is called, so that `fstgrad --help` is quick.
"""

import difflib
import importlib
import sys
from collections.abc import Sequence

import click

from fstgrad._version import __version__
from fstgrad.errors import FstgradError

# name of the command -> (module, one line of help); the object in the module has the same name.
COMMANDS = {
    "grad": ("fstgrad.cli.grad", "Gradient of an objective over string pairs."),
    "risk": ("fstgrad.cli.risk", "Expected loss over string pairs or lattices."),
    "loss": ("fstgrad.cli.loss", "The loss of column 1 against column 2."),
    "marginals": ("fstgrad.cli.marginals", "Gradient terms Q of one pair."),
    "grammar": ("fstgrad.cli.grammar", "Losses written as grammars: list, build, test, draw."),
    "train": ("fstgrad.cli.train", "Train a sequence model on pairs."),
    "predict": ("fstgrad.cli.predict", "The outputs of a trained model."),
    "evaluate": ("fstgrad.cli.evaluate", "Accuracy, mean loss and error rate of a model."),
    "doctor": ("fstgrad.cli.doctor", "Versions, and a self-test of the precision."),
    "trees": ("fstgrad.cli.trees", "Spanning trees: marginals, entropy, decoding, sampling."),
    "mrf": ("fstgrad.cli.mrf", "Markov random fields in UAI files and on images."),
    "grm": ("fstgrad.cli.grm", "Generalized root models of word counts."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use; a wrong name gets the near ones."""

    def __init__(self, table: dict[str, tuple[str, str]], **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return one command."""
        if name not in self.table:
            return None
        command: click.Command = getattr(importlib.import_module(self.table[name][0]), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is a usage error that lists the near names."""
        if args[0] not in self.table and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.table) or list(self.table)
            ctx.fail(f"no command {args[0]!r}; did you mean {', '.join(near)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table.items()])


@click.group(
    cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="fstgrad")
def fstgrad() -> None:
    """Exact gradients of structured losses: strings, trees, Markov random fields, counts."""


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line: usage errors exit with 2, failures with 1, one line each."""
    try:
        status = fstgrad.main(args=args, prog_name="fstgrad", standalone_mode=False)
    except click.UsageError as error:
        _stop(error.format_message(), 2)
    except click.ClickException as error:
        _stop(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _stop("interrupted; what was written so far is complete", 130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except (FstgradError, OSError) as error:
        _stop(str(error), 1)
    sys.exit(status if isinstance(status, int) else 0)


def _stop(message: str, code: int) -> None:
    """Write one line to stderr and leave."""
    click.echo("fstgrad: " + " ".join(message.split()), err=True)
    sys.exit(code)
