"""What a fit found: costs as a transducer, a loss, a table, with their likelihood and errors."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from fstgrad.checks import FloatArray, instance, one_of, path_name, positive_integer
from fstgrad.costs.pairs import Pairs
from fstgrad.costs.tables import CostRow, rows_of, write_costs
from fstgrad.costs.ties import Ties
from fstgrad.costs.transducer import PairTransducer
from fstgrad.errors import InvalidInputError, RenamedAttribute
from fstgrad.losses import TransducerLoss
from fstgrad.openfst import Fst, from_arrays, with_arc_type, with_symbols, write_archive, write_file
from fstgrad.summary import short_repr


@dataclass(frozen=True, eq=False)
class LearnedCosts:
    """Learned costs of a transducer.

    Attributes
    ----------
    pair_transducer : PairTransducer, the transducer.
    ties : Ties, the classes that share a weight.
    cost : (A + S,) float64, the cost of each event in nats.
    initial_cost : (A + S,) float64, the same before learning.
    counts : (A + S,) float64, how often each event was met in expectation.
    """

    pair_transducer: PairTransducer
    ties: Ties
    cost: FloatArray
    initial_cost: FloatArray
    counts: FloatArray

    __repr__ = short_repr

    aligner = RenamedAttribute("pair_transducer")

    @property
    def transducer(self) -> Fst:
        """The pynini.Fst with the learned costs ("log64") and symbols; impossible arcs left out."""
        return with_symbols(
            from_arrays(self.pair_transducer.to_fst(self.cost)), self.pair_transducer.alphabet
        )

    def loss(self, semiring: Literal["tropical", "probability"] = "tropical") -> TransducerLoss:
        """Return the loss: the best alignment's cost, or -log of the sum over all alignments."""
        return TransducerLoss(
            self.pair_transducer.to_fst(self.cost), self.pair_transducer.alphabet, semiring=semiring
        )

    @cached_property
    def rows(self) -> tuple[CostRow, ...]:
        """The learned costs, one row for each class of each group, in the transducer's order."""
        return tuple(
            rows_of(self.pair_transducer, self.ties, self.cost, self.initial_cost, self.counts)
        )

    def changes(self, count: int = 10) -> list[CostRow]:
        """Return the classes that changed most, by times * |cost - was|.

        Rows of one class are one here: costs are means by count; where there were several, `state`
        is -1 and `given` empty.
        """
        count = positive_integer("count", count, minimum=0)
        rows: dict[str, list[CostRow]] = {}
        for row in self.rows:
            if np.isfinite(row.cost) and row.times > 0:
                rows.setdefault(row.name, []).append(row)
        merged = [_merged(own) for own in rows.values()]
        return sorted(merged, key=lambda row: -row.times * abs(row.cost - row.was))[:count]

    def write(
        self,
        path: str | os.PathLike[str],
        name: str = "learned",
        *,
        semiring: Literal["tropical", "probability"] = "tropical",
    ) -> None:
        """Write the transducer, `x.far` (entry `name`) or `x.fst`, or the table of costs, `x.tsv`.

        `semiring` is what the file is read as: tropical costs are float32 there.

        Raises
        ------
        InvalidInputError
            The path ends in none of these.
        """
        text = path_name(path)
        instance("name", name, str, "a str")
        one_of("semiring", semiring, ("tropical", "probability"))
        fst = with_arc_type(self.transducer, "standard" if semiring == "tropical" else "log64")
        if text.endswith(".tsv"):
            write_costs(text, self.ties, self.rows)
        elif text.endswith(".far"):
            write_archive(text, {name: fst})
        elif text.endswith(".fst"):
            write_file(text, fst)
        else:
            raise InvalidInputError(
                f"path is {text!r}; give a name that ends in .far, .fst or .tsv"
            )


@dataclass(frozen=True, eq=False)
class CostFit(LearnedCosts):
    """Costs -log p learned from pairs.

    Attributes
    ----------
    transducer, ties, cost, initial_cost, counts : as in `LearnedCosts`; costs before learning are
        those of the transducer made probabilities, counts those of the step that was kept.
    pairs : Pairs, those that were learned from.
    theta : (K,) float64, the costs of the classes, before those of a group are made to sum to 1.
    log_likelihood : tuple of float, of the pairs after each step, in nats.
    held_out_log_likelihood : tuple of float, of the held-out pairs; () without them.
    starts : tuple of float, the value by which the best start was chosen, for each.
    """

    pairs: Pairs
    theta: FloatArray
    log_likelihood: tuple[float, ...]
    held_out_log_likelihood: tuple[float, ...]
    starts: tuple[float, ...]

    __repr__ = short_repr

    def standard_errors(self) -> FloatArray:
        """Return the standard error (rows,) of each row's cost, in nats; NaN for infinite costs.

        From the outer products of the scores of the pairs (the empirical Fisher information), the
        gates of a conditional model held fixed.  O(N K^2) for K classes.
        """
        ties = self.ties
        share = np.exp(ties.log_cells(self.theta))
        scores = np.empty((len(self.pairs), len(ties.names)))
        for n in range(len(self.pairs)):
            _, counts = self.pair_transducer.expected_counts(
                self.pairs.take(np.array([n])), -self.cost, np.ones(1)
            )
            cells = np.bincount(ties.cell, counts[ties.events])
            expected = np.bincount(ties.cell_group, cells)[ties.cell_group] * share
            scores[n] = np.bincount(ties.cell_class, expected - cells, minlength=len(ties.names))
        information = (scores * self.pairs.mass[:, None]).T @ scores
        covariance = np.linalg.pinv(information, hermitian=True)
        # the cost of a cell is theta[class] + log of its group's sum
        slope = np.zeros((len(share), len(ties.names)))
        slope[np.arange(len(share)), ties.cell_class] = 1.0
        for cell, group in enumerate(ties.cell_group):
            own = ties.cell_group == group
            slope[cell, ties.cell_class[own]] -= share[own]
        variance = np.einsum("ij,jk,ik->i", slope, covariance, slope)
        return np.where(share > 0, np.sqrt(np.maximum(variance, 0.0)), np.nan)


def _merged(rows: Sequence[CostRow]) -> CostRow:
    """Return rows of one class as one."""
    total = sum(row.times for row in rows)
    cost, was = (
        sum(row.times * getattr(row, name) for row in rows) / total for name in ("cost", "was")
    )
    place = (rows[0].state, rows[0].given) if len(rows) == 1 else (-1, "")
    return CostRow(*place, rows[0].name, cost, was, total)
