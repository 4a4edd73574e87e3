"""The passes for scores of order 1, by classes of symbols: the symbols of a class share their arcs.

With s_t[b] = exp(score_t[b]), the weight w of the arc s -> s' that reads the class c, and c(b) the
class of b,

    S_t[c] = sum_{b in c} s_t[b],
    alpha_{t+1}[s'] = sum over arcs s -> s' of w alpha_t[s] S_t[c],
    beta_t[s] = sum_c S_t[c] w beta_{t+1}[s'],
    M_t[c] = sum over arcs s -> s' that read c of alpha_t[s] w beta_{t+1}[s'],
    Q_t[b] = s_t[b] M_t[c(b)] / Z.

So a position costs O(n + S C) with S states and C classes, in place of O(n S).  Results and scales
are those of `passes.real_pass` and `tangents.tangent_pass`, which call these kernels.  Sums keep
their order: if LLVM could choose it, a batch would not have the bits that its items have alone.
"""

import math

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.layout import Walk
from fstgrad.strings.kernels.arguments import Dual, unsigned


@part_kernel
def sums_by_class(table: FloatArray, class_of: IntArray, classes: int) -> FloatArray:
    """Return the sums (l, C) of table (l, 1, n) over the symbols of each class."""
    length, _, n = table.shape
    sums = np.zeros((length, classes))  # a class may have no symbol
    for t in range(length):
        for b in range(n):
            sums[t, unsigned(class_of[b])] += table[t, 0, b]
    return sums


@part_kernel
def sum_between(values: FloatArray, start: int, stop: int) -> float:
    """Return the sum of values[start:stop], without making a slice."""
    total = 0.0
    for s in range(start, stop):
        total += values[s]
    return total


@part_kernel
def class_pass(table: FloatArray, walk: Walk, weight: FloatArray, final: FloatArray) -> float:
    """Do the work of `passes.real_pass` for order 1."""
    # bounds: level t has the states offsets[t] .. offsets[t + 1] - 1, and the last level those of
    # `final`; next_entry is a number within the next level, 0 for dead arcs, whose weight is 0
    length, n, classes = len(table), table.shape[2], weight.shape[1]
    class_of, offsets, next_entry = walk.class_of, walk.offsets, walk.next_entry
    sums = sums_by_class(table, class_of, classes)
    states = offsets[length] + len(final)
    alpha, beta, totals = np.zeros(states), empty(states), empty(length)
    mass, ways = empty(classes), empty(classes)
    alpha[0], log_scale = 1.0, 0.0
    for t in range(length):
        here, there, end = offsets[t], offsets[t + 1], offsets[t + 2]
        for s in range(here, there):
            for c in range(classes):
                place = unsigned(there + next_entry[s, c])
                alpha[place] += alpha[s] * sums[t, c] * weight[s, c]
        total = sum_between(alpha, there, end)
        if not total > 0.0:
            return -np.inf
        for s in range(there, end):
            alpha[s] *= 1.0 / total
        totals[t] = total
        log_scale += math.log(total)
    last, whole = offsets[length], 0.0
    for s in range(len(final)):
        beta[last + s] = final[s]
    for s in range(len(final)):
        whole += alpha[last + s] * final[s]
    if not whole > 0.0:
        return -np.inf
    total = whole
    for t in range(length - 1, -1, -1):
        here, there, factor, share = offsets[t], offsets[t + 1], 1.0 / total, 1.0 / totals[t]
        for c in range(classes):
            mass[c] = 0.0
        total = 0.0
        for s in range(here, there):
            own, sum_of_ways = alpha[s], 0.0
            for c in range(classes):
                ways[c] = beta[unsigned(there + next_entry[s, c])] * (weight[s, c] * factor)
            for c in range(classes):
                sum_of_ways += sums[t, c] * ways[c]
            for c in range(classes):
                mass[c] += own * ways[c]
            beta[s] = sum_of_ways
            total += own * sum_of_ways
        for b in range(n):
            table[t, 0, b] = table[t, 0, b] * mass[unsigned(class_of[b])] * share
    return log_scale + math.log(whole)


