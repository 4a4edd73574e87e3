"""Kernel of greedy elimination orders, on sets of neighbours stored as bits.

near (n, words) uint64: bit u % 64 of near[v, u // 64] is 1 if u is a neighbour of v.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.core.vectors import copy_to

Bits = npt.NDArray[np.uint64]
GIVEN, WEIGHT, FILL = 0, 1, 2


@part_kernel
def ones(word: int) -> int:
    """Return the number of bits that are set in a uint64."""
    x = np.uint64(word)
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def members(near: Bits, out: IntArray) -> int:
    """Write the numbers of the bits that are set in near (words,) to `out`; return their count."""
    # bounds: `out` has n entries, and no bit beyond n is set
    count = 0
    for word in range(len(near)):
        bits = near[word]
        while bits != 0:
            lowest = bits & (~bits + np.uint64(1))
            out[count] = 64 * word + ones(lowest - np.uint64(1))
            count += 1
            bits ^= lowest
    return count


@part_kernel
def cost_of(v: int, rule: int, near: Bits, logs: FloatArray, mine: IntArray) -> float:
    """Return the cost of eliminating v: log of its clique's cells (WEIGHT) or edges added (FILL).

    GIVEN returns v: nodes go in the order of their numbers.  logs (n,) is the log of the number of
    labels; mine (n,) is scratch memory.
    """
    if rule == GIVEN:
        return float(v)
    count = members(near[v], mine)
    if rule == WEIGHT:
        cells = logs[v]
        for k in range(count):
            cells += logs[mine[k]]
        return float(cells)
    missing = 0
    for k in range(count):
        for word in range(near.shape[1]):
            missing += ones(near[v, word] & ~near[mine[k], word])
    return (missing - count) / 2.0  # each node misses itself


class Search(NamedTuple):
    """What a search for an order keeps between its steps; all arrays have length n.

    `cost` is the cost of each node that is not `gone` (eliminated); `stale` marks the costs to be
    computed again; `mine` and `theirs` are scratch memory for neighbours.
    """

    cost: FloatArray
    stale: BoolArray
    gone: BoolArray
    mine: IntArray
    theirs: IntArray

    @classmethod
    def of(cls, nodes: int) -> "Search":
        """Return the state before the first step: all costs are stale."""
        numbers = empty(nodes, np.int64), empty(nodes, np.int64)
        return cls(empty(nodes), np.ones(nodes, np.bool_), np.zeros(nodes, np.bool_), *numbers)


@kernel
def greedy_order(
    low: int,
    high: int,
    near: Bits,
    sizes: FloatArray,
    rule: int,
    noise: FloatArray,
    limits: tuple[float, float],
    search: Search,
    order: IntArray,
    separators: Bits,
) -> float:
    """Eliminate the cheapest node at each step low .. high - 1; return the cells of the cliques.

    Among equal costs, the smallest `noise` (n,) wins.  sizes (n,) float64 holds the numbers of
    labels.  order[k] is the node eliminated at step k, and separators[k] (words,) its neighbours
    then; `near` is overwritten.  Returns inf as soon as a clique has more than limits[0] cells, or
    the cliques of these steps together have limits[1] or more.
    """
    nodes = len(near)
    logs = np.log(sizes)
    cost, stale, gone, mine, theirs = search
    spent = 0.0
    for position in range(low, high):
        for u in range(nodes):
            if stale[u] and (position == 0 or rule != GIVEN):
                cost[u] = cost_of(u, rule, near, logs, theirs)
        v = -1
        for u in range(nodes):
            if not gone[u] and (
                v < 0 or cost[u] < cost[v] or (cost[u] == cost[v] and noise[u] < noise[v])
            ):
                v = u
        count = members(near[v], mine)
        cells = sizes[v]
        for k in range(count):
            cells *= sizes[mine[k]]
        spent += cells
        if cells > limits[0] or spent >= limits[1]:
            return np.inf
        gone[v] = True
        order[position] = v
        copy_to(separators[position], near[v])
        for k in range(count):
            u = mine[k]
            for word in range(near.shape[1]):
                near[u, word] |= near[v, word]
            near[u, u >> 6] &= ~(np.uint64(1) << np.uint64(u & 63))
            near[u, v >> 6] &= ~(np.uint64(1) << np.uint64(v & 63))
        stale[:] = False
        for k in range(count):
            stale[mine[k]] = True
            if rule == FILL:
                others = members(near[mine[k]], theirs)
                for t in range(others):
                    stale[theirs[t]] = True
    return spent
