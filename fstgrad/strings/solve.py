"""log Z and Q by the compiled passes: what a gradient step costs."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from fstgrad.alphabet import Alphabet
from fstgrad.automata.automaton import LossAutomaton
from fstgrad.checks import BoolArray, FloatArray
from fstgrad.errors import InfeasibleError

SAFE_RANGE = 600.0  # nats: exp(-708) is the smallest normal float64


def solve(scores: FloatArray, b: LossAutomaton) -> tuple[float, FloatArray]:
    """Return log Z in nats and the marginals Q, a new array like the scores.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, C-contiguous
    b : LossAutomaton of the same length and alphabet

    Raises
    ------
    InfeasibleError
        No string has a finite score and a finite loss.

    Notes
    -----
    O(sum_t S_t n^q) time for S_t states of B in level t; memory Q and (n+1)^(q-1) numbers for each
    state of B.
    """
    from fstgrad.strings.kernels import log_passes, passes

    order, spread = scores.ndim - 1, b.signed_spread
    table, shift, needed = weighed(scores, complete=spread >= 0)
    if needed + abs(spread) <= SAFE_RANGE:
        layout = b.bigram_layout if order == 2 else b.plain_layout
        real_pass: Callable[..., float] = passes.real_pass
        total = real_pass(table, *layout.arrays, layout.weight, layout.final, order)
        shift += layout.shift
    else:
        flat = b.flat
        table, shift, _ = weighed(scores, complete=True, log=True)
        log_pass: Callable[..., float] = log_passes.log_pass
        arrays = (flat.class_of, flat.offsets, flat.nextstate)
        total = log_pass(table, *arrays, flat.cost, flat.final, order)
    if total == -np.inf:
        raise InfeasibleError(NO_STRING)
    return total + shift + b.initial, table.reshape(scores.shape)


def weighed(
    scores: FloatArray, *, complete: bool, log: bool = False
) -> tuple[FloatArray, float, float]:
    """Return exp of the scores (l, K, n), or the scores, less the largest of each position.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, C-contiguous
    complete : bool
        Whether every string has a finite loss.
    log : bool
        Leave out the exponential.

    Returns
    -------
    table : (l, K, n)
    shift : float, nats; the sum of what was subtracted
    needed : float, nats
        The range that weights must have so that no string that matters to 1e-16 is lost.  Where
        every symbol may follow every context and B is complete, a prefix can be exchanged for the
        best one of its level at the price of q columns of scores (and the losses still open).
        Otherwise all positions together bound what can be lost.
    """
    from fstgrad.strings.kernels import passes

    length, n, order = len(scores), scores.shape[-1], scores.ndim - 1
    rows = scores.reshape(length, -1, n)
    table, tally, used = np.empty(rows.shape), np.zeros(3 + order), used_contexts(order, n)
    position = passes.shifted_scores(rows, used, table, tally)
    if position >= 0:
        raise InfeasibleError(
            f"scores[{position}] forbids every symbol: no string is left (Z = 0); "
            "allow at least one symbol"
        )
    if not log:
        np.exp(table, out=table)
    shift, exchange, whole = tally[:3].tolist()
    return table, shift, exchange if complete and exchange < np.inf else whole


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
