"""Kernels of belief propagation between nodes and larger factors, in the log domain.

factor_to_variable[slot] (C,) is the message of a factor to the node of the slot, in nats, maximum
0, and cavity[k] (C,) is the message back from the k-th node of the factor, its total minus that
message (Kschischang, Frey and Loeliger 2001).  A message
enters `total` (I, C) times rho[slot], which is 1 in belief propagation and, in tree-reweighted
message passing, the share of the trees that contain the link.  With k running over the nodes of a
factor,

    scores[cell] = table[cell] + sum_k rho_k * cavity_k[label of node k in the cell]
    factor_to_variable_k[x] = log sum over cells with label x of node k of exp(scores[cell])
                              - cavity_k[x]

and then the maximum of factor_to_variable_k is subtracted.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.mrf.arrays import Factors
from fstgrad.mrf.kernels.bp_log import TINY, cavity_scores, damp


@kernel
def add_messages(
    factors: Factors, rho: FloatArray, factor_to_variable: FloatArray, total: FloatArray
) -> None:
    """Add rho * factor_to_variable (slots, C) to the total (I, C) of each slot's node, in place."""
    for slot in range(len(factors.scope)):
        for c in range(factors.size[slot]):
            total[factors.scope[slot], c] += rho[slot] * factor_to_variable[slot, c]


@part_kernel
def next_cell(factors: Factors, f: int, digits: IntArray) -> None:
    """Advance `digits` (arity,), the labels of the nodes of factor f, to the next cell.

    The last node runs fastest; after the last cell all labels are 0 again.
    """
    first = factors.first[f]
    for k in range(len(digits) - 1, -1, -1):
        digits[k] += 1
        if digits[k] < factors.size[first + k]:
            return
        digits[k] = 0


@part_kernel
def cell_scores(
    factors: Factors, f: int, rho: FloatArray, total: FloatArray, factor_to_variable: FloatArray,
    cavity: FloatArray, digits: IntArray, scores: FloatArray,
) -> float:  # fmt: skip
    """Write the score of every cell of factor f, and the rows `cavity` of its nodes.

    scores (cells,) = table + sum_k rho_k cavity_k; cavity (>= arity, C).  Returns the largest
    score.  `digits` (arity,) is scratch memory.
    """
    first, last = factors.first[f], factors.first[f + 1]
    for slot in range(first, last):
        cavity_scores(total, factors.scope[slot], factor_to_variable, slot, cavity[slot - first])
        cavity[slot - first] *= rho[slot]
    for at in range(factors.cell[f + 1] - factors.cell[f]):
        scores[at] = factors.table[factors.cell[f] + at]
    top = add_rows(factors, f, cavity, digits, scores)
    for slot in range(first, last):
        cavity[slot - first] /= rho[slot]
    return top


@kernel
def all_cell_scores(
    factors: Factors,
    rho: FloatArray,
    total: FloatArray,
    factor_to_variable: FloatArray,
    cells: FloatArray,
) -> None:
    """Write table + sum_k rho_k cavity_k of all cells of all factors to `cells` (cells,)."""
    for f in range(len(factors.first) - 1):
        number = factors.first[f + 1] - factors.first[f]
        cavity, digits = empty((number, total.shape[1])), np.zeros(number, np.int64)
        own = cells[factors.cell[f] : factors.cell[f + 1]]
        cell_scores(factors, f, rho, total, factor_to_variable, cavity, digits, own)


@part_kernel
def add_rows(
    factors: Factors, f: int, rows: FloatArray, digits: IntArray, scores: FloatArray
) -> float:
    """Add sum_k rows[k, label of node k] to the score of every cell of factor f, in place.

    Returns the largest score.  rows (>= arity, C); scores (cells,); `digits` (arity,) is scratch.
    """
    digits[:] = 0
    top = -np.inf
    for at in range(factors.cell[f + 1] - factors.cell[f]):
        for k in range(len(digits)):
            scores[at] += rows[k, digits[k]]
        top = max(top, scores[at])
        next_cell(factors, f, digits)
    return float(top)


