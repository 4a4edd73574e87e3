"""Forward, backward and Q over A o B for one table of scores: one fused pass in each domain.

A state of A o B is a state of B with a context of q - 1 symbols.  A context is a number k in base
n + 1, oldest digit first, so that reading b leads from k = x R + r to r (n + 1) + b, R being the
number of younger contexts r.  All levels of B lie behind one another:

======== ============== =========================================================================
offsets  (l + 2,)       level t holds the states offsets[t] .. offsets[t + 1]
target   (N, C) int32   the state that an arc of a class leads to, -1 where dead
weight   (N, C)         e^cost, divided by the largest of its level; or the cost itself
table    (l, K, n)      exp(score) for each context and symbol, or the score; becomes Q in place
======== ============== =========================================================================

The twins in numpy are `fstgrad.strings.passes.Passes` with the algebras Real and Log.
"""

import math

import numpy as np
import numpy.typing as npt

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.kernels.compiler import kernel

REAL, LOG, EMPTY = 0, 1, 2
BLAS_STATES = 2


@kernel
def shifted_scores(
    scores: FloatArray, used: BoolArray, spread: float, safe: float, table: FloatArray
) -> tuple[int, int, float]:
    """Write scores minus the largest of each position into `table`, -inf where a context is unused.

    Parameters
    ----------
    scores, table : (l, K, n)
    used : (q, K), which contexts occur at position min(t, q - 1)
    spread : range of the losses in nats; inf where some string has no path
    safe : range of weights in nats that floats can hold

    Returns
    -------
    (domain, position, shift): REAL or LOG and the sum of what was subtracted, or EMPTY and a
    position where no symbol is allowed.
    """
    length, contexts, n = scores.shape
    order = len(used)
    high, low = np.empty(n), np.empty(n)
    windows = np.zeros(order)
    shift, widest, total, masked = 0.0, 0.0, 0.0, False
    for t in range(length):
        for b in range(n):
            high[b], low[b] = -np.inf, np.inf
        for k in range(contexts):
            if used[min(t, order - 1), k]:
                for b in range(n):
                    high[b] = max(high[b], scores[t, k, b])
                    low[b] = min(low[b], scores[t, k, b])
        largest, least, apart = -np.inf, np.inf, 0.0
        for b in range(n):
            largest, least = max(largest, high[b]), min(least, low[b])
            apart = max(apart, high[b] - low[b])
        if largest == -np.inf:
            return EMPTY, t, 0.0
        for k in range(contexts):
            if used[min(t, order - 1), k]:
                for b in range(n):
                    table[t, k, b] = scores[t, k, b] - largest
            else:
                for b in range(n):
                    table[t, k, b] = -np.inf
        shift += largest
        if least == -np.inf:
            masked = True
            least = _least_finite(table[t]) + largest
        total += largest - least
        if not masked:
            windows[t % order] = apart
            window = 0.0
            for i in range(order):
                window += windows[i]
            widest = max(widest, window)
    # Where every symbol may follow every context and B is complete, a prefix can be exchanged for
    # the best one of its level at the price of q columns of scores and the losses still open.
    # Otherwise all positions together bound what can be lost.
    needed = total if masked or spread < 0 else widest
    return (REAL if needed + abs(spread) <= safe else LOG), 0, shift


@kernel
def _least_finite(values: FloatArray) -> float:
    least = 0.0
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            if -np.inf < values[i, j] < least:
                least = values[i, j]
    return least


@kernel
def real_pass(
    table: FloatArray,
    class_of: IntArray,
    offsets: IntArray,
    target: npt.NDArray[np.int32],
    weight: FloatArray,
    final: FloatArray,
    order: int,
) -> float:
    """Return the log of the sum over all paths, -inf if it is zero, and turn `table` into Q.

    O(sum_t S_t n^q).  Every level is divided by its sum as it is read, so that alpha sums to one
    and beta averages to one under it.
    """
    length, contexts, _ = table.shape
    alpha = np.zeros((offsets[-1], contexts))
    alpha[0, contexts - 1] = 1.0
    total, log_scale = 1.0, 0.0
    for t in range(length):
        first, last, end = offsets[t], offsets[t + 1], offsets[t + 2]
        total = _step(alpha[first:last], table[t], class_of, target[first:last],
                      weight[first:last], alpha[last:end], order, 1.0 / total)  # fmt: skip
        if not total > 0.0:
            return -np.inf
        log_scale += math.log(total)
    last, whole = offsets[length], 0.0
    for s in range(len(final)):
        for k in range(contexts):
            whole += alpha[last + s, k] * final[s]
    if not whole > 0.0:
        return -np.inf
    log_z = log_scale + math.log(whole / total)
    total = 1.0
    beta = np.empty((len(final), contexts))
    for s in range(len(final)):
        for k in range(contexts):
            beta[s, k] = final[s]
    for t in range(length - 1, -1, -1):
        first, last = offsets[t], offsets[t + 1]
        beta, total = _back(alpha[first:last], table[t], class_of, target[first:last],
                            weight[first:last], beta, order, 1.0 / total)  # fmt: skip
    return log_z


