"""Kernels of sequential reweighted message passing for the best labeling, on native factors.

Edges count as factors.  Messages go from factors to nodes, in nats: edge_to_variable[a] (C,) from
the edge of arc a to the node that a leaves, factor_to_variable[slot] (C,) from a larger factor to
the node of its slot.  For all finite messages, with i running over nodes and f over factors,

    max_y s(y) <= sum_i max_x (node_i + messages into i)[x]
                  + sum_f max_cell (table_f - messages of f)[cell].

Let M_f[x] be the max-marginal of factor f for node i: the maximum over the cells with label x of i
of table_f minus the messages of f to its other nodes.  Let S = node_i + sum_f M_f.  The new message
is M_f - w S, which leaves the share w of S to f.  A label with node score -inf is dead; its
messages are 0.  `fixed` (I,) int64 holds labels chosen so far, -1 for none: a fixed node has only
its label and receives no message.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import copy_to
from fstgrad.mrf.arrays import Factors, ModelScores
from fstgrad.mrf.kernels.bp_factors import next_cell


@part_kernel
def edge_marginal(
    arc: int, m: ModelScores, edge_to_variable: FloatArray, fixed: IntArray, out: FloatArray
) -> None:
    """Write M (C,) of an edge for the node that `arc` leaves."""
    j = m.outgoing.source[arc ^ 1]
    k = arc >> 1 if len(m.edge) > 1 else 0
    size = len(out)
    out[:] = -np.inf
    for y in range(size):
        if m.node[j, y] == -np.inf or (fixed[j] >= 0 and fixed[j] != y):
            continue
        message = edge_to_variable[arc ^ 1, y] if fixed[j] < 0 else 0.0
        for x in range(size):
            score = m.edge[k, y, x] if arc & 1 else m.edge[k, x, y]
            out[x] = max(out[x], score - message)


@part_kernel
def factor_marginal(
    slot: int, m: ModelScores, factor_to_variable: FloatArray, fixed: IntArray, out: FloatArray
) -> None:
    """Write M (C,) of a larger factor for the node of `slot`."""
    factors = m.factors
    f = factors.owner[slot]
    first, last = factors.first[f], factors.first[f + 1]
    rows, digits = np.zeros((last - first, len(out))), np.zeros(last - first, np.int64)
    for other in range(first, last):
        j = factors.scope[other]
        for y in range(factors.size[other]):
            if m.node[j, y] == -np.inf or (other != slot and fixed[j] >= 0 and fixed[j] != y):
                rows[other - first, y] = -np.inf
            elif other != slot and fixed[j] < 0:
                rows[other - first, y] = -factor_to_variable[other, y]
    out[:] = -np.inf
    for cell in range(factors.cell[f], factors.cell[f + 1]):
        score = factors.table[cell]
        for k in range(last - first):
            score += rows[k, digits[k]]
        x = digits[slot - first]
        out[x] = max(out[x], score)
        next_cell(factors, f, digits)


@part_kernel
def ends(factors: Factors, f: int) -> tuple[int, int]:
    """Return the smallest and the largest number of the nodes of factor f."""
    nodes = factors.scope[factors.first[f] : factors.first[f + 1]]
    return int(nodes.min()), int(nodes.max())


@kernel
def node_shares(m: ModelScores, out: FloatArray) -> None:
    """Write the share w (I,) of each node i.

    w = 1 / max(number of i's factors with a node before i, number of those with a node after i, 1).
    """
    for i in range(len(out)):
        before, after = 0, 0
        for at in range(m.outgoing.start[i], m.outgoing.start[i + 1]):
            j = m.outgoing.source[m.outgoing.leaving[at] ^ 1]
            before, after = before + (j < i), after + (j > i)
        for at in range(m.factors.near_start[i], m.factors.near_start[i + 1]):
            first, last = ends(m.factors, m.factors.owner[m.factors.near[at]])
            before, after = before + (first < i), after + (last > i)
        out[i] = 1.0 / max(before, after, 1)


@part_kernel
def all_max_marginals(
    i: int, m: ModelScores, edge_to_variable: FloatArray, factor_to_variable: FloatArray,
    fixed: IntArray, max_marginals: FloatArray, total: FloatArray,
) -> None:  # fmt: skip
    """Write M of the factors of node i, edges first, to max_marginals (factors, C); S to total."""
    copy_to(total, m.node[i])
    n = 0
    for at in range(m.outgoing.start[i], m.outgoing.start[i + 1]):
        edge_marginal(m.outgoing.leaving[at], m, edge_to_variable, fixed, max_marginals[n])
        total += max_marginals[n]
        n += 1
    for at in range(m.factors.near_start[i], m.factors.near_start[i + 1]):
        factor_marginal(m.factors.near[at], m, factor_to_variable, fixed, max_marginals[n])
        total += max_marginals[n]
        n += 1


@part_kernel
def most_factors(m: ModelScores) -> int:
    """Return the largest number of factors of a node, at least 1."""
    most = 1
    for i in range(len(m.node)):
        arcs = m.outgoing.start[i + 1] - m.outgoing.start[i]
        most = max(most, arcs + m.factors.near_start[i + 1] - m.factors.near_start[i])
    return most


@part_kernel
def new_message(
    total: FloatArray, max_marginals: FloatArray, share: float, out: FloatArray
) -> None:
    """Write the message M - w S, 0 for dead labels: max_marginals is M, share w, total S; (C,)."""
    for c in range(len(total)):
        out[c] = max_marginals[c] - share * total[c] if total[c] > -np.inf else 0.0


@kernel
def sweep(
    m: ModelScores,
    share: FloatArray,
    forward: bool,
    edge_to_variable: FloatArray,
    factor_to_variable: FloatArray,
) -> bool:
    """Update the messages to every node in order (`forward`) or in reverse.

    A factor gets the share share[i] of S if it has a node ahead of i in the direction of the sweep,
    otherwise 0.  Labels with S = -inf are marked dead in m.node.  Returns False as soon as a node
    has no label left.
    """
    nodes, size = m.node.shape
    free = np.full(nodes, -1)
    max_marginals, total = empty((most_factors(m), size)), empty(size)
    for t in range(nodes):
        i = t if forward else nodes - 1 - t
        all_max_marginals(i, m, edge_to_variable, factor_to_variable, free, max_marginals, total)
        if total.max() == -np.inf:
            return False
        for c in range(size):
            if total[c] == -np.inf:
                m.node[i, c] = -np.inf
        n = 0
        for at in range(m.outgoing.start[i], m.outgoing.start[i + 1]):
            arc = m.outgoing.leaving[at]
            ahead = (m.outgoing.source[arc ^ 1] > i) == forward
            new_message(total, max_marginals[n], share[i] if ahead else 0.0, edge_to_variable[arc])
            n += 1
        for at in range(m.factors.near_start[i], m.factors.near_start[i + 1]):
            slot = m.factors.near[at]
            first, last = ends(m.factors, m.factors.owner[slot])
            ahead = last > i if forward else first < i
            new_message(
                total, max_marginals[n], share[i] if ahead else 0.0, factor_to_variable[slot]
            )
            n += 1
    return True


@kernel
def dual(m: ModelScores, edge_to_variable: FloatArray, factor_to_variable: FloatArray) -> float:
    """Return the upper bound on the best score of the module's docstring, in nats."""
    nodes, size = m.node.shape
    free, row = np.full(nodes, -1), empty(size)
    value = 0.0
    for i in range(nodes):
        copy_to(row, m.node[i])
        for at in range(m.outgoing.start[i], m.outgoing.start[i + 1]):
            row += edge_to_variable[m.outgoing.leaving[at]]
        for at in range(m.factors.near_start[i], m.factors.near_start[i + 1]):
            row += factor_to_variable[m.factors.near[at]]
        value += row.max()
    for e in range(len(m.outgoing.source) // 2):
        edge_marginal(2 * e, m, edge_to_variable, free, row)
        i = m.outgoing.source[2 * e]
        top = -np.inf
        for c in range(size):
            if m.node[i, c] > -np.inf:
                top = max(top, row[c] - edge_to_variable[2 * e, c])
        value += top
    for f in range(len(m.factors.first) - 1):
        slot = m.factors.first[f]
        factor_marginal(slot, m, factor_to_variable, free, row)
        top = -np.inf
        for c in range(m.factors.size[slot]):
            top = max(top, row[c] - factor_to_variable[slot, c])
        value += top
    return value


@kernel
def read_labels(
    m: ModelScores, edge_to_variable: FloatArray, factor_to_variable: FloatArray, labels: IntArray
) -> None:
    """Write labels[i] = argmax_x S[x] for each node in order, given the labels before it."""
    nodes, size = m.node.shape
    max_marginals, total = empty((most_factors(m), size)), empty(size)
    labels[:] = -1
    for i in range(nodes):
        all_max_marginals(i, m, edge_to_variable, factor_to_variable, labels, max_marginals, total)
        labels[i] = np.argmax(total)
