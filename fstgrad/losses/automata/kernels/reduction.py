"""Reduce a target machine: remove the epsilon arcs of counts, merge states with equal futures.

`tests/oracles/reduction.py` defines the same in numpy.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.kernels.arguments import ClassArcs, MachineArcs
from fstgrad.losses.automata.kernels.tables import HEAD, hash_cells, lengthen, new_slots, number_row
from fstgrad.losses.automata.kernels.tropical import saturate
from fstgrad.losses.automata.semiring import INF


@kernel
def closure(size: int, source: IntArray, nextstate: IntArray, weight: FloatArray) -> FloatArray:
    """Return (K, K): the weights of all epsilon paths, of arcs in topological order.

    paths[s, k] = [s = k] + the sum of paths[s, j] weight over the arcs j -> k.
    """
    paths = np.zeros((size, size))
    for s in range(size):
        paths[s, s] = 1.0
        for e in range(len(source)):
            paths[s, nextstate[e]] += paths[s, source[e]] * weight[e]
    return paths


@kernel
def quotient(
    paths: FloatArray, start: int, arcs: ClassArcs, final: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the machine without epsilon arcs, states with equal futures merged; it starts in 0.

    Parameters
    ----------
    paths : (K, K)
        The weights of all epsilon paths.  They are put before the symbol that follows them.
    start, arcs
        The start state, and the arcs that read a symbol.
    final : (K,)
        Final weights.

    Returns
    -------
    Arcs (A, 3), rows of (class, source, nextstate); their weights (A,); final weights (K',).

    Two states are equivalent if they have equal final weights and, for each class, equal total
    weights into each block: partition refinement, O(rounds x arcs of the closed machine).
    """
    first, nextstate, weight = arcs
    size = len(final)
    classes = (len(first) - 1) // size
    order, ends, block = _entered(paths, start, arcs, final)
    sums, touched = np.zeros(size), empty(size, np.int64)
    pool, row = empty(1024, np.int64), empty(3 * len(nextstate) + 1, np.int64)
    # leaders <= size: each state is visited once; an arc adds at most 3 numbers to `row`
    leads, end_bits, sum_bits = empty(size, np.int64), ends.view(np.int64), sums.view(np.int64)
    blocks = 0
    while True:
        count, used, begin = int(0.0), int(0.0), int(0.0)  # a literal 0 would be of another type
        slots, fresh = new_slots(len(order)), np.zeros(size, np.int64)
        for s in order:
            row[0] = end_bits[s] if blocks == 0 else block[s]
            width, leaders = 1, 0
            for k in range(size):
                if paths[s, k] != 0.0:
                    leads[leaders] = k
                    leaders += 1
            for c in range(classes if blocks > 0 else 0):
                number = begin
                for i in range(leaders):
                    k = leads[i]
                    for a in range(first[c * size + k], first[c * size + k + 1]):
                        to = block[nextstate[a]]
                        if sums[to] == 0.0:
                            number = _insert(touched, number, to)
                        sums[to] += paths[s, k] * weight[a]
                for i in range(number):
                    to = touched[i]
                    row[width], row[width + 1] = c, to
                    row[width + 2] = sum_bits[to]
                    sums[to] = 0.0
                    width += 3
            while used + width + HEAD > len(pool):
                pool = lengthen(pool)
            hashed = hash_cells(row, begin, width)
            fresh[s] = number_row(slots, pool, used, count, row, begin, width, hashed)
            if fresh[s] == count:
                count += 1
                used += width + HEAD
        block = fresh
        if count == blocks:
            return _written(pool, used, order, block, ends, count)
        blocks = count


@inner_kernel
def _insert(sorted_values: IntArray, number: int, value: int) -> int:
    """Insert a value into the sorted set of `number` values; return the new number."""
    place = number
    while place > 0 and sorted_values[place - 1] >= value:
        place -= 1
    if place < number and sorted_values[place] == value:
        return number
    for i in range(number, place, -1):
        sorted_values[i] = sorted_values[i - 1]
    sorted_values[place] = value
    return number + 1


