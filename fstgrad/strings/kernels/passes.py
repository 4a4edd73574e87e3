"""Forward, backward and Q over A o B for one table of scores: one fused pass on floats.

A state of A o B is a state of B with a context of q - 1 symbols.  A context is a number k in base
n + 1, oldest digit first, so that reading b leads from k = x R + r to r (n + 1) + b, R being the
number of younger contexts r.  B is laid out as in `automata.layout.Layout`; `table` (l, K, n) holds
exp(score) for each context and symbol, and becomes Q in place.

A level with several states is one matrix product for the states that have an entry for each
context, and plain loops for those that have only one.  Dead arcs have weight 0 and point to
a scratch entry, which saves a branch per arc.  Indices are unsigned, which saves the test for
negative ones.

The twin in numpy is `fstgrad.strings.passes.Passes` with the algebra Real.
"""

import math

import numpy as np

from fstgrad.automata.layout import LevelWalk, Walk
from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.compiler import inner_kernel, kernel, part_kernel, sum_part_kernel
from fstgrad.strings.kernels.arrays import Work

unsigned = np.uintp


@kernel
def shift_scores(
    scores: FloatArray, used: BoolArray, table: FloatArray, highest: FloatArray, tally: FloatArray
) -> int:
    """Write scores minus the largest of each position into `table`.

    Parameters
    ----------
    scores, table : (l, K, n); entries of contexts that cannot occur become 0
    used : (q, K), which contexts occur at position min(t, q - 1)
    highest : (l,), what was subtracted
    tally : (3 + q,), zeros at first
        [0] the sum of `highest`; [1] the largest difference that exchanging a prefix for another
        makes, +inf once a symbol is forbidden; [2] the sum of the ranges of the positions; then the
        last q ranges of a symbol's scores over contexts.

    Returns
    -------
    -1, or a position where no symbol is allowed.
    """
    length, contexts, n = table.shape
    order = len(used)
    # t < l: what is written has a place for each position; `order` numbers of tally turn
    high, low = np.empty(n), np.empty(n)
    for t in range(length):
        row = min(t, order - 1)
        for b in range(n):
            high[b], low[b] = -np.inf, np.inf
        for k in range(contexts):
            if used[row, k]:
                for b in range(n):
                    high[b] = max(high[b], scores[t, k, b])
                    low[b] = min(low[b], scores[t, k, b])
        largest, least, apart = -np.inf, np.inf, 0.0
        for b in range(n):
            largest, least = max(largest, high[b]), min(least, low[b])
            apart = max(apart, high[b] - low[b])
        if largest == -np.inf:
            return t
        for k in range(contexts):
            if used[row, k]:
                for b in range(n):
                    table[t, k, b] = scores[t, k, b] - largest
            else:
                for b in range(n):
                    table[t, k, b] = 0.0
        if least == -np.inf:
            tally[1] = np.inf
            least = _least_finite(table[t]) + largest
        highest[t] = largest
        tally[0] += largest
        tally[2] += largest - least
        tally[3 + t % order] = apart
        window = 0.0
        for i in range(order):
            window += tally[3 + i]
        tally[1] = max(tally[1], window)
    return -1


@part_kernel
def _least_finite(values: FloatArray) -> float:
    least = 0.0
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            if -np.inf < values[i, j] < least:
                least = values[i, j]
    return least


