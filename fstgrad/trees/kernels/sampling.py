"""Random spanning trees: Wilson's loop-erased walks, and Colbourn's draws head by head.

Draws head by head need the probabilities of the heads of the last remaining dependent.  They come
from the elimination of the other nodes, without subtractions (`head_weights`), or from an inverse
Laplacian that is updated as heads are chosen (`head_probabilities`).  B is the inverse of the
Laplacian of the remaining dependents 1 .. j+1, with rows and columns as in `matrix_tree`: the
probability of head h for dependent d is w_hd (B_dd - B_dh), or w_0d B_dd for the root.  If d is
merged into the node a that holds its head, B loses a row and a column,

    B'_ki = B_ki - (B_kd - B_ka) B_di / (B_dd - B_da),

by Sherman and Morrison's formula (Stanojevic, EMNLP 2022), in O(n^2) instead of the O(n^3) of an
elimination.  The differences lose digits for improbable heads, which the functions report.
"""

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.compiler import inner_kernel, kernel, part_kernel
from fstgrad.core.uninitialized import empty
from fstgrad.trees.kernels.elimination import (
    add_logs,
    eliminate,
    eliminate_logs,
    substitute,
    substitute_logs,
)
from fstgrad.trees.kernels.matrix_tree import invert_laplacian

# A difference above this fraction of the diagonal entry is trusted: it keeps half of its digits.
LEAST_SLOPE = 1e-8
# The largest difference of the probabilities of all heads from a sum of 1.
SUM_TOLERANCE = 1e-9


@kernel
def draw(cumulative: FloatArray, rng: np.random.Generator) -> int:
    """Return an index drawn by the cumulative weights, whose last entry is the total."""
    last = len(cumulative) - 1
    return first_above(rng.random() * cumulative[last], cumulative, 0, last)


@inner_kernel
def first_above(value: float, ascending: FloatArray, low: int, high: int) -> int:
    """Return the first index in low .. high-1 whose entry is above the value, otherwise high."""
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def wilson(
    w: FloatArray,
    root_chance: FloatArray,
    n: int,
    single: bool,
    steps: int,
    rng: np.random.Generator,
    heads: IntArray,
) -> bool:
    """Write trees (k, n) by walks along random heads, from each dependent to the tree so far.

    Loops are overwritten.  root_chance : (n+1,) the marginals of the root arcs; a single root's
    arc is drawn from them first.  steps : the number of steps that all walks together may take;
    return False, without valid trees, if they need more.
    """
    cumulative = np.zeros((n + 1, n + 1))
    for j in range(1, n + 1):
        total = 0.0
        for h in range(n + 1):
            if not (single and h == 0):
                total += w[h, j]
            cumulative[j, h] = total
    roots = np.cumsum(root_chance)
    for item in range(heads.shape[0]):
        head = heads[item]
        in_tree = np.zeros(n + 1, dtype=np.bool_)
        in_tree[0] = True
        if single:
            child = draw(roots, rng)
            in_tree[child] = True
            head[child - 1] = 0
        for start in range(1, n + 1):
            node = start
            while not in_tree[node]:
                if steps == 0 or not cumulative[node, n] > 0.0:
                    return False
                steps -= 1
                head[node - 1] = draw(cumulative[node], rng)
                node = head[node - 1]
            node = start
            while not in_tree[node]:
                in_tree[node] = True
                node = head[node - 1]
    return True


@kernel
def head_weights(
    a: FloatArray, w: FloatArray, holder: IntArray, j: int, logs: bool, out: FloatArray
) -> bool:
    """Write weights of the heads of dependent j + 1, given the heads of the dependents after it.

    a : (j + 2, j + 1) the weights [root and nodes, nodes] of the remaining nodes, to which those of
        the later nodes have been added.
    w : (n+1, n+1) all weights.  holder : (n+1,) the node of a to which each node belongs.
    out : (n+1,) proportional to the probabilities; logarithms if w and a are.
    Return whether all pivots were safe.
    """
    n = len(w) - 1
    x = a.copy().reshape(1, j + 2, j + 1)
    reach = np.zeros((1, j + 2, j + 1))
    work = empty((1, j + 1))
    if logs:
        reach[:] = -np.inf
    for k in range(j):
        if logs:
            safe = eliminate_logs(x, k, k + 1, j + 1, False, work) > -np.inf
        else:
            safe = eliminate(x, k, k + 1, j + 1, False) > 0.0
        if not safe:
            return False
    for k in range(j - 1, -1, -1):
        reach[0, k + 1, j] = x[0, 0, k]
        if logs:
            end = reach[:, :, j : j + 1]
            substitute_logs(x, k, k + 1, j + 1, end, end[:, k + 1], work)
        else:
            substitute(x, k, k + 1, j + 1, 0, (j, j + 1), reach)
    reach[0, 0, j] = 0.0 if logs else 1.0
    for h in range(n + 1):
        inside = holder[h] == j + 1
        if logs:
            out[h] = -np.inf if inside else w[h, j + 1] + reach[0, holder[h], j]
        else:
            out[h] = 0.0 if inside else w[h, j + 1] * reach[0, holder[h], j]
    return True


