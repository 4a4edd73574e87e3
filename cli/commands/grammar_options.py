"""The grammar that a command of `fstgrad grammar` names, and its files of pairs and words."""

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from fstgrad.cli.parameter_types import Named, Reference
from fstgrad.core.alphabet import STANDARD, Alphabet
from fstgrad.core.errors import InvalidInputError
from fstgrad.costs.ranking import nearest_words
from fstgrad.grammars import NAMES, Grammar
from fstgrad.io import Row, located, read_alphabet, read_lines, read_table
from fstgrad.losses import EditDistance, TransducerLoss
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


Words = list[tuple[Sequence[str], Sequence[str]]]
SHOWN = 10  # largest number of rows in a table


def reads_words(reference: str, alphabet: str | None, symbols: str | None) -> bool:
    """Return whether the symbols of a grammar, or of a transducer in a file, are words.

    Raises
    ------
    click.UsageError
        Both --alphabet and --symbols are given.
    """
    own = named_alphabet(None, alphabet, symbols)
    if symbols is not None:
        return " " in symbols.strip()
    if own is None and is_fst_file(reference):
        own = TransducerLoss.from_file(reference).alphabet
    elif own is None and reference != "edit":
        own = Grammar.load(reference).alphabet
    return own is not None and not own.is_characters


def pairs_of(path: str, is_words: bool) -> tuple[Words, list[Row]]:
    """Return the (hypothesis, target) of each row of a file as sequences of symbols, and the rows.

    Raises
    ------
    RowError
        A row is not a pair.
    InvalidInputError
        The file has no rows.
    """
    tokens = "words" if is_words else "chars"
    pairs: Words = []
    rows = list(read_table(path))
    for row in rows:
        with located(row):
            pair = row.pair(tokens, tokens)  # type: ignore[arg-type]
        pairs.append((pair.x, pair.y))
    if not pairs:
        raise InvalidInputError(f"{path} is empty; give rows hypothesis, one tab, target")
    return pairs, rows


def dictionary_of(rows: Words, path: str | None, is_words: bool) -> list[tuple[str, ...]]:
    """Return the targets and the words of a file, each once, in sorted order."""
    if path is None:
        return sorted({tuple(y) for _, y in rows})
    lines = [line for line in read_lines(path) if line]
    if not lines:
        raise InvalidInputError(f"{path} is empty; give one word per line")
    words = [tuple(line.split()) if is_words else tuple(line) for line in lines]
    return sorted({*words, *(tuple(y) for _, y in rows)})


def questions_of(
    rows: Words, dictionary: Sequence[tuple[str, ...]], count: int
) -> list[tuple[Sequence[str], int, list[Sequence[str]]]]:
    """Return (hypothesis, 0, candidates) of each row, to be ranked; 0 is the place of the target.

    The candidates are the target and at most `count` - 1 other words near the hypothesis.
    """
    asked = []
    for (x, y), near in zip(
        rows, nearest_words([x for x, _ in rows], dictionary, count), strict=True
    ):
        others = [dictionary[k] for k in near if dictionary[k] != tuple(y)][: count - 1]
        asked.append((x, 0, [y, *others]))
    return asked


def loss_of(
    reference: str, rows: Words, alphabet: str | None, symbols: str | None
) -> TransducerLoss:
    """Return the loss of `edit`, a grammar or a file, over the alphabet of the options.

    By default the alphabet is that of the rows for `edit`, the file's own, or the grammar's own; a
    grammar that is built for an alphabet also gets the symbols of the rows.
    """
    given = named_alphabet(None, alphabet, symbols)
    if reference != "edit" and (given is not None or is_fst_file(reference)):
        return named_loss(reference, alphabet, symbols)
    data = sorted({symbol for pair in rows for side in pair for symbol in side})
    if reference == "edit":
        return EditDistance(Alphabet(data) if given is None else given)
    grammar = Grammar.load(reference)
    own = list(grammar.alphabet or ())
    wide = Alphabet([*own, *(symbol for symbol in data if symbol not in set(own))])
    return grammar.loss(wide if grammar.takes_alphabet else grammar.alphabet)


def cell(measure: tuple[float, float, float]) -> str:
    """Return a measure and its interval as the text "value [lower, upper]"."""
    value, lower, upper = measure
    return f"{value:.3f} [{lower:.3f}, {upper:.3f}]"
