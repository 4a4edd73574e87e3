"""Kernel of cluster sampling: bonds between neighbours, clusters of bonds, a label for each.

Let d be the strength of an edge, in nats.  A labeling satisfies the edge if the two labels agree
(d > 0) or differ (d <= 0).  A satisfied edge gets a bond with probability 1 - e^-|d|.  Given the
bonds, the ends of a bond must keep their relation, and an edge without a bond scores |d| less if it
is satisfied.  The clusters are the components of the bonds; each is drawn in turn from its
conditional distribution given the labels of the others.

`strength` is (E,) or (1,); `labels` (I,) int64 is changed in place.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.mrf.arrays import ModelScores
from fstgrad.mrf.kernels.forests import choose
from fstgrad.mrf.kernels.graphs import find
from fstgrad.mrf.kernels.sites import uniform


@part_kernel
def bonded(
    key: int, counter: int, m: ModelScores, strength: FloatArray, labels: IntArray, root: IntArray
) -> None:
    """Draw the bonds; write a representative node of each node's cluster to root (I,).

    Edge e uses the random number at counter + e.
    """
    source = m.outgoing.source
    for i in range(len(root)):
        root[i] = i
    for e in range(len(source) // 2):
        d = strength[e if len(strength) > 1 else 0]
        i, j = source[2 * e], source[2 * e + 1]
        agree = labels[i] == labels[j]
        satisfied = agree if d > 0 else not agree
        if satisfied and uniform(key, counter + e) < -np.expm1(-abs(d)):
            root[find(root, i)] = find(root, j)
    for i in range(len(root)):
        root[i] = find(root, i)


@kernel
def cluster_sweep(
    key: int, counter: int, m: ModelScores, strength: FloatArray, labels: IntArray
) -> None:
    """Draw bonds and then a new label for every cluster, given the labels of all others.

    Edge e uses the random number at counter + e, the cluster of root r that at counter + E + r.
    With two labels, a cluster keeps its labels or flips all of them; with more, all its nodes get
    the same label.
    """
    nodes, size = m.node.shape
    source, edges = m.outgoing.source, len(m.outgoing.source) // 2
    root, score = empty(nodes, np.int64), empty(size)
    bonded(key, counter, m, strength, labels, root)
    start = np.zeros(nodes + 1, np.int64)  # members[start[r]:start[r + 1]] have the root r
    for i in range(nodes):
        start[root[i] + 1] += 1
    for i in range(nodes):
        start[i + 1] += start[i]
    members, used = empty(nodes, np.int64), start[:-1].copy()
    for i in range(nodes):
        members[used[root[i]]] = i
        used[root[i]] += 1
    for r in range(nodes):
        if start[r] == start[r + 1]:
            continue
        score[:] = 0.0
        for at in range(start[r], start[r + 1]):
            i = members[at]
            flip = 1 if size == 2 and labels[i] != labels[r] else 0
            for c in range(size):
                score[c] += m.node[i, c ^ flip]
            for slot in range(m.outgoing.start[i], m.outgoing.start[i + 1]):
                arc = m.outgoing.leaving[slot]
                e, j = arc >> 1, source[arc ^ 1]
                k = e if len(m.edge) > 1 else 0
                if root[j] == r:
                    if arc & 1 == 0:  # an edge within the cluster counts once
                        other = 1 if size == 2 and labels[j] != labels[r] else 0
                        for c in range(size):
                            score[c] += m.edge[k, c ^ flip, c ^ other]
                    continue
                d, y = strength[e if len(strength) > 1 else 0], labels[j]
                for c in range(size):
                    own = c ^ flip
                    score[c] += m.edge[k, y, own] if arc & 1 else m.edge[k, own, y]
                    if (own == y) == (d > 0):
                        score[c] -= abs(d)
        drawn = choose(score, uniform(key, counter + edges + r))
        change = drawn ^ labels[r] if size == 2 else 0
        for at in range(start[r], start[r + 1]):
            i = members[at]
            labels[i] = labels[i] ^ change if size == 2 else drawn