@kernel
def contract(a: FloatArray, holder: IntArray, j: int, head: int, logs: bool) -> None:
    """Merge dependent j + 1 and the nodes that belong to it into the node that holds its head."""
    above = holder[head]
    for h in range(len(holder)):
        if holder[h] == j + 1:
            holder[h] = above
    if logs:
        row = a[above].reshape(1, -1)
        add_logs(row[:, :j], a[j + 1].reshape(1, -1)[:, :j])
    else:
        for k in range(j):
            a[above, k] += a[j + 1, k]


@kernel
def inverse_of_laplacian(w: FloatArray, b: FloatArray) -> bool:
    """Write B (n, n) of weights (n+1, n+1); return whether it can be trusted."""
    n = len(b)
    g, mu = empty((n + 1, n + 1)), empty((n + 1, n + 1))
    if np.isnan(invert_laplacian(w, n, False, empty((n + 4) * (n + 8)), g, mu)):
        return False
    for d in range(n):
        for h in range(n):
            b[d, h] = g[0, d + 1] - g[h + 1, d + 1]
        b[d, d] = g[0, d + 1]
    return True


@kernel
def head_probabilities(
    b: FloatArray, w: FloatArray, holder: IntArray, j: int, out: FloatArray
) -> tuple[bool, bool]:
    """Write the probabilities (n+1,) of the heads of dependent j + 1, as `head_weights`.

    Return whether all of them keep their digits, and whether B does: they then sum to one.
    """
    total = 0.0
    good = True
    for h in range(len(w)):
        at = holder[h]
        if at == j + 1 or w[h, j + 1] == 0.0:
            out[h] = 0.0
            continue
        slope = b[j, j] - b[j, at - 1] if at > 0 else b[j, j]
        good = good and slope > LEAST_SLOPE * b[j, j]
        out[h] = w[h, j + 1] * slope
        total += out[h]
    return good, abs(total - 1.0) < SUM_TOLERANCE


@kernel
def contract_inverse(b: FloatArray, j: int, above: int) -> bool:
    """Merge dependent j + 1 into `above` (0 is the root); return whether B keeps its digits."""
    pivot = b[j, j] if above == 0 else b[j, j] - b[j, above - 1]
    if not pivot > LEAST_SLOPE * b[j, j]:
        return False
    last = b[j]
    for k in range(j):
        row = b[k]
        factor = (row[j] if above == 0 else row[j] - row[above - 1]) / pivot
        for i in range(j):
            row[i] -= factor * last[i]
    return True


@part_kernel
def with_root_dependent(w: FloatArray, child: int, logs: bool) -> FloatArray:
    """Return weights (n+1, n+1) in which `child`, exchanged with node n, is the root's dependent.

    Node n of the result, the former `child`, has the root as its only head, with weight 1.
    """
    n = len(w) - 1
    out = w.copy()
    for k in range(n + 1):
        out[child, k], out[n, k] = out[n, k], out[child, k]
    for k in range(n + 1):
        out[k, child], out[k, n] = out[k, n], out[k, child]
    zero = -np.inf if logs else 0.0
    for k in range(n + 1):
        out[0, k] = zero
        out[k, n] = zero
    out[0, n] = 0.0 if logs else 1.0
    return out


@kernel
def colbourn(
    w: FloatArray,
    root_chance: FloatArray,
    logs: bool,
    single: bool,
    rng: np.random.Generator,
    heads: IntArray,
) -> bool:
    """Write trees (k, n); return whether all pivots were safe.  O(n^4 / 12) per tree.

    w : weights or, with `logs`, their logarithms.
    In each step, the head of the last node is drawn from its exact marginals given the heads drawn
    before.  The node is then contracted into its head: the arcs out of it become arcs out of its
    head.  Marginals come from the elimination of all other nodes, without subtractions.  A single
    root's dependent is drawn first.
    """
    n = len(w) - 1
    roots = np.cumsum(root_chance)
    cumulative = empty(n + 1)
    for item in range(heads.shape[0]):
        child = draw(roots, rng) if single else n
        weights = with_root_dependent(w, child, logs) if single else w
        a = weights[:, 1:].copy()
        holder = np.arange(n + 1)
        for j in range(n - 1, -1, -1):
            head = 0
            if not (single and j == n - 1):
                left = a[: j + 2, : j + 1]
                if not head_weights(left, weights, holder, j, logs, cumulative):
                    return False
                if logs:
                    cumulative[:] = np.exp(cumulative - cumulative.max())
                for h in range(1, n + 1):
                    cumulative[h] += cumulative[h - 1]
                if not (cumulative[n] > 0.0 and np.isfinite(cumulative[n])):
                    return False
                head = draw(cumulative, rng)
            heads[item, j] = head
            contract(a, holder, j, head, logs)
        if single:
            swap_heads(heads[item], child, n)
    return True


@part_kernel
def swap_heads(heads: IntArray, node: int, n: int) -> None:
    """Exchange the names of a node and node n in a tree."""
    heads[node - 1], heads[n - 1] = heads[n - 1], heads[node - 1]
    for d in range(n):
        if heads[d] == node:
            heads[d] = n
        elif heads[d] == n:
            heads[d] = node
