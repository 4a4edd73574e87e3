"""Weights of (name, symbol) pairs added up for each position, and the adjoint.

The active names of position s are `ids[starts[s] : starts[s + 1]]`; name f has the weights
first[f] .. first[f + 1] - 1, of the symbols `symbol` there.  Symbol n stands for the copy of the
symbol of x at the position, copies[s], -1 where no symbol of y is a copy of it.
"""

from fstgrad.checks import BoolArray, FloatArray, IntArray
from fstgrad.compiler import kernel


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
    """Write the sum of the weights of the active names of each position to `out` (l, n)."""
    n = out.shape[1]
    for s in range(len(out)):
        for b in range(n):
            out[s, b] = 0.0
        copied = 0.0
        for k in range(starts[s], starts[s + 1]):
            f = ids[k]
            for e in range(first[f], first[f + 1]):
                if symbol[e] < n:
                    out[s, symbol[e]] += w[e]
                else:
                    copied += w[e]
        if copies[s] >= 0:
            out[s, copies[s]] += copied


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
    for s in range(len(table)):
        for k in range(starts[s], starts[s + 1]):
            f = ids[k]
            for e in range(first[f], first[f + 1]):
                if symbol[e] < n:
                    out[e] += table[s, symbol[e]]
                elif copies[s] >= 0:
                    out[e] += table[s, copies[s]]


@kernel
def touched(ids: IntArray, first: IntArray, seen: BoolArray, places: IntArray) -> int:
    """Write the weights of the names to `places`, each once; return their number.

    seen : (F,), all False before and after
    """
    k = 0
    for f in ids:
        if not seen[f]:
            seen[f] = True
            for e in range(first[f], first[f + 1]):
                places[k] = e
                k += 1
    for f in ids:
        seen[f] = False
    return k


@kernel
def take_out(places: IntArray, values: FloatArray, out: FloatArray) -> None:
    """Write values[places] to `out`, and 0 in their place."""
    for i in range(len(places)):
        out[i] = values[places[i]]
        values[places[i]] = 0.0


@kernel
def count_pairs(
    starts: IntArray, ids: IntArray, copies: IntArray, gold: IntArray, n: int
) -> IntArray:
    """Return f (n + 1) + b for every active name f and gold symbol b, and n where b is a copy."""
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
