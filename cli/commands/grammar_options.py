"""The grammar that a command of `fstgrad grammar` names, and its files of pairs and words."""

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from fstgrad.cli.parameter_types import NameOrFile, NameOrFileEntry
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
    "reference", type=NameOrFileEntry(), metavar="FILE_OR_NAME", shell_complete=complete_reference
)
alphabet_option = click.option(
    "--alphabet",
    type=NameOrFile(tuple(STANDARD), first=True),
    metavar="FILE|NAME",
    help=f"File with one symbol per line, or {', '.join(STANDARD)}.  [default: the grammar's own]",
)
symbols_option = click.option(
    "--symbols", help="The alphabet as text: characters, or words separated by spaces."
)


def load_loss(reference: str, path: str | None, symbols: str | None) -> TransducerLoss:
    """Return the loss of a grammar, or of a transducer in a file (x.far:NAME, x.fst, x.txt).

    Its alphabet is that of --alphabet (`path`) or --symbols; by default, its own.
    """
    if is_fst_file(reference):
        return TransducerLoss.from_file(reference, chosen_alphabet(None, path, symbols))
    grammar = Grammar.load(reference)
    return grammar.loss(chosen_alphabet(grammar, path, symbols))


def chosen_alphabet(
    grammar: Grammar | None, path: str | None, symbols: str | None
) -> Alphabet | None:
    """Return the alphabet of --alphabet (`path`) or --symbols; by default, the grammar's own."""
    if path is not None and symbols is not None:
        raise click.UsageError("--alphabet and --symbols name two alphabets; give one of them")
    if path is not None:
        return read_alphabet(path)
    if symbols is not None:
        return Alphabet(symbols.split() if " " in symbols.strip() else symbols)
    return grammar.alphabet if grammar is not None else None


Words = list[tuple[Sequence[str], Sequence[str]]]
MAX_ROWS = 10  # largest number of rows in a table


def symbols_are_words(reference: str, alphabet: str | None, symbols: str | None) -> bool:
    """Return whether the symbols of a grammar, or of a transducer in a file, are words.

    Raises
    ------
    click.UsageError
        Both --alphabet and --symbols are given.
    """
    chosen = chosen_alphabet(None, alphabet, symbols)
    if symbols is not None:
        return " " in symbols.strip()
    if chosen is None and is_fst_file(reference):
        chosen = TransducerLoss.from_file(reference).alphabet
    elif chosen is None and reference != "edit":
        chosen = Grammar.load(reference).alphabet
    return chosen is not None and not chosen.is_characters


def read_word_pairs(path: str, is_words: bool) -> tuple[Words, list[Row]]:
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


def read_dictionary(rows: Words, path: str | None, is_words: bool) -> list[tuple[str, ...]]:
    """Return the targets and the words of a file, each once, in sorted order."""
    if path is None:
        return sorted({tuple(y) for _, y in rows})
    numbered = [(i, line) for i, line in enumerate(read_lines(path), start=1) if line]
    for i, line in numbered:
        if "\t" in line:
            raise InvalidInputError(f"{path}:{i}: {line[:40]!r} has a tab; give one word per line")
    lines = [line for _, line in numbered]
    if not lines:
        raise InvalidInputError(f"{path} is empty; give one word per line")
    words = [tuple(line.split()) if is_words else tuple(line) for line in lines]
    return sorted({*words, *(tuple(y) for _, y in rows)})


def ranking_questions(
    rows: Words, dictionary: Sequence[tuple[str, ...]], count: int
) -> list[tuple[Sequence[str], int, list[Sequence[str]]]]:
    """Return (hypothesis, 0, candidates) of each row, to be ranked; 0 is the place of the target.

    The candidates are the target and at most `count` - 1 other words near the hypothesis.
    """
    questions = []
    places = nearest_words([x for x, _ in rows], dictionary, count)
    for (x, y), near in zip(rows, places, strict=True):
        others = [dictionary[k] for k in near if dictionary[k] != tuple(y)][: count - 1]
        questions.append((x, 0, [y, *others]))
    return questions


def loss_over_data(
    reference: str, rows: Words, alphabet: str | None, symbols: str | None
) -> TransducerLoss:
    """Return the loss of `edit`, a grammar or a file, over the alphabet of the options.

    By default the alphabet is that of the rows for `edit`, the file's own, or the grammar's own; a
    grammar that is built for an alphabet also gets the symbols of the rows.
    """
    chosen = chosen_alphabet(None, alphabet, symbols)
    if reference != "edit" and (chosen is not None or is_fst_file(reference)):
        return load_loss(reference, alphabet, symbols)
    data_symbols = sorted({symbol for pair in rows for side in pair for symbol in side})
    if reference == "edit":
        return EditDistance(Alphabet(data_symbols) if chosen is None else chosen)
    grammar = Grammar.load(reference)
    grammar_symbols = list(grammar.alphabet or ())
    if not grammar.takes_alphabet:
        return grammar.loss(grammar.alphabet)
    new_symbols = [symbol for symbol in data_symbols if symbol not in set(grammar_symbols)]
    return grammar.loss(Alphabet([*grammar_symbols, *new_symbols]))


def format_interval(measure: tuple[float, float, float]) -> str:
    """Return a measure and its interval as the text "value [lower, upper]"."""
    value, lower, upper = measure
    return f"{value:.3f} [{lower:.3f}, {upper:.3f}]"
