"""log Z and Q by the compiled passes: what a gradient step costs."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from fstgrad.alphabet import Alphabet
from fstgrad.automaton import LossAutomaton
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
    from fstgrad.kernels import log_passes, passes

    length, n, order = len(scores), scores.shape[-1], scores.ndim - 1
    rows = scores.reshape(length, -1, n)
    table = np.empty(rows.shape)
    used = used_contexts(order, n)
    domain, position, shift = passes.shifted_scores(rows, used, b.signed_spread, SAFE_RANGE, table)
    if domain == passes.EMPTY:
        raise InfeasibleError(
            f"scores[{position}] forbids every symbol: no string is left (Z = 0); "
            "allow at least one symbol"
        )
    real_pass: Callable[..., float] = passes.real_pass
    log_pass: Callable[..., float] = log_passes.log_pass
    if domain == passes.REAL:
        np.exp(table, out=table)
        layout = b.bigram_layout if order == 2 else b.plain_layout
        work = np.empty(layout.work_size(order))
        total = real_pass(table, *layout.arrays, layout.weight, layout.final, order, work)
        shift += layout.shift
    else:
        flat = b.flat
        arrays = (flat.class_of, flat.offsets, flat.target)
        total = log_pass(table, *arrays, flat.cost, flat.final, order)
    if total == -np.inf:
        raise InfeasibleError(NO_STRING)
    return total + shift + b.initial, table.reshape(scores.shape)


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
