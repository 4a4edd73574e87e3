"""Kernels of belief propagation between nodes and larger factors, in the log domain.

`said[slot]` is the message of a factor to one of its nodes, maximum 0; `pre` is what the node says
to the factor: its total less that message.  Each message counts with the weight `rho` of its slot,
1 in belief propagation, the share of the trees that hold the link in tree-reweighted messages.
"""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel, part_kernel
from fstgrad.mrf.arrays import Factors
from fstgrad.mrf.kernels.messages import TINY, damped, without


@kernel
def add_said(factors: Factors, rho: FloatArray, said: FloatArray, total: FloatArray) -> None:
    """Add the messages of all factors to the totals of their nodes."""
    for slot in range(len(factors.scope)):
        for c in range(factors.size[slot]):
            total[factors.scope[slot], c] += rho[slot] * said[slot, c]


@kernel
def step(factors: Factors, f: int, digits: IntArray) -> None:
    """Move the labels of a factor's nodes to the next cell."""
    first = factors.first[f]
    for k in range(len(digits) - 1, -1, -1):
        digits[k] += 1
        if digits[k] < factors.size[first + k]:
            return
        digits[k] = 0


@kernel
def cell_scores(
    factors: Factors, f: int, rho: FloatArray, total: FloatArray, said: FloatArray,
    pre: FloatArray, digits: IntArray, scores: FloatArray,
) -> float:  # fmt: skip
    """Write table + sum of rho pre for every cell of a factor; return the largest."""
    first, last = factors.first[f], factors.first[f + 1]
    for slot in range(first, last):
        without(total, factors.scope[slot], said, slot, pre[slot - first])
        pre[slot - first] *= rho[slot]
    for at in range(factors.cell[f + 1] - factors.cell[f]):
        scores[at] = factors.table[factors.cell[f] + at]
    top = add_rows(factors, f, pre, digits, scores)
    for slot in range(first, last):
        pre[slot - first] /= rho[slot]
    return top


@kernel
def all_cell_scores(
    factors: Factors, rho: FloatArray, total: FloatArray, said: FloatArray, cells: FloatArray
) -> None:
    """Write the scores of all cells of all factors with what their nodes say."""
    for f in range(len(factors.first) - 1):
        number = factors.first[f + 1] - factors.first[f]
        pre, digits = np.empty((number, total.shape[1])), np.zeros(number, np.int64)
        own = cells[factors.cell[f] : factors.cell[f + 1]]
        cell_scores(factors, f, rho, total, said, pre, digits, own)


@kernel
def add_rows(
    factors: Factors, f: int, rows: FloatArray, digits: IntArray, scores: FloatArray
) -> float:
    """Add to every cell of a factor the sum of its nodes' rows; return the largest."""
    digits[:] = 0
    top = -np.inf
    for at in range(factors.cell[f + 1] - factors.cell[f]):
        for k in range(len(digits)):
            scores[at] += rows[k, digits[k]]
        top = max(top, scores[at])
        step(factors, f, digits)
    return float(top)


@kernel
def label_sums(
    factors: Factors, f: int, scores: FloatArray, top: float, maximum: int, digits: IntArray,
    out: FloatArray, mass: FloatArray,
) -> None:  # fmt: skip
    """Write out[k, c], the log-sum-exp or maximum of the scores of the cells with node k at c.

    `top` is the largest score, above -inf; `mass` is scratch.
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
        step(factors, f, digits)
    for k in range(len(digits) if maximum == 0 else 0):
        for c in range(factors.size[factors.first[f] + k]):
            if mass[k, c] > TINY:
                out[k, c] = top + np.log(mass[k, c])
            elif out[k, c] > -np.inf:
                out[k, c] = _slice_sum(factors, f, k, c, scores, out[k, c])


@kernel
def flood_factors(
    low: int,
    high: int,
    factors: Factors,
    rho: FloatArray,
    total: FloatArray,
    said: FloatArray,
    damping: float,
    maximum: int,
    fresh: FloatArray,
) -> float:
    """Update the messages of factors low .. high - 1; return the largest change, -1 if dead.

    said[x] = log sum over the cells with label x of exp(table + sum of rho pre - pre[x]).
    """
    arity = np.diff(factors.first)
    most = 0 if len(arity) == 0 else arity.max()
    cells = np.diff(factors.cell)
    scores = np.empty(0 if len(cells) == 0 else cells.max())
    pre = np.empty((most, total.shape[1]))
    best, mass = np.empty_like(pre), np.empty_like(pre)
    worst = 0.0
    for f in range(low, high):
        first, number = factors.first[f], arity[f]
        digits = np.zeros(number, np.int64)
        top = cell_scores(factors, f, rho, total, said, pre, digits, scores)
        if top == -np.inf:
            return -1.0
        label_sums(factors, f, scores, top, maximum, digits, best, mass)
        for k in range(number):
            out = fresh[first + k]
            out[:] = -np.inf
            peak = -np.inf
            for c in range(factors.size[first + k]):
                if best[k, c] > -np.inf:
                    out[c] = best[k, c] - pre[k, c]
                    peak = max(peak, out[c])
            for c in range(factors.size[first + k]):
                out[c] -= peak
            worst = max(worst, damped(fresh, said, first + k, damping))
    return worst


@part_kernel
def _slice_sum(
    factors: Factors, f: int, k: int, label: int, scores: FloatArray, top: float
) -> float:
    """Return the log-sum-exp of the scores of the cells in which node k has a label."""
    slot = factors.first[f] + k
    total = 0.0
    for at in range(factors.cell[f + 1] - factors.cell[f]):
        if (at // factors.stride[slot]) % factors.size[slot] == label:
            total += np.exp(scores[at] - top)
    return float(top + np.log(total))


@kernel
def factor_beliefs(
    factors: Factors, rho: FloatArray, total: FloatArray, said: FloatArray, out: FloatArray
) -> float:
    """Write the beliefs of all cells; return the sum of the log-normalizers of the factors."""
    value = 0.0
    for f in range(len(factors.first) - 1):
        number = factors.first[f + 1] - factors.first[f]
        pre, digits = np.empty((number, total.shape[1])), np.zeros(number, np.int64)
        cells = out[factors.cell[f] : factors.cell[f + 1]]
        top = cell_scores(factors, f, rho, total, said, pre, digits, cells)
        norm = 0.0
        for at in range(len(cells)):
            cells[at] = np.exp(cells[at] - top)
            norm += cells[at]
        for at in range(len(cells)):
            cells[at] /= norm
        value += top + np.log(norm)
    return value