@kernel
def real_pass(
    table: FloatArray, walk: Walk, weight: FloatArray, final: FloatArray, order: int
) -> float:
    """Return the log of the sum over all paths, -inf if it is zero, and turn `table` into Q.

    O(sum_t S_t n^q).  Every level is divided by its sum, so that alpha sums to one and beta, as it
    is read, averages to one under it: neither can leave the range of floats before the other.
    """
    length, contexts, n = table.shape
    offsets, places = walk.offsets, walk.places
    step = 1 if order == 2 else contexts
    # `contexts` scratch entries behind each level, for dead arcs.  A live arc from level t with the
    # symbol b leads below places[t + 2] * step; a dead one to 0 + b or r (n + 1) + b < contexts.
    # A row is a state below dense[t] <= largest(dense), its column r n + b < n contexts / (n + 1).
    alpha = np.empty(places[length + 1] * step + contexts)
    size = widest(places) * step + contexts
    beta, before = np.empty(size), np.empty(size)
    rows = np.empty((largest(walk.dense), n * max(1, contexts // (n + 1))))
    work, sums = Work(rows, np.empty((contexts, n)), np.empty(n)), np.empty(length)
    fill(alpha[:contexts], 0.0)
    alpha[contexts - 1] = 1.0
    log_scale = 0.0
    for t in range(length):
        lo, hi = offsets[t], offsets[t + 1]
        here, there, end = places[t] * step, places[t + 1] * step, places[t + 2] * step
        fill(alpha[there:end], 0.0)
        level = level_of(walk, t)
        _step(alpha[here:there], table[t], level, weight[lo:hi], alpha[there:], order, rows)
        sums[t] = total_of(alpha[there:end])
        if not sums[t] > 0.0:
            return -np.inf
        scale(alpha[there:end], 1.0 / sums[t])
        log_scale += math.log(sums[t])
    last, most = places[length] * step, int(walk.dense[length])
    whole = _ends(alpha[last:], most, final, contexts, beta)
    if not whole > 0.0:
        return -np.inf
    total = whole
    for t in range(length - 1, -1, -1):
        lo, hi = offsets[t], offsets[t + 1]
        here, there = places[t] * step, places[t + 1] * step
        level, shares = level_of(walk, t), 1.0 / sums[t]
        total = _back(alpha[here:there], table[t], level, weight[lo:hi], beta, before, order,
                      1.0 / total, shares, work)  # fmt: skip
        beta, before = before, beta
    return log_scale + math.log(whole)


@inner_kernel
def level_of(walk: Walk, t: int) -> LevelWalk:
    """Return what a pass walks along at position t."""
    lo, hi = walk.offsets[t], walk.offsets[t + 1]
    return LevelWalk(walk.class_of, walk.dense[t], walk.symbol[lo:hi], walk.next_entry[lo:hi])


@part_kernel
def largest(values: IntArray) -> int:
    """Return the largest of numbers that are not negative."""
    size = 0
    for value in values:
        size = max(size, int(value))
    return size


@part_kernel
def widest(places: IntArray) -> int:
    """Return the largest number of entries of a level."""
    size = 0
    for t in range(len(places) - 1):
        size = max(size, int(places[t + 1] - places[t]))
    return size


@part_kernel
def fill(values: FloatArray, value: float) -> None:
    """Set every number; an assignment to a slice would take seconds to compile."""
    for i in range(len(values)):
        values[i] = value


@part_kernel
def scale(values: FloatArray, factor: float) -> None:
    """Multiply every number by a factor."""
    for i in range(len(values)):
        values[i] *= factor


@sum_part_kernel
def total_of(values: FloatArray) -> float:
    """Return the sum."""
    total = 0.0
    for i in range(len(values)):
        total += values[i]
    return total


@sum_part_kernel
def _ends(
    alpha: FloatArray, dense: int, final: FloatArray, contexts: int, beta: FloatArray
) -> float:
    """Write the final weights as the last beta; return their sum under alpha."""
    # place < entries of the last level, which `widest` counts
    place, whole = 0, 0.0
    for s in range(len(final)):
        for _ in range(contexts if s < dense else 1):
            beta[place] = final[s]
            place += 1
    fill(beta[place : place + contexts], 0.0)
    for i in range(place):
        whole += alpha[i] * beta[i]
    return whole


@sum_part_kernel
def _step(
    alpha: FloatArray,
    table: FloatArray,
    level: LevelWalk,
    weight: FloatArray,
    after: FloatArray,
    order: int,
    rows: FloatArray,
) -> None:
    """Multiply a level by its scores and scatter it along the arcs of B."""
    class_of, dense, symbol, next_entry = level
    contexts, n = table.shape
    if order != 2 or len(next_entry) == 1:
        _plain_rows(alpha, table, rows[:dense])
    elif dense > 0:
        np.dot(alpha[: dense * contexts].reshape(dense, contexts), table, rows[:dense])
    step, turn = (1 if order == 2 else contexts), (1 if order > 1 else 0)
    for s in range(dense):
        for r in range(rows.shape[1] // n):
            for b in range(n):
                c = unsigned(class_of[b])
                place = unsigned(next_entry[s, c] * step + (r * (n + 1) + b) * turn)
                after[place] += rows[s, r * n + b] * weight[s, c]
    for s in range(dense, len(next_entry)):
        mass, x = alpha[dense * (contexts - 1) + s], unsigned(symbol[s])
        for b in range(n):
            c = unsigned(class_of[b])
            after[unsigned(next_entry[s, c]) + unsigned(b)] += mass * table[x, b] * weight[s, c]


@sum_part_kernel
def _plain_rows(alpha: FloatArray, table: FloatArray, rows: FloatArray) -> None:
    """Multiply states that have an entry for each context by scores of any order."""
    contexts, n = table.shape
    younger = rows.shape[1] // n
    for s in range(len(rows)):
        for r in range(younger):
            for b in range(n):
                rows[s, r * n + b] = 0.0
            for k in range(r, contexts, younger):
                mass = alpha[s * contexts + k]
                if mass != 0.0:
                    for b in range(n):
                        rows[s, r * n + b] += mass * table[k, b]


@sum_part_kernel
def _back(
    alpha: FloatArray,
    table: FloatArray,
    level: LevelWalk,
    weight: FloatArray,
    beta: FloatArray,
    before: FloatArray,
    order: int,
    factor: float,
    share: float,
    work: Work,
) -> float:
    """Write the beta of a level to `before`; turn the level's `table` into Q.

    The next beta is multiplied by `factor` as it is read, Q by `share`.  Returns the sum of the new
    beta under alpha.
    """
    class_of, dense, symbol, next_entry = level
    rows, mass, ways = work
    contexts, n = table.shape
    entries = len(alpha)
    fill(before[entries : entries + contexts], 0.0)
    step, turn = (1 if order == 2 else contexts), (1 if order > 1 else 0)
    for s in range(dense):
        for r in range(rows.shape[1] // n):
            for b in range(n):
                c = unsigned(class_of[b])
                way = beta[unsigned(next_entry[s, c] * step + (r * (n + 1) + b) * turn)]
                rows[s, r * n + b] = way * (weight[s, c] * factor)
    if order != 2 or len(next_entry) == 1:
        return _plain_masses(alpha, table, before, rows[:dense], mass, share)
    if dense > 0:
        entry = dense * contexts
        np.dot(rows[:dense], table.T, before[:entry].reshape(dense, contexts))
        np.dot(alpha[:entry].reshape(dense, contexts).T, rows[:dense], mass)
    else:
        fill(mass.reshape(-1), 0.0)
    for s in range(dense, len(next_entry)):
        entry, x = dense * (contexts - 1) + s, unsigned(symbol[s])
        own, total = alpha[entry], 0.0
        for b in range(n):
            c = unsigned(class_of[b])
            ways[b] = beta[unsigned(next_entry[s, c]) + unsigned(b)] * (weight[s, c] * factor)
        for b in range(n):
            total += table[x, b] * ways[b]
        for b in range(n):
            mass[x, b] += own * ways[b]
        before[entry] = total
    replace_by_shares(table, mass, share)
    whole = 0.0
    for i in range(entries):
        whole += alpha[i] * before[i]
    return whole


@sum_part_kernel
def _plain_masses(
    alpha: FloatArray,
    table: FloatArray,
    before: FloatArray,
    rows: FloatArray,
    mass: FloatArray,
    share: float,
) -> float:
    """Take the way back over states that have an entry for each context, for any order."""
    contexts, n = table.shape
    younger, states = rows.shape[1] // n, len(rows)
    whole = 0.0
    for k in range(contexts):
        r = (k % younger) * n
        for b in range(n):
            mass[0, b] = 0.0
        for s in range(states):
            own, total = alpha[s * contexts + k], 0.0
            if own != 0.0:
                for b in range(n):
                    total += table[k, b] * rows[s, r + b]
                for b in range(n):
                    mass[0, b] += own * rows[s, r + b]
            before[s * contexts + k] = total
            whole += own * total
        replace_by_shares(table[k : k + 1], mass, share)
    return whole


@inner_kernel
def replace_by_shares(table: FloatArray, mass: FloatArray, share: float) -> None:
    """Multiply `table` by `mass` and then by `share`; the other order could overflow."""
    for k in range(len(table)):
        for b in range(table.shape[1]):
            table[k, b] = table[k, b] * mass[k, b] * share
