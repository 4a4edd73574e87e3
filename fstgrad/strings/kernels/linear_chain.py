"""The same equations as `one_state`, for a batch whose items share one table of transitions.

The table of l n^2 weights is never made, and a position of the batch is one matrix product.

Arrays are (T, B, n), positions first, so that each position of all items is one matrix.  `weights`
are exp(emission - largest of the position), `step` (n, n) is exp(transition - largest of all), so
the largest value of both is 1.  Weights beyond `lengths` are 0.

`spread` and `fold` are for such a chain with a loss: the table of weights that the passes over
A o B read, and the sums of Q over what emissions and transitions share.
"""

import math
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import fused_kernel, kernel, part_kernel, sum_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import copy_to


class Factors(NamedTuple):
    """The factors (T, B, n) of `forward_backward`, and the lengths (B,)."""

    before: FloatArray
    after: FloatArray
    lengths: IntArray


class StepCosts(NamedTuple):
    """`step` (n, n), and `step` times the costs of steps, each also transposed."""

    step: FloatArray
    turned: FloatArray
    weighted: FloatArray
    weighted_turned: FloatArray


@fused_kernel
def add_product(left: FloatArray, right: FloatArray, out: FloatArray) -> None:
    """Add left (M, K) times right (K, N) to `out` (M, N); each entry is summed in the order of K.

    The loop handles four rows and four columns of `left` at a time.  These matrices are too small
    for a threaded BLAS: its threads cost more than they save and could change the last bits.
    """
    rows, inner = left.shape
    for i in range(0, rows - 3, 4):
        out0, out1, out2, out3 = out[i], out[i + 1], out[i + 2], out[i + 3]
        for k in range(0, inner - 3, 4):
            a, b, c, d = left[i, k], left[i, k + 1], left[i, k + 2], left[i, k + 3]
            e, f, g, h = left[i + 1, k], left[i + 1, k + 1], left[i + 1, k + 2], left[i + 1, k + 3]
            o, p, q, r = left[i + 2, k], left[i + 2, k + 1], left[i + 2, k + 2], left[i + 2, k + 3]
            s, t, u, v = left[i + 3, k], left[i + 3, k + 1], left[i + 3, k + 2], left[i + 3, k + 3]
            row0, row1, row2, row3 = right[k], right[k + 1], right[k + 2], right[k + 3]
            for j in range(right.shape[1]):
                w, x, y, z = row0[j], row1[j], row2[j], row3[j]
                out0[j] = out0[j] + a * w + b * x + c * y + d * z
                out1[j] = out1[j] + e * w + f * x + g * y + h * z
                out2[j] = out2[j] + o * w + p * x + q * y + r * z
                out3[j] = out3[j] + s * w + t * x + u * y + v * z
        for k in range(inner - inner % 4, inner):
            row = right[k]
            for m in range(i, i + 4):
                factor, own = left[m, k], out[m]
                for j in range(right.shape[1]):
                    own[j] += factor * row[j]
    for m in range(rows - rows % 4, rows):
        own = out[m]
        for k in range(inner):
            factor, row = left[m, k], right[k]
            for j in range(right.shape[1]):
                own[j] += factor * row[j]


