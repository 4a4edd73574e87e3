"""Arguments and options of the commands of `fstgrad grammar`: a grammar and its alphabet."""

import click
from click.shell_completion import CompletionItem

from fstgrad.cli.parameter_types import Named, Reference
from fstgrad.core.alphabet import STANDARD, Alphabet
from fstgrad.grammars import NAMES, Grammar
from fstgrad.io import read_alphabet
from fstgrad.losses import TransducerLoss
from fstgrad.openfst import is_fst_file


def complete_reference(
    _context: click.Context, _argument: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the files and grammars whose names start with `incomplete`, for a shell."""
    names = [name for name in NAMES if name.startswith(incomplete)]
    # the file comes first, because bash drops the items before it
    return [CompletionItem(incomplete, type="file"), *map(CompletionItem, names)]


reference_argument = click.argument(
    "reference", type=Reference(), metavar="FILE_OR_NAME", shell_complete=complete_reference
)
alphabet_option = click.option(
    "--alphabet",
    type=Named(tuple(STANDARD), first=True),
    metavar="FILE|NAME",
    help=f"File with one symbol per line, or {', '.join(STANDARD)}.  [default: the grammar's own]",
)
symbols_option = click.option(
    "--symbols", help="The alphabet as text: characters, or words separated by spaces."
)


def named_loss(reference: str, path: str | None, symbols: str | None) -> TransducerLoss:
    """Return the loss of a grammar, or of a transducer in a file (x.far:NAME, x.fst, x.txt).

    Its alphabet is that of --alphabet (`path`) or --symbols; by default, its own.
    """
    if is_fst_file(reference):
        return TransducerLoss.from_file(reference, named_alphabet(None, path, symbols))
    found = Grammar.load(reference)
    return found.loss(named_alphabet(found, path, symbols))


def named_alphabet(found: Grammar | None, path: str | None, symbols: str | None) -> Alphabet | None:
    """Return the alphabet of --alphabet (`path`) or --symbols; by default, the grammar's own."""
    if path is not None and symbols is not None:
        raise click.UsageError("--alphabet and --symbols name two alphabets; give one of them")
    if path is not None:
        return read_alphabet(path)
    if symbols is not None:
        return Alphabet(symbols.split() if " " in symbols.strip() else symbols)
    return found.alphabet if found is not None else None
