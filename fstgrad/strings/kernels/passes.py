"""Forward, backward and Q over A o B for one table of scores: one fused pass on float64 weights.

A state of A o B is a state s of B with a context of q - 1 symbols.  A context is a number k in base
n + 1, oldest digit first: k = x R + r for the oldest symbol x and one of the R younger contexts r.
Reading b leads from k to the context r (n + 1) + b.  With s_t[k, b] = exp(score_t[k, b]) and the
weight w = e^cost of the arc s -> s' that reads b,

    G_t[s, r, b] = sum_x alpha_t[s, x R + r] s_t[x R + r, b],
    alpha_{t+1}[s', r (n + 1) + b] = sum over arcs s -> s' of w G_t[s, r, b],
    beta_t[s, k] = sum_b s_t[k, b] w beta_{t+1}[s', r (n + 1) + b],
    Q_t[k, b] = s_t[k, b] sum_s alpha_t[s, k] w beta_{t+1}[s', r (n + 1) + b] / Z.

B is laid out as in `automata.layout.Layout`; `table` (l, K, n) holds s and becomes Q in place.

At a level with several states, one matrix product handles the states with an entry per context, and
plain loops handle the states with a single entry.  Dead arcs have weight 0 and point to a scratch
entry, so the loops need no branch per arc.  Indices are unsigned, so the compiled code does not
test for negative ones.

Scores with q = 1 are left to `classes`.  The numpy version is `fstgrad.strings.passes.Passes` with
the algebra Real.
"""

import math

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel, part_kernel, sum_part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import exponentiate
from fstgrad.losses.automata.layout import LevelWalk, Walk
from fstgrad.strings.kernels.arguments import (
    LARGEST_OFFSET,
    PREFIX_SWAP,
    RECENT_RANGES,
    SHIFT,
    TOTAL_RANGE,
    Work,
    unsigned,
)
from fstgrad.strings.kernels.classes import class_pass

CHUNK = 2048  # numbers of which both the values and the scratch memory fit into a cache


@kernel
def shift_scores(
    scores: FloatArray, used: BoolArray, table: FloatArray, highest: FloatArray, tally: FloatArray
) -> int:
    """Write scores minus the largest of each position into `table`.

    Parameters
    ----------
    scores, table : (l, K, n), nats
        Entries of `table` in contexts that cannot occur become 0.
    used : (q, K)
        Row min(t, q - 1) says which contexts occur at position t.
    highest : (l,)
        Receives the largest score of each position.
    tally : (RECENT_RANGES + q,), zeros at first
        [SHIFT] is the sum of `highest`, [LARGEST_OFFSET] the largest of their absolute values.
        [PREFIX_SWAP] is the largest change of the score if another prefix replaces a prefix: q
        columns of ranges; +inf if any symbol is forbidden.  [TOTAL_RANGE] is the sum over positions
        of the range of their finite scores.  [RECENT_RANGES] and the q - 1 entries behind it are,
        for the last q positions, the largest range of a symbol's scores over contexts.

    Returns
    -------
    -1, or the first position where no symbol is allowed.
    """
    length, contexts, n = table.shape
    order = len(used)
    # t < l, the length of `table` and `highest`; tally[RECENT_RANGES:] is a ring of `order` entries
    high, low = empty(n), empty(n)
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
            tally[PREFIX_SWAP] = np.inf
            least = _least_finite(table[t]) + largest
        highest[t] = largest
        tally[SHIFT] += largest
        tally[TOTAL_RANGE] += largest - least
        tally[LARGEST_OFFSET] = max(tally[LARGEST_OFFSET], abs(largest))
        tally[RECENT_RANGES + t % order] = apart
        window = 0.0
        for i in range(order):
            window += tally[RECENT_RANGES + i]
        tally[PREFIX_SWAP] = max(tally[PREFIX_SWAP], window)
    return -1


