"""Kernels of belief propagation between nodes and larger factors, in the log domain.

`said[slot]` is the message of a factor to one of its nodes, maximum 0; `pre` is what the node says
to the factor: its total less that message.
"""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel, part_kernel
from fstgrad.mrf.arrays import Factors
from fstgrad.mrf.kernels.messages import TINY, damped, without


@kernel
def add_said(factors: Factors, said: FloatArray, total: FloatArray) -> None:
    """Add the messages of all factors to the totals of their nodes."""
    for slot in range(len(factors.scope)):
        for c in range(factors.size[slot]):
            total[factors.scope[slot], c] += said[slot, c]


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
    factors: Factors, f: int, total: FloatArray, said: FloatArray, pre: FloatArray,
    digits: IntArray, scores: FloatArray,
) -> float:  # fmt: skip
    """Write table + sum of pre for every cell of a factor; return the largest."""
    first, last = factors.first[f], factors.first[f + 1]
    for slot in range(first, last):
        without(total, factors.scope[slot], said, slot, pre[slot - first])
    digits[:] = 0
    top = -np.inf
    for at in range(factors.cell[f + 1] - factors.cell[f]):
        score = factors.table[factors.cell[f] + at]
        for k in range(last - first):
            score += pre[k, digits[k]]
        scores[at] = score
        top = max(top, score)
        step(factors, f, digits)
    return float(top)


@kernel
def flood_factors(
    low: int,
    high: int,
    factors: Factors,
    total: FloatArray,
    said: FloatArray,
    damping: float,
    maximum: int,
    fresh: FloatArray,
) -> float:
    """Update the messages of factors low .. high - 1; return the largest change, -1 if dead.

    said[x] = log sum over the cells with label x of exp(score - pre[x]).
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
        top = cell_scores(factors, f, total, said, pre, digits, scores)
        if top == -np.inf:
            return -1.0
        best[:] = -np.inf
        mass[:] = 0.0
        digits[:] = 0
        for at in range(cells[f]):
            if scores[at] > -np.inf:
                weight = np.exp(scores[at] - top) if maximum == 0 else 0.0
                for k in range(number):
                    best[k, digits[k]] = max(best[k, digits[k]], scores[at])
                    mass[k, digits[k]] += weight
            step(factors, f, digits)
        for k in range(number):
            out = fresh[first + k]
            out[:] = -np.inf
            peak = -np.inf
            for c in range(factors.size[first + k]):
                if best[k, c] == -np.inf:
                    continue
                if maximum == 1:
                    out[c] = best[k, c] - pre[k, c]
                elif mass[k, c] > TINY:
                    out[c] = top + np.log(mass[k, c]) - pre[k, c]
                else:
                    out[c] = _slice_sum(factors, f, k, c, scores, best[k, c]) - pre[k, c]
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
def factor_beliefs(factors: Factors, total: FloatArray, said: FloatArray, out: FloatArray) -> float:
    """Write the beliefs of all cells; return the sum of the log-normalizers of the factors."""
    value = 0.0
    for f in range(len(factors.first) - 1):
        number = factors.first[f + 1] - factors.first[f]
        pre, digits = np.empty((number, total.shape[1])), np.zeros(number, np.int64)
        cells = out[factors.cell[f] : factors.cell[f + 1]]
        top = cell_scores(factors, f, total, said, pre, digits, cells)
        norm = 0.0
        for at in range(len(cells)):
            cells[at] = np.exp(cells[at] - top)
            norm += cells[at]
        for at in range(len(cells)):
            cells[at] /= norm
        value += top + np.log(norm)
    return value
