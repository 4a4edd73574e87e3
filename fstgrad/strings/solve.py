"""log Z and Q by the compiled passes: what a gradient step costs."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fstgrad.alphabet import Alphabet
from fstgrad.automata.automaton import LossAutomaton
from fstgrad.automata.few import few
from fstgrad.checks import BoolArray, FloatArray
from fstgrad.distribution import is_far, offsets
from fstgrad.errors import InfeasibleError
from fstgrad.strings import kernels

SAFE_RANGE = 600.0  # nats: exp(-708) is the smallest normal float64


class ScoreTable(NamedTuple):
    """Scores as the passes read them, and the range that their weights need.

    Attributes
    ----------
    table : (l, K, n) float64, nats
        The scores less the largest of their position; 0 in contexts that cannot occur.
    highest : (l,) float64, nats
        What was subtracted.
    shift : float, nats
        The sum of these.
    exchange : float, nats
        What it may cost to exchange a prefix for another: q columns of scores.  +inf where some
        symbol may not follow some context.
    whole : float, nats
        The ranges of the finite scores of all positions, added up.
    """

    table: FloatArray
    highest: FloatArray
    shift: float
    exchange: float
    whole: float

    def is_within_range(self, spread: float, *, is_complete: bool) -> bool:
        """Whether no weight that matters to 1e-16 can fall below the range of floats.

        Where every symbol may follow every context and B is complete, a prefix can be exchanged for
        the best one of its level at the price of q columns of scores and the losses still open,
        which differ by up to `spread`.  Otherwise all positions together bound what can be lost.
        """
        exchangeable = is_complete and self.exchange < np.inf
        return (self.exchange if exchangeable else self.whole) + spread <= SAFE_RANGE


def solve(
    scores: FloatArray, b: LossAutomaton, weighed: ScoreTable | None = None
) -> tuple[float, FloatArray]:
    """Return log Z in nats and the marginals Q, a new array like the scores.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, C-contiguous
    b : LossAutomaton of the same length and alphabet
    weighed : ScoreTable, optional
        Their table where the caller has it; it is overwritten.

    Raises
    ------
    InfeasibleError
        No string has a finite score and a finite loss.

    Notes
    -----
    O(sum_t S_t n^q) time for S_t states of B in level t; memory Q and (n+1)^(q-1) numbers for each
    state of B.
    """
    order, weighed = scores.ndim - 1, score_table(scores) if weighed is None else weighed
    table, shift = weighed.table, weighed.shift
    if weighed.is_within_range(b.spread, is_complete=b.is_complete):
        np.exp(table, out=table)
        layout = b.bigram_layout if order == 2 else b.plain_layout
        if order == 2 and len(layout.weight) == len(scores) and len(layout.final) == 1:
            total = kernels.chain.chain_pass(table, layout.class_of, layout.weight)
        else:
            walk, weight, final = layout.walk, layout.weight, layout.final
            total = kernels.passes.real_pass(table, walk, weight, final, order)
        shift += layout.shift
    else:
        flat = b.flat
        total = kernels.log_passes.log_pass(
            table, flat.class_of, flat.offsets, flat.nextstate, flat.cost, flat.final, order
        )
    if total == -np.inf:
        raise InfeasibleError(NO_STRING)
    return total + shift + b.initial, table.reshape(scores.shape)


def near(scores: FloatArray) -> FloatArray:
    """Return scores without the offsets of positions; unchanged if no offset costs digits.

    The distribution is the same, and so are all objectives, but where a whole position is masked by
    a large finite number, as padding is by finfo.min, their values keep their digits.
    """
    if not is_far(scores):
        return scores
    try:
        offset = offsets(score_table(scores).highest)
    except InfeasibleError:  # raised when log Z is computed
        return scores
    if not offset.any():
        return scores
    return scores - offset.reshape(-1, *(1,) * (scores.ndim - 1))


def score_table(scores: FloatArray) -> ScoreTable:
    """Return the table of scores (l, n), (l, n+1, n), ... float64, C-contiguous.

    Raises
    ------
    InfeasibleError
        A position allows no symbol.
    """
    length, n, order = len(scores), scores.shape[-1], scores.ndim - 1
    rows = scores.reshape(length, -1, n)
    rows.flags.writeable = False  # a separate view: all scores share one kernel signature
    table, highest, tally = np.empty(rows.shape), np.empty(length), np.zeros(3 + order)
    used = used_contexts(order, n)
    shift = few(kernels.passes.shift_scores, 2 * rows.size)
    position = shift(rows, used, table, highest, tally)
    if position >= 0:
        raise InfeasibleError(
            f"scores[{position}] forbids every symbol: no string is left (Z = 0); "
            "allow at least one symbol"
        )
    return ScoreTable(table, highest, *tally[:3].tolist())


NO_STRING = (
    "no string has a finite score and a finite loss (Z = 0): allow more symbols in scores, or use "
    "a loss with smoothing > 0"
)


@lru_cache(maxsize=32)
def used_contexts(order: int, n: int) -> BoolArray:
    """Return which contexts occur at the positions 0 .. q - 2 and at all later ones, (q, K).

    A context is a number in base n + 1, oldest digit first; digit n is "before the start".
    """
    size = (n + 1) ** (order - 1)
    digits = np.indices((n + 1,) * (order - 1)).reshape(order - 1, size)
    age = np.arange(order - 1, 0, -1)[:, None]
    rows = [((digits == n) == (age > t)).all(axis=0) for t in range(order)]
    return np.array(rows)


@lru_cache(maxsize=32)
def no_loss(n: int, length: int) -> LossAutomaton:
    """Return the automaton of the loss 0 over the symbols "0" .. "n - 1"."""
    return LossAutomaton.trivial(Alphabet(str(i) for i in range(n)), length)