@part_kernel
def class_tangents(
    tables: Dual, walk: Walk, weights: Dual, finals: Dual, moved: bool
) -> tuple[float, float]:
    """Do the work of `tangents.tangent_pass` for order 1."""
    # bounds: as in `class_pass`
    (table, dtable), (weight, slope), (final, final_slope) = tables, weights, finals
    length, classes = len(table), weight.shape[1]
    class_of, offsets, next_entry = walk.class_of, walk.offsets, walk.next_entry
    sums, dsums = sums_by_class(table, class_of, classes), np.zeros((length, classes))
    if moved:
        dsums = sums_by_class(dtable, class_of, classes)
    states = offsets[length] + len(final)
    alpha, dalpha, totals = np.zeros(states), np.zeros(states), empty(length)
    beta, dbeta = empty(states), empty(states)
    mass, dmass, ways, dways = empty((4, classes))
    alpha[0], log_scale = 1.0, 0.0
    for t in range(length):
        here, there, end = offsets[t], offsets[t + 1], offsets[t + 2]
        for s in range(here, there):
            for c in range(classes):
                place, way = unsigned(there + next_entry[s, c]), weight[s, c]
                arrived = alpha[s] * sums[t, c]
                change = dalpha[s] * sums[t, c] + alpha[s] * dsums[t, c]
                alpha[place] += arrived * way
                dalpha[place] += (change + arrived * slope[s, c]) * way
        total = sum_between(alpha, there, end)
        if not total > 0.0:
            return -np.inf, 0.0
        for s in range(there, end):
            alpha[s] *= 1.0 / total
            dalpha[s] *= 1.0 / total
        totals[t] = total
        log_scale += math.log(total)
    last, whole, change = offsets[length], 0.0, 0.0
    for s in range(len(final)):
        beta[last + s], dbeta[last + s] = final[s], final[s] * final_slope[s]
    for s in range(last, states):
        whole += alpha[s] * beta[s]
        change += dalpha[s] * beta[s] + alpha[s] * dbeta[s]
    if not whole > 0.0:
        return -np.inf, 0.0
    total = whole
    for t in range(length - 1, -1, -1):
        here, there, factor, share = offsets[t], offsets[t + 1], 1.0 / total, 1.0 / totals[t]
        for c in range(classes):
            mass[c], dmass[c] = 0.0, 0.0
        total = 0.0
        for s in range(here, there):
            own, down, sum_of_ways, change_of_sum = alpha[s], dalpha[s], 0.0, 0.0
            for c in range(classes):
                place, loss = unsigned(there + next_entry[s, c]), weight[s, c] * factor
                ways[c] = beta[place] * loss
                dways[c] = (dbeta[place] + beta[place] * slope[s, c]) * loss
            for c in range(classes):
                sum_of_ways += sums[t, c] * ways[c]
                change_of_sum += sums[t, c] * dways[c] + dsums[t, c] * ways[c]
            for c in range(classes):
                mass[c] += own * ways[c]
                dmass[c] += own * dways[c] + down * ways[c]
            beta[s], dbeta[s] = sum_of_ways, change_of_sum
            total += own * sum_of_ways
        replace(table[t, 0], dtable[t, 0], class_of, mass, dmass, share)
    return log_scale + math.log(whole), change / whole


@part_kernel
def replace(
    table: FloatArray,
    dtable: FloatArray,
    class_of: IntArray,
    mass: FloatArray,
    dmass: FloatArray,
    share: float,
) -> None:
    """Turn s (n,) into Q = s M share and s' into dQ = (s' M + s M') share - Q times its sum."""
    whole = 0.0
    for b in range(len(table)):
        c = unsigned(class_of[b])
        dtable[b] = (dtable[b] * mass[c] + table[b] * dmass[c]) * share
        table[b] = table[b] * mass[c] * share
    for b in range(len(table)):
        whole += dtable[b]
    for b in range(len(table)):
        dtable[b] -= table[b] * whole
