"""Projective trees by Eisner's spans: inside sums, backward derivatives, samples, best trees.

A cell (kind, i, j) stands for the words i .. j.  In a complete span, all other words are
descendants of i (RIGHT) or of j (LEFT).  An open span has, in addition, the arc i -> j or j -> i.

    open(i, j)     = sum over k of RIGHT(i, k) LEFT(k+1, j), times the weight of the arc
    RIGHT(i, j)    = sum over k of OPEN_RIGHT(i, k) RIGHT(k, j)
    LEFT(i, j)     = sum over k of LEFT(i, k) OPEN_LEFT(k, j)

Many roots: the root is word 0 and Z = RIGHT(0, n).  Single root: Z is the sum over the root's
dependent r of w_0r LEFT(1, r) RIGHT(r, n).  Cells hold logarithms; each also has a derivative along
one direction.  Backward quantities are probabilities, so they cannot overflow.  Eisner (1996).
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import kernel, part_kernel
from fstgrad.core.uninitialized import empty

RIGHT, LEFT, OPEN_RIGHT, OPEN_LEFT = 0, 1, 2, 3


@part_kernel
def gather(cells: FloatArray, kind: int, i: int, j: int, terms: FloatArray) -> int:
    """Write the terms of a cell's sum, without the arc of an open span; return their number."""
    # at most j - i <= n terms
    count = 0
    if kind == RIGHT:
        for k in range(i + 1, j + 1):
            terms[count] = cells[OPEN_RIGHT, i, k] + cells[RIGHT, k, j]
            count += 1
    elif kind == LEFT:
        for k in range(i, j):
            terms[count] = cells[LEFT, i, k] + cells[OPEN_LEFT, k, j]
            count += 1
    else:
        for k in range(i, j):
            terms[count] = cells[RIGHT, i, k] + cells[LEFT, k + 1, j]
            count += 1
    return count


@part_kernel
def add(terms: FloatArray, count: int, best: bool) -> float:
    """Return the logarithm of the sum of the first `count` terms, or the largest of them."""
    top = -np.inf
    for k in range(count):
        top = max(top, terms[k])
    if best or top == -np.inf:
        return top
    total = 0.0
    for k in range(count):
        total += np.exp(terms[k] - top)
    return float(top + np.log(total))


@part_kernel
def tangent(terms: FloatArray, slopes: FloatArray, count: int, value: float) -> float:
    """Return the derivative of the sum: the mean of the terms' derivatives by their shares."""
    total = 0.0
    if value > -np.inf:
        for k in range(count):
            if terms[k] > -np.inf:
                total += np.exp(terms[k] - value) * slopes[k]
    return total


@part_kernel
def gather_root(s: FloatArray, cells: FloatArray, n: int, terms: FloatArray) -> int:
    """Write the terms of Z, one for each choice of the root's dependent; return their number."""
    for r in range(1, n + 1):
        terms[r - 1] = s[0, r] + cells[LEFT, 1, r] + cells[RIGHT, r, n]
    return n


@part_kernel
def inside(
    s: FloatArray, v: FloatArray, n: int, single: bool, along: bool, best: bool, cells: FloatArray
) -> float:
    """Fill cells (2, 4, n+1, n+1), values and slopes along v; return log Z or the best score."""
    value, slope = cells[0], cells[1]
    value[:] = -np.inf
    slope[:] = 0.0
    if n == 0:
        return 0.0
    for i in range(n + 1):
        value[RIGHT, i, i] = 0.0
        value[LEFT, i, i] = 0.0
    terms, slopes = empty((2, n + 1))
    first = 1 if single else 0
    for width in range(1, n + 1 - first):
        for i in range(first, n + 1 - width):
            j = i + width
            for kind in (OPEN_RIGHT, OPEN_LEFT, RIGHT, LEFT):
                head, dependent = (i, j) if kind == OPEN_RIGHT else (j, i)
                opens = kind in (OPEN_RIGHT, OPEN_LEFT)
                if i == 0 and kind in (LEFT, OPEN_LEFT):
                    continue
                count = gather(value, kind, i, j, terms)
                total = add(terms, count, best)
                if along:
                    gather(slope, kind, i, j, slopes)
                    slope[kind, i, j] = tangent(terms, slopes, count, total)
                if opens:
                    slope[kind, i, j] += v[head, dependent]
                    total += s[head, dependent]
                value[kind, i, j] = total
    if not single:
        return float(value[RIGHT, 0, n])
    return add(terms, gather_root(s, value, n, terms), best)


