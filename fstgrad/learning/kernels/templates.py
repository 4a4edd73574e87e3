"""Sums of the weights of (name, symbol) pairs at each position, and the adjoint.

The active names of position s are `ids[starts[s] : starts[s + 1]]`.  Name f has the weights
e = first[f] .. first[f + 1] - 1, each for the symbol `symbol[e]`.  Symbol n means the copy of the
symbol of x at the position, which is copies[s], or -1 if no symbol of y is a copy of it.  In numpy,
these loops are `np.add.at`.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel
from fstgrad.core.uninitialized import empty

unsigned = np.uintp  # saves the check for negative indices


@kernel
def gather(
    starts: IntArray,
    ids: IntArray,
    copies: IntArray,
    first: IntArray,
    symbol: IntArray,
    w: FloatArray,
    out: FloatArray,
) -> None:
    """Write the sums of the weights of the active names of each position to `out` (l, n)."""
    n = out.shape[1]
    row = empty(n + 1)
    for s in range(len(out)):
        for b in range(n + 1):
            row[b] = 0.0
        for k in range(starts[s], starts[s + 1]):
            f = unsigned(ids[k])
            for e in range(unsigned(first[f]), unsigned(first[f + unsigned(1)])):
                row[unsigned(symbol[e])] += w[e]
        for b in range(n):
            out[s, b] = row[b]
        if copies[s] >= 0:
            out[s, copies[s]] += row[n]


@kernel
def scatter(
    starts: IntArray,
    ids: IntArray,
    copies: IntArray,
    first: IntArray,
    symbol: IntArray,
    table: FloatArray,
    out: FloatArray,
) -> None:
    """Add table[s] (l, n) to the weights of every active name of every position s."""
    n = table.shape[1]
    row = empty(n + 1)
    for s in range(len(table)):
        for b in range(n):
            row[b] = table[s, b]
        row[n] = table[s, copies[s]] if copies[s] >= 0 else 0.0
        for k in range(starts[s], starts[s + 1]):
            f = unsigned(ids[k])
            for e in range(unsigned(first[f]), unsigned(first[f + unsigned(1)])):
                out[e] += row[unsigned(symbol[e])]


@kernel
def count_pairs(
    starts: IntArray, ids: IntArray, copies: IntArray, gold: IntArray, n: int
) -> IntArray:
    """Return f (n + 1) + b for every active name f and gold b, and f (n + 1) + n if b is a copy."""
    total = 0
    for s in range(len(gold)):
        total += (starts[s + 1] - starts[s]) * (2 if copies[s] == gold[s] else 1)
    pairs, k = starts[:1].repeat(total), 0
    for s in range(len(gold)):
        for i in range(starts[s], starts[s + 1]):
            pairs[k] = ids[i] * (n + 1) + gold[s]
            k += 1
            if copies[s] == gold[s]:
                pairs[k] = ids[i] * (n + 1) + n
                k += 1
    return pairs


@kernel
def gather_rows(
    starts: IntArray, ids: IntArray, copies: IntArray, table: FloatArray, out: FloatArray
) -> None:
    """Add the rows `ids` of a table (rows, n + 1) of each position to `out` (l, n)."""
    n = out.shape[1]
    sums = empty(n + 1)
    for s in range(len(out)):
        first, end = starts[s], starts[s + 1]
        for b in range(n + 1):
            sums[b] = 0.0
        # two names at a time, so that the sums are loaded and stored half as often
        for k in range(first, end - 1, 2):
            one, other = table[ids[k]], table[ids[k + 1]]
            for b in range(n + 1):
                sums[b] += one[b] + other[b]
        if (end - first) % 2:
            one = table[ids[end - 1]]
            for b in range(n + 1):
                sums[b] += one[b]
        for b in range(n):
            out[s, b] += sums[b]
        if copies[s] >= 0:
            out[s, copies[s]] += sums[n]


@kernel
def scatter_rows(
    starts: IntArray, ids: IntArray, copies: IntArray, table: FloatArray, out: FloatArray
) -> None:
    """Add table[s] (l, n) to the rows `ids` of each position of `out` (rows, n + 1)."""
    n = table.shape[1]
    row = empty(n + 1)
    for s in range(len(table)):
        for b in range(n):
            row[b] = table[s, b]
        row[n] = table[s, copies[s]] if copies[s] >= 0 else 0.0
        for k in range(starts[s], starts[s + 1]):
            weights = out[ids[k]]
            for b in range(n + 1):
                weights[b] += row[b]


@kernel
def weights_to_rows(first: IntArray, symbol: IntArray, w: FloatArray, table: FloatArray) -> None:
    """Write the weights of each name to the columns of their symbols in its row of `table`."""
    for f in range(len(table)):
        for e in range(unsigned(first[f]), unsigned(first[f + 1])):
            table[f, unsigned(symbol[e])] = w[e]


@kernel
def rows_to_weights(first: IntArray, symbol: IntArray, table: FloatArray, w: FloatArray) -> None:
    """Write the entries that `weights_to_rows` writes from the table back to `w`."""
    for f in range(len(table)):
        for e in range(unsigned(first[f]), unsigned(first[f + 1])):
            w[e] = table[f, unsigned(symbol[e])]


@kernel
def add_at(places: IntArray, values: FloatArray, out: FloatArray) -> None:
    """Add the values to `out` at the given places, which may repeat."""
    for i in range(len(places)):
        out[places[i]] += values[i]
