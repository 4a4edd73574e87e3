"""Options that change the scores of lattices and n-best lists: scales, costs of words."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import click
import numpy as np

from fstgrad.cli.command import option_group
from fstgrad.cli.parameter_types import Input, Number
from fstgrad.core.errors import InvalidInputError
from fstgrad.io import located, read_rows, to_number
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

    @cached_property
    def table(self) -> dict[str, float]:
        """The costs of the rows `word cost` of the file.

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
                if found.setdefault(fields[0], cost) != cost:
                    raise InvalidInputError(f"{fields[0]!r} has another cost before; give one")
        return found

    def read(self, path: str, **settings: Any) -> dict[str, Fst]:
        """Return the lattices of `read_collection`, with the scales."""
        return read_collection(
            path, acoustic_scale=self.acoustic_scale, lm_scale=self.lm_scale, **settings
        )

    def cost(self, text: str) -> float:
        """Return the costs of the words of a text."""
        words = text.split()
        return self.word_penalty * len(words) + sum(self.table.get(word, 0.0) for word in words)

    def lattice(self, lattice: Lattice) -> Lattice:
        """Return a lattice with the costs of its words."""
        if not (self.word_penalty or self.word_costs):
            return lattice
        symbols = [self.word_penalty + self.table.get(word, 0.0) for word in lattice.alphabet]
        costs = np.array([*symbols, 0.0])  # the last one of arcs without a word
        label = np.where(lattice.label == NO_SYMBOL, len(symbols), lattice.label)
        return lattice.with_scores(lattice.scores - costs[label])


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
