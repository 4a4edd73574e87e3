"""Kernel of naive mean field."""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.kernels.compiler import kernel


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