@inner_kernel
def _entered(
    paths: FloatArray, start: int, arcs: ClassArcs, final: FloatArray
) -> tuple[IntArray, FloatArray, IntArray]:
    """Return the start and the states that symbols reach, the final weights, and zeros (K,)."""
    first, nextstate = arcs.first, arcs.nextstate
    size = len(final)
    classes = (len(first) - 1) // size
    order, seen = empty(size, np.int64), np.zeros(size, np.bool_)
    order[0], seen[start], count, done = start, True, 1, 0
    ends = np.zeros(size)
    while done < count:
        s = order[done]
        done += 1
        for k in range(size):
            if paths[s, k] != 0.0:
                ends[s] += paths[s, k] * final[k]
                for c in range(classes):
                    for a in range(first[c * size + k], first[c * size + k + 1]):
                        if not seen[nextstate[a]]:
                            order[count], seen[nextstate[a]] = nextstate[a], True
                            count += 1
    return order[:count], ends, np.zeros(size, np.int64)


@inner_kernel
def _written(
    pool: IntArray, used: int, order: IntArray, block: IntArray, ends: FloatArray, blocks: int
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the arcs between blocks from the pool, their weights, and the final weights."""
    final, reals = empty(blocks), pool.view(np.float64)
    for s in order:
        final[block[s]] = ends[s]
    # an arc occupies three of the `used` numbers of the pool
    arcs, count, at = empty((used // 3, 3), np.int64), 0, 0
    weight = empty(len(arcs))
    while at < used:
        stop = at + HEAD + pool[at + 1]
        for i in range(at + HEAD + 1, stop, 3):
            arcs[count, 0], arcs[count, 1], arcs[count, 2] = pool[i], pool[at], pool[i + 1]
            weight[count] = reals[i + 2]
            count += 1
        at = stop
    return arcs[:count], weight[:count], final


@kernel
def refine(arcs: MachineArcs, block: IntArray, blocks: int) -> IntArray:
    """Return the blocks (K,), split by the least costs of each class into each block."""
    first, nextstate, weight, eps_first, eps_nextstate, eps_weight = arcs
    size = len(block)
    classes = (len(first) - 1) // size
    after, before = np.full((size, blocks), INF), empty((size, blocks), np.int64)
    for j in range(size):
        after[j, block[j]] = 0
    _close_backward(after, eps_first, eps_nextstate, eps_weight)
    pool, row = empty(size * (blocks + 1 + HEAD), np.int64), empty(blocks + 1, np.int64)
    number, begin, count = block.copy(), int(0.0), int(0.0)
    for c in range(classes):
        for j in range(size):
            for b in range(blocks):
                before[j, b] = INF
            for a in range(first[c * size + j], first[c * size + j + 1]):
                for b in range(blocks):
                    before[j, b] = min(before[j, b], weight[a] + after[nextstate[a], b])
        _close_backward(before, eps_first, eps_nextstate, eps_weight)
        slots, count = new_slots(size), begin
        for j in range(size):
            row[0] = number[j]
            for b in range(blocks):
                row[b + 1] = before[j, b]
            hashed = hash_cells(row, begin, blocks + 1)
            used = count * (blocks + 1 + HEAD)
            number[j] = number_row(slots, pool, used, count, row, begin, blocks + 1, hashed)
            count += number[j] == count
        if count == size:
            break
    return number


@inner_kernel
def _close_backward(
    rows: IntArray, eps_first: IntArray, eps_nextstate: IntArray, eps_weight: IntArray
) -> None:
    """Set rows[j] to min(rows[j], weight + rows[k]) over epsilon arcs j -> k, in place."""
    for j in range(len(rows) - 1, -1, -1):
        for e in range(eps_first[j], eps_first[j + 1]):
            for b in range(rows.shape[1]):
                rows[j, b] = min(rows[j, b], eps_weight[e] + rows[eps_nextstate[e], b])
        for b in range(rows.shape[1]):
            rows[j, b] = saturate(rows[j, b])
