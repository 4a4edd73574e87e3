"""Kernels that set one node at a time to its best value: mean field and ICM."""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import inner_kernel, kernel, part_kernel
from fstgrad.mrf.arrays import Factors, Pieces, Shape
from fstgrad.mrf.kernels.sites import site_scores


@inner_kernel
def _expected_scores(
    i: int, shape: Shape, node: FloatArray, edge: FloatArray, q: FloatArray, score: FloatArray
) -> None:
    """Write the scores of the labels of node i, the labels of all others drawn from q.

    Larger factors are left out; 0 * inf = 0.
    """
    start, leaving, source = shape
    size, own = node.shape[1], len(edge) > 1
    for c in range(size):
        score[c] = node[i, c]
    for at in range(start[i], start[i + 1]):
        arc = leaving[at]
        j = source[arc ^ 1]
        k = arc >> 1 if own else 0
        for d in range(size):
            weight = q[j, d]
            if weight > 0 and arc & 1:
                for c in range(size):
                    score[c] += weight * edge[k, d, c]
            elif weight > 0:
                for c in range(size):
                    score[c] += weight * edge[k, c, d]


@part_kernel
def _add_expected_factors(i: int, factors: Factors, q: FloatArray, score: FloatArray) -> None:
    """Add the expected scores of the larger factors of node i."""
    first, bounds, scope, table = factors.first, factors.cell, factors.scope, factors.table
    for at in range(factors.near_start[i], factors.near_start[i + 1]):
        slot = factors.near[at]
        f = factors.owner[slot]
        for cell in range(bounds[f], bounds[f + 1]):
            weight = 1.0
            for other in range(first[f], first[f + 1]):
                if other != slot and weight > 0:
                    weight *= q[scope[other], label_at(factors, cell, other)]
            if weight > 0:
                score[label_at(factors, cell, slot)] += weight * table[cell]


@kernel
def all_expected_scores(m: Pieces, q: FloatArray, out: FloatArray) -> None:
    """Write the expected scores of the labels of every node."""
    shape, node, edge, factors = m
    for i in range(len(node)):
        _expected_scores(i, shape, node, edge, q, out[i])
        _add_expected_factors(i, factors, q, out[i])


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
    shape, node, edge, factors = m
    size, larger = node.shape[1], len(factors.scope) > 0
    score = np.empty(size)
    worst = 0.0
    for i in range(len(node)):
        _expected_scores(i, shape, node, edge, q, score)
        if larger:
            _add_expected_factors(i, factors, q, score)
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
    nodes, size = m.node.shape
    score = np.empty(size)
    changed = 0
    for i in range(nodes):
        site_scores(i, m, labels, score)
        best = int(np.argmax(score))
        if score[best] > score[labels[i]]:
            labels[i] = best
            changed += 1
    return changed
