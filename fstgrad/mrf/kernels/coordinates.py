"""Kernels that set one node at a time to its best value: mean field and ICM."""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel
from fstgrad.mrf.kernels.sites import site_scores


@kernel
def ascend(
    start: IntArray,
    leaving: IntArray,
    source: IntArray,
    node: FloatArray,
    edge: FloatArray,
    q: FloatArray,
) -> float:
    """Set each q[i] to its best value given the others; return the largest change, -1 if none is.

    q[i, c] is proportional to exp(node[i, c] + sum over neighbours of E[edge score]), 0 * inf = 0.
    """
    size = node.shape[1]
    score = np.empty(size)
    worst = 0.0
    for i in range(len(node)):
        score[:] = node[i]
        for at in range(start[i], start[i + 1]):
            arc = leaving[at]
            j = source[arc ^ 1]
            k = arc >> 1 if len(edge) > 1 else 0
            for c in range(size):
                for d in range(size):
                    if q[j, d] > 0:
                        score[c] += q[j, d] * (edge[k, d, c] if arc & 1 else edge[k, c, d])
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
    start: IntArray,
    leaving: IntArray,
    source: IntArray,
    node: FloatArray,
    edge: FloatArray,
    labels: IntArray,
) -> int:
    """Set each label to the best one given the others; return how many changed."""
    score = np.empty(node.shape[1])
    changed = 0
    for i in range(len(node)):
        site_scores(i, start, leaving, source, node, edge, labels, score)
        best = int(np.argmax(score))
        if score[best] > score[labels[i]]:
            labels[i] = best
            changed += 1
    return changed