@kernel
def _step(
    alpha: FloatArray,
    table: FloatArray,
    class_of: IntArray,
    target: npt.NDArray[np.int32],
    weight: FloatArray,
    after: FloatArray,
    order: int,
    factor: float,
) -> float:
    """Multiply a level by its scores and scatter it along the arcs of B; return the sum."""
    total = 0.0
    states, contexts = alpha.shape
    n = table.shape[1]
    younger = contexts // (n + 1) if order > 1 else 1
    turn = 1 if order > 1 else 0
    if order == 2 and states >= BLAS_STATES:
        arrived = np.dot(alpha, table)
        for s in range(states):
            for b in range(n):
                to = target[s, class_of[b]]
                if to >= 0:
                    mass = arrived[s, b] * weight[s, class_of[b]] * factor
                    after[to, b] += mass
                    total += mass
        return total
    row = np.empty(n)
    for s in range(states):
        for r in range(younger):
            for b in range(n):
                row[b] = 0.0
            for k in range(r, contexts, younger):
                mass = alpha[s, k]
                if mass != 0.0:
                    for b in range(n):
                        row[b] += mass * table[k, b]
            for b in range(n):
                to = target[s, class_of[b]]
                if to >= 0:
                    mass = row[b] * weight[s, class_of[b]] * factor
                    after[to, (r * (n + 1) + b) * turn] += mass
                    total += mass
    return total


@kernel
def _back(
    alpha: FloatArray,
    table: FloatArray,
    class_of: IntArray,
    target: npt.NDArray[np.int32],
    weight: FloatArray,
    beta: FloatArray,
    order: int,
    factor: float,
) -> tuple[FloatArray, float]:
    """Return the beta of a level and the sum under alpha; turn the level's `table` into Q."""
    states, contexts = alpha.shape
    n = table.shape[1]
    younger = contexts // (n + 1) if order > 1 else 1
    turn = 1 if order > 1 else 0
    ahead = np.empty((states, younger * n))
    for s in range(states):
        for r in range(younger):
            for b in range(n):
                to = target[s, class_of[b]]
                if to >= 0:
                    way = beta[to, (r * (n + 1) + b) * turn] * weight[s, class_of[b]]
                    ahead[s, r * n + b] = way * factor
                else:
                    ahead[s, r * n + b] = 0.0
    if order == 2 and states >= BLAS_STATES:
        before = np.dot(ahead, table.T)
        mass = np.dot(alpha.T, ahead)
        for k in range(contexts):
            for b in range(n):
                table[k, b] *= mass[k, b]
    else:
        before = np.zeros((states, contexts))
        _expand(alpha, table, ahead, before, younger)
    total = 0.0
    for k in range(contexts):
        for b in range(n):
            total += table[k, b]
    for k in range(contexts):
        for b in range(n):
            table[k, b] *= 1.0 / total
    return before, total


@kernel
def _expand(
    alpha: FloatArray, table: FloatArray, ahead: FloatArray, before: FloatArray, younger: int
) -> None:
    """Fill `before` with the ways on from a context; multiply `table` by the mass of both."""
    states, contexts = alpha.shape
    n = table.shape[1]
    mass = np.empty(n)
    for k in range(contexts):
        r = (k % younger) * n
        for b in range(n):
            mass[b] = 0.0
        for s in range(states):
            if alpha[s, k] != 0.0:
                total = 0.0
                for b in range(n):
                    total += table[k, b] * ahead[s, r + b]
                    mass[b] += alpha[s, k] * ahead[s, r + b]
                before[s, k] = total
        for b in range(n):
            table[k, b] *= mass[b]
