"""log Z and Q by the compiled passes: the work of a gradient step."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import BoolArray, FloatArray
from fstgrad.core.distribution import may_have_offsets, offsets
from fstgrad.core.errors import InfeasibleError
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.strings import kernels
from fstgrad.strings.kernels.arguments import RECENT_RANGES

SAFE_RANGE = 600.0  # nats: exp(-708) is the smallest normal float64


class ScoreTable(NamedTuple):
    """Scores as the passes read them, and bounds on the range of their weights.

    Attributes
    ----------
    table : (l, K, n) float64, nats
        The scores minus the largest of their position; 0 in contexts that cannot occur.  K is the
        number of contexts, (n + 1)^(q - 1).
    highest : (l,) float64, nats
        The largest score of each position.
    shift : float, nats
        The sum of `highest`.
    prefix_swap_bound : float, nats
        A bound on the change of the score if one prefix replaces another: the sum of the ranges of
        q columns of scores.  +inf if some symbol cannot follow some context.
    total_range : float, nats
        The sum over positions of the range of their finite scores.
    largest_offset : float, nats
        The largest absolute value in `highest`.
    """

    table: FloatArray
    highest: FloatArray
    shift: float
    prefix_swap_bound: float
    total_range: float
    largest_offset: float

    def is_within_range(self, spread: float, *, is_complete: bool) -> bool:
        """Return what `within_range` returns for losses with this spread in nats."""
        fits: bool = within_range(self.prefix_swap_bound, self.total_range, spread, is_complete)
        return fits


def within_range(prefix_swap_bound: Any, total_range: Any, spread: Any, is_complete: Any) -> Any:
    """Return whether every weight that matters to 1e-16 stays in the range of float64.

    If every symbol may follow every context and B is complete, the best prefix of a level can
    replace any other prefix: the total then changes by at most `prefix_swap_bound` nats for the
    scores and `spread` nats for the losses to go.  It never changes by more than `total_range` plus
    `spread` nats.

    prefix_swap_bound, total_range, spread : numbers or float64 arrays of one shape, in nats
        The first two as in `ScoreTable`.
    is_complete : bool or an array of bool, whether B is complete.
    """
    after_swaps = is_complete & (prefix_swap_bound + spread <= SAFE_RANGE)
    return (total_range + spread <= SAFE_RANGE) | after_swaps


def solve(
    scores: FloatArray, b: LossAutomaton, weighed: ScoreTable | None = None
) -> tuple[float, FloatArray]:
    """Return log Z in nats and the marginals Q, a new float64 array like the scores.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, C-contiguous
        Log-weights in nats; -inf forbids.
    b : LossAutomaton of the same length and alphabet
        Its losses, in nats, are added to the scores of strings.
    weighed : ScoreTable, optional
        `score_table(scores)`, if the caller has it already; its table is overwritten.

    Raises
    ------
    InfeasibleError
        No string has a finite score and a finite loss.

    Notes
    -----
    Time O(sum_t S_t n^q) for S_t states of B in level t.  Memory: Q, and (n+1)^(q-1) numbers per
    state of B.
    """
    order, weighed = scores.ndim - 1, score_table(scores) if weighed is None else weighed
    table, shift = weighed.table, weighed.shift
    if weighed.is_within_range(b.spread, is_complete=b.is_complete):
        kernels.passes.exponentials(table.reshape(-1))
        layout = b.bigram_layout if order == 2 else b.plain_layout
        if order == 2 and len(layout.weight) == len(scores) and len(layout.final) == 1:
            total = kernels.one_state.one_state_pass(table, layout.class_of, layout.weight)
        else:
            walk, weight, final = layout.walk, layout.weight, layout.final
            if order == 1:
                total = kernels.order_one.forward_backward(table, walk, weight, final)
            else:
                total = kernels.passes.forward_backward(table, walk, weight, final, order)
        shift += layout.shift
    else:
        flat = b.flat
        total = kernels.log_passes.log_pass(
            table, flat.class_of, flat.offsets, flat.nextstate, flat.cost, flat.final, order
        )
    if total == -np.inf:
        raise InfeasibleError(no_string_message(b.is_complete))
    return total + shift + b.initial, table.reshape(scores.shape)


def recentered_scores(scores: FloatArray) -> FloatArray:
    """Return the scores minus a constant per position, if that saves digits; else unchanged.

    The distribution and all objectives stay the same.  If a large finite number masks a whole
    position (padding with finfo.min, for example), their values keep their precision.
    """
    if not may_have_offsets(scores):
        return scores
    try:
        offset = offsets(score_table(scores).highest)
    except InfeasibleError:  # raised when log Z is computed
        return scores
    if not offset.any():
        return scores
    return scores - offset.reshape(-1, *(1,) * (scores.ndim - 1))


def score_table(scores: FloatArray) -> ScoreTable:
    """Return the `ScoreTable` of scores (l, n), (l, n+1, n), ... float64, C-contiguous.

    Raises
    ------
    InfeasibleError
        A position allows no symbol.
    """
    length, n, order = len(scores), scores.shape[-1], scores.ndim - 1
    rows = scores.reshape(length, -1, n)
    rows.flags.writeable = False  # of the view only: every call has the same kernel signature
    table, highest, tally = empty(rows.shape), empty(length), np.zeros(RECENT_RANGES + order)
    used = used_contexts(order, n)
    position = kernels.passes.shift_scores(rows, used, table, highest, tally)
    if position >= 0:
        raise InfeasibleError(
            f"scores[{position}] forbids every symbol: no string is left (Z = 0); "
            "allow at least one symbol"
        )
    return ScoreTable(table, highest, *tally[:RECENT_RANGES].tolist())


def no_string_message(is_complete: bool) -> str:
    """Return the message for scores and losses that leave no string.

    is_complete : whether no loss is infinite.
    """
    if is_complete:
        return "no string has a finite score (Z = 0): allow more symbols in scores"
    return (
        "no string has a finite score and a finite loss (Z = 0): allow more symbols in scores, or "
        "use a loss that is finite for more strings"
    )


@lru_cache(maxsize=32)
def used_contexts(order: int, n: int) -> BoolArray:
    """Return (q, K) bool: which contexts occur at the positions 0 .. q - 2 and at all later ones.

    A context is a number in base n + 1, oldest digit first; digit n means "before the start".
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