@sum_kernel
def forward_backward(
    weights: FloatArray,
    step: FloatArray,
    turned: FloatArray,
    lengths: IntArray,
    before: FloatArray,
    node: FloatArray,
    log_z: FloatArray,
    least: FloatArray,
) -> None:
    """Write the marginals and log Z of each item, and turn `weights` into `after`; O(T B n^2).

    Up to the factors that normalise each position,

        before[t, y] = weights[t, y] sum_x before[t-1, x] step[x, y],
        after[t, y] = weights[t, y] ahead[t, y],
        ahead[t-1, x] = sum_y step[x, y] after[t, y],
        node[t, y] = before[t, y] ahead[t, y].

    weights : (T, B, n), overwritten by `after`
        P(x at t-1, y at t) = before[t-1, x] step[x, y] after[t, y] for t >= 1.
    turned : (n, n), the transposed `step`
    before : (T, B, n), zeros at first
        Weights of prefixes by their last symbol; they sum to 1 at each position.
    node : (B, T, n), zeros at first
        The marginals.
    log_z : (B,), zeros at first
        log Z of the scaled weights: the subtracted maxima are not included.
    least : (B,), ones at first
        The smallest factor that the passes divided by.  Underflow loses less than the share
        n^2 T 1e-308 / least of Z.
    """
    length, items, n = weights.shape
    ahead = np.ones((items, n))
    for t in range(length):
        if t == 0:
            copy_to(before[0].reshape(-1), weights[0].reshape(-1))
        else:
            add_product(before[t - 1], step, before[t])
        for i in range(items):
            total = 0.0
            if t < lengths[i]:
                if t > 0:
                    for y in range(n):
                        before[t, i, y] *= weights[t, i, y]
                for y in range(n):
                    total += before[t, i, y]
                least[i] = min(least[i], total)
                log_z[i] += math.log(total) if total > 0.0 else -np.inf
            share = 1.0 / total if total > 0.0 else 0.0
            for y in range(n):
                before[t, i, y] *= share
    after = weights
    for t in range(length - 1, -1, -1):
        for i in range(items):
            if t >= lengths[i]:
                continue
            most = 0.0
            for y in range(n):
                node[i, t, y] = before[t, i, y] * ahead[i, y]
                after[t, i, y] = weights[t, i, y] * ahead[i, y]
                most = max(most, after[t, i, y])
            least[i] = min(least[i], most)
            for y in range(n):
                after[t, i, y] *= 1.0 / most if most > 0.0 else 0.0
        if t == 0:
            return
        ahead[:] = 0.0
        add_product(after[t], turned, ahead)
        for i in range(items):
            total = 0.0
            for x in range(n):
                total += before[t - 1, i, x] * ahead[i, x]
            if t < lengths[i]:
                least[i] = min(least[i], total)
            share = 1.0 / total if total > 0.0 else 0.0
            for x in range(n):
                after[t, i, x] *= share
                ahead[i, x] = ahead[i, x] * share if t < lengths[i] else 1.0


@sum_kernel
def conditional_costs(
    factors: Factors, steps: StepCosts, costs: FloatArray, prefix: FloatArray, suffix: FloatArray
) -> None:
    """Write the expected costs up to each position, and beyond it, given its symbol; O(T B n^2).

        prefix[t, y] = costs[t, y] + sum_x P(x at t-1 | y at t) (prefix[t-1, x] + g[x, y]),
        suffix[t-1, x] = sum_y P(y at t | x at t-1) (g[x, y] + costs[t, y] + suffix[t, y]),

    where g are the costs of steps, P(x | y) is before[t-1, x] step[x, y] / sum_x (the same), and
    P(y | x) is step[x, y] after[t, y] / sum_y (the same), as in `forward_backward`.

    costs : (B, T, n)
    prefix, suffix : (T, B, n), zeros at first; 0 beyond the lengths
    """
    before, after, lengths = factors
    step, turned, weighted, weighted_turned = steps
    length, items, n = before.shape
    mass, total, moved = empty((items, n)), empty((items, n)), empty((items, n))
    for t in range(length):
        mass[:] = 0.0
        total[:] = 0.0
        if t > 0:
            for i in range(items):
                for x in range(n):
                    moved[i, x] = before[t - 1, i, x] * prefix[t - 1, i, x]
            add_product(before[t - 1], step, mass)
            add_product(moved, step, total)
            add_product(before[t - 1], weighted, total)
        for i in range(items):
            if t < lengths[i]:
                for y in range(n):
                    mean = total[i, y] / mass[i, y] if mass[i, y] > 0.0 else 0.0
                    prefix[t, i, y] = costs[i, t, y] + mean
    for t in range(length - 1, 0, -1):
        mass[:] = 0.0
        total[:] = 0.0
        for i in range(items):
            for y in range(n):
                moved[i, y] = after[t, i, y] * (costs[i, t, y] + suffix[t, i, y])
        add_product(after[t], turned, mass)
        add_product(moved, turned, total)
        add_product(after[t], weighted_turned, total)
        for i in range(items):
            if t < lengths[i]:
                for x in range(n):
                    suffix[t - 1, i, x] = total[i, x] / mass[i, x] if mass[i, x] > 0.0 else 0.0


