"""Kernels of exact message passing on forests of nodes and larger factors.

A forest spans the I nodes and the F factors; factor f has the number I + f.  Its arcs are those of
the E edges (0 .. 2E - 1), then those of the links between a node and a factor: 2E + 2 * slot and
the next.  Every factor is in every forest.  If a link is not in the forest, the factor has its own
copy of the node, independent of it.  `ForestScores` are those of nodes, of edges, and of the cells
of factors.  A link that is in the forest has the score -forest.node of its node: this is what
tree-reweighted messages leave there (see `messages.tree_cover`).

order (I + F,) lists parents before children; parent_arc[v] is the arc from the parent of v to v,
-1 for a root; source (2E,) is that of the edges alone.  link_messages (slots, C) is what goes along
each link, from its factor or to it; 0 if the link is not in the forest.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import copy_to
from fstgrad.mrf.arrays import Factors, ForestScores, Potentials
from fstgrad.mrf.kernels.bp_factors import add_rows, label_sums
from fstgrad.mrf.kernels.bp_log import cavity_scores, log_message


class Scratch(NamedTuple):
    """Scratch memory for any factor: cells (most cells,), sums and mass (largest arity, C)."""

    cells: FloatArray
    sums: FloatArray
    mass: FloatArray


@part_kernel
def scratch_of(factors: Factors, size: int) -> Scratch:
    """Return scratch memory that is large enough for every factor; size = C."""
    arity, cells = 0, 0
    for f in range(len(factors.first) - 1):
        arity = max(arity, factors.first[f + 1] - factors.first[f])
        cells = max(cells, factors.cell[f + 1] - factors.cell[f])
    return Scratch(empty(cells), empty((arity, size)), empty((arity, size)))


@part_kernel
def scores_with_messages(
    factors: Factors,
    f: int,
    forest: ForestScores,
    link_messages: FloatArray,
    by_label: bool,
    scratch: Scratch,
) -> tuple[FloatArray, float]:
    """Return the scores of the cells of factor f, with its messages added, and the largest.

    scores[cell] = forest.cells[cell] + sum over its slots of link_messages[slot, label in cell].
    With `by_label`, scratch.sums[k, c] becomes the log-sum-exp of the scores of the cells in which
    node k has label c.
    """
    first, last = factors.first[f], factors.first[f + 1]
    cells = scratch.cells[: factors.cell[f + 1] - factors.cell[f]]
    copy_to(cells, forest.cells[factors.cell[f] : factors.cell[f + 1]])
    digits = np.zeros(last - first, np.int64)
    top = add_rows(factors, f, link_messages[first:last], digits, cells)
    if by_label and top > -np.inf:
        label_sums(factors, f, cells, top, 0, digits, scratch.sums, scratch.mass)
    return cells, top


@part_kernel
def log_sum(row: FloatArray) -> float:
    """Return log sum_c exp(row[c]), -inf if all entries are -inf."""
    top = row.max()
    return float(top + np.log(np.exp(row - top).sum())) if top > -np.inf else -np.inf


@part_kernel
def subtract_alive(score: float, other: float) -> float:
    """Return score - other, or -inf if the label is dead (score = -inf)."""
    return score - other if score > -np.inf else -np.inf


@kernel
def sweep_up(
    order: IntArray,
    parent_arc: IntArray,
    source: IntArray,
    factors: Factors,
    forest: ForestScores,
    total: FloatArray,
    messages: FloatArray,
    link_messages: FloatArray,
) -> float:
    """Send the messages from the leaves to the roots; return log Z in nats, -inf if infeasible.

    `total` (I, C) comes in as the node scores, and the messages of the children are added.
    `messages` (2E, C) and `link_messages` are written; `link_messages` comes in as zeros.
    """
    nodes, size = total.shape
    cavity, weight, scratch = empty(size), empty(size), scratch_of(factors, size)
    value = 0.0
    for position in range(len(order) - 1, -1, -1):
        v = order[position]
        arc = parent_arc[v]
        slot = (arc - len(source)) >> 1
        if v >= nodes:
            cells, top = scores_with_messages(
                factors, v - nodes, forest, link_messages, arc >= 0, scratch
            )
            if top == -np.inf:
                return -np.inf
            if arc < 0:
                value += top + np.log(np.exp(cells - top).sum())
                continue
            i, row = factors.scope[slot], scratch.sums[slot - factors.first[v - nodes]]
            for c in range(size):
                link_messages[slot, c] = (
                    subtract_alive(row[c], forest.node[i, c]) if total[i, c] > -np.inf else 0.0
                )
                total[i, c] += link_messages[slot, c]
        elif arc < 0:
            value += log_sum(total[v])
        elif arc < len(source):
            copy_to(cavity, total[v])
            value += log_message(cavity, forest.potentials, arc ^ 1, 0, weight, messages)
            for c in range(size):
                total[source[arc], c] += messages[arc ^ 1, c]
        else:
            for c in range(size):
                link_messages[slot, c] = subtract_alive(total[v, c], forest.node[v, c])
    return value


@kernel
def add_tree(
    order: IntArray,
    parent_arc: IntArray,
    source: IntArray,
    factors: Factors,
    forest: ForestScores,
    nodes: FloatArray,
    edges: FloatArray,
    beliefs: FloatArray,
    upper: FloatArray,
) -> float:
    """Return log Z of one forest in nats, and add its marginals to `nodes`, `edges` and `beliefs`.

    nodes (I, C), edges (E, C, C), beliefs (cells,).  Also adds log Z + log P(label c of node i) to
    upper[i, c].  If no labeling is allowed, returns -inf and adds nothing.
    """
    total = forest.node.copy()
    size = total.shape[1]
    messages, link_messages = np.zeros((len(source), size)), np.zeros((len(factors.scope), size))
    value = sweep_up(order, parent_arc, source, factors, forest, total, messages, link_messages)
    if value == -np.inf:
        return -np.inf
    cavity, weight, scratch = empty(size), empty(size), scratch_of(factors, size)
    for v in order:
        arc = parent_arc[v]
        if v < len(total):
            if 0 <= arc < len(source):
                cavity_scores(total, source[arc], messages, arc ^ 1, cavity)
                log_message(cavity, forest.potentials, arc, 0, weight, messages)
                for c in range(size):
                    total[v, c] += messages[arc, c]
            continue
        f = v - len(total)
        first, last = factors.first[f], factors.first[f + 1]
        if arc >= 0:
            slot = (arc - len(source)) >> 1
            i = factors.scope[slot]
            for c in range(size):
                factor_to_variable = link_messages[slot, c] + forest.node[i, c]
                link_messages[slot, c] = subtract_alive(total[i, c], factor_to_variable)
        cells, top = scores_with_messages(factors, f, forest, link_messages, True, scratch)
        for slot in range(first, last):
            i = factors.scope[slot]
            if parent_arc[i] >= 0 and (parent_arc[i] - len(source)) >> 1 == slot:
                total[i] = scratch.sums[slot - first]
        norm = top + np.log(np.exp(cells - top).sum())
        for at in range(len(cells)):
            beliefs[factors.cell[f] + at] += np.exp(cells[at] - norm)
    add_beliefs(order, parent_arc, source, forest.potentials, total, messages, value, nodes, edges,
                upper)  # fmt: skip
    return value


@part_kernel
def add_beliefs(
    order: IntArray,
    parent_arc: IntArray,
    source: IntArray,
    p: Potentials,
    total: FloatArray,
    messages: FloatArray,
    value: float,
    nodes: FloatArray,
    edges: FloatArray,
    upper: FloatArray,
) -> None:
    """Add the marginals of nodes and edges of a forest, and value + log P(label) to `upper`.

    total (I, C) and messages (2E, C) are those after both sweeps; `value` is log Z.
    """
    size = total.shape[1]
    first, second = empty(size), empty(size)
    for v in order:
        if v >= len(total):  # a larger factor
            continue
        norm = log_sum(total[v])
        for c in range(size):
            nodes[v, c] += np.exp(total[v, c] - norm)
            upper[v, c] += total[v, c] - norm + value
        arc = parent_arc[v]
        if arc < 0 or arc >= len(source):
            continue
        e = arc >> 1
        cavity_scores(total, source[2 * e], messages, 2 * e + 1, first)
        cavity_scores(total, source[2 * e + 1], messages, 2 * e, second)
        top = -np.inf
        for a in range(size):
            for b in range(size):
                top = max(top, first[a] + p.edge[e, a, b] + second[b])
        norm = 0.0
        for a in range(size):
            for b in range(size):
                norm += np.exp(first[a] + p.edge[e, a, b] + second[b] - top)
        for a in range(size):
            for b in range(size):
                edges[e, a, b] += np.exp(first[a] + p.edge[e, a, b] + second[b] - top) / norm
