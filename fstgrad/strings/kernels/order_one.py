"""The same equations as `passes`, for scores of order 1: 1.2 to 4.6 times as fast, by classes.

The symbols of a class share their arcs.
With s_t[b] = exp(score_t[b]), the weight w of the arc s -> s' that reads the class c, and c(b) the
class of b,

    S_t[c] = sum_{b in c} s_t[b],
    alpha_{t+1}[s'] = sum over arcs s -> s' of w alpha_t[s] S_t[c],
    beta_t[s] = sum_c S_t[c] w beta_{t+1}[s'],
    M_t[c] = sum over arcs s -> s' that read c of alpha_t[s] w beta_{t+1}[s'],
    Q_t[b] = s_t[b] M_t[c(b)] / Z.

So a position costs O(n + S C) with S states and C classes, in place of O(n S).  Results and scales
are those of the kernels of the same names in `passes`.  Sums keep their order: if LLVM could choose
it, a batch would not have the bits that its items have alone.
"""

import math

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.layout import LayoutArrays
from fstgrad.strings.kernels.arguments import ClassTangents, Pair, unsigned


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
def sums_of_tangents(
    table: FloatArray, class_of: IntArray, classes: int, moved: bool
) -> FloatArray:
    """Return `sums_by_class`, zeros if not `moved`: then every entry of `table` is 0."""
    if not moved:
        return np.zeros((len(table), classes))
    return sums_by_class(table, class_of, classes)


@kernel
def forward_backward(
    table: FloatArray, walk: LayoutArrays, weight: FloatArray, final: FloatArray
) -> float:
    """Return the log of the sum over all paths, -inf if it is zero, and turn `table` into Q.

    table : (l, 1, n), exp(score)
    walk, weight, final : B, as in `automata.layout.Layout`
    """
    return _forward_backward(table, walk, weight, final, None)[0]


@kernel
def forward_backward_with_tangents(
    tables: Pair, walk: LayoutArrays, weights: Pair, finals: Pair, moved: bool
) -> tuple[float, float]:
    """Return what `forward_backward` returns and its derivative; (-inf, 0) if the sum is zero.

    tables : pair of (l, 1, n), exp(score) and its derivative; replaced by Q and its derivative
    weights, finals, moved : as in `passes.forward_backward_with_tangents`
    """
    (table, change), (weight, slope), (final, final_slope) = tables, weights, finals
    states, classes = walk.offsets[len(table)] + len(final), weight.shape[1]
    tangents = ClassTangents(
        change, slope, final_slope, sums_of_tangents(change, walk.class_of, classes, moved),
        np.zeros(states), empty(states), empty(classes), empty(classes),
    )  # fmt: skip
    return _forward_backward(table, walk, weight, final, tangents)


@part_kernel
def _forward_backward(
    table: FloatArray,
    walk: LayoutArrays,
    weight: FloatArray,
    final: FloatArray,
    tangents: ClassTangents | None,
) -> tuple[float, float]:
    """Do the work of `forward_backward`, with derivatives if there are tangents."""
    # bounds: level t has the states offsets[t] .. offsets[t + 1] - 1, and the last level those of
    # `final`; next_entry is a number within the next level, 0 for dead arcs, whose weight is 0
    length, classes, offsets = len(table), weight.shape[1], walk.offsets
    sums = sums_by_class(table, walk.class_of, classes)
    states = offsets[length] + len(final)
    alpha, beta, totals = np.zeros(states), empty(states), empty(length)
    mass, ways = empty(classes), empty(classes)
    alpha[0], log_scale = 1.0, 0.0
    for t in range(length):
        there, end = offsets[t + 1], offsets[t + 2]
        _step(t, alpha, sums, walk, weight, tangents)
        total = sum_between(alpha, there, end)
        if not total > 0.0:
            return -np.inf, 0.0
        for s in range(there, end):
            alpha[s] *= 1.0 / total
            if tangents is not None:
                tangents.alpha[s] *= 1.0 / total
        totals[t] = total
        log_scale += math.log(total)
    last, scaled_z, change = offsets[length], 0.0, 0.0
    for s in range(len(final)):
        beta[last + s] = final[s]
        scaled_z += alpha[last + s] * final[s]
        if tangents is not None:
            tangents.beta[last + s] = final[s] * tangents.final_slope[s]
            change += tangents.alpha[last + s] * final[s]
            change += alpha[last + s] * tangents.beta[last + s]
    if not scaled_z > 0.0:
        return -np.inf, 0.0
    total = scaled_z
    for t in range(length - 1, -1, -1):
        share, factor = 1.0 / totals[t], 1.0 / total
        total = _back(t, alpha, beta, sums, walk, weight, factor, (mass, ways), tangents)
        if tangents is None:
            for b in range(table.shape[2]):
                table[t, 0, b] = table[t, 0, b] * mass[unsigned(walk.class_of[b])] * share
        else:
            _replace(table[t, 0], tangents.table[t, 0], walk.class_of, mass, tangents.mass, share)
    return log_scale + math.log(scaled_z), change / scaled_z