@kernel
def best_strings(
    emissions: FloatArray, transitions: FloatArray, lengths: IntArray, best: IntArray
) -> FloatArray:
    """Write the best string of each item to `best` (B, T); return the scores (B,).

    Viterbi, for emissions (B, T, n):

        value[t, y] = emissions[t, y] + max_x (value[t-1, x] + transitions[x, y]).

    No back pointers are stored: the backtrace recomputes each maximum with n comparisons.  Ties go
    to the smaller symbol.  Entries of `best` beyond the lengths stay as they are.  O(B T n^2).
    """
    items, length, n = emissions.shape
    value, scores, turned = empty((length, n)), empty(items), transitions.T.copy()
    for i in range(items):
        copy_to(value[0], emissions[i, 0])
        for t in range(1, lengths[i]):
            for y in range(n):
                value[t, y] = -np.inf
            for x in range(n):
                score = value[t - 1, x]
                for y in range(n):
                    value[t, y] = max(value[t, y], score + transitions[x, y])
            for y in range(n):
                value[t, y] += emissions[i, t, y]
        last = lengths[i] - 1
        symbol = int(np.argmax(value[last]))
        scores[i] = value[last, symbol]
        best[i, last] = symbol
        for t in range(last, 0, -1):
            row, found = value[t - 1], 0
            for x in range(1, n):
                if row[x] + turned[symbol, x] > row[found] + turned[symbol, found]:
                    found = x
            symbol = found
            best[i, t - 1] = symbol
    return scores


@kernel
def best_lists(
    emissions: FloatArray, transitions: FloatArray, length: int, k: int, best: IntArray
) -> FloatArray:
    """Write the k best strings of one item (T, n) to `best` (k, T); return their scores (k,).

    value[t, y] lists the k best prefixes that end in y.  If there are fewer than k strings, the
    remaining scores are -inf and their rows of `best` are arbitrary.  O(T n^2 k).
    """
    n = emissions.shape[1]
    value, source = np.full((length, n, k), -np.inf), np.zeros((length, n, k), dtype=np.int64)
    for y in range(n):
        value[0, y, 0] = emissions[0, y]
    for t in range(1, length):
        for y in range(n):
            for x in range(n):
                for j in range(k):
                    score = value[t - 1, x, j] + transitions[x, y] + emissions[t, y]
                    if not score > value[t, y, k - 1]:
                        break
                    _insert(value[t, y], source[t, y], score, x * k + j)
    scores, ends = np.full(k, -np.inf), np.zeros(k, dtype=np.int64)
    for y in range(n):
        for j in range(k):
            if value[length - 1, y, j] > scores[k - 1]:
                _insert(scores, ends, value[length - 1, y, j], y * k + j)
    for rank in range(k):
        place = ends[rank]
        for t in range(length - 1, -1, -1):
            best[rank, t] = place // k
            place = source[t, place // k, place % k]
    return scores


@part_kernel
def _insert(values: FloatArray, sources: IntArray, value: float, source: int) -> None:
    """Insert a value into a descending list, after equal values, and drop the last one."""
    place = len(values) - 1
    while place > 0 and values[place - 1] < value:
        values[place], sources[place] = values[place - 1], sources[place - 1]
        place -= 1
    values[place], sources[place] = value, source


@kernel
def spread(emissions: FloatArray, transitions: FloatArray, table: FloatArray) -> None:
    """Write table[t, k, b] = emissions[t, b] transitions[k, b]; 0 in contexts that cannot occur.

    emissions : (l, n), exp(emission)
    transitions : (n + 1, n), exp(transition); row n is the start
    table : (l, n + 1, n)
    """
    length, n = emissions.shape
    for t in range(length):
        for k in range(n + 1):
            occurs = (k == n) == (t == 0)
            for b in range(n):
                table[t, k, b] = emissions[t, b] * transitions[k, b] if occurs else 0.0


@sum_kernel
def fold(table: FloatArray, emissions: FloatArray, transitions: FloatArray) -> None:
    """Write the sums over contexts to `emissions`; add the sums over positions to `transitions`.

    table : (l, n + 1, n); emissions : (l, n); transitions : (n + 1, n), zeros at first
    """
    length, contexts, n = table.shape
    for t in range(length):
        for b in range(n):
            emissions[t, b] = 0.0
        lo, hi = (contexts - 1, contexts) if t == 0 else (0, contexts - 1)
        for k in range(lo, hi):
            for b in range(n):
                emissions[t, b] += table[t, k, b]
                transitions[k, b] += table[t, k, b]