@part_kernel
def label_sums(
    factors: Factors, f: int, scores: FloatArray, top: float, maximum: int, digits: IntArray,
    out: FloatArray, mass: FloatArray,
) -> None:  # fmt: skip
    """Write out[k, c] = log sum of exp(scores[cell]) over the cells in which node k has label c.

    maximum = 1 writes the largest score instead; -inf if no cell is allowed.  `top` is the largest
    score of the factor, above -inf.  out (>= arity, C); `mass` (same shape) and `digits` (arity,)
    are scratch memory.
    """
    out[:] = -np.inf
    mass[:] = 0.0
    digits[:] = 0
    for at in range(factors.cell[f + 1] - factors.cell[f]):
        if scores[at] > -np.inf:
            weight = np.exp(scores[at] - top) if maximum == 0 else 0.0
            for k in range(len(digits)):
                out[k, digits[k]] = max(out[k, digits[k]], scores[at])
                mass[k, digits[k]] += weight
        next_cell(factors, f, digits)
    for k in range(len(digits) if maximum == 0 else 0):
        for c in range(factors.size[factors.first[f] + k]):
            if mass[k, c] > TINY:
                out[k, c] = top + np.log(mass[k, c])
            elif out[k, c] > -np.inf:
                out[k, c] = _slice_sum(factors, f, k, c, scores, out[k, c])


@kernel
def flood(
    low: int,
    high: int,
    factors: Factors,
    rho: FloatArray,
    total: FloatArray,
    factor_to_variable: FloatArray,
    damping: float,
    maximum: int,
    fresh: FloatArray,
) -> float:
    """Write the new messages of factors low .. high - 1 to `fresh`, damped as in `bp_log.damp`.

    The equation is that of the module; maximum = 1 takes the largest term instead of the sum.
    total (I, C); factor_to_variable, fresh (slots, C).  Returns the largest change in nats before
    damping, or -1 if a factor has no allowed cell.
    """
    arity = np.diff(factors.first)
    most = 0 if len(arity) == 0 else arity.max()
    cells = np.diff(factors.cell)
    scores = empty(0 if len(cells) == 0 else cells.max())
    cavity = empty((most, total.shape[1]))
    best, mass = empty_like(cavity), empty_like(cavity)
    worst = 0.0
    for f in range(low, high):
        first, number = factors.first[f], arity[f]
        digits = np.zeros(number, np.int64)
        top = cell_scores(factors, f, rho, total, factor_to_variable, cavity, digits, scores)
        if top == -np.inf:
            return -1.0
        label_sums(factors, f, scores, top, maximum, digits, best, mass)
        for k in range(number):
            out = fresh[first + k]
            out[:] = -np.inf
            peak = -np.inf
            for c in range(factors.size[first + k]):
                if best[k, c] > -np.inf:
                    out[c] = best[k, c] - cavity[k, c]
                    peak = max(peak, out[c])
            for c in range(factors.size[first + k]):
                out[c] -= peak
            worst = max(worst, damp(fresh, factor_to_variable, first + k, damping))
    return worst


@part_kernel
def _slice_sum(
    factors: Factors, f: int, k: int, label: int, scores: FloatArray, top: float
) -> float:
    """Return the log-sum-exp of the scores of the cells in which node k has `label`.

    `top`, above -inf, is the largest of these scores.
    """
    slot = factors.first[f] + k
    total = 0.0
    for at in range(factors.cell[f + 1] - factors.cell[f]):
        if (at // factors.stride[slot]) % factors.size[slot] == label:
            total += np.exp(scores[at] - top)
    return float(top + np.log(total))


@kernel
def factor_beliefs(
    factors: Factors,
    rho: FloatArray,
    total: FloatArray,
    factor_to_variable: FloatArray,
    out: FloatArray,
) -> float:
    """Write the beliefs of all cells; return the sum of the log-normalizers of the factors (nats).

    out[cell] = exp(scores[cell]) / sum over the cells of its factor, with `scores` of the module.
    """
    value = 0.0
    for f in range(len(factors.first) - 1):
        number = factors.first[f + 1] - factors.first[f]
        cavity, digits = empty((number, total.shape[1])), np.zeros(number, np.int64)
        cells = out[factors.cell[f] : factors.cell[f + 1]]
        top = cell_scores(factors, f, rho, total, factor_to_variable, cavity, digits, cells)
        norm = 0.0
        for at in range(len(cells)):
            cells[at] = np.exp(cells[at] - top)
            norm += cells[at]
        for at in range(len(cells)):
            cells[at] /= norm
        value += top + np.log(norm)
    return value
