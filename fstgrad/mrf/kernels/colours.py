"""Kernels that draw the labels of the nodes of an edge list, colour class by colour class.

The arcs lie in the order in which they are read: site t has the arcs start[t] .. start[t + 1] - 1,
and head[a] is the neighbour that arc a runs to.  Sweep k reads the random numbers from
`counter` + k * `room`.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel
from fstgrad.mrf.arrays import Pieces, Sites
from fstgrad.mrf.kernels.forests import choose
from fstgrad.mrf.kernels.sites import site_scores, uniform

TINY = 1e-200
STEPS = 16  # entries of a table of the logistic function for each nat
REACH = 40
ONE = np.uint64(1)


class Range(NamedTuple):
    """The sites low .. high - 1, drawn in some sweeps with the numbers of a key."""

    low: int
    high: int
    sweeps: int
    key: int
    counter: int
    room: int


def logistic_table() -> FloatArray:
    """Return 1 / (1 + e^x) at x = -REACH, -REACH + 1 / STEPS, ..., REACH."""
    return 1 / (1 + np.exp(np.arange(-REACH * STEPS, REACH * STEPS + 1) / STEPS))


@kernel
def draw_binary(
    r: Range, s: Sites, own: FloatArray, gain: FloatArray, table: FloatArray, labels: IntArray
) -> None:
    """Draw labels 0 and 1 for the sites of a range.

    own[t] and gain[a, y] are scores of label 1 less those of label 0: the node's, and what arc a
    adds where the neighbour has label y.  P(0) = 1 / (1 + e^x) falls, so two entries of its table
    enclose it; the exponential is taken only where the random number lies between them.  Which
    label it is decides no branch, for nobody can foretell it; unsigned indices need no test of
    their sign.
    """
    for sweep in range(r.sweeps):
        counter = r.counter + sweep * r.room
        for t in range(np.uint64(r.low), np.uint64(r.high)):
            x = own[t]
            for a in range(np.uint64(s.start[t]), np.uint64(s.start[t + ONE])):
                x += gain[a, np.uint64(labels[np.uint64(s.head[a])])]
            i = np.uint64(s.node[t])
            u = uniform(r.key, counter + s.node[t])
            at = (x + REACH) * STEPS
            if 0.0 <= at < 2 * REACH * STEPS:
                below = np.uint64(at)
                least, most = table[below + ONE], table[below]
                if (u < least) | (u >= most):
                    labels[i] = u >= most
                    continue
            labels[i] = 0 if u * (1.0 + np.exp(x)) < 1.0 else 1


@kernel
def draw_many(
    r: Range, s: Sites, weight: FloatArray, table: FloatArray, m: Pieces, labels: IntArray
) -> None:
    """Draw labels for the sites of a range.

    weight (I, C) = exp(node score - maximum), table[which[a], y] what arc a multiplies where the
    neighbour has label y.  Products that leave the float range are drawn from the scores `m`.
    """
    size = weight.shape[1]
    p, score = np.empty(size), np.empty(size)
    for sweep in range(r.sweeps):
        counter = r.counter + sweep * r.room
        for t in range(r.low, r.high):
            i = s.node[t]
            for c in range(size):
                p[c] = weight[i, c]
            for a in range(s.start[t], s.start[t + 1]):
                w, y = s.which[a], labels[s.head[a]]
                for c in range(size):
                    p[c] *= table[w, y, c]
            total = 0.0
            for c in range(size):
                total += p[c]
            u = uniform(r.key, counter + i)
            if not total >= TINY:
                site_scores(i, m, labels, score)
                labels[i] = choose(score, u)
                continue
            left, chosen = u * total, 0
            for c in range(size - 1):
                left -= p[c]
                chosen += left >= 0.0
            labels[i] = chosen
