"""Random spanning trees: Wilson's loop-erased walks, and head by head after Colbourn."""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.compiler import inner_kernel, kernel
from fstgrad.trees.kernels import logarithms
from fstgrad.trees.kernels.elimination import eliminate, substitute


@kernel
def draw(cumulative: FloatArray, rng: np.random.Generator) -> int:
    """Return an index by its cumulative weights, the last of which is the total."""
    last = len(cumulative) - 1
    return first_above(rng.random() * cumulative[last], cumulative, 0, last)


@inner_kernel
def first_above(value: float, ascending: FloatArray, low: int, high: int) -> int:
    """Return the first index from low to high whose entry is larger than a value, else high."""
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
    """Write trees (k, n): from each dependent walk to heads until the tree; loops are overwritten.

    root_chance : (n+1,) the marginals of the root arcs, from which a single one is drawn first.
    steps : how many steps all walks together may take; False, and no trees, if they need more.
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
def last_column(
    a: FloatArray, w: FloatArray, holder: IntArray, j: int, logs: bool, out: FloatArray
) -> bool:
    """Write the chance of every head of dependent j + 1, given those of the dependents after it.

    a : (j + 2, j + 1) the weights [root and nodes, nodes] left; later nodes' have been added.
    w : (n+1, n+1) all weights.  holder : (n+1,) the node of a that each node is part of.
    out : (n+1,) chances in proportion; logarithms if w and a are.
    Return whether all pivots were safe.
    """
    n = len(w) - 1
    x = a.copy().reshape(1, j + 2, j + 1)
    reach = np.zeros((1, j + 2, j + 1))
    work = np.empty((1, j + 1))
    if logs:
        reach[:] = -np.inf
    for k in range(j):
        if logs:
            safe = logarithms.eliminate(x, k, k + 1, j + 1, False, work) > -np.inf
        else:
            safe = eliminate(x, k, k + 1, j + 1, False) > 0.0
        if not safe:
            return False
    for k in range(j - 1, -1, -1):
        reach[0, k + 1, j] = x[0, 0, k]
        if logs:
            end = reach[:, :, j : j + 1]
            logarithms.substitute(x, k, k + 1, j + 1, end, end[:, k + 1], work)
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
def join(a: FloatArray, holder: IntArray, j: int, head: int, logs: bool) -> None:
    """Make dependent j + 1, and what it holds, part of what holds its head."""
    above = holder[head]
    for h in range(len(holder)):
        if holder[h] == j + 1:
            holder[h] = above
    if logs:
        row = a[above].reshape(1, -1)
        logarithms.add(row[:, :j], a[j + 1].reshape(1, -1)[:, :j])
    else:
        for k in range(j):
            a[above, k] += a[j + 1, k]


@kernel
def rooted(w: FloatArray, child: int, logs: bool) -> FloatArray:
    """Return weights (n+1, n+1) whose root is the dependent `child`, exchanged with the last node.

    Node `child` is node n of the result, whose head is the root with weight 1.
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
    """Write trees (k, n); return whether all pivots were safe.  O(n^4 / 12) a tree.

    w : weights or, with `logs`, their logarithms.
    The last node draws its head from its exact marginals, given the heads drawn before, and is
    contracted into it: the arcs out of it become arcs out of its head.  Marginals come from the
    elimination of all other nodes, without subtractions.  A single root's dependent is drawn first.
    """
    n = len(w) - 1
    roots = np.cumsum(root_chance)
    cumulative = np.empty(n + 1)
    for item in range(heads.shape[0]):
        child = draw(roots, rng) if single else n
        weights = rooted(w, child, logs) if single else w
        a = weights[:, 1:].copy()
        holder = np.arange(n + 1)
        for j in range(n - 1, -1, -1):
            head = 0
            if not (single and j == n - 1):
                left = a[: j + 2, : j + 1]
                if not last_column(left, weights, holder, j, logs, cumulative):
                    return False
                if logs:
                    cumulative[:] = np.exp(cumulative - cumulative.max())
                for h in range(1, n + 1):
                    cumulative[h] += cumulative[h - 1]
                if not (cumulative[n] > 0.0 and np.isfinite(cumulative[n])):
                    return False
                head = draw(cumulative, rng)
            heads[item, j] = head
            join(a, holder, j, head, logs)
        if single:
            exchange_heads(heads[item], child, n)
    return True


@kernel
def exchange_heads(heads: IntArray, node: int, n: int) -> None:
    """Exchange the names of a node and node n in a tree."""
    heads[node - 1], heads[n - 1] = heads[n - 1], heads[node - 1]
    for d in range(n):
        if heads[d] == node:
            heads[d] = n
        elif heads[d] == n:
            heads[d] = node
