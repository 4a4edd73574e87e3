"""The same equations as `passes`, on logarithms, for weights beyond the range of float64.

It is slower by an exponential for each product, and right for any scores.

`table` (l, K, n) holds scores and `weight` losses, both in nats; -inf forbids.  The arrays of B are
those of `automata.automaton.FlatLevels`, and every state has an entry for each context.
"""

import math

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty


@kernel
def log_pass(
    table: FloatArray,
    class_of: IntArray,
    offsets: IntArray,
    nextstate: npt.NDArray[np.int32],
    weight: FloatArray,
    final: FloatArray,
    order: int,
) -> float:
    """Return log Z, -inf if there is no path, and turn `table` into Q; O(sum_t S_t n^q).

    table : (l, K, n), scores in nats
    class_of : (n,), the class of each symbol
    offsets : (l + 2,), level t holds the states offsets[t] .. offsets[t + 1] - 1
    nextstate : (N, C) int32, counted from the start of the next level; -1 where dead
    weight : (N, C), losses in nats
    final : (S_l,), nats
    order : q
    """
    length, contexts, _ = table.shape
    alpha = np.full((offsets[-1], contexts), -np.inf)
    alpha[0, contexts - 1] = 0.0
    for t in range(length):
        first, last, end = offsets[t], offsets[t + 1], offsets[t + 2]
        _step(alpha[first:last], table[t], class_of, nextstate[first:last], weight[first:last],
              alpha[last:end], order)  # fmt: skip
    last = offsets[length]
    log_z = -np.inf
    beta = empty((len(final), contexts))
    for s in range(len(final)):
        for k in range(contexts):
            beta[s, k] = final[s]
            log_z = _log_add(log_z, alpha[last + s, k] + final[s])
    if log_z == -np.inf:
        return log_z
    for t in range(length - 1, -1, -1):
        first, last = offsets[t], offsets[t + 1]
        beta = _back(alpha[first:last], table[t], class_of, nextstate[first:last],
                     weight[first:last], beta, order, log_z)  # fmt: skip
    return log_z


@part_kernel
def _log_add(x: float, y: float) -> float:
    """Return log(e^x + e^y); -inf if both are -inf."""
    largest = max(x, y)
    if largest == -np.inf:
        return largest
    return largest + math.log1p(math.exp(min(x, y) - largest))


@part_kernel
def _step(
    alpha: FloatArray,
    table: FloatArray,
    class_of: IntArray,
    nextstate: npt.NDArray[np.int32],
    weight: FloatArray,
    after: FloatArray,
    order: int,
) -> None:
    """Multiply alpha by the scores and add the result to the next alpha along the arcs of B.

    In logarithms: G[s, r, b] = log sum_x exp(alpha[s, x r] + score[x r, b]), and
    after[s', r b] = log sum exp(G[s, r, b] + loss) over the arcs s -> s' that read b.
    """
    states, contexts = alpha.shape
    n = table.shape[1]
    younger = contexts // (n + 1) if order > 1 else 1
    turn = 1 if order > 1 else 0
    for s in range(states):
        for r in range(younger):
            for b in range(n):
                to = nextstate[s, class_of[b]]
                if to < 0:
                    continue
                largest = -np.inf
                for k in range(r, contexts, younger):
                    largest = max(largest, alpha[s, k] + table[k, b])
                if largest == -np.inf:
                    continue
                total = 0.0
                for k in range(r, contexts, younger):
                    total += math.exp(alpha[s, k] + table[k, b] - largest)
                value = largest + math.log(total) + weight[s, class_of[b]]
                k = (r * (n + 1) + b) * turn
                after[to, k] = _log_add(after[to, k], value)


@part_kernel
def _back(
    alpha: FloatArray,
    table: FloatArray,
    class_of: IntArray,
    nextstate: npt.NDArray[np.int32],
    weight: FloatArray,
    beta: FloatArray,
    order: int,
    log_z: float,
) -> FloatArray:
    """Return the beta of a level, from the beta of the next, and turn the level's `table` into Q.

    before[s, k] = log sum_b exp(score[k, b] + loss + beta[s', k shifted by b]), and
    Q[k, b] = sum_s exp(alpha[s, k] + score[k, b] + loss + beta[s', k shifted by b] - log Z).
    """
    states, contexts = alpha.shape
    n = table.shape[1]
    younger = contexts // (n + 1) if order > 1 else 1
    turn = 1 if order > 1 else 0
    ahead = empty(n)
    before = np.full((states, contexts), -np.inf)
    shares = np.zeros((contexts, n))
    for s in range(states):
        for r in range(younger):
            for b in range(n):
                to = nextstate[s, class_of[b]]
                ahead[b] = -np.inf
                if to >= 0:
                    ahead[b] = beta[to, (r * (n + 1) + b) * turn] + weight[s, class_of[b]]
            for k in range(r, contexts, younger):
                if alpha[s, k] == -np.inf:
                    continue
                largest = -np.inf
                for b in range(n):
                    largest = max(largest, table[k, b] + ahead[b])
                if largest == -np.inf:
                    continue
                total = 0.0
                here = alpha[s, k] + largest - log_z
                for b in range(n):
                    share = math.exp(table[k, b] + ahead[b] - largest)
                    total += share
                    shares[k, b] += share * math.exp(here)
                before[s, k] = largest + math.log(total)
    _replace_by_shares(table, shares)
    return before


@part_kernel
def _replace_by_shares(table: FloatArray, shares: FloatArray) -> None:
    """Write the shares into `table`, normalised to the sum 1."""
    rows, columns = shares.shape
    total = 0.0
    for i in range(rows):
        for j in range(columns):
            total += shares[i, j]
    for i in range(rows):
        for j in range(columns):
            table[i, j] = shares[i, j] / total
