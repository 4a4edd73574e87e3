"""Kernels that set one node at a time to its best value: mean field and ICM."""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel
from fstgrad.mrf.arrays import Factors, Pieces
from fstgrad.mrf.kernels.sites import site_scores


@kernel
def expected_scores(i: int, m: Pieces, q: FloatArray, score: FloatArray) -> None:
    """Write the scores of the labels of node i, the labels of all others drawn from q.

    0 * inf = 0.
    """
    size = m.node.shape[1]
    score[:] = m.node[i]
    for at in range(m.shape.start[i], m.shape.start[i + 1]):
        arc = m.shape.leaving[at]
        j = m.shape.source[arc ^ 1]
        k = arc >> 1 if len(m.edge) > 1 else 0
        for c in range(size):
            for d in range(size):
                if q[j, d] > 0:
                    score[c] += q[j, d] * (m.edge[k, d, c] if arc & 1 else m.edge[k, c, d])
    for at in range(m.factors.near_start[i], m.factors.near_start[i + 1]):
        slot = m.factors.near[at]
        f = m.factors.owner[slot]
        for cell in range(m.factors.cell[f], m.factors.cell[f + 1]):
            weight = 1.0
            for other in range(m.factors.first[f], m.factors.first[f + 1]):
                if other != slot and weight > 0:
                    weight *= q[m.factors.scope[other], label_at(m.factors, cell, other)]
            if weight > 0:
                score[label_at(m.factors, cell, slot)] += weight * m.factors.table[cell]


@kernel
def all_expected_scores(m: Pieces, q: FloatArray, out: FloatArray) -> None:
    """Write the expected scores of the labels of every node."""
    for i in range(len(m.node)):
        expected_scores(i, m, q, out[i])


@kernel
def factor_products(factors: Factors, q: FloatArray, out: FloatArray) -> None:
    """Write the probability of every cell of every factor, its nodes drawn from q."""
    for f in range(len(factors.first) - 1):
        for cell in range(factors.cell[f], factors.cell[f + 1]):
            out[cell] = 1.0
            for slot in range(factors.first[f], factors.first[f + 1]):
                out[cell] *= q[factors.scope[slot], label_at(factors, cell, slot)]


@kernel
def label_at(factors: Factors, cell: int, slot: int) -> int:
    """Return the label that a cell of a factor gives to the node of a slot."""
    place = cell - factors.cell[factors.owner[slot]]
    return int((place // factors.stride[slot]) % factors.size[slot])


@kernel
def ascend(
    m: Pieces,
    q: FloatArray,
) -> float:
    """Set each q[i] to its best value given the others; return the largest change, -1 if none is.

    q[i, c] is proportional to exp(node[i, c] + sum over neighbours of E[edge score]), 0 * inf = 0.
    """
    size = m.node.shape[1]
    score = np.empty(size)
    worst = 0.0
    for i in range(len(m.node)):
        expected_scores(i, m, q, score)
        top = score.max()
        if top == -np.inf:
            return -1.0
        norm = 0.0
        for c in range(size):
            score[c] = np.exp(score[c] - top)
            norm += score[c]
        for c in range(size):
            worst = max(worst, abs(score[c] / norm - q[i, c]))
            q[i, c] = score[c] / norm
    return worst


@kernel
def improve(
    m: Pieces,
    labels: IntArray,
) -> int:
    """Set each label to the best one given the others; return how many changed."""
    score = np.empty(m.node.shape[1])
    changed = 0
    for i in range(len(m.node)):
        site_scores(i, m, labels, score)
        best = int(np.argmax(score))
        if score[best] > score[labels[i]]:
            labels[i] = best
            changed += 1
    return changed
