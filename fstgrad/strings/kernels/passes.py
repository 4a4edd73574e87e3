"""Forward, backward and Q over A o B on float64 weights, also with derivatives.

The same equations as `fstgrad.strings.passes.Passes` with the algebra Real, which defines them, for
gradient steps: compiled, in loops that make no array for an operation.

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

With `tangents`, the same loops carry the derivatives of all weights along one direction of the
scores, of the losses, or of both, by the product rule; the factors that keep levels in range are
constants.  Without them (None), numba drops these lines.

Scores with q = 1 are left to `order_one`.
"""

import math

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.compiler import (
    inner_kernel,
    kernel,
    optional_part,
    part_kernel,
    sum_part_kernel,
)
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import exponentiate
from fstgrad.losses.automata.layout import LayoutArrays, LevelArrays
from fstgrad.strings.kernels.arguments import (
    LARGEST_OFFSET,
    PREFIX_SWAP,
    RECENT_RANGES,
    SHIFT,
    TOTAL_RANGE,
    LevelTangents,
    Pair,
    Tangents,
    Work,
    unsigned,
)

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
def forward_backward(
    table: FloatArray, walk: LayoutArrays, weight: FloatArray, final: FloatArray, order: int
) -> float:
    """Return the log of the sum over all paths, -inf if it is zero, and turn `table` into Q.

    O(sum_t S_t n^q) for q = order >= 2.

    table : (l, K, n), exp(score)
    walk, weight, final : B, as in `automata.layout.Layout`
    """
    return _forward_backward(table, walk, weight, final, order, None)[0]


