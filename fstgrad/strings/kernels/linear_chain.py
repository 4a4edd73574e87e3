"""Chains whose transitions are the same at every position and for every item of a batch.

Arrays are (T, B, n), positions first, so that one position of all items is one matrix.  `weights`
are exp(emission - largest of the position), `step` (n, n) is exp(transition - largest); both have
the largest value 1.  Items end at `lengths`; what lies beyond is 0.
"""

import math

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel, sum_kernel


@sum_kernel
def forward_backward(
    weights: FloatArray,
    step: FloatArray,
    lengths: IntArray,
    before: FloatArray,
    after: FloatArray,
    node: FloatArray,
    log_z: FloatArray,
    least: FloatArray,
) -> None:
    """Write the marginals and log Z of each item; O(T B n^2).

    before : (T, B, n), the weights of prefixes by their last symbol; sums to 1 at each position
    after : (T, B, n), position t >= 1: P(x at t-1, y at t) = before[t-1, x] step[x, y] after[t, y]
    node : (B, T, n), the marginals
    log_z : (B,), without what was taken out of the weights and of `step`
    least : (B,)
        The smallest of all factors that the passes divided by.  What fell below the range of floats
        is less than n^2 T 1e-308 / least of the whole.
    """
    length, items, n = weights.shape
    ahead, turned = np.ones((items, n)), step.T.copy()
    for t in range(length):
        if t == 0:
            before[0] = weights[0]
        else:
            np.dot(before[t - 1], step, before[t])
        for i in range(items):
            total = 0.0
            if t < lengths[i]:
                for y in range(n):
                    if t > 0:
                        before[t, i, y] *= weights[t, i, y]
                    total += before[t, i, y]
                least[i] = min(least[i], total)
                log_z[i] += math.log(total) if total > 0.0 else -np.inf
            share = 1.0 / total if total > 0.0 else 0.0
            for y in range(n):
                before[t, i, y] *= share
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
        np.dot(after[t], turned, ahead)
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


@kernel
def best_strings(
    emissions: FloatArray, transitions: FloatArray, lengths: IntArray, best: IntArray
) -> FloatArray:
    """Write the symbols of the best string of each item to `best` (B, T); return its score (B,).

    emissions : (B, T, n).  Only the largest weights are kept; the way back finds again where each
    came from, at n comparisons for a position.  Ties go to the smaller symbol.  O(B T n^2).
    """
    items, length, n = emissions.shape
    value, scores, turned = np.empty((length, n)), np.empty(items), transitions.T.copy()
    for i in range(items):
        value[0] = emissions[i, 0]
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

    The scores of places that no string fills are -inf.  O(T n^2 k).
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


@kernel
def _insert(values: FloatArray, sources: IntArray, value: float, source: int) -> None:
    """Put a value behind all that are not smaller; the last one falls out."""
    place = len(values) - 1
    while place > 0 and values[place - 1] < value:
        values[place], sources[place] = values[place - 1], sources[place - 1]
        place -= 1
    values[place], sources[place] = value, source
