"""Advance the rows of a target machine along many strings at once.

A block of strings advances together.  Its rows are stored as (K, BLOCK), so that an epsilon arc is
one vector operation; each string follows the arcs of its own class.  `TargetMachine.advance` is the
same in numpy, one string at a time.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.semiring import INF

BLOCK = 32


@kernel
def tropical_values(
    classes: IntArray,
    first: IntArray,
    arcs: IntArray,
    epsilon: IntArray,
    initial: IntArray,
    final: IntArray,
) -> IntArray:
    """Return the least cost (k,) of each string in units, INF if it has no path.

    O(k l (arcs of a class + epsilon arcs)).

    classes : (k, l) the class of each symbol.
    first, arcs : class c has the arcs `arcs[first[c] : first[c + 1]]`, rows (source, nextstate,
        weight).
    epsilon : rows (source, nextstate, weight) in topological order.
    initial, final : (K,) the closed row of the empty prefix, and the final weights.
    """
    strings, length = classes.shape
    states = len(initial)
    values = empty(strings, dtype=np.int64)
    row = empty((states, BLOCK), dtype=np.int64)
    after = empty((states, BLOCK), dtype=np.int64)
    for start in range(0, strings, BLOCK):
        width = min(BLOCK, strings - start)
        for state in range(states):
            row[state, :] = initial[state]
        for t in range(length):
            after[:, :] = INF
            for i in range(width):
                c = classes[start + i, t]
                for a in range(first[c], first[c + 1]):
                    moved = row[arcs[a, 0], i] + arcs[a, 2]
                    after[arcs[a, 1], i] = min(after[arcs[a, 1], i], moved)
            for a in range(len(epsilon)):
                source, nextstate, weight = epsilon[a, 0], epsilon[a, 1], epsilon[a, 2]
                for i in range(BLOCK):
                    after[nextstate, i] = min(after[nextstate, i], after[source, i] + weight)
            for state in range(states):
                for i in range(BLOCK):
                    cell = after[state, i]
                    row[state, i] = cell if cell <= INF // 2 else INF
        for i in range(width):
            best = INF
            for state in range(states):
                best = min(best, row[state, i] + final[state])
            values[start + i] = best if best <= INF // 2 else INF
    return values


@kernel
def probability_values(
    classes: IntArray,
    first: IntArray,
    ends: IntArray,
    weights: FloatArray,
    epsilon_ends: IntArray,
    epsilon_weights: FloatArray,
    initial: FloatArray,
    final: FloatArray,
) -> FloatArray:
    """Return the sum (k,) of the weights of the paths of each string.

    The arguments are those of `tropical_values`, but weights and ends are separate arrays.

    ends, epsilon_ends : rows (source, nextstate) of the arcs of classes and of the epsilon arcs.
    weights, epsilon_weights : their weights.
    """
    strings, length = classes.shape
    states = len(initial)
    values = np.zeros(strings)
    row = empty((states, BLOCK))
    after = empty((states, BLOCK))
    for start in range(0, strings, BLOCK):
        width = min(BLOCK, strings - start)
        for state in range(states):
            row[state, :] = initial[state]
        for t in range(length):
            after[:, :] = 0.0
            for i in range(width):
                c = classes[start + i, t]
                for a in range(first[c], first[c + 1]):
                    after[ends[a, 1], i] += row[ends[a, 0], i] * weights[a]
            for a in range(len(epsilon_ends)):
                source, nextstate = epsilon_ends[a, 0], epsilon_ends[a, 1]
                for i in range(BLOCK):
                    after[nextstate, i] += after[source, i] * epsilon_weights[a]
            row, after = after, row
        for state in range(states):
            for i in range(width):
                values[start + i] += row[state, i] * final[state]
    return values
