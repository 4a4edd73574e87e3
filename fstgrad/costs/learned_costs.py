"""The result of a fit: costs as a transducer, a loss and a table; likelihoods; errors."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from fstgrad.core.checks import FloatArray, instance, one_of, path_name, positive_integer
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.core.uninitialized import empty
from fstgrad.costs.pairs import Pairs
from fstgrad.costs.parameter_tying import ParameterTying
from fstgrad.costs.tables import CostRow, rows_of, write_costs
from fstgrad.costs.transducer import PairTransducer
from fstgrad.losses import TransducerLoss
from fstgrad.losses.transducers.rules import write_rules
from fstgrad.openfst import ArcType, Fst, from_arrays, with_arc_type, with_symbols, write_file


@dataclass(frozen=True, eq=False)
class LearnedCosts:
    """Learned costs of a transducer.

    Attributes
    ----------
    pair_transducer : PairTransducer, the transducer.
    ties : ParameterTying, the classes that share a weight.
    cost : (A + S,) float64, the cost of each event in nats.
    initial_cost : (A + S,) float64, these costs before learning.
    counts : (A + S,) float64, the expected number of times that each event happened.
    prior : (cells,) float64
        The pseudocounts of each class in each group; 0 if the costs were learned to rank.
    """

    pair_transducer: PairTransducer
    ties: ParameterTying
    cost: FloatArray
    initial_cost: FloatArray
    counts: FloatArray
    prior: FloatArray

    __repr__ = short_repr

    @property
    def transducer(self) -> Fst:
        """The pynini.Fst ("log64") with the learned costs and symbols, without impossible arcs."""
        return with_symbols(
            from_arrays(self.pair_transducer.to_fst(self.cost)), self.pair_transducer.alphabet
        )

    def loss(self, semiring: Literal["tropical", "probability"] = "tropical") -> TransducerLoss:
        """Return the loss: the cost of the best alignment, or -log of the sum over all; nats."""
        return TransducerLoss(
            self.pair_transducer.to_rules(self.cost),
            self.pair_transducer.alphabet,
            semiring=semiring,
        )

    @cached_property
    def rows(self) -> tuple[CostRow, ...]:
        """The learned costs: one row for each class of each group."""
        costs = (self.cost, self.initial_cost)
        return tuple(rows_of(self.pair_transducer, self.ties, *costs, self.counts, self.prior))

    def changes(self, count: int = 10) -> list[CostRow]:
        """Return the `count` classes that changed most, by times * |cost - was|.

        Several rows of a class are merged into one with `state` -1 and an empty `given`; its costs
        are means weighted by `times`, and its size and gate are geometric ones; its other numbers
        are sums.  Rows with infinite costs are left out.
        """
        count = positive_integer("count", count, minimum=0)
        rows: dict[str, list[CostRow]] = {}
        for row in self.rows:
            if np.isfinite(row.cost) and row.times > 0:
                rows.setdefault(row.name, []).append(row)
        merged = [_merged(of_class) for of_class in rows.values()]
        return sorted(merged, key=lambda row: -row.times * abs(row.cost - row.was))[:count]

    def write(
        self,
        path: str | os.PathLike[str],
        name: str = "learned",
        *,
        semiring: Literal["tropical", "probability"] = "tropical",
    ) -> None:
        """Write the transducer to `x.far` (entry `name`) or `x.fst`, or the costs to `x.tsv`.

        `semiring` chooses the arc type of an FST: "standard" (float32) for tropical costs, else
        "log64".  An archive also has the names of rules, in the entry `name`.rules.

        Raises
        ------
        InvalidInputError
            The path has none of these endings.
        """
        text = path_name(path)
        instance("name", name, str, "a str")
        one_of("semiring", semiring, ("tropical", "probability"))
        arc_type: ArcType = "standard" if semiring == "tropical" else "log64"
        if text.endswith(".tsv"):
            write_costs(text, self.ties, self.rows)
        elif text.endswith(".far"):
            write_rules(text, name, self.pair_transducer.to_rules(self.cost), arc_type)
        elif text.endswith(".fst"):
            write_file(text, with_arc_type(self.transducer, arc_type))
        else:
            raise InvalidInputError(
                f"path is {text!r}; give a name that ends in .far, .fst or .tsv"
            )


@dataclass(frozen=True, eq=False)
class CostFit(LearnedCosts):
    """Costs -log p learned from pairs.

    Attributes
    ----------
    pair_transducer, ties, cost, initial_cost, counts, prior : as in `LearnedCosts`
        `initial_cost` holds the transducer's own costs, made -log of probabilities; `counts` are
        those of the step that was kept.
    pairs : Pairs, the pairs from which the costs were learned.
    theta : (K,) float64, the costs of the classes in nats, before normalization in each group.
    log_likelihood : tuple of float, of the pairs after 0, 1, 2, ... steps, in nats.
    held_out_log_likelihood : tuple of float, of the held-out pairs, likewise; () without them.
    kept : int, the number of steps after which the costs are kept.
    starts : tuple of float, the value (nats) of each start by which the best one was chosen.
    """

    pairs: Pairs
    theta: FloatArray
    log_likelihood: tuple[float, ...]
    held_out_log_likelihood: tuple[float, ...]
    kept: int
    starts: tuple[float, ...]

    __repr__ = short_repr

    def standard_errors(self) -> FloatArray:
        """Return the standard error (rows,) of each row's cost, in nats; NaN for infinite costs.

        The covariance of theta is the pseudoinverse of the empirical Fisher information, sum_n
        mass_n g_n g_n^T, where g_n is the gradient of the log-likelihood of pair n.  The gates of a
        conditional model are held fixed.  O(N K^2) for K classes.
        """
        ties = self.ties
        share = np.exp(ties.log_cells(self.theta))
        scores = empty((len(self.pairs), len(ties.names)))
        for n in range(len(self.pairs)):
            _, counts = self.pair_transducer.expected_counts(
                self.pairs.take(np.array([n])), -self.cost, np.ones(1)
            )
            cells = np.bincount(ties.cell, counts[ties.events])
            expected = np.bincount(ties.cell_group, cells)[ties.cell_group] * share
            scores[n] = np.bincount(ties.cell_class, expected - cells, minlength=len(ties.names))
        information = (scores * self.pairs.mass[:, None]).T @ scores
        covariance = np.linalg.pinv(information, hermitian=True)
        # the cost of a cell is theta[class] + log of the sum of exp(-theta) of its group
        slope = np.zeros((len(share), len(ties.names)))
        slope[np.arange(len(share)), ties.cell_class] = 1.0
        for cell, group in enumerate(ties.cell_group):
            in_group = ties.cell_group == group
            slope[cell, ties.cell_class[in_group]] -= share[in_group]
        variance = np.einsum("ij,jk,ik->i", slope, covariance, slope)
        return np.where(share > 0, np.sqrt(np.maximum(variance, 0.0)), np.nan)


def _merged(rows: Sequence[CostRow]) -> CostRow:
    """Return the rows of one class, merged into one."""
    total = sum(row.times for row in rows)
    if len(rows) == 1:
        return rows[0]
    times = np.array([row.times for row in rows])
    numbers = np.array([(row.cost, row.was, row.size, row.gate) for row in rows])
    numbers[:, 2:] = np.log(numbers[:, 2:])
    cost, was, size, gate = (times @ numbers / total).tolist()
    prior, choices = sum(row.prior for row in rows), sum(row.total for row in rows)
    return CostRow(
        -1, "", rows[0].name, cost, was, total, prior, choices, math.exp(size), math.exp(gate)
    )
