"""The same equations as `passes`, for bigrams and a B with one state per level: 3 times as fast.

Such are the loss 0 and the Hamming distance: a level needs no states and no scatter.  `draw`
samples by inversion.
"""

import math

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel, sum_kernel, sum_part_kernel
from fstgrad.core.uninitialized import empty


@kernel
def draw(cumulative: FloatArray, uniforms: FloatArray) -> IntArray:
    """Return the strings (k, l) at the quantiles `uniforms` (k, l) in [0, 1); O(k l n).

    Each symbol is the first b with cumulative[t, context, b] > uniform.

    cumulative : (l, K, n), cumulative conditional probabilities of the symbols in each context
        The last entry is 1.  Contexts are numbers in base n + 1, oldest symbol first; n is "before
        the start".
    """
    length, contexts, n = cumulative.shape
    strings = empty(uniforms.shape, dtype=np.int64)
    for i in range(len(uniforms)):
        context = contexts - 1
        for t in range(length):
            point = uniforms[i, t]
            symbol = 0
            while cumulative[t, context, symbol] <= point:
                symbol += 1
            strings[i, t] = symbol
            context = (context * (n + 1) + symbol) % contexts
    return strings


@sum_kernel
def one_state_pass(table: FloatArray, class_of: IntArray, weight: FloatArray) -> float:
    """Return the log of the sum over all paths, -inf if it is zero, and turn `table` into Q.

    The result is that of `passes.forward_backward` for bigram scores and a B with one state per
    level, such as the loss 0 or the Hamming distance.  O(l n^2).  With s_t[x, b] =
    exp(score_t[x, b]) and the weight w_t(b) of the class of b,

        alpha_{t+1}[b] = w_t(b) sum_x alpha_t[x] s_t[x, b],
        beta_t[x] = sum_b s_t[x, b] w_t(b) beta_{t+1}[b],
        Q_t[x, b] = alpha_t[x] s_t[x, b] w_t(b) beta_{t+1}[b] / Z.

    table : (l, n + 1, n), exp(score); row n is the context before the start
    class_of : (n,), the class of each symbol
    weight : (l, C), e^cost of each class at each position
    """
    length, contexts, n = table.shape
    alpha, sums = np.zeros((length + 1, contexts)), empty(length)
    alpha[0, n] = 1.0
    log_scale = 0.0
    for t in range(length):
        after = alpha[t + 1]
        _multiply(alpha[t], table[t], after)
        total = 0.0
        for b in range(n):
            after[b] *= weight[t, class_of[b]]
        for b in range(n):
            total += after[b]
        if not total > 0.0:
            return -np.inf
        sums[t] = total
        log_scale += math.log(total)
        total = 1.0 / total
        for b in range(n):
            after[b] *= total
    beta, ahead, total = np.ones(contexts), empty(n), 1.0
    for t in range(length - 1, -1, -1):
        factor, share = 1.0 / total, 1.0 / sums[t]
        for b in range(n):
            ahead[b] = beta[b] * (weight[t, class_of[b]] * factor)
        here, level, total = alpha[t], table[t], 0.0
        for k in range(contexts):
            own, sum_of_ways = here[k], 0.0
            for b in range(n):
                sum_of_ways += level[k, b] * ahead[b]
            for b in range(n):
                level[k, b] = own * (level[k, b] * ahead[b]) * share
            beta[k] = sum_of_ways
            total += own * sum_of_ways
    return log_scale


@sum_part_kernel
def _multiply(alpha: FloatArray, table: FloatArray, after: FloatArray) -> None:
    """Add alpha (n + 1,) times table (n + 1, n) to `after`, four contexts at a time."""
    contexts, n = table.shape
    for k in range(0, contexts - 3, 4):
        w, x, y, z = alpha[k], alpha[k + 1], alpha[k + 2], alpha[k + 3]
        for b in range(n):
            after[b] += (w * table[k, b] + x * table[k + 1, b]) + (
                y * table[k + 2, b] + z * table[k + 3, b]
            )
    for k in range(contexts - contexts % 4, contexts):
        w = alpha[k]
        for b in range(n):
            after[b] += w * table[k, b]
