"""Gradient steps for bigram scores that are sums of emissions and transitions.

score[t, x, y] = emissions[t, y] + transitions[x, y], where row n of the transitions is the start.
The values are those of `solve` and `tangent` for that table, but only n (n + 1) + l n exponentials
are computed, and the marginals are returned as sums over contexts and sums over positions.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InfeasibleError
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.strings import kernels
from fstgrad.strings.solve import no_string_message, solve, within_range
from fstgrad.strings.tangents import tangent


class Bigrams(NamedTuple):
    """Emissions (l, n) and transitions (n + 1, n): log-weights in nats, or their gradients.

    transitions[x, y] belongs to y after x; transitions[n, y] to y as the first symbol.
    """

    emissions: FloatArray
    transitions: FloatArray

    @property
    def table(self) -> FloatArray:
        """The scores (l, n + 1, n)."""
        return self.emissions[:, None, :] + self.transitions

    def score(self, ids: np.ndarray) -> float:
        """Return the score of the string `ids` (l,) in nats."""
        before = np.concatenate([[self.emissions.shape[1]], ids[:-1]])
        single = self.emissions[np.arange(len(ids)), ids]
        return float(single.sum() + self.transitions[before, ids].sum())


def solve_bigrams(scores: Bigrams, b: LossAutomaton) -> tuple[float, Bigrams]:
    """Return log Z in nats, and the marginals summed over contexts and over positions.

    The sums over contexts are (l, n), the sums over positions (n + 1, n): the gradient of log Z in
    emissions and transitions.

    Raises
    ------
    InfeasibleError
        No string has a finite score and a finite loss.
    """
    weighed = _weights(scores, b.spread, is_complete=b.is_complete)
    if weighed is None:
        log_z, terms = solve(scores.table, b)
        return log_z, _folded(terms)
    table, shift = weighed
    layout = b.bigram_layout
    total = kernels.passes.forward_backward(table, layout.walk, layout.weight, layout.final, 2)
    if total == -np.inf:
        raise InfeasibleError(no_string_message(b.is_complete))
    return total + shift + layout.shift + b.initial, _folded(table)


def risk_of_bigrams(scores: Bigrams, b: LossAutomaton) -> tuple[float, float, Bigrams]:
    """Return log Z without the loss and E[L], both in nats, and the gradient of E[L].

    The gradient is with respect to emissions (l, n) and transitions (n + 1, n).

    Raises
    ------
    InfeasibleError
        No string has a finite score and a finite loss.
    """
    weighed = _weights(scores, 0.0, is_complete=b.is_complete)
    if weighed is None:
        solved = tangent(scores.table, b, scale=0, slope=1)
        return solved.log_partition, solved.slope, _folded(solved.change)
    table, shift = weighed
    layout, change = b.bigram_layout, np.zeros(table.shape)
    log_z, expected = kernels.passes.forward_backward_with_tangents(
        (table, change),
        layout.walk,
        (layout.unweighted, layout.cost),
        (layout.unweighted_final, layout.final_cost),
        False,
        2,
    )
    if log_z == -np.inf:
        raise InfeasibleError(no_string_message(b.is_complete))
    return log_z + shift, expected + b.initial, _folded(change)


def _weights(
    scores: Bigrams, spread: float, *, is_complete: bool
) -> tuple[FloatArray, float] | None:
    """Return exp(score) (l, n + 1, n), scaled per position, and the log of the scale factors.

    Position t is divided by exp(max emissions[t] + max transitions).  Return None if a score is
    infinite, or if the weights may exceed the range of float64.  The bounds are those of
    `ScoreTable`, with one more column of scores, because the largest transition is the same for all
    positions.
    """
    emissions, transitions = scores
    if not (np.isfinite(emissions).all() and np.isfinite(transitions).all()):
        return None
    largest, most = emissions.max(axis=1), float(transitions.max())
    prefix_swap_bound = total_range = np.inf  # only one of these bounds is needed
    if is_complete:
        prefix_swap_bound = 3.0 * float(np.ptp(transitions, axis=0).max())
    else:
        total_range = float(np.ptp(emissions, axis=1).sum() + len(emissions) * np.ptp(transitions))
    if not within_range(prefix_swap_bound, total_range, spread, is_complete):
        return None
    length, n = emissions.shape
    table = empty((length, n + 1, n))
    single = np.exp(emissions - largest[:, None])
    kernels.linear_chain.spread(single, np.exp(transitions - most), table)
    return table, float(largest.sum()) + length * most


def _folded(table: FloatArray) -> Bigrams:
    length, contexts, n = table.shape
    sums = Bigrams(empty((length, n)), np.zeros((contexts, n)))
    kernels.linear_chain.fold(table, *sums)
    return sums
