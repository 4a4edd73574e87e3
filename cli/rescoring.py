"""Options that change the scores of lattices and n-best lists: scales, costs of words."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from fstgrad.cli.command import option_group
from fstgrad.cli.output import note
from fstgrad.cli.parameter_types import Input, Number
from fstgrad.core.errors import InvalidInputError
from fstgrad.io import listed, located, read_rows, to_number
from fstgrad.openfst import Fst, read_collection
from fstgrad.strings import Lattice
from fstgrad.strings.lattices.graph import NO_SYMBOL

SCALES = ("acoustic_scale", "lm_scale")
WORD_COSTS = ("word_penalty", "word_costs")


@dataclass(frozen=True)
class Rescoring:
    """Scales of the costs of Kaldi, and costs of words in nats: of each, and of those of a file."""

    acoustic_scale: float
    lm_scale: float
    word_penalty: float
    word_costs: str | None

    def words(self, fold: Callable[[str], str] = str) -> "WordCosts":
        """Return the costs of words: those of the rows `word cost` of the file, after `fold`.

        Raises
        ------
        RowError
            A row has another form, or a word has two costs.
        """
        found: dict[str, float] = {}
        for row in [] if self.word_costs is None else read_rows(self.word_costs):
            with located(row):
                fields = row.text().split()
                if not fields:
                    continue
                if len(fields) != 2:
                    raise InvalidInputError(f"{len(fields)} field(s); a row is word, space, cost")
                try:
                    cost = to_number(fields[1])
                except ValueError:
                    cost = np.nan
                if not np.isfinite(cost):
                    raise InvalidInputError(f"the cost is {fields[1]!r}; give a number of nats")
                word = fold(fields[0])
                if found.setdefault(word, cost) != cost:
                    raise InvalidInputError(
                        f"{fields[0]!r} is the word {word!r}, which has another cost before; give "
                        "one"
                    )
        return WordCosts(self.word_penalty, found)

    def read(self, path: str, **settings: Any) -> dict[str, Fst]:
        """Return the lattices of `read_collection`, with the scales."""
        return read_collection(
            path, acoustic_scale=self.acoustic_scale, lm_scale=self.lm_scale, **settings
        )


class WordCosts:
    """Costs in nats: of each word, and of the words of a table.

    `note_unused` names the words of the table that were in no text and no lattice.
    """

    def __init__(self, penalty: float, table: dict[str, float]) -> None:
        self.penalty = penalty
        self.table = table
        self.unused = dict.fromkeys(table)

    def _of_word(self, word: str) -> float:
        self.unused.pop(word, None)
        return self.penalty + self.table.get(word, 0.0)

    def of(self, text: str) -> float:
        """Return the costs of the words of a text."""
        return sum(map(self._of_word, text.split()))

    def lattice(self, lattice: Lattice) -> Lattice:
        """Return a lattice with the costs of its words."""
        if not (self.penalty or self.table):
            return lattice
        used, place = np.unique(lattice.label, return_inverse=True)
        words = lattice.alphabet.symbols
        costs = [0.0 if i == NO_SYMBOL else self._of_word(words[i]) for i in used.tolist()]
        return lattice.with_scores(lattice.scores - np.array(costs)[place])

    def note_unused(self) -> None:
        """Note the words of the table that were in no text and no lattice so far."""
        if self.unused:
            words = listed(map(repr, self.unused))
            note(f"fstgrad: --word-costs: no scored text or lattice has {words}")


rescoring_options = option_group(
    "rescoring",
    Rescoring,
    click.option(
        "--acoustic-scale",
        type=Number(),
        default=1.0,
        show_default=True,
        help="Factor of the acoustic costs of lattices of Kaldi.",
    ),
    click.option(
        "--lm-scale",
        type=Number(),
        default=1.0,
        show_default=True,
        help="Factor of the graph costs of lattices of Kaldi.",
    ),
    click.option(
        "--word-penalty",
        type=Number(),
        default=0.0,
        show_default=True,
        metavar="NATS",
        help="Cost of each word of lattices and n-best lists, the word insertion penalty of Kaldi.",
    ),
    click.option(
        "--word-costs",
        type=Input(),
        metavar="FILE",
        help="Costs in nats that are added to words of lattices and n-best lists: rows word cost.",
    ),
    heading="Lattices",
)