@part_kernel
def propagate_outside(
    cells: FloatArray,
    kind: int,
    i: int,
    j: int,
    mass: FloatArray,
    work: FloatArray,
    arc: FloatArray,
) -> None:
    """Add the mass of a cell, a probability and its derivative, to the cells of its terms."""
    weight, change = mass[0, kind, i, j], mass[1, kind, i, j]
    if weight == 0.0 and change == 0.0:
        return
    count = gather(cells[0], kind, i, j, work[0])
    gather(cells[1], kind, i, j, work[1])
    value, slope = cells[0, kind, i, j] - arc[0], cells[1, kind, i, j] - arc[1]
    for t in range(count):
        if work[0, t] == -np.inf:
            continue
        share = np.exp(work[0, t] - value)
        part = weight * share
        move = change * share + part * (work[1, t] - slope)
        if kind == RIGHT:
            k = i + 1 + t
            mass[0, OPEN_RIGHT, i, k] += part
            mass[1, OPEN_RIGHT, i, k] += move
            mass[0, RIGHT, k, j] += part
            mass[1, RIGHT, k, j] += move
        elif kind == LEFT:
            k = i + t
            mass[0, LEFT, i, k] += part
            mass[1, LEFT, i, k] += move
            mass[0, OPEN_LEFT, k, j] += part
            mass[1, OPEN_LEFT, k, j] += move
        else:
            k = i + t
            mass[0, RIGHT, i, k] += part
            mass[1, RIGHT, i, k] += move
            mass[0, LEFT, k + 1, j] += part
            mass[1, LEFT, k + 1, j] += move


@part_kernel
def outside(
    s: FloatArray, v: FloatArray, n: int, single: bool, cells: FloatArray, log_z: float,
    mu: FloatArray, dmu: FloatArray,
) -> None:  # fmt: skip
    """Write the marginals and their derivative along v from the filled cells."""
    mass = np.zeros((2, 4, n + 1, n + 1))
    work = empty((2, n + 1))
    if single:
        count = gather_root(s, cells[0], n, work[0])
        gather_root(v, cells[1], n, work[1])
        slope = tangent(work[0], work[1], count, log_z)
        for r in range(1, n + 1):
            if work[0, r - 1] > -np.inf:
                share = np.exp(work[0, r - 1] - log_z)
                move = share * (work[1, r - 1] - slope)
                mu[0, r], dmu[0, r] = share, move
                mass[0, LEFT, 1, r] += share
                mass[1, LEFT, 1, r] += move
                mass[0, RIGHT, r, n] += share
                mass[1, RIGHT, r, n] += move
    else:
        mass[0, RIGHT, 0, n] = 1.0
    arc = np.zeros(2)
    first = 1 if single else 0
    for width in range(n - first, 0, -1):
        for i in range(first, n + 1 - width):
            j = i + width
            arc[:] = 0.0
            propagate_outside(cells, RIGHT, i, j, mass, work, arc)
            propagate_outside(cells, LEFT, i, j, mass, work, arc)
            for kind in (OPEN_RIGHT, OPEN_LEFT):
                head, dependent = (i, j) if kind == OPEN_RIGHT else (j, i)
                if dependent > 0:
                    mu[head, dependent] = mass[0, kind, i, j]
                    dmu[head, dependent] = mass[1, kind, i, j]
                    arc[0], arc[1] = s[head, dependent], v[head, dependent]
                    if s[head, dependent] > -np.inf:
                        propagate_outside(cells, kind, i, j, mass, work, arc)


