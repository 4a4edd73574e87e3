"""Kernels of site-wise sampling and of the pseudolikelihood.

The score of label c of node i, given the labels y of all other nodes, is

    score[c] = node[i, c] + sum over neighbours j of edge_ij[c, y_j] + sum over factors f of
               table_f[c, other labels],           P(c | others) = softmax(score)[c].

Each random number is a function of (key, counter), so a sample does not depend on the order in
which threads visit sites: `uniform` mixes key + (counter + 1) * 0x9E3779B97F4A7C15 as SplitMix64
does (Steele, Lea and Flood 2014).  `labels` is int64, (I,) or, on a grid, (height, width).
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.mrf.arrays import Factors, GridScores, ModelScores
from fstgrad.mrf.kernels.forests import choose

TINY = 1e-200


@part_kernel
def uniform(key: int, counter: int) -> float:
    """Return the pseudorandom number in [0, 1) of a key and a counter, a multiple of 2^-53."""
    z = np.uint64(key) + (np.uint64(counter) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.float64(z >> np.uint64(11)) * 2.0**-53


@kernel
def fill_uniform(key: int, counter: int, out: FloatArray) -> None:
    """Write out[i] = uniform(key, counter + i)."""
    for i in range(len(out)):
        out[i] = uniform(key, counter + i)


@inner_kernel
def site_scores(
    i: int,
    m: ModelScores,
    labels: IntArray,
    out: FloatArray,
) -> None:
    """Write the scores out (C,) of the labels of node i, given the labels of all other nodes."""
    node, edge, leaving, source = m.node, m.edge, m.outgoing.leaving, m.outgoing.source
    for c in range(len(out)):
        out[c] = node[i, c]
    for at in range(m.outgoing.start[i], m.outgoing.start[i + 1]):
        arc = leaving[at]
        other = labels[source[arc ^ 1]]
        k = arc >> 1 if len(edge) > 1 else 0
        if arc & 1:
            for c in range(len(out)):
                out[c] += edge[k, other, c]
        else:
            for c in range(len(out)):
                out[c] += edge[k, c, other]
    for at in range(m.factors.near_start[i], m.factors.near_start[i + 1]):
        slot = m.factors.near[at]
        cell = cell_without(m.factors, slot, labels)
        for c in range(m.factors.size[slot]):
            out[c] += m.factors.table[cell + c * m.factors.stride[slot]]


@inner_kernel
def cell_without(factors: Factors, slot: int, labels: IntArray) -> int:
    """Return the cell of a slot's factor that a labeling uses, with label 0 for the slot's node."""
    f = factors.owner[slot]
    cell = factors.cell[f]
    for other in range(factors.first[f], factors.first[f + 1]):
        if other != slot:
            cell += factors.stride[other] * labels[factors.scope[other]]
    return int(cell)


@kernel
def gibbs_sites(
    low: int,
    high: int,
    sites: IntArray,
    key: int,
    counter: int,
    m: ModelScores,
    labels: IntArray,
) -> None:
    """Draw new labels for sites[low:high] from P(c | others), one site after the other, in place.

    Site i uses the random number at counter + i.  If `sites` is empty, draw high - low times at a
    site chosen uniformly with replacement; step t uses counter + 2t and counter + 2t + 1.
    """
    score = empty(m.node.shape[1])
    nodes = len(m.node)
    for t in range(low, high):
        if len(sites) > 0:
            i = sites[t]
            u = uniform(key, counter + i)
        else:
            i = int(uniform(key, counter + 2 * t) * nodes)
            u = uniform(key, counter + 2 * t + 1)
        if len(score) == 2:
            gain = binary_gain(i, m, labels)
            if gain == gain:  # NaN if a score of each label is -inf: then use the log domain
                labels[i] = 0 if u * (1.0 + np.exp(gain)) < 1.0 else 1
                continue
        site_scores(i, m, labels, score)
        labels[i] = choose(score, u)


@part_kernel
def binary_gain(i: int, m: ModelScores, labels: IntArray) -> float:
    """Return score[1] - score[0] of node i, given all other labels; NaN if -inf - (-inf) occurs."""
    start, leaving, source = m.outgoing.start, m.outgoing.leaving, m.outgoing.source
    own = len(m.edge) > 1
    gain: float = m.node[i, 1] - m.node[i, 0]
    for at in range(start[i], start[i + 1]):
        arc = leaving[at]
        other = labels[source[arc ^ 1]]
        k = arc >> 1 if own else 0
        if arc & 1:
            gain += m.edge[k, other, 1] - m.edge[k, other, 0]
        else:
            gain += m.edge[k, 1, other] - m.edge[k, 0, other]
    for at in range(m.factors.near_start[i], m.factors.near_start[i + 1]):
        slot = m.factors.near[at]
        cell = cell_without(m.factors, slot, labels)
        if m.factors.size[slot] == 2:
            gain += m.factors.table[cell + m.factors.stride[slot]] - m.factors.table[cell]
    return gain


@kernel
def metropolis_steps(
    steps: int,
    key: int,
    counter: int,
    m: ModelScores,
    counts: IntArray,
    labels: IntArray,
) -> None:
    """Propose another label at a random node, `steps` times; accept with min(1, e^change).

    `change` is score[proposal] - score[label].  counts (I,) is the number of labels of each node; a
    node with one label is skipped.  Step t uses the counters counter + 3t .. counter + 3t + 2.
    """
    score = empty(m.node.shape[1])
    for t in range(steps):
        i = int(uniform(key, counter + 3 * t) * len(m.node))
        if counts[i] == 1:
            continue
        proposal = int(uniform(key, counter + 3 * t + 1) * (counts[i] - 1))
        if proposal >= labels[i]:
            proposal += 1
        site_scores(i, m, labels, score)
        change = score[proposal] - score[labels[i]]
        if np.log(uniform(key, counter + 3 * t + 2)) < change:
            labels[i] = proposal


@kernel
def grid_rows(
    low: int,
    high: int,
    parity: int,
    key: int,
    counter: int,
    scores: GridScores,
    labels: IntArray,
) -> None:
    """Draw new labels for the pixels (r, w) with (r + w) % 2 = parity in rows low .. high - 1.

    For two labels.  P(c | others) is proportional to weight[r, w, c] times `ahead` or `behind` of
    each neighbour's label; a pixel uses the random number at counter + r * width + w.  If the sum
    of these products is below TINY, the label is drawn from the scores in logs.
    """
    node, weight, ahead, behind, score = scores
    height, width = labels.shape
    for r in range(low, high):
        row = labels[r]
        above, below = labels[max(r - 1, 0)], labels[min(r + 1, height - 1)]
        for w in range((r + parity) % 2, width, 2):
            zero, one = weight[r, w, 0], weight[r, w, 1]
            if r > 0:
                zero, one = zero * ahead[above[w], 0], one * ahead[above[w], 1]
            if r + 1 < height:
                zero, one = zero * behind[below[w], 0], one * behind[below[w], 1]
            if w > 0:
                zero, one = zero * ahead[row[w - 1], 0], one * ahead[row[w - 1], 1]
            if w + 1 < width:
                zero, one = zero * behind[row[w + 1], 0], one * behind[row[w + 1], 1]
            u = uniform(key, counter + r * width + w)
            if zero + one < TINY:
                row[w] = _draw_in_logs(r, w, node, score, labels, u)
            else:
                row[w] = u * (zero + one) - zero >= 0.0


@part_kernel
def _draw_in_logs(
    r: int, w: int, node: FloatArray, score: FloatArray, labels: IntArray, u: float
) -> int:
    """Return a label for pixel (r, w), drawn with the uniform number u from its scores in logs.

    node (height, width, C), score (C, C) in nats.
    """
    height, width = labels.shape
    row = node[r, w].copy()
    for c in range(len(row)):
        if w > 0:
            row[c] += score[labels[r, w - 1], c]
        if w + 1 < width:
            row[c] += score[c, labels[r, w + 1]]
        if r > 0:
            row[c] += score[labels[r - 1, w], c]
        if r + 1 < height:
            row[c] += score[c, labels[r + 1, w]]
    return choose(row, u)


@kernel
def block_totals(
    order: IntArray,
    block: IntArray,
    m: ModelScores,
    labels: IntArray,
    total: FloatArray,
) -> None:
    """Write total[i] for the nodes i in `order`, given the labels of all nodes outside the block.

    total[i, c] = node[i, c] + the scores of i's edges and factors that leave the block.  block (I,)
    is the block of each node; no two nodes of a larger factor may be in the same block.
    """
    for i in order:
        total[i] = m.node[i]
        for at in range(m.outgoing.start[i], m.outgoing.start[i + 1]):
            arc = m.outgoing.leaving[at]
            j = m.outgoing.source[arc ^ 1]
            if block[j] != block[i]:
                k = arc >> 1 if len(m.edge) > 1 else 0
                for c in range(m.node.shape[1]):
                    total[i, c] += m.edge[k, labels[j], c] if arc & 1 else m.edge[k, c, labels[j]]
        for at in range(m.factors.near_start[i], m.factors.near_start[i + 1]):
            slot = m.factors.near[at]  # the other nodes of this factor are outside the block
            cell = cell_without(m.factors, slot, labels)
            for c in range(m.factors.size[slot]):
                total[i, c] += m.factors.table[cell + c * m.factors.stride[slot]]


@kernel
def count_parts(
    labels: IntArray, edges: IntArray, weight: float, node: FloatArray, edge: FloatArray
) -> None:
    """Add `weight` to the entries of node (I, C) and edge (K, C, C) that `labels` (I,) uses."""
    for i in range(len(node)):
        node[i, labels[i]] += weight
    for e in range(len(edges)):
        k = e if len(edge) > 1 else 0
        edge[k, labels[edges[e, 0]], labels[edges[e, 1]]] += weight


@kernel
def pseudolikelihood(
    m: ModelScores,
    labels: IntArray,
    node_gradient: FloatArray,
    edge_gradient: FloatArray,
    factor_gradient: FloatArray,
) -> float:
    """Return -sum_i log P(y_i | all others) in nats; add its gradient to the last three arguments.

    With p_i = P(. | others), node i adds p_i[c] - [c = y_i] to the gradients by the entry c of its
    node scores, edge scores and factor tables (other labels fixed).  node_gradient (I, C),
    edge_gradient (K, C, C), factor_gradient (cells,).  Returns inf if the other labels forbid every
    label of a node; the gradients are then incomplete.
    """
    size = m.node.shape[1]
    start, leaving, source = m.outgoing.start, m.outgoing.leaving, m.outgoing.source
    p = empty(size)
    value = 0.0
    for i in range(len(m.node)):
        site_scores(i, m, labels, p)
        gold = labels[i]
        gold_score = p[gold]
        top = p.max()
        if top == -np.inf:
            return np.inf
        norm = 0.0
        for c in range(size):
            p[c] = np.exp(p[c] - top)
            norm += p[c]
        for c in range(size):
            p[c] /= norm
        value += top + np.log(norm) - gold_score
        p[gold] -= 1.0
        for c in range(size):
            node_gradient[i, c] += p[c]
        for at in range(start[i], start[i + 1]):
            arc = leaving[at]
            other = labels[source[arc ^ 1]]
            k = arc >> 1 if len(edge_gradient) > 1 else 0
            if arc & 1:
                for c in range(size):
                    edge_gradient[k, other, c] += p[c]
            else:
                for c in range(size):
                    edge_gradient[k, c, other] += p[c]
        for at in range(m.factors.near_start[i], m.factors.near_start[i + 1]):
            slot = m.factors.near[at]
            cell = cell_without(m.factors, slot, labels)
            for c in range(m.factors.size[slot]):
                factor_gradient[cell + c * m.factors.stride[slot]] += p[c]
    return value