@kernel
def exponentials(values: FloatArray) -> None:
    """Replace numbers <= 0 by their exponentials, in place; 0 below -708, where range checks fail.

    values : (N,) float64, at any place in memory with the same results
    """
    work = empty(min(len(values), CHUNK))
    for start in range(0, len(values), CHUNK):
        exponentiate(values[start : start + CHUNK], work)


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

    O(sum_t S_t n^q); for q = 1, O(l n + sum_t S_t C) with the C classes of symbols.  Each alpha is
    divided by its sum, and each beta is scaled so that sum alpha beta = 1.  So neither leaves the
    range of float64 before the other.

    table : (l, K, n), exp(score)
    walk, weight, final : B, as in `automata.layout.Layout`
    """
    if order == 1:
        return class_pass(table, walk, weight, final)
    length, contexts, n = table.shape
    offsets, first = walk.offsets, walk.first_entry
    step = 1 if order == 2 else contexts
    # `contexts` scratch entries behind each level are for dead arcs.  A live arc from level t that
    # reads b leads below first[t + 2] * step; a dead one to r (n + 1) + b < contexts.
    # Rows are states below dense[t] <= largest(dense), columns are r n + b < n contexts / (n + 1).
    alpha = empty(first[length + 1] * step + contexts)
    size = widest(first) * step + contexts
    beta, before = empty(size), empty(size)
    rows = empty((largest(walk.dense), n * (contexts // (n + 1))))
    work, sums = Work(rows, empty((contexts, n))), empty(length)
    fill(alpha[:contexts], 0.0)
    alpha[contexts - 1] = 1.0
    log_scale = 0.0
    for t in range(length):
        lo, hi = offsets[t], offsets[t + 1]
        here, there, end = first[t] * step, first[t + 1] * step, first[t + 2] * step
        fill(alpha[there:end], 0.0)
        level = level_of(walk, t)
        _step(alpha[here:there], table[t], level, weight[lo:hi], alpha[there:], order, rows)
        sums[t] = total_of(alpha[there:end])
        if not sums[t] > 0.0:
            return -np.inf
        scale(alpha[there:end], 1.0 / sums[t])
        log_scale += math.log(sums[t])
    last, most = first[length] * step, int(walk.dense[length])
    whole = _ends(alpha[last:], most, final, contexts, beta)
    if not whole > 0.0:
        return -np.inf
    total = whole
    for t in range(length - 1, -1, -1):
        lo, hi = offsets[t], offsets[t + 1]
        here, there = first[t] * step, first[t + 1] * step
        level, shares = level_of(walk, t), 1.0 / sums[t]
        total = _back(alpha[here:there], table[t], level, weight[lo:hi], beta, before, order,
                      1.0 / total, shares, work)  # fmt: skip
        beta, before = before, beta
    return log_scale + math.log(whole)


@inner_kernel
def level_of(walk: Walk, t: int) -> LevelWalk:
    """Return the arrays of the level at position t."""
    lo, hi = walk.offsets[t], walk.offsets[t + 1]
    return LevelWalk(walk.class_of, walk.dense[t], walk.symbol[lo:hi], walk.next_entry[lo:hi])


@part_kernel
def largest(values: IntArray) -> int:
    """Return the largest of nonnegative numbers; 0 without any."""
    size = 0
    for value in values:
        size = max(size, int(value))
    return size


@part_kernel
def widest(first_entry: IntArray) -> int:
    """Return the number of entries of the largest level."""
    size = 0
    for t in range(len(first_entry) - 1):
        size = max(size, int(first_entry[t + 1] - first_entry[t]))
    return size


@part_kernel
def fill(values: FloatArray, value: float) -> None:
    """Set every entry to `value`; a slice assignment would take seconds to compile."""
    for i in range(len(values)):
        values[i] = value


@part_kernel
def scale(values: FloatArray, factor: float) -> None:
    """Multiply every entry by `factor`."""
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
    """Write the final weights as the last beta; return the sum of alpha beta."""
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
    """Multiply alpha by the scores and add the result to the next alpha along the arcs of B."""
    class_of, dense, symbol, next_entry = level
    contexts, n = table.shape
    if order != 2 or len(next_entry) == 1:
        _plain_rows(alpha, table, rows[:dense])
    elif dense > 0:
        np.dot(alpha[: dense * contexts].reshape(dense, contexts), table, rows[:dense])
    step = 1 if order == 2 else contexts
    for s in range(dense):
        for r in range(rows.shape[1] // n):
            for b in range(n):
                c = unsigned(class_of[b])
                place = unsigned(next_entry[s, c] * step + r * (n + 1) + b)
                after[place] += rows[s, r * n + b] * weight[s, c]
    for s in range(dense, len(next_entry)):
        mass, x = alpha[dense * (contexts - 1) + s], unsigned(symbol[s])
        for b in range(n):
            c = unsigned(class_of[b])
            after[unsigned(next_entry[s, c]) + unsigned(b)] += mass * table[x, b] * weight[s, c]


@sum_part_kernel
def _plain_rows(alpha: FloatArray, table: FloatArray, rows: FloatArray) -> None:
    """Write rows[s, r n + b] = sum_x alpha[s, x R + r] table[x R + r, b], for any order.

    Only for the states with one entry per context.
    """
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

    The next beta is multiplied by `factor` when it is read, and Q by `share`.  Return the sum of
    alpha times the new beta.
    """
    class_of, dense, _, next_entry = level
    rows, mass = work
    contexts, n = table.shape
    entries = len(alpha)
    fill(before[entries : entries + contexts], 0.0)
    step = 1 if order == 2 else contexts
    for s in range(dense):
        for r in range(rows.shape[1] // n):
            for b in range(n):
                c = unsigned(class_of[b])
                way = beta[unsigned(next_entry[s, c] * step + r * (n + 1) + b)]
                rows[s, r * n + b] = way * (weight[s, c] * factor)
    if order != 2 or len(next_entry) == 1:
        return _plain_masses(alpha, table, before, rows[:dense], mass, share)
    if dense > 0:
        entry = dense * contexts
        np.dot(rows[:dense], table.T, before[:entry].reshape(dense, contexts))
        np.dot(alpha[:entry].reshape(dense, contexts).T, rows[:dense], mass)
    else:
        fill(mass.reshape(-1), 0.0)
    _single_masses(alpha, table, level, weight, beta, before, factor, mass)
    replace_by_shares(table, mass, share)
    whole = 0.0
    for i in range(entries):
        whole += alpha[i] * before[i]
    return whole


@part_kernel
def _single_masses(
    alpha: FloatArray, table: FloatArray, level: LevelWalk, weight: FloatArray, beta: FloatArray,
    before: FloatArray, factor: float, mass: FloatArray,
) -> None:  # fmt: skip
    """Write the beta of the states with one entry, and add their terms to `mass`; for bigrams.

    One loop both sums and stores, so its sums keep their order (see `compiler.sum_kernel`).
    """
    class_of, dense, symbol, next_entry = level
    contexts, n = table.shape
    for s in range(dense, len(next_entry)):
        entry, x = dense * (contexts - 1) + s, unsigned(symbol[s])
        own, total = alpha[entry], 0.0
        for b in range(n):
            c = unsigned(class_of[b])
            way = beta[unsigned(next_entry[s, c]) + unsigned(b)] * (weight[s, c] * factor)
            total += table[x, b] * way
            mass[x, b] += own * way
        before[entry] = total


@sum_part_kernel
def _plain_masses(
    alpha: FloatArray,
    table: FloatArray,
    before: FloatArray,
    rows: FloatArray,
    mass: FloatArray,
    share: float,
) -> float:
    """Do the work of `_back` by loops, for any order; all states have one entry per context."""
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
        for b in range(n):
            table[k, b] = table[k, b] * mass[0, b] * share  # in this order: see replace_by_shares
    return whole


@inner_kernel
def replace_by_shares(table: FloatArray, mass: FloatArray, share: float) -> None:
    """Multiply `table` by `mass` and then by `share`; the other order could overflow."""
    for k in range(len(table)):
        for b in range(table.shape[1]):
            table[k, b] = table[k, b] * mass[k, b] * share
