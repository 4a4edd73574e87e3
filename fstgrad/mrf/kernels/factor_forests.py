"""Kernels of exact message passing on forests of nodes and larger factors.

A forest is over the I nodes and the F factors, numbered I + f; its arcs are those of the E edges
and then those of the links from each node of a factor, slot by slot, to it.  Every factor is in
every forest; a link that is not in the forest leaves the factor a copy of the node.  `total` (I, C)
and `base` (cells) are the scores of nodes and factors, and a link has the score -total of its node:
what tree-reweighted messages leave there (see `messages.tree_weights`).
"""

from typing import NamedTuple

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import kernel
from fstgrad.mrf.arrays import Factors, Potentials, Split
from fstgrad.mrf.kernels.factors import add_rows, label_sums
from fstgrad.mrf.kernels.messages import send, without


class Scratch(NamedTuple):
    """Room for the cells of the largest factor, and rows (arity, C) of its nodes."""

    cells: FloatArray
    sums: FloatArray
    mass: FloatArray


@kernel
def scratch_of(factors: Factors, size: int) -> Scratch:
    """Return the room that the factors need."""
    arity, cells = 0, 0
    for f in range(len(factors.first) - 1):
        arity = max(arity, factors.first[f + 1] - factors.first[f])
        cells = max(cells, factors.cell[f + 1] - factors.cell[f])
    return Scratch(np.empty(cells), np.empty((arity, size)), np.empty((arity, size)))


@kernel
def hear(
    factors: Factors, f: int, split: Split, heard: FloatArray, by_label: bool, scratch: Scratch
) -> tuple[FloatArray, float]:
    """Return the scores of a factor's cells with what it hears, and the largest of them.

    `by_label` writes the sums over the cells with each label of a node to `scratch.sums`.
    """
    first, last = factors.first[f], factors.first[f + 1]
    cells = scratch.cells[: factors.cell[f + 1] - factors.cell[f]]
    cells[:] = split.cells[factors.cell[f] : factors.cell[f + 1]]
    digits = np.zeros(last - first, np.int64)
    top = add_rows(factors, f, heard[first:last], digits, cells)
    if by_label and top > -np.inf:
        label_sums(factors, f, cells, top, 0, digits, scratch.sums, scratch.mass)
    return cells, top


@kernel
def log_sum(row: FloatArray) -> float:
    """Return the log of the sum of exponentials."""
    top = row.max()
    return float(top + np.log(np.exp(row - top).sum())) if top > -np.inf else -np.inf


@kernel
def less(score: float, other: float) -> float:
    """Return score - other, -inf where a label is dead."""
    return score - other if score > -np.inf else -np.inf


@kernel
def sweep_up(
    order: IntArray,
    parent_arc: IntArray,
    source: IntArray,
    factors: Factors,
    split: Split,
    total: FloatArray,
    messages: FloatArray,
    heard: FloatArray,
) -> float:
    """Send from the leaves to the roots; return log Z, -inf if no labeling is allowed.

    `total` comes in as the node scores and leaves with the messages of the children added; `heard`
    (slots, C) comes in as zeros and leaves with what goes along each link.
    """
    nodes, size = total.shape
    pre, weight, scratch = np.empty(size), np.empty(size), scratch_of(factors, size)
    value = 0.0
    for position in range(len(order) - 1, -1, -1):
        v = order[position]
        arc = parent_arc[v]
        slot = (arc - len(source)) >> 1
        if v >= nodes:
            cells, top = hear(factors, v - nodes, split, heard, arc >= 0, scratch)
            if top == -np.inf:
                return -np.inf
            if arc < 0:
                value += top + np.log(np.exp(cells - top).sum())
                continue
            i, row = factors.scope[slot], scratch.sums[slot - factors.first[v - nodes]]
            for c in range(size):
                heard[slot, c] = less(row[c], split.node[i, c]) if total[i, c] > -np.inf else 0.0
                total[i, c] += heard[slot, c]
        elif arc < 0:
            value += log_sum(total[v])
        elif arc < len(source):
            pre[:] = total[v]
            value += send(pre, split.potentials, arc ^ 1, 0, weight, messages)
            for c in range(size):
                total[source[arc], c] += messages[arc ^ 1, c]
        else:
            for c in range(size):
                heard[slot, c] = less(total[v, c], split.node[v, c])
    return value


@kernel
def add_tree(
    order: IntArray,
    parent_arc: IntArray,
    source: IntArray,
    factors: Factors,
    split: Split,
    nodes: FloatArray,
    edges: FloatArray,
    beliefs: FloatArray,
    upper: FloatArray,
) -> float:
    """Return log Z of one forest; add its marginals, and log Z + log P(label) to `upper`."""
    total = split.node.copy()
    size = total.shape[1]
    messages, heard = np.zeros((len(source), size)), np.zeros((len(factors.scope), size))
    value = sweep_up(order, parent_arc, source, factors, split, total, messages, heard)
    if value == -np.inf:
        return -np.inf
    pre, weight, scratch = np.empty(size), np.empty(size), scratch_of(factors, size)
    for v in order:
        arc = parent_arc[v]
        if v < len(total):
            if 0 <= arc < len(source):
                without(total, source[arc], messages, arc ^ 1, pre)
                send(pre, split.potentials, arc, 0, weight, messages)
                for c in range(size):
                    total[v, c] += messages[arc, c]
            continue
        f = v - len(total)
        first, last = factors.first[f], factors.first[f + 1]
        if arc >= 0:
            slot = (arc - len(source)) >> 1
            i = factors.scope[slot]
            for c in range(size):
                said = heard[slot, c] + split.node[i, c]
                heard[slot, c] = less(total[i, c], said)
        cells, top = hear(factors, f, split, heard, True, scratch)
        for slot in range(first, last):
            i = factors.scope[slot]
            if parent_arc[i] >= 0 and (parent_arc[i] - len(source)) >> 1 == slot:
                total[i] = scratch.sums[slot - first]
        norm = top + np.log(np.exp(cells - top).sum())
        for at in range(len(cells)):
            beliefs[factors.cell[f] + at] += np.exp(cells[at] - norm)
    add_beliefs(order, parent_arc, source, split.potentials, total, messages, value, nodes, edges,
                upper)  # fmt: skip
    return value


@kernel
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
    """Add the marginals of nodes and edges of a forest, and value + log P(label) to `upper`."""
    size = total.shape[1]
    first, second = np.empty(size), np.empty(size)
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
        without(total, source[2 * e], messages, 2 * e + 1, first)
        without(total, source[2 * e + 1], messages, 2 * e, second)
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