@kernel
def solve_batch(
    scores: FloatArray, v: FloatArray, lengths: IntArray, single: bool, along: bool,
    log_partition: FloatArray, mu: FloatArray, dmu: FloatArray,
) -> None:  # fmt: skip
    """Write log Z, marginals and, if `along`, Cov v of every item."""
    mu[:] = 0.0
    dmu[:] = 0.0
    for item in range(len(lengths)):
        n = lengths[item]
        cells = empty((2, 4, n + 1, n + 1))
        s, direction = scores[item], v[item]
        log_partition[item] = inside(s, direction, n, single, along, False, cells)
        if log_partition[item] > -np.inf and n > 0:
            outside(s, direction, n, single, cells, log_partition[item], mu[item], dmu[item])


@part_kernel
def pick(terms: FloatArray, count: int, target: float) -> int:
    """Return the index of the largest term if target < 0, otherwise one drawn by its weight."""
    top = 0
    for k in range(count):
        if terms[k] > terms[top]:
            top = k
    if target < 0.0:
        return top
    total = 0.0
    for k in range(count):
        total += np.exp(terms[k] - terms[top])
    target *= total
    for k in range(count):
        target -= np.exp(terms[k] - terms[top])
        if target < 0.0:
            return k
    return top


@part_kernel
def descend(
    s: FloatArray, cells: FloatArray, n: int, single: bool, draws: FloatArray, heads: IntArray
) -> None:
    """Write heads (n,) by choosing a term of every cell from the top: the best, or by `draws`.

    draws : (3n+1,) uniform numbers, or negative numbers for the best terms.
    """
    # At most n open and 2 n complete cells are longer than one node.  Each uses one draw and pushes
    # two cells, so the stack never has more than 4 n + 4.
    stack = empty((4 * n + 4, 3), dtype=np.int64)
    terms = empty(n + 1)
    size = 0
    used = 0
    if single:
        r = 1 + pick(terms, gather_root(s, cells, n, terms), draws[used])
        used += 1
        heads[r - 1] = 0
        stack[0, 0], stack[0, 1], stack[0, 2] = LEFT, 1, r
        stack[1, 0], stack[1, 1], stack[1, 2] = RIGHT, r, n
        size = 2
    else:
        stack[0, 0], stack[0, 1], stack[0, 2] = RIGHT, 0, n
        size = 1
    while size > 0:
        size -= 1
        kind, i, j = stack[size]
        if i == j:
            continue
        k = i + pick(terms, gather(cells, kind, i, j, terms), draws[used])
        used += 1
        if kind == RIGHT:
            left, right = (OPEN_RIGHT, i, k + 1), (RIGHT, k + 1, j)
        elif kind == LEFT:
            left, right = (LEFT, i, k), (OPEN_LEFT, k, j)
        else:
            left, right = (RIGHT, i, k), (LEFT, k + 1, j)
            if kind == OPEN_RIGHT:
                heads[j - 1] = i
            else:
                heads[i - 1] = j
        for cell in (left, right):
            stack[size, 0], stack[size, 1], stack[size, 2] = cell
            size += 1


@kernel
def best_batch(scores: FloatArray, lengths: IntArray, single: bool, heads: IntArray) -> int:
    """Write the best heads of every item, -1 past its length and in items without a tree.

    Return the first item without a tree, -1 if there is none.
    """
    heads[:] = -1
    infeasible = -1
    for item in range(len(lengths)):
        n = lengths[item]
        cells = empty((2, 4, n + 1, n + 1))
        best = inside(scores[item], scores[item], n, single, False, True, cells)
        if best == -np.inf:
            infeasible = item if infeasible < 0 else infeasible
        elif n > 0:
            descend(scores[item], cells[0], n, single, np.full(3 * n + 1, -1.0), heads[item, :n])
    return infeasible


@kernel
def sample_batch(
    scores: FloatArray, lengths: IntArray, single: bool, rng: np.random.Generator, heads: IntArray
) -> None:
    """Write heads (k, b, m) of k independent trees per item, -1 past an item's length."""
    heads[:] = -1
    for item in range(len(lengths)):
        n = lengths[item]
        cells = empty((2, 4, n + 1, n + 1))
        inside(scores[item], scores[item], n, single, False, False, cells)
        draws = empty(3 * n + 1)
        for k in range(heads.shape[0] if n > 0 else 0):
            for d in range(3 * n + 1):
                draws[d] = rng.random()
            descend(scores[item], cells[0], n, single, draws, heads[k, item, :n])
