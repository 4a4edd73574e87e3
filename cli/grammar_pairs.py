"""Pairs of words, dictionaries and losses for `fstgrad grammar fit` and `compare`."""

import pathlib
from collections.abc import Sequence

from fstgrad.alphabet import Alphabet
from fstgrad.costs.ranking import nearest
from fstgrad.errors import InvalidInputError
from fstgrad.grammars import Grammar
from fstgrad.io import located, read_alphabet, read_lines, read_table
from fstgrad.losses import EditDistance, TransducerLoss

Words = list[tuple[Sequence[str], Sequence[str]]]
SHOWN = 10  # largest number of rows in a table


def reads_words(reference: str, alphabet: str | None, symbols: str | None) -> bool:
    """Return whether the symbols of a grammar are words, not characters."""
    if alphabet is not None:
        return not read_alphabet(alphabet).is_characters
    if symbols is not None:
        return " " in symbols.strip()
    if reference == "edit" or _is_file(reference):
        return False
    own = Grammar.load(reference).alphabet
    return own is not None and not own.is_characters


def _is_file(reference: str) -> bool:
    return ".far" in pathlib.Path(reference).name or reference.endswith((".fst", ".txt"))


def pairs_of(path: str, is_words: bool) -> list[tuple[Sequence[str], Sequence[str]]]:
    """Return the (hypothesis, target) of each row of a file as sequences of symbols."""
    tokens = "words" if is_words else "chars"
    rows: list[tuple[Sequence[str], Sequence[str]]] = []
    for row in read_table(path):
        with located(row):
            pair = row.pair(tokens, tokens)  # type: ignore[arg-type]
        rows.append((pair.x, pair.y))
    if not rows:
        raise InvalidInputError(f"{path} is empty; give rows hypothesis, one tab, target")
    return rows


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
    for (x, y), near in zip(rows, nearest([x for x, _ in rows], dictionary, count), strict=True):
        others = [dictionary[k] for k in near if dictionary[k] != tuple(y)][: count - 1]
        asked.append((x, 0, [y, *others]))
    return asked


def loss_of(
    reference: str, rows: Words, alphabet: str | None, symbols: str | None, is_words: bool
) -> TransducerLoss:
    """Return the loss of `edit`, a grammar or a file, over the alphabet of the options.

    By default the alphabet is that of the rows for `edit`, the file's own, or the grammar's own; a
    grammar that is built for an alphabet also gets the symbols of the rows.
    """
    data = sorted({symbol for pair in rows for side in pair for symbol in side})
    if alphabet is not None or symbols is not None:
        text = symbols or ""
        abc = read_alphabet(alphabet) if alphabet else Alphabet(text.split() if is_words else text)
        return EditDistance(abc) if reference == "edit" else _found(reference, abc)
    if reference == "edit":
        return EditDistance(Alphabet(data))
    if _is_file(reference):
        return TransducerLoss.from_file(reference)
    grammar = Grammar.load(reference)
    own = list(grammar.alphabet or ())
    wide = Alphabet([*own, *(symbol for symbol in data if symbol not in set(own))])
    return grammar.loss(wide if grammar.takes_alphabet else grammar.alphabet)


def _found(reference: str, abc: Alphabet) -> TransducerLoss:
    if _is_file(reference):
        return TransducerLoss.from_file(reference, abc)
    return Grammar.load(reference).loss(abc)


def cell(measure: tuple[float, float, float]) -> str:
    """Return a measure and its interval as the text "value [lower, upper]"."""
    value, lower, upper = measure
    return f"{value:.3f} [{lower:.3f}, {upper:.3f}]"
