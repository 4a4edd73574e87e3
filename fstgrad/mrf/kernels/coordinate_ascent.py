"""Kernels that set one node at a time to its best value: mean field and ICM.

Mean field sets q_i to exp(score) / sum_c exp(score[c]), where, with E over the labels of all other
nodes drawn independently from q,

    score[c] = node[i, c] + sum over neighbours j of E edge_ij[c, y_j] + sum over factors f of
               E table_f[c, other labels],      0 * -inf = 0.

q (I, C) is a row of probabilities per node.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.mrf.arrays import Factors, ModelScores, OutgoingArcs
from fstgrad.mrf.kernels.sites import site_scores


@inner_kernel
def _expected_scores(
    i: int,
    outgoing: OutgoingArcs,
    node: FloatArray,
    edge: FloatArray,
    q: FloatArray,
    score: FloatArray,
) -> None:
    """Write the expected scores (C,) of the labels of node i, without larger factors.

    score[c] = node[i, c] + sum over neighbours j and labels d of q[j, d] edge_ij[c, d].
    """
    start, leaving, source = outgoing
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
def _expected_rows(slot: int, factors: Factors, q: FloatArray, room: FloatArray) -> None:
    """Write the expected scores of a factor for each label of the node of `slot` to room[:labels].

    The nodes after the slot are summed out from the last one on, then those before it from the
    first one on.  room (most cells of a factor,) is overwritten.
    """
    f = factors.owner[slot]
    first, last, bounds = factors.first[f], factors.first[f + 1], factors.cell
    cells = bounds[f + 1] - bounds[f]
    for at in range(cells):
        room[at] = factors.table[bounds[f] + at]
    for other in range(last - 1, slot, -1):
        size, row = factors.size[other], q[factors.scope[other]]
        cells //= size
        for at in range(cells):
            total = 0.0
            for d in range(size):
                if row[d] > 0:
                    total += row[d] * room[at * size + d]
            room[at] = total
    for other in range(first, slot):
        row = q[factors.scope[other]]
        cells //= factors.size[other]
        for d in range(factors.size[other]):
            for at in range(cells):
                score = row[d] * room[d * cells + at] if row[d] > 0 else 0.0
                room[at] = score if d == 0 else room[at] + score


@part_kernel
def _add_expected_factors(
    i: int, factors: Factors, q: FloatArray, room: FloatArray, score: FloatArray
) -> None:
    """Add the expected scores of the larger factors of node i to score (C,)."""
    for at in range(factors.near_start[i], factors.near_start[i + 1]):
        slot = factors.near[at]
        _expected_rows(slot, factors, q, room)
        for c in range(factors.size[slot]):
            score[c] += room[c]


@part_kernel
def _room(factors: Factors) -> FloatArray:
    """Return scratch memory for the cells of the largest factor."""
    cells = 0
    for f in range(len(factors.first) - 1):
        cells = max(cells, factors.cell[f + 1] - factors.cell[f])
    return empty(cells)


@kernel
def add_expected_factors(factors: Factors, q: FloatArray, out: FloatArray) -> float:
    """Add the expected scores of larger factors, per node and label, to out (I, C).

    Returns sum_f E_q table_f in nats, with the nodes of a factor drawn independently from q.
    """
    room, total = _room(factors), 0.0
    for i in range(len(out)):
        _add_expected_factors(i, factors, q, room, out[i])
    for f in range(len(factors.first) - 1):
        slot = factors.first[f]
        _expected_rows(slot, factors, q, room)
        for c in range(factors.size[slot]):
            if q[factors.scope[slot], c] > 0:
                total += q[factors.scope[slot], c] * room[c]
    return total


@kernel
def all_expected_scores(m: ModelScores, q: FloatArray, out: FloatArray) -> None:
    """Write the expected scores of every label of every node to out (I, C)."""
    outgoing, node, edge, factors = m
    for i in range(len(node)):
        _expected_scores(i, outgoing, node, edge, q, out[i])
    add_expected_factors(factors, q, out)


@kernel
def factor_products(factors: Factors, q: FloatArray, out: FloatArray) -> None:
    """Write out[cell] = product over the factor's nodes of q[node, label in the cell], (cells,)."""
    for f in range(len(factors.first) - 1):
        for cell in range(factors.cell[f], factors.cell[f + 1]):
            out[cell] = 1.0
            for slot in range(factors.first[f], factors.first[f + 1]):
                out[cell] *= q[factors.scope[slot], label_at(factors, cell, slot)]


@part_kernel
def label_at(factors: Factors, cell: int, slot: int) -> int:
    """Return the label that a cell of a factor gives to the node of a slot."""
    place = cell - factors.cell[factors.owner[slot]]
    return int((place // factors.stride[slot]) % factors.size[slot])


@kernel
def climb(m: ModelScores, q: FloatArray, tol: float, changes: FloatArray) -> int:
    """Repeat `_ascend` until the change is at most `tol`, at most len(changes) times.

    Writes the change of each sweep to `changes` and returns the number of sweeps.  The last change
    is -1 if every label of a node has expected score -inf.
    """
    for k in range(len(changes)):
        changes[k] = _ascend(m, q)
        if changes[k] <= tol:
            return k + 1
    return len(changes)


@part_kernel
def _ascend(
    m: ModelScores,
    q: FloatArray,
) -> float:
    """Set q[i] to its best value given the others, for each node in turn.

    q[i, c] = exp(score[c]) / norm, with the score of the module.  Returns the largest |change| of a
    probability, or -1 as soon as every score of a node is -inf.
    """
    outgoing, node, edge, factors = m
    size, larger = node.shape[1], len(factors.scope) > 0
    score, room = empty(size), _room(factors)
    worst = 0.0
    for i in range(len(node)):
        _expected_scores(i, outgoing, node, edge, q, score)
        if larger:
            _add_expected_factors(i, factors, q, room, score)
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
    m: ModelScores,
    labels: IntArray,
) -> int:
    """Set each label to the best one given all others, in turn; return how many changed (ICM).

    labels (I,) int64 is changed in place; a label changes only if its score increases.
    """
    nodes, size = m.node.shape
    score = empty(size)
    changed = 0
    for i in range(nodes):
        site_scores(i, m, labels, score)
        best = int(np.argmax(score))
        if score[best] > score[labels[i]]:
            labels[i] = best
            changed += 1
    return changed