@inner_kernel
def _step(
    t: int,
    alpha: FloatArray,
    sums: FloatArray,
    walk: LayoutArrays,
    weight: FloatArray,
    tangents: ClassTangents | None,
) -> None:
    """Add to the alpha of level t + 1 what comes along the arcs from level t."""
    if tangents is not None:
        dalpha, dsums, slope = tangents.alpha, tangents.sums, tangents.slope
    there, next_entry = walk.offsets[t + 1], walk.next_entry
    for s in range(walk.offsets[t], there):
        own = alpha[s]
        if tangents is not None:
            down = dalpha[s]
        for c in range(sums.shape[1]):
            place = unsigned(there + next_entry[s, c])
            arrived, loss = own * sums[t, c], weight[s, c]
            if tangents is not None:
                change = down * sums[t, c] + own * dsums[t, c]
                dalpha[place] += (change + arrived * slope[s, c]) * loss
            alpha[place] += arrived * loss


@inner_kernel
def _back(
    t: int,
    alpha: FloatArray,
    beta: FloatArray,
    sums: FloatArray,
    walk: LayoutArrays,
    weight: FloatArray,
    factor: float,
    work: tuple[FloatArray, FloatArray],
    tangents: ClassTangents | None,
) -> float:
    """Write the beta of level t and the masses of its classes; return the sum of alpha beta.

    The next beta is multiplied by `factor` when it is read.
    """
    if tangents is not None:
        dalpha, dbeta, dsums = tangents.alpha, tangents.beta, tangents.sums
        slope, dmass, dways = tangents.slope, tangents.mass, tangents.ways
    there, next_entry, classes = walk.offsets[t + 1], walk.next_entry, sums.shape[1]
    mass, ways = work
    total = 0.0
    for c in range(classes):
        mass[c] = 0.0
        if tangents is not None:
            dmass[c] = 0.0
    for s in range(walk.offsets[t], there):
        own, sum_of_ways, change_of_sum = alpha[s], 0.0, 0.0
        if tangents is not None:
            down = dalpha[s]
        for c in range(classes):
            place, loss = unsigned(there + next_entry[s, c]), weight[s, c] * factor
            ways[c] = beta[place] * loss
            if tangents is not None:
                change = dbeta[place] + beta[place] * slope[s, c]
                dways[c] = change * loss
        for c in range(classes):
            sum_of_ways += sums[t, c] * ways[c]
        for c in range(classes):
            mass[c] += own * ways[c]
        if tangents is not None:
            for c in range(classes):
                change_of_sum += sums[t, c] * dways[c] + dsums[t, c] * ways[c]
            for c in range(classes):
                dmass[c] += own * dways[c] + down * ways[c]
            dbeta[s] = change_of_sum
        beta[s] = sum_of_ways
        total += own * sum_of_ways
    return total


@part_kernel
def _replace(
    table: FloatArray,
    dtable: FloatArray,
    class_of: IntArray,
    mass: FloatArray,
    dmass: FloatArray,
    share: float,
) -> None:
    """Turn s (n,) into Q = s M share and s' into dQ = (s' M + s M') share - Q times its sum."""
    change = 0.0
    for b in range(len(table)):
        c = unsigned(class_of[b])
        dtable[b] = (dtable[b] * mass[c] + table[b] * dmass[c]) * share
        table[b] = table[b] * mass[c] * share
    for b in range(len(table)):
        change += dtable[b]
    for b in range(len(table)):
        dtable[b] -= table[b] * change
