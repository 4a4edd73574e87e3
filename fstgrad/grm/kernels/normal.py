"""The normal matrices Z_s' H_s Z_s / n of the nodes of a quadratic model."""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.grm.kernels.columns import Slots


class Normal(NamedTuple):
    """The normal matrices of the nodes; their rows and columns are the slots of each node.

    place (s,) : the number of each slot if slots are ordered by node.
    first, last (s,) : the slots of the same node have the numbers first .. last - 1.
    start (s,), entries : the row of a slot is entries[start : start + last - first]; without
        matrices, `entries` is empty.
    """

    place: IntArray
    first: IntArray
    last: IntArray
    start: IntArray
    entries: FloatArray


@kernel
def products(slots: Slots, order: IntArray, samples: int) -> float:
    """Return the number of products of two entries of the same sample and node.

    order (s,) : the slots in the order of their nodes.
    """
    counts, node, out = np.zeros(samples), -1, 0.0
    for slot in order:
        if slots.node[slot] != node:
            node = slots.node[slot]
            counts[:] = 0.0
        for at in range(slots.start[slot], slots.end[slot]):
            count = counts[slots.rows[at]]
            counts[slots.rows[at]] = count + 1.0
            out += 2.0 * count + 1.0
    return out


@kernel
def fill_matrix(slots: Slots, mine: IntArray, hessian: FloatArray, entries: FloatArray) -> None:
    """Write the normal matrix (m * m,) of a node with slots `mine` (m,), and hessian (n, c, c)."""
    entries[:] = 0.0
    full = empty(mine.shape[0], np.bool_)
    for a in range(mine.shape[0]):
        full[a] = is_full(slots, mine[a], hessian.shape[0])
    add_full_columns(slots, mine, full, hessian, entries)
    add_other_columns(slots, mine[~full], np.flatnonzero(~full), hessian, entries)
    m = mine.shape[0]
    for a in range(m):
        for b in range(a):
            entries[b * m + a] = entries[a * m + b]


@part_kernel
def is_full(slots: Slots, slot: int, n: int) -> bool:
    """Return whether a column has an entry for each of n samples, in their order."""
    start = slots.start[slot]
    if slots.end[slot] - start != n:
        return False
    row = 0
    while row < n and slots.rows[start + row] == row:
        row += 1
    return row == n


@part_kernel
def add_full_columns(
    slots: Slots,
    mine: IntArray,
    full: BoolArray,
    hessian: FloatArray,
    entries: FloatArray,
) -> None:
    """Write the products of full columns with all columns below the diagonal: row by column."""
    n, m = hessian.shape[0], mine.shape[0]
    for a in range(m):
        if not full[a]:
            continue
        i, own = slots.coordinate[mine[a]], slots.start[mine[a]]
        for b in range(m):
            if full[b] and b > a:
                continue
            j, total = slots.coordinate[mine[b]], 0.0
            for at in range(slots.start[mine[b]], slots.end[mine[b]]):
                row = slots.rows[at]
                total += slots.values[at] * hessian[row, i, j] * slots.values[own + row]
            entries[max(a, b) * m + min(a, b)] = total / n


@part_kernel
def add_other_columns(
    slots: Slots,
    mine: IntArray,
    number: IntArray,
    hessian: FloatArray,
    entries: FloatArray,
) -> None:
    """Add the products of the columns of slots `mine`, sample by sample, below the diagonal.

    number (columns,) : the rows of the matrix for these columns, ascending.
    """
    # bounds: start[row] counts the entries of a row that were written, so to < the total of counts
    n, m = hessian.shape[0], int(np.sqrt(entries.shape[0]) + 0.5)
    start = np.zeros(n + 1, np.int64)
    for slot in mine:
        for at in range(slots.start[slot], slots.end[slot]):
            start[slots.rows[at] + 1] += 1
    for row in range(n):
        start[row + 1] += start[row]
    own, value = empty(start[n], np.int64), empty(start[n])
    for local in range(mine.shape[0]):
        for at in range(slots.start[mine[local]], slots.end[mine[local]]):
            to = start[slots.rows[at]]
            own[to], value[to] = local, slots.values[at]
            start[slots.rows[at]] += 1
    coordinate, first = slots.coordinate[mine], 0
    places, changes = empty(m, np.uint64), empty((hessian.shape[1], m))
    for row in range(n):
        last = start[row]  # now the end of the row
        for b in range(last - first):
            places[b] = number[own[first + b]]
            j, part = coordinate[own[first + b]], value[first + b] / n
            for i in range(changes.shape[0]):
                changes[i, b] = hessian[row, i, j] * part
        for a in range(last - first):
            i, share = coordinate[own[first + a]], value[first + a]
            to = places[a] * np.uint64(m)
            for b in range(a + 1):
                entries[to + places[b]] += share * changes[i, b]
        first = last