@kernel
def forward_backward_with_tangents(
    tables: Pair, walk: LayoutArrays, weights: Pair, finals: Pair, moved: bool, order: int
) -> tuple[float, float]:
    """Return what `forward_backward` returns and its derivative; (-inf, 0) if the sum is zero.

    It takes about twice the time of `forward_backward`.

    tables : pair of (l, K, n), exp(score) and its derivative; replaced by Q and its derivative
    weights : pair of (N, C), e^cost of the arcs and the derivative of the cost
    finals : pair of (S_l,), the same for the final weights
    moved : whether some derivative of `tables` is not 0

    The fields of `Dual` as plain pairs: a call with named tuples takes microseconds longer.
    """
    (table, change), (weight, slope), (final, final_slope) = tables, weights, finals
    _, contexts, n = table.shape
    step = 1 if order == 2 else contexts
    entries, size = _sizes(walk, contexts, step)
    rows = empty((largest(walk.dense), n * (contexts // (n + 1))))
    tangents = Tangents(
        change, slope, final_slope, moved, empty(entries), empty((2, size)), rows,
        empty((contexts, n)),
    )  # fmt: skip
    return _forward_backward(table, walk, weight, final, order, tangents)


@part_kernel
def _forward_backward(
    table: FloatArray,
    walk: LayoutArrays,
    weight: FloatArray,
    final: FloatArray,
    order: int,
    tangents: Tangents | None,
) -> tuple[float, float]:
    """Do the work of `forward_backward`, with derivatives if there are tangents.

    Each alpha is divided by its sum, and each beta is scaled so that sum alpha beta = 1.  So
    neither leaves the range of float64 before the other.
    """
    length, contexts, n = table.shape
    offsets, first = walk.offsets, walk.first_entry
    step = 1 if order == 2 else contexts
    # `contexts` scratch entries behind each level are for dead arcs.  A live arc from level t that
    # reads b leads below first[t + 2] * step; a dead one to r (n + 1) + b < contexts.
    # Rows are states below dense[t] <= largest(dense), columns are r n + b < n contexts / (n + 1).
    entries, size = _sizes(walk, contexts, step)
    alpha, beta, before = empty(entries), empty(size), empty(size)
    rows = empty((largest(walk.dense), n * (contexts // (n + 1))))
    work, sums = Work(rows, empty((contexts, n))), empty(length)
    fill(alpha[:contexts], 0.0)
    alpha[contexts - 1] = 1.0
    if tangents is not None:
        fill(tangents.alpha[:contexts], 0.0)
    log_scale = 0.0
    for t in range(length):
        level, losses = level_of(walk, t), weight[offsets[t] : offsets[t + 1]]
        here, there, end = first[t] * step, first[t + 1] * step, first[t + 2] * step
        fill(alpha[there:end], 0.0)
        at_level = tangents_of(tangents, walk, t, here, there)
        if tangents is not None:
            fill(tangents.alpha[there:end], 0.0)
        _step(alpha[here:there], table[t], level, losses, alpha[there:], order, rows, at_level)
        sums[t] = total_of(alpha[there:end])
        if not sums[t] > 0.0:
            return -np.inf, 0.0
        scale(alpha[there:end], 1.0 / sums[t])
        if tangents is not None:
            scale(tangents.alpha[there:end], 1.0 / sums[t])
        log_scale += math.log(sums[t])
    last, dense = int(first[length]) * step, int(walk.dense[length])
    scaled_z, change = _ends(alpha[last:], dense, final, contexts, beta, last, tangents)
    if not scaled_z > 0.0:
        return -np.inf, 0.0
    total = scaled_z
    for t in range(length - 1, -1, -1):
        level, losses = level_of(walk, t), weight[offsets[t] : offsets[t + 1]]
        here, there = first[t] * step, first[t + 1] * step
        own, scales = alpha[here:there], (1.0 / total, 1.0 / sums[t])
        at_level = tangents_of(tangents, walk, t, here, there)
        total = _back(own, table[t], level, losses, beta, before, order, scales, work, at_level)
        beta, before = before, beta
    return log_scale + math.log(scaled_z), change / scaled_z


@inner_kernel
def _sizes(walk: LayoutArrays, contexts: int, step: int) -> tuple[int, int]:
    """Return how many entries all alphas have together, and the largest beta."""
    entries = walk.first_entry[-1] * step + contexts
    return entries, widest(walk.first_entry) * step + contexts


@inner_kernel
def level_of(walk: LayoutArrays, t: int) -> LevelArrays:
    """Return the arrays of the level at position t."""
    lo, hi = walk.offsets[t], walk.offsets[t + 1]
    return LevelArrays(walk.class_of, walk.dense[t], walk.symbol[lo:hi], walk.next_entry[lo:hi])


@optional_part
def tangents_of(
    tangents: Tangents, walk: LayoutArrays, t: int, here: int, there: int
) -> LevelTangents:
    """Return the tangents of the level at position t, whose alpha begins at the entry `here`."""
    return LevelTangents(
        tangents.table[t], tangents.slope[walk.offsets[t] : walk.offsets[t + 1]], tangents.moved,
        tangents.alpha[here:there], tangents.alpha[there:], tangents.betas[(t + 1) % 2],
        tangents.betas[t % 2], tangents.rows, tangents.mass,
    )  # fmt: skip


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
    alpha: FloatArray,
    dense: int,
    final: FloatArray,
    contexts: int,
    beta: FloatArray,
    last: int,
    tangents: Tangents | None,
) -> tuple[float, float]:
    """Write the final weights as the last beta; return the sum of alpha beta and its derivative.

    `last` is the first entry of the last alpha, `dense` the number of its states with an entry for
    each context.
    """
    # place < entries of the last level, which `widest` counts
    place, total, change = 0, 0.0, 0.0
    for s in range(len(final)):
        for _ in range(contexts if s < dense else 1):
            beta[place] = final[s]
            place += 1
    fill(beta[place : place + contexts], 0.0)
    for i in range(place):
        total += alpha[i] * beta[i]
    if tangents is not None:
        dalpha, dbeta, place = tangents.alpha[last:], tangents.betas[len(tangents.table) % 2], 0
        for s in range(len(final)):
            for _ in range(contexts if s < dense else 1):
                dbeta[place] = final[s] * tangents.final_slope[s]
                place += 1
        fill(dbeta[place : place + contexts], 0.0)
        for i in range(place):
            change += dalpha[i] * beta[i] + alpha[i] * dbeta[i]
    return total, change


@sum_part_kernel
def _step(
    alpha: FloatArray,
    table: FloatArray,
    level: LevelArrays,
    weight: FloatArray,
    after: FloatArray,
    order: int,
    rows: FloatArray,
    tangents: LevelTangents | None,
) -> None:
    """Multiply alpha by the scores and add the result to the next alpha along the arcs of B.

    With G = alpha s, the loss weight w and the derivative d of the cost:
    after += G w, and after' += (G' + G d) w, where G' = alpha' s + alpha s'.
    """
    if tangents is not None:
        dalpha, dtable, slope = tangents.alpha, tangents.table, tangents.slope
        dafter, drows = tangents.after, tangents.rows
    class_of, dense, symbol, next_entry = level
    contexts, n = table.shape
    # one state: a loop over contexts beats the call of a matrix product
    if order != 2 or len(next_entry) == 1:
        _plain_rows(alpha, table, rows[:dense], tangents)
    elif dense > 0:
        _bigram_rows(alpha, table, rows[:dense], tangents)
    step = 1 if order == 2 else contexts
    for s in range(dense):
        for r in range(rows.shape[1] // n):
            for b in range(n):
                c = unsigned(class_of[b])
                place = unsigned(next_entry[s, c] * step + r * (n + 1) + b)
                arrived, loss = rows[s, r * n + b], weight[s, c]
                after[place] += arrived * loss
                if tangents is not None:
                    dafter[place] += (drows[s, r * n + b] + arrived * slope[s, c]) * loss
    # the other states have one context, the last symbol: one row of the table, so no product
    for s in range(dense, len(next_entry)):
        entry, x = dense * (contexts - 1) + s, unsigned(symbol[s])
        mass = alpha[entry]
        if tangents is not None:
            dmass = dalpha[entry]
        for b in range(n):
            c = unsigned(class_of[b])
            place = unsigned(next_entry[s, c]) + unsigned(b)
            arrived, loss = mass * table[x, b], weight[s, c]
            after[place] += arrived * loss
            if tangents is not None:
                change = dmass * table[x, b] + mass * dtable[x, b]
                dafter[place] += (change + arrived * slope[s, c]) * loss


@inner_kernel
def _bigram_rows(
    alpha: FloatArray, table: FloatArray, rows: FloatArray, tangents: LevelTangents | None
) -> None:
    """Write G = alpha s of the states with one entry per context, as a matrix product."""
    dense, contexts = len(rows), len(table)
    left = alpha[: dense * contexts].reshape(dense, contexts)
    if tangents is not None:
        drows = tangents.rows[:dense]
        np.dot(tangents.alpha[: dense * contexts].reshape(dense, contexts), table, drows)
        if tangents.moved:
            np.dot(left, tangents.table, rows)  # `rows` as scratch: its own product comes last
            _add(drows, rows)
    np.dot(left, table, rows)


@sum_part_kernel
def _plain_rows(
    alpha: FloatArray, table: FloatArray, rows: FloatArray, tangents: LevelTangents | None
) -> None:
    """Write rows[s, r n + b] = sum_x alpha[s, x R + r] table[x R + r, b], for any order.

    Only for the states with one entry per context.
    """
    if tangents is not None:
        dalpha, dtable, drows = tangents.alpha, tangents.table, tangents.rows
    contexts, n = table.shape
    younger = rows.shape[1] // n
    for s in range(len(rows)):
        for r in range(younger):
            for b in range(n):
                rows[s, r * n + b] = 0.0
                if tangents is not None:
                    drows[s, r * n + b] = 0.0
            for k in range(r, contexts, younger):
                mass = alpha[s * contexts + k]
                if mass != 0.0:  # contexts that cannot occur, most of them early on
                    if tangents is not None:
                        dmass = dalpha[s * contexts + k]
                    for b in range(n):
                        rows[s, r * n + b] += mass * table[k, b]
                        if tangents is not None:
                            drows[s, r * n + b] += dmass * table[k, b] + mass * dtable[k, b]


@sum_part_kernel
def _back(
    alpha: FloatArray,
    table: FloatArray,
    level: LevelArrays,
    weight: FloatArray,
    beta: FloatArray,
    before: FloatArray,
    order: int,
    scales: tuple[float, float],
    work: Work,
    tangents: LevelTangents | None,
) -> float:
    """Write the beta of a level to `before`; turn the level's `table` into Q.

    The next beta is multiplied by scales[0] when it is read, and Q by scales[1].  Return the sum of
    alpha times the new beta.
    """
    if tangents is not None:
        dbeta, dbefore, slope, drows = tangents.beta, tangents.before, tangents.slope, tangents.rows
    class_of, dense, _, next_entry = level
    rows, mass = work
    factor, share = scales
    contexts, n = table.shape
    entries = len(alpha)
    # what dead arcs read: it is finite, and their weight is 0
    fill(before[entries : entries + contexts], 0.0)
    if tangents is not None:
        fill(dbefore[entries : entries + contexts], 0.0)
    # rows[s, r n + b] is the weight of everything from s on if b is read next, without its score:
    # both beta and Q need it, so it is gathered along the arcs once
    step = 1 if order == 2 else contexts
    for s in range(dense):
        for r in range(rows.shape[1] // n):
            for b in range(n):
                c = unsigned(class_of[b])
                place = unsigned(next_entry[s, c] * step + r * (n + 1) + b)
                way, loss = beta[place], weight[s, c] * factor
                rows[s, r * n + b] = way * loss
                if tangents is not None:
                    drows[s, r * n + b] = (dbeta[place] + way * slope[s, c]) * loss
    if order != 2 or len(next_entry) == 1:
        _plain_masses(alpha, table, before, rows[:dense], mass, tangents)
    else:
        _bigram_masses(alpha, table, before, rows[:dense], mass, tangents)
        _single_masses(alpha, table, level, weight, beta, before, factor, mass, tangents)
    if tangents is None:
        replace_by_shares(table, mass, share)
    else:
        _replace_with_tangents(table, mass, share, tangents)
    # the `factor` of the level before is 1 over this sum, so that sum alpha beta is 1 again
    total = 0.0
    for i in range(entries):
        total += alpha[i] * before[i]
    return total


@inner_kernel
def _bigram_masses(
    alpha: FloatArray,
    table: FloatArray,
    before: FloatArray,
    rows: FloatArray,
    mass: FloatArray,
    tangents: LevelTangents | None,
) -> None:
    """Write beta = rows s and mass = alpha rows by matrix products, for bigrams.

    Only for the states with one entry per context.
    """
    dense, contexts = len(rows), len(table)
    if dense == 0:
        fill(mass.reshape(-1), 0.0)
        if tangents is not None:
            fill(tangents.mass.reshape(-1), 0.0)
        return
    entry = dense * contexts
    left, back = alpha[:entry].reshape(dense, contexts), before[:entry].reshape(dense, contexts)
    if tangents is not None:
        drows, dmass = tangents.rows[:dense], tangents.mass
        dleft = tangents.alpha[:entry].reshape(dense, contexts)
        dback = tangents.before[:entry].reshape(dense, contexts)
        np.dot(drows, table.T, dback)
        if tangents.moved:  # `back` and `mass` as scratch: their own products come last
            np.dot(rows, tangents.table.T, back)
            _add(dback, back)
        np.dot(left.T, drows, mass)
        np.dot(dleft.T, rows, dmass)
        _add(dmass, mass)
    np.dot(rows, table.T, back)
    np.dot(left.T, rows, mass)


@part_kernel
def _single_masses(
    alpha: FloatArray, table: FloatArray, level: LevelArrays, weight: FloatArray,
    beta: FloatArray, before: FloatArray, factor: float, mass: FloatArray,
    tangents: LevelTangents | None,
) -> None:  # fmt: skip
    """Write the beta of the states with one entry, and add their terms to `mass`; for bigrams.

    One loop both sums and stores, so its sums keep their order (see `compiler.sum_kernel`).
    """
    if tangents is not None:
        dalpha, dtable, slope = tangents.alpha, tangents.table, tangents.slope
        dbeta, dbefore, dmass = tangents.beta, tangents.before, tangents.mass
    class_of, dense, symbol, next_entry = level
    contexts, n = table.shape
    for s in range(dense, len(next_entry)):
        entry, x = dense * (contexts - 1) + s, unsigned(symbol[s])
        own, total, change = alpha[entry], 0.0, 0.0
        if tangents is not None:
            down = dalpha[entry]
        for b in range(n):
            c = unsigned(class_of[b])
            place, loss = unsigned(next_entry[s, c]) + unsigned(b), weight[s, c] * factor
            way = beta[place] * loss
            total += table[x, b] * way
            mass[x, b] += own * way
            if tangents is not None:
                dway = dbeta[place] * loss + way * slope[s, c]
                change += table[x, b] * dway + dtable[x, b] * way
                dmass[x, b] += own * dway + down * way
        before[entry] = total
        if tangents is not None:
            dbefore[entry] = change


@sum_part_kernel
def _plain_masses(
    alpha: FloatArray,
    table: FloatArray,
    before: FloatArray,
    rows: FloatArray,
    mass: FloatArray,
    tangents: LevelTangents | None,
) -> None:
    """Do the work of `_bigram_masses` by loops, for any order; all states have all contexts."""
    if tangents is not None:
        dalpha, dtable, dbefore = tangents.alpha, tangents.table, tangents.before
        drows, dmass = tangents.rows, tangents.mass
    contexts, n = table.shape
    younger = rows.shape[1] // n
    for k in range(contexts):
        r = (k % younger) * n
        for b in range(n):
            mass[k, b] = 0.0
            if tangents is not None:
                dmass[k, b] = 0.0
        for s in range(len(rows)):
            entry = s * contexts + k
            own, total, change = alpha[entry], 0.0, 0.0
            if own != 0.0:  # else no path comes here, and nothing reads this beta
                if tangents is not None:
                    down = dalpha[entry]
                for b in range(n):
                    way = rows[s, r + b]
                    total += table[k, b] * way
                    if tangents is not None:
                        change += table[k, b] * drows[s, r + b] + dtable[k, b] * way
                for b in range(n):
                    way = rows[s, r + b]
                    mass[k, b] += own * way
                    if tangents is not None:
                        dmass[k, b] += own * drows[s, r + b] + down * way
            before[entry] = total
            if tangents is not None:
                dbefore[entry] = change


@inner_kernel
def replace_by_shares(table: FloatArray, mass: FloatArray, share: float) -> None:
    """Multiply `table` by `mass` and then by `share`; the other order could overflow."""
    for k in range(len(table)):
        for b in range(table.shape[1]):
            table[k, b] = table[k, b] * mass[k, b] * share


@part_kernel
def _replace_with_tangents(
    table: FloatArray, mass: FloatArray, share: float, tangents: LevelTangents
) -> None:
    """Turn `table` into Q = s M share and its tangent into the derivative of Q; Q sums to one.

    s is the table and M the mass: Q' = (s' M + s M') share - Q sum((s' M + s M') share).
    """
    dtable, dmass = tangents.table, tangents.mass
    contexts, n = table.shape
    change = 0.0
    for k in range(contexts):
        for b in range(n):
            dtable[k, b] = (dtable[k, b] * mass[k, b] + table[k, b] * dmass[k, b]) * share
            change += dtable[k, b]
    replace_by_shares(table, mass, share)
    for k in range(contexts):
        for b in range(n):
            dtable[k, b] -= table[k, b] * change


@part_kernel
def _add(left: FloatArray, right: FloatArray) -> None:
    """Add `right` to `left`."""
    for i in range(left.shape[0]):
        for j in range(left.shape[1]):
            left[i, j] += right[i, j]
