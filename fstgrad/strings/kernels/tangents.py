"""The pass of `strings.kernels.passes` with derivatives of the weights along one direction.

A `Dual` holds an array of weights w and their derivatives w' along a direction of the scores, of
the losses, or of both.  Products follow the product rule, (v w)' = v' w + v w'.  The factors that
keep levels in range are constants.  The pass costs about twice the pass without derivatives.

The numpy version is `fstgrad.strings.passes.Passes` with the algebra Real and D = 2.
"""

import math
from typing import Any

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.compiler import inner_kernel, kernel, part_kernel, sum_part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.layout import LevelWalk, Walk
from fstgrad.strings.kernels.arguments import Dual, DualWork, unsigned
from fstgrad.strings.kernels.classes import class_tangents
from fstgrad.strings.kernels.passes import (
    fill,
    largest,
    level_of,
    replace_by_shares,
    scale,
    total_of,
    widest,
)

Pair = tuple[FloatArray, FloatArray]  # an array and its derivative


@kernel
def tangent_pass(
    tables: Pair, walk: Walk, weights: Pair, finals: Pair, moved: bool, order: int
) -> tuple[float, float]:
    """Return the log of the sum over all paths and its derivative; (-inf, 0) if the sum is zero.

    O(sum_t S_t n^q); for q = 1, O(l n + sum_t S_t C) with the C classes of symbols.

    tables : pair of (l, K, n), exp(score) and its derivative; replaced by Q and its derivative
    weights : pair of (N, C), e^cost of the arcs and the derivative of the cost
    finals : pair of (S_l,), the same for the final weights
    moved : whether some derivative of `tables` is not 0

    The fields of `Dual` as plain pairs: a call with named tuples takes microseconds longer.
    """
    table, weight, final = Dual(*tables), Dual(*weights), Dual(*finals)
    if order == 1:
        return class_tangents(table, walk, weight, final, moved)
    length, contexts, n = table.value.shape
    offsets, first = walk.offsets, walk.first_entry
    step = 1 if order == 2 else contexts
    # entries, rows and scratch as in `passes.real_pass`: both kernels write the same indices
    entries, size = first[length + 1] * step + contexts, widest(first) * step + contexts
    alpha = Dual(np.zeros(entries), np.zeros(entries))
    beta, before = Dual(np.zeros(size), np.zeros(size)), Dual(np.zeros(size), np.zeros(size))
    shape = largest(walk.dense), n * (contexts // (n + 1))
    rows = Dual(empty(shape), empty(shape))
    mass = Dual(empty((contexts, n)), empty((contexts, n)))
    work = DualWork(rows, mass)
    sums = empty(length)
    alpha.value[contexts - 1] = 1.0
    log_scale = 0.0
    for t in range(length):
        lo, hi, here, there = offsets[t], offsets[t + 1], first[t] * step, first[t + 1] * step
        end = first[t + 2] * step
        _step(part(alpha, here, there), Dual(table.value[t], table.change[t]), level_of(walk, t),
              part(weight, lo, hi), part(alpha, there, entries), moved, order, rows)  # fmt: skip
        sums[t] = total_of(alpha.value[there:end])
        if not sums[t] > 0.0:
            return -np.inf, 0.0
        scale(alpha.value[there:end], 1.0 / sums[t])
        scale(alpha.change[there:end], 1.0 / sums[t])
        log_scale += math.log(sums[t])
    last, ends = part(alpha, first[length] * step, entries), int(walk.dense[length])
    whole, change = _ends(last, ends, final, contexts, beta)
    if not whole > 0.0:
        return -np.inf, 0.0
    total = whole
    for t in range(length - 1, -1, -1):
        lo, hi, here, there = offsets[t], offsets[t + 1], first[t] * step, first[t + 1] * step
        scales = 1.0 / total, 1.0 / sums[t]
        total = _back(part(alpha, here, there), Dual(table.value[t], table.change[t]),
                      level_of(walk, t), part(weight, lo, hi), beta, before, moved, order, scales,
                      work)  # fmt: skip
        beta, before = before, beta
    return log_scale + math.log(whole), change / whole


@inner_kernel
def part(pair: Dual, start: Any, stop: Any) -> Dual:
    """Return pair[start : stop]."""
    return Dual(pair.value[start:stop], pair.change[start:stop])


@part_kernel
def _ends(alpha: Dual, dense: int, final: Dual, contexts: int, beta: Dual) -> tuple[float, float]:
    """Write the final weights as the last beta; return sum alpha beta and its derivative."""
    # place < entries of the last level, which `widest` counts
    place, whole, change = 0, 0.0, 0.0
    for s in range(len(final.value)):
        for _ in range(contexts if s < dense else 1):
            beta.value[place] = final.value[s]
            beta.change[place] = final.value[s] * final.change[s]
            whole += alpha.value[place] * beta.value[place]
            change += alpha.change[place] * beta.value[place]
            change += alpha.value[place] * beta.change[place]
            place += 1
    return whole, change


@sum_part_kernel
def _step(
    alphas: Dual,
    tables: Dual,
    level: LevelWalk,
    weights: Dual,
    afters: Dual,
    moved: bool,
    order: int,
    both: Dual,
) -> None:
    """Multiply alpha by the scores and add the result to the next alpha along the arcs of B.

    With G = alpha s, the loss weight w and its log-derivative d:
    after += G w, dafter += (G' + G d) w, where G' = alpha' s + alpha s'.
    """
    class_of, dense, symbol, next_entry = level
    (alpha, dalpha), (table, dtable), (weight, slope) = alphas, tables, weights
    (after, dafter), (rows, drows) = afters, both
    contexts, n = table.shape
    if order != 2 or len(next_entry) == 1:
        _plain_rows(alpha, dalpha, table, dtable, rows[:dense], drows[:dense])
    elif dense > 0:
        left = alpha[: dense * contexts].reshape(dense, contexts)
        dleft = dalpha[: dense * contexts].reshape(dense, contexts)
        np.dot(dleft, table, drows[:dense])
        if moved:
            np.dot(left, dtable, rows[:dense])
            _add(drows[:dense], rows[:dense])
        np.dot(left, table, rows[:dense])
    step = 1 if order == 2 else contexts
    for s in range(dense):
        for r in range(rows.shape[1] // n):
            for b in range(n):
                c = unsigned(class_of[b])
                place = unsigned(next_entry[s, c] * step + r * (n + 1) + b)
                arrived, way = rows[s, r * n + b], weight[s, c]
                after[place] += arrived * way
                dafter[place] += (drows[s, r * n + b] + arrived * slope[s, c]) * way
    for s in range(dense, len(next_entry)):
        entry, x = dense * (contexts - 1) + s, unsigned(symbol[s])
        mass, dmass = alpha[entry], dalpha[entry]
        for b in range(n):
            c = unsigned(class_of[b])
            place = unsigned(next_entry[s, c]) + unsigned(b)
            arrived, way = mass * table[x, b], weight[s, c]
            after[place] += arrived * way
            change = dmass * table[x, b] + mass * dtable[x, b]
            dafter[place] += (change + arrived * slope[s, c]) * way


@sum_part_kernel
def _plain_rows(
    alpha: FloatArray,
    dalpha: FloatArray,
    table: FloatArray,
    dtable: FloatArray,
    rows: FloatArray,
    drows: FloatArray,
) -> None:
    """Write G = alpha s and G' for the states with one entry per context, for any order."""
    contexts, n = table.shape
    younger = rows.shape[1] // n
    for s in range(len(rows)):
        for r in range(younger):
            for b in range(n):
                rows[s, r * n + b], drows[s, r * n + b] = 0.0, 0.0
            for k in range(r, contexts, younger):
                mass, dmass = alpha[s * contexts + k], dalpha[s * contexts + k]
                if mass != 0.0:
                    for b in range(n):
                        rows[s, r * n + b] += mass * table[k, b]
                        drows[s, r * n + b] += dmass * table[k, b] + mass * dtable[k, b]


@sum_part_kernel
def _back(
    alphas: Dual,
    tables: Dual,
    level: LevelWalk,
    weights: Dual,
    betas: Dual,
    befores: Dual,
    moved: bool,
    order: int,
    scales: tuple[float, float],
    work: DualWork,
) -> float:
    """Write the beta of a level to `befores`; turn the level's tables into Q and dQ.

    The next beta is multiplied by scales[0] when it is read, and Q by scales[1].  Return the sum of
    alpha times the new beta.
    """
    class_of, dense, _, next_entry = level
    alpha, (table, dtable), (weight, slope) = alphas.value, tables, weights
    (beta, dbeta), before = betas, befores.value
    (rows, drows), (mass, dmass) = work
    factor, share = scales
    contexts, n = table.shape
    step = 1 if order == 2 else contexts
    for s in range(dense):
        for r in range(rows.shape[1] // n):
            for b in range(n):
                c = unsigned(class_of[b])
                place = unsigned(next_entry[s, c] * step + r * (n + 1) + b)
                way, dway = beta[place], dbeta[place] + beta[place] * slope[s, c]
                rows[s, r * n + b] = way * (weight[s, c] * factor)
                drows[s, r * n + b] = dway * (weight[s, c] * factor)
    if order != 2 or len(next_entry) == 1:
        _plain_masses(alphas, tables, befores, work)
    else:
        _bigram_masses(alphas, tables, dense, befores, moved, work)
    _single_masses(alphas, tables, level, weights, betas, befores, factor, work.mass)
    _replace_by_shares(table, dtable, mass, dmass, share)
    whole = 0.0
    for i in range(len(alpha)):
        whole += alpha[i] * before[i]
    return whole


@part_kernel
def _single_masses(
    alphas: Dual, tables: Dual, level: LevelWalk, weights: Dual, betas: Dual, befores: Dual,
    factor: float, masses: Dual,
) -> None:  # fmt: skip
    """Do the work of `passes._single_masses` with derivatives."""
    class_of, dense, symbol, next_entry = level
    (alpha, dalpha), (table, dtable), (weight, slope) = alphas, tables, weights
    (beta, dbeta), (before, dbefore), (mass, dmass) = betas, befores, masses
    contexts, n = table.shape
    for s in range(dense, len(next_entry)):
        entry, x = dense * (contexts - 1) + s, unsigned(symbol[s])
        own, down, total, dtotal = alpha[entry], dalpha[entry], 0.0, 0.0
        for b in range(n):
            c = unsigned(class_of[b])
            place, loss = unsigned(next_entry[s, c]) + unsigned(b), weight[s, c] * factor
            way = beta[place] * loss
            dway = dbeta[place] * loss + way * slope[s, c]
            total += table[x, b] * way
            dtotal += table[x, b] * dway + dtable[x, b] * way
            mass[x, b] += own * way
            dmass[x, b] += own * dway + down * way
        before[entry], dbefore[entry] = total, dtotal


@part_kernel
def _replace_by_shares(
    table: FloatArray, dtable: FloatArray, mass: FloatArray, dmass: FloatArray, share: float
) -> None:
    """Turn `table` into Q = s M share and `dtable` into its derivative; Q sums to one.

    s is the table and M the mass: dQ = (s' M + s M') share - Q sum((s' M + s M') share).
    """
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


@sum_part_kernel
def _bigram_masses(
    alphas: Dual, tables: Dual, dense: int, befores: Dual, moved: bool, work: DualWork
) -> None:
    """Write beta = rows s and mass = alpha rows with derivatives, by matrix products (bigrams).

    Only for the states with one entry per context.
    """
    (alpha, dalpha), (table, dtable), (before, dbefore) = alphas, tables, befores
    (rows, drows), (mass, dmass) = work.rows, work.mass
    contexts = len(table)
    if dense == 0:
        fill(mass.reshape(-1), 0.0)
        fill(dmass.reshape(-1), 0.0)
        return
    entry = dense * contexts
    left, dleft = alpha[:entry].reshape(dense, contexts), dalpha[:entry].reshape(dense, contexts)
    back, dback = before[:entry].reshape(dense, contexts), dbefore[:entry].reshape(dense, contexts)
    np.dot(drows[:dense], table.T, dback)
    if moved:
        np.dot(rows[:dense], dtable.T, back)
        _add(dback, back)
    np.dot(rows[:dense], table.T, back)
    np.dot(left.T, drows[:dense], mass)
    np.dot(dleft.T, rows[:dense], dmass)
    _add(dmass, mass)
    np.dot(left.T, rows[:dense], mass)


@part_kernel
def _add(left: FloatArray, right: FloatArray) -> None:
    """Add `right` to `left`."""
    for i in range(left.shape[0]):
        for j in range(left.shape[1]):
            left[i, j] += right[i, j]


@sum_part_kernel
def _plain_masses(alphas: Dual, tables: Dual, befores: Dual, work: DualWork) -> None:
    """Do the same as `_bigram_masses` by loops, for any order; all states have all contexts."""
    (alpha, dalpha), (table, dtable), (before, dbefore) = alphas, tables, befores
    (rows, drows), (mass, dmass) = work.rows, work.mass
    contexts, n = table.shape
    younger = rows.shape[1] // n
    for k in range(contexts):
        r = (k % younger) * n
        for b in range(n):
            mass[k, b], dmass[k, b] = 0.0, 0.0
        for s in range(len(alpha) // contexts):
            own, down = alpha[s * contexts + k], dalpha[s * contexts + k]
            total, dtotal = 0.0, 0.0
            if own != 0.0:
                for b in range(n):
                    way, dway = rows[s, r + b], drows[s, r + b]
                    total += table[k, b] * way
                    dtotal += table[k, b] * dway + dtable[k, b] * way
                for b in range(n):
                    way, dway = rows[s, r + b], drows[s, r + b]
                    mass[k, b] += own * way
                    dmass[k, b] += own * dway + down * way
            before[s * contexts + k], dbefore[s * contexts + k] = total, dtotal
